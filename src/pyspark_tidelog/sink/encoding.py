"""Rows with their partitions, as record batches: sorted by partition in the rows' order, cut where batches are full."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pyspark_tidelog.sink.columns import Chunk, binary_column, headers_column
from pyspark_tidelog.sink.errors import RowRefused
from tidelog.model.identifiers import TopicPartition
from tidelog.records.batch import read_header
from tidelog.records.columns import encode_columns
from tidelog.records.compression import Codec

EXPANSION: Final = 1 / 50
"""Share by which what does not compress may grow."""
HEADER_ROOM: Final = 100
"""Bytes of a batch beside its records."""
KEY_SHOWN_MAX: Final = 40
BASE_OFFSET_SIZE: Final = 8


@dataclass(frozen=True, slots=True)
class Encoded:
    """One batch, and the partition that it is for."""

    target: TopicPartition
    data: bytes | bytearray
    rows: int


@dataclass(frozen=True, slots=True)
class Encoding:
    """How batches are made."""

    codec: Codec
    level: int | None
    batch_bytes: int
    """Of records, before compression."""


def encode_chunk(
    chunk: Chunk,
    targets: Sequence[TopicPartition],
    assigned: Any,
    encoding: Encoding,
    bytes_max: dict[str, int],
    now_ms: int,
) -> Iterator[Encoded]:
    """The chunk's rows as batches; `assigned` is an array of places in `targets`, one a row.

    `bytes_max` is [topic] -> its max.message.bytes. RowRefused for a row that is too large.
    """
    order = None
    if len(targets) > 1:
        order = np.argsort(assigned, kind="stable")
        assigned = assigned[order]
        chunk = chunk.take(order)
    edges = np.flatnonzero(np.diff(assigned)) + 1
    starts = [0, *edges.tolist()]
    for start, end in zip(starts, [*starts[1:], chunk.rows], strict=True):
        if start == end:
            continue
        target = targets[int(assigned[start])]
        limit = bytes_max.get(target.topic, 1 << 30)
        yield from _encode(chunk, order, target, start, end, encoding, limit, encoding.batch_bytes, now_ms)


def _encode(
    chunk: Chunk,
    order: Any,
    target: TopicPartition,
    start: int,
    end: int,
    encoding: Encoding,
    limit: int,
    batch_bytes: int,
    now_ms: int,
) -> Iterator[Encoded]:
    room = limit - HEADER_ROOM
    if encoding.codec is not Codec.NONE:
        room -= int(room * EXPANSION)
    batches = encode_columns(
        rows=end - start,
        timestamp=np.full(end - start, now_ms, dtype=np.int64).data,
        key=binary_column(None if chunk.key is None else chunk.key.slice(start, end - start)),
        value=binary_column(chunk.value.slice(start, end - start)),
        headers=headers_column(None if chunk.headers is None else chunk.headers.slice(start, end - start)),
        batch_bytes_max=max(1, min(batch_bytes, room)),
        codec=encoding.codec,
        level=encoding.level,
    )
    row = start
    for data in batches:
        rows = read_header(data).records_count
        if rows == 1:
            _check_size(chunk, order, target, row, len(data), limit)
        if len(data) > limit and rows > 1:
            smaller = max(1, batch_bytes // 2)
            yield from _encode(chunk, order, target, row, row + rows, encoding, limit, smaller, now_ms)
        else:
            yield Encoded(target, _from_offset_0(data), rows)
        row += rows


def _from_offset_0(data: bytes | bytearray) -> bytes | bytearray:
    """The batch as clients must send it: Apache Kafka refuses one that does not begin at offset 0.

    The checksum does not cover the base offset.
    """
    if data[:BASE_OFFSET_SIZE] == bytes(BASE_OFFSET_SIZE):
        return data
    if isinstance(data, bytearray):
        data[:BASE_OFFSET_SIZE] = bytes(BASE_OFFSET_SIZE)
        return data
    return bytes(BASE_OFFSET_SIZE) + data[BASE_OFFSET_SIZE:]


def _check_size(chunk: Chunk, order: Any, target: TopicPartition, row: int, size: int, limit: int) -> None:
    if size <= limit:
        return
    problem = f"its batch has {size} bytes, and the topic's max.message.bytes is {limit}"
    key = None if chunk.key is None else chunk.key[row].as_py()
    if key is not None:
        problem += f" (its key is {key[:KEY_SHOWN_MAX]!r}{'...' if len(key) > KEY_SHOWN_MAX else ''})"
    number = chunk.first_row + (row if order is None else int(order[row]))
    raise RowRefused(problem, row=number, topic=target.topic, partition=target.partition)
