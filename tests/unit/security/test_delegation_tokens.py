"""Delegation tokens: lifetimes, rights, and the node that Kafka 3.9 leaves."""

from __future__ import annotations

import pytest

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.security.access import Principal
from tidelog.security.delegation_tokens import (
    DelegationToken,
    Lifetimes,
    decode_token,
    encode_token,
    expired,
    is_token_id,
    may_describe,
    new_token,
    renewed,
    token_hmac,
    token_path,
)
from tidelog.security.stored import MalformedNode

ALICE, BOB, CAROL = Principal("alice"), Principal("bob"), Principal("carol")
LIFETIMES = Lifetimes(max_ms=7_000, expiry_ms=1_000)
NODE = (
    b'{"issueTimestamp":1795340335981,"renewers":["User%3Abob"],"tokenRequester":"User%3Aalice",'
    b'"tokenId":"UF9a_jorRyiSCYtKig-MGQ","owner":"User%3Aalice","expiryTimestamp":1795426735981,'
    b'"maxTimestamp":1795945135981,"version":3}'
)
"""Kafka 3.9.1's (shared vectors, tools.txt)."""


def token(wanted_max_ms: int = -1, *renewers: Principal) -> DelegationToken:
    return new_token(bytes(16), ALICE, ALICE, renewers, wanted_max_ms, LIFETIMES, 100)


def test_no_id_reads_as_an_option_of_a_command_line() -> None:
    ids = {new_token(bytes((first, *range(15))), ALICE, ALICE, (), -1, LIFETIMES, 100).id for first in range(256)}
    assert not [token_id for token_id in ids if token_id.startswith("-") or not is_token_id(token_id)]


@pytest.mark.parametrize(
    ("wanted", "max_ms", "expiry_ms"),
    [(-1, 7_100, 1_100), (0, 7_100, 1_100), (500, 600, 600), (5_000, 5_100, 1_100), (99_000, 7_100, 1_100)],
)
def test_a_token_lives_as_long_as_it_may(wanted: int, max_ms: int, expiry_ms: int) -> None:
    made = token(wanted)
    assert (made.issued_ms, made.max_ms, made.expiry_ms) == (100, max_ms, expiry_ms)


def test_renewing_never_goes_beyond_the_maximum() -> None:
    made = token(1_500)
    assert renewed(made, ALICE, -1, LIFETIMES, 200).expiry_ms == 1_200
    assert renewed(made, ALICE, 300, LIFETIMES, 200).expiry_ms == 500
    later = renewed(made, ALICE, 99_000, LIFETIMES, 1_000)
    assert later.expiry_ms == 1_600
    for now_ms in (1_601, 99_000):
        assert (
            _refusal(lambda now_ms=now_ms: renewed(later, ALICE, -1, LIFETIMES, now_ms)) == "DELEGATION_TOKEN_EXPIRED"
        )


def test_expiring_is_now_or_then() -> None:
    made = token(1_500)
    assert expired(made, ALICE, -1, 200) is None
    then = expired(made, ALICE, 100, 200)
    assert then is not None
    assert then.expiry_ms == 300
    assert _refusal(lambda: expired(then, ALICE, 100, 301)) == "DELEGATION_TOKEN_EXPIRED"
    assert expired(then, ALICE, -1, 301) is None


def test_owners_makers_and_renewers_alone_may() -> None:
    made = new_token(bytes(16), BOB, ALICE, [CAROL], -1, LIFETIMES, 100)
    for principal in (ALICE, BOB, CAROL):
        assert renewed(made, principal, -1, LIFETIMES, 200)
        assert may_describe(made, principal, None, lambda _: False)
    stranger = Principal("dave")
    assert _refusal(lambda: renewed(made, stranger, -1, LIFETIMES, 200)) == "DELEGATION_TOKEN_OWNER_MISMATCH"
    assert _refusal(lambda: expired(made, stranger, -1, 200)) == "DELEGATION_TOKEN_OWNER_MISMATCH"
    assert not may_describe(made, stranger, None, lambda _: False)
    assert may_describe(made, stranger, None, lambda _: True)
    assert may_describe(made, stranger, [ALICE], lambda _: True)
    assert not may_describe(made, stranger, [stranger], lambda _: True)
    group = Principal("g", "Group")
    assert _refusal(lambda: token(-1, group)) == "INVALID_PRINCIPAL_TYPE"


def _refusal(attempt: object) -> str:
    with pytest.raises(KafkaError) as refused:
        attempt()  # type: ignore[operator]
    return ErrorCode(refused.value.code).name


def test_the_node_is_kafkas() -> None:
    path = token_path("UF9a_jorRyiSCYtKig-MGQ")
    read = decode_token(path, NODE)
    assert (read.owner, read.requester, read.renewers) == (ALICE, ALICE, (BOB,))
    assert encode_token(read) == NODE


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"{",
        b"[]",
        NODE.replace(b":3}", b":4}"),
        NODE.replace(b"%3Aalice", b"alice"),
        NODE[:-1] + b',"owner":7}',
    ],
)
def test_nodes_that_cannot_be_read(data: bytes | None) -> None:
    with pytest.raises(MalformedNode):
        decode_token(token_path("UF9a_jorRyiSCYtKig-MGQ"), data)


def test_another_tokens_node_is_not_taken() -> None:
    """Else a copied node would give its owner's name to another id."""
    with pytest.raises(MalformedNode):
        decode_token(token_path("AAAAAAAAAAAAAAAAAAAAAA"), NODE)


def test_ids_are_kafkas_uuids() -> None:
    assert is_token_id("UF9a_jorRyiSCYtKig-MGQ")
    for text in ("", "a", "../x", "UF9a_jorRyiSCYtKig-MG", "é" * 22):
        assert not is_token_id(text)
    assert len(token_hmac("secret", "UF9a_jorRyiSCYtKig-MGQ")) == 64
