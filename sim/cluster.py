"""The machines of a run, what looks after them, and what the simulator knows of them that no broker knows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypedDict

from sim.checks.partition_states import PartitionStates
from sim.checks.replicas import ReplicaChecker, replica_of
from sim.checks.retention import Retention
from sim.machine import DATA, OTHER_DATA, PORT, BrokerMachine, LoneMachine, Machine, StoreMachine, Surroundings
from sim.plan import SLOW_DISK_S, FaultKind
from sim.secured_brokers import secured_settings
from sim.store.history import StoreHistory
from sim.world.network import SimulatedNetwork
from tidelog.metadata.znodes import CONTROLLER, broker_path, decode_controller
from tidelog.storage.file_names import LOG

if TYPE_CHECKING:
    from sim.checks.history import History
    from sim.plan import Plan
    from sim.world.loop import VirtualLoop
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.broker.replicas.replica import Replica
    from tidelog.model.identifiers import TopicPartition

RESTART_S: Final = (0.05, 1.0)
"""How long a process that died by itself stays dead, as with a supervisor."""
RACK_AWARE: Final = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
"""So that followers serve consumers of their own rack (KIP-392)."""
LOAD_BUFFER_SIZES: Final = (
    "offsets.load.buffer.size",
    "transaction.state.log.load.buffer.size",
    "share.coordinator.load.buffer.size",
)
LOAD_PIECE: Final = 300
"""Bytes that coordinators read at once where they load in pieces: a batch or a few."""
LOAD_PIECE_OF_SLOW_DISK: Final = 3_000
"""There: 100 KB in small pieces would take longer than a user of our own client may be left without an answer."""
TRANSACTION_PARTITIONS: Final = 3
OFFSETS_PARTITIONS: Final = 3
"""Of `__consumer_offsets`."""
SHARE_STATE_PARTITIONS: Final = 3
"""Of `__share_group_state`."""
SHARE_LOCK_MS: Final = 2000
"""How long a record is locked for a member of a share group."""
STARTS_MAX: Final = 60
"""Of one machine in a run; more is a crash loop."""


class Hardware(TypedDict):
    """In what machines differ."""

    clock_rate: float
    disk_latency_s: tuple[float, float]
    store_servers: int
    log_dirs: tuple[str, ...]


class Cluster:
    """See the module."""

    def __init__(self, plan: Plan, loop: VirtualLoop, random: SeededRandom, trace: Trace, history: History) -> None:
        self.plan = plan
        self.loop = loop
        self.trace = trace
        self.network = SimulatedNetwork(loop, random.stream("network"), trace)
        self.store_history = StoreHistory()
        self._history = history
        self._random = random.stream("cluster")
        self._kept_down: Counter[str] = Counter()
        self._starting: set[str] = set()
        surroundings = Surroundings(loop, self.network, trace, self.store_history)
        self.states: PartitionStates | None = None
        self.store: StoreMachine | None = None
        if plan.is_lone:
            lone = LoneMachine(0, surroundings, random.stream("broker0"), internal_topics(plan), **self._hardware())
            self.brokers: list[BrokerMachine] = [lone]
        else:
            self.store = StoreMachine(surroundings, random.stream("store"), plan.store_servers)
            self.states = PartitionStates(self.store_history, loop.time)
            self.states.may_be_unclean |= {topic.name for topic in plan.topics if topic.unclean}
            self.brokers = [
                BrokerMachine(
                    id,
                    surroundings,
                    random.stream(f"broker{id}"),
                    self._settings(id),
                    **self._hardware(),
                )
                for id in range(1, plan.brokers + 1)
            ]
        for machine in self.brokers:
            machine.disk.names_in_order = plan.names_in_order
        self.checker = ReplicaChecker(self.brokers, self.states)
        for machine in self.brokers:
            machine.before_power_cut = partial(self.checker.look_at, machine)
        self.checker.deleted_to = lambda partition: history.of(partition).starts_at
        if self.states is not None:
            self.states.life = lambda broker: sum(each.generation for each in self.brokers if each.broker_id == broker)
            self.states.lost_power_at = self._lost_power_at
            self.states.has_offline_log = self._has_offline_log
            self.states.is_stopping = lambda broker: any(
                machine.is_stopping for machine in self.brokers if machine.broker_id == broker
            )
            self.states.on_joined = self.checker.joined
            history.largest_isr = self.states.largest_isr
            history.holders = self.checker.holders
            history.min_insync_replicas = plan.min_insync_replicas
        by_retention = frozenset(topic.name for topic in plan.topics if not topic.retains)
        self.checker.retention = Retention(by_retention, clocks_jump=FaultKind.CLOCK_JUMP in plan.faults)
        self.checker.compacted |= {topic.name for topic in plan.topics if topic.compacted}
        self.checker.lossy |= {topic.name for topic in plan.topics if topic.unclean}
        self.on_start: list[Callable[[BrokerMachine], None]] = []
        """Called before a broker's process begins."""
        self.on_rot: list[Callable[[TopicPartition, int], None]] = []
        """Told of each batch that rots, by its first offset."""
        self.explain: Callable[[FaultKind], None] = lambda _: None
        """Told of each kind of fault that an examination brings about: brokers may log it as an error."""
        self.given_up: set[str] = set()
        """Topics with a partition whose leader an operator had to elect uncleanly."""
        self.client_names: list[str] = []
        self.answered_names: list[str] = []
        """Those of them to which answers may be lost: users of our own client."""
        self.estranged: set[str] = set()
        """Topics that got another id than their brokers know, since a tool wrote over their nodes."""

    def _settings(self, broker_id: int) -> dict[str, object]:
        racks = {"broker.rack": f"rack{broker_id % 2}", **RACK_AWARE} if self.plan.racks else {}
        security = secured_settings(f"broker{broker_id}", PORT) if self.plan.secured else {}
        return {**internal_topics(self.plan), **racks, **security}

    def _hardware(self) -> Hardware:
        return {
            "clock_rate": 1.0 + self._random.between(-0.001, 0.001),
            "disk_latency_s": self.plan.disk_latency_s,
            "store_servers": self.plan.store_servers,
            "log_dirs": (DATA, OTHER_DATA)[: self.plan.log_dirs],
        }

    def _lost_power_at(self, broker: int) -> float:
        return max(machine.lost_power_at for machine in self.brokers if machine.broker_id == broker)

    def _has_offline_log(self, broker: int, partition: TopicPartition) -> bool:
        held = [replica_of(machine, partition) for machine in self.brokers if machine.broker_id == broker]
        return any(replica is not None and replica.log.is_offline for replica in held)

    @property
    def host_names(self) -> list[str]:
        """Of all machines and clients."""
        store = [] if self.store is None else self.store.hosts
        return [*(machine.name for machine in self.brokers), *store, *self.client_names]

    @property
    def machines(self) -> list[Machine]:
        return [*([] if self.store is None else [self.store]), *self.brokers]

    @property
    def all_serve(self) -> bool:
        """Whether every broker runs, and has loaded its logs and registered."""
        return all(_runs(machine) and machine.is_ready for machine in self.brokers)

    def controller(self) -> list[BrokerMachine]:
        """The machine that holds /controller, as the store has it now; none where no machine does."""
        version = self.store_history.now(CONTROLLER)
        holder = -1 if version.stat is None else decode_controller(version.data)
        return [machine for machine in self.brokers if machine.broker_id == holder]

    def leader(self, partition: TopicPartition) -> BrokerMachine | None:
        """The machine that leads a partition, as the store has it now."""
        state = None if self.states is None else self.states.state(partition)
        return next((machine for machine in self.brokers if state and machine.broker_id == state.leader), None)

    def is_deposed(self, partition: TopicPartition, broker: int) -> bool:
        """Whether another broker leads a partition than this one, or none, as the store has it now."""
        state = None if self.states is None else self.states.state(partition)
        return state is not None and state.leader != broker

    def committed_end(self, partition: TopicPartition) -> int:
        """The high watermark of a partition, as its leader has it; 0 where none leads."""
        leader = self.brokers[0] if self.states is None else self.leader(partition)
        replica = None if leader is None else replica_of(leader, partition)
        return 0 if replica is None or replica.leader is None else int(replica.high_watermark)

    def has_uncommitted(self, partition: TopicPartition) -> bool:
        """Whether a partition's leader has records above its high watermark."""
        leader = self.brokers[0] if self.states is None else self.leader(partition)
        replica = None if leader is None else replica_of(leader, partition)
        return (
            replica is not None and replica.leader is not None and replica.high_watermark < replica.log.log_end_offset
        )

    def open_transaction(self, producer_id: int, partition: TopicPartition) -> int | None:
        """The offset at which an open transaction of a producer begins, as a partition's leader has it; None where it
        has none, or where none leads."""
        leader = self.brokers[0] if self.states is None else self.leader(partition)
        replica = None if leader is None else replica_of(leader, partition)
        if replica is None or replica.leader is None or replica.log.is_offline or replica.log.producers.is_behind:
            return None
        entry = replica.log.producers.entries.get(producer_id)
        return None if entry is None or entry.transaction_first_offset < 0 else entry.transaction_first_offset

    def leadership(self, partition: TopicPartition) -> tuple[int, int] | None:
        """The broker that leads a partition and its epoch, as the store has them now; None where it says nothing."""
        state = None if self.states is None else self.states.state(partition)
        return None if state is None else (state.leader, state.leader_epoch)

    def presumed_leadership(self, partition: TopicPartition, broker: int) -> tuple[int, int] | None:
        """The same as `broker` has it, if it takes itself for the leader; None where it does not, or does not run."""
        replica = self._presumed_leader(partition, broker)
        return None if replica is None else (broker, replica.leader_epoch)

    def presumed_high_watermark(self, partition: TopicPartition, broker: int) -> tuple[int, int] | None:
        """Leader epoch and high watermark of a partition as `broker` has them, if it takes itself for the leader."""
        replica = self._presumed_leader(partition, broker)
        return None if replica is None else (replica.leader_epoch, replica.high_watermark)

    def _presumed_leader(self, partition: TopicPartition, broker: int) -> Replica | None:
        held = [replica_of(machine, partition) for machine in self.brokers if machine.broker_id == broker]
        return next((replica for replica in held if replica is not None and replica.leader is not None), None)

    def session_of(self, machine: BrokerMachine) -> int | None:
        """The session with which a broker is registered now."""
        stat = self.store_history.now(broker_path(machine.broker_id)).stat
        return None if stat is None else stat.ephemeral_owner

    # Starting.

    async def start(self) -> bool:
        """Starts everything for the first time."""
        if self.store is not None and not await self.store.start():
            return False
        return all(await asyncio.gather(*(self._start(machine) for machine in self.brokers)))

    async def _start(self, machine: Machine) -> bool:
        self._starting.add(machine.name)
        try:
            if isinstance(machine, BrokerMachine):
                self._history.restarted(machine.broker_id)
                for tell in self.on_start:
                    tell(machine)
            return await machine.start()
        finally:
            self._starting.discard(machine.name)

    @contextmanager
    def kept_down(self, machine: Machine) -> Iterator[None]:
        """While it lasts, the machine is not started again."""
        self._kept_down[machine.name] += 1
        try:
            yield
        finally:
            self._kept_down[machine.name] -= 1

    async def supervise(self) -> None:
        """Starts machines that died, for ever, as a supervisor would."""
        under_way: list[asyncio.Task[bool]] = []
        while True:
            await asyncio.sleep(self._random.between(*RESTART_S))
            under_way = [task for task in under_way if not (task.done() and task.result() in (True, False))]
            for machine in self.machines:
                if machine.process is None and not self._kept_down[machine.name] and machine.name not in self._starting:
                    if machine.generation >= STARTS_MAX:
                        raise AssertionError(f"{machine.name} was started {STARTS_MAX} times; last: {machine.failure}")
                    under_way.append(asyncio.ensure_future(self._start(machine)))

    # Health.

    @property
    def is_whole(self) -> bool:
        """Whether all machines serve, and nothing is left to come back."""
        return self.all_serve and not self.ailments()

    def ailments(self) -> list[str]:
        """What is not as it should be long after the last fault (invariant 17)."""
        found = [f"{machine.name} does not run: {machine.failure}" for machine in self.machines if not _runs(machine)]
        if found:
            return found
        if self.states is None:
            return []
        for partition in self.states.partitions():
            state, replicas = self.states.state(partition), self.states.replicas(partition)
            assert state is not None
            if partition.topic in self.estranged:
                continue
            if state.leader < 0 or set(state.isr) != set(replicas):
                found.append(f"{partition}: leader {state.leader}, ISR {state.isr}, replicas {replicas}")
                continue
            for machine in self.brokers:
                node = machine.node
                image = None if node is None else node.metadata.image.partition(partition)
                if image is None or (image.leader, image.leader_epoch) != (state.leader, state.leader_epoch):
                    found.append(f"{partition}: {machine.name} has not heard that {state.leader} leads: {image}")
                elif (set(image.isr), set(image.replicas)) != (set(state.isr), set(replicas)) or image.offline:
                    found.append(f"{partition}: {machine.name} says {image}, the store {state}, replicas {replicas}")
                replica = replica_of(machine, partition) if machine.broker_id in replicas else None
                if replica is not None:
                    leads = replica.leader is not None
                    if leads != (state.leader == machine.broker_id):
                        found.append(f"{partition}: {machine.name} leads: {leads}, the leader is {state.leader}")
        return found

    def waiting_for_operators(self) -> list[TopicPartition]:
        """Partitions without a leader, of whose ISR every member has lost records, by what this run did to its disk.

        To a broker what was not synced looks like that, too, where a power cut has kept the end of it alone.
        """
        states = self.states
        found = []
        for partition in () if states is None else states.partitions():
            state = states.state(partition) if states is not None else None
            if states is not None and state is not None and state.leader < 0:
                members = [machine for machine in self.brokers if machine.broker_id in state.isr]
                if all(self._has_lost_records(each, partition) for each in members):
                    found.append(partition)
        return found

    def _has_lost_records(self, machine: BrokerMachine, partition: TopicPartition) -> bool:
        """Whether a replica is marked as one that has lost records, and this run has given it reason to be."""
        if self.states is None or not self.states.is_marked(machine.broker_id, partition):
            return False
        folder = f"{machine.folder_of(partition)}/"
        is_torn = any(path.startswith(folder) and path.endswith(LOG) for path in machine.disk.torn)
        return is_torn or (machine.broker_id, partition) in self.checker.excused

    def allow_loss(self, topic: str) -> None:
        """An operator gives up what no replica of some partition has any more."""
        self.given_up.add(topic)
        self.checker.lossy.add(topic)
        if self.states is not None:
            self.states.may_be_unclean.add(topic)

    def marks_of(self, topics: Iterable[str]) -> list[str]:
        """Topics of these that are still marked as ones that are to go."""
        states = self.states
        return (
            []
            if states is None
            else [f"{name} is still to be deleted" for name in topics if states.is_being_deleted(name)]
        )

    def close(self) -> None:
        """Unwinds everything, at the very end."""
        for machine in self.machines:
            machine.close()


