"""`readStream.format("tidelog")`: no record skipped or repeated over restarts, failures and changes of the topic."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

import pyspark_tidelog.planning
import pyspark_tidelog.stream
from pyspark_tidelog import DefaultSource
from pyspark_tidelog.errors import DataLoss, OptionError
from pyspark_tidelog.offsets import Position
from pyspark_tidelog.options import parse_options
from pyspark_tidelog.spark_versions import HAS_LIMITS, ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark_tidelog.stream import TidelogStreamReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.row("R38")]

ALL = ReadAllAvailable()
MakeReader = Callable[..., TidelogStreamReader]


class Sink:
    """Collects what a query delivers, by batch; may fail once."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.batches: dict[int, list[tuple[int, int, bytes]]] = {}
        self._fail_at = fail_at

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = [(row.partition, row.offset, bytes(row.value)) for row in frame.collect()]
        if batch == self._fail_at:
            raise RuntimeError("the sink fails")
        self.batches[batch] = rows

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return sorted((partition, offset) for rows in self.batches.values() for partition, offset, _ in rows)


def run(spark: SparkSession, options: dict[str, str], checkpoint: Path, sink: Sink) -> None:
    """One AvailableNow run."""
    frame = spark.readStream.format("tidelog").options(**options).load()
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def reader(broker: Broker) -> Iterator[Callable[..., TidelogStreamReader]]:
    """Makes readers alone, for what Spark asks them; they are stopped after the test."""
    opened: list[TidelogStreamReader] = []

    def make(topic: str, **options: str) -> TidelogStreamReader:
        opened.append(TidelogStreamReader(parse_options(broker.options(topic, **options), streaming=True)))
        return opened[-1]

    yield make
    for each in opened:
        each.stop()


def ranges(stream: TidelogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(each.value.partition, each.value.start, each.value.end) for each in stream.partitions(start, end)]


needs_limits = pytest.mark.skipif(not HAS_LIMITS, reason="this PySpark does not ask Python sources within limits")


