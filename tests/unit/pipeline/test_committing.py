"""The commits of a table job, without Spark: what is told of a batch, and which are refused."""

from __future__ import annotations

import datetime
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from tests.unit.pipeline.ranges import written_range
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

from pyspark_tidelog.offsets import OffsetRange
from tidelog.client.errors import ClientError
from tidelog.model.identifiers import TopicPartition
from tidelog.pipeline import delta
from tidelog.pipeline.committing import BatchDone, TableCommitter
from tidelog.pipeline.delta import WrittenRange
from tidelog.pipeline.errors import TableMismatch, TableNotWritten
from tidelog.pipeline.history import find_contradiction, known_topic_id, last_batch
from tidelog.pipeline.job import TableJob
from tidelog.pipeline.parquet import RangeWriter
from tidelog.pipeline.reading import read_delta
from tidelog.pipeline.shape import TableShape, ValueFormat, json_shape, raw_shape

pytestmark = [pytest.mark.row("R38")]


class NoBrokers:
    """A cluster of which nothing answers."""

    routing = None

    def run(self, *arguments: Any, **named: Any) -> Any:
        raise ClientError("nothing answers")

    offsets = run


def committed(path: Path, value: ValueFormat, row: dict[str, Any], schema: pa.Schema) -> BatchDone:
    """What is told of a batch of one row."""
    told: list[BatchDone] = []
    table = delta.open_table(str(path), schema, description="")
    cluster: Any = NoBrokers()
    committer = TableCommitter(TableJob("b:1", "t", str(path), value), table, cluster, {}, told.append, run="r")
    writer = RangeWriter(str(path), TableShape(value, schema), OffsetRange("t", 0, 0, 1, "id"))
    writer.add(pa.RecordBatch.from_pylist([row], schema=schema))
    committer.refresh()
    committer.take(None, 0, [writer.finish()], time.monotonic())  # type: ignore[arg-type]  # Of the frame nothing is asked.
    return told[0]


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (pa.int64(), 1_700_000_000_000),
        (pa.string(), "soon"),
        (pa.timestamp("us"), datetime.datetime(2020, 1, 1)),
        (pa.timestamp("us", "UTC"), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)),
    ],
    ids=["number", "text", "local time", "time"],
)
def test_a_field_of_the_values_is_no_age_of_records(tmp_path: Path, kind: pa.DataType, field: Any) -> None:
    """JSON values may have one called timestamp, of any type: the record's own column is `_timestamp`."""
    own = pa.field("_timestamp", pa.timestamp("us", "UTC"))
    hour_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    row = {"timestamp": field, "_timestamp": hour_ago}
    done = committed(tmp_path / "both", ValueFormat.JSON, row, pa.schema([pa.field("timestamp", kind), own]))
    assert done.freshness_s == pytest.approx(3600, abs=600)
    done = committed(tmp_path / "field", ValueFormat.JSON, row, pa.schema([pa.field("timestamp", kind)]))
    assert done.freshness_s is None


