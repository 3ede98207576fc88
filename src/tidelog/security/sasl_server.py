"""The broker's end of SASL on one connection, as a state machine over whole frames. Pure: bytes in, a `Step` out.

    ApiVersions --> SaslHandshake --> SaslAuthenticate, until the mechanism is content --> open: requests are handled
     (optional)          |                                                                  |
                         +-- v0: bare tokens instead, each with its size                    +--> SaslHandshake again

As Kafka: what belongs to no state of this ends the connection at once, or is told ILLEGAL_SASL_STATE once a mechanism
was chosen. A failed authentication is answered when the connection ends, a while later, so that guessing is slow.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple, cast

from tidelog.model.errors import ErrorCode
from tidelog.protocol import apis, codec, framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.client_software import invalid_software
from tidelog.protocol.errors import ProtocolError
from tidelog.security.mechanisms import (
    AuthenticationFailed,
    InvalidCredentials,
    SaslError,
    ServerMechanism,
)

HANDSHAKE_VERSION_MAX: Final = 1
BARE_TOKENS_VERSION: Final = 0
"""Of SaslHandshake: tokens without Kafka's headers follow."""
AUTHENTICATE_VERSION_MAX: Final = 2
API_VERSIONS_VERSION_MAX: Final = 4
REAUTHENTICATION_INTERVAL_MS: Final = 1_000
"""Between two beginnings of re-authentication; one that comes sooner is told ILLEGAL_SASL_STATE."""

_SIZE: Final = struct.Struct(">i")
_KEY: Final = struct.Struct(">h")
_SASL_HANDSHAKE: Final = int(ApiKey.SASL_HANDSHAKE)


class Ending(Enum):
    """Whether and when the connection ends."""

    NOT = auto()
    AT_ONCE = auto()
    DELAYED = auto()
    """After connection.failed.authentication.delay.ms; an answer goes out just before."""


class Step(NamedTuple):
    """What one frame leads to."""

    answer: bytes | None = None
    """A whole frame with its size."""
    ending: Ending = Ending.NOT
    reason: str = ""
    """Why the connection ends: for the log."""
    for_handler: bool = False
    """The request is answered by its own handler (ApiVersions)."""
    is_illegal: bool = False
    """The request is answered as its API answers the error ILLEGAL_SASL_STATE."""


class _State(Enum):
    FIRST_REQUEST = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    """SaslAuthenticate requests are due."""
    BARE_TOKENS = auto()
    OTHER_MECHANISM = auto()
    """A re-authentication has named another mechanism than the first one: its first token ends the connection."""
    OPEN = auto()
    FAILED = auto()


