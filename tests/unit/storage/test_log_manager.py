"""The logs of a broker over several directories: placement, identity, failure, removal."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from sim.world.disk import Fault, Operation, SimulatedDisk
from sim.world.randomness import SeededRandom
from tests.unit.storage.support import (
    NOW_MS,
    TOPIC_ID,
    TP,
    FaultyDisk,
    StandingClock,
    batch,
    fill,
    marker,
    open_log,
    open_manager,
    read_all,
)

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.storage.errors import (
    CorruptFile,
    InvalidLogFolder,
    LogDirectoryLocked,
    NoLogDirectory,
    WrongLogDirectory,
)
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_maintenance import RECOVERED_CHECKPOINT_MS, REST_MS
from tidelog.storage.log_manager import LogManager
from tidelog.storage.log_manager_settings import LogManagerSettings
from tidelog.storage.producer_state import AppendOrigin
from tidelog.storage.tasks import run_now


def directories(root: Path, count: int = 3) -> list[Path]:
    return [root / f"d{number}" for number in range(count)]


def counts(manager: LogManager) -> list[int]:
    return [len(directory.logs) for directory in manager.directories]


@pytest.mark.row("R03")
def test_a_new_log_goes_where_the_fewest_logs_are(tmp_path: Path) -> None:
    """By count, not by bytes; the directory asked for wins."""
    manager = open_manager(*directories(tmp_path))
    for number in range(7):
        manager.create(TopicPartition("t", number), TOPIC_ID)
    assert counts(manager) == [3, 2, 2]
    manager.create(TopicPartition("wanted", 0), TOPIC_ID, log_dir=str(tmp_path / "d0"))
    assert counts(manager) == [4, 2, 2]
    with pytest.raises(KafkaError) as refused:
        manager.create(TopicPartition("wanted", 1), TOPIC_ID, log_dir="/elsewhere")
    assert refused.value.code is ErrorCode.LOG_DIR_NOT_FOUND


@pytest.mark.row("R03")
def test_one_directory_fails_and_the_others_serve(tmp_path: Path) -> None:
    """Its partitions answer KAFKA_STORAGE_ERROR, new logs go elsewhere, what it held is not created anew."""
    disk = FaultyDisk()
    failed: list[str] = []
    manager = open_manager(*directories(tmp_path, 2), disk=disk, on_directory_failure=failed.append)
    first, second = (manager.create(TopicPartition("t", number), TOPIC_ID) for number in range(2))
    fill(first, 1)
    disk.fail("pwrite", "/d0/")
    with pytest.raises(KafkaError) as refused:
        fill(first, 1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert failed == manager.offline_directories == [str(tmp_path / "d0")]
    assert not manager.has_failed
    fill(second, 2)
    assert manager.create(TopicPartition("t", 2), TOPIC_ID).directory == str(tmp_path / "d1/t-2")
    assert manager.get(TopicPartition("t", 0)) is first
    with pytest.raises(KafkaError) as unknown:
        manager.create(TopicPartition("t", 9), TOPIC_ID, is_new=False)
    assert unknown.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    manager.maintenance.run_due(10**7)
    manager.close()
    assert not (tmp_path / "d0/.kafka_cleanshutdown").exists()
    assert (tmp_path / "d1/.kafka_cleanshutdown").exists()


def test_what_was_let_go_is_written_no_more(tmp_path: Path) -> None:
    """A timer of a broker that has stopped comes late: the files belong to the broker that has started there since."""
    for stop in (LogManager.close, LogManager.abandon):
        stopped, former = open_log(tmp_path)
        fill(former, 1)
        stop(stopped)
        manager, log = open_log(tmp_path)
        fill(log, 1, size=50)
        with pytest.raises(KafkaError) as refused:
            fill(former, 1)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        manager.close()
        manager, log = open_log(tmp_path)
        assert [record.offset for record in read_all(log)] == list(range(log.log_end_offset))
        manager.close()


@pytest.mark.row("R03")
def test_the_last_directory_gone_is_the_end(tmp_path: Path) -> None:
    """At the start it is an error that names every reason; while running `has_failed` says it."""
    disk = FaultyDisk()
    manager = open_manager(*directories(tmp_path, 2), disk=disk)
    logs = [manager.create(TopicPartition("t", number), TOPIC_ID) for number in range(2)]
    disk.fail("pwrite", ".log")
    for log in logs:
        with pytest.raises(KafkaError):
            fill(log, 1)
    assert manager.has_failed
    with pytest.raises(KafkaError):
        manager.create(TopicPartition("t", 2), TOPIC_ID)
    manager.abandon()
    disk.fail("list", "")
    with pytest.raises(NoLogDirectory, match=r"d0.*d1"):
        open_manager(*directories(tmp_path, 2), disk=disk)


@pytest.mark.row("R36")
def test_a_failed_fsync_is_never_tried_again(tmp_path: Path) -> None:
    """What is on disk is unknown then: the directory goes offline, nothing more counts as flushed."""
    disk = FaultyDisk()
    manager, log = open_log(tmp_path, disk=disk, config=LogConfig(flush_messages=1))
    fill(log, 3)
    tasks = manager.maintenance.flush_tasks()
    disk.fail("fsync", ".log")
    for task in tasks:
        run_now(task)
    assert log.flushed_offset == 0
    assert manager.offline_directories == [str(tmp_path)]
    syncs = disk.count("fsync")
    disk.fault = lambda _operation, _path: None
    manager.maintenance.run_due(10**9)
    manager.close()
    assert disk.count("fsync") == syncs


@pytest.mark.row("R36")
def test_flush_messages_flushes_by_count(tmp_path: Path) -> None:
    """With 1 every append is to be flushed; one flush covers what was appended before it began."""
    disk = FaultyDisk()
    manager, log = open_log(tmp_path, disk=disk, config=LogConfig(flush_messages=1))
    fill(log, 3)
    (task,) = manager.maintenance.flush_tasks()
    fill(log, 2)
    run_now(task)
    assert log.flushed_offset == 3
    (task,) = manager.maintenance.flush_tasks()
    run_now(task)
    assert log.flushed_offset == 5
    assert manager.maintenance.flush_tasks() == []
    manager.set_config(TP, LogConfig(flush_messages=3))
    fill(log, 2)
    assert manager.maintenance.flush_tasks() == []
    fill(log, 1)
    assert len(manager.maintenance.flush_tasks()) == 1


@pytest.mark.row("R36")
def test_flush_ms_flushes_by_age(tmp_path: Path) -> None:
    """Of the oldest record that is not flushed."""
    clock = StandingClock()
    manager, log = open_log(tmp_path, clock=clock, config=LogConfig(flush_ms=5000))
    fill(log, 1)
    clock.now_ms += 4_999
    fill(log, 1, timestamp=NOW_MS + 4_999)
    manager.maintenance.run_due(clock.monotonic_ms())
    assert log.flushed_offset == 0
    assert manager.maintenance.next_due_ms() <= clock.monotonic_ms() + 1000
    clock.now_ms += 1
    manager.maintenance.run_due(clock.monotonic_ms())
    assert log.flushed_offset == 2
    clock.now_ms += 10_000
    assert not [task for task in manager.maintenance.due_tasks(clock.monotonic_ms()) if "flush" in repr(task)]


def test_flush_ms_does_not_go_by_the_time_of_day(tmp_path: Path) -> None:
    """A wall clock that is put back, or forward, neither delays a flush nor hastens one."""
    clock = StandingClock()
    manager, log = open_log(tmp_path, clock=clock, config=LogConfig(flush_ms=5000))
    fill(log, 1)
    monotonic_ms = clock.monotonic_ms()
    clock.now_ms += 10**6
    manager.maintenance.run_due(monotonic_ms + 4_999)
    assert log.flushed_offset == 0
    clock.now_ms -= 10**7
    manager.maintenance.run_due(monotonic_ms + 5_000)
    assert log.flushed_offset == 1


def test_what_a_crash_left_unflushed_ages_from_the_start_on(tmp_path: Path) -> None:
    """Without a further append."""
    clock = StandingClock()
    manager, log = open_log(tmp_path, clock=clock, config=LogConfig(flush_ms=5000))
    fill(log, 1)
    manager.abandon()
    manager, log = open_log(tmp_path, clock=clock, config=LogConfig(flush_ms=5000))
    assert (log.flushed_offset, log.log_end_offset) == (0, 1)
    manager.maintenance.run_due(clock.monotonic_ms() + 5_000)
    assert log.flushed_offset == 1


def test_a_flush_across_a_truncation_counts_for_nothing(tmp_path: Path) -> None:
    """What it made durable may be gone, and other records stand at those offsets."""
    _, log = open_log(tmp_path)
    fill(log, 5)
    task = log.flush_task()
    assert task is not None
    log.truncate_to(2)
    fill(log, 5)
    run_now(task)
    assert log.flushed_offset == 0


def test_many_logs_are_made_durable_by_one_sync(tmp_path: Path) -> None:
    """1,000 partitions in one request cost one sync of the file system; a few are synced one by one."""
    disk = FaultyDisk()
    manager = open_manager(tmp_path, disk=disk)
    disk.operations.clear()
    for number in range(100):
        manager.create(TopicPartition("t", number), TOPIC_ID)
    assert disk.count("fsync") + disk.count("fsync_directory") + disk.count("sync_file_system") == 0
    task = manager.maintenance.durability_task()
    assert task is not None
    run_now(task)
    assert (disk.count("sync_file_system"), disk.count("fsync")) == (1, 0)
    assert manager.maintenance.durability_task() is None
    manager.create(TP, TOPIC_ID)
    task = manager.maintenance.durability_task()
    assert task is not None
    run_now(task)
    assert (disk.count("sync_file_system"), disk.count("fsync"), disk.count("fsync_directory")) == (1, 1, 2)


def test_thousands_of_logs_need_few_descriptors(tmp_path: Path) -> None:
    """Files are opened when used and closed when others need them more."""
    disk = FaultyDisk()
    manager = open_manager(tmp_path, disk=disk, settings=LogManagerSettings(open_files_max=10))
    logs = [manager.create(TopicPartition("t", number), TOPIC_ID) for number in range(100)]
    for _ in range(2):
        for log in logs:
            fill(log, 1)
            assert len(read_all(log)) == log.log_end_offset
    assert len(disk.open_files) <= 10
    manager.close()
    assert disk.open_files == set()


def test_everything_is_found_again(tmp_path: Path) -> None:
    """Logs, topic ids, high watermarks, over two directories."""
    manager = open_manager(*directories(tmp_path, 2))
    for number in range(4):
        log = manager.create(TopicPartition("t.x-y", number), TopicId(bytes([number + 1] * 16)))
        fill(log, number)
        log.update_high_watermark(max(number - 1, 0))
    manager.close()
    manager = open_manager(*directories(tmp_path, 2))
    found = {log.topic_partition.partition: log for log in manager.logs()}
    for number in range(4):
        log = found[number]
        assert log.topic_id == bytes([number + 1] * 16)
        assert (log.log_end_offset, log.high_watermark) == (number, max(number - 1, 0))
    assert (tmp_path / "d0/replication-offset-checkpoint").read_text() == "0\n2\nt.x-y 0 0\nt.x-y 2 1\n"


def test_another_topic_of_that_name_is_not_served(tmp_path: Path) -> None:
    """INCONSISTENT_TOPIC_ID; a log from before topic ids takes the first it is told."""
    manager, _ = open_log(tmp_path)
    with pytest.raises(KafkaError) as refused:
        manager.create(TP, TopicId(bytes([9] * 16)))
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    old = manager.create(TopicPartition("old", 0), None)
    manager.create(TopicPartition("old", 0), TOPIC_ID)
    assert old.topic_id == TOPIC_ID
    assert (tmp_path / "old-0/partition.metadata").read_bytes() == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"


def test_a_deleted_log_goes_after_the_delay(tmp_path: Path) -> None:
    """Renamed at once, so that the name is free; removed later, or at the next start."""
    manager, log = open_log(tmp_path, config=LogConfig(file_delete_delay_ms=1000))
    fill(log, 1)
    assert manager.delete(TP)
    assert not manager.delete(TP)
    assert manager.get(TP) is None
    with pytest.raises(KafkaError) as gone:
        log.read(0, 1, up_to_offset=1)
    assert gone.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (folder,) = (path for path in tmp_path.iterdir() if path.name.endswith("-delete"))
    assert folder.name.startswith("topicone-0.")
    assert manager.create(TP, TOPIC_ID).log_end_offset == 0
    manager.maintenance.run_due(0)
    manager.maintenance.run_due(999)
    assert folder.exists()
    manager.maintenance.run_due(1000)
    assert not folder.exists()
    manager.delete(TP)
    manager.abandon()
    manager = open_manager(tmp_path)
    manager.maintenance.run_due(0)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize("moment", ["the first file", "the folder"])
def test_a_deleted_log_goes_though_it_is_just_being_flushed(tmp_path: Path, moment: str) -> None:
    """In another thread, which writes the leader epochs, and takes away their temporary file: nothing is broken."""
    disk, clock = FaultyDisk(), StandingClock()
    manager, log = open_log(tmp_path, disk=disk, clock=clock, config=LogConfig(file_delete_delay_ms=0))
    fill(log, 3)
    flush = log.flush_task()
    assert flush is not None
    manager.delete(TP)
    (folder,) = tmp_path.glob("*-delete")
    temporary = folder / "leader-epoch-checkpoint.tmp"
    temporary.touch()

    def flushed(operation: str, path: str) -> None:
        if operation == "unlink" and path.startswith(str(folder)):
            disk.fault = lambda _operation, _path: None
            temporary.unlink(missing_ok=True)
            if moment == "the folder":
                with suppress(FileNotFoundError):
                    flush.run()
                (folder / "leader-epoch-checkpoint.tmp").touch()

    disk.fault = flushed
    for _ in range(3):
        clock.now_ms += REST_MS
        manager.maintenance.run_due(clock.monotonic_ms())
    assert not folder.exists()
    assert manager.online_directories
    manager.close()


def test_a_stray_log_is_put_aside_and_kept(tmp_path: Path) -> None:
    """The cluster may have forgotten it by mistake."""
    manager, log = open_log(tmp_path)
    fill(log, 3)
    assert manager.mark_stray(TP)
    (stray,) = (path for path in tmp_path.iterdir() if path.name.endswith("-stray"))
    manager.maintenance.run_due(10**9)
    manager.abandon()
    manager = open_manager(tmp_path)
    manager.maintenance.run_due(10**9)
    assert manager.get(TP) is None
    assert (stray / "00000000000000000000.log").stat().st_size > 0


def test_the_longest_topic_name_can_be_deleted(tmp_path: Path) -> None:
    """249 characters leave no room for the mark: the name is cut."""
    manager = open_manager(tmp_path)
    longest = TopicPartition("x" * 249, 0)
    manager.create(longest, TOPIC_ID)
    assert manager.delete(longest)


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    """By another broker, or because it is named twice."""
    manager = open_manager(tmp_path)
    with pytest.raises(LogDirectoryLocked, match="Another process is using this directory"):
        open_manager(tmp_path)
    manager.close()
    with pytest.raises(LogDirectoryLocked):
        open_manager(tmp_path, tmp_path)
    open_manager(tmp_path).close()


@pytest.mark.parametrize(("broker_id", "cluster_id"), [(1, "cluster"), (0, "other")])
def test_a_directory_of_another_owner_is_refused(tmp_path: Path, broker_id: int, cluster_id: str) -> None:
    """meta.properties says whose it is."""
    manager = open_manager(tmp_path)
    manager.keep_properties()
    manager.close()
    with pytest.raises(WrongLogDirectory, match=r"meta\.properties"):
        open_manager(tmp_path, broker_id=broker_id, cluster_id=cluster_id)
    open_manager(tmp_path, cluster_id=None).close()


def test_a_directory_formatted_for_kraft_is_understood(tmp_path: Path) -> None:
    """Version 1 of meta.properties, which has node.id; it is left as it is."""
    content = b"#\n#Tue Nov 14\nnode.id=0\nversion=1\ncluster.id=cluster\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    (tmp_path / "meta.properties").write_bytes(content)
    manager = open_manager(tmp_path)
    assert manager.cluster_id == "cluster"
    manager.close()
    assert (tmp_path / "meta.properties").read_bytes() == content


@pytest.mark.parametrize("content", [b"version=7\n", b"\xff\xfe", b"version=0\nbroker.id=one\n", b"rubbish\n"])
def test_unreadable_meta_properties_stop_the_start(tmp_path: Path, content: bytes) -> None:
    """Guessing whose records these are would be worse."""
    (tmp_path / "meta.properties").write_bytes(content)
    with pytest.raises(CorruptFile, match=r"meta\.properties"):
        open_manager(tmp_path)


@pytest.mark.parametrize("name", ["notapartition", "bad topic-0", "..-0", "x" * 250 + "-0", "t-99999999999"])
def test_a_folder_that_is_no_partitions_is_refused(tmp_path: Path, name: str) -> None:
    """The message names it and says what to do; nothing is deleted."""
    (tmp_path / name).mkdir()
    with pytest.raises(InvalidLogFolder, match="move it out of"):
        open_manager(tmp_path)
    assert (tmp_path / name).exists()
    (tmp_path / name).rmdir()
    (tmp_path / "lost+found").mkdir()
    open_manager(tmp_path).close()


def test_a_partition_in_two_directories_is_refused(tmp_path: Path) -> None:
    """One of them is old, and only people can know which, where they are not known to be of one topic."""
    for number, directory in enumerate(directories(tmp_path, 2)):
        manager = open_manager(directory)
        manager.create(TP, TopicId(bytes([number + 1]) * 16))
        manager.close()
    with pytest.raises(WrongLogDirectory, match="Duplicate log directories"):
        open_manager(*directories(tmp_path, 2))


@pytest.mark.parametrize("newer", [0, 1])
@pytest.mark.parametrize("is_later", [True, False])
def test_the_former_log_of_a_replica_that_was_made_anew_is_put_aside(
    tmp_path: Path, newer: int, is_later: bool
) -> None:
    """Its directory was offline then; whichever is loaded first. The later epoch counts before the length."""
    folders = directories(tmp_path, 2)
    for number, directory in enumerate(folders):
        manager = open_manager(directory)
        log = manager.create(TP, TOPIC_ID)
        if number == newer:
            fill(log, 4 if is_later else 6, leader_epoch=2 if is_later else 1)
        else:
            fill(log, 5, leader_epoch=1)
        manager.close()
    manager = open_manager(*folders)
    log = manager.get(TP)
    assert log is not None
    assert (log.directory, log.log_end_offset) == (f"{folders[newer]}/{TP}", 4 if is_later else 6)
    assert [path.name.rpartition("-")[2] for path in folders[1 - newer].glob(f"{TP}.*")] == ["stray"]
    assert len(read_all(log)) == log.log_end_offset
    manager.close()
    manager = open_manager(*folders)
    assert manager.get(TP) is not None
    manager.close()


@pytest.mark.parametrize("half_made", [0, 1])
def test_what_is_left_of_a_log_that_could_not_be_made_is_put_aside(tmp_path: Path, half_made: int) -> None:
    """Memory was short, and the directory of the log that is there was offline; whichever is loaded first."""
    folders = directories(tmp_path, 2)
    manager = open_manager(folders[1 - half_made])
    fill(manager.create(TP, TOPIC_ID), 5)
    manager.close()
    (folders[half_made] / str(TP)).mkdir(parents=True)
    manager = open_manager(*folders)
    log = manager.get(TP)
    assert log is not None
    assert (log.directory, log.log_end_offset) == (f"{folders[1 - half_made]}/{TP}", 5)
    assert [path.name.rpartition("-")[2] for path in folders[half_made].glob(f"{TP}.*")] == ["stray"]
    manager.close()


def test_a_directory_that_cannot_be_written_is_offline(tmp_path: Path) -> None:
    """Read-only, or no directory at all: the others serve."""
    disk = FaultyDisk()
    disk.fail("make_directories", "/d0", errno.EROFS)
    manager = open_manager(*directories(tmp_path, 2), disk=disk)
    assert manager.offline_directories == [str(tmp_path / "d0")]
    assert os.strerror(errno.EROFS) in str(manager.directories[0].failure)
    assert manager.create(TP, TOPIC_ID).directory.startswith(str(tmp_path / "d1"))


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
def test_a_directory_in_which_old_records_cannot_be_read_is_offline(tmp_path: Path, code: int) -> None:
    """The marker of a transaction lies above the checkpointed high watermark: where it began is read for at the start.

    While a directory is loaded every error takes it offline, and the others serve.
    """
    disk = FaultyDisk()
    manager = open_manager(*directories(tmp_path, 2), disk=disk)
    log = manager.create(TP, TOPIC_ID, log_dir=str(tmp_path / "d0"))
    for number in range(2):
        data = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=number, transactional=True)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
        log.roll(NOW_MS)
    log.append(marker(7, commit=True), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    manager.close()
    disk.fail("pread", f"{0:020d}.log", code)
    manager = open_manager(*directories(tmp_path, 2), disk=disk)
    assert manager.offline_directories == [str(tmp_path / "d0")]
    assert manager.get(TP) is None


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_log_of_which_another_directory_had_a_copy_may_be_offline(tmp_path: Path, is_dropped: bool) -> None:
    """That one's checkpoints name it, and it has no folder there; it was not removed for that. One made since was."""
    manager = open_manager(*directories(tmp_path, 2))
    fill(manager.create(TP, TOPIC_ID, log_dir=str(tmp_path / "d0")), 3)
    manager.futures.create(TP, manager.directories[1])
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    if is_dropped:
        manager.futures.delete(TP)
    manager.abandon()
    disk = FaultyDisk()
    disk.fail("make_directories", "/d0", errno.EROFS)
    manager = open_manager(*directories(tmp_path, 2), disk=disk)
    assert manager.get(TP) is None
    assert manager.absent.may_be_offline(TP)
    manager.create(TP, TOPIC_ID)
    manager.delete(TP)
    assert not manager.absent.may_be_offline(TP)


