"""Reads a coordinator's partition from its start to its end and replays it, in slices between which the loop turns.

    an I/O thread: read --> the loop: a slice, a slice, ... --> read --> ... --> all of it committed? --> done

What is there when the broker becomes leader is the history, committed or not: a leader's log is the truth. But no
client is answered before the high watermark has reached its end, or another leader could take back what was told.

Bytes whose checksum is wrong are read again, a few times: most often the disk has them, and only the way from it was
bad. No checksum covers the offset of a batch, and a wrong one would have others passed over; so where a batch does not
follow the one before, because compaction has left a gap, the bytes are read twice and compared. What stays wrong, or is
no record that this release can read, ends the loading for good, as in Kafka.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.replicas.delayed_produce import ACKS_ALL
from tidelog.broker.shell import InDirectories
from tidelog.coordinator.records import MalformedRecord, UnknownRecordType
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.records.batch import check_crc, iterate_headers, read_pairs
from tidelog.records.control import ControlRecordType, control_type
from tidelog.records.errors import InvalidBatch

if TYPE_CHECKING:
    from tidelog.broker.coordinators.shard import Shard
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.replicas.replica_manager import ReplicaManager
    from tidelog.records.batch import BatchHeader

logger: Final = logging.getLogger(__name__)

SLICE_RECORDS_MAX: Final = 1000
"""Records that are replayed before the loop gets its turn: about 1 ms of offsets."""
SLICE_BATCHES_MAX: Final = 200
"""Batches, for those of a record each: their headers and checksums take longer than the records."""
LATELY_MS: Final = 30_000
LOADS_KNOWN_MAX: Final = 1_000
READS_MAX: Final = 5
"""How often the same bytes are read before they are believed to be damaged."""


class LoadTimes:
    """How long it took to load partitions lately, their wait for other ones included."""

    def __init__(self) -> None:
        self._loads: deque[tuple[int, int]] = deque(maxlen=LOADS_KNOWN_MAX)
        """When each ended, and what it took; milliseconds."""

    def loaded(self, began_ms: int, now_ms: int) -> None:
        """A partition is loaded."""
        self._loads.append((now_ms, now_ms - began_ms))

    def recent(self, now_ms: int) -> list[int]:
        """Milliseconds, of each one that ended in the last half a minute, as Kafka's metric counts."""
        return [took_ms for ended_ms, took_ms in self._loads if now_ms - ended_ms <= LATELY_MS]


