"""Codecs: framed as Java frames them, bounded when read, and clear about what they cannot read."""

import random

import cramjam
import pytest

from tidelog.records.compression import LEVELS, Codec, compress, decompress
from tidelog.records.errors import CorruptData, DecompressionBomb

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
SAMPLES = [b"", b"x", b"abc" * 50_000, random.Random(1).randbytes(200_000), bytes(300_000)]


@pytest.mark.parametrize("codec", list(Codec))
def test_round_trip(codec: Codec) -> None:
    """Nothing, a byte, repetition, noise and zeros come back, from any kind of buffer."""
    for sample in SAMPLES:
        packed = compress(codec, memoryview(bytearray(sample)))
        assert bytes(decompress(codec, memoryview(packed), size_max=len(sample))) == sample


@pytest.mark.parametrize("codec", list(Codec))
def test_the_bound_is_exact_to_the_byte(codec: Codec) -> None:
    """One byte more than allowed is a bomb, whether the stream says its size or not."""
    sample = b"ab" * 40_000
    packed = compress(codec, sample)
    assert len(decompress(codec, packed, size_max=len(sample))) == len(sample)
    with pytest.raises(DecompressionBomb, match="decompression bomb"):
        decompress(codec, packed, size_max=len(sample) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_garbage_is_corrupt(codec: Codec) -> None:
    """Nothing, noise, and a stream cut anywhere are refused, never returned as less."""
    noise = random.Random(5).randbytes(500)
    packed = compress(codec, b"some bytes that repeat, some bytes that repeat" * 30)
    for data in (b"", noise, *(packed[:cut] for cut in range(1, len(packed) - 1))):
        if codec is Codec.SNAPPY and data == packed[:16]:
            continue  # Xerial's frame has no end mark: a header alone is an empty stream.
        with pytest.raises((CorruptData, DecompressionBomb)):
            decompress(codec, data, size_max=10_000)


def test_snappy_is_read_framed_and_raw() -> None:
    """Java's frame of 32 KiB blocks, joined frames, and librdkafka's single raw block."""
    sample = b"snap" * 20_000
    framed = compress(Codec.SNAPPY, sample)
    assert framed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    assert bytes(decompress(Codec.SNAPPY, framed + framed)) == sample * 2
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(sample)))) == sample


def test_snappy_sizes_are_not_believed() -> None:
    """A raw block that announces gigabytes in five bytes allocates nothing, and negative block lengths are refused."""
    with pytest.raises(CorruptData, match="state a size"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x07\x00", size_max=2**40)
    for length in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00"):
        with pytest.raises(CorruptData):
            decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"") + length)


def test_lz4_is_what_java_can_read() -> None:
    """Independent blocks of 64 KiB: Java's reader refuses linked ones."""
    packed = compress(Codec.LZ4, SAMPLES[3])
    assert packed[:7].hex() == "04224d18604082"
    for level in (1, 12, 17):
        assert compress(Codec.LZ4, SAMPLES[2], level)[4] & 0x20, "the flag of independent blocks"
    assert int.from_bytes(packed[7:11], "little") == 65536 | 1 << 31, "noise is stored, not grown"


def test_linked_lz4_blocks_of_others_are_read() -> None:
    """The library's own frame, with linked blocks and larger ones, is accepted."""
    assert bytes(decompress(Codec.LZ4, bytes(cramjam.lz4.compress(SAMPLES[2])))) == SAMPLES[2]


@pytest.mark.parametrize("codec", list(LEVELS))
def test_levels_are_those_of_the_topic_settings(codec: Codec) -> None:
    """The bounds of compression.*.level hold; lowest, highest and default all work."""
    lowest, highest, default = LEVELS[codec]
    for level in (lowest, highest, default, None):
        assert bytes(decompress(codec, compress(codec, SAMPLES[2], level))) == SAMPLES[2]
    for level in (lowest - 1 if codec is not Codec.GZIP else 0, highest + 1):
        with pytest.raises(ValueError, match="outside"):
            compress(codec, b"", level)


def test_a_higher_level_is_smaller() -> None:
    """The level reaches the library."""
    words = [random.Random(seed).randbytes(9).hex().encode() for seed in range(40)]
    text = b" ".join(random.Random(2).choices(words, k=4000))
    assert len(compress(Codec.GZIP, text, 9)) < len(compress(Codec.GZIP, text, 1))
    assert len(compress(Codec.LZ4, text, 12)) < len(compress(Codec.LZ4, text, 1))
    assert len(compress(Codec.ZSTD, text, 19)) < len(compress(Codec.ZSTD, text, -50))


def test_names() -> None:
    """Codecs are found by the values of compression.type; `producer` is no codec."""
    assert [Codec.of_name(codec.codec_name) for codec in Codec] == list(Codec)
    with pytest.raises(ValueError, match="is no codec"):
        Codec.of_name("producer")
