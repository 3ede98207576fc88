"""What a follower's fetch reads of one partition, and the part of the answer that is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.model.errors import KafkaError
from tidelog.ports.disk import FileRange
from tidelog.protocol import messages

if TYPE_CHECKING:
    from tidelog.broker.fetches.replica_sessions import FollowedPartition
    from tidelog.broker.replicas.replica import Replica
    from tidelog.replication.leader import PartitionLeader
    from tidelog.storage.log import ReadResult

_UNKNOWN: Final = -1

Data = messages.FetchResponse.PartitionData


class Reading:
    """What was found for one partition."""

    __slots__ = ("bytes_max", "data", "is_behind", "leader", "limit", "partition", "replica", "size")

    def __init__(self, partition: FollowedPartition) -> None:
        self.partition = partition
        self.replica: Replica | None = None
        self.leader: PartitionLeader | None = None
        """Of the leadership in which it was read; None after an error."""
        self.data: messages.FetchResponse.PartitionData | None = None
        """The partition's answer, unless it is made of what was read when the answer goes."""
        self.size = 0
        self.limit = 0
        self.bytes_max = max(partition.max_bytes, 0)
        """Bytes of records that may be read for it."""
        self.is_behind = False
        """Whether the throttle is for it: it is named there, and the follower is not in the ISR."""

    def read(self, remaining: int, nothing_yet: bool) -> None:
        """Adds the records that are in memory; WouldBlock."""
        partition, replica = self.partition, self.replica
        assert replica is not None
        result = replica.log.read(
            partition.fetch_offset,
            min(self.bytes_max, remaining),
            up_to_offset=self.limit,
            min_one_batch=nothing_yet,
            blocking=False,
            checked=_is_to_be_checked(partition, replica),
        )
        self.take(result)

    def take(self, result: ReadResult) -> None:
        """Adds records that were read."""
        if result.size:
            self.size = result.size
            self.data = self.new_data()
            self.data.records = list(result.ranges)

    def discard(self) -> None:
        """Gives up the records that were read."""
        if self.data is not None and isinstance(self.data.records, list):
            for chunk in self.data.records:
                if isinstance(chunk, FileRange):
                    chunk.release()
            self.data, self.size = None, 0

    # The partition's answer.

    @property
    def differs(self) -> bool:
        """Whether the follower knows another high watermark or first offset."""
        replica = self.replica
        return replica is not None and (
            replica.high_watermark != self.partition.high_watermark
            or replica.log.log_start_offset != self.partition.log_start_offset
        )

    def new_data(self) -> messages.FetchResponse.PartitionData:
        data = Data(
            partition_index=self.partition.partition,
            aborted_transactions=None,
            preferred_read_replica=_UNKNOWN,
            records=b"",
        )
        self.fill(data)
        return data

    def fill(self, data: messages.FetchResponse.PartitionData) -> None:
        """The offsets as they are now: after what the request has told of the follower."""
        replica = self.replica
        assert replica is not None
        data.high_watermark = replica.high_watermark
        data.last_stable_offset = replica.last_stable_offset
        data.log_start_offset = replica.log.log_start_offset


def read_these(readings: list[Reading], bytes_max: int, nothing_yet: bool) -> list[ReadResult | KafkaError]:
    """Reads partitions of one directory, `bytes_max` in all; on an I/O thread."""
    results: list[ReadResult | KafkaError] = []
    for reading in readings:
        assert reading.replica is not None
        try:
            result = reading.replica.log.read(
                reading.partition.fetch_offset,
                min(reading.bytes_max, bytes_max),
                up_to_offset=reading.limit,
                min_one_batch=nothing_yet,
            )
        except KafkaError as error:
            results.append(error)
            continue
        results.append(result)
        nothing_yet = nothing_yet and not result.size
        bytes_max = max(0, bytes_max - result.size)
    return results


def discard(readings: list[Reading]) -> None:
    """Gives up the records that were read."""
    for reading in readings:
        reading.discard()


def _is_to_be_checked(partition: FollowedPartition, replica: Replica) -> bool:
    """Whether a read looks for rot: not of what was appended just now, which the follower checks as it comes; unless it
    asks for the same again, as after a refusal."""
    return partition.sent_offset == partition.fetch_offset or not replica.log.is_recent(partition.fetch_offset)
