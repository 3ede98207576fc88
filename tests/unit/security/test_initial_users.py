"""security.initial.users: what is written is read again, and what cannot be read is told of without its secrets."""

from __future__ import annotations

import json

import pytest

from tidelog.security.initial_users import InitialUsers, InvalidInitialUsers
from tidelog.security.scram import MECHANISMS, ScramCredential

CREDENTIAL = ScramCredential.of_password(MECHANISMS["SCRAM-SHA-512"], "secret", b"salt", 4096)


def test_read_as_written() -> None:
    """All users with all their credentials, on one line."""
    initial = InitialUsers("ab-1", {"alice": {"SCRAM-SHA-512": CREDENTIAL}, "bob": {"SCRAM-SHA-256": CREDENTIAL}})
    text = initial.encode()
    assert "\n" not in text
    assert InitialUsers.decode(text) == initial


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"id":"a"}',
        '{"id":"a/b","users":{}}',
        '{"id":7,"users":{}}',
        '{"id":"a","users":[]}',
        '{"id":"a","users":{"alice":{}}}',
        '{"id":"a","users":{"":{"SCRAM-SHA-512":"x"}}}',
        '{"id":"a","users":{"alice":{"PLAIN":"x"}}}',
        '{"id":"a","users":{"alice":{"SCRAM-SHA-512":"salt=TOPSECRET"}}}',
    ],
)
def test_what_cannot_be_read(text: str) -> None:
    """It is an error with a reason, in which no credential stands."""
    with pytest.raises(InvalidInitialUsers) as caught:
        InitialUsers.decode(text)
    assert str(caught.value)
    assert "TOPSECRET" not in str(caught.value)


def test_nothing_secret_in_its_repr() -> None:
    """Logs and tracebacks show the id alone."""
    initial = InitialUsers("ab", {"alice": {"SCRAM-SHA-512": CREDENTIAL}})
    assert json.loads(initial.encode())["users"]["alice"]["SCRAM-SHA-512"] not in repr(initial)
    assert "stored_key" not in repr(initial)
