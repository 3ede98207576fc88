"""Delegation tokens: created, renewed, expired, described (KIP-48, KIP-373). No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelog.client.admin.answers import error_of
from tidelog.client.operations import Operation
from tidelog.client.routing import Routing
from tidelog.model.errors import KafkaError
from tidelog.protocol import messages
from tidelog.security.access import Principal


@dataclass(frozen=True, slots=True)
class TokenDescription:
    """A token as a broker describes it. Its `repr` leaves the HMAC out, by which workers log in."""

    id: str
    hmac: bytes = field(repr=False)
    owner: Principal
    requester: Principal
    """Made it; the owner, where the broker does not say (before Kafka 3.3)."""
    renewers: tuple[Principal, ...]
    issued_ms: int
    """Wall clock, as the others."""
    expiry_ms: int
    """It is not good for logins any more, unless it is renewed."""
    max_ms: int
    """It cannot be renewed beyond this."""


def create_token(
    routing: Routing,
    *,
    owner: Principal | None = None,
    renewers: Sequence[Principal] = (),
    max_lifetime_ms: int = -1,
    timeout_s: float | None = None,
) -> Operation[TokenDescription]:
    """A new token, of `owner` or of the user that asks; -1: it lives as long as brokers let it. KafkaError."""
    kind = messages.CreateDelegationTokenRequest
    request = kind(
        owner_principal_type=None if owner is None else owner.type,
        owner_principal_name=None if owner is None else owner.name,
        renewers=[kind.CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in renewers],
        max_lifetime_ms=max_lifetime_ms,
    )
    answer = yield from routing.ask_any(request, routing.deadline(timeout_s))
    _require(answer)
    its_owner = Principal(answer.principal_name, answer.principal_type)
    return TokenDescription(
        answer.token_id,
        bytes(answer.hmac),
        its_owner,
        _requester(answer, its_owner),
        tuple(renewers),
        answer.issue_timestamp_ms,
        answer.expiry_timestamp_ms,
        answer.max_timestamp_ms,
    )


def renew_token(
    routing: Routing, hmac: bytes, *, period_ms: int = -1, timeout_s: float | None = None
) -> Operation[int]:
    """Puts a token's end off to `period_ms` from now, -1: as far as brokers let it; the new end. KafkaError."""
    request = messages.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    answer = yield from routing.ask_any(request, routing.deadline(timeout_s))
    _require(answer)
    return int(answer.expiry_timestamp_ms)


def expire_token(
    routing: Routing, hmac: bytes, *, period_ms: int = -1, timeout_s: float | None = None
) -> Operation[int]:
    """Ends a token in `period_ms`, -1: now; its end. KafkaError."""
    request = messages.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    answer = yield from routing.ask_any(request, routing.deadline(timeout_s))
    _require(answer)
    return int(answer.expiry_timestamp_ms)


def describe_tokens(
    routing: Routing, owners: Sequence[Principal] | None = None, *, timeout_s: float | None = None
) -> Operation[list[TokenDescription]]:
    """The tokens of these owners, None: of all, that the user may see, in the order of their making. KafkaError."""
    kind = messages.DescribeDelegationTokenRequest
    named = None
    if owners is not None:
        named = [
            kind.DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name) for each in owners
        ]
    answer = yield from routing.ask_any(kind(owners=named), routing.deadline(timeout_s))
    _require(answer)
    return sorted(map(_described, answer.tokens), key=lambda token: (token.issued_ms, token.id))


def _described(token: Any) -> TokenDescription:
    owner = Principal(token.principal_name, token.principal_type)
    return TokenDescription(
        token.token_id,
        bytes(token.hmac),
        owner,
        _requester(token, owner),
        tuple(Principal(each.principal_name, each.principal_type) for each in token.renewers),
        token.issue_timestamp,
        token.expiry_timestamp,
        token.max_timestamp,
    )


def _requester(answer: Any, owner: Principal) -> Principal:
    name = answer.token_requester_principal_name
    return Principal(name, answer.token_requester_principal_type) if name else owner


def _require(answer: Any) -> None:
    refused: KafkaError | None = error_of(answer.error_code, None, "the delegation token")
    if refused is not None:
        raise refused
