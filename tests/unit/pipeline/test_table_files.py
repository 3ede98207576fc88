"""Where a table job's query begins, without Spark: where the table stands."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.pipeline.ranges import written_range
from tests.unit.pyspark_tidelog.spark_fixtures import Broker

from pyspark_tidelog.errors import DataLoss
from pyspark_tidelog.options import parse_options
from pyspark_tidelog.spark_versions import ReadAllAvailable
from tidelog.model.identifiers import TopicPartition, format_topic_id
from tidelog.pipeline import delta
from tidelog.pipeline.delta import WrittenRange
from tidelog.pipeline.table_files import TableFilesReader

pytestmark = [pytest.mark.row("R38")]


def test_a_table_goes_on_where_it_stands_though_records_are_gone(broker: Broker, tmp_path: Path) -> None:
    """Without a checkpoint, too: the batch that passes the gap over is one that the table takes."""
    topic = broker.topic()
    broker.produce(topic, [b"x"] * 10)
    topic_id = format_topic_id(broker.client.topics([topic])[topic].topic_id)
    table = delta.open_table(str(tmp_path), pa.schema([("offset", pa.int64())]), description="")
    assert delta.commit_batch(table, "q", 0, [written_range(topic, 0, 4, topic_id)], 0, {})
    broker.forget(topic, 0, 6)
    stands = broker.options(topic, startingOffsets=f'{{"{topic}": {{"0": 4}}}}')
    strict, reader = (
        TableFilesReader(parse_options(stands | {"failOnDataLoss": fails}, streaming=True), {})
        for fails in ("true", "false")
    )
    with pytest.raises(DataLoss, match="offset 4"):
        strict.initialOffset()
    start = reader.initialOffset()
    planned = [each.value for each in reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))]
    written = [WrittenRange(each, "", 0, 4, "{}", 0) for each in planned]
    assert delta.commit_batch(table, "q", 1, written, 1, {})
    assert delta.next_offsets(table, [TopicPartition(topic, 0)], topic_id) == {(topic, 0): 10}
    for opened in (strict, reader):
        opened.stop()
