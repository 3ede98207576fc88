"""Orders to lead, follow or delete that a lack of descriptors or memory keeps from being carried out."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.broker.harness import Broker, topic_id_of
from tests.unit.broker.test_directory_moves import alter
from tests.unit.broker.test_leadership import all_there_is, errors
from tests.unit.storage.support import FaultyDisk

from tidelog.broker.logs.directory_moves import RETRY_MS
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerEpoch, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.storage.log import Log
from tidelog.storage.tasks import DiskTask

SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM]
NOT_YET = ErrorCode.REPLICA_NOT_AVAILABLE


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def starts(tmp_path: Path, disk: FaultyDisk) -> Iterator[Callable[..., Broker]]:
    """Makes a broker on the faulty disk; closed at the end."""
    brokers: list[Broker] = []

    def start(directories: int = 1, **settings: object) -> Broker:
        log_dirs = ",".join(str(tmp_path / f"logs{number}") for number in range(directories))
        brokers.append(Broker(log_dirs, settings, disk=disk))
        return brokers[-1]

    yield start
    disk.fault = lambda _operation, _path: None
    for broker in brokers:
        broker.close()


@pytest.fixture
def broker(starts: Callable[..., Broker]) -> Broker:
    return starts()


def lack(disk: FaultyDisk, code: int = errno.EMFILE, part_of_path: str = "", *operations: str) -> None:
    """From now on operations (all, where none is named) on paths that contain `part_of_path` fail with `code`."""

    def fault(operation: str, path: str) -> OSError | None:
        if part_of_path in path and (not operations or operation in operations):
            return OSError(code, os.strerror(code), path)
        return None

    disk.fault = fault


def plenty(disk: FaultyDisk) -> None:
    disk.fault = lambda _operation, _path: None


def stop(broker: Broker, topic: str, *, leader_epoch: int, delete: bool) -> int:
    request = messages.StopReplicaRequest
    state = request.StopReplicaPartitionState(partition_index=0, leader_epoch=leader_epoch, delete_partition=delete)
    topics = [request.StopReplicaTopicState(topic_name=topic, partition_states=[state])]
    answer = broker.ask(
        ApiKey.STOP_REPLICA, 4, request(controller_epoch=1, broker_epoch=7, topic_states=topics)
    ).partition_errors
    return int(answer[0].error_code)


@pytest.mark.parametrize("code", SHORTAGES)
@pytest.mark.parametrize("operation", ["make_directories", "open"])
def test_a_log_refused_for_now_is_made_later(broker: Broker, disk: FaultyDisk, code: int, operation: str) -> None:
    """The order is not answered as a failed directory, and is carried out by the broker itself."""
    lack(disk, code, "/u-0", operation)
    assert errors(broker.lead("u")) == [NOT_YET]
    assert broker.produce("u").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.fetch("u").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    plenty(disk)
    broker.shell.advance(1_000)
    assert broker.replica("u").leader is not None
    assert broker.produce("u").error_code == 0
    assert broker.node.logs.offline_directories == []


def test_a_follower_follows_later(broker: Broker, disk: FaultyDisk) -> None:
    """As for a leader."""
    lack(disk)
    assert errors(broker.lead("u", leader=1, leader_epoch=3, isr=[1], replicas=[1, 0])) == [NOT_YET]
    plenty(disk)
    broker.shell.advance(1_000)
    assert (broker.replica("u").leader_id, broker.replica("u").leader_epoch) == (1, 3)
    assert broker.node.fetcher_manager._followed


def test_the_pause_grows_to_ten_seconds_and_begins_anew(broker: Broker, disk: FaultyDisk) -> None:
    """1 s, 2, 4, 8, 10, 10: and what is refused after a success waits for one second again."""
    lack(disk, errno.EMFILE, "/u-0", "make_directories")
    broker.lead("u")
    tries: list[int] = []
    begin = broker.clock.now_ms
    for _ in range(36):
        before = disk.count("make_directories")
        broker.shell.advance(1_000)
        if disk.count("make_directories") > before:
            tries.append((broker.clock.now_ms - begin) // 1_000)
    assert tries == [1, 3, 7, 15, 25, 35]
    plenty(disk)
    broker.shell.advance(10_000)
    assert broker.replica("u").leader is not None
    lack(disk, errno.EMFILE, "/v-0")
    broker.lead("v")
    plenty(disk)
    broker.shell.advance(1_000)
    assert broker.replica("v").leader is not None


def test_only_what_was_refused_is_postponed(broker: Broker, disk: FaultyDisk) -> None:
    """The other partitions of the same order are led at once."""
    lack(disk, errno.EMFILE, "/u-1")
    assert errors(broker.lead("u", 3)) == [0, NOT_YET, 0]
    assert [broker.replica("u", index) is None for index in range(3)] == [False, True, False]
    plenty(disk)
    broker.shell.advance(1_000)
    assert broker.replica("u", 1).leader is not None


def test_a_log_whose_folder_is_not_durable_is_not_led(broker: Broker, disk: FaultyDisk) -> None:
    """The sync of new logs lacks a descriptor: what clients wrote could be gone with its folder."""
    lack(disk, errno.EMFILE, "", "fsync_directory")
    assert errors(broker.lead("u", leader_epoch=2)) == [NOT_YET]
    assert broker.produce("u").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    plenty(disk)
    broker.shell.advance(1_000)
    assert broker.replica("u").leader_epoch == 2
    assert broker.replica("u").leader is not None


def test_a_deletion_is_answered_once_it_is_durable(broker: Broker, disk: FaultyDisk) -> None:
    """A power cut would bring the folder back after the controller has forgotten its topic: it asks again."""
    broker.lead("u")
    lack(disk, errno.EMFILE, "", "fsync_directory")
    assert stop(broker, "u", leader_epoch=-2, delete=True) == NOT_YET
    assert broker.replica("u") is None
    assert stop(broker, "u", leader_epoch=-2, delete=True) == NOT_YET, "That nothing is left to do is not durable."
    plenty(disk)
    assert stop(broker, "u", leader_epoch=-2, delete=True) == ErrorCode.NONE


def test_a_deletion_in_a_directory_that_fails_is_not_told_as_done(
    starts: Callable[..., Broker], disk: FaultyDisk
) -> None:
    """The folder may be there again when the directory is."""
    broker = starts(directories=2)
    broker.lead("u")
    lack(disk, errno.EIO, "", "fsync_directory")
    assert stop(broker, "u", leader_epoch=-2, delete=True) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_is_not_led_while_its_folder_is_being_synced(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a task of the maintenance, which was there first."""
    maintenance = broker.node.logs.maintenance
    create = broker.node.logs.create

    def create_and_begin_to_sync(*args: object, **names: object) -> Log:
        log = create(*args, **names)  # type: ignore[arg-type]
        under_way.extend(maintenance.durability_tasks())
        return log

    under_way: list[DiskTask] = []
    monkeypatch.setattr(broker.node.logs, "create", create_and_begin_to_sync)
    [directory] = broker.node.logs.directories
    synced: list[str] = []
    monkeypatch.setattr(directory, "sync_folders", synced.extend)
    assert errors(broker.lead("u")) == [0]
    assert [Path(path).name for path in synced] == ["u-0"]
    for task in under_way:
        task.run()
        task.finish(None)
    assert not directory.created


