"""Compaction in a broker's life: replicas that move to another log directory, are deleted or shortened, and a stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.broker.harness import Broker
from tests.unit.broker.test_directory_moves import alter, set_rate

from tidelog.broker.replicas.topic_settings import log_config
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Record, build_batch, iterate_headers, read_records
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.file_names import CLEANER_CHECKPOINT
from tidelog.storage.log import Log

T0 = TopicPartition("t", 0)
U0 = TopicPartition("u", 0)
KEYS = 4
SMALL = CleanerSettings(io_buffer_bytes=2_000, slice_bytes=1, dedupe_buffer_bytes=24 * 64, backoff_ms=50)
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "3000",
    "segment.index.bytes": "120",
    "index.interval.bytes": "300",
    "min.cleanable.dirty.ratio": "0.01",
}


def directories(folder: Path) -> dict[str, object]:
    return {"log.dirs": f"{folder}/first,{folder}/second"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """It leads t-0, in the first of two directories, and u-0, in the second; an I/O thread works when the test says."""
    one = started(tmp_path)
    yield one
    one.shell.pool_waits = False
    one.shell.run_pool()
    one.shell.run_turns()
    one.close()


def started(folder: Path, leader_epoch: int = 0) -> Broker:
    one = Broker("", directories(folder))
    for topic in ("t", "u"):
        one.lead(topic, leader_epoch=leader_epoch)
    configure(one)
    return one


def configure(broker: Broker) -> None:
    """Topics that are compacted, and a cleaner that works in small steps."""
    for topic_partition in (T0, U0):
        broker.logs.set_config(topic_partition, log_config(broker.config, COMPACTED))
    broker.logs.cleaner.settings_changed(SMALL)


def put(broker: Broker, topic: str, count: int = 40) -> None:
    for _ in range(count):
        offset = broker.replica(topic).log.log_end_offset
        record = Record(0, 1_700_000_000_000, b"key-%d" % (offset % KEYS), b"value-%d" % offset + bytes(500))
        assert not broker.produce(topic, batch=build_batch([record])).error_code


def turn(broker: Broker) -> None:
    """What the I/O threads were given, then what is due on the loop."""
    broker.shell.run_pool()
    broker.shell.advance(1)


def clean(broker: Broker) -> None:
    """Until nothing is due."""
    broker.shell.pool_waits = False
    broker.shell.run_pool()
    broker.shell.advance(30_000)


def in_the_middle(broker: Broker, log: Log) -> None:
    """Brings the cleaning of the log to where it writes; a slice is under way."""
    broker.shell.pool_waits = True
    broker.node.cleaning.start()
    broker.shell.advance(20_000)
    for _ in range(2_000):
        if marked(log) and broker.shell.pool:
            return
        turn(broker)
    raise AssertionError("nothing was cleaned")


def slow_down(broker: Broker, rate: int) -> None:
    """Moves go at this rate."""
    set_rate(broker, rate)
    configure(broker)


def marked(log: Log) -> list[str]:
    return [path.name for path in Path(log.directory).iterdir() if path.suffix in (".cleaned", ".swap")]


def offsets(log: Log) -> list[int]:
    """Of the records in its files, which must be what was written there."""
    found = []
    for segment in log.segments:
        data = Path(segment.log_file.path).read_bytes()[: segment.size]
        for position, _ in iterate_headers(data):
            for record in read_records(data, position):
                assert (record.value or b"").startswith(b"value-%d\0" % record.offset)
                found.append(record.offset)
    return [offset for offset in found if offset >= log.log_start_offset]


def is_clean(log: Log) -> bool:
    below = [offset for offset in offsets(log) if offset < log.active.base_offset]
    return len(below) <= KEYS and log.cleaned_offset is not None


def last_are_there(log: Log) -> bool:
    end = log.log_end_offset
    return {*range(max(end - KEYS, log.log_start_offset), end)} <= set(offsets(log))


def checkpointed(folder: Path, place: str) -> dict[str, int]:
    path = folder / place / CLEANER_CHECKPOINT
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {line.split()[0]: int(line.split()[2]) for line in lines}


def test_a_move_while_it_is_cleaned(broker: Broker, tmp_path: Path) -> None:
    """The cleaning is given up for the copy, which takes the log's place, and is cleaned there."""
    put(broker, "t")
    put(broker, "u", 30)
    log = broker.replica("t").log
    slow_down(broker, 20_000)
    in_the_middle(broker, log)
    assert alter(broker, tmp_path / "second") is ErrorCode.NONE
    for _ in range(200):
        if broker.logs.futures.get(T0) is not None:
            break
        turn(broker)
    assert broker.logs.futures.get(T0) is not None
    for _ in range(3):
        turn(broker)
    assert not marked(log)
    put(broker, "t", 10)
    before = [segment.base_offset for segment in log.segments]
    for _ in range(500):
        turn(broker)
    assert broker.logs.futures.get(T0) is not None
    assert is_clean(broker.replica("u").log), "Others are cleaned meanwhile."
    assert [segment.base_offset for segment in log.segments][: len(before)] == before
    slow_down(broker, 1 << 40)
    clean(broker)
    moved = broker.replica("t").log
    assert moved.owner.path == f"{tmp_path}/second"
    assert moved.log_end_offset == 50
    assert last_are_there(moved)
    assert is_clean(moved)
    assert checkpointed(tmp_path, "second") == {"t": moved.cleaned_offset, "u": broker.replica("u").log.cleaned_offset}
    assert checkpointed(tmp_path, "first") == {}


