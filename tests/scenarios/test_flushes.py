"""Appends go to the page cache; how often they go to the device, the settings say."""

from __future__ import annotations

import pytest
from tests.interop.support import topic_name
from tests.scenarios.observing import alter, create, log_of, read, send
from tests.waiting import until

from tidelog.testing import Cluster

pytestmark = pytest.mark.row("R36")


def test_flush_messages_counts_records(broker: Cluster) -> None:
    """Every 10 records, and not before."""
    topic = topic_name("count")
    create(broker, topic, flush_messages=10)
    log = log_of(broker, topic)
    assert not send(broker, topic, [b"value"] * 9)
    assert broker.call(lambda: log.flushed_offset) == 0
    assert not send(broker, topic, [b"value"])
    until(lambda: broker.call(lambda: log.flushed_offset) == 10, "flushed")


def test_flush_ms_counts_time(broker: Cluster) -> None:
    """Records unflushed for so long are flushed, without a further append."""
    topic = topic_name("age")
    create(broker, topic)
    log = log_of(broker, topic)
    assert not send(broker, topic, [b"value"] * 3)
    assert broker.call(lambda: log.flushed_offset) == 0
    alter(broker, topic, flush_ms=10)
    assert not send(broker, topic, [b"value"])
    until(lambda: broker.call(lambda: log.flushed_offset) == 4, "flushed")


def test_the_brokers_interval_holds_for_topics_without_their_own() -> None:
    """log.flush.interval.messages is what a topic's flush.messages defaults to."""
    with Cluster({"log.flush.interval.messages": 1}) as own:
        create(own, "t")
        log = log_of(own, "t")
        assert not send(own, "t", [b"value"] * 3)
        assert own.call(lambda: log.flushed_offset) == 3


def test_a_closed_segment_is_flushed(broker: Cluster) -> None:
    """A roll asks for it, whatever the settings."""
    topic = topic_name("closed")
    create(broker, topic, segment_bytes=1500, retention_ms=-1)
    log = log_of(broker, topic)
    assert not send(broker, topic, [bytes(1000)] * 2)
    until(lambda: broker.call(lambda: log.flushed_offset) >= 1, "flushed up to the roll")


def test_large_reads_come_whole(broker: Cluster) -> None:
    """What goes by sendfile, 64 KB and more, arrives byte for byte."""
    topic = topic_name("sendfile")
    create(broker, topic, retention_ms=-1)
    values = [bytes([number]) * 300_000 for number in range(20)]
    assert not send(broker, topic, values)
    assert read(broker, topic, 0, 20) == values
