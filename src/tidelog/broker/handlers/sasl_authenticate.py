"""SaslAuthenticate where it has no place: ILLEGAL_SASL_STATE, as Kafka answers.

Versions 0-2. Those of an authentication are taken by `connections.authentication`.
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

KEY: Final = ApiKey.SASL_AUTHENTICATE
VERSIONS: Final = Versions(0, 2)

TOO_LATE: Final = "SaslAuthenticate request received after successful authentication"


def handle(
    node: Node, context: RequestContext, request: messages.SaslAuthenticateRequest
) -> messages.SaslAuthenticateResponse:
    raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, TOO_LATE)


def error_response(
    request: messages.SaslAuthenticateRequest, version: int, error: KafkaError
) -> messages.SaslAuthenticateResponse:
    return messages.SaslAuthenticateResponse(error_code=error.code, error_message=error.message, auth_bytes=b"")
