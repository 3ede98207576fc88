"""ListOffsets: from times, and from the two ends, to offsets.

Versions 1-11. v2: isolation level. v4: leader epochs. v6: flexible. v7: -3, the greatest timestamp (KIP-734). v8: -4,
the first offset on local disk. v9: -5, the last tiered one (KIP-1005). v10: a timeout for lookups in remote storage.
v11: -6, the first offset that waits to be tiered (KIP-1023). Nothing is tiered here, so -5 and -6 find nothing.

After an election the new leader may know a lower high watermark than its predecessor had told: until it has caught up
with the start of its epoch, the latest offset is OFFSET_NOT_AVAILABLE (KIP-207), or it would go back for a while.

The official Spark connector sends up to two of these for each Fetch: the two ends cost no look at the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers.fetch import READ_COMMITTED
from tidelog.broker.replicas.replica import check_leader_epoch
from tidelog.broker.shell import InDirectories, at_latest
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    TopicPartition,
)
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType
from tidelog.storage.errors import WouldBlock

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.broker.replicas.replica import Replica

KEY: Final = ApiKey.LIST_OFFSETS
VERSIONS: Final = Versions(1, 11)

EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6
_SINCE: Final = {
    -1: 1,
    -2: 1,
    MAX_TIMESTAMP: 7,
    -4: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""Version that brought each special timestamp."""
LEADER_EPOCHS_SINCE: Final = 4
OFFSET_NOT_AVAILABLE_SINCE: Final = 5
"""Clients of earlier versions are told LEADER_NOT_AVAILABLE, which they try again too."""
LOOK_UP_MS_MAX: Final = 15_000
"""For how long a request waits for the disks; clients wait for 30 s as a rule. What has not been looked up by then is
answered REQUEST_TIMED_OUT, upon which they ask again."""
_CONSUMER: Final = -1
_DEBUGGING_CONSUMER: Final = -2
"""A replica id that may ask any replica, up to its log end."""

Partition = messages.ListOffsetsResponse.ListOffsetsPartitionResponse


def handle(
    node: Node, context: RequestContext, request: messages.ListOffsetsRequest
) -> messages.ListOffsetsResponse | Deferred[messages.ListOffsetsResponse]:
    response = messages.ListOffsetsResponse()
    cold: list[tuple[Deferred[None], Partition]] = []
    asked: dict[TopicPartition, int] = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            topic_partition = TopicPartition(topic.name, wanted.partition_index)
            asked[topic_partition] = asked.get(topic_partition, 0) + 1
    for topic in request.topics:
        answer = messages.ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(answer)
        for wanted in topic.partitions:
            found = Partition(partition_index=wanted.partition_index, timestamp=-1, offset=-1, leader_epoch=-1)
            answer.partitions.append(found)
            try:
                if asked[TopicPartition(topic.name, wanted.partition_index)] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition is asked for twice.")
                lookup = _look_up(node, context, request, topic.name, wanted, found)
            except KafkaError as error:
                found.error_code = error.code
                continue
            if lookup is not None:
                cold.append((lookup, found))
    if not cold:
        return _as_known_to(context.api_version, response)

    def respond() -> messages.ListOffsetsResponse:
        for lookup, found in cold:
            if not lookup.done:
                found.error_code = ErrorCode.REQUEST_TIMED_OUT
        return _as_known_to(context.api_version, response)

    all_found = gather([lookup for lookup, _ in cold]).then(lambda _: respond())
    return at_latest(node.shell, all_found, LOOK_UP_MS_MAX, _Late).recover(_Late, lambda _: respond())


class _Late(Exception):
    """A log directory has not answered in time."""


def _as_known_to(version: int, response: messages.ListOffsetsResponse) -> messages.ListOffsetsResponse:
    """Without the leader epochs that versions before 4 have no field for."""
    if version < LEADER_EPOCHS_SINCE:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_epoch = -1
    return response


def _look_up(
    node: Node,
    context: RequestContext,
    request: messages.ListOffsetsRequest,
    topic: str,
    wanted: messages.ListOffsetsRequest.ListOffsetsPartition,
    found: messages.ListOffsetsResponse.ListOffsetsPartitionResponse,
) -> Deferred[None] | None:
    """Fills `found`, now, or when the deferred completes: after a look at the disk."""
    timestamp = wanted.timestamp
    if timestamp < 0 and context.api_version < _SINCE.get(timestamp, 1 << 15):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Timestamp {timestamp} is not known to this version.")
    if not authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    replica = _replica(node, request.replica_id, TopicPartition(topic, wanted.partition_index))
    check_leader_epoch(replica, wanted.current_leader_epoch)
    limit = _limit(request, replica)
    is_uncertain = request.replica_id == _CONSUMER and _is_uncertain(replica)
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return None
    if timestamp == LATEST_TIMESTAMP:
        if is_uncertain:
            raise _not_available(context)
        found.offset, found.leader_epoch = limit, replica.leader_epoch
        if request.replica_id == _DEBUGGING_CONSUMER:
            # Controllers compare logs by it (`tidelog.controller.elections`).
            found.leader_epoch = replica.log.epochs.latest
        return None
    log = replica.log
    try:
        result = log.offset_for_timestamp(timestamp, up_to_offset=limit, blocking=False)
    except WouldBlock:
        lookup = node.shell.in_pool(
            InDirectories((log.owner.path,), lambda: log.offset_for_timestamp(timestamp, up_to_offset=limit))
        )
    else:
        _found(context, timestamp, found, result, is_uncertain)
        return None

    def refuse(error: KafkaError) -> None:
        found.error_code = error.code

    return lookup.then(lambda result: _found(context, timestamp, found, result, is_uncertain)).recover(
        KafkaError, refuse
    )


def _found(
    context: RequestContext,
    timestamp: int,
    found: messages.ListOffsetsResponse.ListOffsetsPartitionResponse,
    result: tuple[int, int, int] | None,
    is_uncertain: bool,
) -> None:
    """Takes over a result; what would not be found now, and may be in a moment, raises KafkaError."""
    if result is not None:
        found.timestamp, found.offset, found.leader_epoch = result
    elif is_uncertain and timestamp not in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        raise _not_available(context)


def _is_uncertain(replica: Replica) -> bool:
    """Whether a new leader knows less to be committed than its predecessor may have told consumers (KIP-207)."""
    return replica.leader is not None and replica.high_watermark < replica.leader.start_offset


def _not_available(context: RequestContext) -> KafkaError:
    if context.api_version >= OFFSET_NOT_AVAILABLE_SINCE:
        return KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)


def _replica(node: Node, replica_id: int, topic_partition: TopicPartition) -> Replica:
    if node.metadata.image.partition(topic_partition) is None and node.replicas.get(topic_partition) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if replica_id == _DEBUGGING_CONSUMER:
        replica = node.replicas.get(topic_partition)
        if replica is not None:
            return replica
    return node.replicas.leader(topic_partition)


def _limit(request: messages.ListOffsetsRequest, replica: Replica) -> int:
    """Where the log ends for the client that asks."""
    if request.replica_id != _CONSUMER:
        return replica.log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return replica.last_stable_offset
    return replica.high_watermark


def error_response(
    request: messages.ListOffsetsRequest, version: int, error: KafkaError
) -> messages.ListOffsetsResponse:
    return messages.ListOffsetsResponse(
        topics=[
            messages.ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    Partition(
                        partition_index=wanted.partition_index,
                        error_code=error.code,
                        timestamp=-1,
                        offset=-1,
                        leader_epoch=-1,
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
