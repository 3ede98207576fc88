"""Fetched pieces as columns or records: decoded in bulk, cut into objects only on demand. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from tidelog.client.fetching import FetchedData
from tidelog.records.aborted_transactions import AbortedTransactions
from tidelog.records.columns import (
    ALL,
    Column,
    Columns,
    decode_columns,
    decode_rows,
)
from tidelog.records.errors import InvalidBatch

ROWS_MAX: Final = 20_000
"""Records decoded at a time, as columns."""
OBJECTS_MAX: Final = 500
"""Records decoded at a time where each becomes an object: more no longer lie in the cache when they are read."""

OBJECT_BYTES_MAX: Final = 96 << 10
"""Bytes of keys, values and headers decoded at a time there. Less than what a C library's allocator gives back to the
system when it is freed (glibc: 128 KiB): memory that goes and comes anew costs more than what is copied into it."""

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
                opened=data.opened,
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
    return chain.from_iterable(_slices(data, end_offset, columns, committed_only))


def _slices(
    data: FetchedData, end_offset: int | None, columns: Column, committed_only: bool
) -> Iterator[list[ConsumedRecord]]:
    """The records, `OBJECTS_MAX` at a time. No Python code runs once a record: that is what it costs."""
    aborted = AbortedTransactions(data.aborted) if committed_only else None
    position, start = 0, data.fetch_offset
    topic, partition = data.topic_partition
    while position < len(data.records):
        try:
            records, following, after = decode_rows(
                data.records,
                ConsumedRecord,
                topic,
                partition,
                position=position,
                start_offset=start,
                end_offset=end_offset,
                columns=columns,
                rows_max=OBJECTS_MAX,
                bytes_max=OBJECT_BYTES_MAX,
                aborted=aborted,
                opened=data.opened,
            )
        except InvalidBatch as error:
            raise data.unreadable(start, error) from error
        if not records and (after, following) == (position, start):
            return
        position, start = after, following
        yield records
        if end_offset is not None and start >= end_offset:
            return


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
