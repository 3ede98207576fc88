"""The client's end of SASL on one connection: which request is next, and what its answer means. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.security.mechanisms import AuthenticationFailed, ClientMechanism
from tidelog.security.oauthbearer import MECHANISM as OAUTHBEARER
from tidelog.security.oauthbearer import OauthClient
from tidelog.security.plain import MECHANISM as PLAIN
from tidelog.security.plain import PlainClient
from tidelog.security.scram import MECHANISMS as SCRAM
from tidelog.security.scram import ScramClient

SUPPORTED = (PLAIN, *SCRAM)
"""Mechanisms that `Credentials` can be used with."""


class Login(Protocol):
    """What a client logs in with, again for each connection."""

    def begin(self, nonce: str) -> SaslClient:
        """One authentication; `nonce` is an unpredictable printable text. ValueError where there is nothing to show."""
        ...


class TokenSource:
    """Bearer tokens from elsewhere (OAUTHBEARER). Its `repr` shows no token."""

    __slots__ = ("_token",)

    def __init__(self, token: Callable[[], str]) -> None:
        """`token()` gives one that is good for some time; it is asked for each authentication."""
        self._token = token

    def __repr__(self) -> str:
        return f"TokenSource({OAUTHBEARER!r})"

    def begin(self, nonce: str) -> SaslClient:
        """One authentication. ValueError where that is no token, and what `token()` raises."""
        return SaslClient(OAUTHBEARER, OauthClient(self._token()))


class Credentials:
    """What a client shows: mechanism, user and password. Its `repr` leaves the password out."""

    __slots__ = ("_password", "by_token", "mechanism", "user")

    def __init__(self, mechanism: str, user: str, password: str, *, by_token: bool = False) -> None:
        """ValueError where the mechanism is not in SUPPORTED.

        `by_token`: `user` is the id of a delegation token, `password` its HMAC in base64; SCRAM only.
        """
        if mechanism not in SUPPORTED:
            raise ValueError(f"SASL mechanism {mechanism} is not supported: use one of {', '.join(SUPPORTED)}")
        self.mechanism = mechanism
        self.user = user
        self.by_token = by_token
        self._password = password

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism!r}, {self.user!r})"

    def begin(self, nonce: str) -> SaslClient:
        """One authentication; `nonce` is an unpredictable printable text."""
        mechanism: ClientMechanism
        if self.mechanism == PLAIN:
            mechanism = PlainClient(self.user, self._password)
        else:
            mechanism = ScramClient(SCRAM[self.mechanism], self.user, self._password, nonce, by_token=self.by_token)
        return SaslClient(self.mechanism, mechanism)


class SaslClient:
    """One authentication: `first`, then `answered` with each answer, until it returns None."""

    def __init__(self, name: str, mechanism: ClientMechanism) -> None:
        self._name = name
        self._mechanism = mechanism
        self._greeted = False
        self.session_lifetime_ms = 0
        """How long the broker serves this authentication; 0: for ever."""

    def first(self) -> messages.SaslHandshakeRequest:
        """The request to begin with, for version 1."""
        return messages.SaslHandshakeRequest(mechanism=self._name)

    def answered(self, response: Any) -> messages.SaslAuthenticateRequest | None:
        """The next request; None when the broker and this client are content. AuthenticationFailed."""
        if not self._greeted:
            self._greeted = True
            if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                offered = ", ".join(response.mechanisms)
                raise AuthenticationFailed(f"the broker does not offer SASL mechanism {self._name}, but {offered}")
            if response.error_code != ErrorCode.NONE:
                raise AuthenticationFailed(f"the broker refuses SaslHandshake with error {response.error_code}")
            return messages.SaslAuthenticateRequest(auth_bytes=self._mechanism.first())
        if response.error_code != ErrorCode.NONE:
            raise AuthenticationFailed(response.error_message or f"error {response.error_code}")
        self.session_lifetime_ms = max(getattr(response, "session_lifetime_ms", 0), 0)
        token = self._mechanism.answer(bytes(response.auth_bytes))
        if token is not None:
            return messages.SaslAuthenticateRequest(auth_bytes=token)
        if not self._mechanism.complete:
            raise AuthenticationFailed("the broker ends the exchange before it has proven that it knows the user")
        return None
