"""Columns: what to take, where to stop and where to go on, by the kernel and by its twin."""

from __future__ import annotations

from array import array

import pytest
from tests.kernel import needs_kernel

from tidelog.model.errors import ErrorCode
from tidelog.records import _pure, column_implementation
from tidelog.records.aborted_transactions import AbortedTransactions
from tidelog.records.batch import (
    HEADER_SIZE,
    build_batch,
    build_empty_batch,
    iterate_headers,
    read_header,
    read_records,
)
from tidelog.records.columns import (
    ALL,
    BinaryColumn,
    Column,
    Columns,
    HeadersColumn,
    decode_columns,
    encode_columns,
)
from tidelog.records.compression import Codec
from tidelog.records.control import ControlRecordType, EndTxnMarker, build_end_txn_batch
from tidelog.records.errors import CorruptData, InvalidBatch
from tidelog.records.legacy import build_messages
from tidelog.records.record import Record


@pytest.fixture(autouse=True, params=[pytest.param("kernel", marks=needs_kernel), "twin"])
def _implementations(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test holds for both."""
    if request.param == "twin":
        for name in ("ColumnBuilder", "BinarySource", "encode_section"):
            monkeypatch.setattr(column_implementation, name, getattr(_pure, name))


def rows_of(columns: Columns) -> list[Record]:
    """The rows of columns that were all asked for."""
    assert columns.offset is not None
    assert columns.timestamp is not None
    assert columns.headers is not None
    offsets, timestamps = array("q", bytes(columns.offset)), array("q", bytes(columns.timestamp))
    keys, values = contents(columns.key, columns.rows), contents(columns.value, columns.rows)
    lists = array("i", bytes(columns.headers.offsets))
    names, header_values = contents(columns.headers.keys, lists[-1]), contents(columns.headers.values, lists[-1])
    return [
        Record(
            offsets[row],
            timestamps[row],
            keys[row],
            values[row],
            tuple(
                (name.decode(), value)
                for name, value in zip(
                    names[lists[row] : lists[row + 1]], header_values[lists[row] : lists[row + 1]], strict=True
                )
                if name is not None
            ),
        )
        for row in range(columns.rows)
    ]


def contents(column: BinaryColumn | None, rows: int) -> list[bytes | None]:
    assert column is not None
    source = _pure.BinarySource(column.offsets, column.data, column.validity, column.first, column.large, rows)
    found = [source.get(row) for row in range(rows)]
    assert found.count(None) == column.null_count
    return [None if content is None else bytes(content) for content in found]


def records(start: int, count: int) -> list[Record]:
    return [
        Record(
            offset,
            1000 + offset,
            None if offset % 3 == 0 else b"k%d" % offset,
            None if offset % 5 == 0 else b"v%d" % offset * (offset % 4),
            tuple((f"h{index}", None if index else b"%d" % offset) for index in range(offset % 3)),
        )
        for offset in range(start, start + count)
    ]


LOG = [
    build_batch(records(0, 10), codec=Codec.LZ4),
    build_batch(records(10, 1)),
    build_batch(records(20, 9), base_offset=15, last_offset=29, codec=Codec.ZSTD),
    build_empty_batch(base_offset=30, last_offset=39, timestamp=5),
    build_end_txn_batch(
        EndTxnMarker(ControlRecordType.COMMIT, 0), timestamp=1, producer_id=1, producer_epoch=0, base_offset=40
    ),
    build_batch(records(41, 9), codec=Codec.SNAPPY),
]
ROWS = records(0, 11) + records(20, 9) + records(41, 9)


def test_all_rows_of_all_batches() -> None:
    """Control batches and empty ones are passed over; the next offset follows the last batch."""
    data = b"".join(LOG)
    found = decode_columns(data, columns=ALL)
    assert rows_of(found) == ROWS
    assert (found.next_offset, found.position) == (50, len(data))
    assert found.timestamp_type is not None
    assert bytes(found.timestamp_type) == bytes(4 * len(ROWS))


@pytest.mark.parametrize("rows_max", [1, 2, 7, 10, 100])
def test_slices_join_to_the_whole(rows_max: int) -> None:
    """Whatever the slice, resuming by position and next offset skips nothing and repeats nothing."""
    data = b"".join(LOG)
    position = next_offset = 0
    found: list[Record] = []
    while position < len(data):
        part = decode_columns(data, columns=ALL, position=position, start_offset=next_offset, rows_max=rows_max)
        assert part.rows <= rows_max
        assert (part.position, part.next_offset) > (position, next_offset)
        found += rows_of(part)
        position, next_offset = part.position, part.next_offset
    assert found == ROWS


@pytest.mark.parametrize("bytes_max", [1, 10, 40, 10_000])
def test_slices_by_bytes_join_to_the_whole(bytes_max: int) -> None:
    """Bytes bound a slice, but one row always comes."""
    data = b"".join(LOG)
    position = next_offset = 0
    found: list[Record] = []
    while position < len(data):
        part = decode_columns(data, columns=ALL, position=position, start_offset=next_offset, bytes_max=bytes_max)
        size = sum(len(record.key or b"") + len(record.value or b"") for record in rows_of(part))
        assert part.rows <= 1 or size <= bytes_max
        found += rows_of(part)
        position, next_offset = part.position, part.next_offset
    assert found == ROWS


@pytest.mark.parametrize("start", [0, 5, 11, 25, 29, 41, 49, 50, 60])
@pytest.mark.parametrize("end", [0, 3, 10, 15, 29, 40, 50, 60])
def test_offsets_bound_the_rows(start: int, end: int) -> None:
    """Rows are those with start <= offset < end, and a range that is done ends at its end."""
    found = decode_columns(b"".join(LOG), columns=ALL, start_offset=start, end_offset=end)
    assert rows_of(found) == [record for record in ROWS if start <= record.offset < end]
    if end <= 50:
        assert found.next_offset == max(start, end)


def test_only_the_columns_asked_for() -> None:
    """A mask leaves the others out, and their bytes do not count against the bound."""
    found = decode_columns(LOG[0], columns=Column.KEY | Column.OFFSET, bytes_max=30)
    assert (found.timestamp, found.timestamp_type, found.value, found.headers) == (None, None, None, None)
    assert contents(found.key, found.rows) == [record.key for record in records(0, 10)]
    assert decode_columns(LOG[0], columns=Column(0)).rows == 10


def test_without_nulls_there_is_no_bitmap() -> None:
    """Validity is None where every row has a value."""
    found = decode_columns(build_batch([Record(0, 0, None, b"")]))
    assert found.key is not None
    assert found.value is not None
    assert (found.key.null_count, found.value.validity) == (1, None)


def test_timestamps_in_microseconds_and_of_appending() -> None:
    """The scale multiplies; with log append time the batch's stamp is every row's, and the type says so."""
    found = decode_columns(build_batch(records(0, 2), log_append_time=77), timestamp_scale=1000)
    assert found.timestamp is not None
    assert found.timestamp_type is not None
    assert list(array("q", bytes(found.timestamp))) == [77_000, 77_000]
    assert list(array("i", bytes(found.timestamp_type))) == [1, 1]


def test_a_timestamp_that_microseconds_do_not_hold_is_refused_by_its_offset() -> None:
    """Nanoseconds where milliseconds belong: multiplied they would wrap to another date. What lies before the record,
    what is read without timestamps, and what begins after it, is read."""
    good, bad = 2**63 // 1000, 1_700_000_000_000_000_000
    rows = [Record(0, good, None, b"a"), Record(1, bad, None, b"b"), Record(2, -good, None, b"c")]
    batch = build_batch(rows)
    with pytest.raises(InvalidBatch, match=r"offset 1 has the timestamp 1700000000000000000 ms") as caught:
        decode_columns(batch, timestamp_scale=1000)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    for bounds in ({"end_offset": 1}, {"start_offset": 2}):
        found = decode_columns(batch, timestamp_scale=1000, **bounds)
        assert found.timestamp is not None
        assert abs(array("q", bytes(found.timestamp))[0]) == good * 1000
    assert decode_columns(batch, timestamp_scale=1000, columns=Column.VALUE).rows == 3
    assert decode_columns(batch).rows == 3


def test_a_partial_tail_is_left() -> None:
    """A fetch may end in the middle of a batch; the position tells where it begins."""
    data = LOG[0] + LOG[1]
    for size in range(len(LOG[0]), len(data)):
        found = decode_columns(data[:size])
        assert (found.rows, found.position, found.next_offset) == (10, len(LOG[0]), 10)


def test_aborted_transactions_are_skipped() -> None:
    """The batches of a producer between the first offset of its aborted transaction and the marker do not show."""

    def transactional(start: int, producer_id: int) -> bytes:
        return build_batch(
            [Record(start, 0, None, b"%d" % producer_id)], producer_id=producer_id, producer_epoch=0, transactional=True
        )

    def end(offset: int, producer_id: int, kind: ControlRecordType) -> bytes:
        return build_end_txn_batch(
            EndTxnMarker(kind, 0), timestamp=0, producer_id=producer_id, producer_epoch=0, base_offset=offset
        )

    data = b"".join(
        (
            transactional(0, 1),
            transactional(1, 2),
            build_batch([Record(2, 0, None, b"plain")], producer_id=1, producer_epoch=0, base_sequence=0),
            end(3, 1, ControlRecordType.ABORT),
            transactional(4, 1),
            end(5, 2, ControlRecordType.COMMIT),
            transactional(6, 2),
            end(7, 1, ControlRecordType.COMMIT),
            end(8, 2, ControlRecordType.ABORT),
            transactional(9, 2),
        )
    )
    aborted = [(2, 6), (1, 0)]
    assert [record.offset for record in rows_of(decode_columns(data, columns=ALL))] == [0, 1, 2, 4, 6, 9]
    found = decode_columns(data, columns=ALL, aborted=AbortedTransactions(aborted))
    assert [record.offset for record in rows_of(found)] == [1, 2, 4, 9]
    memory = AbortedTransactions(aborted)
    position = next_offset = 0
    sliced: list[int] = []
    while position < len(data):
        part = decode_columns(
            data, columns=ALL, position=position, start_offset=next_offset, rows_max=1, aborted=memory
        )
        position, next_offset = part.position, part.next_offset
        sliced += [record.offset for record in rows_of(part)]
    assert sliced == [1, 2, 4, 9]


def test_damage_ends_the_slice_before_it_and_raises_next() -> None:
    """What is good comes out first; the damaged batch raises when it is the first to be read."""
    damaged = bytearray(b"".join(LOG[:3]))
    damaged[len(LOG[0]) + HEADER_SIZE] ^= 1
    found = decode_columns(damaged, columns=ALL)
    assert rows_of(found) == records(0, 10)
    assert (found.position, found.next_offset) == (len(LOG[0]), 10)
    with pytest.raises(InvalidBatch, match="Record is corrupt"):
        decode_columns(damaged, position=found.position, start_offset=found.next_offset)
    assert rows_of(decode_columns(damaged, columns=ALL, position=len(LOG[0]) + len(LOG[1]))) == records(20, 9)


def test_half_a_malformed_batch_does_not_show() -> None:
    """Rows that were taken from a batch before it proved malformed are taken back, bitmaps included."""
    broken = bytearray(build_batch(records(10, 9)))
    broken[-1] ^= 0x40  # In the last record: its header count.
    found = decode_columns(LOG[0] + broken, columns=ALL, verify_crc=False)
    assert rows_of(found) == records(0, 10)
    with pytest.raises(CorruptData, match="record 8 of 9"):
        decode_columns(broken, verify_crc=False)


def test_offsets_that_do_not_rise_are_malformed() -> None:
    """A reader that resumes by offset would run in circles."""
    for deltas in ((1, 1), (2, 1), (0, 5)):
        data = build_batch([Record(delta, 0, None, b"") for delta in deltas], base_offset=0, last_offset=3)
        with pytest.raises(CorruptData, match="offset delta"):
            decode_columns(data)


def test_old_formats_raise() -> None:
    """A message set of an old client is refused by name."""
    with pytest.raises(InvalidBatch, match="message format 1"):
        decode_columns(build_messages(records(0, 3), magic=1))


def test_bounds_must_let_a_row_through() -> None:
    """A bound of nothing is a mistake of the caller."""
    for bounds in ({"rows_max": 0}, {"bytes_max": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            decode_columns(b"", **bounds)  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", list(Codec))
def test_columns_become_batches(codec: Codec) -> None:
    """What was decoded encodes to the same records; offsets and sequences count on from batch to batch."""
    rows = records(100, 50)
    columns = decode_columns(build_batch(rows), columns=ALL)
    assert columns.timestamp is not None
    batches = encode_columns(
        rows=columns.rows,
        timestamp=columns.timestamp,
        key=columns.key,
        value=columns.value,
        headers=columns.headers,
        batch_bytes_max=200,
        codec=codec,
        base_offset=100,
        producer_id=4,
        producer_epoch=1,
        base_sequence=2**31 - 10,
        transactional=True,
    )
    assert len(batches) > 5
    assert [record for batch in batches for record in read_records(batch)] == rows
    expected_sequence = 2**31 - 10
    for batch in batches:
        header = read_header(batch)
        assert header.base_sequence == expected_sequence
        assert (header.codec, header.producer_id, header.is_transactional) == (codec, 4, True)
        if codec is Codec.NONE:
            assert header.size <= 200 + HEADER_SIZE or header.records_count == 1
        expected_sequence = (expected_sequence + header.records_count) % 2**31
    assert [found.header for found in map(_Whole, batches)] == [read_header(batch) for batch in batches]


class _Whole:
    """A batch on its own: iterating finds exactly it, and its checksum holds."""

    def __init__(self, batch: bytes | bytearray) -> None:
        ((_, self.header),) = iterate_headers(batch)
        decode_columns(batch)


def test_slices_of_arrow_arrays() -> None:
    """`first` skips rows in offsets and bitmaps; large offsets and missing columns are taken as they are."""
    offsets = array("q", [0, 1, 3, 6, 6])
    key = BinaryColumn(offsets, b"abbccc", validity=b"\x07", null_count=1, first=1, large=True)
    (batch,) = encode_columns(rows=3, timestamp=array("q", [-1, 1999, 2000]), key=key, timestamp_scale=1000)
    assert [(record.key, record.value, record.timestamp) for record in read_records(batch)] == [
        (b"bb", None, -1),
        (b"ccc", None, 1),
        (None, None, 2),
    ]
    assert encode_columns(rows=0, timestamp=b"", key=BinaryColumn(b"", None)) == []


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (BinaryColumn(array("i", [0, 1]), b"a"), "do not hold rows"),
        (BinaryColumn(array("i", [0, 2, 1]), b"abc"), "not ascending"),
        (BinaryColumn(array("i", [-1, 0, 1]), b"abc"), "not ascending"),
        (BinaryColumn(array("i", [0, 1, 4]), b"abc"), "past the data's end"),
        (BinaryColumn(array("i", [0, 1, 1]), None), "past the data's end"),
        (BinaryColumn(array("i", [0, 1, 2]), b"ab", validity=b""), "do not hold rows"),
        (BinaryColumn(array("i", [0, 1, 2]), b"ab", first=1), "do not hold rows"),
        (BinaryColumn(array("i", [0, 1, 2]), b"ab", first=-1), "do not hold rows"),
    ],
)
def test_buffers_that_do_not_hold_the_rows_are_refused(column: BinaryColumn, words: str) -> None:
    """Nothing outside a buffer is ever read."""
    with pytest.raises(ValueError, match=words):
        encode_columns(rows=2, timestamp=array("q", [0, 0]), value=column)


def test_headers_that_do_not_hold_the_rows_are_refused() -> None:
    """List offsets are checked too, and a header needs a key."""
    one = BinaryColumn(array("i", [0, 1]), b"h")
    for lists in ([0, 2], [1, 0], [-1, 1]):
        with pytest.raises(ValueError, match=r"rows|headers"):
            encode_columns(rows=1, timestamp=bytes(8), headers=HeadersColumn(array("i", lists), one, one))
    with pytest.raises(ValueError, match="do not hold rows"):
        encode_columns(rows=1, timestamp=bytes(8), headers=HeadersColumn(array("i", [0]), one, one))
    null = BinaryColumn(array("i", [0, 1]), b"h", validity=b"\x00", null_count=1)
    with pytest.raises(ValueError, match="without a key"):
        encode_columns(rows=1, timestamp=bytes(8), headers=HeadersColumn(array("i", [0, 1]), null, one))


def test_too_few_timestamps_are_refused() -> None:
    """Every row needs one."""
    with pytest.raises(ValueError, match="timestamps"):
        encode_columns(rows=2, timestamp=bytes(8))
