"""What looks into machines and into the store sees what it is there to see, and nothing where all is well."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from sim.checks.complaints import Complaints
from sim.checks.flushes import FlushChecks
from sim.checks.replicas import ReplicaChecker
from sim.invariants import InvariantBrokenError
from sim.machine import DATA
from sim.plan import FaultKind
from sim.store.history import StoreHistory, check_replay
from sim.store.protocol import MessageProtocol
from sim.workloads.prober import Prober
from sim.world.disk import SimulatedDisk
from sim.world.loop import VirtualLoop
from sim.world.process import Process
from sim.world.randomness import SeededRandom
from sim.world.trace import Trace
from tests.unit.storage.support import batch

from tidelog.metadata.operations import Create, Delete, Operation, SetData
from tidelog.metadata.znodes import CONTROLLER, PartitionState, encode_controller, state_path
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition
from tidelog.records.batch import patch
from tidelog.replication.follower import Phase
from tidelog.storage.checkpoints import encode_offsets
from tidelog.store.tree import SessionRecord, Tree, parent_of

PARTITION = TopicPartition("topicone", 0)
FOLDER = f"{DATA}/topicone-0"
SEGMENT = f"{FOLDER}/00000000000000000000.log"


def machine_with(*, synced: int, written: int, flushed: int, start: int = 0, recovery_point: int = 0) -> Any:
    """A broker's machine whose log has `written` batches of a record each, the first `synced` of them on the platter,
    and what its broker says of them.
    """
    disk = SimulatedDisk(SeededRandom(1), lambda: 0)
    mount = disk.mount()
    mount.make_directories(FOLDER)
    mount.sync_file_system("/")
    file = mount.open(SEGMENT, create=True)
    for offset in range(written):
        data = batch(b"value")
        patch(data, 0, base_offset=offset, leader_epoch=0)
        file.pwrite(data, file.size())
        if offset + 1 == synced:
            file.fsync()
    checkpoint = mount.open(f"{DATA}/recovery-point-offset-checkpoint", create=True)
    checkpoint.pwrite(encode_offsets({PARTITION: recovery_point}), 0)
    log = SimpleNamespace(
        is_offline=False,
        log_start_offset=start,
        flushed_offset=flushed,
        recovery_point=recovery_point,
        segments=[],
        directory=FOLDER,
        truncation_is_pending=False,
    )
    replica = SimpleNamespace(log=log, topic_partition=PARTITION, leader=None)
    return SimpleNamespace(
        name="broker1",
        is_ready=True,
        process=object(),
        disk=disk,
        node=SimpleNamespace(replicas=[replica], fetcher_manager={}),
        log_dirs=(DATA,),
        folder_of=lambda partition: FOLDER,
    )


class TestFlushes:
    """`sim.checks.flushes`: what counts as flushed is on the platter."""

    def test_what_is_synced_may_count_as_flushed(self) -> None:
        """All of it, a part of it, and a log of which nothing is there to be lost."""
        FlushChecks([machine_with(synced=3, written=3, flushed=3, recovery_point=3)]).check()
        FlushChecks([machine_with(synced=2, written=3, flushed=2, recovery_point=1)]).check()
        FlushChecks([machine_with(synced=0, written=0, flushed=0)]).check()

    def test_what_is_not_synced_may_not(self) -> None:
        """Neither for the high watermark, nor for recovery."""
        with pytest.raises(InvariantBrokenError, match="says that it has flushed 3"):
            FlushChecks([machine_with(synced=2, written=3, flushed=3)]).check()
        with pytest.raises(InvariantBrokenError, match="has the recovery point 3"):
            FlushChecks([machine_with(synced=2, written=3, flushed=2, recovery_point=3)]).check()

    @pytest.mark.parametrize("role", ["leader", "follower"])
    def test_no_more_is_reported_than_is_flushed(self, role: str) -> None:
        """With flush.messages=1 acks=all goes by what leaders and followers count as flushed; not while a log is being
        cut, when that is about to follow.
        """
        machine = machine_with(synced=2, written=3, flushed=2)
        (replica,) = machine.node.replicas
        counts = SimpleNamespace(flushed_end=2, phase=Phase.FETCHING)
        if role == "leader":
            replica.leader = counts
        else:
            machine.node.fetcher_manager[PARTITION] = SimpleNamespace(replica=replica, follower=counts)
        FlushChecks([machine]).check()
        counts.flushed_end = 3
        with pytest.raises(InvariantBrokenError, match=f"a {role}, counts 3 as flushed, its log 2"):
            FlushChecks([machine]).check()
        replica.log.truncation_is_pending = True
        FlushChecks([machine]).check()

    def test_what_lies_before_the_start_is_nobodys(self) -> None:
        """A log that begins anew at 3, with a batch that began before: lost up to there is as good as deleted. One
        offset more, and it counts.
        """
        FlushChecks([machine_with(synced=0, written=3, flushed=3, start=3, recovery_point=3)]).check()
        with pytest.raises(InvariantBrokenError):
            FlushChecks([machine_with(synced=0, written=4, flushed=4, start=3)]).check()


def machine_with_epochs(name: str, epochs: dict[int, int], start: int) -> Any:
    """A broker's machine whose log has a batch of one record at each of the offsets, and begins at `start`."""
    disk = SimulatedDisk(SeededRandom(1), lambda: 0)
    mount = disk.mount()
    mount.make_directories(FOLDER)
    file = mount.open(SEGMENT, create=True)
    for offset, epoch in epochs.items():
        data = batch(b"value")
        patch(data, 0, base_offset=offset, leader_epoch=epoch)
        file.pwrite(data, file.size())
    replica = SimpleNamespace(log=SimpleNamespace(log_start_offset=start))
    node = SimpleNamespace(replicas={PARTITION: replica})
    return SimpleNamespace(name=name, is_ready=True, disk=disk, node=node, folder_of=lambda partition: FOLDER)


