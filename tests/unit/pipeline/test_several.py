"""Tables that share a query, without Spark: which can, what each is given, and where its place is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.pipeline.ranges import written_range
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

from pyspark_tidelog.errors import DataLoss
from pyspark_tidelog.offsets import Position
from pyspark_tidelog.options import EARLIEST, parse_options
from tidelog import cli
from tidelog.cli.table import _secured
from tidelog.model.identifiers import format_topic_id
from tidelog.pipeline import delta
from tidelog.pipeline.delta import WrittenRange
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.job import TableJob
from tidelog.pipeline.parquet import manifest
from tidelog.pipeline.several import (
    SharedAttendant,
    SharedCommitter,
    check_alike,
    checkpoint_of_run,
)
from tidelog.pipeline.shape import raw_shape
from tidelog.pipeline.table import _open, _options_of, start_tables
from tidelog.pipeline.table_files import TableFilesReader

pytestmark = [pytest.mark.row("R38")]

SCHEMA = pa.schema([("offset", pa.int64())])


def test_what_a_query_has_once_is_the_same_for_all() -> None:
    """Topics and tables are not; a difference is named, since it would have no effect."""
    first = TableJob("b:1", "a", "/lake/a", once=True)
    check_alike([first])
    check_alike([first, replace(first, topic="b", path="/lake/b", starting_offsets="latest", group="g")])
    for changed, message in (
        (replace(first, topic="b", path="/lake/b", once=False), "the same once"),
        (replace(first, topic="b", path="/lake/b", source_options={"minPartitions": "2"}), "the same source_options"),
        (replace(first, path="/lake/b"), "topic a is named twice"),
        (replace(first, topic="b", path="/lake/a/"), "table /lake/a is named twice"),
    ):
        with pytest.raises(PipelineError, match=message):
            check_alike([first, changed])
    with pytest.raises(PipelineError, match="no table"):
        check_alike([])


class Frame:
    """The DataFrame of a batch."""

    def __init__(self, *ranges: WrittenRange) -> None:
        self._ranges = ranges

    def collect(self) -> list[dict[str, Any]]:
        return [row for each in self._ranges for batch in manifest(each) for row in batch.to_pylist()]


class Recorder:
    """A committer that tells what it is called with."""

    def __init__(self, name: str, calls: list[Any]) -> None:
        self.failure: Exception | None = None
        self._name = name
        self._calls = calls

    def refresh(self) -> None:
        self._calls.append(("refresh", self._name))

    def take(self, frame: Any, batch: int, ranges: list[WrittenRange], started: float) -> None:
        self._calls.append((self._name, batch, [each.offsets.start for each in ranges]))

    def show_progress(self, *, at_once: bool = False) -> None:
        self._calls.append(("progress", self._name, at_once))

    def close(self) -> None:
        self._calls.append(("close", self._name))


def test_each_table_is_given_what_was_written_of_its_topic() -> None:
    """After all have looked at their table; one without new records has no commit."""
    calls: list[Any] = []
    committers: Any = {name: Recorder(name, calls) for name in ("b", "a", "c")}
    frame: Any = Frame(written_range("b", 7, 8), written_range("a", 0, 4), written_range("b", 5, 7))
    SharedCommitter(committers)(frame, 3)
    assert sorted(calls[:3]) == [("refresh", name) for name in ("a", "b", "c")]
    assert calls[3:] == [("a", 3, [0]), ("b", 3, [7, 5])]


def test_all_tables_are_looked_after_once() -> None:
    """Whichever run is waited for; the failure is that of the table that failed."""
    calls: list[Any] = []
    members = [Recorder("a", calls), Recorder("b", calls)]
    attendant = SharedAttendant(members)
    assert attendant.failure is None
    members[1].failure = PipelineError("b is full")
    attendant.show_progress()
    attendant.close()
    attendant.close()
    assert calls == [("progress", "a", False), ("progress", "b", False), ("close", "a"), ("close", "b")]
    assert str(attendant.failure) == "b is full"


def test_all_are_closed_though_one_cannot_tell_the_rest() -> None:
    """The connections of the others would stay open."""
    calls: list[Any] = []

    class Broken(Recorder):
        def close(self) -> None:
            super().close()
            raise OSError("the table is away")

    attendant = SharedAttendant([Broken("a", calls), Recorder("b", calls)])
    with pytest.raises(OSError, match="away"):
        attendant.close()
    assert sorted(calls) == [("close", "a"), ("close", "b")]


def test_a_run_does_not_begin_on_a_topic_that_was_made_again(broker: Broker, tmp_path: Path) -> None:
    """Whether it is the query's only one or not, and before Spark is asked: no checkpoint has to notice it."""
    topic, other = broker.topic(1), broker.topic(1)
    job = TableJob(broker.bootstrap, topic, str(tmp_path / "t"), once=True)
    table = delta.open_table(job.path, raw_shape(None).schema, description="")
    assert delta.commit_batch(table, "q", 0, [written_range(topic, 0, 4, "old")], 0, {})
    spark: Any = None
    for jobs in ([job], [job, replace(job, topic=other, path=str(tmp_path / "o"))]):
        with pytest.raises(DataLoss, match=rf"topic {topic} was deleted and created again .*its id was old"):
            start_tables(spark, jobs)


