"""How fast records go between batches and columns on one core: the compiled kernel, and its Python twin beside it.

    python bench/kernel.py [--records 2000000] [--value-bytes 100] [--batch-bytes 1000000]

Decoding reads batches that lie in memory and fills offset, timestamp, key and value columns, checksums verified.
Encoding is the way back to batches as they are sent, checksums computed; they are joined for the other figures outside
of its time. Each figure is the best of several passes; MB/s counts the batches' bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from array import array
from collections.abc import Callable, Iterator

from tidelog.records import _pure, columns, implementation
from tidelog.records.columns import BinaryColumn, Column, decode_columns, encode_columns
from tidelog.records.compression import Codec

TWIN_ROWS_MAX = 50_000
"""Rows on which the twin is measured: it takes seconds for a million."""


@contextlib.contextmanager
def twin() -> Iterator[None]:
    """The pure Python twin in the kernel's place."""
    names = ("ColumnBuilder", "BinarySource", "encode_section")
    kept = {name: getattr(implementation, name) for name in names}
    for name in names:
        setattr(implementation, name, getattr(_pure, name))
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(implementation, name, value)


def sample(rows: int, value_bytes: int) -> tuple[array[int], BinaryColumn, BinaryColumn]:
    """Timestamps, keys of 8 bytes and values that compress about as text does."""
    words = [random.Random(7).randbytes(6).hex().encode() for _ in range(256)]
    draw = random.Random(11)
    pool = b" ".join(draw.choice(words) for _ in range(200_000))
    starts = [draw.randrange(len(pool) - value_bytes) for _ in range(1000)]
    values = b"".join(pool[start : start + value_bytes] for start in starts) * (rows // 1000 + 1)
    keys = b"".join(b"%08d" % index for index in range(rows))
    timestamps = array("q", range(1_700_000_000_000, 1_700_000_000_000 + rows))
    key = BinaryColumn(array("i", range(0, 8 * rows + 1, 8)), keys)
    value = BinaryColumn(
        array("i", range(0, value_bytes * rows + 1, value_bytes)), memoryview(values)[: rows * value_bytes]
    )
    return timestamps, key, value


def best_of(passes: int, run: Callable[..., object], *arguments: object) -> float:
    """Seconds of the fastest of several passes."""
    times = []
    for _ in range(passes):
        start = time.perf_counter()
        run(*arguments)
        times.append(time.perf_counter() - start)
    return min(times)


def report(name: str, rows: int, size: int, seconds: float) -> None:
    print(f"{name:<44} {rows / seconds / 1e6:8.2f} M records/s {size / seconds / 1e6:9.0f} MB/s")


def decode_all(data: bytes, rows_max: int, wanted: Column) -> int:
    position = next_offset = rows = 0
    while position < len(data):
        part = decode_columns(data, position=position, start_offset=next_offset, rows_max=rows_max, columns=wanted)
        position, next_offset, rows = part.position, part.next_offset, rows + part.rows
    return rows


def measure(rows: int, value_bytes: int, batch_bytes: int, passes: int, label: str) -> None:
    timestamps, key, value = sample(rows, value_bytes)

    def encode(codec: Codec) -> list[bytes | bytearray]:
        return encode_columns(
            rows=rows, timestamp=timestamps, key=key, value=value, codec=codec, batch_bytes_max=batch_bytes
        )

    plain = b"".join(encode(Codec.NONE))
    report(f"{label} encode", rows, len(plain), best_of(passes, encode, Codec.NONE))
    for rows_max in (columns.COLUMN_BYTES_MAX, 50_000, 10_000):
        name = "all at once" if rows_max > rows else f"slices of {rows_max} rows"
        seconds = best_of(passes, decode_all, plain, rows_max, columns.WITHOUT_HEADERS)
        report(f"{label} decode, {name}", rows, len(plain), seconds)
    report(f"{label} decode, offsets only", rows, len(plain), best_of(passes, decode_all, plain, rows, Column.OFFSET))
    for codec in (Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP):
        packed = b"".join(encode(codec))
        name = f"{label} decode, {codec.codec_name} ({len(plain) / len(packed):.1f}:1)"
        report(name, rows, len(plain), best_of(passes, decode_all, packed, 50_000, columns.WITHOUT_HEADERS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--batch-bytes", type=int, default=1_000_000)
    parser.add_argument("--passes", type=int, default=3)
    arguments = parser.parse_args()
    print(
        f"{arguments.records} records, keys of 8 B, values of {arguments.value_bytes} B, "
        f"batches of {arguments.batch_bytes} B, best of {arguments.passes}, Python {sys.version.partition(' ')[0]}, "
        f"kernel: {implementation.NAME}"
    )
    measure(arguments.records, arguments.value_bytes, arguments.batch_bytes, arguments.passes, "kernel")
    with twin():
        measure(
            min(arguments.records, TWIN_ROWS_MAX), arguments.value_bytes, min(arguments.batch_bytes, 100_000), 1, "twin"
        )


if __name__ == "__main__":
    main()
