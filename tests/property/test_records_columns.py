"""The kernel and its Python twin agree on everything: rows, bounds, errors, and bytes that were never batches."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples
from tests.kernel import needs_kernel

from tidelog.records import _pure, column_implementation, implementation
from tidelog.records.batch import HEADER_SIZE, build_batch, read_header, read_records, seal
from tidelog.records.columns import (
    ALL,
    BinaryColumn,
    Column,
    Columns,
    HeadersColumn,
    OpenBatch,
    Rows,
    decode_columns,
    decode_rows,
    encode_columns,
)
from tidelog.records.compression import Codec
from tidelog.records.errors import CorruptData, InvalidBatch
from tidelog.records.record import Header, Record, encode_records, wrap_int64

pytestmark = needs_kernel
EXAMPLES = settings(max_examples=examples(2000), deadline=None)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
CONTENT = st.none() | st.binary(max_size=12) | st.just(bytes(100))
NAMES = st.sampled_from(("", "h", "trace-id", "schlüssel", "中文"))
HEADERS = st.just(()) | st.lists(st.tuples(NAMES, CONTENT), max_size=3).map(tuple)

FUNCTIONS = {
    column_implementation: ("ColumnBuilder", "RowBuilder", "BinarySource", "encode_section"),
    implementation: ("read_pairs", "scan_records"),
}
KERNEL = {(module, name): getattr(module, name) for module, names in FUNCTIONS.items() for name in names}
TWIN = {(module, name): getattr(_pure, name) for module, name in KERNEL}


GAPS = st.sampled_from((1, 1, 1, 2, 3, 1000))


def _record_list(
    first: int, rows: list[tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]]
) -> list[Record]:
    offsets = accumulate((gap for gap, *_ in rows[1:]), initial=first)
    return [Record(offset, *row) for offset, (_, *row) in zip(offsets, rows, strict=True)]


RECORD_LISTS = st.builds(
    _record_list,
    st.integers(0, 2**40),
    st.lists(st.tuples(GAPS, st.integers(-1, 2**42), CONTENT, CONTENT, HEADERS), min_size=1, max_size=7),
)
"""Records as they follow one another in a batch, with gaps as compaction leaves them."""


class Row(NamedTuple):
    """What `decode_rows` makes here."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


def rows(data: bytes | bytearray, **options: Any) -> Rows[Row]:
    return decode_rows(data, Row, "t", 3, **options)


def outcome(
    of: dict[Any, Any], data: bytes | bytearray, decode: Callable[..., Any] = decode_columns, **options: Any
) -> Any:
    """What one implementation makes of the data: columns or rows, or the words of its refusal."""
    for (module, name), value in of.items():
        setattr(module, name, value)
    try:
        return decode(data, **options)
    except InvalidBatch as error:
        return f"{type(error).__name__} {error}"
    finally:
        for (module, name), value in KERNEL.items():
            setattr(module, name, value)


def encode_damaged(records: list[Record], damage: tuple[int, int] | None) -> bytearray:
    """The records section of a batch; `damage`: a position, wherever it falls, and what its byte is changed by."""
    section = bytearray(encode_records(records, records[0].offset, records[0].timestamp))
    if damage is not None:
        section[damage[0] % len(section)] ^= damage[1]
    return section


@EXAMPLES
@given(
    batches=st.lists(st.tuples(RECORD_LISTS, st.sampled_from(Codec)), min_size=1, max_size=3),
    columns=st.integers(0, 63),
    start_skip=st.integers(0, 12),
    end_skip=st.none() | st.integers(0, 40),
    rows_max=st.integers(1, 30),
    bytes_max=st.integers(1, 500),
    scale=st.sampled_from((1, 1000)),
)
def test_decoding_agrees(
    batches: list[tuple[list[Record], Codec]],
    columns: int,
    start_skip: int,
    end_skip: int | None,
    rows_max: int,
    bytes_max: int,
    scale: int,
) -> None:
    """Any batches, any mask, any bounds: the same buffers and the same place to go on, slice after slice."""
    base = batches[0][0][0].offset
    data = b"".join(build_batch(records, codec=codec) for records, codec in batches)
    options: dict[str, Any] = {
        "columns": Column(columns),
        "start_offset": base + start_skip,
        "end_offset": None if end_skip is None else base + end_skip,
        "rows_max": rows_max,
        "bytes_max": bytes_max,
        "timestamp_scale": scale,
    }
    position = -1
    while True:
        kernel, twin = outcome(KERNEL, data, **options), outcome(TWIN, data, **options)
        assert kernel == twin
        assert isinstance(kernel, Columns)
        if (kernel.position, kernel.next_offset) == (position, options["start_offset"]) or kernel.position == len(data):
            break
        position = options["position"] = kernel.position
        options["start_offset"] = kernel.next_offset


