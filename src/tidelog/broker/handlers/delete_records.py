"""DeleteRecords: moves the first offset of partitions up, durably; what lies before is gone for every reader then.

Versions 0-2. Offset -1 means the high watermark. The bytes go when whole segments lie before the new start.

The answer comes when all replicas that are live or in sync begin there: followers learn of the leader's first offset in
the answers to their fetches, and tell of their own in the next. The low watermark is the smallest of them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.model.topics import INTERNAL_TOPICS
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.shell import Timer
    from tidelog.replication.leader import PartitionLeader

KEY: Final = ApiKey.DELETE_RECORDS
VERSIONS: Final = Versions(0, 2)

HIGH_WATERMARK: Final = -1
NO_LOW_WATERMARK: Final = -1
WRITING_MS_MIN: Final = 1_000
"""For so long, at least, a request waits until the new first offsets are written down: one that gives no time is not
told of a timeout where no follower has to be waited for."""


def handle(
    node: Node, context: RequestContext, request: messages.DeleteRecordsRequest
) -> messages.DeleteRecordsResponse | Deferred[messages.DeleteRecordsResponse]:
    response = messages.DeleteRecordsResponse
    answer = response()
    pending: list[_Pending] = []
    for topic in request.topics:
        result = response.DeleteRecordsTopicResult(name=topic.name)
        answer.topics.append(result)
        for partition in topic.partitions:
            found = response.DeleteRecordsPartitionResult(
                partition_index=partition.partition_index, low_watermark=NO_LOW_WATERMARK
            )
            result.partitions.append(found)
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            try:
                replica, wanted = _announce(node, context, topic_partition, partition.offset)
            except KafkaError as error:
                found.error_code = error.code
                continue
            pending.append(_Pending(replica, replica.leader, wanted, found))
    if not pending:
        return answer
    waiting = _Waiting(node, pending, answer, request.timeout_ms, context.deadline_ms(request.timeout_ms))
    waiting.begin()
    return waiting.done


class _Pending(NamedTuple):
    """A partition whose replicas are to follow."""

    replica: Replica
    leader: PartitionLeader | None
    """The leadership in which the records are to be deleted: in another one the offsets may be of other records."""
    wanted: int
    """The offset at which all of them are to begin, at least."""
    found: messages.DeleteRecordsResponse.DeleteRecordsPartitionResult


class _Waiting:
    """An operation of the purgatory: done when every live or in-sync follower has dropped the records too."""

    def __init__(
        self,
        node: Node,
        pending: list[_Pending],
        answer: messages.DeleteRecordsResponse,
        timeout_ms: int,
        deadline_ms: int,
    ) -> None:
        self._node = node
        self._pending = pending
        self._answer = answer
        self._timeout_ms = timeout_ms
        self._deadline_ms = deadline_ms
        self._timer: Timer | None = None
        """While the new first offsets are written down."""
        self.done: Deferred[messages.DeleteRecordsResponse] = Deferred()
        self._unwritten = 0
        """Log directories that the new first offsets are still to be written down in."""
        self._is_over = False
        """Whether the client was gone, or its time over, before the new first offsets were durable."""

    def begin(self) -> None:
        """Has the new first offsets written down, before a reader can see them: no crash brings records back that were
        said to be gone. A disk that hangs, or lacks descriptors, is not waited for longer than the client does."""
        node = self._node
        self.done.on_abandoned = self._stop_waiting
        self._timer = node.shell.after(max(self._timeout_ms, WRITING_MS_MIN), self._too_late)
        by_directory: dict[str, list[_Pending]] = {}
        for one in self._pending:
            by_directory.setdefault(one.replica.log.owner.path, []).append(one)
        self._unwritten = len(by_directory)
        for path, pending in by_directory.items():
            node.disk_scheduler.starts_durable([path]).on_complete(functools.partial(self._durable, pending))

    def _stop_waiting(self) -> None:
        self._is_over = True
        self._drop_timer()

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None  # It points back at this object.

    def _too_late(self) -> None:
        self._stop_waiting()
        if not self.try_complete():
            self.expire()

    def _durable(self, pending: list[_Pending], _: Deferred[None]) -> None:
        """The new first offsets in one log directory hold from now on, where this broker still leads; waits for the
        followers once those of all directories do."""
        node = self._node
        self._unwritten -= 1
        for one in pending:
            log = one.replica.log
            if one.replica.leader is one.leader and not log.is_offline and log.advance_start(one.wanted):
                node.replicas.start_advanced(one.replica)
        if self._is_over or self._unwritten:
            return
        self._drop_timer()
        left_ms = self._deadline_ms - node.clock.monotonic_ms()
        entry = node.purgatory.wait(self, {one.replica: None for one in self._pending}, left_ms)
        if entry is not None:
            self.done.on_abandoned = lambda: node.purgatory.cancel(entry)

    def try_complete(self) -> bool:
        self._pending = [one for one in self._pending if not self._settle(one)]
        if self._pending:
            return False
        self.done.complete(self._answer)
        return True

    def expire(self) -> None:
        for one in self._pending:
            one.found.error_code = ErrorCode.REQUEST_TIMED_OUT
        self.done.complete(self._answer)

    def _settle(self, one: _Pending) -> bool:
        if one.replica.leader is not one.leader:
            one.found.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return True
        if one.replica.log.is_offline:
            one.found.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return True
        low_watermark = self._node.replicas.low_watermark(one.replica)
        if low_watermark < one.wanted:
            return False
        one.found.low_watermark = low_watermark
        return True


def _announce(node: Node, context: RequestContext, tp: TopicPartition, offset: int) -> tuple[Replica, int]:
    """Announces the leader's new first offset: the replica, and where all of them are to begin; raises KafkaError."""
    if not authorize(context, Operation.DELETE, ResourceType.TOPIC, tp.topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if node.metadata.image.partition(tp) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if tp.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {tp.topic}.")
    replica = node.replicas.leader(tp)
    if not replica.log.config.deleted:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"Records of partition {tp} can not be deleted due to the policy.")
    wanted = replica.high_watermark if offset == HIGH_WATERMARK else offset
    if wanted < 0 or wanted > replica.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"The offset {offset} for partition {tp} is not between 0 and the high watermark {replica.high_watermark}.",
        )
    replica.log.announce_start(wanted)
    return replica, wanted


def error_response(
    request: messages.DeleteRecordsRequest, version: int, error: KafkaError
) -> messages.DeleteRecordsResponse:
    response = messages.DeleteRecordsResponse
    return response(
        topics=[
            response.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    response.DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index,
                        low_watermark=NO_LOW_WATERMARK,
                        error_code=error.code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