@pytest.mark.parametrize("places", ["latest", '{"%s": {"0": 4, "1": 4}}'])
def test_a_topic_that_was_made_again_is_taken_from_its_beginning(broker: Broker, tmp_path: Path, places: str) -> None:
    """Where that may be: what the options say was said of the other topic."""
    topic = broker.topic(2)
    broker.produce(topic, [b"x"] * 5)
    at = places % topic if "%s" in places else places
    may_lose = {"failOnDataLoss": "false"}
    job = TableJob(
        broker.bootstrap, topic, str(tmp_path / "t"), starting_offsets=at, once=True, source_options=may_lose
    )
    table = delta.open_table(job.path, raw_shape(None).schema, description="")
    assert delta.commit_batch(table, "q", 0, [written_range(topic, 0, 4, "old")], 0, {})
    with ExitStack() as opened:
        opening = _open(job, opened)
        assert opening.begins_at == {(topic, 0): EARLIEST, (topic, 1): EARLIEST}
        assert opening.backlog == 5
        reader = TableFilesReader(parse_options(_options_of(opening), streaming=True), {})
        opened.callback(reader.stop)
        assert Position.from_json(reader.initialOffset()).offsets == {(topic, 0): 0, (topic, 1): 0}
    assert delta.commit_batch(table, "q", 1, [written_range(topic, 0, 5, opening.found.topic_ids[topic])], 1, {})
    with ExitStack() as opened:
        assert _open(job, opened).begins_at == {(topic, 0): 5, (topic, 1): EARLIEST}


