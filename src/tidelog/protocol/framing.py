"""Frames: a size, a header, a message. What stands on a connection, in either direction."""

from __future__ import annotations

from struct import Struct, error
from typing import Any, Final

from tidelog.ports.disk import Bytes, Chunk, chunks_size
from tidelog.protocol import codec, messages
from tidelog.protocol.apis import ApiKey, request_header_version, response_header_version
from tidelog.protocol.errors import InvalidMessage, ProtocolError
from tidelog.protocol.wire import Buffer, read_unknown_tags

FRAME_SIZE_MAX: Final = 0x7FFFFFFF
"""Bytes after the size, as far as the protocol goes; brokers refuse more than socket.request.max.bytes."""
REQUEST_SIZE_MIN: Final = 10
"""Bytes of the smallest request that is served: key, version, correlation id, length of the client id."""

_REQUEST: Final = Struct(">ihhih")
_RESPONSE: Final = Struct(">ii")
_RESPONSE_FLEXIBLE: Final = Struct(">iix")
_HEADER_START: Final = Struct(">hhi")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


def encode_request(
    key: ApiKey, version: int, correlation_id: int, client_id: str | None, message: messages.Message
) -> bytes:
    """A whole request with its size."""
    return b"".join(request_chunks(key, version, correlation_id, client_id, message))


def request_chunks(
    key: ApiKey, version: int, correlation_id: int, client_id: str | None, message: messages.Message
) -> list[Bytes]:
    """The same in pieces, the first of which begins with the size; records are among them uncopied.

    The client id keeps its 16-bit length in flexible headers too (KIP-482).
    """
    body = codec.encode_chunks(message, version)
    name = b"" if client_id is None else client_id.encode()
    header_version = request_header_version(key, version)
    size = 8 + sum(map(len, body))
    try:
        if header_version == 0:
            header = _REQUEST.pack(size, key, version, correlation_id, 0)[:12]
        else:
            flexible = header_version == 2
            size += 2 + len(name) + flexible
            length = -1 if client_id is None else len(name)
            header = _REQUEST.pack(size, key, version, correlation_id, length) + name + b"\0" * flexible
    except error as problem:
        raise InvalidMessage(f"the header of {key.name} version {version} cannot be encoded: {problem}") from problem
    return [header, *body]  # type: ignore[list-item]  # Requests hold no file ranges.


def encode_response(key: ApiKey, version: int, correlation_id: int, message: messages.Message) -> list[Chunk]:
    """A whole response in chunks, the first of which begins with the size."""
    chunks = codec.encode_chunks(message, version)
    flexible = response_header_version(key, version)
    header = (_RESPONSE_FLEXIBLE if flexible else _RESPONSE).pack(4 + flexible + chunks_size(chunks), correlation_id)
    return join_small([header, *chunks])


def join_small(chunks: list[Chunk]) -> list[Chunk]:
    """The same bytes in fewer chunks: what stands between large or file-backed ones is joined."""
    joined: list[Chunk] = []
    small: list[Any] = []
    for chunk in chunks:
        if type(chunk) is bytes and len(chunk) < _LARGE:
            small.append(chunk)
            continue
        if small:
            joined.append(b"".join(small))
            small.clear()
        if len(chunk):
            joined.append(chunk)
    if small:
        joined.append(b"".join(small))
    return joined


_LARGE: Final = 4096
"""Bytes from which a chunk is cheaper to hand over than to copy."""


def decode_request_header(data: Buffer) -> tuple[messages.RequestHeader, int]:
    """The header of a request frame (without its size), and where the body begins.

    UnsupportedVersion when the key is unknown. The version is not checked: a broker answers ApiVersions of any version.
    """
    try:
        key, version, correlation_id = _HEADER_START.unpack_from(data, 0)
        position = _HEADER_START.size
        header = messages.RequestHeader(request_api_key=key, request_api_version=version, correlation_id=correlation_id)
        header_version = request_header_version(key, version)
        if header_version == 0:
            return header, position
        (length,) = _INT16.unpack_from(data, position)
        position += 2
        if length < -1 or length > len(data) - position:
            raise ProtocolError(f"a client id of {length} bytes cannot be in the {len(data) - position} that remain")
        if length == -1:
            header.client_id = None
        else:
            header.client_id = str(data[position : position + length], "utf-8")
            position += length
        if header_version == 2:
            position += 1
            if count := data[position - 1]:
                header.unknown_tagged_fields, position = read_unknown_tags(data, position, len(data), count)
        return header, position
    except (error, IndexError) as problem:
        raise ProtocolError(f"a request of {len(data)} bytes ends within its header") from problem
    except UnicodeDecodeError as problem:
        raise ProtocolError("the client id is not UTF-8") from problem


def decode_response(key: ApiKey, version: int, frame: Buffer) -> tuple[int, Any]:
    """The correlation id and the message of a response frame (without its size), which must have nothing after it.

    A broker that lacks a version of ApiVersions answers in version 0: ask for that one then.
    """
    try:
        (correlation_id,) = _INT32.unpack_from(frame, 0)
        position = 4
        if response_header_version(key, version):
            position = 5
            if count := frame[4]:
                _, position = read_unknown_tags(frame, position, len(frame), count)
    except (error, IndexError) as problem:
        raise ProtocolError(f"a response of {len(frame)} bytes ends within its header") from problem
    message, end = codec.decode(messages.response_class(key), version, frame, position)
    if end != len(frame):
        raise ProtocolError(f"the response is followed by {len(frame) - end} bytes more")
    return correlation_id, message