def test_files_that_cannot_be_removed_are_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A batch that the table has already is done: that its place takes no removals, as some buckets, stops no job."""
    told: list[BatchDone] = []
    table = delta.open_table(str(tmp_path), pa.schema([("offset", pa.int64())]), description="")
    cluster: Any = NoBrokers()
    committer = TableCommitter(TableJob("b:1", "t", str(tmp_path)), table, cluster, {}, told.append, run="r")
    written = [WrittenRange(OffsetRange("t", 0, 0, 9, "id"), f"{number}.parquet", 1, 9, "{}", 0) for number in range(2)]
    for each in written:
        committer.refresh()
        committer.take(None, 0, [each], time.monotonic())  # type: ignore[arg-type]  # Of the frame nothing is asked.
    assert [each.replayed for each in told] == [False, True]
    assert "1.parquet" in caplog.text


@pytest.mark.parametrize(
    ("mode", "column", "takes"), [("name", "col-1f", False), ("name", "offset", True), ("id", "offset", False)]
)
def test_a_table_whose_files_name_columns_otherwise_is_refused(
    tmp_path: Path, mode: str, column: str, *, takes: bool
) -> None:
    """Delta's column mapping: readers look for other names, or for ids, in the files, and would find nulls."""
    schema = pa.schema([("s", pa.struct([("offset", pa.int64())]))])
    delta.open_table(str(tmp_path), schema, description="")
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if "metaData" in action:
            action["metaData"]["configuration"] = {"delta.columnMapping.mode": mode}
            fields = json.loads(action["metaData"]["schemaString"])
            for number, (each, name) in enumerate(
                ((fields["fields"][0], "s"), (fields["fields"][0]["type"]["fields"][0], column))
            ):
                each["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}
            action["metaData"]["schemaString"] = json.dumps(fields)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    if takes:
        delta.open_table(str(tmp_path), schema, description="")
        return
    with pytest.raises(TableMismatch, match="column mapping"):
        delta.open_table(str(tmp_path), schema, description="")
    spark: Any = None
    with pytest.raises(TableMismatch, match="column mapping: read it with delta-spark"):
        read_delta(spark, str(tmp_path))


def altered(path: Path, protocol: dict[str, Any], settings: dict[str, str], **metadata: str) -> None:
    """Another writer's table at `path`: this `protocol`, these settings, and metadata of column `s.offset`."""
    delta.open_table(str(path), pa.schema([("s", pa.struct([("offset", pa.int64())]))]), description="")
    log = path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 1, **protocol}
        if "metaData" in action:
            action["metaData"]["configuration"] = settings
            fields = json.loads(action["metaData"]["schemaString"])
            fields["fields"][0]["type"]["fields"][0]["metadata"] = metadata
            action["metaData"]["schemaString"] = json.dumps(fields)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


@pytest.mark.parametrize(
    ("version", "settings", "metadata", "what"),
    [
        (3, {"delta.constraints.few": "s.offset < 9"}, {}, "constraint few"),
        (4, {}, {"delta.generationExpression": "1 + 1"}, "computed column offset"),
        (2, {}, {"delta.invariants": '{"expression": {"expression": "offset < 9"}}'}, "invariant of column offset"),
        (2, {}, {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}, "bounded length of column offset"),
        (4, {"delta.enableChangeDataFeed": "true"}, {}, None),
    ],
    ids=["constraint", "generated", "invariant", "varchar", "others"],
)
def test_a_table_whose_rows_are_to_be_checked_is_refused(
    tmp_path: Path, version: int, settings: dict[str, str], metadata: dict[str, str], what: str | None
) -> None:
    """Nothing looks at the rows when the files are committed: a table would have some that it says it has not."""
    altered(tmp_path, {"minWriterVersion": version}, settings, **metadata)
    schema = pa.schema([("s", pa.struct([("offset", pa.int64())]))])
    if what is None:
        delta.open_table(str(tmp_path), schema, description="")
        return
    with pytest.raises(TableMismatch, match=rf"has the {what}, which"):
        delta.open_table(str(tmp_path), schema, description="")


def nullable(*names: str) -> pa.Schema:
    return pa.schema([(name, pa.int64()) for name in names])


def required(*names: str) -> pa.Schema:
    return pa.schema([pa.field(name, pa.int64(), nullable=False) for name in names])


@pytest.mark.parametrize(
    ("columns", "shape", "refused"),
    [
        (pa.schema([pa.field("key", pa.binary(), nullable=False)]), raw_shape(["key"]), "key"),
        (required("offset"), raw_shape(["offset"]), None),
        (required("a", "_offset"), json_shape(nullable("a"), ["a", "_offset"]), "a"),
        (required("a", "_offset"), json_shape(required("a"), ["a", "_offset"]), None),
        (required("offset"), json_shape(nullable("offset"), ["offset"]), "offset"),
        (
            pa.schema([("s", pa.struct(required("a")))]),
            json_shape(pa.schema([("s", pa.struct(nullable("a")))]), ["s"]),
            "s",
        ),
    ],
    ids=["keys", "offsets", "a field", "a field that is required", "a field like a column", "a field within"],
)
def test_a_table_takes_no_nulls_where_it_is_not_null(
    tmp_path: Path, columns: pa.Schema, shape: TableShape, refused: str | None
) -> None:
    """Nothing looks at the rows when the files are committed; what each record has is no danger."""
    delta.open_table(str(tmp_path), columns, description="")
    if refused is None:
        delta.open_table(str(tmp_path), shape.schema, description="", filled=shape.filled)
        return
    with pytest.raises(TableMismatch, match=f"column {refused} of the table .* is NOT NULL"):
        delta.open_table(str(tmp_path), shape.schema, description="", filled=shape.filled)


