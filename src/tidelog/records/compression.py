"""The four codecs of record batches, framed as the Java client frames them, and read with a bound.

The header of a batch does not say how large its records are, so every reader here is told how many bytes it may
produce; past that it stops and raises `DecompressionBomb`, having allocated no more than that. Frames:

- snappy: xerial's (16 bytes of header, then blocks of 32 KiB, each with its compressed length), as Java writes it;
  librdkafka and others send one raw block without a frame, which is accepted too.
- lz4: the LZ4 frame format with independent blocks of 64 KiB; linked blocks, which Java cannot read, are never written.
- gzip, zstd: their own stream formats.
"""

from enum import IntEnum
from struct import Struct
from typing import Any, Final

import cramjam

from tidelog.model.errors import ErrorCode
from tidelog.ports.disk import Bytes
from tidelog.records.errors import CorruptData, DecompressionBomb, InvalidBatch

DECOMPRESSED_SIZE_MAX: Final = 128 * 1024 * 1024
"""Bytes that the records of one batch may take when the caller sets no bound of its own. A batch is 1 MiB at most by
default; text that compresses a hundredfold still fits, zeros at the codecs' best (1,000-fold and more) do not."""


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of_name(cls, name: str) -> "Codec":
        """The codec of a `compression.type` setting; ValueError for `producer` and for unknown names."""
        try:
            return _CODECS_BY_NAME[name]
        except KeyError as error:
            raise ValueError(f"{name!r} is no codec; known are {', '.join(_CODECS_BY_NAME)}") from error

    @property
    def codec_name(self) -> str:
        """Kafka's name, lower case."""
        return self.name.lower()


_CODECS_BY_NAME: Final = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

LEVELS: Final = {Codec.GZIP: (1, 9, -1), Codec.LZ4: (1, 17, 9), Codec.ZSTD: (-131072, 22, 3)}
"""Lowest, highest and default level of `compression.gzip.level`, `compression.lz4.level`, `compression.zstd.level`
(KIP-390). gzip's default of -1 is zlib's own, 6; lz4's default of 9 stands for its fast compressor, as in Java."""


def compress(codec: Codec, data: Bytes, level: int | None = None) -> bytes:
    """`data` compressed by `codec`; `level` as the topic settings give it, None for Kafka's default."""
    if level is not None and codec in LEVELS:
        lowest, highest, default = LEVELS[codec]
        if level != default and not lowest <= level <= highest:
            raise ValueError(f"level {level} of {codec.codec_name} is outside {lowest} to {highest}")
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=6 if level in (None, -1) else level))
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data, level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))


