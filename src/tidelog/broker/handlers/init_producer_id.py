"""InitProducerId: a producer id for an idempotent producer.

Versions 0-5. v3: the producer's present id and epoch (KIP-360). Without a transactional id the answer is always a new
id with epoch 0, as in Kafka: the producer itself raises the epoch of an id that it keeps. A transactional id is
refused in this release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers.find_coordinator import no_transactions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_PRODUCER_ID, ProducerId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.INIT_PRODUCER_ID
VERSIONS: Final = Versions(0, 5)

NO_EPOCH: Final = -1


def handle(
    node: Node, context: RequestContext, request: messages.InitProducerIdRequest
) -> messages.InitProducerIdResponse | Deferred[messages.InitProducerIdResponse]:
    if request.transactional_id is not None:
        raise no_transactions()
    if not authorize(context, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A producer id and its epoch must be given together.")
    answer = node.producer_ids.take().then(_response)
    return answer.result() if answer.done else answer


def _response(producer_id: ProducerId) -> messages.InitProducerIdResponse:
    return messages.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def error_response(
    request: messages.InitProducerIdRequest, version: int, error: KafkaError
) -> messages.InitProducerIdResponse:
    return messages.InitProducerIdResponse(error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