def test_a_table_that_another_job_makes_first_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs begin at once on a path where none is: the one that comes second has not made it."""
    delta.open_table(str(tmp_path), nullable("a"), description="")
    monkeypatch.setattr(DeltaTable, "is_deltatable", lambda path: False)
    with pytest.raises(TableMismatch, match=r"has the columns \(a int64\), this job would write \(b int64\)"):
        delta.open_table(str(tmp_path), nullable("b"), description="")


@pytest.mark.parametrize("change", ["columns added", "another type", "partitioned", "a constraint"])
def test_a_table_that_is_changed_under_a_running_job_takes_what_fits(tmp_path: Path, change: str) -> None:
    """The tasks go on writing the columns of its start: readers would find nulls, or types that they cannot read."""
    schema = pa.schema([("offset", pa.int64())])
    table = delta.open_table(str(tmp_path), schema, description="")
    cluster: Any = NoBrokers()
    committer = TableCommitter(TableJob("b:1", "t", str(tmp_path)), table, cluster, {}, None, run="r")
    frame: Any = None
    committer.take(frame, 0, [written_range("t", 0, 4)], time.monotonic())
    other = DeltaTable(str(tmp_path))
    if change == "columns added":
        other.alter.add_columns([Field("note", PrimitiveType("string"))])
    elif change == "a constraint":
        other.alter.add_constraint({"few": "offset < 9"})
    else:
        row = pa.table({"offset": ["a"]}) if change == "another type" else pa.table({"offset": [1], "day": [2]})
        by = ["day"] if change == "partitioned" else None
        write_deltalake(str(tmp_path), row, mode="overwrite", schema_mode="overwrite", partition_by=by)
    committer.refresh()
    if change == "columns added":
        committer.take(frame, 1, [written_range("t", 4, 6)], time.monotonic())
        return
    with pytest.raises(TableMismatch, match=r"has the columns|is partitioned by day|has the constraint few"):
        committer.take(frame, 1, [written_range("t", 4, 6)], time.monotonic())


@pytest.mark.parametrize("now", ["gone", "made again", "an older copy"])
def test_a_table_that_is_replaced_under_a_running_job_takes_no_more(tmp_path: Path, now: str) -> None:
    """What the job has written is in the other one, and what it writes from here on would come behind a hole."""
    schema = pa.schema([("offset", pa.int64())])
    path, older = tmp_path / "t", tmp_path / "older"
    table = delta.open_table(str(path), schema, description="")
    shutil.copytree(path, older)
    cluster: Any = NoBrokers()
    committer = TableCommitter(TableJob("b:1", "t", str(path)), table, cluster, {}, None, run="r")
    frame: Any = None
    committer.take(frame, 0, [written_range("t", 0, 4)], time.monotonic())
    shutil.rmtree(path)
    if now == "made again":
        other = delta.open_table(str(path), schema, description="")
        for start in range(5):
            delta.commit_batch(other, "q", start, [written_range("t", start, start + 1)], 0, {})
    elif now == "an older copy":
        older.rename(path)
    with pytest.raises(TableMismatch, match=r"is (gone|another one|an older one): .* while this job"):
        committer.refresh()


def test_a_table_that_goes_before_a_batch_is_committed_is_told(tmp_path: Path) -> None:
    """delta-rs has an error of its own for a log that is gone, and for others that no writer expects."""
    table = delta.open_table(str(tmp_path / "t"), nullable("offset"), description="")
    for start in range(3):
        delta.commit_batch(table, "q", start, [written_range("t", start, start + 1)], 0, {})
    table.update_incremental()
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(TableNotWritten, match=r"batch 3 \(t-0 from 3 to 4\) could not be committed"):
        delta.commit_batch(table, "q", 3, [written_range("t", 3, 4)], 0, {})


def test_a_table_that_forgets_how_far_it_is_is_refused(tmp_path: Path) -> None:
    """Delta's own writer drops transaction identifiers without a time from the next checkpoint of such a table: a run
    would then take all again."""
    schema = pa.schema([("s", pa.struct([("offset", pa.int64())]))])
    altered(tmp_path, {"minWriterVersion": 2}, {"delta.setTransactionRetentionDuration": "interval 7 days"})
    with pytest.raises(TableMismatch, match=r"setTransactionRetentionDuration.*UNSET TBLPROPERTIES"):
        delta.open_table(str(tmp_path), schema, description="")


def test_a_table_that_delta_rs_cannot_write_is_refused_by_its_feature(tmp_path: Path) -> None:
    """And not as one that another writer came to first."""
    protocol = {"minWriterVersion": 7, "writerFeatures": ["identityColumns"]}
    altered(tmp_path, protocol, {})
    with pytest.raises(TableMismatch, match=r"IdentityColumns") as refused:
        delta.commit_batch(DeltaTable(str(tmp_path)), "q", 0, [written_range("t", 0, 4)], 0, {})
    assert "another writer" not in str(refused.value)


@pytest.mark.parametrize("feature", ["catalogManaged", "redirectReaderWriter-preview"])
def test_a_table_that_delta_rs_cannot_read_is_refused_by_its_feature(tmp_path: Path, feature: str) -> None:
    """Before the job begins, and for who only reads, too."""
    features = {"readerFeatures": [feature], "writerFeatures": [feature]}
    altered(tmp_path, {"minReaderVersion": 3, "minWriterVersion": 7, **features}, {})
    spark: Any = None
    for use in (
        lambda: delta.open_table(str(tmp_path), pa.schema([("a", pa.int64())]), description=""),
        lambda: read_delta(spark, str(tmp_path)),
    ):
        with pytest.raises(TableMismatch, match=r"cannot be read here: .*(atalog|redirect)"):
            use()
    with pytest.raises(TableMismatch, match="there is no Delta table at"):
        read_delta(spark, str(tmp_path / "none"))


def test_a_new_table_takes_no_batch_that_leaves_records_out(broker: Broker, tmp_path: Path) -> None:
    """A checkpoint that the user has named may be one of a table that is gone: Spark goes on where that one ended."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 9)
    schema = pa.schema([("offset", pa.int64())])

    def take(name: str, start: int, **fields: Any) -> None:
        path = str(tmp_path / name)
        table = delta.open_table(path, schema, description="")
        job = TableJob(broker.bootstrap, topic, path, checkpoint="/c", **fields)
        committer = TableCommitter(job, table, broker.client, {}, None, run="r")
        written = WrittenRange(OffsetRange(topic, 0, start, 9, "id"), "", 0, 9, "{}", 0)
        committer.take(None, 7, [written], time.monotonic())  # type: ignore[arg-type]  # Of the frame nothing is asked.

    begins_at_two = json.dumps({topic: {"0": 2}})
    for name, start, fields in (("a", 4, {}), ("b", 4, {"starting_offsets": begins_at_two})):
        with pytest.raises(TableMismatch, match=r"no records of .*begins at offset 4 .*Remove the checkpoint"):
            take(name, start, **fields)
    take("a", 0)
    take("b", 2, starting_offsets=begins_at_two)
    take("c", 4, starting_offsets="latest")
    broker.forget(topic, 0, 4)
    take("d", 4)


