"""A log's life in memory, one step after the other, any operation of whose disk may fail; and what it has promised.

A step that the disk refuses is done again, as clients and replicas do, while the directory is online. `Life.check`
opens the log anew, after a clean stop or after a kill, and compares it with the promises and with a full scan of
itself.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from sim.checks.log_checks import check_log
from tests.unit.storage.support import (
    NOW_MS,
    TOPIC_ID,
    TP,
    FaultyMemoryDisk,
    StandingClock,
    batch,
    marker,
    open_manager,
    records_of,
)

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.storage.errors import NoLogDirectory
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_manager import LogManager
from tidelog.storage.producer_state import AppendOrigin
from tidelog.storage.tasks import run_now

CONFIG = LogConfig(
    segment_bytes=700,
    segment_index_bytes=128,
    index_interval_bytes=100,
    retention_bytes=2_500,
    file_delete_delay_ms=1_000,
)
DIRECTORY = "/memory/life"
TRIES_MAX = 5


class LifeDisk(FaultyMemoryDisk):
    """Every operation may fail: also the looks at folders."""

    def list(self, path: str) -> Sequence[str]:
        self.happens("list", path)
        return super().list(path)

    def make_directories(self, path: str) -> None:
        self.happens("make_directories", path)
        super().make_directories(path)

    def sync_file_system(self, path: str) -> None:
        self.happens("sync_file_system", path)


class Life:
    """`run` it, perhaps with a fault, and `check` it."""

    def __init__(self) -> None:
        self.disk = LifeDisk()
        self.clock = StandingClock()
        self.manager = open_manager(DIRECTORY, disk=self.disk, clock=self.clock, config=CONFIG)
        self.log: Log | None = None
        self.acknowledged: dict[int, bytes] = {}
        """[offset] -> value, of every record that has to be there"""
        self.start = 0
        self.refused: list[KafkaError] = []
        self.is_offline = False
        self._sequences = dict.fromkeys(range(1, 4), 0)
        self._count = 0

    # Faults.

    def fail_at(self, number: int, code: int) -> None:
        """Lets the operation of that number fail, counted from now on."""
        count = 0

        def fault(operation: str, path: str) -> OSError | None:
            nonlocal count
            count += 1
            return OSError(code, os.strerror(code), path) if count == number else None

        self.disk.operations.clear()
        self.disk.fault = fault

    def operation(self, number: int) -> str:
        return " ".join(self.disk.operations[number - 1]) if number <= len(self.disk.operations) else "none"

    # The life.

    def run(self) -> None:
        """All steps; ends early where the directory goes offline."""
        for step in self._steps():
            for _ in range(TRIES_MAX):
                try:
                    step()
                    break
                except KafkaError as error:
                    if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                        raise
                    self.refused.append(error)
                    if self.manager.has_failed:
                        self.is_offline = True
                        return
            else:
                raise AssertionError(f"{step} is refused for ever: {self.refused[-1]}")
            if self.log is not None:
                self.agree(self.log)
            self.is_offline = self.manager.has_failed
            if self.is_offline:
                return

    def _steps(self) -> Iterator[Callable[[], object]]:
        yield self._create
        for number in range(3):
            for _ in range(6):
                yield self._append
            yield lambda: self._transact(1)
            yield lambda: self._transact(2)
            yield self._append
            yield lambda: self._end(1, commit=False)
            yield self._replicated
            yield self._maintenance
            yield self._flush
            yield lambda: self._transact(3)
            yield lambda: self._end(2, commit=True)
            yield lambda number=number: self.the_log.assign_epoch(number + 1)  # type: ignore[misc]
            yield self._append
            yield self._truncate
            yield lambda: self._end(3, commit=False)
            yield self._append
            yield self._replicated
            yield self._retain
            yield self._maintenance
        yield self._begin_anew
        yield self._append
        yield lambda: self._transact(1)
        yield lambda: self._end(1, commit=False)
        yield self._append
        yield self._replicated
        yield self._maintenance

    @property
    def the_log(self) -> Log:
        assert self.log is not None
        return self.log

    def _create(self) -> None:
        self.log = self.manager.create(TP, TOPIC_ID)

    @property
    def _epoch(self) -> int:
        return max(self.the_log.epochs.latest, 0)

    def _append(self) -> None:
        self._write(batch(self._value(), self._value()))

    def _value(self) -> bytes:
        self._count += 1
        return b"value-%d" % self._count + b"." * (self._count * 7 % 90)

    def _transact(self, producer_id: int) -> None:
        sequence = self._sequences[producer_id]
        data = batch(
            self._value(), producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        self._write(data)
        self._sequences[producer_id] = sequence + 1

    def _end(self, producer_id: int, *, commit: bool) -> None:
        self._write(marker(producer_id, commit=commit), AppendOrigin.COORDINATOR)

    def _write(self, data: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        log = self.the_log
        end = log.log_end_offset
        info = log.append(data, leader_epoch=self._epoch, now_ms=self.clock.now_ms, origin=origin)
        assert (info.first_offset, info.duplicate) == (end, False)
        self.acknowledged |= {record.offset: record.value or b"" for record in records_of(bytes(data))}

    def _replicated(self) -> None:
        self.the_log.update_high_watermark(self.the_log.log_end_offset)

    def _flush(self) -> None:
        task = self.the_log.flush_task()
        if task is not None:
            run_now(task)

    def _retain(self) -> None:
        log = self.the_log
        start = min(log.log_start_offset + 3, log.high_watermark)
        log.announce_start(start)
        self._began_at(start)
        for _ in range(2):
            for task in self.manager.maintenance.checkpoint_tasks():
                run_now(task)
        log.advance_start(start)
        try:
            log.delete_old_segments(self.clock.now_ms)
        finally:
            self._began_at(log.log_start_offset)

    def _began_at(self, start: int) -> None:
        self.start = start
        self.acknowledged = {offset: value for offset, value in self.acknowledged.items() if offset >= start}

    def _maintenance(self) -> None:
        self.clock.now_ms += 120_000
        for _ in range(3):
            self.manager.maintenance.run_due(self.clock.monotonic_ms())
            self.clock.now_ms += 2_000
        self._began_at(self.the_log.log_start_offset)

    def _truncate(self) -> None:
        """What two producers wrote last is cut off; transactions go on that were open before."""
        log = self.the_log
        target = max(log.log_end_offset - 5, log.log_start_offset)
        known = self.acknowledged
        # Of two records in a batch both may go.
        self.acknowledged = {offset: value for offset, value in known.items() if offset < target - 1}
        self._settled(lambda: log.announce_truncation(target))
        self._settled(lambda: log.truncate_to(target))
        self._ended_at(log, known)

    def _begin_anew(self) -> None:
        log = self.the_log
        self.acknowledged.clear()
        self._settled(lambda: log.announce_truncation(log.log_start_offset))
        self._settled(lambda: log.truncate_fully(1_000))
        self._ended_at(log, {})
        self._began_at(1_000)

    def _settled(self, step: Callable[[], object]) -> None:
        """Done again until it is, and durable: nothing else happens to the log meanwhile."""
        for _ in range(TRIES_MAX):
            try:
                step()
            except KafkaError as error:
                self.refused.append(error)
                if self.manager.has_failed:
                    raise
                continue
            break
        for _ in range(TRIES_MAX):
            for task in self.manager.maintenance.truncation_tasks():
                run_now(task)
        if self.manager.has_failed:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "offline")
        assert not self.the_log.truncation_is_pending

    def _ended_at(self, log: Log, known: dict[int, bytes]) -> None:
        self.acknowledged = {offset: value for offset, value in known.items() if offset < log.log_end_offset}
        log.catch_up_producers(self.clock.now_ms)
        for producer_id in self._sequences:
            entry = log.producers.entries.get(producer_id)
            self._sequences[producer_id] = 0 if entry is None else entry.last_sequence + 1

    # What holds.

    def agree(self, log: Log) -> None:
        """The files of the folder are those of the log's segments; without a fault they are, at any time."""
        if log.folder.unfinished:
            return
        names = [name for name in self.disk.files if name.startswith(f"{log.directory}/") and name.endswith(".log")]
        expected = [f"{log.directory}/{segment.base_offset:020d}.log" for segment in log.segments]
        assert sorted(names) == expected

    def check(self, *, clean: bool) -> None:
        """Opens the log anew; without faults from now on."""
        self.disk.fault = lambda _operation, _path: None
        if clean:
            self.manager.close()
        else:
            self.manager.abandon()
        self.compare()

    def compare(self) -> None:
        manager = open_manager(DIRECTORY, disk=self.disk, clock=self.clock, config=CONFIG)
        self.compare_in(manager)
        manager.close()

    def compare_in(self, manager: LogManager) -> None:
        log = manager.get(TP)
        if log is None:
            assert not self.acknowledged
            return
        log.update_high_watermark(log.log_end_offset)
        found = {
            record.offset: record.value or b""
            for each in check_log(log)
            for record in each.records
            if record.offset >= self.start
        }
        assert {offset: found.get(offset) for offset in self.acknowledged} == self.acknowledged
        if not self.is_offline:
            assert found.keys() == self.acknowledged.keys()
        self.agree(log)
        info = log.append(batch(b"new"), leader_epoch=max(log.epochs.latest, 0), now_ms=NOW_MS)
        assert info.first_offset > max(self.acknowledged, default=-1)
        if self.acknowledged:
            assert info.first_offset == max(self.acknowledged) + 1 or self.is_offline