def load_settings(plan: Plan) -> dict[str, object]:
    """How much coordinators read of their partitions at once; empty where that is as in Kafka."""
    if not plan.loads_in_pieces:
        return {}
    size = LOAD_PIECE_OF_SLOW_DISK if plan.disk_latency_s == SLOW_DISK_S else LOAD_PIECE
    return dict.fromkeys(LOAD_BUFFER_SIZES, size)


def internal_topics(plan: Plan) -> dict[str, object]:
    """Settings that follow from the plan, such as that the coordinators' topics keep what the plan's topics keep."""
    return {
        "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
        "offsets.topic.replication.factor": plan.replication_factor,
        "transaction.state.log.num.partitions": TRANSACTION_PARTITIONS,
        "transaction.state.log.replication.factor": plan.replication_factor,
        "transaction.state.log.min.isr": plan.min_insync_replicas,
        "share.coordinator.state.topic.num.partitions": SHARE_STATE_PARTITIONS,
        "share.coordinator.state.topic.replication.factor": plan.replication_factor,
        "share.coordinator.state.topic.min.isr": plan.min_insync_replicas,
        "group.share.min.record.lock.duration.ms": SHARE_LOCK_MS,
        "group.share.record.lock.duration.ms": SHARE_LOCK_MS,
        "min.insync.replicas": plan.min_insync_replicas,
        "log.flush.interval.messages": 1 if plan.flushes else 1_000_000,
        **load_settings(plan),
        # An older high watermark explains less of what is lost: members of the ISR are compared by their logs.
        **({"replica.high.watermark.checkpoint.interval.ms": 20_000} if plan.ends_in_power_cut else {}),
        # What no reader comes across is found within the run, too.
        "log.scrub.interval.ms": 3_000 if FaultKind.ROT in plan.faults else 86_400_000,
        # So that no trouble lasts as long as a session of our own client's members.
        **({"group.consumer.session.timeout.ms": 30_000} if plan.clients else {}),
    }


def _runs(machine: Machine) -> bool:
    return machine.process is not None and machine.process.runs
