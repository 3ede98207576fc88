"""Compaction's kernel and its Python twin agree: what the map holds, what stays, and bytes that were never batches."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples
from tests.kernel import needs_kernel

from tidelog.records import _pure_compaction, compaction
from tidelog.records.batch import HEADER_SIZE, build_batch, build_empty_batch, check_crc, iterate_headers, read_records
from tidelog.records.checksum import crc32c
from tidelog.records.compression import Codec
from tidelog.records.errors import InvalidBatch
from tidelog.records.record import Header, Record, encode_records

pytestmark = needs_kernel
EXAMPLES = settings(max_examples=examples(500), deadline=None)
SEED = bytes(range(16))
KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"key-1", b"key-2", b"k" * 40])
CONTENT = st.none() | st.binary(max_size=9) | st.just(bytes(200))
HEADERS = st.just(()) | st.lists(st.tuples(st.sampled_from(("", "h", "schlüssel")), CONTENT), max_size=2).map(tuple)
TIMESTAMPS = st.integers(-1, 10) | st.integers(0, 2**42)


def _records(first: int, rows: list[tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]]) -> list[Record]:
    offsets = accumulate((row[0] for row in rows[1:]), initial=first)
    return [Record(offset, *row[1:]) for offset, row in zip(offsets, rows, strict=True)]


RECORDS = st.builds(
    _records,
    st.just(0),
    st.lists(st.tuples(st.sampled_from((1, 1, 2, 5)), TIMESTAMPS, KEYS, CONTENT, HEADERS), min_size=1, max_size=40),
)


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    """Some batches in a row, plain ones and others, the last one perhaps cut short."""
    parts, offset = [], draw(st.integers(0, 50))
    for records in draw(st.lists(RECORDS, max_size=4)):
        moved = [record._replace(offset=record.offset + offset) for record in records]
        last = moved[-1].offset + draw(st.integers(0, 3))
        kind = draw(st.sampled_from(("plain", "plain", "plain", "stamped", "horizon", "codec", "transaction", "empty")))
        if kind == "empty":
            parts.append(build_empty_batch(base_offset=offset, last_offset=last, timestamp=7, producer_id=3))
        else:
            parts.append(
                build_batch(
                    moved,
                    base_offset=offset,
                    last_offset=last,
                    codec=Codec.ZSTD if kind == "codec" else Codec.NONE,
                    transactional=kind == "transaction",
                    producer_id=3,
                    producer_epoch=0,
                    log_append_time=99 if kind == "stamped" else None,
                    delete_horizon_ms=draw(st.sampled_from((50, 5000))) if kind == "horizon" else None,
                )
            )
        offset = last + 1 + draw(st.integers(0, 2))
    data = b"".join(parts)
    return data[: len(data) - draw(st.sampled_from((0, 0, 1, 70)))] if data else data


def _map(of: Any, size_max: int) -> Any:
    return of.KeyMap(size_max + 1, size_max, SEED)


def _filled(of: Any, data: bytes, start_offset: int, size_max: int) -> tuple[Any, Any]:
    keys = _map(of, size_max)
    return keys, (keys.add_batches(data, 0, start_offset), keys.size, [keys.get(key) for key in (b"", b"a", b"key-1")])


def _filter(of: Any, data: bytes, changed: bytes, size_max: int, latest: int, lasts: frozenset[int]) -> Any:
    keys, outcome = _filled(of, data, 0, size_max)
    output = bytearray(b"before")
    kept = of.RecordFilter(keys, latest, 1000, 777, lasts).batches(changed, 0, output)
    return outcome, kept, bytes(output)


@EXAMPLES
@given(chunks(), st.integers(0, 60), st.sampled_from((0, 1, 3, 100)))
def test_both_take_the_same_keys(data: bytes, start_offset: int, size_max: int) -> None:
    """However many fit, and whatever ends the run of plain batches."""
    assert (
        _filled(compaction, data, start_offset, size_max)[1]
        == _filled(_pure_compaction, data, start_offset, size_max)[1]
    )


@EXAMPLES
@given(chunks(), st.sampled_from((0, 2, 100)), st.integers(-1, 200), st.frozensets(st.integers(0, 60)))
def test_both_keep_the_same(data: bytes, size_max: int, latest: int, lasts: frozenset[int]) -> None:
    """The same bytes, which are sound batches that hold a part of the records, in order."""
    found = _filter(compaction, data, data, size_max, latest, lasts)
    assert found == _filter(_pure_compaction, data, data, size_max, latest, lasts)
    output = found[2][6:]
    before = {record.offset: record for position, _ in iterate_headers(data) for record in read_records(data, position)}
    previous = -1
    for position, header in iterate_headers(output):
        check_crc(output, position, header)
        for record in read_records(output, position):
            assert record.offset > previous
            assert record == before[record.offset]
            previous = record.offset


def test_of_an_emptied_batch_neither_keeps_unknown_attributes() -> None:
    """Bits that no version has given a meaning yet are cleared, as in Kafka: the batch has no records any more."""
    record = Record(0, 1, b"a", b"first")
    batch = bytearray(build_batch([record], producer_id=3, producer_epoch=0, base_sequence=0))
    batch[21:23] = (0x0480).to_bytes(2, "big")
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    data = bytes(batch) + build_batch([record._replace(offset=1)], base_offset=1)
    found = _filter(compaction, data, data, 100, 1, frozenset({0}))
    assert found == _filter(_pure_compaction, data, data, 100, 1, frozenset({0}))
    assert [header.attributes for _, header in iterate_headers(found[2], 6)] == [0, 0]


@EXAMPLES
@given(chunks(), st.data())
def test_both_see_the_same_in_broken_bytes(data: bytes, draw: st.DataObject) -> None:
    """Bytes changed at will: the run ends at the same batch, with the same outcome before it."""
    broken = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        if broken:
            broken[draw.draw(st.integers(0, len(broken) - 1))] = draw.draw(st.integers(0, 255))
    arguments = (bytes(broken), 100, 1000, frozenset({3}))
    assert _filter(compaction, data, *arguments) == _filter(_pure_compaction, data, *arguments)
    assert _filled(compaction, bytes(broken), 0, 100)[1][0] == _filled(_pure_compaction, bytes(broken), 0, 100)[1][0]


def _section(of: Any, keys: list[Record], section: bytes, count: int, last: int, horizon: bool) -> Any:
    known = _map(of, 10)
    try:
        known.add_section(encode_records(keys, 0, 0), len(keys), 0, 10_000, 0)
        taken = known.add_section(section, count, 5, last, 2)
        return taken, of.RecordFilter(known, 100, 1000, 777, frozenset()).section(section, count, 5, last, 500, horizon)
    except InvalidBatch as error:
        return str(error)


@EXAMPLES
@given(RECORDS, RECORDS, st.booleans(), st.integers(-1, 1), st.binary(max_size=2))
def test_sections_are_treated_alike(
    keys: list[Record], records: list[Record], horizon: bool, miscounted: int, tail: bytes
) -> None:
    """What was decompressed goes the same way, and its damage is reported in the same words."""
    section = encode_records(records, 0, 500) + tail
    arguments = (keys, section, len(records) + miscounted, records[-1].offset, horizon)
    assert _section(compaction, *arguments) == _section(_pure_compaction, *arguments)


@EXAMPLES
@given(chunks(), st.integers(0, 10_000), st.sampled_from((0, 100, 5000)), st.integers(0, 200))
def test_both_index_alike(data: bytes, position: int, interval: int, since: int) -> None:
    """Entries of the same batches, at the same places."""
    arguments = (data, position, interval, since, 5, 1)
    assert compaction.index_batches(*arguments) == _pure_compaction.index_batches(*arguments)


def test_the_kernel_is_compiled_where_records_are() -> None:
    """A kernel that was not built is not a silent loss: both are there or neither is."""
    from tidelog.records import implementation

    assert compaction.NAME == implementation.NAME
    assert HEADER_SIZE == 61
