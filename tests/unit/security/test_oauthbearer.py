"""Bearer tokens: the exchange, and tokens without a signature. Kafka's own flows are judged by `make vectors`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.security.mechanisms import AuthenticationFailed, InvalidCredentials, SaslError
from tidelog.security.oauthbearer import (
    InvalidToken,
    OauthClient,
    OauthServer,
    Shown,
    Unsecured,
    unsecured_login,
    unsecured_token,
    verify_unsecured,
)

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
CLAIMS = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}


def verify(token: str, rules: Unsecured = Unsecured()) -> Shown:  # noqa: B008  # It is immutable.
    return verify_unsecured(token, rules, NOW_MS)


def test_both_ends_agree() -> None:
    server, client = OauthServer(verify), OauthClient(unsecured_token(CLAIMS))
    assert server.evaluate(client.first()) == b""
    assert (server.user, server.lifetime_ms, server.by_token) == ("alice", 60_000, False)
    assert client.answer(b"") is None


def test_a_refused_client_confirms_and_fails() -> None:
    """The client is told that its token is invalid, and no more; the log says why."""
    server, client = OauthServer(verify), OauthClient(unsecured_token({**CLAIMS, "exp": NOW_S - 1}))
    challenge = server.evaluate(client.first())
    assert json.loads(challenge) == {"status": "invalid_token"}
    confirmed = client.answer(challenge)
    assert confirmed is not None
    with pytest.raises(AuthenticationFailed, match="expired") as failed:
        server.evaluate(confirmed)
    assert failed.value.told == challenge.decode()
    assert server.user is None


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"sub": None}, "names no principal"),
        ({"sub": "  "}, "names no principal"),
        ({"sub": 7}, "names no principal"),
        ({"exp": None}, "no end"),
        ({"exp": True}, "no time"),
        ({"exp": "soon"}, "no time"),
        ({"exp": 1e300}, "no time"),
        ({"exp": NOW_S}, "expired"),
        ({"iat": NOW_S + 1}, "future"),
    ],
)
def test_claims_that_are_not_enough(claims: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason):
        verify(unsecured_token({**CLAIMS, **claims}))


def test_rules_of_the_listener_hold() -> None:
    late = unsecured_token({**CLAIMS, "exp": NOW_S - 1, "name": "bob", "scp": "read write"})
    rules = Unsecured("name", "scp", frozenset({"read"}), 2_000)
    assert verify(late, rules).user == "bob"
    with pytest.raises(InvalidToken) as refused:
        verify(late, rules._replace(required_scope=frozenset({"read", "admin"})))
    assert refused.value.status == "insufficient_scope"


def test_a_login_module_makes_the_token_that_it_describes() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginListClaim_scope": "|a|b",
        "unsecuredLoginNumberClaim_level": "2.5",
        "unsecuredLoginLifetimeSeconds": "10",
    }
    token = unsecured_login(options, NOW_S)
    assert verify(token, Unsecured(required_scope=frozenset("ab"))) == Shown("alice", 10_000)
    with pytest.raises(ValueError, match="unsecuredLoginStringClaim_sub"):
        unsecured_login({}, NOW_S)


def test_what_is_no_token_is_not_sent() -> None:
    with pytest.raises(ValueError, match="characters"):
        OauthClient("a\x01auth=Bearer b")


@given(st.binary(max_size=200))
def test_garbage_is_refused_in_the_mechanisms_words(data: bytes) -> None:
    with pytest.raises((SaslError, InvalidCredentials)):
        OauthServer(verify).evaluate(data)


@given(st.text(alphabet="abcAB01-_.", max_size=80))
def test_tokens_of_garbage_are_invalid(token: str) -> None:
    with pytest.raises(InvalidToken):
        verify(token)
