"""What is compared when a run has come to rest: replicas with each other, brokers' answers with what clients were told,
the disks with a full scan and with what the store says of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.checks.log_checks import Batch, check_log
from sim.checks.replicas import partition_of
from sim.checks.rot import rotten_batches
from sim.invariants import require
from sim.machine import STORE
from sim.store.history import check_replay
from sim.store.journal import JournalPersistence
from sim.world.clock import LoopClock
from sim.world.process import SimulatedExecutor
from tidelog.metadata.znodes import CONFIG, TOPICS
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.storage.log_manager import LogManager

if TYPE_CHECKING:
    from sim.cluster import Cluster
    from sim.machine import BrokerMachine
    from sim.plan import Plan
    from sim.workloads.admin import Administrator
    from sim.workloads.client import Router
    from sim.workloads.reassignments import Reassigner
    from sim.world.randomness import SeededRandom
    from tidelog.model.identifiers import TopicPartition

TOPIC_SETTINGS: Final = "topics"
"""The folder of topics' settings in the store."""
IMBALANCE_PERCENTAGE: Final = 10
"""leader.imbalance.per.broker.percentage"""


class FinalState:
    """Of a cluster that nothing writes to any more."""

    def __init__(self, cluster: Cluster, plan: Plan, random: SeededRandom) -> None:
        self._cluster = cluster
        self._plan = plan
        self._random = random

    def replicas_agree(self) -> bool:
        """Whether all replicas of each partition have come to the same end, and none begins before its leader."""
        states = self._cluster.states
        if states is None:
            return True
        plan = self._plan
        for partition in (*plan.partitions, *plan.transactional_partitions, *plan.guarded_partitions):
            ends = {
                self._cluster.checker.end(machine, partition)
                for machine in self._cluster.brokers
                if machine.broker_id in states.replicas(partition)
            }
            if len(ends) > 1 or not self._begins_alike(partition):
                return False
        return True

    def _begins_alike(self, partition: TopicPartition) -> bool:
        """Whether no replica still has what its leader has deleted; by its own retention it may have deleted more."""
        leading: list[int] = []
        following: list[int] = []
        for machine in self._cluster.brokers:
            replica = None if machine.node is None else machine.node.replicas.get(partition)
            if replica is not None:
                (following if replica.leader is None else leading).append(replica.log.log_start_offset)
        return not leading or min(following, default=leading[0]) >= leading[0]

    def rotten(self) -> list[str]:
        """Batches that readers may ask for, and that are not what was written: the scrub comes by every few seconds."""
        states = self._cluster.states
        return [
            f"{partition} on {machine.name}, {path} at {position}"
            for partition in ([] if states is None else states.partitions())
            for machine in self._cluster.brokers
            for path, position in rotten_batches(machine, partition)
        ]

    def left_behind(self) -> list[str]:
        """Folders of replicas that their brokers are not to have (any more); those put aside have other names."""
        states = self._cluster.states
        if states is None:
            return []
        assigned = {partition: states.replicas(partition) for partition in states.partitions()}
        return [
            f"{machine.name} has {directory}/{folder}, which is on {assigned.get(partition)}"
            for machine in self._cluster.brokers
            for directory in machine.log_dirs
            for folder in machine.disk.folders(directory)
            if (partition := partition_of(folder)) is not None and machine.broker_id not in assigned.get(partition, ())
        ]

    def left_in_store(self, reassigner: Reassigner | None) -> list[str]:
        """Nodes of topics that are deleted: their settings, which the next topic of the name would have."""
        store = self._cluster.store_history
        present = [path for path in store.paths() if store.now(path).stat is not None]
        topics = {path.rpartition("/")[2] for path in present if path.rpartition("/")[0] == TOPICS}
        half_made = set() if reassigner is None else reassigner.half_made
        folder = f"{CONFIG}/{TOPIC_SETTINGS}/"
        explained = topics | half_made
        return [path for path in present if path.startswith(folder) and path.removeprefix(folder) not in explained]

    def shown_offline(self) -> list[str]:
        """Replicas that some broker tells clients are offline; all brokers run, and all their directories work."""
        return [
            f"{machine.name} shows {name}-{index} on {list(partition.offline)} as offline"
            for machine in self._cluster.brokers
            if machine.node is not None
            for name, topic in machine.node.metadata.image.topics.items()
            for index, partition in topic.partitions.items()
            if partition.offline
        ]

    def led_elsewhere(self) -> list[str]:
        """Brokers for which others lead more of the partitions than they may for long, of those that it is to lead."""
        states = self._cluster.states
        if states is None:
            return []
        led: dict[int, list[bool]] = {}
        for partition in states.partitions():
            state, replicas = states.state(partition), states.replicas(partition)
            if state is not None and partition.topic not in self._cluster.estranged:
                led.setdefault(replicas[0], []).append(state.leader == replicas[0])
        return [
            f"broker {broker} is the first replica of {len(found)} partitions, and leads {sum(found)}"
            for broker, found in sorted(led.items())
            if found.count(False) * 100 > len(found) * IMBALANCE_PERCENTAGE
        ]

    async def check_topics(self, router: Router, administrator: Administrator, reassigner: Reassigner | None) -> None:
        """Every broker shows the topics that the administrator was told of."""
        for broker in router.brokers:
            request = messages.MetadataRequest(topics=None, allow_auto_topic_creation=False)
            response = await router.ask(broker, ApiKey.METADATA, request)
            administrator.check_final({topic.name: topic.partitions for topic in response.topics})
        if reassigner is not None:
            await reassigner.check_final(router)
        router.close()

    # What is left on the disks.

    def check_disks(self) -> None:
        """Opens the logs once more, as a broker would, and compares them with a full scan, and with each other.

        All machines have stopped.
        """
        contents: dict[TopicPartition, dict[int, Batch]] = {}
        for machine in self._cluster.brokers:
            manager = LogManager(
                disk=machine.disk.mount(),
                clock=LoopClock(self._cluster.loop.time),
                log_dirs=list(machine.log_dirs),
                broker_id=machine.broker_id,
                cluster_id=None,
            )
            manager.open()
            for log in manager.logs():
                if machine.disk.rotten(log.directory):
                    continue  # Below its start: no reader asks for it, and no other replica may have it any more.
                log.update_high_watermark(log.log_end_offset)
                self._compare(machine, log.topic_partition, check_log(log), contents)
            manager.abandon()
            machine.disk.kill()
        store = self._cluster.store
        if store is not None and store.service is not None:
            executor = SimulatedExecutor(self._cluster.loop, self._random)
            journal = JournalPersistence(store.disk.mount(), STORE, executor)
            check_replay(store.service.store.tree, journal.load())
            store.disk.kill()

    def _compare(
        self,
        machine: BrokerMachine,
        partition: TopicPartition,
        batches: list[Batch],
        contents: dict[TopicPartition, dict[int, Batch]],
    ) -> None:
        """Invariant 4: byte for byte, or record by record where each replica compacts for itself."""
        if partition.topic in self._cluster.checker.compacted:
            batches = [
                Batch(header, [record], repr((header.partition_leader_epoch, record.key, record.value)).encode())
                for header, records, _ in batches
                for record in records
            ]
        known = contents.setdefault(partition, {})
        for batch in batches:
            offset = batch.header.base_offset if len(batch.records) != 1 else batch.records[0].offset
            other = known.setdefault(offset, batch)
            require(
                4,
                other.data == batch.data,
                f"{partition}: {offset} on {machine.name} is {batch.header}, elsewhere {other.header}",
            )