class TestReplicas:
    """`sim.checks.replicas`: what follows what is the same on all replicas."""

    def test_what_another_epoch_left_behind_counts_from_the_start_of_the_log_on(self) -> None:
        """A follower cut its log where its leader's begins: nothing reads or compares what it has before that."""
        leader = machine_with_epochs("broker1", {0: 5, 1: 5, 2: 5}, start=0)
        for start in (2, 1):
            follower = machine_with_epochs("broker2", {0: 4, 1: 4, 2: 5}, start=start)
            checker = ReplicaChecker([leader, follower], None)
            assert checker.end(leader, PARTITION) == 3
            if start == 2:
                assert checker.end(follower, PARTITION) == 3
            else:
                with pytest.raises(InvariantBrokenError, match="invariant 4"):
                    checker.end(follower, PARTITION)

    def test_topics_that_have_no_id_yet_are_told_apart(self) -> None:
        """Tools of old make several at once; each has leaders of its own."""
        checker = ReplicaChecker([], None)
        one, other = TopicPartition("one", 0), TopicPartition("other", 0)
        assert checker._partition("", one) is checker._partition("", one)
        assert checker._partition("", one) is not checker._partition("", other)
        assert checker._partition("id", one) is not checker._partition("", one)

    def test_a_high_watermark_goes_back_for_a_truncation_only(self) -> None:
        """In one process, of one log."""
        machine: Any = SimpleNamespace(name="broker1", broker_id=1)
        log = SimpleNamespace(is_offline=False, truncations=0)
        replica: Any = SimpleNamespace(topic_partition=PARTITION, log=log, high_watermark=7)
        checker = ReplicaChecker([], None)
        checker._check_high_watermark(machine, replica)
        log.truncations, replica.high_watermark = 1, 5
        checker._check_high_watermark(machine, replica)
        replica.high_watermark = 4
        with pytest.raises(InvariantBrokenError, match="high watermark 4 on broker1, 5 was known"):
            checker._check_high_watermark(machine, replica)
        reborn: Any = SimpleNamespace(topic_partition=PARTITION, log=log, high_watermark=3)
        checker._check_high_watermark(machine, reborn)


