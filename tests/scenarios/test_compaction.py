"""Of a compacted topic the last value of each key stays, at its offset; what a reader sees, before and after."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.interop.support import DEADLINE_S, topic_name
from tests.scenarios.observing import START_MS, alter, batches, create, folder, names, time_entries, watermarks
from tests.waiting import until

from tidelog.testing import Cluster

pytestmark = pytest.mark.row("R35")

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SETTINGS = {
    "auto.create.topics.enable": False,
    "log.initial.task.delay.ms": 0,
    "log.retention.check.interval.ms": 20,
    "log.cleaner.backoff.ms": 20,
    "log.cleaner.dedupe.buffer.size": 1 << 20,
}
EAGER = {"cleanup_policy": "compact", "segment_bytes": 1200, "min_cleanable_dirty_ratio": 0.01}
"""A segment takes a few records, and each that is closed is reason enough to clean."""

Found = dict[int, tuple[bytes | None, bytes | None]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    """A broker whose cleaner hardly rests."""
    with Cluster(SETTINGS) as cluster:
        yield cluster


def put(broker: Cluster, topic: str, records: list[tuple[bytes, bytes | None]], timestamp_ms: int = START_MS) -> None:
    """Sends each record as a batch of its own."""
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.num.messages": 1})
    for key, value in records:
        producer.produce(
            topic,
            value,
            key,
            partition=0,
            on_delivery=lambda error, _: failed.append(error.str()) if error else None,
            timestamp=timestamp_ms,
        )
    assert producer.flush(DEADLINE_S) == 0
    assert not failed


def everything(broker: Cluster, topic: str, offset: int = 0, **settings: object) -> Found:
    """[offset] -> key, value of what a consumer gets from `offset` to the end"""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "scenario",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
            **settings,
        }
    )
    found: Found = {}
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, found
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return found
            found[message.offset()] = (message.key(), message.value())
    finally:
        consumer.close()


def roll(broker: Cluster, topic: str) -> None:
    """A record that fills the active segment, and one that opens the next: what was there before may be cleaned."""
    put(broker, topic, [(b"filler", bytes(1100)), (b"last", b"x")])


def cleaned_to(broker: Cluster, topic: str) -> int:
    """What cleaner-offset-checkpoint says; 0 if nothing."""
    path = folder(broker, topic).parent / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.split()[:2] == [topic, "0"]), 0)


def test_the_last_value_of_each_key_stays_at_its_offset(broker: Cluster) -> None:
    """Gaps where others were; a read that begins in a gap gets what comes next; the log's ends are as they were."""
    topic = topic_name("keyed")
    create(broker, topic, **EAGER)
    put(broker, topic, [(b"key-%d" % (number % 3), b"value-%d" % number + bytes(100)) for number in range(60)])
    roll(broker, topic)
    until(lambda: len(everything(broker, topic)) == 5, "only the last values are left")
    found = everything(broker, topic)
    assert {offset: record[0] for offset, record in found.items()} == {
        57: b"key-0",
        58: b"key-1",
        59: b"key-2",
        60: b"filler",
        61: b"last",
    }
    assert found[57][1] == b"value-57" + bytes(100)
    for inside in (0, 1, 30, 57):
        assert min(everything(broker, topic, inside)) == 57
    assert watermarks(broker, topic) == (0, 62)
    until(lambda: not names(broker, topic, ".cleaned") + names(broker, topic, ".swap"), "everything in place")
    assert names(broker, topic, ".log")[0] == f"{0:020d}.log"
    assert f"{0:020d}.log.deleted" in names(broker, topic, ".deleted")
    until(lambda: cleaned_to(broker, topic) > 59, "the checkpoint knows")


def test_a_timestamp_finds_what_is_left(broker: Cluster) -> None:
    """ListOffsets by time gives the first record that stayed and is as late."""
    topic = topic_name("times")
    create(broker, topic, **EAGER)
    for number in range(20):
        put(broker, topic, [(b"k%d" % (number % 2), bytes(300))], START_MS + number)
    roll(broker, topic)
    until(lambda: sorted(everything(broker, topic))[:2] == [18, 19], "cleaned")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "scenario"})
    found = [
        consumer.offsets_for_times([TopicPartition(topic, 0, START_MS + number)], DEADLINE_S)[0].offset
        for number in (0, 10, 18, 19)
    ]
    consumer.close()
    assert found == [18, 18, 18, 19]


