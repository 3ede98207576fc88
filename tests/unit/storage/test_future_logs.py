"""Copies of logs in another directory, and what they know once they are in the place of their logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, TOPIC_ID, TP, batch, open_manager

from tidelog.storage.tasks import run_now


@pytest.mark.parametrize("restarts", [False, True])
def test_a_copy_knows_epochs_whose_batches_are_gone(tmp_path: Path, *, restarts: bool) -> None:
    """As after a compaction of which the copy gets the outcome: a follower whose log ends in such an epoch is told that
    it ends where the next one begins, and cuts nothing.

    The simulator had a follower cut its log below the high watermark after its leader's log had moved.
    """
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    manager = open_manager(tmp_path / "one", tmp_path / "other")
    log = manager.create(TP, TOPIC_ID)
    batches = [batch(b"v"), batch(b"v"), batch(b"v")]
    for epoch, data in enumerate(batches):
        log.append(data, leader_epoch=epoch, now_ms=NOW_MS)
    elsewhere = next(each for each in manager.directories if each is not log.owner)
    copy = manager.futures.create(TP, elsewhere)
    for offset in (0, 2):
        (part,) = log.read(offset, 1, up_to_offset=offset + 1).ranges
        copy.append_as_follower(part.read())
        part.release()
    assert copy.end_offset_for_epoch(1) == (0, 2)
    flush = copy.flush_task()
    assert flush is not None
    run_now(flush)
    moved = manager.futures.replace(TP)
    if restarts:
        manager.close()
        manager = open_manager(tmp_path / "one", tmp_path / "other")
        moved = manager.create(TP, TOPIC_ID)
    assert moved.end_offset_for_epoch(1) == (1, 2)
    assert moved.end_offset_for_epoch(0) == (0, 1)
    manager.close()
