"""What became of a topic between two batches: what counts as loss, also in availableNow, and what gaps cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

import pyspark_tidelog.planning
import pyspark_tidelog.stream
import tidelog.client.routing
from pyspark_tidelog.errors import DataLoss, ReadFailed
from pyspark_tidelog.offsets import OffsetRange, Position
from pyspark_tidelog.options import parse_options
from pyspark_tidelog.planning import Partitions
from pyspark_tidelog.reading import read_columns
from pyspark_tidelog.spark_versions import ReadAllAvailable, ReadMaxRows
from pyspark_tidelog.stream import PARTITIONS_REUSED_S, TidelogStreamReader
from tidelog.client.errors import OffsetOutOfRange
from tidelog.model.identifiers import TopicPartition, format_topic_id
from tidelog.records.columns import Column

pytestmark = [pytest.mark.row("R38")]

ALL = ReadAllAvailable()
MakeReader = Callable[..., TidelogStreamReader]


@pytest.fixture
def reader(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeReader]:
    """Makes readers for what Spark asks them; a partition that seems cut settles at once."""
    monkeypatch.setattr(pyspark_tidelog.stream, "SETTLING_S", 0.0)
    monkeypatch.setattr(pyspark_tidelog.stream, "LATEST_REUSED_S", 0.0)
    opened: list[TidelogStreamReader] = []

    def make(topic: str, **options: str) -> TidelogStreamReader:
        given = broker.options(topic, **options)
        if "subscribePattern" in options:
            del given["subscribe"]
        opened.append(TidelogStreamReader(parse_options(given, streaming=True)))
        return opened[-1]

    yield make
    for each in opened:
        each.stop()


def moved(document: dict[str, Any], topic: str, offset: int) -> dict[str, Any]:
    """A position of Spark's checkpoint with partition 0 at `offset`."""
    return document | {topic: {"0": offset}}


def ranges(stream: TidelogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(each.value.partition, each.value.start, each.value.end) for each in stream.partitions(start, end)]


