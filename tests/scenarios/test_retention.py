"""Segments go by time, by size and by DeleteRecords, the active one too; their files wait as .deleted."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.interop.support import topic_name
from tests.scenarios.observing import START_MS, alter, create, described, names, read, send, watermarks
from tests.waiting import until, until_equal

from tidelog.testing import Cluster

pytestmark = pytest.mark.row("R34")

HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_by_time_the_files_wait_as_deleted(broker: Cluster) -> None:
    """Segments whose newest record is too old are renamed, and no reader sees them any more."""
    topic = topic_name("waits")
    create(broker, topic, segment_bytes=1500, retention_ms=-1, file_delete_delay_ms=HOUR_MS)
    assert not send(broker, topic, [bytes(1000)] * 3, timestamp_ms=START_MS)
    assert not send(broker, topic, [b"young"], timestamp_ms=now_ms())
    assert names(broker, topic, ".log")[:3] == [f"{offset:020d}.log" for offset in range(3)]
    alter(broker, topic, retention_ms=HOUR_MS)
    until(lambda: watermarks(broker, topic) == (3, 4), "old segments gone")
    for suffix in (".log", ".index", ".timeindex"):
        deleted = [f"{offset:020d}{suffix}.deleted" for offset in range(3)]
        until_equal(lambda suffix=suffix: names(broker, topic, f"{suffix}.deleted"), deleted)
        assert names(broker, topic, suffix) == [f"{3:020d}{suffix}"]
    assert read(broker, topic, 0, 1) == [b"young"]


def test_after_the_delay_they_are_gone(broker: Cluster) -> None:
    """file.delete.delay.ms later nothing of them is left; the active segment was rolled, since it had to go too."""
    topic = topic_name("gone")
    create(broker, topic, segment_bytes=1500, retention_ms=HOUR_MS, file_delete_delay_ms=1)
    assert not send(broker, topic, [bytes(1000)] * 3, timestamp_ms=START_MS)
    until(lambda: watermarks(broker, topic) == (3, 3), "all records gone")
    until(lambda: names(broker, topic, ".log") == [f"{3:020d}.log"], "only a new, empty segment")
    until(lambda: not names(broker, topic, ".deleted"), "files removed")


def test_the_largest_timestamp_decides(broker: Cluster) -> None:
    """One young record keeps its segment, and with it those behind, however old they are."""
    topic = topic_name("mixed")
    create(broker, topic, segment_bytes=2300, retention_ms=HOUR_MS)
    for timestamp in (now_ms(), START_MS, START_MS, START_MS, now_ms()):
        assert not send(broker, topic, [bytes(1000)], timestamp_ms=timestamp)
    check = topic_name("check")
    create(broker, check, retention_ms=HOUR_MS)
    assert not send(broker, check, [b"old"], timestamp_ms=START_MS)
    until(lambda: watermarks(broker, check) == (1, 1), "retention has looked at every log")
    assert watermarks(broker, topic) == (0, 5)


def test_by_size(broker: Cluster) -> None:
    """As long as the rest still has retention.bytes, the oldest segment goes."""
    topic = topic_name("bytes")
    create(broker, topic, segment_bytes=1500, retention_ms=-1, retention_bytes=3000)
    assert not send(broker, topic, [bytes(1000)] * 10)
    size = 1000 + 76
    kept = -(-3000 // size)
    until(lambda: watermarks(broker, topic)[0] == 10 - kept, "old segments gone")
    alter(broker, topic, retention_bytes=1)
    until(lambda: watermarks(broker, topic) == (9, 10), "all but what has the last byte")


def test_by_delete_records(broker: Cluster) -> None:
    """Records before the offset can't be read at once; whole segments of them go; the start outlives a restart."""
    with Cluster({"log.initial.task.delay.ms": 0, "log.retention.check.interval.ms": 20}) as own:
        topic = topic_name("start")
        create(own, topic, segment_bytes=2300, retention_ms=-1, file_delete_delay_ms=HOUR_MS)
        assert not send(own, topic, [b"%d" % number + bytes(1000) for number in range(6)])
        asked = TopicPartition(topic, 0, 3)
        admin = AdminClient({"bootstrap.servers": own.bootstrap})
        admin.delete_records([asked])[asked].result(180)
        assert watermarks(own, topic) == (3, 6)
        assert read(own, topic, 0, 1)[0][:1] == b"3"
        until(lambda: names(own, topic, ".log.deleted") == [f"{0:020d}.log.deleted"], "the first segment renamed")
        assert names(own, topic, ".log") == [f"{offset:020d}.log" for offset in (2, 4)]
        own.restart()
        assert watermarks(own, topic) == (3, 6)
        until_equal(lambda: names(own, topic, ".deleted"), [])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"log.retention.hours": 3}, 3 * HOUR_MS),
        ({"log.retention.hours": 3, "log.retention.minutes": 2}, 120_000),
        ({"log.retention.hours": 3, "log.retention.minutes": 2, "log.retention.ms": 777}, 777),
        ({"log.retention.ms": -1}, -1),
    ],
)
def test_milliseconds_go_before_minutes_before_hours(settings: dict[str, int], expected: int) -> None:
    """What a topic without a setting of its own gets."""
    with Cluster(settings) as own:
        create(own, "t")
        assert described(own, "t")["retention.ms"] == str(expected)
