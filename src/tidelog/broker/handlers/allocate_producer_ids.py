"""AllocateProducerIds: a broker needs producer ids to hand out (KIP-730). Kafka 3.9's, asked of the controller.

Version 0. Not advertised: brokers of ZooKeeper days know each other's release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._between_brokers import serve_here
from tidelog.controller.requests import AllocateProducerIds
from tidelog.model.identifiers import BrokerEpoch, BrokerId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.model.errors import KafkaError

KEY: Final = ApiKey.ALLOCATE_PRODUCER_IDS
VERSIONS: Final = Versions(0, 0, advertised=False)


def handle(
    node: Node, context: RequestContext, request: messages.AllocateProducerIdsRequest
) -> Deferred[messages.AllocateProducerIdsResponse]:
    event = AllocateProducerIds(BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch))
    return serve_here(node, context, event).then(
        lambda block: messages.AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.length)
    )


def error_response(
    request: messages.AllocateProducerIdsRequest, version: int, error: KafkaError
) -> messages.AllocateProducerIdsResponse:
    return messages.AllocateProducerIdsResponse(error_code=error.code)