def decompress(codec: Codec, data: Bytes, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes | bytearray | memoryview:
    """What `data` was before it was compressed; at most `size_max` bytes, else `DecompressionBomb`.

    `CorruptData` when the bytes are not of that codec. Codec.NONE gives `data` itself, without a copy.
    """
    match codec:
        case Codec.NONE:
            if len(data) > size_max:
                raise DecompressionBomb("none", len(data), size_max)
            return data
        case Codec.SNAPPY:
            return _decompress_snappy(data, size_max)
        case Codec.GZIP:
            # The last four bytes of a gzip stream tell its size, modulo 2^32: true for honest writers, a hint at most.
            hint = int.from_bytes(data[-4:], "little") if len(data) >= 18 else 0
            return _decompress_stream(codec, cramjam.gzip, data, hint, size_max)
        case Codec.LZ4:
            return _decompress_stream(codec, cramjam.lz4, data, 0, size_max)
        case Codec.ZSTD:
            return _decompress_stream(codec, cramjam.zstd, data, _zstd_content_size(data), size_max)


_GROWTH: Final = 4
"""Factor from one try to the next when a stream does not say how large it is: the last try is most of the work."""


def _decompress_stream(codec: Codec, library: Any, data: Bytes, hint: int, size_max: int) -> memoryview:
    if not data:
        raise CorruptData(f"no bytes where a stream of {codec.codec_name} was expected")
    # A hint is believed only as far as an honest ratio goes: a lie must not make us allocate the whole bound.
    likely = 8 * len(data) + 256
    size = min(size_max, hint if 0 < hint <= 16 * likely else likely)
    while True:
        output = bytearray(size)
        try:
            return memoryview(output)[: library.decompress_into(data, output)]
        except cramjam.DecompressionError as error:
            if _FULL not in str(error):
                raise CorruptData(f"the records cannot be decompressed by {codec.codec_name}: {error}") from error
            if size >= size_max:
                raise DecompressionBomb(codec.codec_name, len(data), size_max) from error
            size = min(size_max, size * _GROWTH)


_FULL: Final = "failed to write whole buffer"
"""What the compression library says when the output does not fit; anything else is an error in the data."""


# zstd

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


def _zstd_content_size(data: Bytes) -> int:
    """The content size that a zstd frame header states, 0 if it states none."""
    if len(data) < 6 or data[:4] != _ZSTD_MAGIC:
        return 0
    descriptor = data[4]
    single_segment = descriptor >> 5 & 1
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    match descriptor >> 6:
        case 0:
            return data[start] if single_segment and len(data) > start else 0
        case 1:
            return int.from_bytes(data[start : start + 2], "little") + 256
        case 2:
            return int.from_bytes(data[start : start + 4], "little")
        case _:
            return int.from_bytes(data[start : start + 8], "little")


# snappy

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2
"""Magic, version 1, readable by version 1."""
_XERIAL_BLOCK: Final = 32 * 1024
_LENGTH: Final = Struct(">i")


def _compress_snappy(data: Bytes) -> bytes:
    view = memoryview(data).cast("B")
    parts: list[Bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = memoryview(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts.append(_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Bytes, size_max: int) -> memoryview:
    if not data:
        raise CorruptData("no bytes where a stream of snappy was expected")
    blocks = _xerial_blocks(data) if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else [memoryview(data).cast("B")]
    try:
        sizes = [int(cramjam.snappy.decompress_raw_len(block)) for block in blocks]
        size = sum(sizes)
        if size > size_max:
            raise DecompressionBomb("snappy", len(data), size_max)
        if size > 64 * len(data) + 64:
            # Snappy's best is 21-fold. A block that states more is broken, and must not make us allocate.
            raise CorruptData(f"{len(data)} bytes of snappy state a size of {size}")
        output = bytearray(size)
        view = memoryview(output)
        position = 0
        for block, block_size in zip(blocks, sizes, strict=True):
            if block_size:
                written = cramjam.snappy.decompress_raw_into(block, view[position : position + block_size])
                if written != block_size:
                    raise CorruptData(f"a snappy block states {block_size} bytes and holds {written}")
            position += block_size
        return view
    except cramjam.DecompressionError as error:
        raise CorruptData(f"the records cannot be decompressed by snappy: {error}") from error


def _xerial_blocks(data: Bytes) -> list[memoryview]:
    view = memoryview(data).cast("B")
    if len(view) < len(_XERIAL_HEADER):
        raise CorruptData("the header of a snappy stream is cut short")
    position = len(_XERIAL_HEADER)
    blocks: list[memoryview] = []
    while position < len(view):
        if view[position : position + len(_XERIAL_MAGIC)].tobytes() == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)  # Streams may be joined; Java's reader skips the headers between.
            continue
        if position + 4 > len(view):
            raise CorruptData("the length of a snappy block is cut short")
        (length,) = _LENGTH.unpack_from(view, position)
        position += 4
        if length < 0 or length > len(view) - position:
            raise CorruptData(f"a snappy block of {length} bytes where {len(view) - position} remain")
        blocks.append(view[position : position + length])
        position += length
    return blocks


# lz4

_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
"""Magic; version 1, independent blocks, no checksums; blocks of 64 KiB; the checksum of the two bytes before."""
_LZ4_BLOCK: Final = 64 * 1024
_LZ4_END: Final = bytes(4)
_LZ4_STORED: Final = 0x80000000
"""Flag in a block's length: the block is not compressed."""
_LZ4_LEVEL_MAX: Final = 12
"""The library's highest; Java's 13 to 17 mean the same there."""


def _compress_lz4(data: Bytes, level: int | None) -> bytes:
    if level is not None and level != LEVELS[Codec.LZ4][2]:
        compressor = cramjam.lz4.Compressor(
            level=min(level, _LZ4_LEVEL_MAX), content_checksum=False, block_linked=False
        )
        compressor.compress(data)
        return bytes(compressor.finish())
    view = memoryview(data).cast("B")
    parts: list[Bytes] = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK):
        block = view[start : start + _LZ4_BLOCK]
        compressed = memoryview(cramjam.lz4.compress_block(block, store_size=False))
        if len(compressed) < len(block):
            parts.append(len(compressed).to_bytes(4, "little"))
            parts.append(compressed)
        else:
            parts.append((len(block) | _LZ4_STORED).to_bytes(4, "little"))
            parts.append(block)
    parts.append(_LZ4_END)
    return b"".join(parts)


def check_codec(attributes: int) -> Codec:
    """The codec in a batch's attributes; `InvalidBatch` (UNSUPPORTED_COMPRESSION_TYPE) if the bits name none."""
    bits = attributes & 7
    if bits > Codec.ZSTD:
        raise InvalidBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {bits}")
    return Codec(bits)
