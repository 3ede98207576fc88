"""A new segment by size, by time, by index size, on a running broker by its topic's settings of the moment."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.interop.support import topic_name
from tests.keeping import KEEPING
from tests.scenarios.observing import START_MS, alter, batches, create, folder, names, read, send

from tidelog.testing import Cluster

pytestmark = pytest.mark.row("R33")


def bases(broker: Cluster, topic: str) -> list[int]:
    """First offsets of the segments."""
    return [int(name.partition(".")[0]) for name in names(broker, topic, ".log")]


def test_by_size(broker: Cluster) -> None:
    """No segment grows past segment.bytes; a smaller setting holds from the next append on."""
    topic = topic_name("size")
    create(broker, topic, retention_ms=-1)
    assert not send(broker, topic, [bytes(1000)] * 10)
    assert bases(broker, topic) == [0]
    alter(broker, topic, segment_bytes=5000)
    assert not send(broker, topic, [bytes(1000)] * 10)
    assert bases(broker, topic) == [0, 10, 14, 18]
    assert all((folder(broker, topic) / name).stat().st_size <= 5000 for name in names(broker, topic, ".log")[1:])
    assert len(read(broker, topic, 0, 20)) == 20


def test_by_the_time_of_the_records(broker: Cluster) -> None:
    """segment.ms against the first record's timestamp: at its age the record still belongs, past it not."""
    topic = topic_name("time")
    create(broker, topic, segment_ms=10_000, retention_ms=-1)
    for after_ms in (0, 10_000, 10_001, 20_001, 20_002, 20_004):
        assert not send(broker, topic, [b"value"], timestamp_ms=START_MS + after_ms)
    assert bases(broker, topic) == [0, 2, 4]
    alter(broker, topic, segment_ms=1)
    assert not send(broker, topic, [b"value"], timestamp_ms=START_MS + 20_004)
    assert bases(broker, topic) == [0, 2, 4, 6]


def test_by_the_size_of_the_index(broker: Cluster) -> None:
    """Once the offset index has all the entries that it may have, the next append rolls."""
    topic = topic_name("entries")
    create(broker, topic, index_interval_bytes=0, segment_index_bytes=60, retention_ms=-1)
    assert not send(broker, topic, [b"value"] * 20)
    segments = names(broker, topic, ".index")
    assert len(segments) > 2
    for name in segments[:-1]:
        path = folder(broker, topic) / name
        assert 0 < path.stat().st_size <= 60
        # The time index has room for four entries and keeps one free, so that one ends the segment too.
        assert len(batches(path.with_suffix(".log"))) <= 8


def test_the_milliseconds_go_before_the_hours(broker: Cluster) -> None:
    """log.roll.ms before log.roll.hours, as segment.ms describes its synonyms."""
    topic = topic_name("synonyms")
    create(broker, topic, segment_ms=5000)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entries = admin.describe_configs([resource])[resource].result(180)
    assert [name for name in entries["segment.ms"].synonyms if name.startswith("log.roll")][-1] == "log.roll.hours"
    with Cluster({**KEEPING, "log.roll.ms": 10_000, "log.roll.hours": 1}) as other:
        create(other, topic)
        for after_ms in (0, 10_001):
            assert not send(other, topic, [b"value"], timestamp_ms=START_MS + after_ms)
        assert bases(other, topic) == [0, 1]
