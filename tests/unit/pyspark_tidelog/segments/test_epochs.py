"""Which records of a folder are its cluster's, by leader epochs."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.amount import examples
from tests.unit.pyspark_tidelog.segments.test_segments import (
    CONFIG,
    asked,
    closed,
    cluster,
    committed,
    numbers,
    reader,
    values,
    written,
)
from tests.unit.storage.support import NOW_MS, TP, batch, let_go, open_manager

from pyspark_tidelog.segments.epochs import agreed_end, in_file
from tidelog.client.blocking import BlockingCluster
from tidelog.client.truncation import UNKNOWN, EpochEnd
from tidelog.model.identifiers import LeaderEpoch, Offset
from tidelog.records.epochs import EpochCache, EpochEntry
from tidelog.testing import Cluster

__all__ = ["closed", "cluster"]

pytestmark = [pytest.mark.row("R38")]

Epochs = list[tuple[int, int]]


def cache(entries: Epochs) -> EpochCache:
    return EpochCache([EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in entries])


@pytest.mark.parametrize(
    ("files", "leader", "agreed"),
    [
        ([(0, 0)], [(0, 0)], 100),
        ([(0, 0)], [(0, 0), (1, 100)], 100),
        ([(0, 0), (3, 90)], [(0, 0), (5, 80)], 80),
        ([(0, 0), (3, 90)], [(0, 0), (5, 95)], 90),
        ([(0, 0), (3, 90)], [(0, 0), (2, 50), (5, 95)], 50),
        ([(0, 0), (1, 20), (3, 90)], [(0, 0), (2, 50), (5, 95)], 20),
        ([(0, 0), (9, 90)], [(0, 0), (5, 95)], 90),
        ([(4, 90)], [(5, 0)], 0),
        ([(4, 30)], [(4, 50), (5, 70)], 70),
        ([(0, 0), (7, 120)], [(0, 0), (5, 110)], 100),
    ],
)
def test_records_count_up_to_where_the_epochs_part(files: Epochs, leader: Epochs, agreed: int) -> None:
    """As a follower finds the place to cut its log at. The files are committed up to offset 100."""
    assert agreed_end(cache(files), 100, in_file(cache(leader))) == agreed


def test_a_leader_that_knows_nothing_agrees_to_nothing() -> None:
    assert agreed_end(cache([(2, 10), (3, 50)]), 100, lambda _epoch: EpochEnd(UNKNOWN, -1)) == 10


LENGTHS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), max_size=5)
"""Of epochs: how much greater than the one before, and how many records."""


@given(common=LENGTHS, ours=LENGTHS, theirs=LENGTHS)
@settings(max_examples=examples(400), deadline=None)
def test_it_is_the_first_record_that_differs(
    common: list[tuple[int, int]], ours: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    """Two logs that were one, and then had leaders of their own: no two leaders have one epoch."""

    def written_by(*, parity: int, own: list[tuple[int, int]]) -> list[int]:
        epochs: list[int] = []
        epoch = 0
        for step, count in common:
            epoch += step
            epochs += [epoch] * count
        epoch = 2 * epoch + parity
        for step, count in own:
            epoch += 2 * step
            epochs += [epoch] * count
        return epochs

    files, leader = written_by(parity=0, own=ours), written_by(parity=1, own=theirs)
    shared = sum(count for _, count in common)

    def entries(epochs: list[int]) -> EpochCache:
        known = EpochCache()
        for offset, epoch in enumerate(epochs):
            known.assign(LeaderEpoch(epoch), Offset(offset))
        return known

    def ends(epoch: int) -> EpochEnd:
        return EpochEnd(*entries(leader).end_offset_for(LeaderEpoch(epoch), Offset(len(leader))))

    assert agreed_end(entries(files), len(files), ends) == min(shared, len(files))


def overrule(directory: Path, epoch: int, first: int, end: int) -> None:
    """Commits records of a leader of that epoch to the copy of a log."""
    let_go()
    (directory / "meta.properties").unlink()
    manager = open_manager(directory, config=CONFIG)
    manager.keep_properties()
    log = manager.get(TP)
    assert log is not None
    for number in range(first, end):
        log.append(batch(b"of another", timestamp=NOW_MS), leader_epoch=epoch, now_ms=NOW_MS)
        assert log.log_end_offset == number + 1
    committed(manager, log)
    (directory / "topicone-0" / "leader-epoch-checkpoint").write_text(log.epochs.to_checkpoint_text())


def test_a_stale_copy_is_read_up_to_where_the_leader_agrees(
    cluster: tuple[Cluster, BlockingCluster, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Its last four records were committed by a leader that another one overruled."""
    started, _, copy = cluster
    caplog.set_level("INFO")
    overrule(next(copy.glob("**/topicone-0")).parent, 1_000, 40, 44)
    assert values(reader(copy, **{"kafka.bootstrap.servers": started.bootstrap})) == numbers(0, 50)
    assert asked(caplog) == ["topicone-0 [40, 50)"]
    assert "parts from the leader's log at offset 40" in caplog.text


def test_a_copy_that_has_nothing_of_the_leader(
    cluster: tuple[Cluster, BlockingCluster, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """All its batches are of epochs that the leader never had."""
    started, _, copy = cluster
    caplog.set_level("INFO")
    for segment in next(copy.glob("**/topicone-0")).glob("*.log"):
        content = bytearray(segment.read_bytes())
        position = 0
        while position < len(content):
            size, _ = struct.unpack_from(">ii", content, position + 8)
            struct.pack_into(">i", content, position + 12, 7_000)
            position += 12 + size
        segment.write_bytes(content)
    assert values(reader(copy, **{"kafka.bootstrap.servers": started.bootstrap})) == numbers(0, 50)
    assert asked(caplog) == ["topicone-0 [0, 50)"]


def test_of_replicas_the_one_with_the_latest_leader_counts(tmp_path: Path) -> None:
    """Though the other one has more."""
    written(tmp_path / "right", batches=15)
    let_go()
    shutil.copytree(tmp_path / "right", tmp_path / "stale")
    overrule(tmp_path / "stale", 3, 30, 44)
    overrule(tmp_path / "right", 5, 30, 32)
    both = f"{tmp_path / 'stale'},{tmp_path / 'right'}"
    assert values(reader(both)) == [*numbers(0, 30), b"of another", b"of another"]