class Loading:
    """One partition's way from the disk to its state machine."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        replicas: ReplicaManager,
        shard: Shard[Any],
        buffer_size: int,
        has_read: Callable[[Any], object],
        ended: Callable[[Any, Exception | None], object],
    ) -> None:
        """`has_read(shard)` is called where all is replayed, but not yet committed. `ended(shard, error)` is called
        once: error is None when all is committed, too, ValueError for what cannot be read and never will be, else why
        it was not this time.
        """
        self._clock = environment.clock
        self._shell = environment.shell
        self._replicas = replicas
        self._shard = shard
        self._buffer_size = buffer_size
        self._has_read = has_read
        self._ended = ended
        log = shard.replica.log
        self._position: int = log.log_start_offset
        self._end: int = log.log_end_offset
        self._reads = 0
        """From this position."""
        self._suspect = b""
        """Bytes from this position on that are to be read a second time."""
        self._records = 0
        self._records_of_slice = 0
        self._started_ms = environment.clock.monotonic_ms()
        self.last_offset = self._end - 1
        """What has to be committed: for the queue of what waits for the high watermark."""

    def begin(self) -> None:
        """Reads the first buffer."""
        self._read()

    def _read(self) -> None:
        """Reads the next buffer, or ends."""
        shard = self._shard
        if not shard.is_current:
            self._ended(shard, _moved())
            return
        if self._position >= self._end:
            self._finish()
            return
        log, position, end, size = shard.replica.log, self._position, self._end, self._buffer_size
        self._reads += 1

        def read() -> bytes:
            found = log.read(position, size, up_to_offset=end)
            try:
                return b"".join(part.read() for part in found.ranges)
            finally:
                for part in found.ranges:
                    part.release()

        self._shell.in_pool(InDirectories((log.owner.path,), read)).on_complete(self._begin_slices)

    def _begin_slices(self, done: Deferred[bytes]) -> None:
        try:
            data = done.result()
        except (OSError, KafkaError) as error:
            # The directory has been reported if it is to blame.
            logger.warning("not loaded: partition=%s error=%s", self._shard.replica.topic_partition, error)
            self._ended(self._shard, error)
            return
        size = min(len(self._suspect), len(data))
        confirmed = size > 0 and data[:size] == self._suspect[:size]
        self._suspect = b""
        if confirmed:
            self._slice(self._replay(memoryview(data)[:size], confirmed=True))
        elif data:
            self._slice(self._replay(memoryview(data), confirmed=False))
        else:
            # A compacted log may end in a gap.
            self._finish()

    def _slice(self, replaying: Iterator[None]) -> None:
        """Replays a slice, then lets the loop turn."""
        if not self._shard.is_current:
            self._ended(self._shard, _moved())
            return
        try:
            for _ in replaying:
                self._shell.soon(self._slice, replaying)
                return
        except MalformedRecord as error:
            self._give_up(str(error))
            return
        except InvalidBatch as error:
            if self._reads >= READS_MAX:
                self._give_up(str(error))
                return
            self._suspect = b""
            logger.warning("read again: partition=%s reason=%s", self._shard.replica.topic_partition, error)
        except Exception:
            # A record of an unforeseen form; the partitions behind this one must be loaded nevertheless.
            logger.exception("replay failed: partition=%s", self._shard.replica.topic_partition)
            self._give_up("a record could not be replayed")
            return
        if self._suspect and self._reads >= READS_MAX:
            self._give_up("the same bytes are different each time")
            return
        self._shell.soon(self._read)

    def _replay(self, data: memoryview, *, confirmed: bool) -> Iterator[None]:
        """Replays what was read, and stops at the end of each slice. `confirmed`: it was read twice."""
        before = self._position
        for count, (place, header) in enumerate(iterate_headers(data), 1):
            if header.base_offset != self._position and not confirmed:
                self._suspect = bytes(data[place:])
                return
            check_crc(data, place, header)
            if not self._position < header.next_offset <= self._end:
                raise InvalidBatch(
                    ErrorCode.CORRUPT_MESSAGE, f"a batch of offsets {header.base_offset} to {header.last_offset}"
                )
            pairs = read_pairs(data, place, header)
            if header.is_control:
                self._end_transaction(header, pairs)
            else:
                yield from self._replay_records(header, pairs)
            self._position = header.next_offset
            self._reads = 0
            if count % SLICE_BATCHES_MAX == 0:
                yield
        if self._position == before:
            raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"no whole batch in {len(data)} bytes")

    def _replay_records(
        self, header: BatchHeader, pairs: list[tuple[int, bytes | None, bytes | None]]
    ) -> Iterator[None]:
        load = self._shard.machine.load
        producer = (header.producer_id, header.producer_epoch) if header.is_transactional else None
        for first in range(0, len(pairs), SLICE_RECORDS_MAX):
            for delta, key, value in pairs[first : first + SLICE_RECORDS_MAX]:
                try:
                    load(key, value, producer)
                except UnknownRecordType as unknown:
                    where = self._shard.replica.topic_partition
                    offset = header.base_offset + delta
                    logger.warning("record ignored: partition=%s offset=%d reason=%s", where, offset, unknown)
                except MalformedRecord as error:
                    raise MalformedRecord(f"offset {header.base_offset + delta}: {error}") from error
            count = min(SLICE_RECORDS_MAX, len(pairs) - first)
            self._records += count
            self._records_of_slice += count
            if self._records_of_slice >= SLICE_RECORDS_MAX:
                self._records_of_slice = 0
                yield

    def _end_transaction(self, header: BatchHeader, pairs: list[tuple[int, bytes | None, bytes | None]]) -> None:
        for _, key, _ in pairs:
            kind = control_type(key)
            if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                self._shard.machine.transaction_ended(
                    header.producer_id, header.producer_epoch, committed=kind is ControlRecordType.COMMIT
                )

    def _finish(self) -> None:
        """All is replayed: ends, as soon as it is committed."""
        logger.info(
            "coordinator loaded: partition=%s records=%d ms=%d",
            self._shard.replica.topic_partition,
            self._records,
            self._clock.monotonic_ms() - self._started_ms,
        )
        if not self.try_complete():
            self._shard.replica.delayed().add(self, ACKS_ALL)
            self._has_read(self._shard)

    def try_complete(self) -> bool:
        """Ends when all that was read is committed, or leadership is lost (a `DelayedAppend`)."""
        shard = self._shard
        if not shard.is_current:
            self._ended(shard, _moved())
        elif self._replicas.acknowledged(shard.replica, self.last_offset, ACKS_ALL):
            self._ended(shard, None)
        else:
            return False
        return True

    def _give_up(self, reason: str) -> None:
        where = self._shard.replica.topic_partition
        told = f"partition={where} read_up_to={self._position} reason={reason}"
        logger.error("coordinator cannot be loaded: %s", told)
        self._ended(self._shard, ValueError(f"The coordinator's state cannot be read: {told}"))


def _moved() -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, "The partition is led elsewhere by now.")