@EXAMPLES
@given(
    batches=st.lists(st.tuples(RECORD_LISTS, st.sampled_from(Codec)), min_size=1, max_size=3),
    columns=st.integers(0, 7).map(lambda bits: bits << 3),
    start_skip=st.integers(0, 12),
    end_skip=st.none() | st.integers(0, 40),
    rows_max=st.integers(1, 30),
)
def test_records_as_objects_are_those_of_the_batches(
    batches: list[tuple[list[Record], Codec]], columns: int, start_skip: int, end_skip: int | None, rows_max: int
) -> None:
    """By the kernel as by the twin, slice after slice; key, value and headers only where they are asked for."""
    ascending = batches[:1]
    for batch in batches[1:]:
        if batch[0][0].offset > ascending[-1][0][-1].offset:
            ascending.append(batch)
    batches = ascending
    base = batches[0][0][0].offset
    start, end = base + start_skip, 2**63 if end_skip is None else base + end_skip
    data = b"".join(build_batch(records, codec=codec) for records, codec in batches)
    options: dict[str, Any] = {"columns": Column(columns), "start_offset": start, "rows_max": rows_max}
    options["end_offset"] = None if end_skip is None else end
    found: list[Row] = []
    while True:
        kernel, twin = outcome(KERNEL, data, rows, **options), outcome(TWIN, data, rows, **options)
        assert kernel == twin
        assert {type(row) for row in kernel.records} <= {Row}
        found += kernel.records
        if (kernel.position, kernel.next_offset) == (options.get("position", -1), options["start_offset"]):
            break
        if kernel.position == len(data) or kernel.next_offset >= end:
            break
        options["position"], options["start_offset"] = kernel.position, kernel.next_offset
    expected = []
    for records, _ in batches:
        for record in records:
            if start <= record.offset < end:
                key = record.key if columns & Column.KEY else None
                value = record.value if columns & Column.VALUE else None
                headers = record.headers if columns & Column.HEADERS else ()
                expected.append(Row("t", 3, record.offset, record.timestamp, 0, key, value, list(headers) or ()))
    assert found == expected


@settings(max_examples=examples(400), deadline=None)
@given(
    batches=st.lists(st.tuples(RECORD_LISTS, st.sampled_from(Codec)), min_size=1, max_size=3),
    start_skip=st.integers(0, 12),
    sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 300), st.booleans()), min_size=1, max_size=4),
)
def test_slices_that_go_on_in_an_open_batch_are_the_same(
    batches: list[tuple[list[Record], Codec]], start_skip: int, sizes: list[tuple[int, int, bool]]
) -> None:
    """As objects or columns in turn, of any sizes: rows and places are those of slices that open each batch anew."""
    data = b"".join(build_batch(records, codec=codec) for records, codec in batches)
    opened = {"kernel": OpenBatch(), "twin": OpenBatch()}
    options: dict[str, Any] = {"columns": ALL, "start_offset": batches[0][0][0].offset + start_skip, "position": 0}
    for rows_max, bytes_max, as_rows in sizes * 10:
        decode = rows if as_rows else decode_columns
        options |= {"rows_max": rows_max, "bytes_max": bytes_max}
        anew = outcome(KERNEL, data, decode, **options)
        assert outcome(KERNEL, data, decode, **options, opened=opened["kernel"]) == anew
        assert outcome(TWIN, data, decode, **options, opened=opened["twin"]) == anew
        options |= {"position": anew.position, "start_offset": anew.next_offset}


@EXAMPLES
@given(
    records=RECORD_LISTS,
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=3),
    cut=st.none() | st.integers(0, 10**6),
    count_change=st.integers(-2, 2),
    start_skip=st.integers(0, 3),
    rows_max=st.integers(1, 20),
)
def test_damage_is_refused_alike(
    records: list[Record],
    changes: list[tuple[int, int]],
    cut: int | None,
    count_change: int,
    start_skip: int,
    rows_max: int,
) -> None:
    """Bytes changed anywhere in the records, or cut, under a valid header: the same rows or the same words."""
    section = bytearray(encode_records(records, records[0].offset, records[0].timestamp))
    for where, mask in changes:
        section[where % len(section)] ^= mask
    if cut is not None:
        del section[cut % len(section) :]
    header = read_header(build_batch(records))
    data = bytearray(HEADER_SIZE) + section
    seal(data, header._replace(records_count=max(header.records_count + count_change, 0)))
    options: dict[str, Any] = {"columns": ALL, "start_offset": records[0].offset + start_skip, "rows_max": rows_max}
    assert outcome(KERNEL, data, **options) == outcome(TWIN, data, **options)
    assert outcome(KERNEL, data, rows, **options) == outcome(TWIN, data, rows, **options)
    assert scan(implementation, section, len(records)) == scan(_pure, section, len(records))


