"""CreateDelegationToken: a token with which workers authenticate in a user's name (KIP-48). kafka-delegation-tokens.

Versions 1-3. v3: for another owner (KIP-373), by the right CREATE_TOKENS on that user. Any broker carries it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._tokens import require_authenticated, require_tokens
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, Principal, ResourceType
from tidelog.security.delegation_tokens import ID_BYTES, new_token

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.CREATE_DELEGATION_TOKEN
VERSIONS: Final = Versions(1, 3)

_Response = messages.CreateDelegationTokenResponse
_NONE: Final = -1
REQUESTER_SINCE: Final = 3
"""From here on the answer says who made the token."""


def handle(
    node: Node, context: RequestContext, request: messages.CreateDelegationTokenRequest
) -> messages.CreateDelegationTokenResponse | Deferred[messages.CreateDelegationTokenResponse]:
    requester = context.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_name, request.owner_principal_type or "")
    try:
        require_authenticated(node, context)
        if owner != requester and not authorize(context, Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        tokens = require_tokens(node)
        renewers = [Principal(each.principal_name, each.principal_type) for each in request.renewers]
        now_ms = node.clock.wall_ms()
        token = new_token(
            node.random.token(ID_BYTES), requester, owner, renewers, request.max_lifetime_ms, tokens.lifetimes, now_ms
        )
    except KafkaError as error:
        return _refused(error, owner, requester, context.api_version)

    def made(_: None) -> messages.CreateDelegationTokenResponse:
        response = _Response(
            issue_timestamp_ms=token.issued_ms,
            expiry_timestamp_ms=token.expiry_ms,
            max_timestamp_ms=token.max_ms,
            token_id=token.id,
            hmac=tokens.hmac_of(token),
        )
        return _name(response, owner, requester, context.api_version)

    return tokens.add(token).then(made)


def _refused(
    error: KafkaError, owner: Principal, requester: Principal, version: int
) -> messages.CreateDelegationTokenResponse:
    response = _Response(
        error_code=error.code, issue_timestamp_ms=_NONE, expiry_timestamp_ms=_NONE, max_timestamp_ms=_NONE
    )
    return _name(response, owner, requester, version)


def _name(
    response: messages.CreateDelegationTokenResponse, owner: Principal, requester: Principal, version: int
) -> messages.CreateDelegationTokenResponse:
    response.principal_type, response.principal_name = owner.type, owner.name
    if version >= REQUESTER_SINCE:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    return response


def error_response(
    request: messages.CreateDelegationTokenRequest, version: int, error: KafkaError
) -> messages.CreateDelegationTokenResponse:
    nobody = Principal("", "")
    return _refused(error, nobody, nobody, version)
