"""RenewDelegationToken: a later end for a token, up to its maximum (KIP-48).

Versions 1-2. By its owner, its maker and its renewers. Any broker carries it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._tokens import require_authenticated, require_tokens
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.delegation_tokens import DelegationToken, renewed

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.RENEW_DELEGATION_TOKEN
VERSIONS: Final = Versions(1, 2)

_Response = messages.RenewDelegationTokenResponse


def handle(
    node: Node, context: RequestContext, request: messages.RenewDelegationTokenRequest
) -> messages.RenewDelegationTokenResponse | Deferred[messages.RenewDelegationTokenResponse]:
    require_authenticated(node, context)
    tokens = require_tokens(node)
    token = tokens.token_of_hmac(bytes(request.hmac))
    expiry_ms = 0

    def change(before: DelegationToken) -> DelegationToken:
        nonlocal expiry_ms
        after = renewed(before, context.principal, request.renew_period_ms, tokens.lifetimes, node.clock.wall_ms())
        expiry_ms = after.expiry_ms
        return after

    return tokens.alter(token.id, change).then(lambda _: _Response(expiry_timestamp_ms=expiry_ms))


def error_response(
    request: messages.RenewDelegationTokenRequest, version: int, error: KafkaError
) -> messages.RenewDelegationTokenResponse:
    # Kafka's broker, which judges who may ask, says -1; its controller, which judges the rest, 0.
    not_allowed = error.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return _Response(error_code=error.code, expiry_timestamp_ms=-1 if not_allowed else 0)