class Store:
    """A tree, and the history of what is done to it."""

    SESSION = 7
    OTHER = 8

    def __init__(self) -> None:
        self.tree = Tree()
        self.history = StoreHistory()
        for id in (self.SESSION, self.OTHER):
            self.tree.open_session(id, SessionRecord(1000, b"", False))

    def do(self, *operations: Operation, session: int = SESSION) -> None:
        """As the store's service does it."""
        self.tree.transact(session, operations, 0)
        paths = [operation.path for operation in operations]
        self.history.written_by(session, paths)
        self.history.applied(self.tree, paths)

    def with_state(self) -> None:
        """A controller, SESSION's, and a partition's state."""
        self.do(Create(CONTROLLER, encode_controller(BrokerId(1), 0), ephemeral=True))
        path = state_path(*PARTITION)
        parents: list[str] = []
        while (path := parent_of(path)) != "/":
            parents.append(path)
        for parent in reversed(parents):
            self.do(Create(parent))
        self.do(Create(state_path(*PARTITION), b"one"))


class TestWritersOfStates:
    """Invariant 7: partitions' states are the present controller's to write."""

    def test_the_controller_writes(self) -> None:
        """And so may the last one, until there is another."""
        store = Store()
        store.with_state()
        store.do(Delete(CONTROLLER))
        store.do(SetData(state_path(*PARTITION), b"two"))

    def test_nobody_else_does(self) -> None:
        """A broker that is not the controller, or is it no more."""
        store = Store()
        store.with_state()
        with pytest.raises(InvariantBrokenError, match=r"invariant 7 .*session 0x8 writes"):
            store.do(SetData(state_path(*PARTITION), b"two"), session=store.OTHER)
        store.do(Delete(CONTROLLER))
        store.do(Create(CONTROLLER, encode_controller(BrokerId(2), 0), ephemeral=True), session=store.OTHER)
        with pytest.raises(InvariantBrokenError, match=r"invariant 7 .*session 0x7 writes"):
            store.do(SetData(state_path(*PARTITION), b"three"))

    def test_tools_write_topics_and_settings(self) -> None:
        """Kafka writes these without the fence."""
        store = Store()
        store.with_state()
        store.do(SetData("/brokers/topics/topicone", b"plan"), session=store.OTHER)