def test_a_cleaned_log_moves(broker: Broker, tmp_path: Path) -> None:
    """With its gaps; how far it is clean goes with it at once, and a crash takes neither records nor that."""
    put(broker, "t")
    broker.node.cleaning.start()
    clean(broker)
    log = broker.replica("t").log
    cleaned, before = log.cleaned_offset, offsets(log)
    assert is_clean(log)
    assert checkpointed(tmp_path, "first") == {"t": cleaned}
    broker.node.cleaning.stop()
    assert alter(broker, tmp_path / "second") is ErrorCode.NONE
    broker.shell.run_turns()
    moved = broker.replica("t").log
    assert moved is not log
    assert (moved.cleaned_offset, offsets(moved)) == (cleaned, before)
    assert checkpointed(tmp_path, "first") == {}
    assert checkpointed(tmp_path, "second") == {"t": cleaned}
    broker.logs.abandon()
    again = started(tmp_path, leader_epoch=1)
    found = again.replica("t").log
    assert (found.cleaned_offset, offsets(found)) == (cleaned, before)
    again.close()


def test_a_topic_is_deleted_during_a_slice(broker: Broker, tmp_path: Path) -> None:
    """And made anew under its name, where nothing of the cleaning shows; the others are cleaned."""
    put(broker, "t")
    put(broker, "u", 30)
    log = broker.replica("t").log
    in_the_middle(broker, log)
    # The slice is the only one that has to wait.
    broker.shell.pool_waits = False
    broker.delete("t")
    broker.lead("t", leader_epoch=3, topic_id=bytes(15) + b"x")
    clean(broker)
    assert not broker.logs.offline_directories
    new = broker.replica("t").log
    assert new is not log
    assert not marked(new)
    assert (new.log_end_offset, new.cleaned_offset) == (0, None)
    assert is_clean(broker.replica("u").log)
    assert "t" not in checkpointed(tmp_path, "first")


def test_records_are_deleted_during_a_slice(broker: Broker) -> None:
    """DeleteRecords moves the log's first offset into what is just being cleaned."""
    both = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": "-1"}
    broker.replica("t").log.set_config(log_config(broker.config, both))
    put(broker, "t")
    log = broker.replica("t").log
    in_the_middle(broker, log)
    request = messages.DeleteRecordsRequest(
        topics=[
            messages.DeleteRecordsRequest.DeleteRecordsTopic(
                name="t",
                partitions=[messages.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=9)],
            )
        ],
        timeout_ms=1_000,
    )
    answer = broker.send(ApiKey.DELETE_RECORDS, 2, request)
    clean(broker)
    result = broker.decode(ApiKey.DELETE_RECORDS, 2, answer.result()).topics[0].partitions[0]
    assert (result.error_code, result.low_watermark) == (0, 9)
    assert not broker.logs.offline_directories
    assert not marked(log)
    assert log.log_start_offset == 9
    assert last_are_there(log)
    assert is_clean(log)


def test_a_broker_stops_during_a_slice(broker: Broker, tmp_path: Path) -> None:
    """The slice is finished, and nothing half done is left."""
    put(broker, "t")
    log = broker.replica("t").log
    in_the_middle(broker, log)
    broker.node.stop()
    broker.shell.run_pool()
    broker.shell.run_turns()
    assert not marked(log)
    assert not broker.shell.pool
    broker.logs.close()
    again = started(tmp_path, leader_epoch=1)
    assert last_are_there(again.replica("t").log)
    again.node.cleaning.start()
    clean(again)
    assert is_clean(again.replica("t").log)
    assert last_are_there(again.replica("t").log)
    again.close()


class Unconfirmed:
    """Settings that the store cannot confirm for now."""

    are_current = False

    def when_current(self, then: Callable[[], None]) -> None:
        then()


@pytest.mark.row("R35")
def test_what_a_cleaning_has_written_waits_for_the_settings_of_today(broker: Broker) -> None:
    """While they are not known, no record goes; a topic that is compacted no more is left as it is."""
    put(broker, "t")
    log, gate = broker.replica("t").log, Unconfirmed()
    before = offsets(log)
    in_the_middle(broker, log)
    broker.node.logs.maintenance.settings_gate = gate
    for _ in range(20):
        broker.shell.run_pool()
        broker.shell.advance(500)
    assert offsets(log) == before
    broker.logs.set_config(T0, log_config(broker.config, {**COMPACTED, "cleanup.policy": "delete"}))
    gate.are_current = True
    clean(broker)
    assert offsets(log) == before
    assert not marked(log)
    broker.logs.set_config(T0, log_config(broker.config, COMPACTED))
    clean(broker)
    assert len(offsets(log)) < len(before)


def test_a_stop_does_not_wait_for_settings(broker: Broker) -> None:
    put(broker, "t")
    log = broker.replica("t").log
    in_the_middle(broker, log)
    broker.node.logs.maintenance.settings_gate = Unconfirmed()
    turn(broker)
    broker.node.stop()
    assert not marked(log)