def test_a_restore_is_noticed_whichever_partition_has_records_next(tmp_path: Path) -> None:
    """What it took away may be of another partition than the next batch: that one would have a hole for good."""
    one, other = TopicPartition("t", 0), TopicPartition("t", 1)
    table = delta.open_table(str(tmp_path), pa.schema([("offset", pa.int64())]), description="")

    def written(partition: int, start: int) -> WrittenRange:
        return WrittenRange(OffsetRange("t", partition, start, start + 9, "id"), f"{partition}-{start}", 1, 9, "{}", 0)

    for version, partition in enumerate((0, 1)):
        assert delta.commit_batch(table, "q", version, [written(partition, 0)], version, {})
    cluster: Any = NoBrokers()
    job = TableJob("b:1", "t", str(tmp_path))
    committer = TableCommitter(job, DeltaTable(str(tmp_path)), cluster, {one: 9, other: 9}, None, run="r")
    DeltaTable(str(tmp_path)).restore(1)
    committer.refresh()
    committer.take(None, 2, [], time.monotonic())  # type: ignore[arg-type]  # Nothing is asked of it.
    with pytest.raises(TableMismatch, match=r"was restored .* holds t-1 up to offset 0, where its progress says 9"):
        committer.take(None, 3, [written(0, 9)], time.monotonic())  # type: ignore[arg-type]  # Nothing is asked of it.


