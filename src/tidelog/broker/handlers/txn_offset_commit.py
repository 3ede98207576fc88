"""TxnOffsetCommit: offsets that hold when the producer's transaction is committed, and never when it is aborted.

Versions 0-5. v2: leader epochs; v3: member, generation and instance id (KIP-447), by which a zombie of the group is
refused; v4: TRANSACTION_ABORTABLE; v5: the group's partition of `__consumer_offsets` joins the transaction by this very
request (KIP-890 part 2), before that by AddOffsetsToTxn.

The transaction's coordinator is asked before the first offsets of a transaction. Acknowledged when the records in
`__consumer_offsets` are committed; they are pending there until the transaction's marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._partition_errors import check_readable, topics_with_errors
from tidelog.coordinator.groups.offset_events import CommitOffsets, CommitOutcome, OffsetToCommit
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import LeaderEpoch, Offset, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.TXN_OFFSET_COMMIT
VERSIONS: Final = Versions(0, 5)

LOADING_SINCE: Final = 2
"""Before, clients gave up upon COORDINATOR_LOAD_IN_PROGRESS."""
ABORTABLE_SINCE: Final = 4
ADDS_SINCE: Final = 5

_TRY_AGAIN: Final = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.CONCURRENT_TRANSACTIONS)
"""Of the transaction's coordinator, where the client expects word of the group's: it comes again without looking for
another."""


def handle(
    node: Node, context: RequestContext, request: messages.TxnOffsetCommitRequest
) -> messages.TxnOffsetCommitResponse | Deferred[messages.TxnOffsetCommitResponse]:
    if not authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    errors: dict[TopicPartition, ErrorCode] = {}
    wanted: dict[TopicPartition, OffsetToCommit] = {}
    for topic in request.topics:
        known = node.metadata.image.topics.get(topic.name)
        for partition in topic.partitions:
            place = TopicPartition(topic.name, partition.partition_index)
            error = check_readable(node, context, place)
            if error is not ErrorCode.NONE or known is None:
                errors[place] = error
            else:
                wanted[place] = OffsetToCommit(
                    place,
                    Offset(partition.committed_offset),
                    LeaderEpoch(partition.committed_leader_epoch),
                    partition.committed_metadata,
                    known.topic_id,
                )
    if not wanted:
        return _response(request, errors)
    if not request.group_id:
        return _response(request, errors | dict.fromkeys(wanted, ErrorCode.INVALID_GROUP_ID))

    def make(request_id: int) -> CommitOffsets:
        return CommitOffsets(
            request_id,
            request.group_id,
            list(wanted.values()),
            node.clock.wall_ms(),
            generation=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            api_version=context.api_version,
            producer=(request.producer_id, request.producer_epoch),
        )

    adds = context.api_version >= ADDS_SINCE
    asked: Deferred[CommitOutcome] = node.groups.ask_in_transaction(
        request.group_id, request.transactional_id, make, adds=adds
    )
    told = asked.then(lambda outcome: dict(outcome.errors)).recover(
        KafkaError, lambda error: dict.fromkeys(wanted, _told(error.code, context.api_version))
    )
    return told.then(lambda told: _response(request, errors | told))


def _told(error: ErrorCode, version: int) -> ErrorCode:
    if error in _TRY_AGAIN:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


def _response(
    request: messages.TxnOffsetCommitRequest, errors: dict[TopicPartition, ErrorCode]
) -> messages.TxnOffsetCommitResponse:
    kind = messages.TxnOffsetCommitResponse
    return kind(
        topics=topics_with_errors(
            request.topics, errors, kind.TxnOffsetCommitResponseTopic, kind.TxnOffsetCommitResponsePartition
        )
    )


def error_response(
    request: messages.TxnOffsetCommitRequest, version: int, error: KafkaError
) -> messages.TxnOffsetCommitResponse:
    places = (TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    return _response(request, dict.fromkeys(places, _told(error.code, version)))
