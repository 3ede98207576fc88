"""A table that was restored: its history says what it holds, its progress is checked against that and set back."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from tests.unit.pipeline.ranges import written_range

from pyspark_tidelog.errors import DataLoss
from pyspark_tidelog.offsets import OffsetRange
from tidelog.model.identifiers import TopicPartition
from tidelog.pipeline import delta
from tidelog.pipeline.delta import WrittenRange
from tidelog.pipeline.errors import TableMismatch
from tidelog.pipeline.history import Contradiction, check_topic, find_contradiction, forget_outdated, rewind, rewinds

pytestmark = [pytest.mark.row("R38")]

SCHEMA = pa.schema([("offset", pa.int64())])
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
APPS = delta.progress_ids([A, B], "id")


class Table:
    """A table of topic t whose batches take ten offsets each."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.delta = delta.open_table(self.path, SCHEMA, description="")

    def take(self, start: int, partition: TopicPartition = A, *, checks: bool = True) -> None:
        """A batch; without `checks` as an older version commits it."""
        self.delta.update_incremental()
        name = f"{partition}-{start}-{self.delta.version()}.parquet"
        rows = pa.table({"offset": range(start, start + 10)}, SCHEMA)
        pyarrow.parquet.write_table(rows, f"{self.path}/{name}")
        offsets = OffsetRange(partition.topic, partition.partition, start, start + 10, "id")
        written = WrittenRange(offsets, name, Path(self.path, name).stat().st_size, 10, "{}", 0)
        checked = self.delta.version() if checks else -1
        assert delta.commit_batch(self.delta, "q", 0, [written], checked, {})

    def restore(self, version: int | datetime.datetime) -> None:
        DeltaTable(self.path).restore(version)
        self.delta.update_incremental()

    def found(self) -> Contradiction | None:
        self.delta.update_incremental()
        return find_contradiction(self.delta, APPS, "t")

    @property
    def progress(self) -> dict[TopicPartition, int]:
        self.delta.update_incremental()
        return delta.next_offsets(self.delta, [A, B], "id")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three batches of partition 0: versions 1, 2 and 3."""
    made = Table(tmp_path / "table")
    for start in (0, 10, 20):
        made.take(start)
    return made


def test_a_sound_table_has_no_contradiction(table: Table) -> None:
    """Also after an optimize, and after a restore that took nothing of ours away."""
    assert table.found() is None
    DeltaTable(table.path).optimize.compact()
    table.restore(3)
    assert table.found() is None
    table.take(30)
    assert table.found() is None


def test_a_restore_is_found_and_set_back(table: Table) -> None:
    """The table has ten rows, its transaction identifiers say thirty."""
    table.restore(1)
    found = table.found()
    assert found is not None
    assert (found.held, found.claimed, found.restored) == ({A: 10}, {A: 30}, 4)
    assert "t-0 up to offset 10, where its progress says 30" in found.explain("t", "/lake/t")
    assert rewind(table.delta, APPS, "t") == found
    assert (table.progress, rewinds(table.delta, "t")) == ({A: 10}, 1)
    assert table.found() is None
    assert rewind(table.delta, APPS, "t") is None
    table.take(10)
    table.take(20)
    assert table.found() is None
    assert sorted(DeltaTable(table.path).to_pyarrow_table()["offset"].to_pylist()) == list(range(30))


def test_a_restore_by_time_is_found(table: Table) -> None:
    """Its commit names no version: the files say which."""
    for version in range(4):  # Their files' times decide: an hour apart, as two versions may be of one millisecond.
        os.utime(f"{table.path}/_delta_log/{version:020}.json", (0, NOON.timestamp() + 3600 * version))
    table.restore(NOON + datetime.timedelta(hours=2.5))
    found = table.found()
    assert found is not None
    assert found.held == {A: 20}


def test_a_restore_to_before_the_first_batch(table: Table, tmp_path: Path) -> None:
    """The progress goes back to where the first batch began, which need not be 0; other partitions stay."""
    late = Table(tmp_path / "late")
    late.take(500, B)
    late.take(70)
    late.restore(0)
    assert rewind(late.delta, APPS, "t") is not None
    assert late.progress == {A: 70, B: 500}
    late.take(500, B)
    assert late.found() is None


def test_batches_behind_a_hole_are_told(table: Table) -> None:
    """A version that did not check went on: going back would double its rows, so the table is to be restored first."""
    table.restore(1)
    table.take(30, checks=False)
    found = table.found()
    assert found is not None
    assert found.is_overwritten
    assert found.held == {A: 10}
    with pytest.raises(TableMismatch, match=r"restore the table to version 4 first, then .tidelog table rewind"):
        rewind(table.delta, APPS, "t")
    table.restore(4)
    assert rewind(table.delta, APPS, "t") is not None
    assert table.progress == {A: 10}


def test_a_restore_that_races_a_batch_is_found_by_the_next(table: Table) -> None:
    """It came after the check and before the commit: that commit says only what was checked."""
    checked = table.delta.version()
    table.restore(1)
    table.delta.update_incremental()
    path = "late.parquet"
    pyarrow.parquet.write_table(pa.table({"offset": range(30, 40)}, SCHEMA), f"{table.path}/{path}")
    written = WrittenRange(OffsetRange("t", 0, 30, 40, "id"), path, 1, 10, "{}", 0)
    delta.commit_batch(table.delta, "q", 9, [written], checked, {})
    found = table.found()
    assert found is not None
    assert found.is_overwritten


def test_a_restore_after_a_rewind(table: Table) -> None:
    """Whatever version comes back, the progress is that of its rows."""
    table.restore(1)
    rewind(table.delta, APPS, "t")
    table.take(10)
    table.restore(2)
    assert table.found() is None
    table.restore(4)
    found = rewind(table.delta, APPS, "t")
    assert found is not None
    assert (table.progress, rewinds(table.delta, "t")) == ({A: 10}, 2)


def test_a_check_reads_few_commits(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that starts on a table of a thousand commits does not read them all."""
    for start in range(30, 400, 10):
        table.take(start)
    asked: list[int | None] = []
    original = DeltaTable.history

    def counting(delta_table: DeltaTable, limit: int | None = None) -> list[dict[str, object]]:
        asked.append(limit)
        return original(delta_table, limit)

    monkeypatch.setattr(DeltaTable, "history", counting)
    assert table.found() is None
    assert asked == [16]
    assert find_contradiction(table.delta, APPS, "t", table.delta.version() - 1) is None
    assert asked == [16, 1]


