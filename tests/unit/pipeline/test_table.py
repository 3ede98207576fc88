"""Topic to Delta table: each record exactly once, whatever fails in between, in the columns that were asked for."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet
import pyspark
import pytest
from deltalake import DeltaTable, Field
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, VariantType
from tests.amount import thorough
from tests.unit.pyspark_tidelog.spark_fixtures import BASE_TIMESTAMP, Broker

from tidelog import cli
from tidelog.pipeline import delta
from tidelog.pipeline.errors import PipelineError, TableMismatch, UnparsableRecord
from tidelog.pipeline.json_values import parse_values
from tidelog.pipeline.reading import read_delta
from tidelog.pipeline.shape import BadRecords, ValueFormat, json_shape, raw_shape
from tidelog.pipeline.table import BatchDone, TableJob, TableRun, _shape, start_table, start_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.row("R38")]


def job(broker: Broker, topic: str, path: Path, **fields: Any) -> TableJob:
    return TableJob(bootstrap=broker.bootstrap, topic=topic, path=str(path), once=True, **fields)


def run(spark: SparkSession, wanted: TableJob, on_batch: Callable[[BatchDone], None] | None = None) -> list[BatchDone]:
    """Runs a job to its end; what it committed."""
    done: list[BatchDone] = []

    def heard(batch: BatchDone) -> None:
        done.append(batch)
        if on_batch is not None:
            on_batch(batch)

    start_table(spark, wanted, on_batch=heard).wait()
    return done


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(
        found, key=lambda row: (row.get("partition", row.get("_partition")), row.get("offset", row.get("_offset")))
    )


def offsets(path: Path) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in rows(path)]


def test_a_topic_becomes_a_table(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Raw records with their place and time; a second run takes what is new; lag is visible to Kafka's tools."""
    topic = broker.topic(2)
    broker.produce(topic, [b"a", None])
    broker.produce(topic, [b"c"], partition=1)
    table = tmp_path / "table"
    first = run(spark, job(broker, topic, table))
    assert [(each.rows, each.files, each.replayed) for each in first] == [(3, 2, False)]
    broker.produce(topic, [b"d"], partition=1)
    second = run(spark, job(broker, topic, table))
    assert [(each.rows, dict(each.offsets)) for each in second] == [(1, {(topic, 1): 2})]
    moment = datetime.datetime.fromtimestamp(BASE_TIMESTAMP / 1000, datetime.UTC)
    found = rows(table)
    assert found[0] == {"key": b"k0", "value": b"a", "partition": 0, "offset": 0, "timestamp": moment}
    assert [row["value"] for row in found] == [b"a", None, b"c", b"d"]
    assert broker.committed(f"tidelog-table-{topic}", topic) == {0: 2, 1: 2}
    assert read_delta(spark, str(table)).count() == 4
    assert run(spark, job(broker, topic, table)) == []