class SaslServer:
    """One connection's authentication, and what it allows from then on."""

    def __init__(
        self,
        enabled: Sequence[str],
        new_mechanism: Callable[[str], ServerMechanism],
        max_reauth_ms: Callable[[str], int],
    ) -> None:
        """`enabled` are mechanisms; `max_reauth_ms(mechanism)` is how long a session may last; 0: it does not end."""
        self._enabled = tuple(enabled)
        self._new_mechanism = new_mechanism
        self._max_reauth_ms = max_reauth_ms
        self._state = _State.FIRST_REQUEST
        self._mechanism: ServerMechanism | None = None
        self._reauthenticated_ms: int | None = None
        self.mechanism = ""
        """The name of the one that the connection uses."""
        self.user: str | None = None
        """The client's principal; None until that is proven."""
        self.by_token = False
        """Whether that was proven by a delegation token."""
        self.session_end_ms: int | None = None
        """Monotonic time from which on requests are refused; None: never."""

    @property
    def is_open(self) -> bool:
        """Whether requests are handled now."""
        return self._state is _State.OPEN

    def begins_again(self, frame: memoryview, now_ms: int) -> bool:
        """Whether a request on an open connection begins a re-authentication, which `receive` is to be given."""
        if self.session_end_ms is None or _KEY.unpack_from(frame)[0] != _SASL_HANDSHAKE:
            return False
        last_ms = self._reauthenticated_ms
        if last_ms is not None and now_ms - last_ms < REAUTHENTICATION_INTERVAL_MS:
            return False
        self._reauthenticated_ms = now_ms
        self._state = _State.HANDSHAKE
        return True

    def receive(self, frame: memoryview, now_ms: int) -> Step:
        """Takes one frame, without its size."""
        match self._state:
            case _State.BARE_TOKENS:
                return self._bare_token(bytes(frame), now_ms)
            case _State.OTHER_MECHANISM:
                return self._end("re-authentication names another SASL mechanism than the connection began with")
            case _State.FAILED | _State.OPEN:
                return self._fail_at_once("a request after authentication had failed")
        try:
            header, position = framing.decode_request_header(frame)
        except ProtocolError as error:
            return self._fail_at_once(f"no SASL request: {error}")
        body = frame[position:]
        if self._state is _State.TOKENS:
            return self._in_tokens(header, body, now_ms)
        if self._state is _State.FIRST_REQUEST and header.request_api_key == ApiKey.API_VERSIONS:
            return self._api_versions(header, body)
        if header.request_api_key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(header, body)
        return self._fail_at_once(f"{_name(header)} before authentication")

    # Requests.

    def _api_versions(self, header: messages.RequestHeader, body: memoryview) -> Step:
        version = header.request_api_version
        if version <= API_VERSIONS_VERSION_MAX:
            request = _decode(ApiKey.API_VERSIONS, version, body)
            if request is None:
                return self._fail_at_once("malformed ApiVersions")
            if invalid_software(request, version) is None:
                self._state = _State.HANDSHAKE
        # What the handler refuses may be asked again in another version.
        return Step(for_handler=True)

    def _handshake(self, header: messages.RequestHeader, body: memoryview) -> Step:
        version = header.request_api_version
        if not 0 <= version <= HANDSHAKE_VERSION_MAX:
            return self._fail_at_once(f"SaslHandshake version {version} is not served")
        request = _decode(ApiKey.SASL_HANDSHAKE, version, body)
        if request is None:
            return self._fail_at_once("malformed SaslHandshake")
        known = request.mechanism in self._enabled
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        response = messages.SaslHandshakeResponse(error_code=code, mechanisms=list(self._enabled))
        answer = _encode(ApiKey.SASL_HANDSHAKE, header, response)
        if not known:
            # The client is not authenticated, and may ask for anything: its text is cut.
            return self._end(f"SASL mechanism {request.mechanism[:40]!r} is not enabled", answer)
        if self.user is not None and request.mechanism != self.mechanism:
            self._state = _State.OTHER_MECHANISM
            return Step(answer)
        self.mechanism = request.mechanism
        self._mechanism = self._new_mechanism(request.mechanism)
        self._state = _State.BARE_TOKENS if version == BARE_TOKENS_VERSION else _State.TOKENS
        return Step(answer)

    def _in_tokens(self, header: messages.RequestHeader, body: memoryview, now_ms: int) -> Step:
        version = header.request_api_version
        if header.request_api_key != ApiKey.SASL_AUTHENTICATE:
            self._state = _State.FAILED
            reason = f"{_name(header)} where SaslAuthenticate is due"
            return Step(ending=Ending.DELAYED, reason=reason, is_illegal=True)
        if not 0 <= version <= AUTHENTICATE_VERSION_MAX:
            return self._fail_at_once(f"SaslAuthenticate version {version} is not served")
        request = _decode(ApiKey.SASL_AUTHENTICATE, version, body)
        if request is None:
            return self._fail_at_once("malformed SaslAuthenticate")
        try:
            token = self._evaluate(bytes(request.auth_bytes))
            lifetime_ms = self._complete(now_ms)
        except AuthenticationFailed as error:
            return self._end(str(error), self._refusal(header, error.told))
        except InvalidCredentials as error:
            told = (
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                f"{self.mechanism}"
            )
            return self._end(str(error), self._refusal(header, told))
        except SaslError as error:
            return self._fail_at_once(str(error))
        response = messages.SaslAuthenticateResponse(
            error_message="", auth_bytes=token, session_lifetime_ms=lifetime_ms
        )
        return Step(_encode(ApiKey.SASL_AUTHENTICATE, header, response))

    def _bare_token(self, token: bytes, now_ms: int) -> Step:
        try:
            answer = self._evaluate(token)
            self._complete(now_ms)
        except AuthenticationFailed as error:
            return self._end(str(error))
        except SaslError as error:
            return self._fail_at_once(str(error))
        return Step(_SIZE.pack(len(answer)) + answer)

    # Outcomes.

    def _evaluate(self, token: bytes) -> bytes:
        assert self._mechanism is not None
        return self._mechanism.evaluate(token)

    def _complete(self, now_ms: int) -> int:
        """Opens the connection where the mechanism is content; the session's lifetime, milliseconds, 0: no end."""
        assert self._mechanism is not None
        user = self._mechanism.user
        if user is None:
            return 0
        if self.user not in (None, user):
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from User.{self.user}: User.{user}"
            )
        self.user, self.by_token = user, self._mechanism.by_token
        # What was shown may end before the session would, also where sessions have no end.
        ends_ms = [self._max_reauth_ms(self.mechanism) or None, self._mechanism.lifetime_ms]
        lifetime_ms = min((max(end_ms, 0) for end_ms in ends_ms if end_ms is not None), default=None)
        self._mechanism = None
        self._state = _State.OPEN
        self.session_end_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        return lifetime_ms or 0

    def _refusal(self, header: messages.RequestHeader, told: str) -> bytes:
        response = messages.SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=told, auth_bytes=b""
        )
        return _encode(ApiKey.SASL_AUTHENTICATE, header, response)

    def _end(self, reason: str, answer: bytes | None = None) -> Step:
        self._state = _State.FAILED
        return Step(answer, Ending.DELAYED, reason)

    def _fail_at_once(self, reason: str) -> Step:
        self._state = _State.FAILED
        return Step(None, Ending.AT_ONCE, reason)


def _decode(key: ApiKey, version: int, body: memoryview) -> Any:
    """The request, None where it is malformed."""
    try:
        return codec.decode(messages.request_class(key), version, body)[0]
    except ProtocolError:
        return None


def _encode(key: ApiKey, header: messages.RequestHeader, response: messages.Message) -> bytes:
    chunks = framing.encode_response(key, header.request_api_version, header.correlation_id, response)
    return b"".join(cast("list[bytes]", chunks))


def _name(header: messages.RequestHeader) -> str:
    return f"{apis.name(ApiKey(header.request_api_key))} version {header.request_api_version}"