def test_a_topic_that_was_made_again_is_noticed_by_the_table(tmp_path: Path) -> None:
    """Unless records may be lost; a table of an older version, whose commits name no ids, says nothing."""
    path = str(tmp_path)
    table = delta.open_table(path, SCHEMA, description="")
    check_topic(table, "t", "new", fail_on_data_loss=True)
    assert delta.commit_batch(table, "q", 0, [written_range("t", 0, 4, "old"), written_range("u", 0, 4, "its")], 0, {})
    check_topic(table, "t", "old", fail_on_data_loss=True)
    check_topic(table, "t", "", fail_on_data_loss=True)
    check_topic(table, "t", "new", fail_on_data_loss=False)
    check_topic(table, "s", "new", fail_on_data_loss=True)
    with pytest.raises(DataLoss, match=r"topic t was deleted and created again .*its id was old, it is new"):
        check_topic(table, "t", "new", fail_on_data_loss=True)


def test_a_checkpoint_goes_when_another_query_has_gone_on_with_the_table(tmp_path: Path) -> None:
    """Its place is behind the table's: the query would plan records that the table has."""
    table = delta.open_table(str(tmp_path / "t"), SCHEMA, description="")
    checkpoint = tmp_path / "checkpoint"
    forget_outdated(checkpoint, table, "t")
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": "mine"}))
    forget_outdated(checkpoint, table, "t")
    assert delta.commit_batch(table, "mine", 0, [written_range("t", 0, 4)], 0, {})
    assert delta.commit_batch(table, "others", 0, [written_range("u", 0, 4)], 0, {})
    forget_outdated(checkpoint, table, "t")
    assert checkpoint.exists()
    assert delta.commit_batch(table, "others", 1, [written_range("t", 4, 5)], 0, {})
    (checkpoint / "metadata").write_text("{")
    forget_outdated(checkpoint, table, "t")
    assert checkpoint.exists()
    (checkpoint / "metadata").write_text(json.dumps({"id": "mine"}))
    forget_outdated(checkpoint, table, "t")
    assert not checkpoint.exists()


def test_a_checkpoint_that_goes_is_gone_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill in the midst of the removal leaves no half of it, with which Spark would go on where the half says."""
    table = delta.open_table(str(tmp_path / "t"), SCHEMA, description="")
    checkpoint = tmp_path / "t" / "_checkpoints" / "t"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text("v1")
    (checkpoint / "metadata").write_text(json.dumps({"id": "mine"}))
    assert delta.commit_batch(table, "others", 0, [written_range("t", 0, 4)], 0, {})

    def killed(folder: Path) -> None:
        (Path(folder) / "metadata").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            forget_outdated(checkpoint, table, "t")
    assert not checkpoint.exists()
    forget_outdated(checkpoint, table, "t")
    assert list(checkpoint.parent.iterdir()) == []
