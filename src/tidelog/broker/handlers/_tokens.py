"""Who may ask about delegation tokens, and what all four requests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.security.access import ANONYMOUS

if TYPE_CHECKING:
    from tidelog.broker.cluster.stored_tokens import StoredTokens
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node


def require_authenticated(node: Node, context: RequestContext) -> None:
    """KafkaError DELEGATION_TOKEN_REQUEST_NOT_ALLOWED without authentication, or with that of a token."""
    protocols = {listener.name: listener.security_protocol for listener in node.config.listeners}
    protocol = protocols.get(context.listener, "PLAINTEXT")
    by_token = context.peer is not None and context.peer.by_token
    if protocol == "PLAINTEXT" or (protocol == "SSL" and context.principal == ANONYMOUS) or by_token:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def require_tokens(node: Node) -> StoredTokens:
    """KafkaError DELEGATION_TOKEN_AUTH_DISABLED where there are no tokens."""
    if node.tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return node.tokens