def test_a_table_goes_on_when_its_cluster_begins_to_tell_topic_ids(tmp_path: Path) -> None:
    """Apache Kafka before 2.8 has none: after an update of the brokers it is the same topic."""
    partition = TopicPartition("t", 0)
    table = delta.open_table(str(tmp_path), pa.schema([("offset", pa.int64())]), description="")
    assert delta.commit_batch(table, "q", 0, [written_range("t", 0, 4, "")], 0, {})
    assert delta.next_offsets(table, [partition], "id") == {partition: 4}
    assert not delta.commit_batch(table, "q", 1, [written_range("t", 0, 4, "id")], 0, {})
    with pytest.raises(TableMismatch, match="stands at offset 4"):
        delta.commit_batch(table, "q", 1, [written_range("t", 2, 6, "id")], 0, {})
    assert delta.commit_batch(table, "q", 1, [written_range("t", 4, 6, "id")], 0, {})
    assert delta.next_offsets(table, [partition], "id") == {partition: 6}
    assert delta.next_offsets(table, [partition], "new") == {}
    assert delta.commit_batch(table, "q", 2, [written_range("t", 0, 1, "new")], 0, {})


def test_a_table_goes_on_when_its_cluster_stops_telling_topic_ids(tmp_path: Path) -> None:
    """Apache Kafka's has none for a while where a tool of 2.2 has written the topic's node: it is the same topic."""
    partition = TopicPartition("t", 0)
    table = delta.open_table(str(tmp_path), pa.schema([("offset", pa.int64())]), description="")
    assert delta.commit_batch(table, "q", 0, [written_range("t", 0, 4, "")], 0, {})
    assert delta.commit_batch(table, "q", 1, [written_range("t", 4, 6, "id")], 0, {})
    assert known_topic_id(table, "t", "") == "id"
    assert known_topic_id(table, "other", "") == ""
    assert known_topic_id(table, "t", "new") == "new"
    cluster: Any = NoBrokers()
    committer = TableCommitter(TableJob("b:1", "t", str(tmp_path)), table, cluster, {}, None, run="r")
    frame: Any = None
    committer.take(frame, 2, [written_range("t", 4, 6, "")], time.monotonic())
    with pytest.raises(TableMismatch, match="stands at offset 6"):
        committer.take(frame, 2, [written_range("t", 0, 9, "")], time.monotonic())
    committer.take(frame, 2, [written_range("t", 6, 9, "")], time.monotonic())
    committer.take(frame, 3, [written_range("t", 9, 11, "id")], time.monotonic())
    assert delta.next_offsets(table, [partition], "id") == {partition: 11}


def test_a_restore_to_before_its_beginning_leaves_a_table_where_it_begins(tmp_path: Path) -> None:
    """One that is to begin at the end: nothing that it had is gone, and what lies before was not wanted."""
    partition = TopicPartition("t", 0)
    table = delta.open_table(str(tmp_path), pa.schema([("offset", pa.int64())]), description="")
    delta.begin_at(table, {partition: 7}, "id")
    table.restore(0)
    assert find_contradiction(DeltaTable(str(tmp_path)), {partition: delta.progress_id("t", 0, "id")}, "t") is None
    assert last_batch(DeltaTable(str(tmp_path)), "t") is None
