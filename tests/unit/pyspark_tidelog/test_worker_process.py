"""Spark's Python processes collect garbage after all that they are asked: what is loaded for good is not gone through
each time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec

import pytest
from pyspark import TaskContext
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

from pyspark_tidelog import DefaultSource, worker_process
from pyspark_tidelog.options import COLUMNS
from pyspark_tidelog.schema import spark_schema


@pytest.fixture(autouse=True)
def _as_in_a_worker() -> Iterator[None]:
    """Where nothing is frozen yet, as tests/conftest.py does it."""
    gc.unfreeze()
    yield
    gc.unfreeze()
    worker_process._freeze.cache_clear()


def test_a_workers_first_task_leaves_little_to_go_through(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, at its end; a driver that reads, or plans, keeps its objects as they are."""
    topic = broker.topic()
    broker.produce(topic, [b"a"])
    reader = DefaultSource(broker.options(topic)).reader(spark_schema(COLUMNS))
    (partition,) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(partition)) == 1
    assert gc.get_freeze_count() == 0
    monkeypatch.setattr(TaskContext, "get", object)
    rows = reader.read(partition)
    assert next(rows).num_rows == 1
    assert gc.get_freeze_count() == 0
    assert list(rows) == []
    frozen = gc.get_freeze_count()
    assert frozen > len(gc.get_objects())
    assert sum(batch.num_rows for batch in reader.read(partition)) == 1
    assert gc.get_freeze_count() <= frozen


@pytest.mark.parametrize("asked", ["schema", "plan", "sink"])
def test_a_process_that_plans_leaves_little_to_go_through(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """Also the processes that Spark asks for a schema, a plan or a writer, which it uses again for the next query."""
    topic = broker.topic()
    source = DefaultSource(broker.options(topic))
    reader = source.reader(spark_schema(COLUMNS))
    sink = DefaultSource({"kafka.bootstrap.servers": broker.bootstrap, "topic": topic})
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    if asked == "schema":
        source.schema()
    elif asked == "plan":
        reader.partitions()
    else:
        sink.writer(spark_schema(("key", "value")), False)
    assert gc.get_freeze_count() > len(gc.get_objects())
