"""AddOffsetsToTxn: a group's partition of `__consumer_offsets` joins a transaction, before offsets are committed in it.

Versions 0-4. v2: knows PRODUCER_FENCED. v4: TRANSACTION_ABORTABLE. With transaction.version 2 producers do without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._transactions import as_known
from tidelog.coordinator.transactions.transaction import OLD_VERSION
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ProducerEpoch, ProducerId, TopicPartition
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.ADD_OFFSETS_TO_TXN
VERSIONS: Final = Versions(0, 4)

FENCED_SINCE: Final = 2


def handle(
    node: Node, context: RequestContext, request: messages.AddOffsetsToTxnRequest
) -> Deferred[messages.AddOffsetsToTxnResponse]:
    if not authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    knows_fenced = context.api_version >= FENCED_SINCE

    def add(_: None) -> Deferred[ErrorCode]:
        partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, node.groups.shards.partition_of(request.group_id))
        return node.transactions.add_partitions(
            request.transactional_id,
            ProducerId(request.producer_id),
            ProducerEpoch(request.producer_epoch),
            [partition],
            version=OLD_VERSION,
        )

    def response(error: ErrorCode) -> messages.AddOffsetsToTxnResponse:
        return messages.AddOffsetsToTxnResponse(error_code=as_known(error, knows_fenced=knows_fenced))

    # The group may be new, and its first offsets are to be committed in a transaction.
    return node.groups.ensure_topic().and_then(add).then(response)


def error_response(
    request: messages.AddOffsetsToTxnRequest, version: int, error: KafkaError
) -> messages.AddOffsetsToTxnResponse:
    return messages.AddOffsetsToTxnResponse(error_code=error.code)
