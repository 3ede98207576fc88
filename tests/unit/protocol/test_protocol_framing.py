"""Frames: sizes, headers and their oddities."""

from __future__ import annotations

import struct

import pytest

from tidelog.ports.disk import FileRange
from tidelog.protocol import codec, framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.errors import ProtocolError, UnsupportedVersion


@pytest.mark.parametrize(("key", "version"), [(ApiKey.METADATA, 1), (ApiKey.METADATA, 12), (ApiKey.API_VERSIONS, 3)])
@pytest.mark.parametrize("client_id", ["a client", "", None])
def test_a_request_frame_is_read_back(key: ApiKey, version: int, client_id: str | None) -> None:
    """Its size is that of all that follows; the body begins where the header says."""
    request = messages.request_class(key)()
    frame = framing.encode_request(key, version, 77, client_id, request)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    header, position = framing.decode_request_header(memoryview(frame)[4:])
    assert header == messages.RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=77, client_id=client_id
    )
    assert codec.decode_exactly(type(request), version, frame[4 + position :]) == request


def test_the_client_id_keeps_its_old_length_in_flexible_headers() -> None:
    """Two bytes, not a varint, though a section of tagged fields follows (KIP-482)."""
    frame = framing.encode_request(ApiKey.METADATA, 12, 1, "abc", messages.MetadataRequest())
    assert frame[4:].startswith(struct.pack(">hhi", 3, 12, 1) + b"\x00\x03abc" + b"\x00")


def test_the_oldest_controlled_shutdown_has_no_client_id() -> None:
    """Its header ends with the correlation id."""
    request = messages.ControlledShutdownRequest(broker_id=5)
    frame = framing.encode_request(ApiKey.CONTROLLED_SHUTDOWN, 0, 9, "ignored", request)
    assert frame[4:] == struct.pack(">hhi", 7, 0, 9) + struct.pack(">i", 5)
    assert framing.decode_request_header(frame[4:])[1] == 8


def test_tagged_fields_of_a_header_are_kept() -> None:
    """Whatever a later client puts there."""
    data = struct.pack(">hhi", 3, 12, 1) + b"\xff\xff" + b"\x01\x07\x02ok" + b"body"
    header, position = framing.decode_request_header(data)
    assert header.client_id is None
    assert list(header.unknown_tagged_fields) == [(7, b"ok")]
    assert data[position:] == b"body"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\3\0\1\0",
        struct.pack(">hhi", 3, 1, 1),
        struct.pack(">hhih", 3, 1, 1, 9) + b"short",
        struct.pack(">hhih", 3, 1, 1, -2),
        struct.pack(">hhih", 3, 1, 1, 1) + b"\xff",
        struct.pack(">hhih", 3, 12, 1, -1),
        struct.pack(">hhih", 3, 12, 1, -1) + b"\x01",
    ],
)
def test_malformed_headers_are_refused(data: bytes) -> None:
    """Cut short, a client id too long or not text, tagged fields cut short."""
    with pytest.raises(ProtocolError):
        framing.decode_request_header(data)


def test_a_header_of_an_unknown_api_is_refused_as_such() -> None:
    """So that a broker can say which key it does not know."""
    with pytest.raises(UnsupportedVersion, match="no API key 1000"):
        framing.decode_request_header(struct.pack(">hhih", 1000, 0, 1, -1))


@pytest.mark.parametrize(
    ("key", "version", "header_size"),
    [(ApiKey.METADATA, 8, 4), (ApiKey.METADATA, 9, 5), (ApiKey.API_VERSIONS, 3, 4)],
)
def test_a_response_frame_is_read_back(key: ApiKey, version: int, header_size: int) -> None:
    """With the flexible header from the first flexible version on, but never for ApiVersions."""
    response = messages.response_class(key)()
    frame = b"".join(framing.encode_response(key, version, 5, response))  # type: ignore[arg-type]
    assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 5)
    assert len(frame) == 4 + header_size + len(codec.encode(response, version))
    assert framing.decode_response(key, version, frame[4:]) == (5, response)
    with pytest.raises(ProtocolError, match="followed by 1"):
        framing.decode_response(key, version, frame[4:] + b"!")


def test_a_response_keeps_its_file_ranges() -> None:
    """Small parts between them are joined: what is left is one write, one sendfile, one write."""
    cls = messages.FetchResponse
    records = FileRange(object(), 0, 5000)  # type: ignore[arg-type]
    partition = cls.PartitionData(records=[records])
    response = cls(responses=[cls.FetchableTopicResponse(partitions=[partition])])
    chunks = framing.encode_response(ApiKey.FETCH, 12, 1, response)
    assert [type(chunk) for chunk in chunks] == [bytes, FileRange, bytes]
    assert struct.unpack_from(">i", chunks[0])[0] == sum(map(len, chunks)) - 4  # type: ignore[arg-type]


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\x01\x05"])
def test_a_response_cut_within_its_header_is_refused(frame: bytes) -> None:
    """In the correlation id, before and within the tagged fields."""
    with pytest.raises(ProtocolError):
        framing.decode_response(ApiKey.METADATA, 9, frame)
