"""Replicas moved between the log directories of one broker, while they are written and read, and through crashes."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.harness import Broker, deletion_of, make_batch, topic_id_of
from tests.unit.broker.replica_harness import ReplicaCluster

from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers.describe_log_dirs import SPACE_MS_MAX
from tidelog.broker.logs import directory_moves
from tidelog.broker.logs.directory_moves import DAMAGED_MS_MAX, LAST_BYTES_MAX, RETRY_MS, Moves
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import (
    ZERO_TOPIC_ID,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
    format_topic_id,
)
from tidelog.ports.disk import FileRange
from tidelog.ports.real import SystemDisk
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import iterate_headers, read_records

T0 = TopicPartition("t", 0)


def directories(folder: Path) -> dict[str, object]:
    return {"log.dirs": f"{folder}/first,{folder}/second", "log.segment.bytes": 100_000}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """With two log directories; it leads t-0, which lies in the first one."""
    one = Broker("", directories(tmp_path))
    one.lead("t")
    yield one
    one.close()


def alter(broker: Broker, path: object, topic: str = "t", partition: int = 0, version: int = 2) -> ErrorCode:
    """AlterReplicaLogDirs of one partition."""
    kind = messages.AlterReplicaLogDirsRequest
    topics = [kind.AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
    request = kind(dirs=[kind.AlterReplicaLogDir(path=str(path), topics=topics)])
    answer = broker.decode(
        ApiKey.ALTER_REPLICA_LOG_DIRS, version, broker.send(ApiKey.ALTER_REPLICA_LOG_DIRS, version, request)
    )
    ((result,),) = [topic.partitions for topic in answer.results]
    return ErrorCode(result.error_code)


def set_rate(broker: Broker, rate: int) -> None:
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    resource = ConfigResource(ConfigResourceType.BROKER, str(broker.node.broker_id))
    broker.node.config_handler.settings_changed(resource, {name: str(rate)})


def described(broker: Broker) -> list[tuple[str, int, bool]]:
    """Directory, lag and whether it is a copy, of each t-0 that DescribeLogDirs shows."""
    answer = broker.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, messages.DescribeLogDirsRequest(topics=None))
    return [
        (os.path.basename(found.log_dir), partition.offset_lag, partition.is_future_key)
        for found in answer.results
        for topic in found.topics
        for partition in topic.partitions
    ]


def values(broker: Broker, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    """What the log that serves holds, read from its files."""
    log = broker.replica(topic, partition).log
    found: list[bytes | None] = []
    for segment in log.segments:
        data = Path(segment.log_file.path).read_bytes()[: segment.size]
        for position, _ in iterate_headers(data):
            found += [record.value for record in read_records(data, position) if record.offset >= log.log_start_offset]
    return found


def folders(folder: Path) -> list[str]:
    """Partitions' folders, without the unique parts of their names."""
    found = []
    for place in ("first", "second"):
        for name in sorted(os.listdir(folder / place)):
            if name.startswith("t-"):
                head, _, mark = name.partition(".")
                found.append(f"{place}/{head}{mark[32:]}")
    return found


def fill(broker: Broker, count: int, size: int = 10_000) -> list[bytes]:
    records = [b"%06d" % number + bytes(size) for number in range(count)]
    for record in records:
        assert not broker.produce("t", [record]).error_code
    return records


