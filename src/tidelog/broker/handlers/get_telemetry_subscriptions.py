"""GetTelemetrySubscriptions: which of its metrics a client is to push, and how often (KIP-714).

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
    from tidelog.broker.node import Node

KEY: Final = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
VERSIONS: Final = Versions(0, 0)


def handle(
    node: Node, context: RequestContext, request: messages.GetTelemetrySubscriptionsRequest
) -> messages.GetTelemetrySubscriptionsResponse:
    if node.client_metrics is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return node.client_metrics.get(context, request)


def error_response(
    request: messages.GetTelemetrySubscriptionsRequest, version: int, error: KafkaError
) -> messages.GetTelemetrySubscriptionsResponse:
    return messages.GetTelemetrySubscriptionsResponse(error_code=error.code)