def test_several_topics_become_tables_by_one_query(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """The driver ends between the tables' commits: the next run takes what is missing, of each. A table's own job goes
    on where the shared query left it."""
    topics = sorted([broker.topic(2), broker.topic()])
    for topic in topics:
        broker.produce(topic, [b"x"] * 4)
    jobs = [job(broker, topic, tmp_path / topic, value=form) for topic, form in zip(topics, ValueFormat, strict=False)]

    def fail(batch: BatchDone) -> None:
        raise RuntimeError(f"died after {batch.topic}")

    with pytest.raises(Exception, match=f"died after {topics[0]}"):
        start_tables(spark, jobs, on_batch=fail)[1].wait()
    assert [len(rows(tmp_path / topic)) for topic in topics] == [4, 0]
    done: list[BatchDone] = []
    runs = start_tables(spark, jobs, on_batch=done.append)
    assert [(each.job.topic, each.backlog) for each in runs] == [(topics[0], 0), (topics[1], 4)]
    assert all(each.wait() for each in runs)
    assert [(each.topic, each.rows, each.replayed) for each in done] == [(topics[1], 4, False)]
    run(spark, jobs[0])
    for topic in topics:
        broker.produce(topic, [b"y"] * 3)
    assert all(each.wait() for each in start_tables(spark, jobs))
    broker.produce(topics[0], [b"z"])
    assert [each.rows for each in run(spark, jobs[0])] == [1]
    assert [len(rows(tmp_path / topic)) for topic in topics] == [8, 7]
    assert [offsets(tmp_path / topic)[-1] for topic in topics] == [(0, 7), (0, 6)]
    assert [row["value"] for row in rows(tmp_path / topics[1])] == ["x"] * 4 + ["y"] * 3


def test_python_processes_load_pyspark_as_it_is_installed(spark: SparkSession) -> None:
    """Not from the archive of sources that Spark puts first on their path."""

    def place(_: int) -> str:
        import pyspark

        return pyspark.__file__

    assert spark.sparkContext.parallelize([0], 1).map(place).collect() == [pyspark.__file__]


def test_lag_is_told_with_each_batch(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Offsets behind, as Kafka's tool counts them from the group at that moment, and how old the newest record is."""
    topic = broker.topic(2)
    broker.produce(topic, [b"x"] * 6)
    broker.produce(topic, [b"y"] * 3, partition=1)
    lags: list[int] = []

    def count(batch: BatchDone) -> None:
        committed = broker.committed(f"tidelog-table-{topic}", topic)
        lags.append(9 - sum(committed.values()))

    done = run(spark, job(broker, topic, tmp_path / "table", offsets_max_per_trigger=6), count)
    assert [each.behind for each in done] == lags == [3, 0]
    for each in done:
        assert each.freshness_s is not None
        assert 3_000 < each.freshness_s < 3_600 + 600


def test_a_batch_that_was_committed_is_not_taken_again(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """The driver fails between Delta's commit and Spark's: Spark replays the batch, the table knows it."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 10)
    table = tmp_path / "table"

    def fail(batch: BatchDone) -> None:
        if batch.batch == 1:
            raise RuntimeError("died before Spark heard of it")

    with pytest.raises(Exception, match="died before Spark heard of it"):
        run(spark, job(broker, topic, table, offsets_max_per_trigger=4), fail)
    assert offsets(table) == [(0, offset) for offset in range(8)]
    version = DeltaTable(str(table)).version()
    again = run(spark, job(broker, topic, table, offsets_max_per_trigger=4))
    assert [(each.batch, each.rows, each.replayed) for each in again] == [(1, 0, True), (2, 2, False)]
    assert offsets(table) == [(0, offset) for offset in range(10)]
    assert DeltaTable(str(table)).version() == version + 1
    assert len(list(table.glob("*.parquet"))) == len(DeltaTable(str(table)).file_uris())


@thorough
def test_files_of_a_batch_that_never_came_to_a_commit_do_no_harm(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver fails after the tasks wrote: the next run takes the same offsets again, vacuum removes the rest."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 10)
    table = tmp_path / "table"
    with monkeypatch.context() as patched:

        def fail(*arguments: Any) -> bool:
            raise RuntimeError("died before the commit")

        patched.setattr("tidelog.pipeline.delta.commit_batch", fail)
        with pytest.raises(Exception, match="died before the commit"):
            run(spark, job(broker, topic, table))
    assert offsets(table) == []
    assert len(list(table.glob("*.parquet"))) == 1
    run(spark, job(broker, topic, table))
    assert offsets(table) == [(0, offset) for offset in range(10)]
    removed = DeltaTable(str(table)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert len(removed) == 1
    assert offsets(table) == [(0, offset) for offset in range(10)]


@thorough
def test_a_lost_checkpoint_doubles_nothing(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """The table itself knows how far it is: a new query goes on there, in new partitions from their beginning."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 10)
    table = tmp_path / "table"
    run(spark, job(broker, topic, table))
    shutil.rmtree(table / "_checkpoints")
    broker.grow(topic, 2)
    broker.produce(topic, [b"y"] * 3)
    broker.produce(topic, [b"z"] * 2, partition=1)
    run(spark, job(broker, topic, table, starting_offsets="latest"))
    assert offsets(table) == [(0, offset) for offset in range(13)] + [(1, offset) for offset in range(2)]


def test_two_writers_do_not_double(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """A query whose checkpoint is behind the table, for another one wrote meanwhile, is stopped with advice."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 4)
    table = tmp_path / "table"
    run(spark, job(broker, topic, table))
    shutil.copytree(table / "_checkpoints", tmp_path / "old")
    broker.produce(topic, [b"y"] * 4)
    run(spark, job(broker, topic, table))
    shutil.rmtree(table / "_checkpoints")
    shutil.copytree(tmp_path / "old", table / "_checkpoints")
    broker.produce(topic, [b"z"] * 4)
    with pytest.raises(TableMismatch, match=r"stands at offset 8 .* begins at 4.*Remove the checkpoint"):
        run(spark, job(broker, topic, table))
    assert offsets(table) == [(0, offset) for offset in range(8)]


def test_json_becomes_typed_columns(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Columns are inferred from a sample, kept for later runs, and hold null for tombstones and absent fields."""
    topic = broker.topic()
    values = [
        {"id": 1, "name": "ä", "at": "2013-01-01T10:00:00Z", "delay": 1.5, "tags": ["x"]},
        {"id": 2, "name": None, "at": "2013-06-30T23:59:59Z", "delay": None, "tags": []},
    ]
    broker.produce(topic, [*(json.dumps(value).encode() for value in values), None])
    table = tmp_path / "table"
    run(spark, job(broker, topic, table, value=ValueFormat.JSON))
    broker.produce(topic, [b'{"id": 3, "unknown": 1}'])
    told = run(spark, job(broker, topic, table, value=ValueFormat.JSON))
    assert [each.new_fields for each in told] == [("unknown",)]
    # What ALTER TABLE ADD COLUMN does: the column comes last, and is filled from then on.
    DeltaTable(str(table)).alter.add_columns([Field("unknown", "long")])
    broker.produce(topic, [b'{"id": 4, "unknown": 2}'])
    told = run(spark, job(broker, topic, table, value=ValueFormat.JSON))
    assert [each.new_fields for each in told] == [()]
    found = rows(table)
    assert [row["id"] for row in found] == [1, 2, None, 3, 4]
    assert [row["unknown"] for row in found] == [None, None, None, None, 2]
    assert found[0]["at"] == datetime.datetime(2013, 1, 1, 10, tzinfo=datetime.UTC)
    assert (found[0]["name"], found[0]["delay"], found[0]["tags"]) == ("ä", 1.5, ["x"])
    assert [row["_offset"] for row in found] == [0, 1, 2, 3, 4]
    frame = read_delta(spark, str(table))
    assert dict(frame.dtypes)["at"] == "timestamp"
    assert frame.where("id = 2").count() == 1


@thorough
def test_chosen_columns_and_types(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """A schema fixes types, `columns` chooses among fields and the record's own."""
    topic = broker.topic()
    broker.produce(topic, [b'{"id": 7, "price": 2}'])
    schema = pa.schema([("id", pa.int32()), ("price", pa.float64())])
    table = tmp_path / "table"
    wanted = job(
        broker, topic, table, value=ValueFormat.JSON, value_schema=schema, columns=("price", "_offset", "_partition")
    )
    run(spark, wanted)
    assert rows(table) == [{"price": 2.0, "_offset": 0, "_partition": 0}]
    with pytest.raises(TableMismatch, match=r"would write .*give the same columns"):
        run(spark, job(broker, topic, table))


def test_a_bad_record_stops_or_is_kept(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """It is named with its place and reason and nothing of its batch is written; or kept with its payload."""
    topic = broker.topic()
    broker.produce(topic, [b'{"id": 1}', b"{broken", b'{"id": "two"}', b'{"id": 4}'])
    schema = pa.schema([("id", pa.int64())])
    stopped = tmp_path / "stopped"
    with pytest.raises(PipelineError, match=rf"{topic}-0, offset 1: not json: .*--bad-records keep"):
        run(spark, job(broker, topic, stopped, value=ValueFormat.JSON, value_schema=schema))
    assert DeltaTable(str(stopped)).to_pyarrow_table().num_rows == 0
    assert list(stopped.glob("*.parquet")) == []
    kept = tmp_path / "kept"
    run(
        spark,
        job(broker, topic, kept, value=ValueFormat.JSON, value_schema=schema, bad_records=BadRecords.KEEP),
    )
    found = rows(kept)
    assert [row["id"] for row in found] == [1, None, None, 4]
    assert [row["_unparsed"] for row in found] == [None, b"{broken", b'{"id": "two"}', None]
    assert "not int64" in found[2]["_reason"]


@thorough
def test_text_values(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """UTF-8 becomes a string column; what is none is refused with its offset."""
    topic = broker.topic()
    broker.produce(topic, ["grüezi".encode(), None])
    table = tmp_path / "table"
    run(spark, job(broker, topic, table, value=ValueFormat.TEXT, columns=("value", "partition", "offset")))
    assert [row["value"] for row in rows(table)] == ["grüezi", None]
    broker.produce(topic, [b"\xff\xfe"])
    with pytest.raises(PipelineError, match="offset 2: not text"):
        run(spark, job(broker, topic, table, value=ValueFormat.TEXT, columns=("value", "partition", "offset")))


@thorough
def test_nothing_to_infer_from(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """An empty topic has no fields yet; samples that are no JSON objects are told."""
    topic = broker.topic()
    with pytest.raises(UnparsableRecord, match="no record yet to infer columns from: give a schema"):
        run(spark, job(broker, topic, tmp_path / "table", value=ValueFormat.JSON))
    broker.produce(topic, [b"plain text"])
    with pytest.raises(UnparsableRecord, match="is no JSON object"):
        run(spark, job(broker, topic, tmp_path / "table", value=ValueFormat.JSON))


@thorough
def test_a_continuous_run_can_be_stopped(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """It takes what comes, batch after batch, and a stop keeps what was committed."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 3)
    table = tmp_path / "table"
    done: list[BatchDone] = []

    def more(batch: BatchDone) -> None:
        done.append(batch)
        if len(done) == 1:
            broker_two.produce(topic, [b"y"] * 2)

    broker_two = Broker(broker.bootstrap)
    wanted = TableJob(bootstrap=broker.bootstrap, topic=topic, path=str(table), trigger_interval_s=0.05)
    running = start_table(spark, wanted, on_batch=more)
    while sum(each.rows for each in done) < 5:
        assert not running.wait(0.1)
    running.stop()
    broker_two.client.close()
    assert offsets(table) == [(0, offset) for offset in range(5)]


def test_aborted_transactions_do_not_come_into_the_table(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Committed records are what a table is made of, and a run ends before an open transaction; who wants the others
    says so."""
    import confluent_kafka

    topic = broker.topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for value, ends in (("aborted", False), ("committed", True), ("open", None)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(180)
        if ends is not None:
            (producer.commit_transaction if ends else producer.abort_transaction)(30)
    table, all_of_it = tmp_path / "table", tmp_path / "all"
    run(spark, job(broker, topic, table, columns=("value",)))
    assert rows_of(table, "value") == [b"committed"]
    everything = {"Kafka.Isolation.Level": "read_uncommitted", "SUBSCRIBE": "another"}
    run(spark, job(broker, topic, all_of_it, columns=("value",), source_options=everything))
    assert rows_of(all_of_it, "value") == [b"aborted", b"committed", b"open"]
    # A table of before, of uncommitted records, goes on without an alarm.
    assert run(spark, job(broker, topic, all_of_it, columns=("value",))) == []
    producer.commit_transaction(30)
    run(spark, job(broker, topic, table, columns=("value",)))
    assert rows_of(table, "value") == [b"committed", b"open"]


def rows_of(path: Path, column: str) -> list[Any]:
    """One column, in the order of the table's files."""
    files = sorted(DeltaTable(str(path)).file_uris())
    return [value for each in files for value in pa.parquet.read_table(each, partitioning=None)[column].to_pylist()]


@thorough
def test_a_restored_table_stops_the_job_until_it_is_rewound(
    spark: SparkSession, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Delta's RESTORE takes rows away and leaves the progress: going on would leave a hole. Rewound, nothing is missing
    and nothing twice, with the checkpoint of before in its place."""
    topic = broker.topic()
    table = tmp_path / "table"
    for _ in range(3):
        broker.produce(topic, [b"x"] * 10)
        run(spark, job(broker, topic, table))
    DeltaTable(str(table)).restore(1)
    broker.produce(topic, [b"y"] * 5)
    with pytest.raises(TableMismatch, match=r"up to offset 10, where its progress says 30.*tidelog table rewind"):
        run(spark, job(broker, topic, table))
    assert len(offsets(table)) == 10
    assert cli.run(["table", "rewind", topic, str(table), "-b", broker.bootstrap]) == 0
    assert capsys.readouterr().out == f"{topic}-0: 30 -> 10\n"
    run(spark, job(broker, topic, table))
    assert offsets(table) == [(0, offset) for offset in range(35)]
    assert cli.run(["table", "rewind", topic, str(table), "-b", broker.bootstrap]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_a_table_that_is_restored_under_a_running_job(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """The job notices before its next batch, and leaves no files of it."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 6)
    table = tmp_path / "table"

    def restore(batch: BatchDone) -> None:
        if batch.batch == 1:
            DeltaTable(str(table)).restore(1)

    with pytest.raises(TableMismatch, match="up to offset 2, where its progress says 4"):
        run(spark, job(broker, topic, table, offsets_max_per_trigger=2), restore)
    assert len(offsets(table)) == 2
    assert len(list(table.glob("*.parquet"))) == 2


def test_where_the_checkpoint_lies(tmp_path: Path) -> None:
    """In a local table; where Spark has no file system for the table's, on this machine; or where the user says. After
    a rewind it is another one."""
    local = TableJob("b:1", "t", str(tmp_path))
    assert local.checkpoint_after(0) == f"{tmp_path}/_checkpoints/t"
    assert local.checkpoint_after(2) == f"{tmp_path}/_checkpoints/t-rewound-2"
    assert TableJob("b:1", "t", "s3://x/t").checkpoint_after(0).startswith("file:///")
    chosen = TableJob("b:1", "t", "s3://x/t", checkpoint="hdfs://n/c/")
    assert (chosen.checkpoint_after(0), chosen.checkpoint_after(1)) == ("hdfs://n/c/", "hdfs://n/c-rewound-1")


class Committer:
    """Of a job that has failed."""

    failure: Exception | None = None

    def close(self) -> None: ...


class Query:
    """One that Spark has ended with an error that is not ours."""

    def awaitTermination(self, timeout: float | None = None) -> bool:
        raise RuntimeError("No module named 'pyarrow'")


def test_an_error_of_another_making_is_not_its_own_cause(tmp_path: Path) -> None:
    """Programs follow causes to their end, this project's command line too: it would never have ended."""
    ended = TableRun(TableJob("b:1", "t", str(tmp_path)), Query(), Committer(), raw_shape(), 0)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="No module named") as failure:
        ended.wait()
    assert failure.value.__cause__ is None


def test_a_batch_that_fails_while_the_job_is_stopped_is_explained(tmp_path: Path) -> None:
    """As one that fails before: in the job's own words, and the connections are closed."""
    calls: list[str] = []

    class Failing(Query):
        isActive = True  # noqa: N815  # Spark's name.
        status: ClassVar = {"isTriggerActive": True}

    class Attendant(Committer):
        failure = TableMismatch("another writer came first")

        def close(self) -> None:
            calls.append("close")

    stopped = TableRun(TableJob("b:1", "t", str(tmp_path)), Failing(), Attendant(), raw_shape(), 0)  # type: ignore[arg-type]
    with pytest.raises(TableMismatch, match="another writer came first"):
        stopped.stop()
    assert calls == ["close"]


def test_columns_that_json_values_cannot_fill_are_refused_where_they_are_asked_for(tmp_path: Path) -> None:
    """A schema that the user gives may have maps, also within structs: Arrow's parser has none. Of others there are no
    columns in tables, or not those that Spark means."""
    nothing: Any = None
    a_variant = to_arrow_schema(StructType([StructField("v", VariantType())]), timezone="UTC").field("v").type
    a_map = pa.map_(pa.string(), pa.int64())
    without = [pa.duration("us"), pa.time64("ns"), pa.struct([]), a_variant]
    for kind in (a_map, pa.struct([("m", a_map)]), *without, pa.list_(pa.struct([("d", pa.duration("us"))]))):
        wanted = pa.schema([("a", pa.int64()), ("m", kind)])
        job = TableJob("b:1", "t", str(tmp_path), ValueFormat.JSON, value_schema=wanted)
        with pytest.raises(TableMismatch, match=r"column m .*maps.*STRUCT"):
            _shape(job, nothing, nothing, nothing)


def test_columns_that_json_values_cannot_fill_are_left_to_the_user(tmp_path: Path) -> None:
    """A table may have maps of the user's, also within structs: Arrow's parser has none, and would take no value."""
    a_map = pa.map_(pa.string(), pa.int64())
    own = [pa.field("m", a_map), pa.field("ms", pa.list_(pa.struct([("m", a_map)])))]
    before = json_shape(pa.schema([("a", pa.int64())])).schema
    table = delta.open_table(str(tmp_path), pa.schema([*before, *own]), description="")
    nothing: Any = None
    shape = _shape(TableJob("b:1", "t", str(tmp_path), ValueFormat.JSON), nothing, nothing, nothing)
    assert shape.value_schema == pa.schema([("a", pa.int64())])
    assert parse_values(pa.array([b'{"a": 1, "m": {"x": 1}}'], pa.binary()), shape.value_schema)[1] == {}
    assert delta.open_table(str(tmp_path), shape.schema, description="").version() == table.version()
