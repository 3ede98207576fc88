"""A worker process keeps its connections from task to task, and nothing else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

import tidelog.client.blocking
from pyspark_tidelog import connections
from pyspark_tidelog.batch import RangePartition, TidelogBatchReader
from pyspark_tidelog.errors import DataLoss
from pyspark_tidelog.options import parse_options

pytestmark = [pytest.mark.row("R38")]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The connections that were opened."""
    connections.close_idle()
    found: list[Any] = []
    original = tidelog.client.blocking.BlockingConnection

    def counting(*arguments: Any, **named: Any) -> Any:
        found.append(original(*arguments, **named))
        return found[-1]

    monkeypatch.setattr(tidelog.client.blocking, "BlockingConnection", counting)
    yield found
    connections.close_idle()


def batch_reader(broker: Broker, topic: str, **options: str) -> TidelogBatchReader:
    return TidelogBatchReader(parse_options(broker.options(topic, **options), streaming=False))


def read(reader: TidelogBatchReader, partition: Any) -> list[int]:
    return [offset for batch in reader.read(partition) for offset in batch.column("offset").to_pylist()]


def test_tasks_share_connections(broker: Broker, opened: list[Any]) -> None:
    """One after another; two at a time have one each."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 4)
    reader = batch_reader(broker, topic, maxRecordsPerPartition="1")
    tasks = reader.partitions()
    opened.clear()
    assert [read(reader, each) for each in tasks] == [[0], [1], [2], [3]]
    assert len(opened) == 1
    one, two = reader.read(tasks[0]), reader.read(tasks[1])
    assert [next(one).num_rows, next(two).num_rows] == [1, 1]
    assert len(opened) == 2
    one.close()  # type: ignore[attr-defined]  # As Spark does where a LIMIT has enough.
    assert read(reader, tasks[2]) == [2]
    assert len(opened) == 2


def test_a_connection_that_the_broker_closed_is_not_used(broker: Broker, opened: list[Any]) -> None:
    """Workers wait for minutes, and brokers close what is idle: no task pays for that with a failed attempt."""
    topic = broker.topic()
    broker.produce(topic, [b"x"])
    reader = batch_reader(broker, topic)
    (task,) = reader.partitions()
    read(reader, task)
    opened[-1]._socket.shutdown(socket.SHUT_RDWR)
    opened.clear()
    assert read(reader, task) == [0]
    assert len(opened) == 1


def test_a_task_that_gave_up_halfway_leaves_no_answer_behind(broker: Broker, opened: list[Any]) -> None:
    """The answer to its last fetch must not be taken for the next task's."""
    topic = broker.topic()
    for _ in range(4):
        broker.produce(topic, [b"x" * 100] * 2)
    reader = batch_reader(broker, topic, **{"kafka.max.partition.fetch.bytes": "100"})
    (task,) = reader.partitions()
    halfway = reader.read(task)
    next(halfway)
    halfway.close()  # type: ignore[attr-defined]
    assert read(reader, task) == list(range(8))


def test_a_topic_that_took_another_ones_name_is_noticed(broker: Broker, opened: list[Any]) -> None:
    """What a process knew of a topic is not kept with its connections."""
    topic = broker.topic()
    broker.produce(topic, [b"old"] * 2)
    reader = batch_reader(broker, topic)
    (task,) = reader.partitions()
    assert read(reader, task) == [0, 1]
    broker.delete(topic)
    broker.topic(name=topic)
    broker.produce(topic, [b"new"] * 2)
    with pytest.raises(DataLoss, match="deleted and created again"):
        read(reader, task)
    (fresh,) = reader.partitions()
    assert read(reader, fresh) == [0, 1]


def test_other_options_have_other_connections(broker: Broker, opened: list[Any]) -> None:
    """Another user's login, for example; those that waited longest are closed."""
    topic = broker.topic()
    broker.produce(topic, [b"x"])
    for name in range(connections.IDLE_MAX + 2):
        reader = batch_reader(broker, topic, **{"kafka.client.id": f"c{name}"})
        (task,) = reader.partitions()
        assert isinstance(task, RangePartition)
        read(reader, RangePartition(replace(task.value)))
    assert len(connections._idle) == connections.IDLE_MAX
    assert len([each for each in opened if not each.closed]) == connections.IDLE_MAX
