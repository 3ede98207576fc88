"""ControlledShutdown: a broker wants to leave, others should lead what it leads. Kafka 3.9's, asked of the controller.

Versions 0-3, of which 2 and 3 are served: the broker's epoch since v2 (KIP-380). Not advertised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.cluster.controller_requests import controlled_shutdown_response
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._between_brokers import serve_here
from tidelog.controller.requests import ControlledShutdown
from tidelog.model.identifiers import BrokerEpoch, BrokerId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.model.errors import KafkaError

KEY: Final = ApiKey.CONTROLLED_SHUTDOWN
VERSIONS: Final = Versions(2, 3, advertised=False)


def handle(
    node: Node, context: RequestContext, request: messages.ControlledShutdownRequest
) -> Deferred[messages.ControlledShutdownResponse]:
    event = ControlledShutdown(BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch))
    return serve_here(node, context, event).then(controlled_shutdown_response)


def error_response(
    request: messages.ControlledShutdownRequest, version: int, error: KafkaError
) -> messages.ControlledShutdownResponse:
    return messages.ControlledShutdownResponse(error_code=error.code)
