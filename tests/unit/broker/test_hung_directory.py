"""A log directory whose disk does not answer keeps nothing waiting that lies in another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.harness import Broker, ManualClock, ManualShell, deletion_of, topic_id_of
from tests.unit.broker.test_cleaning import COMPACTED, SMALL, T0, U0, is_clean, last_are_there, put
from tests.unit.broker.test_directory_moves import alter

from tidelog.broker.deferred import Deferred
from tidelog.broker.disk_scheduler import FOLDERS_WAIT_MS
from tidelog.broker.fetches.cold_reads import COLD_WAIT_MS
from tidelog.broker.handlers.list_offsets import LOOK_UP_MS_MAX
from tidelog.broker.replicas.topic_settings import log_config
from tidelog.broker.sharing.fetching import ShareFetch
from tidelog.broker.sharing.partitions import LedSharePartition
from tidelog.broker.shell import InDirectories
from tidelog.coordinator.share_state.events import ShareKey
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.sharing.partition import SharePartition
from tidelog.sharing.sessions import SharedPlace, ShareSession
from tidelog.sharing.settings import ShareSettings
from tidelog.storage.errors import WouldBlock
from tidelog.storage.tasks import run_now

NOT_YET = ErrorCode.REPLICA_NOT_AVAILABLE


class HangingShell(ManualShell):
    """Work in directories that hang waits until they answer again."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.hung: set[str] = set()
        self._left: dict[str, int] = {}
        self._waiting: list[tuple[frozenset[str], Callable[[], Any], Deferred[Any]]] = []

    def in_pool(self, work: Callable[[], Any]) -> Deferred[Any]:
        directories = work.directories if isinstance(work, InDirectories) else frozenset()
        for directory in directories & self._left.keys():
            self._left[directory] -= 1
            if self._left[directory] < 0:
                self.hung.add(directory)
        if not self.hung & directories:
            return super().in_pool(work)
        outcome: Deferred[Any] = Deferred()
        self._waiting.append((directories, work, outcome))
        return outcome

    def count_down(self, directory: str, works: int) -> None:
        """The directory hangs after so many works in it."""
        self._left[directory] = works

    @property
    def waiting(self) -> int:
        """Work that hangs."""
        return len(self._waiting)

    def answer(self) -> None:
        """All directories work again."""
        self.hung.clear()
        self._left.clear()
        waiting, self._waiting = self._waiting, []
        for _, work, outcome in waiting:
            super().in_pool(work).forward_to(outcome)


class PatientBroker(Broker):
    """Its clients wait for their answers: time goes by until there is one."""

    shell: HangingShell

    def ask(self, key: ApiKey, version: int, request: Any, client_id: str | None = "test") -> Any:
        answer = self.send(key, version, request, client_id)
        self.shell.run_turns()
        if isinstance(answer, Deferred):
            if not answer.done:
                self.shell.advance(FOLDERS_WAIT_MS)
            assert answer.done, "The answer waits for the hung directory."
            answer = answer.result()
        return self.decode(key, version, answer)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[PatientBroker]:
    """With two log directories; new logs go to the one with fewer of them, first of all to `a`."""
    one = PatientBroker(f"{tmp_path}/a,{tmp_path}/b", shell=HangingShell())
    yield one
    one.shell.answer()
    one.close()


def codes(response: Any) -> list[int]:
    return [error.error_code for topic in response.topics for error in topic.partition_errors]


def test_an_order_elsewhere_is_carried_out(broker: PatientBroker, tmp_path: Path) -> None:
    """A partition's folder in the hung directory is not durable: it is led later. One in the other directory is led,
    and no later order waits at all."""
    broker.shell.hung.add(f"{tmp_path}/a")
    assert codes(broker.lead("t", 2)) == [NOT_YET, 0]
    before = broker.clock.now_ms
    assert codes(broker.lead("t", 2, leader_epoch=1)) == [NOT_YET, 0]
    assert codes(broker.lead("u", 2)) == [NOT_YET, 0]
    assert broker.clock.now_ms == before
    assert [broker.replica("t", index).leader is None for index in range(2)] == [True, False]
    assert broker.produce("t", partition=1).error_code == ErrorCode.NONE


