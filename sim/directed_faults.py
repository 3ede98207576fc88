"""Faults that bring about one rare situation each, step by step, and alone: by chance one run in hundreds comes by it.

    LEADER_LOST_IN_END   a transaction's end is written down, its coordinator does not reach a partition's leader, and
                         all in sync with that leader die: the partition has no leader, and gets its marker later
    DAMAGED_FIRST        a bit below what is committed changes in the tail of one replica's log, all brokers die, and
                         that one is back first: it knows that records are lost, and waits for another to lead
    REBORN_IN_ELECTION   a leader dies, and the controller is far from the store: while its election of the next leader
                         is on its way, that one dies and registers again; then another controller begins
    LEADER_LOST_IN_SHARE members of a share group have acknowledged records while earlier ones are locked, and the
                         leader dies, in half of the runs with the broker that keeps its state

A run that has one begins with it.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from sim.checks.share_locks import led_here
from sim.cluster import SHARE_STATE_PARTITIONS
from sim.plan import FaultKind
from tidelog.coordinator.partitions import partition_for
from tidelog.coordinator.transactions.states import TransactionState
from tidelog.metadata.znodes import CONTROLLER, broker_path
from tidelog.model.identifiers import TopicPartition
from tidelog.model.topics import SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.records.batch import CRC_START, iterate_headers
from tidelog.sharing.records import RecordState
from tidelog.storage.file_names import LOG, RECOVERY_POINT_CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sim.cluster import Cluster
    from sim.machine import BrokerMachine
    from sim.plan import Plan
    from sim.store.service import StoreService
    from sim.world.randomness import SeededRandom
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.sharing.partitions import LedSharePartition
    from tidelog.metadata.znodes import PartitionState

LOOK_S: Final = 0.1
SHARP_LOOK_S: Final = 0.01
"""For what lasts as long as a follower's next fetch."""
SEEN_S_MAX: Final = 15.0
"""How long the situation is waited for, at each step; a run in which it does not come about goes on without it."""
STORE_DELAY_S: Final = 0.3
"""Of what the controller asks the store and hears from it; there are some more of them between its reading of the
brokers and the arrival of its election."""
STATE_PARTITIONS: Final = 3
"""Of __transaction_state (`cluster.internal_topics`)."""


