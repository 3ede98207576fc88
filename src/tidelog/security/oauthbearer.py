"""OAUTHBEARER (RFC 7628), both ends: a client shows a token that another service has issued.

    n,,^Aauth=Bearer TOKEN^A^A      ->
                                    <-   nothing: the token is good; or {"status":"invalid_token"}
    ^A                              ->   the client has seen the error
                                    <-   the authentication fails

What a token is good for says a `Verifier`: by its signature, or, for trying things out, by what it claims of itself
(`verify_unsecured`): a JWT without a signature (RFC 7519, section 6), which any client can make.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from tidelog.security.mechanisms import AuthenticationFailed, InvalidCredentials, MalformedExchange

MECHANISM: Final = "OAUTHBEARER"
_KVSEP: Final = "\x01"
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01", re.ASCII
)
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_SECONDS_MAX: Final = 1 << 50
"""Of a token's times: what is later is no time."""


class InvalidToken(Exception):
    """The text is the reason, for the log; it has nothing of the token."""

    def __init__(self, reason: str, status: str = "invalid_token") -> None:
        super().__init__(reason)
        self.status = status
        """What the client is told."""


class Shown(NamedTuple):
    """What a good token says."""

    user: str
    lifetime_ms: int
    """For how long it is good."""


Verifier: TypeAlias = Callable[[str], Shown]
"""What a token says; InvalidToken."""


class OauthServer:
    """The server's end of one exchange: `mechanisms.ServerMechanism`."""

    by_token = False

    def __init__(self, verify: Verifier) -> None:
        self._verify = verify
        self._error: str | None = None
        """What the client was told, and is to confirm."""
        self._reason = ""
        self.user: str | None = None
        self.lifetime_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        if self._error is not None and token == _KVSEP.encode():
            raise AuthenticationFailed(self._error, f"its token is not accepted: {self._reason}")
        self._error = None
        match = _FIRST.fullmatch(token.decode("utf-8", "replace"))
        if match is None:
            raise InvalidCredentials("its first message is malformed")
        pairs = dict(pair.partition("=")[::2] for pair in match["pairs"].split(_KVSEP) if pair)
        auth = _AUTH.fullmatch(pairs.get("auth", ""))
        if auth is None:
            raise InvalidCredentials("its first message has no token")
        if auth["scheme"].lower() != "bearer":
            raise MalformedExchange("it shows something else than a bearer token")
        try:
            shown = self._verify(auth["token"])
        except InvalidToken as error:
            self._error, self._reason = json.dumps({"status": error.status}, separators=(",", ":")), str(error)
            return self._error.encode()
        authorization_id = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
        if authorization_id not in ("", shown.user):
            raise AuthenticationFailed(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({shown.user})"
            )
        self.user, self.lifetime_ms = shown.user, shown.lifetime_ms
        return b""


class OauthClient:
    """The client's end of one exchange: `mechanisms.ClientMechanism`."""

    complete = True

    def __init__(self, token: str) -> None:
        """ValueError where `token` cannot be a bearer token."""
        if _AUTH.fullmatch(f"Bearer {token}") is None:
            raise ValueError("what should be a bearer token has characters that none has")
        self._token = token

    def first(self) -> bytes:
        return f"n,,{_KVSEP}auth=Bearer {self._token}{_KVSEP}{_KVSEP}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        # What the broker does not accept it explains, and fails once the client has confirmed that.
        return _KVSEP.encode() if challenge else None


# Tokens without a signature.


class Unsecured(NamedTuple):
    """What is asked of a token without a signature; Kafka's options `unsecuredValidator...` of the login module."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: frozenset[str] = frozenset()
    clock_skew_ms: int = 0


def verify_unsecured(token: str, rules: Unsecured, now_ms: int) -> Shown:
    """What a token without a signature claims; `now_ms` by the wall clock. InvalidToken."""
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken("it is no JWT")
    header, claims = _json_of(parts[0]), _json_of(parts[1])
    if header.get("alg") != "none" or parts[2]:
        raise InvalidToken("it is signed, and the listener accepts tokens without a signature only")
    user = claims.get(rules.principal_claim)
    if not isinstance(user, str) or not user.strip():
        raise InvalidToken(f"its claim {rules.principal_claim} names no principal")
    expires_ms = _milliseconds(claims, "exp")
    if expires_ms is None:
        raise InvalidToken("it has no end (exp)")
    if now_ms - rules.clock_skew_ms >= expires_ms:
        raise InvalidToken("it has expired")
    issued_ms = _milliseconds(claims, "iat")
    if issued_ms is not None and issued_ms > now_ms + rules.clock_skew_ms:
        raise InvalidToken("it was issued in the future")
    missing = rules.required_scope - scope_of(claims.get(rules.scope_claim))
    if missing:
        raise InvalidToken(f"it lacks the scope {', '.join(sorted(missing))}", "insufficient_scope")
    return Shown(user, expires_ms - now_ms)


def unsecured_token(claims: Mapping[str, Any]) -> str:
    """A token without a signature."""
    return f"{_base64({'alg': 'none'})}.{_base64(claims)}."


def unsecured_login(options: Mapping[str, str], now_s: int) -> str:
    """The token that a login module's options `unsecuredLogin...` describe, as Kafka's makes it; ValueError."""
    claims: dict[str, Any] = {"iat": now_s, "exp": now_s + int(options.get("unsecuredLoginLifetimeSeconds", "3600"))}
    for name, value in options.items():
        kind, _, claim = name.partition("_")
        match kind:
            case "unsecuredLoginStringClaim":
                claims[claim] = value
            case "unsecuredLoginNumberClaim":
                claims[claim] = float(value)
            case "unsecuredLoginListClaim":
                claims[claim] = value[1:].split(value[0]) if value else []
    principal = options.get("unsecuredLoginPrincipalClaimName", "sub")
    if not isinstance(claims.get(principal), str):
        raise ValueError(f"the principal is not configured: set unsecuredLoginStringClaim_{principal}")
    return unsecured_token(claims)


def lifetime_of(token: str, now_s: float) -> float | None:
    """Seconds for which a token says that it is good, from `now_s` by the wall clock; None where it does not say that.

    No more than it was issued for: the clock may be behind. Nothing of it is verified: it is for the client that shows
    the token.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = _json_of(parts[1])
        expires_ms, issued_ms = _milliseconds(claims, "exp"), _milliseconds(claims, "iat")
    except InvalidToken:
        return None
    if expires_ms is None:
        return None
    return max(0.0, expires_ms / 1000 - max(now_s, (issued_ms or 0) / 1000))


def scope_of(claim: Any) -> frozenset[str]:
    """A scope as tokens have it: a list, or words with blanks between them."""
    words = claim.split() if isinstance(claim, str) else claim
    if not isinstance(words, list):
        return frozenset()
    return frozenset(word for word in words if isinstance(word, str))


def _base64(content: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content, separators=(",", ":")).encode()).decode().rstrip("=")


def _json_of(part: str) -> dict[str, Any]:
    try:
        content = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), altchars="-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise InvalidToken("it is no JWT: a part of it is no JSON") from None
    if not isinstance(content, dict):
        raise InvalidToken("it is no JWT: a part of it is no JSON object")
    return content


def _milliseconds(claims: Mapping[str, Any], name: str) -> int | None:
    """A time of the claims; None where there is none."""
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise InvalidToken(f"its claim {name} is no time")
    if abs(seconds) > _SECONDS_MAX:
        raise InvalidToken(f"its claim {name} is no time")
    return int(seconds * 1000)