def test_available_now_notices_a_log_that_was_cut(broker: Broker, reader: MakeReader) -> None:
    """The checkpoint says 9, the log ends at 5: records that were read are gone, and others will have their offsets."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 5)
    stream = reader(topic, startingOffsets="earliest")
    position = moved(stream.latestOffset(stream.initialOffset(), ALL), topic, 9)
    stream.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match=f"{topic}-0 .*offset 9.* ends at 5: its end was lost"):
        stream.latestOffset(position, ALL)
    tolerant = reader(topic, failOnDataLoss="false")
    tolerant.prepareForTriggerAvailableNow()
    assert tolerant.latestOffset(position, ALL) == position


def test_available_now_notices_a_log_that_is_cut_while_it_runs(
    broker: Broker, reader: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was to end at 8, then the log ends at 6: it says so before a task waits in vain for the rest."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 8)
    stream = reader(topic, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    end = stream.latestOffset(start, ReadMaxRows(2))
    monkeypatch.setattr(pyspark_tidelog.planning, "latest_offsets", lambda *arguments: {TopicPartition(topic, 0): 6})
    with pytest.raises(DataLoss, match=r"offset 8.* ends at 6: its end was lost"):
        stream.latestOffset(end, ReadMaxRows(2))
    tolerant = reader(topic, failOnDataLoss="false", maxOffsetsPerTrigger="9")
    tolerant._target = Position.from_json(moved(end, topic, 8))
    assert ranges(tolerant, end, tolerant.latestOffset(end, ReadMaxRows(9))) == [(0, 2, 6)]


def test_available_now_notices_a_topic_that_is_replaced_while_it_runs(broker: Broker, reader: MakeReader) -> None:
    """The same for a topic that is deleted and created again; told to go on, the run ends where the new one does."""
    topic = broker.topic()
    broker.produce(topic, [b"old"] * 8)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    stream, tolerant = reader(topic, **options), reader(topic, **options, failOnDataLoss="false")
    start = stream.initialOffset()
    for each in (stream, tolerant):
        each.prepareForTriggerAvailableNow()
    end = stream.latestOffset(start, ReadMaxRows(2))
    broker.delete(topic)
    broker.topic(name=topic)
    broker.produce(topic, [b"new"] * 3)
    for each in (stream, tolerant):
        each._known = None
    with pytest.raises(DataLoss, match="deleted and created again"):
        stream.latestOffset(end, ReadMaxRows(2))
    first = tolerant.latestOffset(end, ReadMaxRows(2))
    assert ranges(tolerant, end, first) == [(0, 0, 2)]
    last = tolerant.latestOffset(first, ReadMaxRows(2))
    assert ranges(tolerant, first, last) == [(0, 2, 3)]
    assert tolerant.latestOffset(last, ReadMaxRows(2)) is last


def test_private_topics_of_a_sink_in_a_checkpoint_are_forgotten(
    broker: Broker, reader: MakeReader, caplog: pytest.LogCaptureFixture
) -> None:
    """Earlier versions read them for a pattern; the pattern leaves them out now, and nothing of the others is lost."""
    topic = broker.topic()
    private = broker.topic(name=f"tidelog-sink-{topic}")
    broker.produce(topic, [b"x"] * 2)
    caplog.set_level("INFO", "pyspark_tidelog.stream")
    stream = reader(topic, subscribePattern=f".*{topic}")
    known = {private: broker.client.topics([private])[private].topic_id}
    ids = {name: format_topic_id(each) for name, each in known.items()}
    checkpoint: dict[str, Any] = {"@topicIds": ids, private: {"0": 7}, topic: {"0": 1}}
    end = stream.latestOffset(checkpoint, ALL)
    assert private not in end
    assert private not in end["@topicIds"]
    for planned in (end, end | {private: {"0": 9}}):
        assert ranges(stream, checkpoint, planned) == [(0, 1, 2)], "also of a batch that an earlier version planned"
    assert [each.getMessage() for each in caplog.records if private in each.getMessage()] == [
        f"private topics of a sink, not read any more: topics={private}"
    ]
    available_now = reader(topic, subscribePattern=f".*{topic}")
    available_now.prepareForTriggerAvailableNow()
    assert private not in available_now.latestOffset(checkpoint, ALL)
    named = reader(topic, subscribePattern=f"tidelog-sink-{topic}|{topic}")
    with pytest.raises(DataLoss, match=f"{private}-0 had records up to offset 7"):
        named.latestOffset(checkpoint, ALL)


def test_an_open_transaction_takes_nothing_away(broker: Broker, reader: MakeReader) -> None:
    """A checkpoint of uncommitted reads lies beyond the last stable offset when committed records are read from it:
    nothing was lost, and nothing is read before the transaction ends."""
    import confluent_kafka

    topic = broker.topic()
    broker.produce(topic, [b"before"])
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(180)
    uncommitted = reader(topic, startingOffsets="earliest")
    end = uncommitted.latestOffset(uncommitted.initialOffset(), ALL)
    assert Position.from_json(end).offsets == {(topic, 0): 2}
    committed = reader(topic, **{"kafka.isolation.level": "read_committed"})
    assert committed.latestOffset(end, ALL) is end
    committed.prepareForTriggerAvailableNow()
    assert committed.latestOffset(end, ALL) is end
    with pytest.raises(DataLoss, match="its end was lost"):
        committed.latestOffset(moved(end, topic, 3), ALL)
    producer.abort_transaction(30)


def test_a_gap_at_the_beginning_is_one_batch(
    broker: Broker, reader: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention took 10^9 offsets: told to go on, the query does not plan a batch or a task for each thousand."""
    first = 10**9
    topic = broker.topic()
    partition = TopicPartition(topic, 0)
    monkeypatch.setattr(pyspark_tidelog.planning, "latest_offsets", lambda *arguments: {partition: first + 10})
    monkeypatch.setattr(pyspark_tidelog.planning, "earliest_offsets", lambda *arguments: {partition: first})
    stream = reader(topic, failOnDataLoss="false", maxOffsetsPerTrigger="4", maxRecordsPerPartition="2")
    start = {topic: {"0": 5}}
    end = stream.latestOffset(start, ReadMaxRows(4))
    assert Position.from_json(end).offsets == {partition: first + 4}
    assert ranges(stream, start, end) == [(0, 5, first), (0, first, first + 2), (0, first + 2, first + 4)]
    after = stream.latestOffset(end, ReadMaxRows(4))
    assert Position.from_json(after).offsets == {partition: first + 8}


