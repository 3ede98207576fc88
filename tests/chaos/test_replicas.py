"""Replicas are compared batch by batch, wherever each of them begins a segment."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.replicas import compare, writers
from tidelog.records.batch import build_batch
from tidelog.records.record import Record


def batch(offset: int, value: bytes = b"value", epoch: int = 0) -> bytes:
    """One record."""
    return build_batch([Record(offset, 1000, None, value)], partition_leader_epoch=epoch)


def folder(root: Path, name: str, *segments: bytes) -> Path:
    """A log whose segments hold these bytes."""
    path = root / name / "t-0"
    path.mkdir(parents=True)
    for index, content in enumerate(segments):
        (path / f"{index:020}.log").write_bytes(content)
    return path


def test_segments_do_not_matter(tmp_path: Path) -> None:
    """Two logs that hold the same and roll elsewhere are equal."""
    one = folder(tmp_path, "1", batch(0) + batch(1), batch(2))
    two = folder(tmp_path, "2", batch(0), batch(1) + batch(2), b"")
    assert compare({1: one, 2: two}) is None


def test_the_first_difference_is_told(tmp_path: Path) -> None:
    """Another value, another epoch, a record too few, a torn tail."""
    good = folder(tmp_path, "0", batch(0) + batch(1))
    size = len(batch(1))
    for number, (content, said) in enumerate(
        {
            batch(0) + batch(1, b"VALUE"): f"offsets 1 to 1 of epoch 0, {size} bytes",
            batch(0) + batch(1, epoch=7): f"offsets 1 to 1 of epoch 7, {size} bytes",
            batch(0): "nothing",
            batch(0) + batch(1)[:5]: "a torn tail of 5 bytes",
        }.items(),
        start=1,
    ):
        other = folder(tmp_path, str(number), content)
        assert compare({0: good, number: other}) == (
            f"t-0: broker 0: offsets 1 to 1 of epoch 0, {size} bytes; broker {number}: {said}"
        )


def test_who_wrote_what_is_told_by_the_batches(tmp_path: Path) -> None:
    """The producer id and epoch of each batch that holds one of the offsets, wherever segments begin."""
    first = build_batch([Record(0, 1000, None, b"a"), Record(1, 1000, None, b"b")], producer_id=7, producer_epoch=1)
    again = build_batch([Record(2, 1000, None, b"a")], producer_id=7, producer_epoch=2, base_sequence=0)
    path = folder(tmp_path, "1", first, again)
    assert writers(path, {1, 2, 9}) == {1: (7, 1), 2: (7, 2)}