@EXAMPLES
@given(section=st.binary(max_size=200), count=st.integers(0, 40), base=INT64, base_timestamp=INT64, span=INT32)
def test_noise_is_refused_alike(section: bytes, count: int, base: int, base_timestamp: int, span: int) -> None:
    """Bytes that were never records, with any header numbers: no crash, and no difference."""
    assert scan(implementation, section, count, base_timestamp) == scan(_pure, section, count, base_timestamp)
    data = bytearray(HEADER_SIZE) + section
    template = read_header(build_batch([Record(0, 0, None, None)]))
    seal(
        data,
        template._replace(records_count=count, base_offset=base, base_timestamp=base_timestamp, last_offset_delta=span),
    )
    options: dict[str, Any] = {"columns": ALL, "start_offset": -(2**62)}
    assert outcome(KERNEL, data, **options) == outcome(TWIN, data, **options)


@EXAMPLES
@given(data=st.binary(max_size=300), verify_crc=st.booleans())
def test_noise_is_no_batch(data: bytes, verify_crc: bool) -> None:
    """Any bytes at all decode to rows or are refused as what they are; nothing else is raised."""
    outcome(KERNEL, data, columns=ALL, verify_crc=verify_crc)


@EXAMPLES
@given(
    records=RECORD_LISTS,
    batch_bytes_max=st.integers(1, 400),
    codec=st.sampled_from(Codec),
    scale=st.sampled_from((1, 1000)),
    first=st.integers(0, 9),
    large=st.booleans(),
)
def test_encoding_agrees(
    records: list[Record], batch_bytes_max: int, codec: Codec, scale: int, first: int, large: bool
) -> None:
    """The same bytes from both, which read back as the rows that went in."""
    rows = [
        record._replace(offset=index, headers=tuple((name, value) for name, value in record.headers))
        for index, record in enumerate(records)
    ]
    headers = [header for record in rows for header in record.headers]
    lists = array("i", [0])
    for record in rows:
        lists.append(lists[-1] + len(record.headers))
    options: dict[str, Any] = {
        "rows": len(rows),
        "timestamp": array("q", [record.timestamp * scale for record in rows]),
        "key": binary([record.key for record in rows], first, large),
        "value": binary([record.value for record in rows], 0, False),
        "headers": HeadersColumn(
            lists,
            binary([name.encode() for name, _ in headers], 0, False),
            binary([value for _, value in headers], first, large),
        ),
        "timestamp_scale": scale,
        "batch_bytes_max": batch_bytes_max,
        "codec": codec,
    }
    kernel = encode_columns(**options)
    for (module, name), value in TWIN.items():
        setattr(module, name, value)
    try:
        twin = encode_columns(**options)
    finally:
        for (module, name), value in KERNEL.items():
            setattr(module, name, value)
    assert kernel == twin
    assert [record for batch in kernel for record in read_records(batch)] == rows


@EXAMPLES
@given(values=st.lists(INT64, min_size=2, max_size=20))
def test_any_timestamps_encode_alike(values: list[int]) -> None:
    """Differences beyond 64 bits wrap, and still read back."""
    kernel = column_implementation.encode_section(
        0, 0, len(values), 10**6, memoryview(array("q", values)), 1, *[None] * 3, 0, None, None
    )
    twin = _pure.encode_section(0, 0, len(values), 10**6, memoryview(array("q", values)), 1, *[None] * 3, 0, None, None)
    assert kernel == twin
    decoded = _pure.decode_fields(kernel[0], len(values))
    assert [wrap_int64(values[0] + fields.timestamp_delta) for fields in decoded] == values


@EXAMPLES
@given(records=RECORD_LISTS, damage=st.none() | st.tuples(st.integers(0, 300), st.integers(1, 255)))
def test_pairs_are_read_alike(records: list[Record], damage: tuple[int, int] | None) -> None:
    """Keys and values of a batch; what is damaged is refused in the same words."""
    data = bytearray(build_batch(records))
    if damage is not None:
        at = HEADER_SIZE + damage[0] % (len(data) - HEADER_SIZE)
        data[at] ^= damage[1]
    header = read_header(data)
    section = memoryview(data)[HEADER_SIZE:]

    def pairs(implementation: Any) -> Any:
        try:
            return implementation.read_pairs(section, header.records_count, header.last_offset_delta)
        except CorruptData as error:
            return str(error)

    assert pairs(implementation) == pairs(_pure)
    if damage is None:
        assert pairs(_pure) == [(record.offset - records[0].offset, record.key, record.value) for record in records]


