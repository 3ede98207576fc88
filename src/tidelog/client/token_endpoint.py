"""Bearer tokens that an issuer's endpoint gives to a client that names itself (RFC 6749, section 4.4)."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from tidelog.client.errors import UnsupportedSecurity
from tidelog.ports.tls import InvalidTls, TlsMaterial, client_context
from tidelog.security.oauthbearer import MECHANISM, OauthClient, lifetime_of
from tidelog.security.sasl_client import SaslClient

logger: Final = logging.getLogger(__name__)

REFRESH_FACTOR: Final = 0.8
"""Of a token's lifetime after which a new one is fetched (sasl.login.refresh.window.factor)."""
REST_S: Final = 10.0
"""Until the endpoint is asked again where it gave no token and the former one is good for longer."""
ANSWER_SIZE_MAX: Final = 1 << 20
_REASON_LENGTH_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where tokens are issued, and to whom. Its `repr` has no secret."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    encodes_header: bool = False
    timeout_s: float = 10.0
    backoff_s: float = 0.1
    """Between two tries; doubled each time."""
    tries_s_max: float = 10.0
    """No further try begins after so long."""
    trusted: str | None = field(default=None, repr=False)
    """PEM of the CAs that the endpoint's certificate may come from; None: the system's."""


def _elapsed_s() -> float:
    """Seconds since some moment, whatever the wall clock is set to; the time that the machine slept is among them where
    the system counts it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class IssuedTokens:
    """Bearer tokens of an endpoint: a `Login`. One is used for all connections until most of its lifetime is over."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        now: Callable[[], float] = _elapsed_s,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`now` gives seconds of a clock that cannot be set, `wall` those of the wall clock, as tokens name their ends.
        UnsupportedSecurity where what is trusted cannot be used."""
        self._endpoint = endpoint
        self._now = now
        self._wall = wall
        self._sleep = sleep
        self._lock = threading.Lock()
        self._token = ""
        self._fresh_until = self._good_until = now()
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if endpoint.trusted is not None:
            try:
                tls = client_context(TlsMaterial(trusted=endpoint.trusted), check_host=True)
            except InvalidTls as error:
                raise UnsupportedSecurity(f"TLS to {endpoint.url}: {error}") from error
            handlers.append(urllib.request.HTTPSHandler(context=tls))
        self._opener = urllib.request.build_opener(*handlers)

    def __repr__(self) -> str:
        return f"IssuedTokens({self._endpoint!r})"

    @property
    def is_ready(self) -> bool:
        """Whether `begin` needs not ask the endpoint."""
        return self._now() < self._fresh_until

    def prepare(self) -> None:
        """Asks the endpoint for a token if that is due. Blocks. OSError, ValueError where none is to be had."""
        with self._lock:
            if self.is_ready:
                return
            asked_at, asked_at_wall = self._now(), self._wall()
            try:
                token, expires_in_s = self._patiently()
                OauthClient(token)  # What cannot be one is not kept.
            except (OSError, ValueError) as error:
                if self._now() >= self._good_until:
                    raise
                self._fresh_until = min(self._now() + REST_S, self._good_until)
                logger.warning("bearer_token_not_renewed: url=%s error=%s", self._endpoint.url, error)
                return
            lifetime_s = lifetime_of(token, asked_at_wall)
            if lifetime_s is None:
                lifetime_s = expires_in_s or 0.0
            self._token = token
            self._fresh_until = asked_at + REFRESH_FACTOR * lifetime_s
            self._good_until = asked_at + lifetime_s
            logger.info("bearer_token_fetched: url=%s lifetime_s=%d", self._endpoint.url, lifetime_s)

    def begin(self, nonce: str) -> SaslClient:
        """One authentication. OSError, ValueError where there is no token to be had."""
        self.prepare()
        return SaslClient(MECHANISM, OauthClient(self._token))

    def _patiently(self) -> tuple[str, float | None]:
        """As `_fetch`, again after failures that may pass."""
        endpoint = self._endpoint
        last_try, pause_s = self._now() + endpoint.tries_s_max, endpoint.backoff_s
        while True:
            try:
                return self._fetch()
            except urllib.error.HTTPError as error:
                failure = ConnectionError(f"{endpoint.url} answers {error.code}: {_reason_of(error)}")
                if error.code < 500 and error.code not in (408, 429):
                    raise failure from None
            except (OSError, http.client.HTTPException) as error:
                # HTTPException: what answers speaks no HTTP, or its answer broke off; repr: many have no words.
                reason = getattr(error, "reason", error if isinstance(error, OSError) else repr(error))
                failure = ConnectionError(f"{endpoint.url} cannot be asked: {reason}")
            if self._now() + pause_s > last_try:
                raise failure from None
            self._sleep(pause_s)
            pause_s *= 2

    def _fetch(self) -> tuple[str, float | None]:
        """A token, and its lifetime in seconds if the endpoint says that."""
        endpoint = self._endpoint
        form = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
        client = [endpoint.client_id, endpoint.client_secret]
        if endpoint.encodes_header:
            client = [quote(part, safe="") for part in client]
        request = urllib.request.Request(
            endpoint.url,
            urlencode(form).encode(),
            {
                "Authorization": "Basic " + base64.b64encode(":".join(client).encode()).decode(),
                "Accept": "application/json",
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )
        with self._opener.open(request, timeout=endpoint.timeout_s) as answer:
            data = answer.read(ANSWER_SIZE_MAX + 1)
        if len(data) > ANSWER_SIZE_MAX:
            raise ValueError(f"{endpoint.url} answers with more than {ANSWER_SIZE_MAX} bytes")
        return _token_in(data, endpoint.url)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The secret is for the endpoint alone."""

    def redirect_request(self, *arguments: Any, **others: Any) -> None:
        return None


def _token_in(data: bytes, url: str) -> tuple[str, float | None]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError(f"{url} answers with what is no JSON") from None
    if not isinstance(content, dict):
        raise ValueError(f"{url} answers with JSON that is no object")
    token = content.get("access_token") or content.get("id_token")
    if not isinstance(token, str) or not token.strip():
        raise ValueError(f"{url} answers without access_token")
    seconds = content.get("expires_in")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        return token.strip(), None
    return token.strip(), float(seconds)


def _reason_of(error: urllib.error.HTTPError) -> str:
    """What an endpoint says of a refusal (RFC 6749, section 5.2)."""
    try:
        with error:
            content = json.loads(error.read(ANSWER_SIZE_MAX))
        said = [content[name] for name in ("error", "error_description") if isinstance(content.get(name), str)]
    except (OSError, http.client.HTTPException, ValueError, AttributeError, RecursionError):
        said = []
    text = ": ".join(said) or str(error.reason)
    return ascii(text[:_REASON_LENGTH_MAX])[1:-1]