class TestWhatTheStoreTells:
    """Invariant 16, by what its clients were answered."""

    def test_a_read_of_the_present(self) -> None:
        """And of anything that was the present while it was under way."""
        store = Store()
        store.do(Create("/a", b"one"))
        old = store.tree.get("/a")
        begun = store.history.acknowledged_zxid
        store.do(SetData("/a", b"two"))
        store.history.check_read("/a", begun, *store.tree.get("/a"), has_data=True)
        store.history.check_read("/a", begun, *old, has_data=True)

    def test_a_read_of_the_past(self) -> None:
        """What was replaced before it began, as a client knows."""
        store = Store()
        store.do(Create("/a", b"one"))
        old = store.tree.get("/a")
        store.do(SetData("/a", b"two"))
        store.history.check_read("/a", 0, *store.tree.get("/a"), has_data=True)
        with pytest.raises(InvariantBrokenError, match=r"invariant 16 .*which it never was after"):
            store.history.check_read("/a", store.history.acknowledged_zxid, *old, has_data=True)

    def test_a_read_of_what_never_was(self) -> None:
        """Data that nobody wrote; a node that is not there."""
        store = Store()
        store.do(Create("/a", b"one"))
        data, stat = store.tree.get("/a")
        for read in ((b"other", stat), (data, stat._replace(version=5)), (None, None)):
            with pytest.raises(InvariantBrokenError, match=r"invariant 16 "):
                store.history.check_read("/a", store.tree.zxid, *read, has_data=True)

    def test_an_answer_to_a_write_that_is_nowhere(self) -> None:
        """Answered, and not in the history."""
        store = Store()
        store.do(Create("/a", b"one"))
        stat = store.tree.exists("/a")
        assert stat is not None
        store.history.check_written("/a", stat)
        with pytest.raises(InvariantBrokenError, match=r"invariant 16 .*of which nothing is left"):
            store.history.check_written("/a", stat._replace(mzxid=stat.mzxid + 1))

    def test_an_answer_of_the_future(self) -> None:
        """A transaction that there was not."""
        store = Store()
        store.do(Create("/a", b"one"))
        store.history.acknowledged(store.tree.zxid)
        with pytest.raises(InvariantBrokenError, match=r"invariant 16 "):
            store.history.acknowledged(store.tree.zxid + 1)

    def test_a_restart(self) -> None:
        """It may forget what nobody was told, and nothing else; and it comes back as it was."""
        store = Store()
        store.do(Create("/a", b"one"))
        before = store.tree.snapshot()
        told = store.tree.zxid
        store.do(SetData("/a", b"two"))
        store.history.acknowledged(told)
        store.history.restarted(Tree(before))
        assert store.history.now("/a").data == b"one"
        store.tree = Tree(before)
        store.do(SetData("/a", b"three"))
        store.history.acknowledged(store.tree.zxid)
        with pytest.raises(InvariantBrokenError, match=r"invariant 16 .*the store came back"):
            store.history.restarted(Tree(before))

    def test_a_restart_with_another_content(self) -> None:
        """The same transaction, and not the same node."""
        store, other = Store(), Store()
        store.do(Create("/a", b"one"))
        other.do(Create("/a", b"1"))
        with pytest.raises(InvariantBrokenError, match=r"invariant 16 .*came back as"):
            store.history.restarted(other.tree)

    def test_a_replay(self) -> None:
        """What is loaded is what was."""
        store = Store()
        store.do(Create("/a", b"one"))
        check_replay(store.tree, store.tree.snapshot())
        loaded = store.tree.snapshot()
        del loaded.nodes["/a"]
        with pytest.raises(InvariantBrokenError, match=r"invariant 16 .*other nodes"):
            check_replay(store.tree, loaded)


class Asked:
    """Everything that a `Prober` needs of a cluster; each request is answered with `code`."""

    def __init__(self, code: ErrorCode, *, partition_epoch: int = 5) -> None:
        self.code = int(code)
        self.partition_epoch = partition_epoch
        self.is_connected = True
        self.broker_id = 1
        self.name = "broker1"
        self.process = SimpleNamespace(runs=True)
        self.is_ready = True
        log = SimpleNamespace(log_start_offset=0)
        replica = SimpleNamespace(leader_epoch=3, partition_epoch=5, log=log)
        image = SimpleNamespace(controller_epoch=3, controller_id=1)
        self.node = SimpleNamespace(
            replicas={PARTITION: replica}, metadata=SimpleNamespace(image=image), broker_epoch=9
        )
        state = PartitionState(BrokerId(1), LeaderEpoch(3), (BrokerId(1), BrokerId(2)), ControllerEpoch(3))
        stat = SimpleNamespace(czxid=9, version=5)
        cluster: Any = SimpleNamespace(
            brokers=[self],
            trace=Trace(lambda: 0.0),
            store_history=SimpleNamespace(observers=[], now=lambda path: SimpleNamespace(stat=stat)),
            leader=lambda partition: self,
            controller=lambda: [self],
        )
        states: Any = SimpleNamespace(
            replicas=lambda partition: (1, 2), state=lambda partition: state, topic_id=lambda topic: bytes(16)
        )
        router: Any = SimpleNamespace(brokers={1: self}, ask=None)
        self.prober = Prober(router, SeededRandom(1), cluster, states, [PARTITION])

    async def send(self, key: object, message: object) -> Any:
        """As a client does."""
        found = SimpleNamespace(error_code=self.code, partition_epoch=self.partition_epoch)
        topic = SimpleNamespace(partitions=[found], partition_errors=[found])
        return SimpleNamespace(error_code=0, responses=[topic], topics=[topic], partition_errors=[found])

    def probe(self, kind: str) -> int:
        """Asks in that way, many times; how often it was refused."""

        async def several() -> None:
            for _ in range(40):
                await getattr(self.prober, kind)()

        asyncio.run(several())
        return self.prober.refused.total()


