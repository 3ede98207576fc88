"""Fetched pieces as columns or records: decoded in bulk, cut into objects only where somebody asks. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise, repeat
from typing import Any, Final, NamedTuple

from tidelog.client.fetching import FetchedData
from tidelog.model.identifiers import TopicPartition
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
"""Records decoded at a time, as columns."""
OBJECTS_MAX: Final = 2_000
"""Records decoded at a time where each becomes an object: their bytes are copied while they lie in the cache."""

Header = tuple[str, bytes | None]


class ConsumedRecord(NamedTuple):
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


_new_record: Final[Callable[[type[ConsumedRecord], Iterable[Any]], ConsumedRecord]] = tuple.__new__
"""What `ConsumedRecord._make` does, without its frame."""


def consumed_columns(
    data: FetchedData,
    end_offset: int | None = None,
    columns: Column = ALL,
    *,
    committed_only: bool = False,
    rows_max: int = ROWS_MAX,
) -> Iterator[Columns]:
    """The records of a piece from its fetch offset up to `end_offset` (exclusive), `rows_max` at a time, as columns.

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
                rows_max=rows_max,
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
    always = Column.OFFSET | Column.TIMESTAMP | Column.TIMESTAMP_TYPE
    slices = consumed_columns(data, end_offset, columns | always, committed_only=committed_only, rows_max=OBJECTS_MAX)
    return chain.from_iterable(map(_records, repeat(data.topic_partition), slices))


def _records(topic_partition: TopicPartition, decoded: Columns) -> Iterator[ConsumedRecord]:
    """Records of decoded columns. Nothing here is Python code that runs once a record: that is what it costs."""
    assert decoded.offset is not None
    assert decoded.timestamp is not None
    assert decoded.timestamp_type is not None
    fields = zip(
        repeat(topic_partition.topic),
        repeat(topic_partition.partition),
        memoryview(decoded.offset).cast("q").tolist(),
        memoryview(decoded.timestamp).cast("q").tolist(),
        memoryview(decoded.timestamp_type).cast("i").tolist(),
        _contents(decoded.key, decoded.rows),
        _contents(decoded.value, decoded.rows),
        _headers(decoded.headers, decoded.rows),
        strict=False,
    )
    return map(_new_record, repeat(ConsumedRecord), fields)


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


def _contents(column: BinaryColumn | None, rows: int) -> Iterable[bytes | None]:
    if column is None or column.null_count == rows:
        return repeat(None, rows)
    offsets = memoryview(column.offsets).cast("B").cast("q" if column.large else "i").tolist()
    data = bytes(column.data or b"")
    contents: list[bytes | None] = [data[start:end] for start, end in pairwise(offsets[: rows + 1])]
    if column.null_count and column.validity is not None:
        validity = memoryview(column.validity).cast("B")
        for row in range(rows):
            if not validity[row >> 3] >> (row & 7) & 1:
                contents[row] = None
    return contents


def _headers(column: HeadersColumn | None, rows: int) -> Iterable[Sequence[Header]]:
    if column is None:
        return repeat((), rows)
    offsets = memoryview(column.offsets).cast("B").cast("i").tolist()
    count = offsets[rows] if rows else 0
    if not count:
        return repeat((), rows)
    keys = [(key or b"").decode(errors="replace") for key in _contents(column.keys, count)]
    pairs = list(zip(keys, _contents(column.values, count), strict=True))
    return [pairs[start:end] for start, end in pairwise(offsets[: rows + 1])]
