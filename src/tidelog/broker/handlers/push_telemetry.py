"""PushTelemetry: a client's metrics, which the broker shows in `/metrics` (KIP-714).

Version 0. Served, and advertised, where there is a metrics listener that shows what clients push; no ACL is needed, as
in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.PUSH_TELEMETRY
VERSIONS: Final = Versions(0, 0)


def handle(
    node: Node, context: RequestContext, request: messages.PushTelemetryRequest
) -> Deferred[messages.PushTelemetryResponse]:
    if node.client_metrics is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    pushed = node.client_metrics.push(context, request)
    return pushed.then(lambda code: messages.PushTelemetryResponse(error_code=code))


def error_response(
    request: messages.PushTelemetryRequest, version: int, error: KafkaError
) -> messages.PushTelemetryResponse:
    return messages.PushTelemetryResponse(error_code=error.code)
