"""One ShareFetch, until it is answered: it waits for records that may be acquired, reads them, acquires them.

    begin --> nothing to acquire --> purgatory, under the share partitions and their replicas
      |                                  |
      +--> read, by an I/O thread <------+
              '--> acquire --> answer, or wait on where another member was faster

A share partition is read by one fetch at a time (`is_reading`), so that what was read is what is acquired. No log
directory is waited for long while another one has records (`cold_reads`).
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tidelog.broker.deferred import Deferred
from tidelog.broker.sharing.acknowledging import replica_of
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.records.aborted_transactions import AbortedTransactions
from tidelog.records.batch import iterate_headers
from tidelog.sharing.partition import Acquired, ReadBatch
from tidelog.storage.errors import WouldBlock

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.replicas.purgatory import Entry
    from tidelog.broker.sharing.partitions import LedSharePartition, SharePartitions
    from tidelog.broker.sharing.surroundings import Surroundings
    from tidelog.sharing.sessions import SharedPlace, ShareSession
    from tidelog.storage.log import Log

READ_SIZE_MIN: Final = 65_536
"""Bytes that a fetch reads of a partition at least, if its client takes as many."""
STRICT: Final = 1
"""ShareAcquireMode: no more records than were asked for (KIP-1206)."""

Data = messages.ShareFetchResponse.PartitionData


class Got(NamedTuple):
    """What one partition gives."""

    records: bytes = b""
    acquired: tuple[Acquired, ...] = ()
    error: KafkaError | None = None


class _Read(NamedTuple):
    """Batches of a log, as they were read."""

    data: bytes
    batches: list[tuple[ReadBatch, int, int]]
    """With where each begins and ends in `data`."""


_ReadInDirectory: TypeAlias = "tuple[list[int], list[_Read | KafkaError] | Exception]"
"""What a read in one log directory gives, by the places of its partitions among those that are read."""


class ShareFetch:
    """An operation of the purgatory."""

    def __init__(
        self,
        node: Surroundings,
        partitions: SharePartitions,
        context: RequestContext,
        session: ShareSession,
        request: messages.ShareFetchRequest,
    ) -> None:
        self._node = node
        self._partitions = partitions
        self._context = context
        self._session = session
        self._is_strict = request.share_acquire_mode == STRICT
        self._records_max = request.max_records
        self._batch_size = request.batch_size
        self._bytes_max = min(request.max_bytes, node.config.fetch_max_bytes)
        if context.quota is not None:
            self._bytes_max = int(min(self._bytes_max, context.quota.fetch_bytes_max))
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._deadline_ms = node.clock.monotonic_ms() + max(request.max_wait_ms, 0)
        self._settings = partitions.settings(session.group)
        self._led: list[tuple[SharedPlace, LedSharePartition]] = []
        self._got: dict[SharedPlace, Got] = {}
        self._entry: Entry | None = None
        self._is_last_look = False
        self._is_abandoned = False
        self.answer: Deferred[dict[SharedPlace, Got]] = Deferred()
        """What partitions give; those that give nothing are left out."""
        self.answer.on_abandoned = self._abandoned

    def begin(self) -> None:
        """Answers at once, or begins to wait; neither for a client that went while its acknowledgements were stored."""
        if not self._is_abandoned:
            self._look_up()
            self._wait()

    def _look_up(self) -> None:
        """Finds the share partitions as they are now."""
        self._led = []
        for place in self._session.rotated():
            try:
                replica = replica_of(self._node, self._context, place)
            except KafkaError as error:
                self._got[place] = Got(error=error)
                continue
            led = self._partitions.find(self._session.group, place.topic_id, replica)
            if led.error is not None:
                self._got[place] = Got(error=led.error)
            else:
                self._led.append((place, led))
                self._session.touched.add(place)

    def _wait(self) -> None:
        keys: dict[Hashable, None] = {}
        for _, led in self._led:
            keys[led] = keys[led.replica] = None
        timeout_ms = self._deadline_ms - self._node.clock.monotonic_ms()
        entry = self._node.purgatory.wait(self, keys, timeout_ms)
        if entry is not None:
            self._entry = entry

    def _abandoned(self) -> None:
        """The client is gone."""
        self._is_abandoned = True
        if self._entry is not None:
            self._node.purgatory.cancel(self._entry)
            self._entry = None

    # The purgatory's side.

    def try_complete(self) -> bool:
        if self._got:
            self._read(self._acquirable())
            return True
        for place, led in self._led:
            if led.error is not None:
                self._got[place] = Got(error=led.error)
                self._finish()
                return True
            if not led.is_current:
                self._moved(place)
                return True
        ready = self._acquirable()
        if not ready or self._too_little(ready):
            return False
        self._read(ready)
        return True

    def expire(self) -> None:
        self._is_last_look = True
        self._read(self._acquirable())

    def _moved(self, place: SharedPlace) -> None:
        """The share partition is void: it is looked up anew by the next fetch, or led elsewhere."""
        try:
            replica_of(self._node, self._context, place)
        except KafkaError as error:
            self._got[place] = Got(error=error)
        self._finish()

    def _acquirable(self) -> list[tuple[SharedPlace, LedSharePartition]]:
        found = []
        for place, led in self._led:
            machine = led.machine
            if machine is None or led.is_reading or not led.is_current:
                continue
            if not self._node.cold_reads.accepts(led.replica.log.owner.path):
                continue
            machine.start_moved(led.replica.log.log_start_offset)
            limit = led.limit(self._settings)
            if machine.can_acquire(limit) and led.nothing_at != (machine.next_fetch_offset, limit):
                found.append((place, led))
        return found if self._records_max > 0 and not self._session.is_over else []

    def _too_little(self, ready: list[tuple[SharedPlace, LedSharePartition]]) -> bool:
        """Whether less could be read than the member waits for."""
        if self._bytes_min <= 1:
            return False
        size = 0
        for _, led in ready:
            assert led.machine is not None
            try:
                result = led.replica.log.read(
                    led.machine.next_fetch_offset,
                    self._bytes_min,
                    up_to_offset=led.limit(self._settings),
                    blocking=False,
                    checked=False,
                )
            except (KafkaError, WouldBlock):
                return False
            for each in result.ranges:
                each.release()
            size += result.size
        return size < self._bytes_min

    # Reading.

    def _read(self, ready: list[tuple[SharedPlace, LedSharePartition]]) -> None:
        """Has I/O threads read, and acquires what they have read. Directories that are late are not waited for: what
        lies there is read anew once it is in memory, by the fetch that comes then."""
        if not ready:
            self._finish()
            return
        ready = self._within_reach(ready)
        share = max(self._bytes_max // len(ready), 1)
        wanted = []
        for _, led in ready:
            assert led.machine is not None
            led.is_reading = True
            limit = led.limit(self._settings)
            # Twice what the records that are wanted took before: each byte that is read is copied and checked.
            size = min(share, max(READ_SIZE_MIN, int(2 * self._records_max * led.bytes_per_record)))
            wanted.append((led.replica.log, led.machine.next_fetch_offset, limit, size))
        read_committed = self._settings.read_committed

        by_directory: dict[str, list[int]] = {}
        for index, (log, *_) in enumerate(wanted):
            by_directory.setdefault(log.owner.path, []).append(index)

        def read_these(indexes: list[int]) -> _ReadInDirectory:
            try:
                return indexes, [_read_log(*wanted[each], read_committed=read_committed) for each in indexes]
            except Exception as error:  # The request is answered with it, and the partitions may be read again.
                return indexes, error

        truncations = [log.truncations for log, *_ in wanted]

        def acquire(index: int, result: _Read | KafkaError) -> None:
            (place, led), (_, offset, limit, _) = ready[index], wanted[index]
            if led.is_current and led.replica.log.truncations == truncations[index] and not self._is_abandoned:
                if isinstance(result, _Read) and not result.batches:
                    led.nothing_at = (offset, limit)
                self._acquire(place, led, offset, result)

        def done(ended: dict[str, Deferred[_ReadInDirectory]]) -> None:
            was_read = [ready[index][1] for directory in ended for index in by_directory[directory]]
            for led in was_read:
                led.is_reading = False
            try:
                results: dict[int, _Read | KafkaError] = {}
                for outcome in ended.values():
                    indexes, found = outcome.result()
                    if isinstance(found, Exception):
                        raise found
                    results.update(zip(indexes, found, strict=True))
                # In the order of the partitions: the first ones get the records that the member has room for.
                for index in sorted(results):
                    acquire(index, results[index])
            except Exception as error:  # Whatever it is, the request is answered with it.
                self.answer.fail(error)
                return
            if self._got or self._is_last_look or self._is_abandoned:
                self._finish()
            else:
                self._wait()
            for led in was_read:
                self._node.purgatory.check(led)

        def late(found: _ReadInDirectory) -> None:
            for index in found[0]:
                ready[index][1].is_reading = False
            for index in found[0]:
                self._node.purgatory.check(ready[index][1])

        reads = {directory: partial(read_these, indexes) for directory, indexes in by_directory.items()}
        self._node.cold_reads.read(reads, done, late)

    def _within_reach(
        self, ready: list[tuple[SharedPlace, LedSharePartition]]
    ) -> list[tuple[SharedPlace, LedSharePartition]]:
        """As many of the partitions as may be needed for the records that the member wants."""
        count, chosen = 0, []
        for place, led in ready:
            assert led.machine is not None
            chosen.append((place, led))
            count += led.limit(self._settings) - led.machine.next_fetch_offset
            if count >= self._records_max:
                break
        return chosen

    def _acquire(self, place: SharedPlace, led: LedSharePartition, offset: int, result: _Read | KafkaError) -> None:
        if isinstance(result, KafkaError):
            if result.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                self._got[place] = Got(error=result)
            return
        machine = led.machine
        if machine is None or self._records_max <= 0 or self._session.is_over:
            return
        now_ms = self._node.clock.monotonic_ms()
        batches = [batch for batch, _, _ in result.batches]
        if batches:
            led.bytes_per_record = len(result.data) / (batches[-1].last_offset - batches[0].first_offset + 1)
        acquired = machine.acquire(
            now_ms,
            self._session.member,
            batches,
            self._records_max,
            read_from=offset,
            batch_size=self._batch_size,
            is_strict=self._is_strict,
        )
        led.arm()
        if acquired:
            self._records_max -= sum(last - first + 1 for first, last, _ in acquired)
            self._got[place] = Got(_slice(result, acquired), tuple(acquired))

    def _finish(self) -> None:
        self._entry = None
        if self._is_abandoned:
            for place, got in self._got.items():
                led = self._partitions.known(self._session.group, *place)
                if led is not None and got.acquired:
                    led.release(self._session.member)
            return
        self.answer.complete(self._got)


def _read_log(log: Log, offset: int, limit: int, size_max: int, *, read_committed: bool) -> _Read | KafkaError:
    """Batches from `offset` to below `limit`; on an I/O thread."""
    try:
        result = log.read(offset, size_max, up_to_offset=limit)
        try:
            data = b"".join(each.read() for each in result.ranges)
            aborted = log.aborted_in(offset, result, up_to_offset=limit) if read_committed else []
        finally:
            for each in result.ranges:
                each.release()
    except KafkaError as error:
        return error
    except OSError as error:
        return log.folder.fail(error, "reading")
    transactions = AbortedTransactions((each.producer_id, each.first_offset) for each in aborted)
    batches = []
    for position, header in iterate_headers(data):
        end = position + header.size
        if end > len(data) or header.base_offset >= limit:
            break
        is_aborted = transactions.skips(data, position, header)
        batch = ReadBatch(header.base_offset, header.last_offset, not header.is_control and not is_aborted)
        batches.append((batch, position, end))
    return _Read(data, batches)


def _slice(read: _Read, acquired: list[Acquired]) -> bytes:
    """The bytes of the batches from the first acquired record to the last one."""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    wanted = [
        (begin, end) for batch, begin, end in read.batches if batch.last_offset >= first and batch.first_offset <= last
    ]
    return read.data[wanted[0][0] : wanted[-1][1]] if wanted else b""
