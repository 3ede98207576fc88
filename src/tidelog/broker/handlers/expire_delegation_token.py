"""ExpireDelegationToken: an earlier end for a token, or its end now (KIP-48).

Versions 1-2. By its owner, its maker and its renewers. Any broker carries it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._tokens import require_authenticated, require_tokens
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.delegation_tokens import DelegationToken, expired

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.EXPIRE_DELEGATION_TOKEN
VERSIONS: Final = Versions(1, 2)

_Response = messages.ExpireDelegationTokenResponse


def handle(
    node: Node, context: RequestContext, request: messages.ExpireDelegationTokenRequest
) -> messages.ExpireDelegationTokenResponse | Deferred[messages.ExpireDelegationTokenResponse]:
    require_authenticated(node, context)
    tokens = require_tokens(node)
    token = tokens.token_of_hmac(bytes(request.hmac))
    expiry_ms = 0

    def change(before: DelegationToken) -> DelegationToken | None:
        nonlocal expiry_ms
        now_ms = node.clock.wall_ms()
        after = expired(before, context.principal, request.expiry_time_period_ms, now_ms)
        expiry_ms = now_ms if after is None else after.expiry_ms
        return after

    return tokens.alter(token.id, change).then(lambda _: _Response(expiry_timestamp_ms=expiry_ms))


def error_response(
    request: messages.ExpireDelegationTokenRequest, version: int, error: KafkaError
) -> messages.ExpireDelegationTokenResponse:
    not_allowed = error.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return _Response(error_code=error.code, expiry_timestamp_ms=-1 if not_allowed else 0)
