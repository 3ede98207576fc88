"""The epoch cache answers as Kafka's does, and survives its checkpoint."""

import pytest

from tidelog.model.identifiers import LeaderEpoch, Offset
from tidelog.records.epochs import CheckpointError, EpochCache


def cache(*entries: tuple[int, int]) -> EpochCache:
    built = EpochCache()
    for epoch, offset in entries:
        built.assign(LeaderEpoch(epoch), Offset(offset))
    return built


def entries(of: EpochCache) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in of.entries]


def test_assign_notes_only_what_is_new() -> None:
    """A later offset of the same epoch changes nothing; a later epoch is added, even when its number jumps."""
    epochs = cache((0, 0))
    assert not epochs.assign(LeaderEpoch(0), Offset(10))
    assert epochs.assign(LeaderEpoch(5), Offset(10))
    assert entries(epochs) == [(0, 0), (5, 10)]
    assert epochs.latest == 5
    assert cache().latest == -1


def test_assign_drops_what_contradicts() -> None:
    """An entry with an epoch or an offset that is not smaller belongs to a history that did not happen."""
    epochs = cache((0, 0), (2, 10), (4, 20))
    assert epochs.assign(LeaderEpoch(3), Offset(15))
    assert entries(epochs) == [(0, 0), (2, 10), (3, 15)]
    assert epochs.assign(LeaderEpoch(6), Offset(10))
    assert entries(epochs) == [(0, 0), (6, 10)]
    assert epochs.assign(LeaderEpoch(6), Offset(8)), "the same epoch, begun earlier"
    assert entries(epochs) == [(0, 0), (6, 8)]


def test_negative_numbers_are_refused() -> None:
    """Neither -1 as an epoch nor as an offset may enter the history."""
    for epoch, offset in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            cache((epoch, offset))


@pytest.mark.row("R28")
def test_end_offsets() -> None:
    """Known epochs end where the next begins, the latest at the log's end, unknown ones at the epoch below."""
    epochs = cache((2, 5), (4, 50), (6, 80))

    def end_of(epoch: int) -> tuple[int, int]:
        return epochs.end_offset_for(LeaderEpoch(epoch), Offset(100))

    assert end_of(6) == (6, 100)
    assert end_of(4) == (4, 80)
    assert end_of(5) == (4, 80)
    assert end_of(3) == (2, 50)
    assert end_of(1) == (1, 5), "older than all that is kept: it ends where the log begins"
    assert end_of(7) == (-1, -1)
    assert end_of(-1) == (-1, -1)
    assert cache().end_offset_for(LeaderEpoch(0), Offset(0)) == (-1, -1)


def test_epoch_of_an_offset() -> None:
    """The epoch whose range holds the offset, -1 before the first."""
    epochs = cache((2, 5), (4, 50))
    assert [epochs.epoch_for_offset(Offset(offset)) for offset in (4, 5, 49, 50, 500)] == [-1, 2, 2, 4, 4]


def test_truncation_from_the_end() -> None:
    """Epochs that begin at the new end or later are forgotten."""
    epochs = cache((0, 0), (2, 10), (4, 20))
    assert not epochs.truncate_from_end(Offset(21))
    assert epochs.truncate_from_end(Offset(20))
    assert entries(epochs) == [(0, 0), (2, 10)]
    assert epochs.truncate_from_end(Offset(0))
    assert entries(epochs) == []


def test_truncation_from_the_start() -> None:
    """The epoch that holds the new start stays and begins there; later ones are untouched."""
    epochs = cache((0, 5), (2, 10), (4, 20))
    assert not epochs.truncate_from_start(Offset(4))
    assert not epochs.truncate_from_start(Offset(5))
    assert epochs.truncate_from_start(Offset(15))
    assert entries(epochs) == [(2, 15), (4, 20)]
    assert epochs.truncate_from_start(Offset(20))
    assert entries(epochs) == [(4, 20)]
    assert epochs.truncate_from_start(Offset(90)), "an empty log still knows its last epoch"
    assert entries(epochs) == [(4, 90)]


@pytest.mark.row("R28")
def test_the_checkpoint_is_kafkas() -> None:
    """Version, count, one line an entry; read back it is the same."""
    epochs = cache((0, 0), (3, 120))
    assert epochs.to_checkpoint_text() == "0\n2\n0 0\n3 120\n"
    assert EpochCache.from_checkpoint_text(epochs.to_checkpoint_text()) == epochs
    assert EpochCache.from_checkpoint_text("0\n0\n") == cache()
    assert EpochCache(epochs.entries) == epochs


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "line 1"),
        ("1\n0\n", "line 1"),
        ("0\n", "line 2"),
        ("0\nx\n", "line 2"),
        ("0\n2\n0 0\n", "line 2"),
        ("0\n1\n0\n", "line 3"),
        ("0\n1\n0 -1\n", "line 3"),
        ("0\n1\n0 0 0\n", "line 3"),
    ],
)
def test_a_malformed_checkpoint_names_its_line(text: str, line: str) -> None:
    """The error says where to look."""
    with pytest.raises(CheckpointError, match=line):
        EpochCache.from_checkpoint_text(text)
