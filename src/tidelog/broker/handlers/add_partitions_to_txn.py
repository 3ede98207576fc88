"""AddPartitionsToTxn: partitions join a transaction, before a producer writes to them; or leaders ask whether they did.

Versions 0-5. v0-3: a producer, one transaction; v2: knows PRODUCER_FENCED. v4-5: brokers, several transactions, which
are added to or, with `verify_only`, looked up (KIP-890); v5: TRANSACTION_ABORTABLE.

Where a partition does not exist or may not be written to, none joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._between_brokers import require_broker
from tidelog.broker.handlers._transactions import as_known
from tidelog.coordinator.transactions.events import NO_HOLD
from tidelog.coordinator.transactions.transaction import BUMPING_VERSION, OLD_VERSION
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ProducerEpoch, ProducerId, TopicPartition
from tidelog.model.topics import INTERNAL_TOPICS
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS: Final = Versions(0, 5)

FENCED_SINCE: Final = 2
BETWEEN_BROKERS_SINCE: Final = 4

Request = messages.AddPartitionsToTxnRequest
Response = messages.AddPartitionsToTxnResponse
Errors = list[tuple[TopicPartition, ErrorCode]]


def handle(
    node: Node, context: RequestContext, request: messages.AddPartitionsToTxnRequest
) -> messages.AddPartitionsToTxnResponse | Deferred[messages.AddPartitionsToTxnResponse]:
    if context.api_version >= BETWEEN_BROKERS_SINCE:
        require_broker(node, context)
        return gather([_of_broker(node, transaction) for transaction in request.transactions]).then(
            lambda results: Response(results_by_transaction=results)
        )
    return _of_producer(node, context, request)


def _of_producer(
    node: Node, context: RequestContext, request: messages.AddPartitionsToTxnRequest
) -> messages.AddPartitionsToTxnResponse | Deferred[messages.AddPartitionsToTxnResponse]:
    transactional_id = request.v3_and_below_transactional_id
    if not authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    partitions = _partitions(request.v3_and_below_topics)
    # Offsets join by AddOffsetsToTxn. What a producer named itself would have markers in the coordinators' own logs.
    forbidden = {
        topic
        for topic in dict.fromkeys(place.topic for place in partitions)
        if topic in INTERNAL_TOPICS or not authorize(context, Operation.WRITE, ResourceType.TOPIC, topic)
    }
    refused = _refused(node, partitions, forbidden)
    if refused is not None:
        return Response(results_by_topic_v3_and_below=_by_topic(refused))
    knows_fenced = context.api_version >= FENCED_SINCE

    def response(error: ErrorCode) -> messages.AddPartitionsToTxnResponse:
        known = as_known(error, knows_fenced=knows_fenced)
        return Response(results_by_topic_v3_and_below=_by_topic([(place, known) for place in partitions]))

    return node.transactions.add_partitions(
        transactional_id,
        ProducerId(request.v3_and_below_producer_id),
        ProducerEpoch(request.v3_and_below_producer_epoch),
        partitions,
        version=OLD_VERSION,
    ).then(response)


def _of_broker(
    node: Node, transaction: messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
) -> Deferred[messages.AddPartitionsToTxnResponse.AddPartitionsToTxnResult]:
    """The result of one transaction; never fails with a KafkaError."""
    partitions = _partitions(transaction.topics)
    asked: Deferred[Errors]
    refused = _refused(node, partitions, frozenset())
    if refused is not None:
        asked = Deferred.of(refused)
    elif transaction.verify_only:
        asked = node.transactions.verify_partitions(
            transaction.transactional_id,
            ProducerId(transaction.producer_id),
            ProducerEpoch(transaction.producer_epoch),
            partitions,
        ).then(list)
    else:
        # Not held here: a transaction that waits would hold up all others of the request.
        asked = node.transactions.add_partitions(
            transaction.transactional_id,
            ProducerId(transaction.producer_id),
            ProducerEpoch(transaction.producer_epoch),
            partitions,
            version=BUMPING_VERSION,
            hold_ms=NO_HOLD,
        ).then(lambda error: [(place, error) for place in partitions])
    told = asked.recover(KafkaError, lambda error: [(place, error.code) for place in partitions])
    return told.then(
        lambda errors: Response.AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id, topic_results=_by_topic(errors)
        )
    )


def _partitions(topics: Iterable[messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    """In the order of the request, each once."""
    places = (TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions)
    return list(dict.fromkeys(places))


def _refused(node: Node, partitions: Sequence[TopicPartition], forbidden: Iterable[str]) -> Errors | None:
    """Errors of all partitions where one may not join; None where all may."""
    image, forbidden = node.metadata.image, frozenset(forbidden)
    errors: Errors = []
    is_refused = False
    for place in partitions:
        error = ErrorCode.OPERATION_NOT_ATTEMPTED
        if place.topic in forbidden:
            error, is_refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED, True
        elif image.partition(place) is None:
            error, is_refused = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True
        errors.append((place, error))
    return errors if is_refused else None


def _by_topic(errors: Errors) -> list[messages.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[messages.AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]] = {}
    for (topic, partition), error in errors:
        topics.setdefault(topic, []).append(
            Response.AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=error)
        )
    return [
        Response.AddPartitionsToTxnTopicResult(name=topic, results_by_partition=results)
        for topic, results in topics.items()
    ]


def error_response(
    request: messages.AddPartitionsToTxnRequest, version: int, error: KafkaError
) -> messages.AddPartitionsToTxnResponse:
    if version >= BETWEEN_BROKERS_SINCE:
        return Response(error_code=error.code)
    partitions = _partitions(request.v3_and_below_topics)
    return Response(results_by_topic_v3_and_below=_by_topic([(place, error.code) for place in partitions]))