def test_what_was_put_off_is_led_when_the_directory_answers(broker: PatientBroker, tmp_path: Path) -> None:
    """By the broker itself. Meanwhile no more syncs are begun there."""
    broker.shell.hung.add(f"{tmp_path}/a")
    broker.lead("t", 2)
    waiting = broker.shell.waiting
    broker.shell.advance(60_000)
    assert broker.shell.waiting == waiting
    broker.shell.answer()
    broker.shell.advance(10_000)
    assert broker.replica("t", 0).leader is not None
    assert broker.produce("t", partition=0).error_code == ErrorCode.NONE


def test_a_folder_made_anew_while_a_sync_hangs_waits_for_a_sync_of_its_own(
    broker: PatientBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync that hangs was begun before: what it made durable is the former folder."""
    [directory] = [each for each in broker.logs.directories if each.path == f"{tmp_path}/a"]
    broker.shell.hung.add(directory.path)
    broker.lead("t")
    broker.ask(ApiKey.STOP_REPLICA, 4, deletion_of("t"))
    assert codes(broker.lead("t", topic_id=bytes(range(16)))) == [NOT_YET]
    assert broker.replica("t").log.owner is directory
    synced: list[str] = []
    monkeypatch.setattr(directory, "sync_folders", synced.extend)
    waiting = broker.shell.waiting
    broker.shell.answer()
    assert waiting == 1
    assert broker.replica("t").log.directory in directory.created
    synced.clear()
    broker.shell.advance(10_000)
    assert broker.replica("t").log.directory in synced
    assert broker.replica("t").leader is not None


def test_a_deletion_elsewhere_is_told(broker: PatientBroker, tmp_path: Path) -> None:
    """What is deleted in the hung directory may come back; the controller asks again until it cannot."""
    broker.lead("t", 2)
    broker.shell.hung.add(f"{tmp_path}/a")
    assert broker.delete("t", 0).partition_errors[0].error_code == NOT_YET
    assert broker.delete("t", 1).partition_errors[0].error_code == ErrorCode.NONE
    assert broker.delete("t", 0).partition_errors[0].error_code == NOT_YET
    assert codes(broker.lead("u", 2)) == [NOT_YET, 0]
    broker.shell.answer()
    assert broker.delete("t", 0).partition_errors[0].error_code == ErrorCode.NONE


def test_a_partition_is_not_led_while_its_former_log_may_come_back(broker: PatientBroker, tmp_path: Path) -> None:
    """A start would find two logs of one partition, of two topics."""
    broker.lead("t", 1)
    broker.lead("u", 1)
    broker.lead("v", 1)
    broker.shell.hung.add(f"{tmp_path}/a")
    broker.delete("v")
    broker.delete("t")
    broker.logs.wanted_directories[broker.replica("u").topic_partition._replace(topic="t")] = f"{tmp_path}/b"
    assert codes(broker.lead("t", topic_id=bytes(range(16)))) == [NOT_YET]
    assert broker.replica("t").log.owner.path == f"{tmp_path}/b"
    broker.shell.answer()
    broker.shell.advance(10_000)
    assert broker.replica("t").leader is not None


@pytest.fixture
def three(tmp_path: Path) -> Iterator[PatientBroker]:
    """With three log directories, `a`, `b` and `c`, a partition of `t` in each."""
    one = PatientBroker(f"{tmp_path}/a,{tmp_path}/b,{tmp_path}/c", shell=HangingShell())
    one.lead("t", 3)
    for index in range(3):
        for number in range(30):
            one.produce("t", [b"%d" % number], partition=index)
    assert [one.replica("t", index).log.owner.path for index in range(3)] == [f"{tmp_path}/{name}" for name in "abc"]
    yield one
    one.shell.answer()
    one.close()


@pytest.mark.parametrize("hangs_at", ["its first step", "its copying"])
def test_a_move_elsewhere_goes_on(three: PatientBroker, tmp_path: Path, hangs_at: str) -> None:
    """The move out of the hung directory waits, and goes on when the directory answers."""
    if hangs_at == "its first step":
        three.shell.hung.add(f"{tmp_path}/a")
    assert alter(three, tmp_path / "a", partition=2) == ErrorCode.NONE
    assert alter(three, tmp_path / "b", partition=0) == ErrorCode.NONE
    three.shell.hung.add(f"{tmp_path}/a")
    three.shell.run_turns()
    assert alter(three, tmp_path / "c", partition=1) == ErrorCode.NONE
    three.shell.advance(1_000)
    assert three.replica("t", 1).log.owner.path == f"{tmp_path}/c"
    assert len(three.node.moves) == 2
    three.shell.answer()
    three.shell.advance(1_000)
    owners = [three.replica("t", index).log.owner.path for index in range(3)]
    assert owners == [f"{tmp_path}/{name}" for name in "bca"]
    assert [three.replica("t", index).log.log_end_offset for index in range(3)] == [30, 30, 30]


@pytest.mark.parametrize("lag_ms", [0, 1])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 20])
def test_logs_elsewhere_are_cleaned(tmp_path: Path, lag_ms: int, steps: int) -> None:
    """Whatever the cleaner waits for in the hung directory; there it goes on when the directory answers."""
    broker = PatientBroker(f"{tmp_path}/a,{tmp_path}/b", shell=HangingShell())
    try:
        for topic in ("t", "u"):
            broker.lead(topic)
        settings = COMPACTED | {"min.compaction.lag.ms": str(lag_ms)}
        for topic_partition in (T0, U0):
            broker.logs.set_config(topic_partition, log_config(broker.config, settings))
        broker.logs.cleaner.settings_changed(SMALL)
        put(broker, "t", 60)
        put(broker, "u", 40)
        logs = [broker.replica(topic).log for topic in ("t", "u")]
        hung = logs[0].owner.path
        assert hung != logs[1].owner.path
        broker.node.cleaning.start()
        broker.shell.count_down(hung, steps)
        broker.shell.advance(300_000)
        assert is_clean(logs[1])
        assert broker.shell.waiting
        assert not is_clean(logs[0])
        broker.shell.answer()
        broker.shell.advance(300_000)
        for log in logs:
            assert is_clean(log)
            assert last_are_there(log)
    finally:
        broker.shell.answer()
        broker.close()


def test_a_checkpoint_that_hangs_keeps_no_log_elsewhere_from_being_cleaned(tmp_path: Path) -> None:
    """The cleaner waits for one that another task writes, for a while."""
    broker = PatientBroker(f"{tmp_path}/a,{tmp_path}/b", shell=HangingShell())
    try:
        for topic in ("t", "u"):
            broker.lead(topic)
        for topic_partition in (T0, U0):
            broker.logs.set_config(topic_partition, log_config(broker.config, COMPACTED))
        broker.logs.cleaner.settings_changed(SMALL)
        put(broker, "t", 60)
        put(broker, "u", 40)
        logs = [broker.replica(topic).log for topic in ("t", "u")]
        for log in logs:
            task = log.flush_task()
            assert task is not None
            run_now(task)
        broker.shell.hung.add(logs[0].owner.path)
        for task in broker.logs.maintenance.checkpoint_tasks():
            broker.node.disk_scheduler.run(task)
        broker.node.cleaning.start()
        broker.shell.advance(300_000)
        assert [is_clean(log) for log in logs] == [False, True]
        broker.shell.answer()
        broker.shell.advance(300_000)
        assert [is_clean(log) for log in logs] == [True, True]
    finally:
        broker.shell.answer()
        broker.close()


@pytest.mark.parametrize("hangs_at", ["a slice", "a flush", "its checkpoint"])
def test_logs_elsewhere_are_scrubbed(tmp_path: Path, hangs_at: str) -> None:
    """One slice at most waits for the hung directory; the scrub goes on there when the directory answers."""
    broker = PatientBroker(f"{tmp_path}/a,{tmp_path}/b", {"log.initial.task.delay.ms": 0}, shell=HangingShell())
    try:
        broker.lead("t", 2)
        for index in range(2):
            broker.produce("t", [bytes(1_000)], partition=index)
        logs = [broker.replica("t", index).log for index in range(2)]
        hung = logs[0].owner.path
        broker.node.scrubbing.start()
        broker.shell.count_down(hung, 1 if hangs_at == "its checkpoint" else 0)
        if hangs_at == "a flush":
            logs[0].want_flush()
            broker.node.disk_scheduler.wake()
        broker.shell.advance(120_000)
        passes = {each.directory.path: each.last_ended_ms for each in broker.node.scrubbing.directories}
        assert passes[logs[1].owner.path] is not None
        assert broker.shell.waiting == 1
        if hangs_at != "its checkpoint":
            assert passes[hung] is None
        broker.shell.answer()
        broker.shell.advance(120_000)
        assert None not in [each.last_ended_ms for each in broker.node.scrubbing.directories]
    finally:
        broker.shell.answer()
        broker.close()


class SharedPartitions:
    """The share partitions of one group, as they are once they are loaded."""

    def __init__(self, broker: Broker, partitions: int) -> None:
        self.led = {}
        for index in range(partitions):
            replica = broker.replica("t", index)
            key = ShareKey("g", replica.topic_id, index)
            self.led[index] = LedSharePartition(broker.node, SimpleNamespace(), key, replica)  # type: ignore[arg-type]
            self.led[index].machine = SharePartition(0)

    def settings(self, _group: str) -> ShareSettings:
        return ShareSettings()

    def find(self, _group: str, _topic_id: bytes, replica: Any) -> LedSharePartition:
        return self.led[replica.topic_partition.partition]


def share_fetch(broker: Broker, partitions: SharedPartitions, member: str) -> ShareFetch:
    """A ShareFetch of all partitions of t."""
    topic_id = TopicId(topic_id_of("t"))
    places = dict.fromkeys(SharedPlace(topic_id, index) for index in partitions.led)
    session = ShareSession("g", member, 1, places=places)
    context: Any = SimpleNamespace(quota=None, access=None)
    request = messages.ShareFetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, max_records=100, batch_size=100
    )
    fetch = ShareFetch(broker.node, partitions, context, session, request)  # type: ignore[arg-type]
    fetch.begin()
    return fetch


def test_share_groups_read_elsewhere(broker: PatientBroker, tmp_path: Path) -> None:
    """Records in another directory are delivered at once, by one fetch with those that wait, and by others after it;
    those that wait are delivered when the directory answers."""
    broker.lead("t", 2)
    for index in range(2):
        broker.produce("t", [b"1"], partition=index)
    partitions = SharedPartitions(broker, 2)
    broker.shell.hung.add(f"{tmp_path}/a")
    fetch = share_fetch(broker, partitions, "first")
    broker.shell.advance(COLD_WAIT_MS)
    assert [place.partition for place in fetch.answer.result()] == [1]
    broker.produce("t", [b"2"], partition=1)
    fetch = share_fetch(broker, partitions, "second")
    broker.shell.run_turns()
    assert [place.partition for place in fetch.answer.result()] == [1]
    fetch = share_fetch(broker, partitions, "third")
    broker.shell.advance(499)
    assert not fetch.answer.done
    broker.shell.answer()
    broker.shell.run_turns()
    assert [place.partition for place in fetch.answer.result()] == [0]


def test_a_share_fetch_of_a_hung_directory_ends_in_time(broker: PatientBroker, tmp_path: Path) -> None:
    """Its member asks again, and may then get what has come elsewhere."""
    broker.lead("t", 1)
    broker.produce("t", [b"1"])
    partitions = SharedPartitions(broker, 1)
    broker.shell.hung.add(f"{tmp_path}/a")
    fetch = share_fetch(broker, partitions, "first")
    broker.shell.advance(500)
    assert fetch.answer.result() == {}
    assert broker.shell.waiting == 1
    assert share_fetch(broker, partitions, "second").answer.done is False
    broker.shell.advance(500)
    assert broker.shell.waiting == 1, "No other fetch reads there meanwhile."


def test_segments_elsewhere_are_repaired(broker: PatientBroker, tmp_path: Path) -> None:
    """One segment of each directory at a time; those of the hung one wait."""
    broker.lead("t", 4)
    logs = [broker.replica("t", index).log for index in range(4)]
    for index, log in enumerate(logs):
        broker.produce("t", [b"1"], partition=index)
        log.found_rot(0, 0, "a bit was read wrongly")
    broker.shell.hung.add(f"{tmp_path}/a")
    broker.node.repairs.look()
    broker.shell.advance(1_000)
    assert [bool(log.rot) for log in logs] == [log.owner.path == f"{tmp_path}/a" for log in logs]
    assert broker.shell.waiting == 1
    broker.shell.answer()
    broker.shell.advance(1_000)
    assert not any(log.rot for log in logs)


def test_flushes_by_age_do_not_gather(broker: PatientBroker, tmp_path: Path) -> None:
    """One of each log waits; records that come meanwhile are flushed when it has ended."""
    broker.settings.topics["t"] = {"flush.ms": "20"}
    broker.lead("t")
    log = broker.replica("t").log
    broker.node.disk_scheduler.tick()
    broker.shell.advance(10_000)
    waiting = broker.shell.waiting
    broker.shell.hung.add(f"{tmp_path}/a")
    for _ in range(20):
        broker.produce("t", [b"1"])
        broker.shell.advance(30)
    assert broker.shell.waiting - waiting == 1
    broker.shell.answer()
    broker.shell.advance(20)
    assert log.flushed_offset == log.log_end_offset == 20


def test_offsets_elsewhere_are_found(broker: PatientBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request for timestamps in both directories is answered in time; what hangs is to be asked for again."""
    broker.lead("t", 2)
    for index in range(2):
        broker.produce("t", [b"1"], partition=index)
    log = type(broker.replica("t").log)
    find = log.offset_for_timestamp

    def cold(self: Any, timestamp: int, *, up_to_offset: int, blocking: bool = True) -> Any:
        if not blocking:
            raise WouldBlock
        return find(self, timestamp, up_to_offset=up_to_offset)

    monkeypatch.setattr(log, "offset_for_timestamp", cold)
    broker.shell.hung.add(f"{tmp_path}/a")
    kind = messages.ListOffsetsRequest
    partitions = [kind.ListOffsetsPartition(partition_index=index, timestamp=0) for index in range(2)]
    request = kind(replica_id=-1, topics=[kind.ListOffsetsTopic(name="t", partitions=partitions)])
    answer = broker.send(ApiKey.LIST_OFFSETS, 7, request)
    broker.shell.advance(LOOK_UP_MS_MAX)
    found = broker.decode(ApiKey.LIST_OFFSETS, 7, answer.result()).topics[0].partitions
    assert [(each.error_code, each.offset) for each in found] == [(ErrorCode.REQUEST_TIMED_OUT, -1), (0, 0)]
    broker.shell.answer()
    found = broker.ask(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions
    assert [(each.error_code, each.offset) for each in found] == [(0, 0), (0, 0)]