def test_a_file_system_that_hangs_is_described_without_its_space(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other directories are what an operator wants to see then."""
    in_pool, hung = broker.shell.in_pool, str(tmp_path / "second")

    def hang(work: Any) -> Deferred[Any]:
        return Deferred() if hung in getattr(work, "directories", ()) else in_pool(work)

    monkeypatch.setattr(broker.shell, "in_pool", hang)
    answer = broker.send(ApiKey.DESCRIBE_LOG_DIRS, 4, messages.DescribeLogDirsRequest(topics=None))
    broker.shell.advance(SPACE_MS_MAX)
    first, second = broker.decode(ApiKey.DESCRIBE_LOG_DIRS, 4, answer.result()).results
    assert (os.path.basename(first.log_dir), len(first.topics), first.total_bytes > 0) == ("first", 1, True)
    assert (second.error_code, second.log_dir, second.total_bytes, second.usable_bytes) == (0, hung, -1, -1)


def test_a_led_replica_moves(broker: Broker, tmp_path: Path) -> None:
    """With all its records, over several segments; written before and after, and the old folder is on its way out."""
    records = fill(broker, 50)
    assert folders(tmp_path) == ["first/t-0"]
    assert alter(broker, tmp_path / "second") is ErrorCode.NONE
    broker.shell.run_turns()
    assert broker.replica("t").log.owner.path == f"{tmp_path}/second"
    assert folders(tmp_path) == ["first/t-0-delete", "second/t-0"]
    records += fill(broker, 5)
    assert values(broker) == records
    assert broker.replica("t").high_watermark == 55
    assert len(broker.replica("t").log.segments) > 3
    assert described(broker) == [("second", 0, False)]
    broker.node.disk_scheduler.tick()
    broker.shell.advance(120_000)
    assert folders(tmp_path) == ["second/t-0"]


def test_it_is_written_while_it_moves(broker: Broker, tmp_path: Path) -> None:
    """Each chunk's reading takes its time, in which more comes; both directories are shown meanwhile."""
    records = fill(broker, 300)
    broker.shell.pool_waits = True
    assert alter(broker, tmp_path / "second") is ErrorCode.NONE
    shown = set()
    for _ in range(200):
        broker.shell.run_turns()
        broker.shell.run_pool()
        broker.shell.run_turns()
        if len(broker.node.moves):
            records += fill(broker, 1)
        shown.update(
            (log.owner.path.rpartition("/")[2], broker.node.logs.futures.get(T0) is log)
            for log in (*broker.node.logs.logs(), *broker.node.logs.futures)
        )
    assert shown == {("first", False), ("second", True), ("second", False)}
    assert values(broker) == records
    assert len(broker.node.moves) == 0
    assert broker.replica("t").log.owner.path == f"{tmp_path}/second"


def test_every_record_is_durable_when_the_copy_takes_over(tmp_path: Path) -> None:
    """flush.messages=1: what was acknowledged is flushed in the new directory before the old one is given up."""
    broker = Broker("", {**directories(tmp_path), "log.flush.interval.messages": 1})
    broker.lead("t")
    for number in range(20):
        broker.produce("t", [b"%d" % number], acks=-1)
        broker.shell.run_turns()
    assert alter(broker, tmp_path / "second") is ErrorCode.NONE
    broker.shell.run_turns()
    log = broker.replica("t").log
    assert log.owner.path == f"{tmp_path}/second"
    assert log.flushed_offset == 20
    answer = broker.produce("t", [b"after"], acks=-1)
    broker.shell.run_turns()
    assert not answer.error_code
    assert broker.replica("t").high_watermark == 21
    broker.close()


def test_an_epoch_without_records_is_kept(broker: Broker, tmp_path: Path) -> None:
    """The leader's own, in which nothing was written yet: followers ask where it begins."""
    fill(broker, 5)
    broker.lead("t", leader_epoch=3, partition_epoch=1)
    alter(broker, tmp_path / "second")
    broker.shell.run_turns()
    assert broker.replica("t").log.owner.path == f"{tmp_path}/second"
    assert broker.replica("t").log.epochs.entries == [(0, 0), (3, 5)]


def test_errors(broker: Broker, tmp_path: Path) -> None:
    """As Kafka answers; nothing moves."""
    assert alter(broker, tmp_path / "third") is ErrorCode.LOG_DIR_NOT_FOUND
    assert alter(broker, "second") is ErrorCode.LOG_DIR_NOT_FOUND
    assert alter(broker, tmp_path / "second", topic="other") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(broker, tmp_path / "first") is ErrorCode.NONE
    broker.shell.run_turns()
    assert len(broker.node.moves) == 0
    broker.logs.directories[1].failed(OSError(5, "Input/output error"), "a test")
    assert alter(broker, tmp_path / "second") is ErrorCode.KAFKA_STORAGE_ERROR
    assert folders(tmp_path) == ["first/t-0"]


def test_a_partition_that_is_not_here_yet_is_created_where_it_was_asked_for(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Twice in the second directory, although the first had its turn; tools ask so, and it is no reason to warn."""
    kind = messages.UpdateMetadataRequest
    states = [
        kind.UpdateMetadataPartitionState(partition_index=index, leader=1, isr=[1], replicas=[1]) for index in (0, 1)
    ]
    topic_id = TopicId(topic_id_of("u"))
    broker.tell_brokers([kind.UpdateMetadataTopicState(topic_name="u", topic_id=topic_id, partition_states=states)])
    for index in (0, 1):
        assert alter(broker, tmp_path / "second", "u", index) is ErrorCode.REPLICA_NOT_AVAILABLE
    assert not [each for each in caplog.records if each.levelname == "WARNING" and "not moved" in each.message]
    broker.lead("u", 2)
    assert [broker.replica("u", index).log.owner.path for index in (0, 1)] == [f"{tmp_path}/second"] * 2


def test_a_topic_that_is_not_known_yet_is_created_where_it_was_asked_for(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka answers that it does not know the topic, and remembers the directory nevertheless. So many at most are
    remembered: nothing says that the topics will ever be."""
    monkeypatch.setattr(directory_moves, "WANTED_MAX", 3)
    for topic in ("old", "u", "v", "w"):
        assert alter(broker, tmp_path / "second", topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(broker.logs.wanted_directories) == [(topic, 0) for topic in ("u", "v", "w")]
    broker.lead("u")
    assert broker.replica("u").log.owner.path == f"{tmp_path}/second"


def test_another_directory_is_asked_for_meanwhile(tmp_path: Path) -> None:
    """The first copy is dropped; asked for the directory where it is, the move ends."""
    broker = Broker("", {"log.dirs": f"{tmp_path}/first,{tmp_path}/second,{tmp_path}/third"})
    broker.lead("t")
    records = fill(broker, 20)
    broker.shell.pool_waits = True
    assert alter(broker, tmp_path / "second") is ErrorCode.NONE
    for _ in range(3):
        broker.shell.run_turns()
        broker.shell.run_pool()
    assert alter(broker, tmp_path / "third") is ErrorCode.NONE
    assert "second/t-0-future" not in folders(tmp_path)
    broker.shell.pool_waits = False
    broker.shell.run_pool()
    broker.shell.run_turns()
    assert broker.replica("t").log.owner.path == f"{tmp_path}/third"
    broker.shell.pool_waits = True
    assert alter(broker, tmp_path / "first") is ErrorCode.NONE
    assert alter(broker, tmp_path / "third") is ErrorCode.NONE
    assert len(broker.node.moves) == 0
    broker.shell.pool_waits = False
    broker.shell.run_pool()
    broker.shell.run_turns()
    assert broker.node.logs.futures.get(T0) is None
    assert values(broker) == records
    broker.close()


def test_there_and_back(broker: Broker, tmp_path: Path) -> None:
    """Each time with all records; a start after a crash finds them."""
    records = fill(broker, 30)
    for place in ("second", "first", "second", "first"):
        assert alter(broker, tmp_path / place) is ErrorCode.NONE
        broker.shell.run_turns()
        records += fill(broker, 3)
        assert values(broker) == records
    broker.logs.abandon()
    again = Broker("", directories(tmp_path))
    again.lead("t", leader_epoch=1)
    assert values(again) == records
    assert again.replica("t").log.owner.path == f"{tmp_path}/first"
    again.close()


def test_a_deleted_topic_leaves_no_copy(broker: Broker, tmp_path: Path) -> None:
    """Neither folder serves any more, and a start finds nothing to go on with."""
    fill(broker, 20)
    broker.shell.pool_waits = True
    alter(broker, tmp_path / "second")
    for _ in range(3):
        broker.shell.run_turns()
        broker.shell.run_pool()
    assert "second/t-0-future" in folders(tmp_path)
    broker.send(ApiKey.STOP_REPLICA, 4, deletion_of("t"))
    assert folders(tmp_path) == ["first/t-0-delete", "second/t-0-delete"]
    broker.shell.pool_waits = False
    broker.shell.run_pool()
    broker.shell.run_turns()
    assert len(broker.node.moves) == 0


def test_a_topic_of_the_same_name_moves_where_the_deleted_one_was_to_go(broker: Broker, tmp_path: Path) -> None:
    """The former move has not noticed yet that its replica is gone, since the rate is used up."""
    fill(broker, 20)
    set_rate(broker, 10_000)
    alter(broker, tmp_path / "second")
    broker.shell.advance(1_000)
    broker.delete("t")
    broker.lead("t", topic_id=bytes(15) + b"9")
    assert len(broker.node.moves) == 1
    records = fill(broker, 2)
    assert alter(broker, tmp_path / "second") is ErrorCode.NONE
    broker.shell.advance(60_000)
    assert broker.replica("t").log.owner.path == f"{tmp_path}/second"
    assert values(broker) == records


@pytest.mark.parametrize("start", [12, 190])
def test_records_deleted_meanwhile_stay_deleted(broker: Broker, tmp_path: Path, start: int) -> None:
    """DeleteRecords of what is copied already; and behind it, where the copy begins anew at the log's new beginning."""
    records = fill(broker, 200)
    log = broker.replica("t").log
    log.advance_start(7)
    broker.shell.pool_waits = True
    alter(broker, tmp_path / "second")
    for _ in range(3):
        broker.shell.run_turns()
        broker.shell.run_pool()
    copy = broker.node.logs.futures.get(T0)
    assert copy is not None
    assert 12 < copy.log_end_offset < 190
    log.advance_start(start)
    broker.shell.pool_waits = False
    broker.shell.run_pool()
    broker.shell.run_turns()
    broker.shell.advance(1_000)
    assert broker.replica("t").log is not log
    assert broker.replica("t").log.log_start_offset == start
    assert values(broker) == records[start:]
    broker.logs.abandon()
    again = Broker("", directories(tmp_path))
    assert again.logs.get(T0).log_start_offset == start
    again.close()


def test_a_log_that_begins_earlier_meanwhile_moves_whole(broker: Broker, tmp_path: Path) -> None:
    """While the first chunk is read, an unclean election cuts the log before the records that were deleted, and others
    come in their place: the copy has to begin with those."""
    fill(broker, 10)
    log = broker.replica("t").log
    log.announce_start(6)
    log.advance_start(6)
    broker.shell.pool_waits = True
    assert alter(broker, tmp_path / "second") is ErrorCode.NONE
    while broker.node.logs.futures.get(T0) is None:
        broker.shell.run_turns()
        broker.shell.run_pool()
    broker.shell.run_turns()
    replica, replicas = broker.replica("t"), broker.node.replicas
    replicas.resign(replica, BrokerId(1), LeaderEpoch(1), PartitionEpoch(1))
    log.truncate_to(3)
    replica.known_high_watermark = log.high_watermark
    replicas.lead(replica, LeaderEpoch(2), PartitionEpoch(2), (BrokerId(0),))
    assert log.log_start_offset == 3
    records = fill(broker, 5)
    broker.shell.pool_waits = False
    broker.shell.run_pool()
    broker.node.disk_scheduler.tick()
    broker.shell.advance(10_000)
    assert broker.replica("t").log.owner.path == f"{tmp_path}/second"
    assert broker.replica("t").log.log_start_offset == 3
    assert values(broker) == records


def test_the_rate_of_moves(broker: Broker, tmp_path: Path) -> None:
    """replica.alter.log.dirs.io.max.bytes.per.second, over time that the test moves."""
    fill(broker, 100)
    size = broker.replica("t").log.size
    rate = 50_000
    set_rate(broker, rate)
    alter(broker, tmp_path / "second")
    broker.shell.advance(10_000)
    copy = broker.node.logs.futures.get(T0)
    assert copy is not None
    assert 0.85 * 10 * rate <= copy.size <= 1.15 * 10 * rate + rate
    broker.shell.advance(1000 * (size // rate) - 10_000 + 3_000)
    assert broker.replica("t").log.owner.path == f"{tmp_path}/second"
    assert broker.replica("t").log.size == size


def test_a_copy_goes_by_the_settings_that_were_altered_while_logs_were_loaded(broker: Broker, tmp_path: Path) -> None:
    """The copy was loaded before the alteration, its log after it: retention would take what is to be kept."""
    fill(broker, 100)
    set_rate(broker, 50_000)
    alter(broker, tmp_path / "second")
    broker.shell.advance(1_000)
    log, copy = broker.replica("t").log, broker.logs.futures.get(T0)
    assert copy is not None
    former = log.config
    broker.node.config_handler.settings_loaded({ConfigResource(ConfigResourceType.TOPIC, "t"): {"retention.ms": "-1"}})
    copy.set_config(former)
    broker.node.config_handler.settings_loaded({})
    assert (log.config.retention_ms, copy.config.retention_ms) == (-1, -1)


def test_a_copy_gets_the_id_that_its_log_gets(tmp_path: Path) -> None:
    """The move began while the topic had no id, which a tool had dropped; followers fetch by it."""
    broker = Broker("", directories(tmp_path))
    broker.lead("t", topic_id=ZERO_TOPIC_ID)
    fill(broker, 100)
    set_rate(broker, 50_000)
    alter(broker, tmp_path / "second")
    broker.shell.advance(1_000)
    assert broker.node.logs.futures.get(T0) is not None
    broker.lead("t")
    set_rate(broker, 100_000_000)
    broker.shell.advance(60_000)
    replica = broker.replica("t")
    assert replica.log.owner.path == f"{tmp_path}/second"
    assert replica.topic_id == topic_id_of("t")
    assert format_topic_id(replica.topic_id) in (Path(replica.log.directory) / "partition.metadata").read_text()
    broker.close()


def test_a_follower_moves_while_it_follows_and_is_cut(tmp_path: Path) -> None:
    """The copy follows the log where its leader makes it cut records; the followership goes on from the new place."""
    cluster = ReplicaCluster(tmp_path, 3, settings_of={1: directories(tmp_path)})
    cluster.create("t", replicas=[0, 1, 2])
    for number in range(40):
        cluster.produce("t", [b"%d" % number + bytes(10_000)])
    cluster.advance(1_000)
    # Only broker 1 gets these, and is told to follow somebody who does not have them.
    cluster.part(2, 0)
    cluster.produce("t", [b"lost"] * 3)
    cluster.advance(100)
    mover = cluster.brokers[1]
    mover.shell.pool_waits = True
    assert alter(mover, tmp_path / "second") is ErrorCode.NONE
    for _ in range(12):
        cluster.turn()
        mover.shell.run_pool()
        copy = mover.node.logs.futures.get(T0)
        if copy is not None and copy.log_end_offset == 43:
            break
    assert copy is not None
    assert copy.log_end_offset == 43
    # The move rests until the log is longer than the copy again, with other records.
    set_rate(mover, 1)
    cluster.kill(0)
    mover.shell.pool_waits = False
    cluster.elect("t", 2, isr=[2, 1])
    mover.shell.run_pool()
    for number in range(10):
        cluster.produce("t", [b"new %d" % number])
        cluster.advance(50)
    followed = mover.node.fetcher_manager.get(T0)
    assert mover.replica("t").log.log_end_offset == 50
    assert copy.log_end_offset == 43
    set_rate(mover, 1 << 40)
    cluster.advance(3_000)
    assert mover.node.fetcher_manager.get(T0) is not followed
    assert mover.replica("t").log.owner.path == f"{tmp_path}/second"
    assert cluster.data(1, "t") == cluster.data(2, "t")
    assert b"lost" not in cluster.values(1, "t")
    cluster.produce("t", [b"last"])
    cluster.advance(1_000)
    assert cluster.values(1, "t")[-1] == b"last"
    assert sorted(cluster.isr("t")) == [1, 2]
    cluster.close()


def test_a_crash_at_any_step_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders as they are before each operation on them: a start goes on with the move, or ends it."""
    home = tmp_path / "home"
    broker = Broker("", directories(home))
    broker.lead("t")
    records = fill(broker, 30)
    taken: list[Path] = []

    def observed(name: str) -> None:
        original = getattr(SystemDisk, name)

        def operation(disk: SystemDisk, *arguments: Any, **options: Any) -> Any:
            if home.exists() and str(arguments[0]).startswith(str(home)):
                snapshot = tmp_path / f"at-{len(taken)}"
                shutil.copytree(home, snapshot)
                taken.append(snapshot)
            return original(disk, *arguments, **options)

        monkeypatch.setattr(SystemDisk, name, operation)

    for name in ("rename", "fsync_directory", "make_directories"):
        observed(name)
    assert alter(broker, home / "second") is ErrorCode.NONE
    broker.shell.run_turns()
    assert broker.replica("t").log.owner.path == f"{home}/second"
    broker.close()
    monkeypatch.undo()
    assert len(taken) > 8
    seen = set()
    for snapshot in taken:
        seen.add(tuple(folders(snapshot)))
        again = Broker("", directories(snapshot))
        again.lead("t", leader_epoch=1)
        again.shell.run_turns()
        assert values(again) == records, folders(snapshot)
        assert again.node.logs.futures.get(T0) is None
        assert not again.produce("t", [b"more"]).error_code
        again.close()
    assert {("first/t-0",), ("first/t-0", "second/t-0-future"), ("first/t-0-delete", "second/t-0-future")} <= seen


@pytest.mark.parametrize("place", ["first", "second"])
def test_a_topic_made_again_where_a_log_or_a_copy_was(broker: Broker, tmp_path: Path, place: str) -> None:
    """A crash before the next checkpoints: nothing that they say of the old log is held against the new one's records.

    The old log left the first directory by a move; or its copy left the second one when the topic was deleted.
    """
    fill(broker, 30)
    broker.replica("t").log.advance_start(12)
    broker.shell.pool_waits = place == "second"
    alter(broker, tmp_path / "second")
    broker.shell.run_turns()
    while broker.node.moves and broker.node.logs.futures.get(T0) is None:
        broker.shell.run_pool()
        broker.shell.run_turns()
    if place == "second":
        broker.shell.run_pool()
        broker.node.disk_scheduler.starts_durable(each.path for each in broker.logs.directories)
        broker.shell.run_pool()
    checkpoint = tmp_path / place / "log-start-offset-checkpoint"
    # A move is followed by the checkpoints at once; a copy's, as it goes, is still named.
    assert ("t 0 12" in checkpoint.read_text()) == (place == "second")
    broker.shell.pool_waits = False
    broker.delete("t")
    assert alter(broker, tmp_path / place) is ErrorCode.REPLICA_NOT_AVAILABLE
    broker.lead("t", leader_epoch=1)
    assert broker.replica("t").log.owner.path == f"{tmp_path}/{place}"
    records = fill(broker, 3)
    broker.logs.abandon()
    again = Broker("", directories(tmp_path))
    again.lead("t", leader_epoch=2)
    assert values(again) == records
    again.close()


@pytest.mark.parametrize("is_last", [False, True])
def test_a_log_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_last: bool) -> None:
    """In a chunk, or in the last few records: its directory goes offline, and other moves go on."""
    broker = Broker("", {"log.dirs": f"{tmp_path}/first,{tmp_path}/second,{tmp_path}/third"})
    broker.lead("t")
    broker.lead("u")
    records = fill(broker, 5)
    assert not broker.produce("u", [b"u"]).error_code
    broker.shell.pool_waits = True
    read = FileRange.read

    def failing(part: FileRange) -> bytes:
        if "first/t-0" in part.file.path:
            raise OSError(5, "Input/output error", part.file.path)
        return read(part)

    if not is_last:
        monkeypatch.setattr(FileRange, "read", failing)
    assert alter(broker, tmp_path / "third") is ErrorCode.NONE
    for _ in range(20 if is_last else 0):
        broker.shell.run_turns()
        copy = broker.node.logs.futures.get(T0)
        if copy is not None and copy.log_end_offset == len(records):
            break
        broker.shell.run_pool()
    fill(broker, 1)
    monkeypatch.setattr(FileRange, "read", failing)
    assert alter(broker, tmp_path / "third", topic="u") is ErrorCode.NONE
    for _ in range(20):
        broker.shell.run_turns()
        broker.shell.run_pool()
    assert broker.logs.offline_directories == [f"{tmp_path}/first"]
    assert len(broker.node.moves) == 0
    assert broker.replica("u").log.owner.path == f"{tmp_path}/third"
    broker.close()


@pytest.mark.parametrize("step", ["make_directories", "fsync_directory", "rename"])
def test_a_move_waits_where_descriptors_are_missing(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A step that the disk refuses for the moment is taken again, and the move ends as it was asked for."""
    records = fill(broker, 5)

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "a test")

    with monkeypatch.context() as patched:
        patched.setattr(SystemDisk, step, refuse)
        assert alter(broker, tmp_path / "second") is ErrorCode.NONE
        broker.shell.run_turns()
        broker.shell.advance(2 * RETRY_MS)
        assert len(broker.node.moves) == 1
    assert broker.logs.offline_directories == []
    broker.shell.advance(2 * RETRY_MS)
    broker.shell.run_turns()
    assert len(broker.node.moves) == 0
    assert broker.replica("t").log.owner.path == f"{tmp_path}/second"
    assert values(broker) == records


@pytest.mark.parametrize("lasts", [False, True])
def test_a_move_waits_while_records_are_damaged(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, lasts: bool
) -> None:
    """A bit that was read wrongly, or rot that is repaired, does not end it; damage that lasts does. Others go on."""
    broker.lead("u")
    records = fill(broker, 5)
    read = FileRange.read

    def flipped(part: FileRange) -> bytes:
        data = read(part)
        return data[:-1] + bytes([data[-1] ^ 1]) if "/t-0/" in part.file.path and data else data

    with monkeypatch.context() as patched:
        patched.setattr(FileRange, "read", flipped)
        assert alter(broker, tmp_path / "second") is ErrorCode.NONE
        for place in ("second", "first"):
            assert alter(broker, tmp_path / place, topic="u") is ErrorCode.NONE
            broker.shell.run_turns()
            assert broker.replica("u").log.owner.path == f"{tmp_path}/{place}"
        broker.shell.advance(2 * RETRY_MS + (DAMAGED_MS_MAX if lasts else 0))
        assert len(broker.node.moves) == (0 if lasts else 1)
    broker.shell.advance(2 * RETRY_MS)
    broker.shell.run_turns()
    assert len(broker.node.moves) == 0
    assert broker.replica("t").log.owner.path == f"{tmp_path}/{'first' if lasts else 'second'}"
    assert values(broker) == records


def test_an_error_that_nobody_thought_of_stops_one_move(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up; others go on."""
    broker.lead("u")
    records = fill(broker, 5)

    def refuse(_: Moves, move: object, future: object) -> None:
        raise RuntimeError("a test")

    with monkeypatch.context() as patched:
        patched.setattr(Moves, "_finish", refuse)
        assert alter(broker, tmp_path / "second") is ErrorCode.NONE
        broker.shell.run_turns()
    assert len(broker.node.moves) == 0
    assert broker.replica("t").log.owner.path == f"{tmp_path}/first"
    assert alter(broker, tmp_path / "second") is ErrorCode.NONE
    broker.shell.run_turns()
    assert broker.replica("t").log.owner.path == f"{tmp_path}/second"
    assert values(broker) == records


@pytest.mark.parametrize(("length", "answered"), [(213, ErrorCode.NONE), (214, ErrorCode.INVALID_TOPIC_EXCEPTION)])
def test_a_name_too_long_for_a_copy(broker: Broker, tmp_path: Path, length: int, answered: ErrorCode) -> None:
    """A folder's name has 255 bytes, of which the copy's mark takes 42: who asks is told."""
    topic = "n" * length
    broker.lead(topic)
    before = broker.replica(topic).log.owner.path
    asked = next(path for path in (f"{tmp_path}/first", f"{tmp_path}/second") if path != before)
    assert alter(broker, asked, topic=topic) is answered
    broker.shell.run_turns()
    assert broker.replica(topic).log.owner.path == (asked if answered is ErrorCode.NONE else before)


def test_a_busy_partition_moves(tmp_path: Path) -> None:
    """More than the last turn copies at first comes in each step of its move."""
    broker = Broker("", {"log.dirs": f"{tmp_path}/first,{tmp_path}/second"})
    broker.lead("t")
    records = fill(broker, 1)
    broker.shell.pool_waits = True
    assert alter(broker, tmp_path / "second") is ErrorCode.NONE
    for _ in range(30):
        broker.shell.run_turns()
        if not len(broker.node.moves):
            break
        records += fill(broker, 5, LAST_BYTES_MAX // 4 - 1_000)
        broker.shell.run_pool()
    assert broker.replica("t").log.owner.path == f"{tmp_path}/second"
    assert values(broker) == records
    broker.close()


@pytest.mark.parametrize("crashes", [False, True])
def test_a_producer_is_known_after_the_move_though_its_records_are_gone(tmp_path: Path, *, crashes: bool) -> None:
    """What it sends again was written already: retention may be faster than its clock; so after a crash, too."""
    broker = Broker("", directories(tmp_path))
    broker.lead("t")
    once = make_batch([b"once"], producer_id=5, producer_epoch=0, base_sequence=0)
    assert broker.produce("t", batch=once).base_offset == 0
    fill(broker, 3)
    kind = messages.DeleteRecordsRequest
    gone = kind.DeleteRecordsTopic(name="t", partitions=[kind.DeleteRecordsPartition(partition_index=0, offset=2)])
    broker.ask(ApiKey.DELETE_RECORDS, 2, kind(topics=[gone], timeout_ms=1000))
    assert alter(broker, tmp_path / "second") is ErrorCode.NONE
    broker.shell.run_turns()
    assert broker.replica("t").log.owner.path == f"{tmp_path}/second"
    assert (broker.replica("t").log.log_start_offset, broker.replica("t").log.log_end_offset) == (2, 4)
    if crashes:
        broker.node.stop()
        broker.logs.abandon()
        broker = Broker("", directories(tmp_path))
        broker.lead("t", leader_epoch=1)
    assert broker.produce("t", batch=once).base_offset == 0
    following = make_batch([b"next"], producer_id=5, producer_epoch=0, base_sequence=1)
    assert broker.produce("t", batch=following).base_offset == 4
    broker.close()
