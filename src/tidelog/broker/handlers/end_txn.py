"""EndTxn: a producer commits its transaction, or aborts it.

Versions 0-5. v2: knows PRODUCER_FENCED. v4: TRANSACTION_ABORTABLE. v5: transaction.version 2 (KIP-890), the answer
brings the producer's next epoch. The answer comes when the end is decided for good; markers are written to partitions
afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._transactions import NO_EPOCH, as_known
from tidelog.coordinator.transactions.transaction import BUMPING_VERSION, OLD_VERSION
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_PRODUCER_ID, ProducerEpoch, ProducerId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.coordinator.transactions.events import ProducerIdentity

KEY: Final = ApiKey.END_TXN
VERSIONS: Final = Versions(0, 5)

FENCED_SINCE: Final = 2
BUMPS_EPOCH_SINCE: Final = 5


def handle(
    node: Node, context: RequestContext, request: messages.EndTxnRequest
) -> messages.EndTxnResponse | Deferred[messages.EndTxnResponse]:
    version = context.api_version
    if not authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def response(identity: ProducerIdentity) -> messages.EndTxnResponse:
        return messages.EndTxnResponse(
            error_code=as_known(identity.error, knows_fenced=version >= FENCED_SINCE),
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
        )

    return node.transactions.end(
        request.transactional_id,
        ProducerId(request.producer_id),
        ProducerEpoch(request.producer_epoch),
        committed=request.committed,
        version=BUMPING_VERSION if version >= BUMPS_EPOCH_SINCE else OLD_VERSION,
    ).then(response)


def error_response(request: messages.EndTxnRequest, version: int, error: KafkaError) -> messages.EndTxnResponse:
    return messages.EndTxnResponse(error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
