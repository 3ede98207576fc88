"""InitProducerId: a producer id and epoch, for an idempotent producer or for a transactional id.

Versions 0-5. v3: the producer's present id and epoch (KIP-360). v4: knows PRODUCER_FENCED. v5: TRANSACTION_ABORTABLE.
Without a transactional id the answer is always a new id with epoch 0, as in Kafka: the producer itself raises the epoch
of an id that it keeps. Where this broker remembers too many producers, the answer takes its time. A transactional id is
asked of its coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize, authorize_any
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._transactions import NO_EPOCH, as_known
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_PRODUCER_ID, ProducerEpoch, ProducerId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.coordinator.transactions.events import ProducerIdentity

KEY: Final = ApiKey.INIT_PRODUCER_ID
VERSIONS: Final = Versions(0, 5)

FENCED_SINCE: Final = 4


def handle(
    node: Node, context: RequestContext, request: messages.InitProducerIdRequest
) -> messages.InitProducerIdResponse | Deferred[messages.InitProducerIdResponse]:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not (
        authorize(context, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True)
        or authorize_any(context, Operation.WRITE, ResourceType.TOPIC)
    ):
        # A principal that may write to some topic may do it idempotently (KIP-679).
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A producer id and its epoch must be given together.")
    if transactional_id is None:
        limit = node.logs.producer_limit
        ids = node.producer_ids
        return (ids.take_in_turn(limit.count_max) if limit.is_pressed else ids.take()).then(_idempotent)
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = (ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))

    def response(identity: ProducerIdentity) -> messages.InitProducerIdResponse:
        return messages.InitProducerIdResponse(
            error_code=as_known(identity.error, knows_fenced=context.api_version >= FENCED_SINCE),
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
        )

    return node.transactions.init_producer(transactional_id, request.transaction_timeout_ms, expected).then(response)


def _idempotent(producer_id: ProducerId) -> messages.InitProducerIdResponse:
    return messages.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def error_response(
    request: messages.InitProducerIdRequest, version: int, error: KafkaError
) -> messages.InitProducerIdResponse:
    return messages.InitProducerIdResponse(error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