@EXAMPLES
@given(
    records=RECORD_LISTS,
    damage=st.none() | st.tuples(st.integers(0, 300), st.integers(1, 255)),
    count_change=st.integers(-2, 2),
    delta=st.integers(-2, 3000),
)
def test_a_record_is_found_alike(
    records: list[Record], damage: tuple[int, int] | None, count_change: int, delta: int
) -> None:
    """The first one with an offset delta or a greater one; the same place, or the same words."""
    section = encode_damaged(records, damage)
    count = len(records) + count_change

    def find(implementation: Any) -> Any:
        try:
            return implementation.find_record(section, count, delta)
        except CorruptData as error:
            return str(error)

    assert find(implementation) == find(_pure)
    if damage is None and count_change >= 0:
        left = [record.offset for record in records if record.offset - records[0].offset >= delta]
        if left:
            index, position = find(_pure)
            assert [record.offset for record in records[index:]] == left
            assert section[position:] == encode_records(records[index:], records[0].offset, records[0].timestamp)


@EXAMPLES
@given(
    records=RECORD_LISTS,
    damage=st.none() | st.tuples(st.integers(0, 300), st.integers(1, 255)),
    count_change=st.integers(-2, 2),
    base=INT64,
    stamp=st.none() | INT64,
    wanted=INT64 | st.integers(0, 40),
    delta=st.integers(0, 3000),
)
def test_a_time_is_found_alike(
    records: list[Record],
    damage: tuple[int, int] | None,
    count_change: int,
    base: int,
    stamp: int | None,
    wanted: int,
    delta: int,
) -> None:
    """The first record that is as late, from an offset on; the same one, or the same words."""
    section = encode_damaged(records, damage)
    count = len(records) + count_change
    timestamp = records[wanted % len(records)].timestamp if 0 <= wanted <= 40 else wanted

    def find(implementation: Any, base: int) -> Any:
        try:
            return implementation.find_timestamp(section, count, base, stamp, timestamp, delta)
        except CorruptData as error:
            return str(error)

    assert find(implementation, base) == find(_pure, base)
    if damage is None and count_change == 0 and stamp is None:
        first = records[0]
        late = [
            (record.offset - first.offset, record.timestamp)
            for record in records
            if record.timestamp >= timestamp and record.offset - first.offset >= delta
        ]
        assert find(_pure, first.timestamp) == (late[0] if late else None)


@EXAMPLES
@given(
    records=RECORD_LISTS,
    damage=st.none() | st.tuples(st.integers(0, 300), st.integers(1, 255)),
    count_change=st.integers(-2, 2),
    base=INT64,
    bounds=st.tuples(INT64, INT64),
    keys_required=st.booleans(),
    named_max=st.integers(0, 5),
)
def test_faults_are_found_alike(
    records: list[Record],
    damage: tuple[int, int] | None,
    count_change: int,
    base: int,
    bounds: tuple[int, int],
    keys_required: bool,
    named_max: int,
) -> None:
    """Records without a key, and such out of range; the same ones and as many, or the same words."""
    section = encode_damaged(records, damage)
    lowest, highest = sorted(bounds)

    def find(implementation: Any) -> Any:
        try:
            return implementation.find_faults(
                section, len(records) + count_change, base, lowest, highest, keys_required, named_max
            )
        except CorruptData as error:
            return str(error)

    assert find(implementation) == find(_pure)


def scan(of: Any, section: bytes | bytearray, count: int, base_timestamp: int = 5) -> Any:
    try:
        return of.scan_records(section, count, base_timestamp)
    except CorruptData as error:
        return str(error)


def binary(contents: list[bytes | None], first: int, large: bool) -> BinaryColumn:
    """An Arrow array that begins after `first` rows of something else."""
    offsets = array("q" if large else "i", [0] * (first + 1))
    present = [True] * first
    for content in contents:
        present.append(content is not None)
        offsets.append(offsets[-1] + len(content or b""))
    validity = bytearray((len(present) + 7) // 8)
    for row, there in enumerate(present):
        validity[row >> 3] |= there << (row & 7)
    return BinaryColumn(
        offsets, b"".join(content or b"" for content in contents), bytes(validity), contents.count(None), first, large
    )
