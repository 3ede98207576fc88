"""Pieces as records and columns: what a batch that takes several slices costs, and that nothing of it is lost."""

from __future__ import annotations

import pytest

from tidelog.client import consumed
from tidelog.client.consumed import consumed_columns, consumed_records
from tidelog.client.fetching import FetchedData
from tidelog.client.pieces import Pieces
from tidelog.model.identifiers import TopicPartition
from tidelog.records import columns
from tidelog.records.batch import build_batch
from tidelog.records.compression import Codec
from tidelog.records.record import Record

TP = TopicPartition("t", 0)
COUNT = 40


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done to batches as a whole; slices are of seven records."""
    done: list[str] = []
    check, decompress = columns.check_crc, columns.records_section

    def checking(*arguments: object, **named: object) -> object:
        done.append("checked")
        return check(*arguments, **named)  # type: ignore[arg-type]

    def decompressing(*arguments: object, **named: object) -> object:
        done.append("decompressed")
        return decompress(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(columns, "check_crc", checking)
    monkeypatch.setattr(columns, "records_section", decompressing)
    monkeypatch.setattr(consumed, "OBJECTS_MAX", 7)
    return done


def piece(begin: int, *, gap: int = 1) -> FetchedData:
    """Two batches of records whose values are their offsets, `gap` apart, read from `begin` on."""
    end = 2 * COUNT * gap
    batches = b"".join(
        build_batch([Record(offset, 5, None, b"%d" % offset) for offset in range(first, last, gap)], codec=Codec.LZ4)
        for first, last in ((0, end // 2), (end // 2, end))
    )
    return FetchedData(TP, begin, end, memoryview(batches), end, end, 0)


@pytest.mark.parametrize(("begin", "gap"), [(0, 1), (13, 1), (COUNT, 1), (7, 3)])
def test_a_batch_is_checked_and_decompressed_once(opened: list[str], begin: int, gap: int) -> None:
    """However many slices of it are decoded, and wherever reading begins in it."""
    data = piece(begin, gap=gap)
    found = list(consumed_records(data, data.next_offset))
    wanted = [offset for offset in range(0, data.next_offset, gap) if offset >= begin]
    assert [(record.offset, record.value) for record in found] == [(offset, b"%d" % offset) for offset in wanted]
    assert opened == ["checked", "decompressed"] * (1 if begin >= COUNT else 2)


def test_pieces_of_a_batch_share_it(opened: list[str]) -> None:
    """A caller that takes few records a poll costs no more."""
    pieces = Pieces()
    pieces.add(piece(3))
    seen: list[int] = []
    while (data := pieces.take(10)) is not None:
        seen += [record.offset for record in consumed_records(data, data.next_offset)]
    assert seen == list(range(3, 2 * COUNT))
    assert opened == ["checked", "decompressed"] * 2


def test_columns_of_a_batch_share_it(opened: list[str]) -> None:
    """The same of slices as columns."""
    data = piece(0)
    assert sum(part.rows for part in consumed_columns(data, rows_max=9)) == 2 * COUNT
    assert opened == ["checked", "decompressed"] * 2


@pytest.mark.usefixtures("opened")
def test_two_readers_of_a_piece_disturb_each_other_in_nothing() -> None:
    """Iterating twice at the same time, at different speeds, gives everything to both."""
    data = piece(5)
    fast, slow = consumed_records(data, data.next_offset), consumed_records(data, data.next_offset)
    seen: tuple[list[int], list[int]] = ([], [])
    for number, record in enumerate(fast):
        seen[0].append(record.offset)
        if number % 3 == 0:
            seen[1].append(next(slow).offset)
    seen[1].extend(record.offset for record in slow)
    assert seen[0] == seen[1] == list(range(5, 2 * COUNT))


def test_large_records_come_in_small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice holds so many bytes at the most, or one record."""
    sizes: list[int] = []
    decode = consumed.decode_rows

    def noting(*arguments: object, **named: object) -> object:
        rows = decode(*arguments, **named)  # type: ignore[arg-type,var-annotated]
        sizes.append(sum(len(record.value) for record in rows.records))
        return rows

    monkeypatch.setattr(consumed, "decode_rows", noting)
    value = bytes(consumed.OBJECT_BYTES_MAX // 3)
    batch = build_batch([Record(offset, 5, None, value * (1 if offset else 5)) for offset in range(8)])
    data = FetchedData(TP, 0, 8, memoryview(batch), 8, 8, 0)
    assert [record.offset for record in consumed_records(data, 8)] == list(range(8))
    assert sizes == [5 * len(value), *[3 * len(value)] * 2, len(value)]