def count_operations() -> int:
    """Of a life without faults."""
    life = Life()
    life.disk.operations.clear()
    life.run()
    assert not life.refused
    return len(life.disk.operations)


def fail_in_life(number: int, code: int, *, clean: bool) -> None:
    """Lets the operation of that number fail, goes on, stops or is killed, and compares. AssertionError."""
    life = Life()
    life.fail_at(number, code)
    life.run()
    hit = f"operation {number} with {errno.errorcode[code]}: {life.operation(number)}"
    if code in ALONE and not life.operation(number).startswith("fsync /"):
        assert not life.is_offline, hit
    try:
        life.check(clean=clean and not life.is_offline)
    except AssertionError as error:
        raise AssertionError(f"{hit}: {error}") from error


def fail_in_start(number: int, code: int) -> bool:
    """The same in the start after a kill, and compares after another start; false if it makes fewer operations."""
    life = Life()
    life.run()
    life.manager.abandon()
    life.fail_at(number, code)
    with suppress(NoLogDirectory):
        open_manager(DIRECTORY, disk=life.disk, clock=life.clock, config=CONFIG).abandon()
    life.disk.fault = lambda _operation, _path: None
    hit = f"operation {number} of a start with {errno.errorcode[code]}: {life.operation(number)}"
    try:
        life.compare()
    except AssertionError as error:
        raise AssertionError(f"{hit}: {error}") from error
    return life.operation(number) != "none"


ALONE = (errno.EMFILE, errno.ENOMEM, errno.ENFILE, errno.EINTR, errno.EAGAIN)
BROKEN = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.ENOENT)


def main() -> None:
    """Everything: some minutes."""
    operations = count_operations()
    for code in (*ALONE, *BROKEN):
        for number in range(1, operations + 1):
            for clean in (True, False):
                fail_in_life(number, code, clean=clean)
        number = 1
        while fail_in_start(number, code):
            number += 1
        print(f"{errno.errorcode[code]}: {operations} operations of a life, {number} of a start")


if __name__ == "__main__":
    main()
