"""PLAIN (RFC 4616), both ends: user and password in clear text, for connections under TLS."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.security.mechanisms import AuthenticationFailed

MECHANISM: Final = "PLAIN"
_PARTS: Final = 3


class StaticUsers:
    """Users and passwords of a JAAS setting (`user_alice="secret"`)."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = {name: password.encode() for name, password in passwords.items()}

    def __call__(self, user: str, password: str) -> bool:
        """Whether that is the user's password, in a time that does not depend on how much of it is right."""
        known = self._passwords.get(user)
        # An unknown user costs what a known one costs.
        matches = hmac.compare_digest(known if known is not None else b"\0", password.encode())
        return known is not None and matches


class PlainServer:
    """The server's end of one exchange: `mechanisms.ServerMechanism`."""

    def __init__(self, verify: Callable[[str, str], bool]) -> None:
        """`verify(user, password)` says whether the password is right."""
        self._verify = verify
        self.user: str | None = None
        self.lifetime_ms: int | None = None
        self.by_token = False

    def evaluate(self, token: bytes) -> bytes:
        # More than four parts are not looked for.
        parts = token.decode("utf-8", "replace").split("\0")[: _PARTS + 1]
        if len(parts) != _PARTS:
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        if not self._verify(user, password):
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = user
        return b""


class PlainClient:
    """The client's end of one exchange: `mechanisms.ClientMechanism`."""

    complete = True

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def answer(self, challenge: bytes) -> bytes | None:
        return None
