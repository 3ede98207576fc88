"""A table's place that is full: an error with the offsets that it is about, and no half file."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

from pyspark_tidelog.offsets import OffsetRange
from pyspark_tidelog.options import parse_options
from tidelog.pipeline import delta, parquet
from tidelog.pipeline.delta import WrittenRange, commit_batch, file_statistics
from tidelog.pipeline.errors import TableNotWritten
from tidelog.pipeline.shape import raw_shape

pytestmark = [pytest.mark.row("R38")]

WRITER = pq.ParquetWriter
FULL = OSError(errno.ENOSPC, "No space left on device")


class FullAtTheFirstGroup(WRITER):
    """The file is begun, and its rows find no room; neither does what is to close it."""

    def write_table(self, *arguments: Any, **named: Any) -> None:
        raise FULL

    def close(self) -> None:
        if self.is_open:
            raise FULL
        super().close()


class FullAtTheEnd(FullAtTheFirstGroup):
    """The last bytes find no room."""

    def write_table(self, *arguments: Any, **named: Any) -> None:
        WRITER.write_table(self, *arguments, **named)


@pytest.mark.parametrize("writer", [None, FullAtTheFirstGroup, FullAtTheEnd])
def test_a_range_that_finds_no_room_leaves_no_file(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: type[pq.ParquetWriter] | None
) -> None:
    """At the file's first bytes (a device that is full), at its rows, at its end; with room the next attempt writes."""
    topic = broker.topic()
    broker.produce(topic, [b"x" * 100] * 10)
    options = parse_options(broker.options(topic), streaming=True)
    wanted = OffsetRange(topic, 0, 0, 10, "")
    with monkeypatch.context() as patch:
        if writer is None:
            patch.setattr(parquet, "uuid", SimpleNamespace(uuid4=lambda: "full"))
            (tmp_path / f"part-{topic}-00000-{0:020d}-full.parquet").symlink_to("/dev/full")
        else:
            patch.setattr(parquet.pq, "ParquetWriter", writer)
        with pytest.raises(TableNotWritten, match=rf"^{topic}-0 \[0, 10\) could not be written to .*No space left on"):
            parquet.write_range(options, wanted, str(tmp_path), raw_shape())
    assert list(tmp_path.iterdir()) == []
    assert parquet.write_range(options, wanted, str(tmp_path), raw_shape()).rows == 10


def test_a_commit_that_finds_no_room_names_the_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs tells it in several lines, with colours; the table stays where it was, and the batch is taken again."""
    schema = pa.schema([pa.field("value", pa.binary())])
    table = delta.open_table(str(tmp_path), schema, description="")
    written = [
        WrittenRange(OffsetRange("t", number, 5, 10, "id"), f"{number}.parquet", 1, 5, file_statistics(5, {}), 1)
        for number in range(2)
    ]

    def full(*arguments: Any, **named: Any) -> None:
        raise OSError("Generic LocalFileSystem error\n  \x1b[31m↳\x1b[0m No space left on device (os error 28)\n")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", full)
        with pytest.raises(TableNotWritten) as refusal:
            commit_batch(table, "query", 3, written, 0, {})
    assert str(refusal.value).startswith(
        f"batch 3 (t-0 from 5 to 10, t-1 from 5 to 10) could not be committed to {table.table_uri}: Generic"
        " LocalFileSystem error ↳ No space left on device (os error 28). The next run"
    )
    assert DeltaTable(str(tmp_path)).version() == 0
    assert commit_batch(table, "query", 3, written, 0, {})
