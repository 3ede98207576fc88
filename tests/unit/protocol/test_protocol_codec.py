"""Decoders refuse what is malformed, encoders what cannot be said; both with a reason."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from tidelog.protocol import codec, messages
from tidelog.protocol.errors import InvalidMessage, ProtocolError, UnsupportedVersion
from tidelog.protocol.wire import uvarint

TOPIC = messages.MetadataRequest.MetadataRequestTopic


def test_unknown_tagged_fields_are_kept_and_written_back() -> None:
    """At every level, in ascending order of their tags."""
    request = messages.MetadataRequest(
        topics=[TOPIC(name="a", unknown_tagged_fields=[(300, b"y"), (2, b"")])],
        unknown_tagged_fields=[(0, b"z" * 200)],
    )
    data = codec.encode(request, 12)
    decoded = codec.decode_exactly(messages.MetadataRequest, 12, data)
    assert list(decoded.unknown_tagged_fields) == [(0, b"z" * 200)]
    assert list(decoded.topics[0].unknown_tagged_fields) == [(2, b""), (300, b"y")]
    assert codec.encode(decoded, 12) == data


def test_unknown_tagged_fields_stand_beside_known_ones() -> None:
    """Known ones are read into their fields, whatever stands between them."""
    response = messages.ApiVersionsResponse(finalized_features_epoch=7, unknown_tagged_fields=[(50, b"?")])
    decoded = codec.decode_exactly(messages.ApiVersionsResponse, 3, codec.encode(response, 3))
    assert decoded == response


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        (b"\x02\x05\x00\x05\x00", "twice"),
        (b"\x01\x05\x7f", "beyond"),
        (b"\x7f\x05\x00", "cannot be in"),
        (b"\x01\x01\x09" + bytes(9), "size"),
        (b"\x01\xff\xff\xff\xff\xff\x01\x00", "5 bytes"),
        (b"\x01\xff\xff\xff\xff\x7f\x00", "32 bits"),
        (b"\x01\x85\x80", "ends too early"),
    ],
)
def test_malformed_tagged_fields_are_refused(tags: bytes, reason: str) -> None:
    """Duplicates, sizes beyond the end, wrong sizes of known fields, overlong varints."""
    empty = codec.encode(messages.ApiVersionsResponse(), 3)
    with pytest.raises(ProtocolError, match=reason):
        codec.decode(messages.ApiVersionsResponse, 3, empty[:-1] + tags)


@pytest.mark.parametrize("version", [1, 12])
def test_a_count_beyond_the_bytes_that_remain_is_refused(version: int) -> None:
    """And nothing was allocated for it: a count is held against the least size of an element."""
    count = struct.pack(">i", 0x7FFFFFFF) if version == 1 else uvarint(0x7FFFFFFF)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=r"topics of length 214748364\d cannot be in the 100 bytes"):
            codec.decode(messages.MetadataRequest, version, count + bytes(100))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


MANY = 1_000_001
"""Elements: one more than a request may have."""


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (messages.FindCoordinatorRequest, 4, b"\0" + uvarint(MANY + 1) + b"\1" * MANY + b"\0"),
        (messages.DeleteTopicsRequest, 1, struct.pack(">i", MANY) + b"\0\0" * MANY + bytes(4)),
        (messages.DescribeGroupsRequest, 5, uvarint(MANY + 1) + b"\1" * MANY + b"\0\0"),
        (messages.DeleteRecordsRequest, 2, uvarint(MANY + 1) + b"\1\1\0" * MANY + bytes(5)),
        (messages.ProduceRequest, 3, b"\xff\xff" + struct.pack(">hii", 1, 0, MANY) + bytes(6) * MANY),
        (
            messages.ProduceRequest,
            9,
            b"\0" + struct.pack(">hi", 1, 0) + b"\2\2t" + uvarint(MANY) + bytes(6) * MANY + b"\0\0",
        ),
    ],
)
def test_a_request_of_many_elements_is_refused_before_it_takes_memory(
    cls: type[messages.Message], version: int, data: bytes
) -> None:
    """A byte of an empty string, or two of a struct, would be hundreds in memory, and seconds without anything else."""
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="1000000 elements at most"):
            codec.decode(cls, version, data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_elements_count_together_at_all_depths() -> None:
    """A million and no more: whether of one list or of many, unknown tagged fields among them."""
    partition = messages.DeleteRecordsRequest.DeleteRecordsPartition
    topic = messages.DeleteRecordsRequest.DeleteRecordsTopic(
        name="t", partitions=[partition(), partition()], unknown_tagged_fields=[(7, b"")]
    )
    data = codec.encode(messages.DeleteRecordsRequest(topics=[topic]), 2)
    one, rest = data[1:-5], data[-5:]
    request, _ = codec.decode(messages.DeleteRecordsRequest, 2, uvarint(250_001) + one * 250_000 + rest)
    assert len(request.topics) == 250_000
    with pytest.raises(ProtocolError, match="1000000 elements at most"):
        codec.decode(messages.DeleteRecordsRequest, 2, uvarint(250_002) + one * 250_001 + rest)


def test_a_struct_has_a_thousand_tagged_fields_at_most() -> None:
    """Those of later versions are few."""
    tags = b"".join(uvarint(tag) + b"\0" for tag in range(1001))
    empty = codec.encode(messages.MetadataRequest(), 12)
    with pytest.raises(ProtocolError, match="1000 tagged fields at most"):
        codec.decode(messages.MetadataRequest, 12, empty[:-1] + uvarint(1001) + tags)


@pytest.mark.parametrize(
    ("cls", "version", "data", "reason"),
    [
        (messages.MetadataRequest, 0, b"\xff\xff\xff\xff", "topics is null or has a negative length"),
        (messages.MetadataRequest, 1, b"\xff\xff\xff\xfe", r"negative length \(-2\)"),
        (messages.MetadataRequest, 0, b"\0\0\0\1\xff\xff", "topics.name is null"),
        (messages.MetadataRequest, 0, b"\0\0\0\1\0\x05abc", "name of length 5 cannot be in the 3 bytes"),
        (messages.MetadataRequest, 0, b"\0\0\0\1\0\2\xff\xfe", "not UTF-8"),
        (messages.MetadataRequest, 0, b"\0\0", "ends too early"),
        (messages.MetadataRequest, 9, b"", "ends too early"),
        (messages.MetadataRequest, 9, b"\x02\x00\x00", "name is null"),
        (messages.SyncGroupResponse, 0, b"\0\0\xff\xff\xff\xff", "assignment is null"),
        (messages.ProduceRequest, 9, b"\0" + bytes(6) + b"\x02\x00\x01\x00", "name is null or"),
        (messages.ProduceRequest, 3, b"\xff\xff" + bytes(6) + b"\xff\xff\xff\xff", "topic_data is null or"),
        (messages.FetchResponse, 12, bytes(10) + b"\xff\xff\xff\xff\x07", "responses of length"),
    ],
)
def test_malformed_messages_are_refused_with_the_field(
    cls: type[messages.Message], version: int, data: bytes, reason: str
) -> None:
    """Nulls where none may be, negative and excessive lengths, bad text, early ends."""
    with pytest.raises(ProtocolError, match=reason):
        codec.decode(cls, version, data)


def test_a_string_has_at_most_32767_bytes_in_flexible_versions_too() -> None:
    """As Kafka has it, reading and writing."""
    data = b"\x02" + uvarint(0x8001) + b"a" * 0x8000 + b"\0\0\0\0"
    with pytest.raises(ProtocolError, match="32768"):
        codec.decode(messages.MetadataRequest, 9, data)
    with pytest.raises(InvalidMessage, match=r"topics\[0\].name has 32768 bytes"):
        codec.encode(messages.MetadataRequest(topics=[TOPIC(name="a" * 0x8000)]), 9)
    request = messages.MetadataRequest(topics=[TOPIC(name="a" * 0x7FFF)])
    assert codec.decode_exactly(messages.MetadataRequest, 9, codec.encode(request, 9)) == request


def test_what_follows_a_message_is_an_error_or_left() -> None:
    """`decode` says where the message ended, `decode_exactly` wants it to be the end."""
    data = codec.encode(messages.HeartbeatResponse(error_code=27), 0)
    message, end = codec.decode(messages.HeartbeatResponse, 0, b"??" + data + b"!", 2)
    assert (message.error_code, end) == (27, 2 + len(data))
    with pytest.raises(ProtocolError, match="followed by 1"):
        codec.decode_exactly(messages.HeartbeatResponse, 0, data + b"!")


def test_any_buffer_decodes_and_nothing_refers_to_it_later() -> None:
    """Except records: see the handwritten codecs."""
    data = bytearray(codec.encode(messages.SyncGroupResponse(assignment=b"abc"), 0))
    for buffer in (bytes(data), data, memoryview(data)):
        assert codec.decode_exactly(messages.SyncGroupResponse, 0, buffer).assignment == b"abc"
    decoded = codec.decode_exactly(messages.SyncGroupResponse, 0, memoryview(data))
    data[:] = bytes(len(data))
    assert decoded.assignment == b"abc"


@pytest.mark.parametrize("version", [-1, 14])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    """In both directions, with those that do."""
    with pytest.raises(UnsupportedVersion, match="0 to 13"):
        codec.decode(messages.MetadataRequest, version, b"")
    with pytest.raises(UnsupportedVersion, match="0 to 13"):
        codec.encode(messages.MetadataRequest(), version)


def committed(**fields: object) -> messages.OffsetCommitRequest:
    cls = messages.OffsetCommitRequest
    partition = cls.OffsetCommitRequestPartition(**fields)  # type: ignore[arg-type]
    return cls(group_id="g", topics=[cls.OffsetCommitRequestTopic(name="t", partitions=[partition])])


@pytest.mark.parametrize(
    ("message", "version", "reason"),
    [
        (
            committed(partition_index=1 << 31),
            8,
            r"topics\[0\].partitions\[0\].partition_index is 2147483648, which int32",
        ),
        (committed(committed_metadata=5), 8, r"committed_metadata must be a str, not int"),
        (committed(committed_offset=1.5), 2, r"committed_offset is 1.5"),
        (messages.OffsetCommitRequest(group_id=None), 2, "group_id may not be None in this version"),  # type: ignore[arg-type]
        (messages.OffsetCommitRequest(topics=None), 2, "topics may not be None"),  # type: ignore[arg-type]
        (messages.MetadataRequest(topics=None), 0, "topics may not be None in this version"),
        (messages.MetadataRequest(topics=[TOPIC(name="\ud800")]), 1, r"topics\[0\].name cannot be written as UTF-8"),
        (messages.MetadataRequest(topics=[TOPIC(topic_id=b"short")]), 12, r"topic_id must be 16 bytes"),  # type: ignore[arg-type]
        (messages.SyncGroupResponse(assignment="text"), 3, "assignment must be bytes, not str"),  # type: ignore[arg-type]
        (messages.MetadataRequest(unknown_tagged_fields=[(1, b""), (1, b"")]), 12, "there twice"),
    ],
)
def test_values_that_do_not_fit_are_refused_with_the_field(
    message: messages.Message, version: int, reason: str
) -> None:
    """Out of range, of another type, null, not encodable."""
    with pytest.raises(InvalidMessage, match=reason):
        codec.encode(message, version)


def test_a_field_that_the_version_lacks_is_not_dropped_silently() -> None:
    """Unless the table says that it may be."""
    with pytest.raises(InvalidMessage, match="allow_auto_topic_creation is set"):
        codec.encode(messages.MetadataRequest(topics=[], allow_auto_topic_creation=False), 3)
    with pytest.raises(InvalidMessage, match="unknown_tagged_fields"):
        codec.encode(messages.MetadataRequest(topics=[], unknown_tagged_fields=[(1, b"")]), 3)
    with pytest.raises(InvalidMessage, match="group_instance_id"):
        codec.encode(messages.HeartbeatRequest(group_instance_id="static"), 0)
    response = messages.HeartbeatResponse(throttle_time_ms=5)
    assert codec.encode(response, 0) == codec.encode(messages.HeartbeatResponse(), 0)


def test_ids_are_16_bytes_on_both_sides() -> None:
    """No uuid objects: an id is what stands on the wire."""
    request = messages.MetadataRequest(topics=[TOPIC(topic_id=bytes(range(16)), name=None)])  # type: ignore[arg-type]
    data = codec.encode(request, 12)
    assert bytes(range(16)) in data
    assert codec.decode_exactly(messages.MetadataRequest, 12, data).topics[0].topic_id == bytes(range(16))  # type: ignore[index]