def test_tombstones_go_after_their_time(broker: Cluster) -> None:
    """A value goes with the tombstone behind it; the tombstone only delete.retention.ms after it was cleaned first."""
    topic = topic_name("tombs")
    create(broker, topic, delete_retention_ms=DAY_MS, **EAGER)
    put(broker, topic, [(b"gone", b"value"), (b"stays", b"value"), (b"gone", None)])
    roll(broker, topic)
    until(lambda: 0 not in everything(broker, topic), "the value is gone")
    assert everything(broker, topic)[2] == (b"gone", None)
    roll(broker, topic)
    until(lambda: 3 not in everything(broker, topic), "cleaned again")
    assert everything(broker, topic)[2] == (b"gone", None)

    quick = topic_name("quick")
    create(broker, quick, delete_retention_ms=500, **EAGER)
    put(broker, quick, [(b"gone", b"value"), (b"stays", b"value"), (b"gone", None)])
    began = time.monotonic()
    roll(broker, quick)
    until(lambda: 0 not in everything(broker, quick), "the value is gone")

    def is_gone() -> bool:
        roll(broker, quick)
        return 2 not in everything(broker, quick)

    until(is_gone, "the tombstone is gone")
    assert time.monotonic() - began >= 0.5
    assert everything(broker, quick)[1] == (b"stays", b"value")


