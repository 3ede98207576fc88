"""Fetched pieces as columns or records: decoded in bulk, cut into objects only where somebody asks. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.client.fetching import FetchedData
from tidelog.records.columns import (
    ALL,
    AbortedTransactions,
    BinaryColumn,
    Column,
    Columns,
    HeadersColumn,
    decode_columns,
)
from tidelog.records.errors import InvalidBatch

ROWS_MAX: Final = 20_000
"""Records decoded at a time: bounds what their Python objects take."""

Header = tuple[str, bytes | None]


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record as it came."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    timestamp_type: int
    """0 where the producer set it, 1 where the broker did."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


def consumed_columns(
    data: FetchedData, end_offset: int | None = None, columns: Column = ALL, *, committed_only: bool = False
) -> Iterator[Columns]:
    """The records of a piece from its fetch offset up to `end_offset` (exclusive), `ROWS_MAX` at a time, as columns.

    With `committed_only` those of aborted transactions are left out. KafkaError where a batch can't be decoded.
    """
    aborted = AbortedTransactions(data.aborted) if committed_only else None
    position, start = 0, data.fetch_offset
    total = len(data.records)
    while position < total:
        try:
            decoded = decode_columns(
                data.records,
                position=position,
                start_offset=start,
                end_offset=end_offset,
                columns=columns,
                rows_max=ROWS_MAX,
                aborted=aborted,
            )
        except InvalidBatch as error:
            raise data.unreadable(start, error) from error
        if not decoded.rows and decoded.position == position and decoded.next_offset == start:
            return
        position, start = decoded.position, decoded.next_offset
        if decoded.rows:
            yield decoded
        if end_offset is not None and start >= end_offset:
            return


def consumed_records(
    data: FetchedData, end_offset: int | None = None, columns: Column = ALL, *, committed_only: bool = False
) -> Iterator[ConsumedRecord]:
    """The same as records; of key, value and headers those that `columns` leaves out are None and ()."""
    topic, partition = data.topic_partition
    always = Column.OFFSET | Column.TIMESTAMP | Column.TIMESTAMP_TYPE
    for decoded in consumed_columns(data, end_offset, columns | always, committed_only=committed_only):
        assert decoded.offset is not None
        assert decoded.timestamp is not None
        assert decoded.timestamp_type is not None
        yield from map(
            ConsumedRecord,
            [topic] * decoded.rows,
            [partition] * decoded.rows,
            memoryview(decoded.offset).cast("q"),
            memoryview(decoded.timestamp).cast("q"),
            memoryview(decoded.timestamp_type).cast("i"),
            _contents(decoded.key, decoded.rows),
            _contents(decoded.value, decoded.rows),
            _headers(decoded.headers, decoded.rows),
        )


def first_timestamp(data: FetchedData, *, committed_only: bool = False) -> int | None:
    """The timestamp of the first record of a piece, in ms since 1970; None where it has no record. KafkaError likewise.

    Nothing else is decoded.
    """
    try:
        decoded = decode_columns(
            data.records,
            start_offset=data.fetch_offset,
            columns=Column.TIMESTAMP,
            rows_max=1,
            aborted=AbortedTransactions(data.aborted) if committed_only else None,
        )
    except InvalidBatch as error:
        raise data.unreadable(data.fetch_offset, error) from error
    if not decoded.rows or decoded.timestamp is None:
        return None
    return int(memoryview(decoded.timestamp).cast("q")[0])


def _contents(column: BinaryColumn | None, rows: int) -> list[bytes | None]:
    if column is None:
        return [None] * rows
    offsets = memoryview(column.offsets).cast("B").cast("q" if column.large else "i").tolist()
    data = bytes(column.data or b"")
    contents: list[bytes | None] = [data[offsets[row] : offsets[row + 1]] for row in range(rows)]
    if column.null_count and column.validity is not None:
        validity = memoryview(column.validity).cast("B")
        for row in range(rows):
            if not validity[row >> 3] >> (row & 7) & 1:
                contents[row] = None
    return contents


def _headers(column: HeadersColumn | None, rows: int) -> list[Sequence[Header]]:
    if column is None:
        return [()] * rows
    offsets = memoryview(column.offsets).cast("B").cast("i").tolist()
    count = offsets[rows] if rows else 0
    keys = [(key or b"").decode(errors="replace") for key in _contents(column.keys, count)]
    values = _contents(column.values, count)
    pairs = list(zip(keys, values, strict=True))
    return [pairs[offsets[row] : offsets[row + 1]] for row in range(rows)]
