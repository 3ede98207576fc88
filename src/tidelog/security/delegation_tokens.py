"""Delegation tokens (KIP-48): what a token is, who may do what with it, and its node in the metadata store.

A user that has authenticated creates a token, and hands its id and HMAC to workers, which authenticate with them in the
user's name by SCRAM with `tokenauth=true`. It expires unless it is renewed, and cannot be renewed beyond its maximum.

    /delegation_token/tokens/<id>                   {"version":3,"owner":...}, as Kafka 3.9 writes it
    /delegation_token/token_changes/token_change_N  the id of a token that was made, renewed or removed

The store has no HMAC: each broker makes it of the id with the cluster's secret (`delegation.token.secret.key`).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import dashless_id, format_id
from tidelog.model.values import value
from tidelog.security.access import Principal
from tidelog.security.stored import MalformedNode, desanitized, sanitized

ROOT: Final = "/delegation_token"
TOKENS: Final = f"{ROOT}/tokens"
CHANGES: Final = f"{ROOT}/token_changes"
CHANGE_PREFIX: Final = f"{CHANGES}/token_change_"
CONTAINERS: Final = (ROOT, TOKENS, CHANGES)
_VERSION: Final = 3
_REQUESTER_SINCE: Final = 3
_USER: Final = "User"
_INT64_MAX: Final = (1 << 63) - 1
ID_BYTES: Final = 16


@value
class DelegationToken:
    """One token. It holds no secret: its HMAC is made with the cluster's."""

    id: str
    owner: Principal
    requester: Principal
    """Made it; the owner as a rule."""
    renewers: tuple[Principal, ...]
    issued_ms: int
    """Wall clock, as the others."""
    max_ms: int
    """It is never valid beyond this."""
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def belongs_to(self, principal: Principal) -> bool:
        """Whether it is the owner's, a renewer's, or its maker's: they may renew, expire and see it."""
        return principal in (self.owner, self.requester, *self.renewers)


@value
class Lifetimes:
    """What settings say, milliseconds."""

    max_ms: int
    expiry_ms: int


def new_token(
    id_bytes: bytes,
    requester: Principal,
    owner: Principal,
    renewers: Iterable[Principal],
    wanted_max_ms: int,
    lifetimes: Lifetimes,
    now_ms: int,
) -> DelegationToken:
    """A token that lives for `wanted_max_ms`, or as long as it may where that is not above zero.

    KafkaError INVALID_PRINCIPAL_TYPE where a renewer is no user.
    """
    named = tuple(renewers)
    if any(renewer.type != _USER for renewer in named):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    max_ms = _later(now_ms, _bounded(wanted_max_ms, lifetimes.max_ms))
    token_id = format_id(dashless_id(id_bytes))
    return DelegationToken(token_id, owner, requester, named, now_ms, max_ms, min(max_ms, now_ms + lifetimes.expiry_ms))


def renewed(
    token: DelegationToken, by: Principal, wanted_ms: int, lifetimes: Lifetimes, now_ms: int
) -> DelegationToken:
    """The token with a later end. KafkaError DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH."""
    if token.is_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    _require_right(token, by)
    return replace(token, expiry_ms=min(token.max_ms, now_ms + _bounded(wanted_ms, lifetimes.expiry_ms)))


def expired(token: DelegationToken, by: Principal, wanted_ms: int, now_ms: int) -> DelegationToken | None:
    """The token with an end in `wanted_ms`; None: it ends now, where that is below zero. KafkaError as of `renewed`."""
    _require_right(token, by)
    if wanted_ms < 0:
        return None
    if token.is_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return replace(token, expiry_ms=min(token.max_ms, now_ms + wanted_ms))


def may_describe(
    token: DelegationToken,
    principal: Principal,
    owners: Iterable[Principal] | None,
    authorized: Callable[[DelegationToken], bool],
) -> bool:
    """Whether a token is in the answer to `principal`, which asks for those of `owners`, None: for all."""
    if owners is not None and not any(token.belongs_to(owner) for owner in owners):
        return False
    return token.belongs_to(principal) or authorized(token)


def token_hmac(secret: str, token_id: str) -> bytes:
    """What a worker shows, in base64, as the password of the user `token_id`."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def password_of(token_bytes: bytes) -> str:
    return base64.b64encode(token_bytes).decode()


def _require_right(token: DelegationToken, principal: Principal) -> None:
    if not token.belongs_to(principal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _later(now_ms: int, period_ms: int) -> int:
    """So long after `now_ms`, but no later than answers can say: Java's largest long is a period, too."""
    return min(now_ms + period_ms, _INT64_MAX)


def _bounded(wanted_ms: int, max_ms: int) -> int:
    return min(wanted_ms, max_ms) if wanted_ms > 0 else max_ms


# In the store.


def is_token_id(text: str) -> bool:
    """Whether a text is an id, and so a node's name."""
    try:
        return len(base64.urlsafe_b64decode(text + "==")) == ID_BYTES and "/" not in text
    except (binascii.Error, ValueError):
        return False


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    content = {
        "issueTimestamp": token.issued_ms,
        "renewers": [sanitized(str(renewer)) for renewer in token.renewers],
        "tokenRequester": sanitized(str(token.requester)),
        "tokenId": token.id,
        "owner": sanitized(str(token.owner)),
        "expiryTimestamp": token.expiry_ms,
        "maxTimestamp": token.max_ms,
        "version": _VERSION,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_token(path: str, data: bytes | None) -> DelegationToken:
    """MalformedNode."""
    try:
        content = json.loads(data or b"")
        version = content["version"]
        if not 1 <= version <= _VERSION:
            raise ValueError(f"version {version}")
        owner = _principal(content["owner"])
        requester = _principal(content["tokenRequester"]) if version >= _REQUESTER_SINCE else owner
        token_id = content["tokenId"]
        if path != token_path(token_id):
            raise ValueError("it is another token's")
        return DelegationToken(
            token_id,
            owner,
            requester,
            tuple(_principal(renewer) for renewer in content["renewers"]),
            int(content["issueTimestamp"]),
            int(content["maxTimestamp"]),
            int(content["expiryTimestamp"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise MalformedNode(path, f"{type(error).__name__}: {error}") from error


def _principal(text: Any) -> Principal:
    kind, colon, name = desanitized(text).partition(":")
    if not (kind and colon and name):
        raise ValueError("no principal")
    return Principal(name, kind)
