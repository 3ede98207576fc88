"""Codecs and headers under hostile bytes: an answer within the bound, or a refusal; never anything else."""

from __future__ import annotations

import contextlib
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from tidelog.records import varint
from tidelog.records.batch import build_batch, iterate_headers, read_records, validate
from tidelog.records.compression import Codec, compress, decompress
from tidelog.records.errors import InvalidBatch
from tidelog.records.legacy import read_messages
from tidelog.records.record import Record

EXAMPLES = settings(max_examples=examples(2000), deadline=None)
SAMPLES = [b"", b"some text, some text, some more text" * 20, random.Random(3).randbytes(500), bytes(3000)]
PACKED = [(codec, compress(codec, sample)) for codec in Codec for sample in SAMPLES]
SIZE_MAX = 100_000


@EXAMPLES
@given(
    stream=st.sampled_from(PACKED),
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.none() | st.integers(0, 10**6),
)
def test_damaged_streams(stream: tuple[Codec, bytes], changes: list[tuple[int, int]], cut: int | None) -> None:
    """A stream with bytes changed, or cut, gives bytes within the bound or is refused."""
    codec, packed = stream
    damaged = bytearray(packed)
    for where, value in changes:
        if damaged:
            damaged[where % len(damaged)] = value
    if cut is not None and damaged:
        del damaged[cut % len(damaged) :]
    with contextlib.suppress(InvalidBatch):
        assert len(decompress(codec, damaged, size_max=SIZE_MAX)) <= SIZE_MAX


@EXAMPLES
@given(codec=st.sampled_from(Codec), data=st.binary(max_size=200))
def test_noise_streams(codec: Codec, data: bytes) -> None:
    """So does noise."""
    with contextlib.suppress(InvalidBatch):
        assert len(decompress(codec, data, size_max=SIZE_MAX)) <= SIZE_MAX


@EXAMPLES
@given(codec=st.sampled_from(Codec), data=st.binary(max_size=2000), repeat=st.integers(1, 50))
def test_streams_come_back(codec: Codec, data: bytes, repeat: int) -> None:
    """Whatever goes in comes out."""
    assert bytes(decompress(codec, compress(codec, data * repeat))) == data * repeat


VALID = build_batch([Record(0, 1, b"k", b"v" * 50, (("h", b"x"),)), Record(1, 2, None, None)], codec=Codec.GZIP)


@EXAMPLES
@given(
    data=st.binary(max_size=200) | st.binary(max_size=80).map(lambda tail: VALID + tail),
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3),
)
def test_any_bytes_as_batches(data: bytes, changes: list[tuple[int, int]]) -> None:
    """Headers, validation and records of any bytes end in `InvalidBatch` or well."""
    buffer = bytearray(data)
    for where, value in changes:
        if buffer:
            buffer[where % len(buffer)] = value
    try:
        for position, header in iterate_headers(buffer):
            validate(buffer, position, header, now_ms=0, timestamp_after_max_ms=0, decompressed_size_max=SIZE_MAX)
    except InvalidBatch:
        pass
    with contextlib.suppress(InvalidBatch):
        read_records(buffer, size_max=SIZE_MAX)
    with contextlib.suppress(InvalidBatch):
        list(read_messages(buffer, size_max=SIZE_MAX))


@EXAMPLES
@given(value=st.integers(-(2**63), 2**63 - 1), tail=st.binary(max_size=3))
def test_variable_length_integers(value: int, tail: bytes) -> None:
    """Each number comes back, and the position after it; those of 32 bits by the narrow functions too."""
    encoded = varint.encode_varlong(value)
    assert varint.decode_varlong(encoded + tail, 0) == (value, len(encoded))
    narrow = value >> 32
    assert varint.decode_varint(varint.encode_varint(narrow), 0)[0] == narrow


@EXAMPLES
@given(data=st.binary(max_size=12))
def test_any_bytes_as_a_variable_length_integer(data: bytes) -> None:
    """A number within its width, or `VarintError`."""
    for decode, low, high in (
        (varint.decode_varint, -(2**31), 2**31),
        (varint.decode_varlong, -(2**63), 2**63),
    ):
        try:
            value, end = decode(data, 0)
        except varint.VarintError:
            continue
        assert low <= value < high
        assert 0 < end <= len(data)