def test_compressed_batches_and_headers_stay_what_they_were(broker: Cluster) -> None:
    """A batch that loses records is compressed again by its own codec; headers and timestamps are as they were sent."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = topic_name(f"codec-{codec}")
        create(broker, topic, **EAGER)
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "linger.ms": 1000, "compression.type": codec, "acks": "all"}
        )
        for round_number in range(2):
            for number in range(10):
                key = b"odd" if number % 2 else b"key-%d-%d" % (round_number, number)
                headers = [("trace", b"%d" % number), ("none", None)]
                producer.produce(topic, bytes(40), key, 0, timestamp=START_MS + number, headers=headers)
            assert producer.flush(DEADLINE_S) == 0
        roll(broker, topic)
        until(lambda topic=topic: len(everything(broker, topic)) == 13, f"{codec} cleaned")
        assert sorted(everything(broker, topic)) == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 19, 20, 21]
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "scenario"})
        consumer.assign([TopicPartition(topic, 0, 5)])
        message = consumer.poll(DEADLINE_S)
        consumer.close()
        assert message is not None
        assert (message.offset(), message.timestamp()[1]) == (6, START_MS + 6)
        assert message.headers() == [("trace", b"6"), ("none", None)]


def test_it_survives_a_restart(broker: Cluster) -> None:
    """After a clean stop and a start the log is as it was, and is cleaned on from where it was clean."""
    with Cluster(SETTINGS) as own:
        topic = topic_name("restarted")
        create(own, topic, **EAGER)
        put(own, topic, [(b"key-%d" % (number % 3), b"value-%d" % number + bytes(100)) for number in range(30)])
        roll(own, topic)
        until(lambda: cleaned_to(own, topic) >= 30, "cleaned")
        before = everything(own, topic)
        assert len(before) == 5
        own.restart()
        assert everything(own, topic) == before
        assert cleaned_to(own, topic) >= 30
        put(own, topic, [(b"key-0", b"newest" + bytes(100))])
        roll(own, topic)
        until(lambda: 27 not in everything(own, topic), "cleaned again")
        assert {record[0] for record in everything(own, topic).values()} == {
            b"key-0",
            b"key-1",
            b"key-2",
            b"filler",
            b"last",
        }


def test_the_policy_may_change_while_it_runs(broker: Cluster) -> None:
    """delete keeps all that retention does; compact then cleans; with both the oldest segments go as well."""
    topic = topic_name("policy")
    create(broker, topic, segment_bytes=1200, retention_ms=-1, min_cleanable_dirty_ratio=0.01)
    put(broker, topic, [(b"key-%d" % (number % 2), bytes(300)) for number in range(20)])
    roll(broker, topic)
    assert len(everything(broker, topic)) == 22
    alter(broker, topic, cleanup_policy="compact")
    until(lambda: len(everything(broker, topic)) == 4, "cleaned")
    alter(broker, topic, cleanup_policy="compact,delete", retention_bytes=1100)
    until(lambda: watermarks(broker, topic)[0] > 18, "retention has taken what compaction had left")
    assert max(everything(broker, topic, watermarks(broker, topic)[0])) == 21


def test_what_is_young_stays(broker: Cluster) -> None:
    """Nothing younger than min.compaction.lag.ms is cleaned."""
    lagging, plain = topic_name("lagging"), topic_name("plain")
    now_ms = time.time_ns() // 1_000_000
    for topic in (lagging, plain):
        create(broker, topic, min_compaction_lag_ms=HOUR_MS if topic == lagging else 0, **EAGER)
        put(broker, topic, [(b"key", b"%d" % number + bytes(200)) for number in range(20)], now_ms)
        roll(broker, topic)
    until(lambda: len(everything(broker, plain)) == 3, "the other one is cleaned")
    assert len(everything(broker, lagging)) == 22


def test_records_without_keys_are_refused_and_old_ones_go(broker: Cluster) -> None:
    """What a topic took before it was compacted may have no keys: compaction drops it."""
    topic = topic_name("keyless")
    create(broker, topic, segment_bytes=1200, retention_ms=-1)
    put(broker, topic, [(None, bytes(300))] * 10)  # type: ignore[list-item]
    alter(broker, topic, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
    roll(broker, topic)
    until(lambda: sorted(everything(broker, topic)) == [10, 11], "cleaned")
    with pytest.raises(AssertionError, match="failed to validate record"):
        put(broker, topic, [(None, b"keyless")])  # type: ignore[list-item]


def test_a_damaged_log_is_left_alone_and_others_are_cleaned(broker: Cluster) -> None:
    """A batch whose checksum fails is neither dropped nor made whole; its log is told of once, and cleaned no more."""
    damaged, sound = topic_name("damaged"), topic_name("sound")
    create(broker, damaged, **{**EAGER, "min_cleanable_dirty_ratio": 1.0})
    create(broker, sound, **EAGER)
    put(broker, damaged, [(b"key", b"%d" % number + bytes(200)) for number in range(20)])
    path = folder(broker, damaged) / f"{0:020d}.log"
    with path.open("r+b") as file:
        file.seek(120)
        byte = file.read(1)
        file.seek(120)
        file.write(bytes([byte[0] ^ 1]))
    before = path.read_bytes()
    alter(broker, damaged, min_cleanable_dirty_ratio=0.01)
    cleaner = broker.runtime.node.logs.cleaner
    until(lambda: any(each.topic == damaged for each in broker.call(lambda: cleaner.uncleanable)), "left alone")
    put(broker, sound, [(b"key", b"%d" % number + bytes(200)) for number in range(20)])
    roll(broker, sound)
    until(lambda: len(everything(broker, sound)) == 3, "the sound one is cleaned")
    assert path.read_bytes() == before
    assert not names(broker, damaged, ".cleaned")


def test_aborted_data_go_and_committed_stay(broker: Cluster) -> None:
    """Of transactions the data that were aborted go; readers of committed records see the same before and after."""
    topic = topic_name("transactions")
    create(broker, topic, **EAGER)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number + bytes(250), b"key-%d" % (number % 4), 0)
        assert producer.flush(DEADLINE_S) == 0  # An abort would take back what has not been sent.
        if number % 2:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
    roll(broker, topic)
    committed = {"isolation.level": "read_committed"}
    wanted = {b"key-2": b"2", b"key-0": b"4"}

    def values() -> dict[bytes | None, bytes]:
        found = everything(broker, topic, **committed).values()
        return {key: value[:1] for key, value in found if value is not None and key not in (b"filler", b"last")}

    until(lambda: cleaned_to(broker, topic) >= 12, "cleaned")
    assert values() == wanted
    uncommitted = everything(broker, topic, **{"isolation.level": "read_uncommitted"})
    assert not {b"1"[0], b"3"[0], b"5"[0]} & {value[0] for _, value in uncommitted.values() if value}


def test_offsets_of_the_internal_topic_outlive_its_compaction(broker: Cluster) -> None:
    """Committed offsets are what they were after `__consumer_offsets` was compacted and the broker started again."""
    settings = {**SETTINGS, "offsets.topic.num.partitions": 1, "offsets.topic.segment.bytes": 2000}
    with Cluster(settings) as own:
        topic = topic_name("read")
        create(own, topic)
        put(own, topic, [(b"k", b"v")] * 3)
        consumer = Consumer({"bootstrap.servers": own.bootstrap, "group.id": "reader", "enable.auto.commit": False})
        for number in range(200):
            consumer.commit(offsets=[TopicPartition(topic, 0, number % 3 + 1)], asynchronous=False)
        internal = "__consumer_offsets"
        alter(own, internal, min_cleanable_dirty_ratio=0.01)
        consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
        until(lambda: cleaned_to(own, internal) > 150, "the internal topic is compacted")
        until(lambda: len(everything(own, internal)) < 60, "few records are left")
        consumer.close()
        own.restart()
        consumer = Consumer({"bootstrap.servers": own.bootstrap, "group.id": "reader"})
        assert consumer.committed([TopicPartition(topic, 0)], DEADLINE_S)[0].offset == 2
        consumer.close()


def test_the_time_index_of_a_cleaned_segment_is_true(broker: Cluster) -> None:
    """Its last entry has the largest timestamp of the records that stayed."""
    topic = topic_name("indexed")
    create(broker, topic, index_interval_bytes=100, **EAGER)
    for number in range(30):
        put(broker, topic, [(b"key-%d" % (number % 10), bytes(60))], START_MS + number)
    roll(broker, topic)
    until(lambda: min(everything(broker, topic)) == 20, "cleaned")

    def segments() -> list[Any]:
        """Batches and time index of each; nothing while the cleaner replaces one."""
        paths = [folder(broker, topic) / name for name in names(broker, topic, ".log")[:-1]]
        try:
            return [(batches(path), time_entries(path.with_suffix(".timeindex"))) for path in paths]
        except FileNotFoundError:
            return []

    for found, entries in until(segments, "the segments are in place"):
        records = [header for _, header in found]
        assert entries == sorted(entries)
        assert [entry.key for entry in entries[-1:]] == [header.max_timestamp for header in records[-1:]]