@needs_limits
def test_restarts_skip_and_repeat_nothing(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Batches within maxOffsetsPerTrigger, a new partition in between: each offset once; progress is in the group."""
    topic = broker.topic(2)
    options = broker.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="40", progressGroup=f"g-{topic}")
    for partition in range(2):
        broker.produce(topic, [b"x"] * 30, partition=partition)
    first = Sink()
    run(spark, options, tmp_path, first)
    assert len(first.batches) == 2
    assert first.offsets == [(partition, offset) for partition in range(2) for offset in range(30)]
    # Spark tells a source of its last batch never: progress is there all the same.
    assert broker.committed(f"g-{topic}", topic) == {0: 30, 1: 30}
    broker.grow(topic, 3)
    broker.produce(topic, [b"y"] * 5)
    broker.produce(topic, [b"z"] * 7, partition=2)
    second = Sink()
    run(spark, options, tmp_path, second)
    assert second.offsets == [(0, offset) for offset in range(30, 35)] + [(2, offset) for offset in range(7)]
    assert broker.committed(f"g-{topic}", topic) == {0: 35, 1: 30, 2: 7}


def test_latest_does_not_move_when_the_first_batch_fails(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """A stream from "latest" whose first batch failed takes that batch again, though the latest offset moved on."""
    topic = broker.topic()
    broker.produce(topic, [b"before"] * 3)
    options = broker.options(topic, startingOffsets="latest")

    class ProducingSink(Sink):
        """Records arrive while the first, still empty, batch is under way."""

        def __call__(self, frame: DataFrame, batch: int) -> None:
            broker.produce(topic, [b"during"] * 4)
            super().__call__(frame, batch)

    with pytest.raises(Exception, match="the sink fails"):
        run(spark, options, tmp_path, ProducingSink(fail_at=0))
    broker.produce(topic, [b"after"] * 2)
    sink = Sink()
    run(spark, options, tmp_path, sink)
    if not HAS_LIMITS:
        run(spark, options, tmp_path, sink)  # The run before repeated the batch that had failed, and no more.
    assert sink.offsets == [(0, offset) for offset in range(3, 9)]


def test_the_first_batch_keeps_its_start(broker: Broker, reader: MakeReader) -> None:
    """The pitfall in small: the answer to a second initialOffset does not matter once the first batch is logged."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 3)
    before = reader(topic)
    start = before.initialOffset()
    broker.produce(topic, [b"x"] * 4)
    assert before.initialOffset() == start
    end = before.latestOffset(start, ALL)
    broker.produce(topic, [b"x"] * 2)
    after = reader(topic)
    assert Position.from_json(after.initialOffset()).offsets == {(topic, 0): 9}
    assert ranges(after, after.initialOffset(), end) == [(0, 3, 7)]
    assert ranges(after, end, after.latestOffset(end, ALL)) == [(0, 7, 9)]


def test_idle_streams_ask_seldom(broker: Broker, reader: MakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark polls every 10 ms; most of the questions are answered from memory, and "nothing new" is the start
    itself."""
    topic = broker.topic()
    stream = reader(topic)
    asked = []
    original = pyspark_tidelog.planning.latest_offsets

    def counting(*arguments: Any) -> Any:
        asked.append(1)
        return original(*arguments)

    monkeypatch.setattr(pyspark_tidelog.planning, "latest_offsets", counting)
    monkeypatch.setattr("pyspark_tidelog.stream.LATEST_REUSED_S", 60.0)
    start = stream.initialOffset()
    for _ in range(50):
        assert stream.latestOffset(start, ALL) is start
    assert len(asked) == 1


@needs_limits
def test_limits(broker: Broker, reader: MakeReader) -> None:
    """maxOffsetsPerTrigger bounds a batch, minOffsetsPerTrigger holds it back until the delay is over."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 10)
    bounded = reader(topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    assert bounded.getDefaultReadLimit() == ReadMaxRows(4)
    start = bounded.initialOffset()
    assert ranges(bounded, start, bounded.latestOffset(start, ReadMaxRows(4))) == [(0, 0, 4)]
    assert ranges(bounded, start, bounded.latestOffset(start, ALL)) == [(0, 0, 10)]
    patient = reader(topic, startingOffsets="earliest", minOffsetsPerTrigger="5")
    assert patient.getDefaultReadLimit() == ReadMinRows(5)
    start = patient.initialOffset()
    end = patient.latestOffset(start, ReadMinRows(5))
    broker.produce(topic, [b"x"] * 3)
    patient._latest = None
    assert patient.latestOffset(end, ReadMinRows(5)) is end
    hasty = reader(topic, startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="0ms")
    hasty.latestOffset(start, ReadMinRows(5))
    assert hasty.latestOffset(end, ReadMinRows(5)) is not end


def test_available_now_has_an_end(broker: Broker, reader: MakeReader) -> None:
    """What arrives after the run began waits for the next one."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 5)
    stream = reader(topic, startingOffsets="earliest")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    broker.produce(topic, [b"x"] * 5)
    end = stream.latestOffset(start, ALL)
    assert ranges(stream, start, end) == [(0, 0, 5)]
    assert stream.latestOffset(end, ALL) is end


def test_a_recreated_topic_is_noticed(broker: Broker, reader: MakeReader) -> None:
    """Its offsets are other records: an error that says so, or, if loss may be, a start from its beginning."""
    topic = broker.topic()
    broker.produce(topic, [b"old"] * 5)
    stream = reader(topic, startingOffsets="earliest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    broker.delete(topic)
    broker.topic(name=topic)
    broker.produce(topic, [b"new"] * 8)
    again = reader(topic)
    with pytest.raises(DataLoss, match=r"deleted and created again .*failOnDataLoss.*from its beginning"):
        again.latestOffset(end, ALL)
    tolerant = reader(topic, failOnDataLoss="false")
    assert ranges(tolerant, end, tolerant.latestOffset(end, ALL)) == [(0, 0, 8)]


def test_a_deleted_topic_is_noticed(broker: Broker, reader: MakeReader) -> None:
    """A stream whose topic is gone says so; if loss may be, it keeps its place and waits."""
    topic, other = broker.topic(), broker.topic()
    broker.produce(topic, [b"x"] * 5)
    subscription = f"{topic},{other}"
    stream = reader(subscription, startingOffsets="earliest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    broker.delete(topic)
    with pytest.raises(DataLoss, match=f"{topic}-0 no longer exist"):
        reader(subscription).latestOffset(end, ALL)
    tolerant = reader(subscription, failOnDataLoss="false")
    broker.produce(other, [b"x"])
    later = Position.from_json(tolerant.latestOffset(end, ALL))
    assert later.offsets == {(topic, 0): 5, (other, 0): 1}


@needs_limits
def test_a_topic_that_is_deleted_under_a_running_stream(
    broker: Broker, reader: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of partitions that the stream has still names it: the same is said, and the same goes on."""
    monkeypatch.setattr(pyspark_tidelog.stream, "PARTITIONS_REUSED_S", float("inf"))
    monkeypatch.setattr(pyspark_tidelog.stream, "LATEST_REUSED_S", 0.0)
    topic, other = broker.topic(), broker.topic()
    broker.produce(topic, [b"x"] * 5)
    subscription = f"{topic},{other}"
    strict = reader(subscription, startingOffsets="earliest")
    tolerant = reader(subscription, startingOffsets="earliest", failOnDataLoss="false")
    end = strict.latestOffset(strict.initialOffset(), ALL)
    assert tolerant.latestOffset(tolerant.initialOffset(), ALL) == end
    broker.delete(topic)
    broker.produce(other, [b"x"])
    with pytest.raises(DataLoss, match=f"{topic}-0 no longer exist"):
        strict.latestOffset(end, ALL)
    later = Position.from_json(tolerant.latestOffset(end, ALL))
    assert later.offsets == {(topic, 0): 5, (other, 0): 1}


@needs_limits
def test_offsets_gone_under_a_stream(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Retention overtook the query: it stops and says what to do; told to go on, it continues with what is left."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 10)
    options = broker.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    with pytest.raises(Exception, match="the sink fails"):
        run(spark, options, tmp_path, Sink(fail_at=1))
    broker.forget(topic, 0, 6)
    with pytest.raises(Exception, match=r"offset 2, but has the offsets from 6 to 10.*set failOnDataLoss to false"):
        run(spark, options, tmp_path, Sink())
    sink = Sink()
    run(spark, options | {"failOnDataLoss": "false"}, tmp_path, sink)
    assert sink.offsets == [(0, offset) for offset in range(6, 10)]


def test_constructors_are_light_and_copies_are_new() -> None:
    """The reader is built in several processes and travels pickled: no connection, no state."""
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    source = pickle.loads(pickle.dumps(DefaultSource(options)))
    stream = source.streamReader(source.schema())
    stream._target = Position({})
    copy = pickle.loads(pickle.dumps(stream))
    assert copy._options == stream._options
    assert copy._cluster is None
    assert copy._target is None
    batch = source.reader(source.schema())
    assert pickle.loads(pickle.dumps(batch))._options == batch._options


def test_a_stream_without_limits(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """What every PySpark can: batches over restarts, a new partition, and progress for people."""
    topic = broker.topic()
    options = broker.options(topic, startingOffsets="earliest", progressGroup=f"g-{topic}")
    broker.produce(topic, [b"x"] * 5)
    first, second, third = Sink(), Sink(), Sink()
    run(spark, options, tmp_path, first)
    broker.grow(topic, 2)
    broker.produce(topic, [b"y"] * 2)
    broker.produce(topic, [b"z"] * 3, partition=1)
    run(spark, options, tmp_path, second)
    run(spark, options, tmp_path, third)
    assert first.offsets == [(0, offset) for offset in range(5)]
    assert second.offsets == [(0, 5), (0, 6), (1, 0), (1, 1), (1, 2)]
    assert third.offsets == []
    assert broker.committed(f"g-{topic}", topic) == {0: 7, 1: 3}


@pytest.fixture
def old_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before 4.2: no start, no limits."""
    monkeypatch.setattr("pyspark_tidelog.stream.HAS_LIMITS", False)
    monkeypatch.setattr("pyspark_tidelog.stream.LATEST_REUSED_S", 0.0)
    monkeypatch.setattr("pyspark_tidelog.stream.SETTLING_S", 0.0)


def test_older_spark_asks_for_the_latest_offset_only(old_spark: None, broker: Broker, reader: MakeReader) -> None:
    """The source remembers where the query is: an idle one gets the same answer, the first batch keeps its start."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 3)
    stream = reader(topic, startingOffsets="earliest")
    start = stream.initialOffset()
    end = stream.latestOffset()
    assert stream.latestOffset() is end
    assert ranges(stream, start, end) == [(0, 0, 3)]
    broker.produce(topic, [b"x"])
    later = stream.latestOffset()
    assert ranges(stream, end, later) == [(0, 3, 4)]
    restarted = reader(topic)
    broker.produce(topic, [b"x"])
    assert ranges(restarted, later, restarted.latestOffset()) == [(0, 4, 5)]
    with pytest.raises(OptionError, match=r"maxOffsetsPerTrigger needs PySpark 4\.2"):
        reader(topic, maxOffsetsPerTrigger="5")


def test_older_spark_is_told_of_losses_when_it_plans(old_spark: None, broker: Broker, reader: MakeReader) -> None:
    """After a restart only the plan of a batch says from where: a topic made anew, or cut, is noticed there."""
    topic = broker.topic()
    broker.produce(topic, [b"old"] * 3)
    stream = reader(topic, startingOffsets="earliest")
    stream.initialOffset()
    end = stream.latestOffset()
    restarted = reader(topic)
    with pytest.raises(DataLoss, match="its end was lost"):
        restarted.partitions(end | {topic: {"0": 9}}, restarted.latestOffset())
    broker.delete(topic)
    broker.topic(name=topic)
    restarted = reader(topic)
    with pytest.raises(DataLoss, match="deleted and created again"):
        restarted.partitions(end, restarted.latestOffset())