def test_a_leadership_refused_for_now_begins_later(
    broker: Broker, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To lead, a log may have to read its producers anew."""
    broker.lead("u")
    assign = Log.assign_epoch
    shortage = [OSError(errno.ENOMEM, "Cannot allocate memory")]

    def fail(log: Log, epoch: int) -> None:
        if shortage:
            raise log.folder.fail(shortage.pop(), "reading the producers of")
        assign(log, epoch)

    monkeypatch.setattr(Log, "assign_epoch", fail)
    assert errors(broker.lead("u", leader_epoch=4)) == [NOT_YET]
    broker.shell.advance(1_000)
    assert broker.replica("u").leader_epoch == 4


def test_a_newer_order_takes_the_place_of_the_postponed_one(broker: Broker, disk: FaultyDisk) -> None:
    """And an older one that comes late does not."""
    lack(disk)
    assert errors(broker.lead("u", leader_epoch=2)) == [NOT_YET]
    assert errors(broker.lead("u", leader=1, leader_epoch=3, isr=[1], replicas=[1, 0])) == [NOT_YET]
    assert errors(broker.lead("u", leader_epoch=2)) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    plenty(disk)
    broker.shell.advance(1_000)
    assert (broker.replica("u").leader_id, broker.replica("u").leader_epoch) == (1, 3)


def test_a_newer_order_carried_out_ends_the_postponed_one(broker: Broker, disk: FaultyDisk) -> None:
    """Nothing is left to be tried."""
    lack(disk)
    broker.lead("u", leader_epoch=2)
    plenty(disk)
    assert errors(broker.lead("u", leader=1, leader_epoch=3, isr=[1], replicas=[1, 0])) == [0]
    broker.shell.advance(20_000)
    assert (broker.replica("u").leader, broker.replica("u").leader_epoch) == (None, 3)


def test_another_topic_of_that_name_takes_its_place(broker: Broker, disk: FaultyDisk) -> None:
    """Its epochs begin anew."""
    lack(disk)
    broker.lead("u", leader_epoch=5, topic_id=topic_id_of("old u"))
    assert errors(broker.lead("u", leader_epoch=0)) == [NOT_YET]
    plenty(disk)
    broker.shell.advance(1_000)
    assert (broker.replica("u").topic_id, broker.replica("u").leader_epoch) == (topic_id_of("u"), 0)


@pytest.mark.parametrize("delete", [True, False])
def test_a_stop_ends_it(broker: Broker, disk: FaultyDisk, tmp_path: Path, delete: bool) -> None:
    """Deleted or stopped meanwhile: no log comes to be, and no part of one is left."""
    lack(disk)
    broker.lead("u", leader_epoch=2)
    assert stop(broker, "u", leader_epoch=1, delete=delete) == ErrorCode.FENCED_LEADER_EPOCH
    plenty(disk)
    assert stop(broker, "u", leader_epoch=-2 if delete else 2, delete=delete) == 0
    broker.shell.advance(20_000)
    assert broker.replica("u") is None
    assert broker.node.logs.get(TopicPartition("u", 0)) is None
    assert not list(tmp_path.glob("*/u-0"))


def test_a_half_made_folder_goes_with_the_deletion(broker: Broker, disk: FaultyDisk, tmp_path: Path) -> None:
    """What the disk refused to make, it refused to remove, too; the next start must not find it."""
    lack(disk, errno.EMFILE, "/u-0", "open", "list")
    broker.lead("u")
    assert list(tmp_path.glob("*/u-0"))
    plenty(disk)
    assert stop(broker, "u", leader_epoch=-2, delete=True) == 0
    assert not list(tmp_path.glob("*/u-0"))


def test_a_deletion_during_the_shortage_is_not_said_to_be_done(
    broker: Broker, disk: FaultyDisk, tmp_path: Path
) -> None:
    """A half-made folder that stays would be a log to the next start; it goes when the disk allows that."""
    lack(disk, errno.EMFILE, "/u-0", "open", "list")
    broker.lead("u")
    assert stop(broker, "u", leader_epoch=-2, delete=True) == ErrorCode.REPLICA_NOT_AVAILABLE
    plenty(disk)
    broker.shell.advance(20_000)
    assert broker.replica("u") is None
    assert not list(tmp_path.glob("*/u-0"))
    assert stop(broker, "u", leader_epoch=-2, delete=True) == 0


def test_a_topic_made_again_replaces_a_half_made_folder(broker: Broker, disk: FaultyDisk, tmp_path: Path) -> None:
    """At once, before the deletion was tried again."""
    lack(disk, errno.EMFILE, "/u-0", "open", "list")
    broker.lead("u")
    stop(broker, "u", leader_epoch=-2, delete=True)
    plenty(disk)
    assert errors(broker.lead("u", topic_id=topic_id_of("new u"))) == [0]
    broker.shell.advance(20_000)
    assert len(list(tmp_path.glob("*/u-0"))) == 1
    assert broker.replica("u").topic_id == topic_id_of("new u")


def test_a_half_made_folder_does_not_stay_in_another_directory(
    starts: Callable[..., Broker], disk: FaultyDisk, tmp_path: Path
) -> None:
    """The next attempt may choose another one; two folders of a partition would keep the broker from starting."""
    broker = starts(2)
    lack(disk, errno.EMFILE, "/u-0", "open", "list")
    broker.lead("u")
    [half_made] = tmp_path.glob("*/u-0")
    other = next(path for path in broker.config.log_dirs if path != str(half_made.parent))
    broker.node.logs.wanted_directories[TopicPartition("u", 0)] = other
    broker.shell.advance(1_000)
    plenty(disk)
    broker.shell.advance(10_000)
    assert [str(path.parent) for path in tmp_path.glob("*/u-0")] == [other]


def test_a_full_picture_without_the_replica_ends_it(broker: Broker, disk: FaultyDisk) -> None:
    """It has moved while this broker was not told."""
    lack(disk)
    broker.lead("t", isr=[0, 1])
    plenty(disk)
    all_there_is(broker, [[1, 2]])
    broker.shell.advance(20_000)
    assert broker.replica("t") is None


def test_a_new_registration_ends_it(broker: Broker, disk: FaultyDisk) -> None:
    """The controller gives all orders anew then, and those of the earlier life are refused (KIP-380)."""
    lack(disk)
    broker.lead("u")
    plenty(disk)
    broker.node.broker_epoch = BrokerEpoch(8)
    broker.shell.advance(20_000)
    assert broker.replica("u") is None
    assert errors(broker.lead("u", leader_epoch=1, broker_epoch=8)) == [0]


def test_a_stopping_broker_tries_no_more(broker: Broker, disk: FaultyDisk) -> None:
    """No log is made in a directory that is being closed."""
    lack(disk)
    broker.lead("u")
    plenty(disk)
    broker.node.stop()
    broker.shell.advance(20_000)
    assert broker.replica("u") is None
    assert broker.node.logs.get(TopicPartition("u", 0)) is None


def test_a_broken_disk_is_said_at_once(starts: Callable[..., Broker], disk: FaultyDisk) -> None:
    """EIO takes the directory offline; the controller is to know, and nothing is tried again."""
    broker = starts(2)
    lack(disk, errno.EIO, "/u-0", "open")
    assert errors(broker.lead("u")) == [ErrorCode.KAFKA_STORAGE_ERROR]
    plenty(disk)
    broker.shell.advance(20_000)
    assert broker.replica("u") is None


def test_a_disk_that_breaks_meanwhile_ends_it(starts: Callable[..., Broker], disk: FaultyDisk) -> None:
    """The controller, told of the directory, asks for all replicas, and hears of this one as of the others."""
    broker = starts(2)
    lack(disk, errno.EMFILE, "/u-0")
    assert errors(broker.lead("u")) == [NOT_YET]
    lack(disk, errno.EIO, "/u-0", "open", "make_directories")
    broker.shell.advance(1_000)
    plenty(disk)
    assert len(broker.node.logs.offline_directories) == 1
    broker.shell.advance(20_000)
    assert broker.replica("u") is None


def test_settings_altered_meanwhile_hold(broker: Broker, disk: FaultyDisk) -> None:
    """The log gets those of the moment in which it is made."""
    lack(disk)
    broker.lead("u")
    plenty(disk)
    broker.node.config_handler.settings_changed(ConfigResource(ConfigResourceType.TOPIC, "u"), {"retention.ms": "77"})
    broker.shell.advance(1_000)
    assert broker.replica("u").log.config.retention_ms == 77


# Orders to delete.


@pytest.mark.parametrize("code", [*SHORTAGES, errno.EBUSY])
def test_a_deletion_refused_for_now_is_carried_out_later(
    broker: Broker, disk: FaultyDisk, tmp_path: Path, code: int
) -> None:
    """By the broker itself; until then the log is here without a replica, and the controller waits."""
    broker.lead("u")
    lack(disk, code, "/u-0", "rename")
    assert stop(broker, "u", leader_epoch=-2, delete=True) == NOT_YET
    assert broker.replica("u") is None
    assert broker.produce("u").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.shell.advance(1_000)
    assert list(tmp_path.glob("*/u-0"))
    plenty(disk)
    broker.shell.advance(2_000)
    assert broker.node.logs.get(TopicPartition("u", 0)) is None
    assert not list(tmp_path.glob("*/u-0"))
    assert broker.node.logs.offline_directories == []


def test_the_controller_asks_again_and_is_told(broker: Broker, disk: FaultyDisk) -> None:
    """Its second order deletes at once where the disk allows it, and nothing is left where the broker came first."""
    broker.lead("u")
    broker.lead("v")
    lack(disk, errno.EMFILE, "-0", "rename")
    assert stop(broker, "u", leader_epoch=-2, delete=True) == NOT_YET
    assert stop(broker, "v", leader_epoch=-2, delete=True) == NOT_YET
    assert stop(broker, "v", leader_epoch=-2, delete=True) == NOT_YET
    plenty(disk)
    assert stop(broker, "u", leader_epoch=-2, delete=True) == 0
    broker.shell.advance(1_000)
    assert stop(broker, "v", leader_epoch=-2, delete=True) == 0
    assert broker.node.logs.log_count == 0


def test_a_topic_made_anew_deletes_what_waits_for_it(broker: Broker, disk: FaultyDisk, tmp_path: Path) -> None:
    """It is not put aside, where nothing would ever remove it; and the new log is empty."""
    broker.lead("u", topic_id=topic_id_of("old u"))
    broker.produce("u")
    lack(disk, errno.EMFILE, "/u-0", "rename")
    stop(broker, "u", leader_epoch=-2, delete=True)
    assert errors(broker.lead("u", topic_id=topic_id_of("new u"))) == [NOT_YET]
    plenty(disk)
    broker.shell.advance(1_000)
    assert broker.replica("u").topic_id == topic_id_of("new u")
    assert broker.replica("u").log.log_end_offset == 0
    assert not list(tmp_path.glob("*/*-stray"))
    broker.shell.advance(20_000)
    assert list(tmp_path.glob("*/u-0"))


def test_a_replica_that_is_wanted_again_is_not_deleted(broker: Broker, disk: FaultyDisk) -> None:
    """It had moved away, and moves back before the disk allowed its deletion."""
    broker.lead("u", leader=1, leader_epoch=3, isr=[1], replicas=[1, 0])
    lack(disk, errno.EMFILE, "/u-0", "rename")
    assert stop(broker, "u", leader_epoch=3, delete=True) == NOT_YET
    plenty(disk)
    assert errors(broker.lead("u", leader=1, leader_epoch=4, isr=[1], replicas=[1, 0])) == [0]
    broker.shell.advance(20_000)
    assert broker.replica("u").leader_epoch == 4
    assert broker.node.logs.get(TopicPartition("u", 0)) is not None


def test_a_log_that_waits_to_be_deleted_is_not_put_aside(broker: Broker, disk: FaultyDisk, tmp_path: Path) -> None:
    """A full picture without the replica comes meanwhile."""
    broker.lead("t", isr=[0, 1])
    lack(disk, errno.EMFILE, "/t-0", "rename")
    assert stop(broker, "t", leader_epoch=0, delete=True) == NOT_YET
    plenty(disk)
    all_there_is(broker, [[1, 2]])
    broker.shell.advance(1_000)
    assert not list(tmp_path.glob("*/*-stray"))
    assert len(list(tmp_path.glob("*/*-delete"))) == 1


def test_a_deletion_of_an_earlier_registration_is_not_carried_out(broker: Broker, disk: FaultyDisk) -> None:
    """The controller tells all there is anew, and deletes what it still wants deleted."""
    broker.lead("u")
    lack(disk, errno.EMFILE, "/u-0", "rename")
    stop(broker, "u", leader_epoch=-2, delete=True)
    plenty(disk)
    broker.node.broker_epoch = BrokerEpoch(8)
    broker.shell.advance(20_000)
    assert broker.node.logs.get(TopicPartition("u", 0)) is not None


def test_half_made_copies_go_when_one_is_made(starts: Callable[..., Broker], disk: FaultyDisk, tmp_path: Path) -> None:
    """Each attempt to move a replica takes another name: what the ones before have left belongs to nobody else."""
    broker = starts(2)
    broker.lead("u")
    lack(disk, errno.EMFILE, "-future", "open", "list")
    target = tmp_path / ("logs1" if broker.replica("u").log.owner.path.endswith("logs0") else "logs0")
    assert alter(broker, target, "u") is ErrorCode.NONE
    for _ in range(3):
        broker.shell.run_turns()
        broker.shell.advance(2 * RETRY_MS)
    assert len(list(tmp_path.glob("*/u-0.*-future"))) > 1
    plenty(disk)
    broker.shell.advance(2 * RETRY_MS)
    broker.shell.run_turns()
    assert broker.replica("u").log.owner.path == str(target)
    assert not list(tmp_path.glob("*/u-0.*-future"))