class DirectedTrouble:
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        random: SeededRandom,
        alone: Callable[[], Awaitable[bool]],
        end: Callable[[], None],
    ) -> None:
        """`alone` waits until all is well, and lets no other fault begin until `end`; False: it was not to be had."""
        self._cluster = cluster
        self._plan = plan
        self._random = random
        self._alone = alone
        self._end = end
        self.handlers: Mapping[FaultKind, Callable[[], Awaitable[None]]] = {
            FaultKind.LEADER_LOST_IN_END: self._leader_lost_in_end,
            FaultKind.DAMAGED_FIRST: self._damaged_first,
            FaultKind.REBORN_IN_ELECTION: self._reborn_in_election,
            FaultKind.LEADER_LOST_IN_SHARE: self._leader_lost_in_share,
        }

    async def _seen(self, holds: Callable[[], bool], look_s: float = LOOK_S) -> bool:
        """Waits until something holds; whether it came to that."""
        deadline = self._cluster.loop.time() + SEEN_S_MAX
        while not holds():
            if self._cluster.loop.time() >= deadline:
                return False
            await asyncio.sleep(look_s)
        return True

    def _isr(self, partition: TopicPartition) -> tuple[int, ...]:
        state = None if self._cluster.states is None else self._cluster.states.state(partition)
        return () if state is None else tuple(state.isr)

    # A transaction's end.

    async def _leader_lost_in_end(self) -> None:
        if self._cluster.states is None or not self._plan.transactions or not await self._alone():
            return
        try:
            await self._lose_leader()
        finally:
            self._end()

    async def _lose_leader(self) -> None:
        """A leader with an open transaction is cut off from the coordinator, which writes the end down all the same."""
        protocol = self._plan.transactions[self._random.below(len(self._plan.transactions))]
        number = partition_for(f"{protocol}-890", STATE_PARTITIONS)
        coordinator = self._cluster.leader(TopicPartition(TRANSACTION_STATE_TOPIC, number))
        if coordinator is None:
            return
        if not await self._seen(lambda: self._begun(coordinator) is not None, SHARP_LOOK_S):
            return
        begun = self._begun(coordinator)
        assert begun is not None
        partition, leader = begun
        # The leader's requests arrive, so that the controller, which may be here, hears of the ISR.
        self._cluster.network.cut(coordinator.name, leader.name)
        self._cluster.trace.record("markers_held", partition, coordinator.name, leader.name)
        try:
            is_out = await self._seen(lambda: coordinator.broker_id not in self._isr(partition))
            if is_out and await self._seen(lambda: _is_prepared(coordinator, partition)):
                await self._take_down(partition, coordinator)
        finally:
            self._cluster.network.heal(coordinator.name, leader.name)

    def _begun(self, coordinator: BrokerMachine) -> tuple[TopicPartition, BrokerMachine] | None:
        """A partition with an open transaction, whose last batch the coordinator's broker does not have yet, and its
        leader; None: there is none."""
        for partition in self._plan.transactional_partitions:
            leader = self._cluster.leader(partition)
            replica = None if leader is None or leader is coordinator else _replica(leader, partition)
            if leader is None or replica is None or replica.log.producers.first_undecided_offset is None:
                continue
            # One that has everything may stay in the ISR for as long as nothing is written.
            if self._cluster.checker.end(coordinator, partition) < replica.log.log_end_offset:
                return partition, leader
        return None

    async def _take_down(self, partition: TopicPartition, coordinator: BrokerMachine) -> None:
        """Kills all who may lead the partition, until it is known that none does, and a while longer."""
        isr = self._isr(partition)
        if coordinator.broker_id in isr:
            return
        with ExitStack() as stack:
            for machine in self._cluster.brokers:
                if machine.broker_id in isr:
                    stack.enter_context(self._cluster.kept_down(machine))
                    machine.kill()
            await self._seen(lambda: self._cluster.leader(partition) is None)
            await asyncio.sleep(self._random.between(1.0, 4.0))

    # A damaged replica.

    async def _damaged_first(self) -> None:
        if self._cluster.states is None or not await self._alone():
            return
        try:
            # Committed, and recovered by whoever dies now: the checkpoint does not cover it yet.
            if await self._seen(lambda: bool(self._tails())):
                found = self._tails()
                await self._damage(*found[self._random.below(len(found))])
        finally:
            self._end()

    def _tails(self) -> list[tuple[BrokerMachine, TopicPartition, str, int]]:
        """Batches (machine, partition, path, position) that a recovery reads, with another behind them, that are
        committed on all replicas."""
        lossy = {topic.name for topic in self._plan.topics if topic.unclean or topic.compacted}
        found = []
        for partition in self._plan.partitions:
            isr = self._isr(partition)
            if partition.topic in lossy or len(isr) < 2:
                continue
            for machine in self._cluster.brokers:
                replica = _replica(machine, partition) if machine.broker_id in isr else None
                if replica is None:
                    continue
                folder, segment = replica.log.directory, replica.log.active
                name = f"{segment.base_offset:020d}{LOG}"
                files = machine.disk.files(folder, name)
                start = max(_recovery_point(machine, folder, partition), replica.log.log_start_offset)
                headers = list(iterate_headers(bytes(files[name].content))) if name in files else []
                found += [
                    (machine, partition, f"{folder}/{name}", position)
                    for (position, header), (_, following) in pairwise(headers)
                    if header.base_offset >= start and following.next_offset <= replica.high_watermark
                ]
        return found

    async def _damage(self, machine: BrokerMachine, partition: TopicPartition, path: str, position: int) -> None:
        self._cluster.checker.excused.add((machine.broker_id, partition))
        machine.disk.rot(path, position + CRC_START + self._random.below(30), 1 << self._random.below(8))
        self._cluster.trace.record("damages", machine.name, path, position)
        with ExitStack() as others:
            with self._cluster.kept_down(machine):
                for other in self._cluster.brokers:
                    if other is not machine:
                        others.enter_context(self._cluster.kept_down(other))
                    other.kill()
                await asyncio.sleep(self._random.between(0.1, 0.5))
            # The sessions of the others have to end before it may lead anything.
            await self._seen(lambda: machine.is_ready and self._cluster.controller() == [machine])
            await asyncio.sleep(self._random.between(1.0, 3.0))

    # An election that is overtaken.

    async def _reborn_in_election(self) -> None:
        if self._cluster.states is None or not await self._alone():
            return
        try:
            if await self._seen(lambda: bool(self._successions())):
                found = self._successions()
                await self._overtake(*found[self._random.below(len(found))])
        finally:
            self._end()

    def _successions(self) -> list[tuple[TopicPartition, BrokerMachine, BrokerMachine, BrokerMachine]]:
        """(partition, its leader, the next one, the controller), where a third member of the ISR stays."""
        states, machines = self._cluster.states, {each.broker_id: each for each in self._cluster.brokers}
        found = []
        for controller in self._cluster.controller():
            for partition in self._plan.partitions:
                leader, isr = self._cluster.leader(partition), self._isr(partition)
                replicas = () if states is None else states.replicas(partition)
                following = [id for id in replicas if id in isr and (leader is None or id != leader.broker_id)]
                if leader is None or leader is controller or len(following) < 2:
                    continue
                if following[0] != controller.broker_id:
                    found.append((partition, leader, machines[following[0]], controller))
        return found

    async def _overtake(
        self, partition: TopicPartition, leader: BrokerMachine, successor: BrokerMachine, controller: BrokerMachine
    ) -> None:
        """The controller reads the live brokers; its election arrives after the successor has registered."""
        states, store = self._cluster.states, self._cluster.store
        if states is None or store is None:
            return
        elected = asyncio.Event()

        def look(changed: TopicPartition, before: PartitionState, after: PartitionState) -> None:
            if changed == partition and after.leader == successor.broker_id:
                elected.set()

        life = successor.generation
        ends = [(host, controller.name) for host in store.hosts]
        links = [self._cluster.network.link(*pair) for pair in [*ends, *((there, here) for here, there in ends)]]
        self._cluster.trace.record("overtakes", partition, leader.name, successor.name, controller.name)
        states.observers.append(look)
        try:
            with self._cluster.kept_down(leader):
                # Their sessions live on: once its logs are open, the successor's next life waits for the former one's.
                leader.kill()
                successor.kill()
                while successor.generation == life or successor.node is None:
                    self._prolong_session(leader)
                    self._prolong_session(successor)
                    await asyncio.sleep(LOOK_S)
                for link in links:
                    link.delay = (STORE_DELAY_S, STORE_DELAY_S)
                self._end_session(leader)
                # The controller hears of it, asks which brokers there are, and reads the node of each.
                await asyncio.sleep(4.5 * STORE_DELAY_S)
                self._end_session(successor)
                with suppress(TimeoutError):
                    await asyncio.wait_for(elected.wait(), SEEN_S_MAX)
                self._in_store(lambda service: service.delete(CONTROLLER))
                await asyncio.sleep(self._random.between(1.0, 3.0))
        finally:
            states.observers.remove(look)
            for link in links:
                link.delay = None

    def _prolong_session(self, machine: BrokerMachine) -> None:
        """That of the broker's registration does not end soon."""
        registration = self._cluster.store_history.now(broker_path(machine.broker_id)).stat
        if registration is not None:
            self._in_store(lambda service: service.prolong_session(registration.ephemeral_owner))

    def _end_session(self, machine: BrokerMachine) -> None:
        registration = self._cluster.store_history.now(broker_path(machine.broker_id)).stat
        if registration is not None:
            self._in_store(lambda service: service.end_session(registration.ephemeral_owner))

    def _in_store(self, action: Callable[[StoreService], object]) -> None:
        store = self._cluster.store
        service = None if store is None or store.process is None else store.service
        if store is not None and service is not None:
            store.within(lambda: action(service))

    # A share group's acknowledgements.

    async def _leader_lost_in_share(self) -> None:
        if self._cluster.states is None or not self._plan.share_members or not await self._alone():
            return
        try:
            if await self._seen(lambda: bool(self._acknowledged_ahead()), SHARP_LOOK_S):
                found = self._acknowledged_ahead()
                await self._take_down_share(*found[self._random.below(len(found))])
        finally:
            self._end()

    def _acknowledged_ahead(self) -> list[tuple[BrokerMachine, LedSharePartition]]:
        """Share partitions with records that are done and stored, behind others that are not done."""
        return [
            (machine, led)
            for machine in self._cluster.brokers
            for led in led_here(machine)
            if led.machine is not None
            and any(run.state is RecordState.ACKNOWLEDGED and run.change is None for run in led.machine.runs)
        ]

    async def _take_down_share(self, leader: BrokerMachine, led: LedSharePartition) -> None:
        partition = led.replica.topic_partition
        number = partition_for(str(led.key), SHARE_STATE_PARTITIONS)
        keeper = self._cluster.leader(TopicPartition(SHARE_GROUP_STATE_TOPIC, number))
        dead = {leader, keeper} if keeper is not None and self._random.chance(0.5) else {leader}
        self._cluster.trace.record("share_leader_dies", partition, leader.name)
        with ExitStack() as stack:
            for machine in self._cluster.brokers:
                if machine in dead:
                    stack.enter_context(self._cluster.kept_down(machine))
                    machine.kill()
            await self._seen(lambda: self._cluster.leader(partition) not in (None, leader))
            await asyncio.sleep(self._random.between(0.5, 3.0))


def _is_prepared(coordinator: BrokerMachine, partition: TopicPartition) -> bool:
    """Whether the end of a transaction is written down that has the partition, which has no marker yet."""
    shards = [] if coordinator.node is None else coordinator.node.transactions.shards.loaded()
    return any(
        transaction.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
        and partition in transaction.partitions
        for shard in shards
        for transaction in shard.machine.transactions()
    )


def _replica(machine: BrokerMachine, partition: TopicPartition) -> Replica | None:
    """As the broker has it; None where it does not run, or its directory has failed."""
    node = machine.node
    replica = None if node is None else node.replicas.get(partition)
    return None if replica is None or replica.log.is_offline else replica


def _recovery_point(machine: BrokerMachine, folder: str, partition: TopicPartition) -> int:
    """From where on an unclean start reads the log, as the checkpoint in its directory says now."""
    directory = folder.rpartition("/")[0]
    content = machine.disk.files(directory, RECOVERY_POINT_CHECKPOINT).get(RECOVERY_POINT_CHECKPOINT)
    lines = [] if content is None else bytes(content.content).decode().splitlines()[2:]
    points = {(topic, int(number)): int(offset) for topic, number, offset in map(str.split, lines)}
    return points.get((partition.topic, partition.partition), 0)