class TestProber:
    """Invariant 7: what is out of date is refused."""

    @pytest.mark.parametrize("kind", ["_fetch", "_order", "_alter", "_stop"])
    def test_a_refusal_is_right(self, kind: str) -> None:
        """Whatever the reason that is given."""
        assert Asked(ErrorCode.FENCED_LEADER_EPOCH).probe(kind) > 10

    @pytest.mark.parametrize("kind", ["_fetch", "_order", "_stop"])
    def test_an_acceptance_is_not(self, kind: str) -> None:
        """An answer without an error is the end of the run."""
        with pytest.raises(InvariantBrokenError, match=r"invariant 7 .*accepts what is out of date"):
            Asked(ErrorCode.NONE).probe(kind)

    def test_an_isr_that_stands_already_may_be_granted_again(self) -> None:
        """But not another order of it."""
        assert Asked(ErrorCode.NONE, partition_epoch=5).probe("_alter") == 0
        with pytest.raises(InvariantBrokenError, match=r"invariant 7 .*accepts what is out of date"):
            Asked(ErrorCode.NONE, partition_epoch=6).probe("_alter")


class TestComplaints:
    """`sim.checks.complaints`: what brokers log as errors is read."""

    def logged(self, message: str, *faults: FaultKind, error: Exception | None = None) -> list[str]:
        """What is left unexplained when a simulated broker logs that."""
        loop = VirtualLoop(SeededRandom(1))
        process = Process("broker1.0", loop)
        with Complaints(faults, ["unclean"], Trace(lambda: 0.0)) as complaints:
            logger = logging.getLogger("tidelog.broker.node")
            process.context.run(logger.error, message, exc_info=error)
            logger.error("the simulator's own look")
            process.kill()
            process.context.run(logger.error, "the last words of the dead")
        logger.error("after the run")
        loop.close()
        return complaints.unexplained

    def test_an_error_that_a_fault_explains(self) -> None:
        """A disk that fails takes a log directory with it."""
        assert self.logged("log directory offline: path=/data", FaultKind.DISK_ERROR) == []

    def test_an_error_that_nothing_explains(self) -> None:
        """The same without such a fault, and one that no fault explains."""
        assert len(self.logged("log directory offline: path=/data", FaultKind.KILL)) == 1
        assert len(self.logged("not fetched any more: partition=a-0", *FaultKind)) == 1

    def test_a_loss_where_losses_are_declared(self) -> None:
        """And nowhere else."""
        cut = "truncation below the high watermark: partition="
        assert self.logged(f"{cut}unclean-0 to=5") == []
        assert len(self.logged(f"{cut}kept-0 to=5", *FaultKind)) == 1

    def test_a_traceback_is_never_explained(self) -> None:
        """It is a mistake, whatever went wrong before."""
        (found,) = self.logged("log not created: ", *FaultKind, error=KeyError("session"))
        assert "KeyError" in found


def test_a_protocol_without_its_ends_cannot_be_made() -> None:
    """Both are to be said: what comes of a message, and of the connection's end."""
    with pytest.raises(TypeError, match="abstract"):
        MessageProtocol()  # type: ignore[abstract]  # What is tested.
