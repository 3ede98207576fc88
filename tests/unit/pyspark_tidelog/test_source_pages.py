"""docs/spark.md and README.md: the examples for a session of one's own run as they stand there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.sql.streaming import StreamingQueryManager
from tests.amount import thorough
from tests.scenarios.documents import python_blocks
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

from pyspark_tidelog import LagListener
from tidelog.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.row("R38"), thorough]

ROOT: Final = Path(__file__).parents[3]
VALUES: Final = [b'{"carrier": "AA", "n": %d}' % number for number in range(10)]


def test_each_example_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On topics of their names; the one that reads files has them once their broker has stopped."""
    listeners: list[Any] = []
    monkeypatch.setattr(StreamingQueryManager, "addListener", lambda _, listener: listeners.append(listener))
    examples = [*python_blocks(ROOT / "docs/spark.md"), *python_blocks(ROOT / "README.md")]
    examples = [each for each in examples if "tidelog.testing" not in each]
    (of_files,) = (each for each in examples if '"segments"' in each)
    assert len(examples) == 8
    names: dict[str, Any] = {"spark": spark, "answers": spark.createDataFrame([("AA", 1)], ["carrier", "n"])}

    def run(code: str) -> None:
        for place, here in places.items():
            code = code.replace(place, here)
        exec(compile(code, "an example", "exec"), names)  # Our own page.

    with Cluster(data=str(tmp_path / "logs")) as cluster:
        places = {
            "localhost:9092": cluster.bootstrap,
            "127.0.0.1:9092": cluster.bootstrap,
            "/lake": str(tmp_path),
            "/data/kafka-logs": str(tmp_path / "logs"),
        }
        broker = Broker(cluster.bootstrap)
        for topic in ("flights", "clicks"):
            broker.produce(broker.topic(4, topic), VALUES, partition=3)
        broker.topic(1, "answers")
        names["options"] = broker.options("flights")
        for example in examples:
            if example is not of_files:
                run(example)
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
        assert names["df"].count() == names["values"].count() == len(VALUES)
        answers = spark.read.format("tidelog").options(**broker.options("answers")).load().collect()
        assert [bytes(row.value) for row in answers] == [VALUES[1].replace(b": ", b":").replace(b", ", b",")]
        broker.client.close()
    run(of_files)
    assert names["flights"].count() == len(VALUES)
    (listener,) = listeners
    assert isinstance(listener, LagListener)
    listener.close()
