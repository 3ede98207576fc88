"""One connection's conversation, as bytes: versions negotiated, requests numbered, answers paired with them. No I/O.

A connection opens with ApiVersions. A broker too old for the version we ask with answers in version 0 with
UNSUPPORTED_VERSION and its ranges, and is then asked again in one it has. From then on each request goes out in the
highest version that both sides know. Brokers answer in order, but only the correlation id is trusted.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any, Final

import tidelog
from tidelog.client.errors import AuthenticationError, InvalidRequest, InvalidResponse, UnsupportedByBroker
from tidelog.client.throttles import throttle_ms
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.ports.disk import Bytes
from tidelog.protocol import apis, framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.errors import InvalidMessage, ProtocolError
from tidelog.security.mechanisms import SaslError
from tidelog.security.sasl_client import SaslClient

FRAME_SIZE_MAX: Final = 256 << 20
"""Bytes. A Fetch response has at most fetch.max.bytes (50 MiB by default) and one batch: more is no Kafka."""

SIZE_PREFIX: Final = 4
SASL_HANDSHAKE_VERSION: Final = 1
SESSION_SHARE: Final = 0.85
"""Of the time for which a broker serves an authentication, after which a connection makes way for a new one."""
_RESPONSE_HEADER_MIN: Final = 4
_CORRELATION_ID: Final = struct.Struct(">i")
_CORRELATION_ID_AND_ERROR: Final = struct.Struct(">ih")


@dataclasses.dataclass(frozen=True, slots=True)
class ByVersion:
    """A request whose fields depend on the version that is settled with the broker; `build` makes it for one.

    `at_most` keeps it below versions that mean something else.
    """

    key: ApiKey
    build: Callable[[int], Any]
    at_most: int | None = None


class Exchange:
    """The state of one connection's conversation. `peer` names the broker in errors."""

    def __init__(self, client_id: str, peer: str, log_in: SaslClient | None = None) -> None:
        """`log_in` is the authentication that follows the versions; None where there is none."""
        self.client_id = client_id
        self.peer = peer
        self.versions: dict[int, tuple[int, int]] = {}
        """What the broker serves, [api key] -> (lowest, highest); empty until the answer to `hello`."""
        self.features: dict[str, int] = {}
        """What the cluster has agreed on, [feature] -> level (KIP-584); none from brokers that don't know the idea."""
        self.throttle_ms = 0
        """For how long the answer that was decoded last asks for no further request."""
        self._awaited: dict[int, tuple[ApiKey, int]] = {}
        self._last_id = 0
        self._log_in = log_in
        self._authenticating = False
        self.session_lifetime_ms = 0
        """How long the broker serves this connection once it has authenticated; 0: for ever."""

    @property
    def awaited(self) -> int:
        """Requests that have no answer yet."""
        return len(self._awaited)

    def hello(self) -> bytes:
        """The bytes to open with."""
        return self._hello(apis.versions(ApiKey.API_VERSIONS).highest)

    def hello_answered(self, frame: bytes | bytearray | memoryview) -> bytes | None:
        """Takes the answer to `hello`, or to what this returned before: what to send next, or None when the versions
        are settled, and the client is authenticated. AuthenticationError."""
        if self._authenticating:
            return self._authenticate(self.decode(frame)[1])
        if len(frame) < _CORRELATION_ID_AND_ERROR.size:
            raise self._invalid(f"the answer to ApiVersions has {len(frame)} bytes")
        correlation_id, code = _CORRELATION_ID_AND_ERROR.unpack_from(frame)
        asked = self._awaited.get(correlation_id)
        if asked is not None and code == ErrorCode.UNSUPPORTED_VERSION and asked[1] > 0:
            self._awaited[correlation_id] = (ApiKey.API_VERSIONS, 0)
            _, response = self.decode(frame)
            served = {entry.api_key: entry.max_version for entry in response.api_keys}
            return self._hello(max(0, min(asked[1] - 1, served.get(ApiKey.API_VERSIONS, 0))))
        _, response = self.decode(frame)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(error_code(response.error_code), f"{self.peer} refuses ApiVersions")
        self.versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
        self.features = {entry.name: entry.max_version_level for entry in response.finalized_features}
        if self._log_in is None:
            return None
        self._authenticating = True
        return b"".join(self._encode(ApiKey.SASL_HANDSHAKE, SASL_HANDSHAKE_VERSION, self._log_in.first())[1])

    def _authenticate(self, answer: Any) -> bytes | None:
        assert self._log_in is not None
        try:
            message = self._log_in.answered(answer)
        except SaslError as error:
            raise AuthenticationError(f"{self.peer}: {error}") from error
        if message is None:
            self.session_lifetime_ms = self._log_in.session_lifetime_ms
            self._log_in = None
            return None
        return b"".join(self._encode(ApiKey.SASL_AUTHENTICATE, self.version_for(ApiKey.SASL_AUTHENTICATE), message)[1])

    def _hello(self, version: int) -> bytes:
        request = messages.ApiVersionsRequest(
            client_software_name="tidelog", client_software_version=tidelog.__version__
        )
        return b"".join(self._encode(ApiKey.API_VERSIONS, version, request)[1])

    def serves(self, key: ApiKey) -> bool:
        """Whether some version of an API is common to both sides."""
        served = self.versions.get(key)
        ours = apis.versions(key)
        return served is not None and max(served[0], ours.lowest) <= min(served[1], ours.highest)

    def version_for(self, key: ApiKey, at_least: int = 0, at_most: int | None = None) -> int:
        """The highest common version of an API; `UnsupportedByBroker` where there is none within these bounds."""
        served = self.versions.get(key)
        if served is None:
            raise UnsupportedByBroker(f"{self.peer} does not serve {apis.name(key)}")
        ours = apis.versions(key)
        ours_highest = ours.highest if at_most is None else min(ours.highest, at_most)
        lowest, highest = max(served[0], ours.lowest, at_least), min(served[1], ours_highest)
        if lowest > highest:
            raise UnsupportedByBroker(
                f"{self.peer} serves {apis.name(key)} in versions {served[0]} to {served[1]}; "
                f"this needs one of {max(ours.lowest, at_least)} to {ours_highest}"
            )
        return highest

    def encode(self, message: Any, version: int | None = None) -> tuple[int, bytes, bool]:
        """A request's correlation id, its bytes with the size before them, and whether an answer will come.

        Only a produce request with acks=0 has none.
        """
        correlation_id, chunks, answered = self.encode_chunks(message, version)
        return correlation_id, b"".join(chunks), answered

    def encode_chunks(self, message: Any, version: int | None = None) -> tuple[int, list[Bytes], bool]:
        """The same with the request's bytes in pieces, its records among them uncopied."""
        by_version = isinstance(message, ByVersion)
        key = message.key if by_version else message.API_KEY
        if version is None:
            version = self.version_for(key, at_most=message.at_most if by_version else None)
        return self._encode(key, version, message.build(version) if by_version else message)

    def _encode(self, key: ApiKey, version: int, message: Any) -> tuple[int, list[Bytes], bool]:
        correlation_id = self._last_id = (self._last_id + 1) & 0x7FFFFFFF
        try:
            chunks = framing.request_chunks(key, version, correlation_id, self.client_id, message)
        except InvalidMessage as error:
            raise InvalidRequest(str(error)) from error
        answered = key is not ApiKey.PRODUCE or message.acks != 0
        if answered:
            self._awaited[correlation_id] = (key, version)
        return correlation_id, chunks, answered

    def frame_size(self, prefix: bytes | bytearray | memoryview) -> int:
        """The length of the frame that follows its size prefix; `InvalidResponse` where none can follow."""
        (size,) = _CORRELATION_ID.unpack_from(prefix)
        if _RESPONSE_HEADER_MIN <= size <= FRAME_SIZE_MAX:
            return int(size)
        raise self._invalid(f"a frame of {size} bytes{_guess(bytes(prefix[:SIZE_PREFIX]))}")

    def decode(self, frame: bytes | bytearray | memoryview) -> tuple[int, Any]:
        """The correlation id and the message of a response frame (without its size)."""
        if len(frame) < _RESPONSE_HEADER_MIN:
            raise self._invalid(f"a frame of {len(frame)} bytes")
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        asked = self._awaited.pop(correlation_id, None)
        if asked is None:
            raise self._invalid(f"an answer to request {correlation_id}, which was not asked")
        key, version = asked
        try:
            correlation_id, message = framing.decode_response(key, version, frame)
        except ProtocolError as error:
            raise self._invalid(f"{apis.name(key)} response, version {version}: {error}") from error
        self.throttle_ms = throttle_ms(key, version, message)
        return correlation_id, message

    def _invalid(self, what: str) -> InvalidResponse:
        return InvalidResponse(f"{self.peer} does not speak Kafka's protocol: {what}")


def _guess(prefix: bytes) -> str:
    if prefix.startswith(b"HTTP"):
        return " (it is a web server)"
    if prefix[:2] == b"\x15\x03":
        return " (it is a TLS listener: use one for PLAINTEXT)"
    return ""