def test_a_log_that_is_all_gap_is_passed_at_once(
    broker: Broker, reader: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything was deleted: one batch takes the query to where new records will come."""
    topic = broker.topic()
    partition = TopicPartition(topic, 0)
    for question in ("latest_offsets", "earliest_offsets"):
        monkeypatch.setattr(pyspark_tidelog.planning, question, lambda *arguments: {partition: 10**9})
    stream = reader(topic, failOnDataLoss="false", maxOffsetsPerTrigger="4")
    end = stream.latestOffset({topic: {"0": 5}}, ReadMaxRows(4))
    assert Position.from_json(end).offsets == {partition: 10**9}
    assert stream.latestOffset(end, ReadMaxRows(4)) is end


def test_a_tolerated_loss_is_told_once(broker: Broker, reader: MakeReader, caplog: pytest.LogCaptureFixture) -> None:
    """Spark asks every 10 ms: one warning, not a hundred a second."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 5)
    stream = reader(topic, failOnDataLoss="false")
    position = moved(stream.initialOffset(), topic, 9)
    for _ in range(3):
        stream.latestOffset(position, ALL)
        broker.produce(topic, [b"x"])
    assert len([each for each in caplog.records if "its end was lost" in each.message]) == 1


def test_a_topic_that_goes_while_a_batch_is_planned_is_one_that_is_gone(
    broker: Broker, reader: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told to go on, the query does, also where it asks for the first offsets of partitions that it has just seen."""
    monkeypatch.setattr(tidelog.client.routing, "UNKNOWN_TOPIC_PATIENCE_S", 0.0)
    topic, gone = broker.topic(), broker.topic()
    for each in (topic, gone):
        broker.produce(each, [b"x"] * 4)
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "6", "maxRecordsPerPartition": "2"}
    stream = reader(f"{topic},{gone}", failOnDataLoss="false", **limits)
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    monkeypatch.setattr(pyspark_tidelog.stream, "LATEST_REUSED_S", 60.0)
    broker.delete(gone)
    end = stream.latestOffset(start, ReadMaxRows(6))
    planned = [each.value for each in stream.partitions(start, end)]
    assert [(each.start, each.end) for each in planned if each.topic == topic] == [(0, 1), (1, 3)]


def test_a_topic_that_a_broker_does_not_show_for_a_moment_is_not_gone(
    broker: Broker, reader: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has not heard of it yet, for example: a subscription by pattern is told of what that broker knows."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 4)
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": topic, "startingOffsets": "earliest"}
    stream = TidelogStreamReader(parse_options(given, streaming=True))
    try:
        start = stream.initialOffset()
        answers = [Partitions((), {})]
        ask = pyspark_tidelog.planning.subscribed_partitions
        monkeypatch.setattr(
            pyspark_tidelog.planning,
            "subscribed_partitions",
            lambda *arguments: answers.pop() if answers else ask(*arguments),
        )
        assert Position.from_json(stream.latestOffset(start, ALL)).offsets == {(topic, 0): 4}
        broker.delete(topic)
        stream._known = None
        with pytest.raises(DataLoss, match="no longer exist"):
            stream.latestOffset(start, ALL)
    finally:
        stream.stop()


def test_topics_that_are_slow_to_be_listed_are_listed_once_a_batch(
    broker: Broker, reader: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with one that is gone, for which brokers are asked again for a while: the list serves from when it came."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 8)
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4", "minPartitions": "2"}
    stream = reader(topic, failOnDataLoss="false", **limits)
    start = stream.initialOffset()
    now = [0.0]
    monkeypatch.setattr(pyspark_tidelog.stream, "time", SimpleNamespace(monotonic=lambda: now[0]))
    ask = pyspark_tidelog.planning.subscribed_partitions
    asked = []

    def slow(*arguments: Any) -> Partitions:
        now[0] += 2 * PARTITIONS_REUSED_S
        asked.append(now[0])
        return ask(*arguments)

    monkeypatch.setattr(pyspark_tidelog.planning, "subscribed_partitions", slow)
    end = stream.latestOffset(start, ReadMaxRows(4))
    assert ranges(stream, start, end) == [(0, 0, 2), (0, 2, 4)]
    assert len(asked) == 1
    now[0] += PARTITIONS_REUSED_S
    stream.latestOffset(end, ReadMaxRows(4))
    assert len(asked) == 2


@pytest.mark.parametrize("fails", ["true", "false"])
def test_an_offset_that_is_back_is_not_lost(fails: str) -> None:
    """A leader that knew less refused it, and the one that was asked for its range has it: the task is tried again."""

    class Answers:
        def iterate_fetch(self, place: TopicPartition, start: int, *arguments: Any, **named: Any) -> Any:
            raise OffsetOutOfRange(place, start, 0, 9)

    cluster: Any = Answers()
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "failOnDataLoss": fails}
    options = parse_options(given, streaming=False)
    with pytest.raises(ReadFailed, match="t-0 cannot be read from offset 4 on"):
        list(read_columns(cluster, options, OffsetRange("t", 0, 4, 9), Column.VALUE))
