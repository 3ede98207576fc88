"""SCRAM users that a cluster begins with, as the setting security.initial.users names them: no password is in it.

    {"id": "6f1c...", "users": {"admin": {"SCRAM-SHA-512": "salt=...,stored_key=...,server_key=...,iterations=8192"}}}

A cluster takes each list once: its id is remembered in the metadata store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from tidelog.model.values import value
from tidelog.security.scram import MECHANISMS, ScramCredential

_ID: Final = re.compile(r"[0-9a-zA-Z_-]{1,100}")


class InvalidInitialUsers(ValueError):
    """The setting cannot be read; the text says why and shows no credential."""


@value
class InitialUsers:
    """One list of users."""

    id: str
    """Tells lists apart; part of a node's name."""
    users: Mapping[str, Mapping[str, ScramCredential]] = field(repr=False)
    """[user][mechanism] -> credential"""

    def encode(self) -> str:
        """As the setting has it, on one line."""
        users = {
            user: {mechanism: credential.encode() for mechanism, credential in credentials.items()}
            for user, credentials in self.users.items()
        }
        return json.dumps({"id": self.id, "users": users}, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> InitialUsers:
        """InvalidInitialUsers."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidInitialUsers("it is no JSON") from None
        if not isinstance(content, dict) or content.keys() != {"id", "users"}:
            raise InvalidInitialUsers('it is not {"id": ..., "users": ...}')
        if not isinstance(content["id"], str) or not _ID.fullmatch(content["id"]):
            raise InvalidInitialUsers("its id is no text of letters, digits, - and _")
        if not isinstance(content["users"], dict):
            raise InvalidInitialUsers("its users are no JSON object")
        return cls(content["id"], {user: _credentials(user, found) for user, found in content["users"].items()})


def _credentials(user: str, found: object) -> dict[str, ScramCredential]:
    if not user or not isinstance(found, dict) or not found:
        raise InvalidInitialUsers(f"user {user!r} has no credentials")
    credentials = {}
    for mechanism, text in found.items():
        if mechanism not in MECHANISMS:
            raise InvalidInitialUsers(f"user {user!r}: {mechanism} is none of {', '.join(MECHANISMS)}")
        try:
            credentials[mechanism] = ScramCredential.decode(str(text))
        except ValueError as error:
            raise InvalidInitialUsers(f"user {user!r}: {error}") from None
    return credentials
