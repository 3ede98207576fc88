"""Local tables and power cuts: what is synced, and before what."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.unit.pipeline.ranges import written_range

from pyspark_tidelog.offsets import OffsetRange
from tidelog.model.identifiers import TopicPartition
from tidelog.pipeline import delta, durable
from tidelog.pipeline.errors import TableNotWritten
from tidelog.pipeline.parquet import RangeWriter
from tidelog.pipeline.shape import TableShape, ValueFormat

pytestmark = [pytest.mark.row("R38")]

SCHEMA = pa.schema([("offset", pa.int64())])


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What is synced, in that order."""
    paths: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: paths.append(Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
    return paths


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_rows_are_synced_before_their_commit_and_that_before_the_next(
    tmp_path: Path, synced: list[Path], scheme: str
) -> None:
    """Else the table could say that it has what a power cut took: the rows of a file, or of a commit."""
    root = tmp_path / "a table"
    path = str(root) if not scheme else root.as_uri()
    table = delta.open_table(path, SCHEMA, description="")
    log = root / "_delta_log"
    assert synced == [log / f"{0:020}.json", log, root]
    synced.clear()
    for version, start in ((1, 0), (2, 1)):
        writer = RangeWriter(path, TableShape(ValueFormat.RAW, SCHEMA), OffsetRange("t", 0, start, start + 1, "id"))
        writer.add(pa.RecordBatch.from_pylist([{"offset": start}], schema=SCHEMA))
        written = writer.finish()
        assert synced == [root / written.path, root]
        assert DeltaTable(path).version() == version - 1
        synced.clear()
        assert delta.commit_batch(table, "q", version, [written], version, {})
        assert synced == [log / f"{version:020}.json", log]
        synced.clear()


def test_what_cannot_be_synced_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a file nor a commit: the next run finds out what became of it."""
    table = delta.open_table(str(tmp_path), SCHEMA, description="")

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    writer = RangeWriter(str(tmp_path), TableShape(ValueFormat.RAW, SCHEMA), OffsetRange("t", 0, 0, 1, "id"))
    writer.add(pa.RecordBatch.from_pylist([{"offset": 0}], schema=SCHEMA))
    with pytest.raises(TableNotWritten, match="could not be written"):
        writer.finish()
    writer.abandon()
    assert list(tmp_path.glob("*.parquet")) == []
    with pytest.raises(TableNotWritten, match="could not be committed"):
        delta.commit_batch(table, "q", 0, [written_range("t", 0, 4)], 0, {})
    assert delta.next_offsets(DeltaTable(str(tmp_path)), [TopicPartition("t", 0)], "id") == {("t", 0): 4}


def test_a_file_system_that_syncs_nothing_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mounted object store, for example."""

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    table = delta.open_table(str(tmp_path), SCHEMA, description="")
    assert delta.commit_batch(table, "q", 0, [written_range("t", 0, 4)], 0, {})


def test_tables_elsewhere_are_not_looked_at(synced: list[Path]) -> None:
    """An object store keeps what it has answered for."""
    durable.sync_files("s3://lake/t", ["x"])
    durable.sync_commits("s3://lake/t", 0, 1)
    assert synced == []
