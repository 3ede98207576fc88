"""Messages to bytes and back, in any of their versions.

Decoders and encoders are compiled from the table when a version is first used. Produce requests and Fetch
responses have handwritten ones (`produce`, `fetch`): their records are not copied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tidelog.ports.disk import Chunk
from tidelog.protocol import fetch, produce
from tidelog.protocol.classes import Message
from tidelog.protocol.decoders import compile_decoder
from tidelog.protocol.encoders import compile_encoder
from tidelog.protocol.errors import InvalidMessage, ProtocolError, UnsupportedVersion
from tidelog.protocol.explain import explain
from tidelog.protocol.wire import Buffer

M = TypeVar("M", bound=Message)

_HANDWRITTEN_DECODERS: Final = {
    "ProduceRequest": produce.request_decoder,
    "FetchResponse": fetch.response_decoder,
}
_HANDWRITTEN_ENCODERS: Final = {
    "ProduceRequest": produce.request_encoder,
    "FetchResponse": fetch.response_encoder,
}
_ZERO_COPY: Final = frozenset(_HANDWRITTEN_DECODERS)
_MALFORMED: Final = (struct.error, IndexError, UnicodeDecodeError)
"""What a decoder meets at the end of the data, or in a string that isn't UTF-8."""
_UNENCODABLE: Final = (struct.error, TypeError, AttributeError, ValueError, IndexError)
"""What an encoder meets in a value that does not fit its field."""


def decode(cls: type[M], version: int, data: Buffer, offset: int = 0) -> tuple[M, int]:
    """The message that begins at `offset`, and the offset after it.

    Raises ProtocolError when the bytes are not such a message, UnsupportedVersion when the codec lacks the version.
    Records of Produce requests and Fetch responses are views of `data`; everything else is copied out of it.
    """
    decoder = cls.DECODERS.get(version)
    if decoder is None:
        decoder = _decoder(cls, version)
    try:
        if type(data) is bytes or cls.__name__ in _ZERO_COPY:
            return decoder(data, offset, len(data))
        message, end = decoder(bytes(data[offset:]), 0, len(data) - offset)
        return message, end + offset
    except _MALFORMED as error:
        raise ProtocolError(f"{cls.__name__} version {version}: {_reason(error)}") from error


def decode_exactly(cls: type[M], version: int, data: Buffer) -> M:
    """As `decode`, of a message that must fill `data`."""
    message, end = decode(cls, version, data)
    if end != len(data):
        raise ProtocolError(f"{cls.__name__} version {version} is followed by {len(data) - end} bytes more")
    return message


def encode_chunks(message: Message, version: int) -> list[Chunk]:
    """The message in pieces, so that records go on uncopied; file ranges in them stay what they are.

    Raises InvalidMessage when a value does not fit its field, or is set in a field that the version lacks.
    """
    chunks: list[Chunk] = []
    encoder = message.ENCODERS.get(version)
    if encoder is None:
        encoder = _encoder(type(message), version)
    try:
        encoder(message, chunks.append)
    except _UNENCODABLE as error:
        raise _invalid(message, version, error) from error
    return chunks


def encode(message: Message, version: int) -> bytes:
    """The message as bytes; as `encode_chunks`, but records may not hold file ranges."""
    chunks = encode_chunks(message, version)
    try:
        return b"".join(chunks)  # type: ignore[arg-type]  # A file range is the TypeError.
    except TypeError as error:
        raise _invalid(message, version, error) from error


def _decoder(cls: type[Message], version: int) -> Callable[[Any, int, int], tuple[Any, int]]:
    _check_version(cls, version)
    by_hand = _HANDWRITTEN_DECODERS.get(cls.__name__)
    decoder = by_hand(cls, version) if by_hand else compile_decoder(cls, version)
    cls.DECODERS[version] = decoder
    return decoder


def _encoder(cls: type[Message], version: int) -> Callable[[Any, Callable[[Any], object]], None]:
    _check_version(cls, version)
    by_hand = _HANDWRITTEN_ENCODERS.get(cls.__name__)
    encoder = by_hand(cls, version) if by_hand else compile_encoder(cls, version)
    cls.ENCODERS[version] = encoder
    return encoder


def _check_version(cls: type[Message], version: int) -> None:
    if not cls.LOWEST_VERSION <= version <= cls.HIGHEST_VERSION:
        raise UnsupportedVersion(
            f"{cls.__name__} has no version {version}: known are {cls.LOWEST_VERSION} to {cls.HIGHEST_VERSION}"
        )


def _reason(error: Exception) -> str:
    return "it holds a string that is not UTF-8" if isinstance(error, UnicodeDecodeError) else "it ends too early"


def _invalid(message: Message, version: int, error: Exception) -> InvalidMessage:
    reason = explain(message, version) or str(error)
    return InvalidMessage(f"{type(message).__name__} version {version} cannot be encoded: {reason}")
