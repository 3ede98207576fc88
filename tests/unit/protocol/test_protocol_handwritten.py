"""The handwritten codecs of Produce and Fetch equal the generated ones, and leave records where they are."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from tests.property.fuzz_protocol import mutate
from tests.property.protocol_samples import Sampler

from tidelog.ports.disk import FileRange
from tidelog.protocol import codec, fetch, messages, produce
from tidelog.protocol.decoders import compile_decoder
from tidelog.protocol.encoders import compile_encoder
from tidelog.protocol.errors import InvalidMessage, ProtocolError

CODECS: dict[str, tuple[type[Any], Any, Any]] = {
    "produce": (messages.ProduceRequest, produce.request_decoder, produce.request_encoder),
    "fetch": (messages.FetchResponse, fetch.response_decoder, fetch.response_encoder),
}
CASES = [(name, version) for name, (cls, _, _) in CODECS.items() for version in range(cls.HIGHEST_VERSION + 1)]


def encoded(encoder: Any, message: Any) -> bytes:
    chunks: list[Any] = []
    encoder(message, chunks.append)
    return b"".join(chunks)


@pytest.mark.parametrize(("name", "version"), CASES)
def test_they_equal_the_generated_ones(name: str, version: int) -> None:
    """On random messages: the same bytes, the same objects; on each prefix, both refuse."""
    cls, decoder, encoder = CODECS[name]
    by_hand, written = decoder(cls, version), encoder(cls, version)
    generated, generated_encoder = compile_decoder(cls, version), compile_encoder(cls, version)
    for seed in range(40):
        message = Sampler(seed, unknown_tags=True).message(cls, version)
        data = encoded(generated_encoder, message)
        assert encoded(written, message) == data
        one, end = by_hand(memoryview(data), 0, len(data))
        other, _ = generated(data, 0, len(data))
        assert end == len(data)
        assert one == other == message
        for cut in range(0, len(data), 1 + len(data) // 50):
            with pytest.raises(ProtocolError):
                codec.decode(cls, version, data[:cut])


@pytest.mark.parametrize(("name", "version"), CASES)
def test_they_refuse_what_the_generated_ones_refuse(name: str, version: int) -> None:
    """A value in a field that the version lacks, unless it may be dropped."""
    cls, _, encoder = CODECS[name]
    written, generated = encoder(cls, version), compile_encoder(cls, version)
    for other_version in range(cls.HIGHEST_VERSION + 1):
        for seed in range(6):
            message = Sampler(seed).message(cls, other_version)
            try:
                expected = encoded(generated, message)
            except (InvalidMessage, TypeError):
                with pytest.raises((InvalidMessage, TypeError)):
                    encoded(written, message)
            else:
                assert encoded(written, message) == expected


@pytest.mark.parametrize(("name", "version"), CASES)
def test_they_judge_damaged_bytes_alike(name: str, version: int) -> None:
    """Both refuse, or both find the same message and end."""
    cls, decoder, _ = CODECS[name]
    by_hand, generated = decoder(cls, version), compile_decoder(cls, version)

    def outcome(decode: Any, data: bytes | memoryview) -> Any:
        try:
            return decode(data, 0, len(data))
        except (ProtocolError, struct.error, IndexError, UnicodeDecodeError):
            return "refused"

    draw = random.Random(version)
    for seed in range(30):
        data = codec.encode(Sampler(seed, unknown_tags=True).message(cls, version), version)
        for _ in range(25):
            damaged = mutate(data, draw)
            assert outcome(by_hand, memoryview(damaged)) == outcome(generated, damaged)


@pytest.mark.parametrize("version", [12, 18])
@pytest.mark.parametrize(("tag", "size"), [(0, 13), (1, 9), (2, 13)])
def test_a_tagged_struct_has_exactly_its_size(version: int, tag: int, size: int) -> None:
    """A byte more is refused, as in generated decoders."""
    cls = messages.FetchResponse
    partition = cls.PartitionData(unknown_tagged_fields=[(tag, bytes(size))])
    response = cls(responses=[cls.FetchableTopicResponse(partitions=[partition])])
    codec.decode_exactly(cls, version, codec.encode(response, version))
    partition.unknown_tagged_fields = [(tag, bytes(size + 1))]
    with pytest.raises(ProtocolError, match="size"):
        codec.decode_exactly(cls, version, codec.encode(response, version))


@pytest.mark.parametrize("version", [3, 9, 13])
def test_produced_records_are_views_of_the_frame(version: int) -> None:
    """A megabyte is not copied on its way to the log."""
    cls = messages.ProduceRequest
    partition = cls.PartitionProduceData(index=2, records=b"r" * 1000)
    topic = cls.TopicProduceData(partition_data=[partition])
    frame = bytearray(codec.encode(cls(topic_data=[topic]), version))
    decoded = codec.decode_exactly(cls, version, frame)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert records == b"r" * 1000


class NoFile:
    """Stands for a file that nobody may read."""


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_fetched_file_ranges_stay_file_ranges(version: int) -> None:
    """Between the encoded parts, in order; the length before them counts their bytes."""
    cls = messages.FetchResponse
    ranges = [FileRange(NoFile(), 0, 70), FileRange(NoFile(), 500, 30)]  # type: ignore[arg-type]
    partition = cls.PartitionData(partition_index=1, records=[*ranges])
    response = cls(responses=[cls.FetchableTopicResponse(partitions=[partition])])
    chunks = codec.encode_chunks(response, version)
    assert [chunk for chunk in chunks if isinstance(chunk, FileRange)] == ranges
    filled = b"".join(bytes(len(chunk)) if isinstance(chunk, FileRange) else chunk for chunk in chunks)
    decoded = codec.decode_exactly(cls, version, filled)
    assert decoded.responses[0].partitions[0].records == bytes(100)
    with pytest.raises(InvalidMessage):
        codec.encode(response, version)


@pytest.mark.parametrize("version", [4, 12])
def test_empty_records_are_not_null(version: int) -> None:
    """librdkafka's consumer is stuck on null, so whoever sends b"" must get an empty array on the wire."""
    cls = messages.FetchResponse
    for records, expected in ((b"", b""), ([], b""), (None, None)):
        partition = cls.PartitionData(records=records)  # type: ignore[arg-type]
        response = cls(responses=[cls.FetchableTopicResponse(partitions=[partition])])
        decoded = codec.decode_exactly(cls, version, codec.encode(response, version))
        assert decoded.responses[0].partitions[0].records == expected