def test_a_run_goes_on_where_the_table_stands_though_no_topic_id_is_told(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that the table has would come into it again."""
    topic = broker.topic(1)
    broker.produce(topic, [b"x"] * 5)
    job = TableJob(broker.bootstrap, topic, str(tmp_path / "t"), once=True)
    table = delta.open_table(job.path, raw_shape(None).schema, description="")
    assert delta.commit_batch(table, "q", 0, [written_range(topic, 0, 4, "known")], 0, {})
    monkeypatch.setattr("pyspark_tidelog.planning.format_topic_id", lambda topic_id: "")
    with ExitStack() as opened:
        opening = _open(job, opened)
        assert (opening.stands, opening.backlog) == ({(topic, 0): 4}, 1)


@pytest.mark.parametrize("places", ["latest", '{"%s": {"0": -1, "1": -2}}'])
def test_what_comes_after_a_first_run_that_took_nothing_is_taken(broker: Broker, tmp_path: Path, places: str) -> None:
    """A table that is to begin at the end begins where that was first: runs that end would never take a record."""
    topic = broker.topic(2)
    broker.produce(topic, [b"x"] * 5)
    at = places % topic if "%s" in places else places
    job = TableJob(broker.bootstrap, topic, str(tmp_path / "t"), starting_offsets=at, once=True)
    begins = {(topic, 0): 5, (topic, 1): 0 if at == "latest" else EARLIEST}
    for backlog in (0, 3):
        with ExitStack() as opened:
            opening = _open(job, opened)
            assert (opening.begins_at, opening.backlog) == (begins, backlog)
            reader = TableFilesReader(parse_options(_options_of(opening), streaming=True), {})
            opened.callback(reader.stop)
            assert Position.from_json(reader.initialOffset()).offsets == {(topic, 0): 5, (topic, 1): 0}
        broker.produce(topic, [b"y"] * 3)
    assert delta.open_table(job.path, raw_shape(None).schema, description="").version() == 1


def test_a_partition_without_records_begins_where_the_options_say(broker: Broker, tmp_path: Path) -> None:
    """In a later run, too; one that they do not know begins at its beginning."""
    topic = broker.topic(3)
    for partition in range(3):
        broker.produce(topic, [b"x"] * 5, partition=partition)
    places = json.dumps({topic: {"0": 3, "1": 5}})
    job = TableJob(broker.bootstrap, topic, str(tmp_path / "t"), starting_offsets=places, once=True)
    table = delta.open_table(job.path, raw_shape(None).schema, description="")
    topic_id = format_topic_id(broker.client.topics([topic])[topic].topic_id)
    assert delta.commit_batch(table, "q", 0, [written_range(topic, 3, 5, topic_id)], 0, {})
    with ExitStack() as opened:
        opening = _open(job, opened)
        assert opening.begins_at == {(topic, 0): 5, (topic, 1): 5, (topic, 2): EARLIEST}
        assert opening.backlog == 5


def test_each_run_has_a_checkpoint_of_its_own() -> None:
    """Below the folder that was named."""
    job = TableJob("b:1", "t", "/lake/t", checkpoint="hdfs://n/c/")
    assert checkpoint_of_run([job], "r1") == "hdfs://n/c/r1"
    first, second = (checkpoint_of_run([replace(job, checkpoint=None)], "r1") for _ in range(2))
    assert first.startswith("file:///")
    assert first != second


def test_a_local_checkpoint_of_a_run_goes_with_its_process(tmp_path: Path) -> None:
    """No later run goes by it: each would leave a folder for good. The user's folder stays."""
    code = (
        "import sys, pathlib; from tidelog.pipeline.job import TableJob;"
        " from tidelog.pipeline.several import checkpoint_of_run;"
        " place = checkpoint_of_run([TableJob('b:1', 't', '/lake/t', checkpoint=sys.argv[1])], 'r1');"
        " folder = pathlib.Path(place.removeprefix('file://')); folder.mkdir(parents=True);"
        " (folder / 'metadata').write_text('{}')"
    )
    for given in (tmp_path / "a", (tmp_path / "b").as_uri()):
        subprocess.run([sys.executable, "-c", code, str(given)], check=True, timeout=60)
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "/lake/a", "b"], "topic b has no table"),
        (["a", "/lake/a", "a", "/lake/b"], "a topic is named twice"),
        (["a", "/lake/a", "b", "/lake/b", "--columns", "value"], "for one table"),
    ],
)
def test_what_the_command_takes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Pairs, each topic once; columns are a table's own."""
    assert cli.run(["table", *arguments, "--once"]) == 2
    assert message in capsys.readouterr().err


def test_what_secures_a_command_secures_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it: by which CAs an issuer of tokens is trusted, too."""
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nhttps.ca.location=/ca.pem\nssl.ca.location=/b.pem\nclient.id=me\n")
    monkeypatch.setenv("TIDELOG_COMMAND_CONFIG", str(file))
    assert _secured() == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.https.ca.location": "/ca.pem",
        "kafka.ssl.ca.location": "/b.pem",
    }
