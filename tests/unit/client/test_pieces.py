"""Pieces that wait, and pieces cut in two."""

from __future__ import annotations

import struct

import pytest

from tidelog.client.consumed import consumed_records
from tidelog.client.fetching import FetchedData, whole_batches
from tidelog.client.pieces import Pieces, cut
from tidelog.model.identifiers import TopicPartition
from tidelog.records.batch import Record, build_batch

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(base: int, count: int, **fields: int) -> bytes:
    """A batch of records whose values are their offsets."""
    records = [Record(base + i, 1000 + i, None, b"%d" % (base + i)) for i in range(count)]
    return bytes(build_batch(records, base_offset=base, **fields))


def piece(*batches: bytes, begin: int = 0, partition: TopicPartition = TP, **fields: object) -> FetchedData:
    """What a fetch from `begin` gave."""
    records = memoryview(b"".join(batches))
    _, after = whole_batches(records, partition)
    return FetchedData(partition, begin, after, records, after, after, 0, **fields)  # type: ignore[arg-type]


def offsets(data: FetchedData, *, committed_only: bool = False) -> list[int]:
    """The records of a piece."""
    return [record.offset for record in consumed_records(data, data.next_offset, committed_only=committed_only)]


@pytest.mark.parametrize("records_max", [1, 2, 3, 4, 5, 7, 100])
def test_a_piece_comes_bit_by_bit(records_max: int) -> None:
    """Each record once and in order, never more than asked for, from the middle of a batch on, over a gap."""
    pieces = Pieces()
    pieces.add(piece(batch(0, 5), batch(5, 1), batch(20, 4), begin=2))
    seen: list[int] = []
    position = 2
    while (data := pieces.take(records_max)) is not None:
        assert data.fetch_offset == position
        position = data.next_offset
        found = offsets(data)
        assert 0 < len(found) <= records_max
        seen += found
        assert (TP in pieces) == (pieces.bytes > 0) == (len(pieces) > 0)
    assert seen == [2, 3, 4, 5, 20, 21, 22, 23]
    assert position == 24


def test_a_batch_that_compaction_thinned_out_gives_fewer() -> None:
    """Its offsets are counted, since it is not decoded: no record is given twice or left out."""
    thin = bytes(build_batch([Record(offset, 0, None, b"") for offset in (0, 9, 10, 30)], base_offset=0))
    rest: FetchedData | None = piece(thin)
    seen: list[int] = []
    while rest is not None:
        taken, rest = cut(rest, 2)
        assert len(offsets(taken)) <= 2
        seen += offsets(taken)
    assert seen == [0, 9, 10, 30]


def test_an_aborted_transaction_that_ended_before_the_cut_hides_nothing_behind_it() -> None:
    """The producer's next transaction was committed."""
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    abort = Record(3, 0, struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 0))
    data = piece(
        batch(0, 3, **fields),
        bytes(build_batch([abort], producer_id=7, producer_epoch=0, transactional=True, control=True)),
        batch(4, 4, **fields),
        aborted=((7, 0),),
    )
    rest: FetchedData | None = data
    seen: list[int] = []
    while rest is not None:
        taken, rest = cut(rest, 2)
        seen += offsets(taken, committed_only=True)
    assert seen == offsets(data, committed_only=True) == [4, 5, 6, 7]


def test_what_waits_of_one_partition_is_forgotten() -> None:
    """The others' pieces stay, in order."""
    pieces = Pieces()
    pieces.add(piece(batch(3, 2), begin=3))
    pieces.add(piece(batch(0, 1), partition=OTHER))
    pieces.add(piece(batch(5, 2), begin=5))
    first = pieces.first(TP)
    assert first is not None
    assert first.fetch_offset == 3
    assert (pieces.forget(TP), pieces.forget(TP), TP in pieces, OTHER in pieces) == (3, None, False, True)
    data = pieces.take()
    assert data is not None
    assert (data.topic_partition, pieces.bytes, pieces.take()) == (OTHER, 0, None)
