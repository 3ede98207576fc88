"""DescribeDelegationToken: tokens with their HMACs, to those who may see them (KIP-48).

Versions 1-3. v3: who made a token (KIP-373). Others' tokens by DESCRIBE on the token, or DESCRIBE_TOKENS on its owner.
A list of no owners asks for nothing, no list for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._tokens import require_authenticated, require_tokens
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, Principal, ResourceType
from tidelog.security.delegation_tokens import DelegationToken, may_describe

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.model.errors import KafkaError

KEY: Final = ApiKey.DESCRIBE_DELEGATION_TOKEN
VERSIONS: Final = Versions(1, 3)

_Response = messages.DescribeDelegationTokenResponse
REQUESTER_SINCE: Final = 3
"""From here on the answer says who made a token."""


def handle(
    node: Node, context: RequestContext, request: messages.DescribeDelegationTokenRequest
) -> messages.DescribeDelegationTokenResponse:
    require_authenticated(node, context)
    tokens = require_tokens(node)
    owners = None
    if request.owners is not None:
        owners = [Principal(owner.principal_name, owner.principal_type) for owner in request.owners]

    def authorized(token: DelegationToken) -> bool:
        return authorize(context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id, quiet=True) or authorize(
            context, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner), quiet=True
        )

    return _Response(
        tokens=[
            _described(token, tokens.hmac_of(token), context.api_version)
            for token in tokens.tokens
            if may_describe(token, context.principal, owners, authorized)
        ]
    )


def _described(
    token: DelegationToken, hmac: bytes, version: int
) -> messages.DescribeDelegationTokenResponse.DescribedDelegationToken:
    renewer = _Response.DescribedDelegationTokenRenewer
    described = _Response.DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=hmac,
        renewers=[renewer(principal_type=each.type, principal_name=each.name) for each in token.renewers],
    )
    if version >= REQUESTER_SINCE:
        described.token_requester_principal_type = token.requester.type
        described.token_requester_principal_name = token.requester.name
    return described


def error_response(
    request: messages.DescribeDelegationTokenRequest, version: int, error: KafkaError
) -> messages.DescribeDelegationTokenResponse:
    return _Response(error_code=error.code)
