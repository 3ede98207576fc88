"""Reading for a consumer's fetch that is not ordinary: partition by partition, what its client may see.

A partition's error is part of its answer. `WouldBlock` where something is not in memory, unless `blocking`: then an I/O
thread reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.fetches import replica_selector
from tidelog.broker.fetches.fetch_partitions import failed, replica_of, topic_of
from tidelog.broker.fetches.waiting_fetch import limit_of, release
from tidelog.broker.replicas.replica import Replica, check_leader_epoch
from tidelog.broker.replicas.replica_manager import diverging_epoch
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER_EPOCH
from tidelog.ports.disk import FileRange
from tidelog.protocol import messages
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.fetches.fetch_sessions import FetchPartition
    from tidelog.broker.node import Node
    from tidelog.replication.leader import PartitionLeader
    from tidelog.storage.log import Log, ReadResult

UNKNOWN: Final = -1
_RACKS_SINCE: Final = 11
_DIVERGING_EPOCH_SINCE: Final = 12

Data = messages.FetchResponse.PartitionData


class Reading:
    """What was read for one partition."""

    __slots__ = ("ahead", "data", "leader", "leader_epoch", "limit", "log", "replica", "size", "truncations", "wanted")

    def __init__(self, wanted: FetchPartition, data: messages.FetchResponse.PartitionData) -> None:
        self.wanted = wanted
        self.data = data
        self.replica: Replica | None = None
        """Where more may come; None after an error."""
        self.leader: PartitionLeader | None = None
        """This broker's leadership, if it was one, when the replica was looked at."""
        self.leader_epoch = NO_LEADER_EPOCH
        """That of the replica then."""
        self.log: Log | None = None
        """What was read; None after an error."""
        self.limit = 0
        """The offset that all records are below."""
        self.truncations = 0
        """The log's, before it was read."""
        self.size = 0
        self.ahead: Log | None = None
        """Whose next bytes are to be checked while these are sent."""

    def is_outdated(self, limit: int) -> bool:
        """Whether the log was truncated while an I/O thread read it, or readers may not see as much any more: `limit`
        is the one of now."""
        return self.log is not None and (self.log.truncations != self.truncations or limit < self.limit)

    def look_again(self) -> None:
        """An I/O thread has read: what it saw of the offsets may be older by now than what other readers were told."""
        replica, data = self.replica, self.data
        if replica is not None:
            data.high_watermark = replica.high_watermark
            data.last_stable_offset = replica.last_stable_offset
            data.log_start_offset = replica.log.log_start_offset


class PartitionReader:
    """Reads partitions for one request."""

    __slots__ = ("_committed_only", "_context", "_from_followers", "_node", "_rack")

    def __init__(self, node: Node, context: RequestContext, rack_id: str, *, committed_only: bool) -> None:
        self._node = node
        self._context = context
        self._committed_only = committed_only
        # Consumers that know racks may read from followers (KIP-392); others would take them for leaders.
        self._from_followers = context.api_version >= _RACKS_SINCE
        self._rack = rack_id if self._from_followers and replica_selector.selects(node.config) else ""

    def read(self, wanted: FetchPartition, remaining: int, nothing_yet: bool, blocking: bool) -> Reading:
        """Up to `remaining` bytes of one partition, or its error. Where there is `nothing_yet` in the answer, the first
        batch comes whole, however large it is."""
        try:
            replica = self._replica(wanted)
            log, leader, leader_epoch = replica.log, replica.leader, replica.leader_epoch
            truncations = log.truncations
            diverging = self._diverging(replica, wanted)
            limit = limit_of(replica, self._committed_only)
            preferred = self._preferred(replica, wanted) if self._rack and replica.leader is not None else None
            if diverging is None and preferred is None:
                result = log.read(
                    wanted.fetch_offset,
                    min(max(wanted.max_bytes, 0), remaining),
                    up_to_offset=limit,
                    min_one_batch=nothing_yet,
                    blocking=blocking,
                )
                aborted = self._aborted(log, wanted.fetch_offset, result, limit, blocking)
        except KafkaError as error:
            return Reading(wanted, failed(self._node.metadata, self._context.api_version, wanted, error))
        data = Data(
            partition_index=wanted.partition,
            high_watermark=replica.high_watermark,
            last_stable_offset=replica.last_stable_offset,
            log_start_offset=log.log_start_offset,
            preferred_read_replica=UNKNOWN,
            records=b"",
        )
        reading = Reading(wanted, data)
        reading.replica, reading.leader, reading.leader_epoch = replica, leader, leader_epoch
        reading.log, reading.limit, reading.truncations = log, limit, truncations
        if diverging is not None:
            data.diverging_epoch.epoch, data.diverging_epoch.end_offset = diverging
            return reading
        if preferred is not None:
            data.preferred_read_replica = preferred
            data.aborted_transactions = [] if self._committed_only else None
            return reading
        if result.size:
            data.records = list(result.ranges)
            reading.size = result.size
        if log.ahead is not None:
            reading.ahead = log
        data.aborted_transactions = aborted
        return reading

    def nothing_of(self, wanted: FetchPartition) -> tuple[Reading, str]:
        """What is answered for a partition whose directory is late, and that directory."""
        replica = self._replica(wanted)
        data = Data(
            partition_index=wanted.partition,
            high_watermark=replica.high_watermark,
            last_stable_offset=replica.last_stable_offset,
            log_start_offset=replica.log.log_start_offset,
            aborted_transactions=[] if self._committed_only else None,
            preferred_read_replica=UNKNOWN,
            records=b"",
        )
        return Reading(wanted, data), replica.log.owner.path

    def _aborted(
        self, log: Log, offset: int, result: ReadResult, limit: int, blocking: bool
    ) -> list[messages.FetchResponse.AbortedTransaction] | None:
        """The aborted transactions in what was read; None where the client does not leave them out.

        What was read is given up where that fails.
        """
        if not self._committed_only:
            return None
        try:
            aborted = log.aborted_in(offset, result, up_to_offset=limit, blocking=blocking)
        except BaseException:
            release(result)
            raise
        return [
            messages.FetchResponse.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in aborted
        ]

    def _replica(self, wanted: FetchPartition) -> Replica:
        """The replica to read from; KafkaError where there is none, or no right to."""
        topic = topic_of(self._node.metadata, wanted)
        if not authorize(self._context, Operation.READ, ResourceType.TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        replica = replica_of(self._node.metadata, self._node.replicas, topic, wanted)
        check_leader_epoch(replica, wanted.current_leader_epoch)
        if replica.leader is None and not self._from_followers:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    def _preferred(self, replica: Replica, wanted: FetchPartition) -> int | None:
        """The replica that the client is to read from instead, for its rack (KIP-392); None: this one."""
        context = self._context
        return replica_selector.preferred_read_replica(
            self._node.broker_id,
            self._node.metadata.image,
            replica,
            self._rack,
            wanted.fetch_offset,
            context.listener,
            context.received_ms,
        )

    def _diverging(self, replica: Replica, wanted: FetchPartition) -> tuple[int, int] | None:
        """Where the client's log and ours part, by the epoch of the last record that it has (KIP-595); or None."""
        if wanted.last_fetched_epoch < 0 or self._context.api_version < _DIVERGING_EPOCH_SINCE:
            return None
        return diverging_epoch(replica.log, wanted.fetch_offset, wanted.last_fetched_epoch)


def discard(readings: list[Reading]) -> None:
    """Gives up what was read."""
    for reading in readings:
        if isinstance(reading.data.records, list):
            for chunk in reading.data.records:
                if isinstance(chunk, FileRange):
                    chunk.release()