def test_an_unreadable_checkpoint_means_recovery(tmp_path: Path) -> None:
    """It costs time, never records; what a checkpoint alone knows falls back to what is safe."""
    manager, log = open_log(tmp_path)
    fill(log, 5)
    manager.close()
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"0\n7\nrubbish\n")
    (tmp_path / "replication-offset-checkpoint").write_bytes(b"\x80")
    again = open_manager(tmp_path).get(TP)
    assert again is not None
    assert (again.log_end_offset, again.high_watermark) == (5, 0)


def test_checkpoints_are_written_when_they_change(tmp_path: Path) -> None:
    """High watermarks each 5 s, recovery points each minute; what did not change is not written."""
    disk = FaultyDisk()
    manager, log = open_log(tmp_path, disk=disk)
    fill(log, 5)
    log.update_high_watermark(4)
    manager.maintenance.run_due(5000)
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\ntopicone 0 4\n"
    assert not (tmp_path / "recovery-point-offset-checkpoint").exists()
    before = disk.count("rename")
    manager.maintenance.run_due(10_000)
    assert disk.count("rename") == before
    manager.maintenance.run_due(60_000)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\ntopicone 0 0\n"
    assert (tmp_path / "topicone-0/leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_a_broker_that_crashes_again_reads_no_more_each_time(tmp_path: Path) -> None:
    """What a start after a crash has read through is flushed and written down soon, not at the next minute."""
    config = LogConfig(segment_bytes=1000)
    manager, log = open_log(tmp_path, config=config)
    fill(log, 50)
    manager.abandon()
    again = open_manager(tmp_path, config=config)
    recovered = again.get(TP)
    assert recovered is not None
    assert recovered.recovery_point == 0
    assert len(recovered.segments) > 5
    again.maintenance.run_due(0)
    again.maintenance.run_due(RECOVERED_CHECKPOINT_MS)
    base = recovered.active.base_offset
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == f"0\n1\ntopicone 0 {base}\n"
    again.abandon()
    third = open_manager(tmp_path, config=config).get(TP)
    assert third is not None
    assert (third.recovery_point, third.log_end_offset) == (base, 50)


def test_high_watermarks_are_written_though_recovery_points_are_due_too(tmp_path: Path) -> None:
    """At the same moment each time: a log that is always flushed has a new recovery point each time."""
    settings = LogManagerSettings(
        flush_offset_checkpoint_interval_ms=5_000, high_watermark_checkpoint_interval_ms=5_000
    )
    clock = StandingClock()
    manager, log = open_log(tmp_path, clock=clock, settings=settings, config=LogConfig(flush_messages=1))
    for written in range(2, 10):
        fill(log, 1 if log.log_end_offset else 2)
        log.update_high_watermark(log.log_end_offset)
        for task in manager.maintenance.flush_tasks():
            run_now(task)
        clock.now_ms += 5_000
        manager.maintenance.run_due(clock.now_ms)
        for checkpoint, offset in (("recovery-point-offset", written - 1), ("replication-offset", written)):
            assert f"{TP.topic} {TP.partition} {offset}\n" in (tmp_path / f"{checkpoint}-checkpoint").read_text()
    manager.close()


@pytest.mark.row("R36")
def test_a_clean_stop_syncs_no_more_often_for_more_logs(tmp_path: Path) -> None:
    """Every sync waits for the device, and a broker has thousands of logs; leader epochs are in place nevertheless."""
    counts = []
    for logs_count in (20, 60):
        disk = FaultyDisk()
        manager = open_manager(tmp_path / str(logs_count), disk=disk)
        for number in range(logs_count):
            fill(manager.create(TopicPartition("t", number), TOPIC_ID), 1, leader_epoch=3)
        disk.operations.clear()
        manager.close()
        counts.append({name: disk.count(name) for name in ("fsync", "fsync_directory", "sync_file_system")})
        again = open_manager(tmp_path / str(logs_count))
        assert all(log.epochs.latest == 3 and log.flushed_offset == 1 for log in again.logs())
        again.close()
    assert counts[0] == counts[1]
    assert sum(counts[0].values()) <= 10


def test_a_clean_stop_syncs_nothing_of_logs_that_have_not_changed(tmp_path: Path) -> None:
    """The second stop of a broker that nobody wrote to waits for no log."""
    manager = open_manager(tmp_path)
    for number in range(20):
        fill(manager.create(TopicPartition("t", number), TOPIC_ID), 1)
    manager.close()
    disk = FaultyDisk()
    manager = open_manager(tmp_path, disk=disk)
    disk.operations.clear()
    manager.close()
    assert disk.count("sync_file_system") == 0
    assert not [path for happening, path in disk.operations if happening == "fsync" and "/t-" in path]


def test_leader_epochs_get_their_name_when_their_content_is_durable(tmp_path: Path) -> None:
    """Content, sync, name, sync, and only then the recovery point: a power cut between any two loses nothing."""
    disk = FaultyDisk()
    manager = open_manager(tmp_path, disk=disk)
    for number in range(20):
        fill(manager.create(TopicPartition("t", number), TOPIC_ID), 1)
    disk.operations.clear()
    manager.close()
    steps = [
        "checkpoint" if "recovery-point" in path else happening
        for happening, path in disk.operations
        if happening == "sync_file_system"
        or (happening == "pwrite" and ("leader-epoch" in path or "recovery-point" in path))
        or (happening == "rename" and "leader-epoch" in path)
    ]
    order = [step for index, step in enumerate(steps) if index == 0 or steps[index - 1] != step]
    assert order == ["pwrite", "sync_file_system", "rename", "sync_file_system", "checkpoint"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_log_made_anew_has_nothing_of_the_one_before(tmp_path: Path, restarted: bool) -> None:
    """No checkpoint speaks of it: the old one's recovery point would keep recovery from looking."""
    manager, log = open_log(tmp_path)
    fill(log, 3)
    for task in (log.flush_task(), *manager.maintenance.checkpoint_tasks()):
        assert task is not None
        run_now(task)
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    assert f"{TP.topic} {TP.partition} 2" in checkpoint.read_text()
    manager.delete(TP)
    if restarted:
        manager.abandon()
        manager = open_manager(tmp_path)
    manager.create(TP, TOPIC_ID)
    assert f"{TP.topic} {TP.partition} 2" not in checkpoint.read_text()
    manager.close()


def test_deleted_logs_are_remembered_in_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many topics come and go: once no checkpoint names them, and they may have been written to the last."""
    monkeypatch.setattr("tidelog.storage.absent_logs.REMOVED_MAX", 5)
    disk = FaultyDisk()
    manager, log = open_log(tmp_path, disk=disk)
    fill(log, 2)
    (directory,) = manager.directories

    def come_and_go(count: int) -> None:
        for number in range(count):
            name = TopicPartition(f"deleted-{number}", 0)
            manager.create(name, None)
            for task in manager.maintenance.checkpoint_tasks():
                run_now(task)
            assert manager.delete(name)

    come_and_go(12)
    assert len(directory.removed) < 5
    for name in directory.removed:
        assert not manager.absent.may_be_offline(name)
    for path in tmp_path.glob("*-checkpoint"):
        assert "deleted-4 " not in path.read_text()
    disk.fail("open", "recovery-point-offset-checkpoint", errno.EMFILE)
    come_and_go(5)
    assert manager.online_directories
    assert len(directory.removed) >= 5
    manager.close()


@pytest.mark.parametrize("deleted_first", [False, True])
def test_a_log_made_anew_while_checkpoints_are_written(tmp_path: Path, deleted_first: bool) -> None:
    """What a task under way was about to write of the old one stays unwritten, whenever the task gets to it."""
    manager, log = open_log(tmp_path)
    other = manager.create(TopicPartition("other", 0), TOPIC_ID)
    fill(log, 3)
    for task in (log.flush_task(), *manager.maintenance.checkpoint_tasks()):
        assert task is not None
        run_now(task)
    for task in manager.maintenance.checkpoint_tasks():
        run_now(task)
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    assert f"{TP.topic} {TP.partition} 2" in checkpoint.read_text()
    if deleted_first:
        manager.delete(TP)
    fill(other, 2)
    flush = other.flush_task()
    assert flush is not None
    run_now(flush)
    (under_way,) = manager.maintenance.checkpoint_tasks()
    if not deleted_first:
        manager.delete(TP)
    manager.create(TP, TOPIC_ID)
    assert f"{TP.topic} {TP.partition} 2" not in checkpoint.read_text()
    run_now(under_way)
    assert f"{TP.topic} {TP.partition} 2" not in checkpoint.read_text()
    assert "other 0 1" in checkpoint.read_text()
    manager.close()


def test_what_is_missing_is_known_until_it_was_told(tmp_path: Path) -> None:
    """Neither a kill nor a clean stop before that hides that a directory was replaced, or that a folder is gone."""
    manager = open_manager(tmp_path / "a", tmp_path / "b")
    assert manager.has_new_directory
    manager.abandon()
    manager = open_manager(tmp_path / "a", tmp_path / "b")
    assert manager.has_new_directory
    manager.absent.losses_told()
    manager.keep_properties()
    log = manager.create(TP, None)
    fill(log, 3)
    log.update_high_watermark(3)
    manager.close()
    shutil.rmtree(log.directory)
    for _ in range(2):
        manager = open_manager(tmp_path / "a", tmp_path / "b")
        assert (manager.absent.missing, manager.has_new_directory) == ({TP: 3}, False)
        manager.close()
    manager = open_manager(tmp_path / "a", tmp_path / "b")
    manager.absent.losses_told()
    manager.close()
    assert open_manager(tmp_path / "a", tmp_path / "b").absent.missing == {}


def test_several_logs_made_anew_lack_nothing(tmp_path: Path) -> None:
    """Also where the cluster was not told what is missing, since another directory is offline: topics were deleted just
    before a crash, and have their names again."""
    names = [TP, TopicPartition("other", 0)]
    manager = open_manager(tmp_path)
    for name in names:
        log = manager.create(name, None)
        fill(log, 3)
        log.update_high_watermark(3)
    manager.close()
    for name in names:
        shutil.rmtree(tmp_path / str(name))
    manager = open_manager(tmp_path)
    for name in names:
        manager.create(name, None)
    manager.abandon()
    manager = open_manager(tmp_path)
    assert [log.damage for log in manager.logs()] == [None, None]


def test_a_log_made_anew_lacks_nothing(tmp_path: Path) -> None:
    """Of another topic, say, whose name the missing log had."""
    manager = open_manager(tmp_path)
    log = manager.create(TP, None)
    fill(log, 3)
    log.update_high_watermark(3)
    manager.close()
    shutil.rmtree(log.directory)
    manager = open_manager(tmp_path)
    manager.create(TP, None)
    manager.abandon()
    again = open_manager(tmp_path).get(TP)
    assert again is not None
    assert again.damage is None


def test_a_log_that_could_not_be_closed_does_not_count_as_durable() -> None:
    """Its producers could not be read for want of descriptors, and nothing of it was synced: a start reads it again."""
    clock = StandingClock()
    disk = SimulatedDisk(SeededRandom(1), clock.wall_ms)
    manager, log = open_log("/data", disk=disk.mount(), clock=clock)
    fill(log, 2)
    flush = log.flush_task()
    assert flush is not None
    run_now(flush)
    fill(log, 3)
    log.producers.is_behind = True

    def without_descriptors(operation: Operation) -> Fault | None:
        return Fault(OSError(errno.EMFILE, "Too many open files")) if operation.kind == "list" else None

    disk.fault = without_descriptors
    manager.close()
    disk.fault = None
    assert f"{TP.topic} {TP.partition} 5" not in disk.read("/data/recovery-point-offset-checkpoint").decode()
    assert f"{TP.topic} {TP.partition} 1" in disk.read("/data/recovery-point-offset-checkpoint").decode()
    assert not disk.exists("/data/.kafka_cleanshutdown")


def test_a_log_directory_that_was_made_survives_a_power_cut() -> None:
    """With all above it that were made for it, and what was flushed in it."""
    clock = StandingClock()
    disk = SimulatedDisk(SeededRandom(1), clock.wall_ms)
    manager = open_manager("/var/tidelog/logs", disk=disk.mount(), clock=clock)
    log = manager.create(TP, TOPIC_ID)
    fill(log, 3)
    for task in (log.flush_task(), *manager.maintenance.durability_tasks()):
        assert task is not None
        run_now(task)
    disk.power_cut()
    again = open_manager("/var/tidelog/logs", disk=disk.mount(), clock=clock).get(TP)
    assert again is not None
    assert again.log_end_offset == 3
