"""WriteTxnMarkers: the end of transactions, written into partitions led here, by their coordinator or by a tool.

Versions 1-2. v1: flexible. v2: the transaction.version by which a marker is judged (KIP-1228): from 2 on its epoch must
be above that of the open transaction which it ends.

All markers for a partition go into its log in one write, in the order of the request, and each is answered when it is
committed. A marker that comes again, because the first answer was lost, is written again and ends nothing. In a
partition of `__consumer_offsets` it also decides over the offsets that the transaction has committed there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.control import ControlRecordType, EndTxnMarker, build_end_txn_batch
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.storage.log import AppendInfo

KEY: Final = ApiKey.WRITE_TXN_MARKERS
VERSIONS: Final = Versions(1, 2)

Marker = messages.WriteTxnMarkersRequest.WritableTxnMarker
Place = messages.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


class _Write(NamedTuple):
    """A marker for one partition, and where its answer stands."""

    marker: messages.WriteTxnMarkersRequest.WritableTxnMarker
    place: messages.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


def handle(
    node: Node, context: RequestContext, request: messages.WriteTxnMarkersRequest
) -> messages.WriteTxnMarkersResponse | Deferred[messages.WriteTxnMarkersResponse]:
    if not any(
        authorize(context, operation, ResourceType.CLUSTER, CLUSTER_NAME)
        for operation in (Operation.ALTER, Operation.CLUSTER_ACTION)
    ):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response = messages.WriteTxnMarkersResponse()
    writes: dict[TopicPartition, list[_Write]] = {}
    for marker in request.markers:
        result = messages.WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        for topic in marker.topics:
            answer = messages.WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=topic.name)
            result.topics.append(answer)
            for index in topic.partition_indexes:
                place = Place(partition_index=index, error_code=ErrorCode.NONE)
                answer.partitions.append(place)
                if marker.producer_id < 0 or marker.producer_epoch < 0:
                    place.error_code = ErrorCode.INVALID_REQUEST
                    continue
                writes.setdefault(TopicPartition(topic.name, index), []).append(_Write(marker, place))
    waiting = [done for partition, markers in writes.items() for done in _write(node, partition, markers)]
    return gather(waiting).then(lambda _: response)


def _write(node: Node, partition: TopicPartition, writes: list[_Write]) -> list[Deferred[None]]:
    """Writes a partition's markers; each of the deferreds completes when some of them have their answer."""
    replica = node.replicas.get(partition)
    if replica is None:
        for write in writes:
            write.place.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return []
    if len({write.marker.transaction_version for write in writes}) == 1:
        together = _append(node, partition, writes)
        if len(writes) == 1 or not _refused(together):
            return [_settled(node, partition, writes, together)]
    # One of them may be no good, and the others are to be written nevertheless.
    return [_settled(node, partition, [write], _append(node, partition, [write])) for write in writes]


def _append(node: Node, partition: TopicPartition, writes: list[_Write]) -> Deferred[AppendInfo]:
    now_ms = node.clock.wall_ms()
    data = bytearray()
    for marker, _ in writes:
        kind = ControlRecordType.COMMIT if marker.transaction_result else ControlRecordType.ABORT
        data += build_end_txn_batch(
            EndTxnMarker(kind, marker.coordinator_epoch),
            timestamp=now_ms,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
        )
    version = writes[0].marker.transaction_version
    timeout_ms = node.config.request_timeout_ms
    return node.replicas.append_and_wait(partition, data, timeout_ms, transaction_version=version)


def _refused(outcome: Deferred[AppendInfo]) -> bool:
    """Whether nothing was appended."""
    if not outcome.done:
        return False
    try:
        outcome.result()
    except KafkaError:
        return True
    return False


def _settled(
    node: Node, partition: TopicPartition, writes: list[_Write], outcome: Deferred[AppendInfo]
) -> Deferred[None]:
    """Completes when the markers are committed, or not, and their answers are filled in."""
    settled: Deferred[None] = Deferred()

    def settle(done: Deferred[AppendInfo]) -> None:
        try:
            done.result()
        except KafkaError as error:
            for write in writes:
                write.place.error_code = error.code
        else:
            if partition.topic == CONSUMER_OFFSETS_TOPIC:
                for marker, _ in writes:
                    committed = marker.transaction_result
                    node.groups.transaction_ended(
                        partition.partition, marker.producer_id, marker.producer_epoch, committed=committed
                    )
        settled.complete(None)

    outcome.on_complete(settle)
    return settled


def error_response(
    request: messages.WriteTxnMarkersRequest, version: int, error: KafkaError
) -> messages.WriteTxnMarkersResponse:
    kind = messages.WriteTxnMarkersResponse
    return kind(
        markers=[
            kind.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    kind.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            Place(partition_index=index, error_code=error.code) for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
