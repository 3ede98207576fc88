"""Reads a coordinator's partition from its start to its end and replays it, in slices between which the loop turns.

    an I/O thread: read --> the loop: a slice, a slice, ... --> read --> ... --> all of it committed? --> done

What is there when the broker becomes leader is the history, committed or not: a leader's log is the truth. But nobody
is answered before the high watermark has reached its end, or another leader could take back what was told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.broker.replicas.acks import ACKS_ALL
from tidelog.coordinator.records import MalformedRecord, UnknownRecordType
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.records.batch import iterate_headers, read_records
from tidelog.records.control import ControlRecordType, control_type
from tidelog.records.errors import InvalidBatch

if TYPE_CHECKING:
    from tidelog.broker.coordinators.shard import Shard
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.records.batch import BatchHeader, Record

logger: Final = logging.getLogger(__name__)

SLICE_RECORDS_MAX: Final = 1000
"""Records that are replayed before the loop gets its turn."""


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    producer_epoch: int
    committed: bool


class Loading:
    """One partition's way from the disk to its state machine."""

    def __init__(
        self, node: Node, shard: Shard[Any], buffer_size: int, ended: Callable[[Any, Exception | None], object]
    ) -> None:
        """`ended(shard, error)` is called once: error is None when all is replayed and committed, ValueError for what
        cannot be read and never will be, else why it was not this time.
        """
        self._node = node
        self._shard = shard
        self._buffer_size = buffer_size
        self._ended = ended
        log = shard.replica.log
        self._position: int = log.log_start_offset
        self._end: int = log.log_end_offset
        self._read_from = -1
        self._records = 0
        self._started_ms = node.clock.monotonic_ms()
        self.last_offset = self._end - 1
        """What has to be committed: for the line of those who wait for the high watermark."""

    def begin(self) -> None:
        """Reads the first buffer."""
        self._step()

    def _step(self) -> None:
        """Reads the next buffer, or ends."""
        shard = self._shard
        if not shard.is_current:
            self._ended(shard, _moved())
            return
        if self._position >= self._end or self._position == self._read_from:
            # No step forward: a compacted log may end in a gap.
            logger.info(
                "coordinator loaded: partition=%s records=%d ms=%d",
                shard.replica.topic_partition,
                self._records,
                self._node.clock.monotonic_ms() - self._started_ms,
            )
            if not self.look():
                self._node.replicas.wait(shard.replica, self, ACKS_ALL)
            return
        log, position, end, size = shard.replica.log, self._position, self._end, self._buffer_size
        self._read_from = position

        def read() -> bytes:
            found = log.read(position, size, up_to_offset=end)
            try:
                return b"".join(part.read() for part in found.ranges)
            finally:
                for part in found.ranges:
                    part.release()

        self._node.shell.in_pool(read).on_complete(self._replay)

    def look(self) -> bool:
        """Ends when all that was read is committed, or leadership is lost; as an append that waits (`acks.Wait`)."""
        shard = self._shard
        if not shard.is_current:
            self._ended(shard, _moved())
        elif self._node.replicas.acknowledged(shard.replica, self.last_offset, ACKS_ALL):
            self._ended(shard, None)
        else:
            return False
        return True

    def _replay(self, done: Deferred[bytes]) -> None:
        try:
            data = done.result()
        except (OSError, KafkaError) as error:
            logger.error("not loaded: partition=%s error=%s", self._shard.replica.topic_partition, error)
            self._ended(self._shard, error)
            return
        self._replay_slice(memoryview(data), 0)

    def _replay_slice(self, data: memoryview, position: int) -> None:
        """Replays about SLICE_RECORDS_MAX records, then lets the loop turn."""
        if not self._shard.is_current:
            self._ended(self._shard, _moved())
            return
        replayed = 0
        try:
            for place, header in iterate_headers(data, position):
                if replayed >= SLICE_RECORDS_MAX:
                    self._node.shell.soon(self._replay_slice, data, place)
                    return
                if header.next_offset <= self._position:
                    continue
                replayed += self._replay_batch(read_records(data, place), header)
                self._position = header.next_offset
        except (InvalidBatch, MalformedRecord) as error:
            where = self._shard.replica.topic_partition
            reason = f"partition={where} after_offset={self._position - 1} reason={error}"
            logger.error("not loaded, and not to be: %s", reason)
            self._ended(self._shard, ValueError(f"The coordinator's state cannot be read: {reason}"))
            return
        self._node.shell.soon(self._step)

    def _replay_batch(self, records: Iterable[Record], header: BatchHeader) -> int:
        machine = self._shard.machine
        count = 0
        producer = (header.producer_id, header.producer_epoch) if header.is_transactional else None
        for record in records:
            count += 1
            if header.is_control:
                kind = control_type(record.key)
                if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                    machine.transaction_ended(
                        header.producer_id, header.producer_epoch, committed=kind is ControlRecordType.COMMIT
                    )
                continue
            if record.offset < self._position:
                continue
            try:
                machine.load(record.key, record.value, producer)
            except UnknownRecordType as unknown:
                where = self._shard.replica.topic_partition
                logger.warning("record ignored: partition=%s offset=%d reason=%s", where, record.offset, unknown)
            except MalformedRecord as error:
                raise MalformedRecord(f"offset {record.offset}: {error}") from error
        self._records += count
        return count


def _moved() -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, "The partition is led elsewhere by now.")
