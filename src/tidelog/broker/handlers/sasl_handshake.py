"""SaslHandshake where it has no place: ILLEGAL_SASL_STATE, as Kafka answers.

Versions 0-1. On a SASL listener `connections.authentication` takes those before authentication and those that begin a
re-authentication; what is left comes too often, or by a listener without SASL.
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

KEY: Final = ApiKey.SASL_HANDSHAKE
VERSIONS: Final = Versions(0, 1)


def handle(
    node: Node, context: RequestContext, request: messages.SaslHandshakeRequest
) -> messages.SaslHandshakeResponse:
    raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE)


def error_response(
    request: messages.SaslHandshakeRequest, version: int, error: KafkaError
) -> messages.SaslHandshakeResponse:
    return messages.SaslHandshakeResponse(error_code=error.code)
