"""All users of the product's own client in a run: how they begin, and what they must achieve when all is well again.

The end is a play in acts, each of which has led to a silence once: every user sends and is answered; a topic is deleted
and made again; one partition has no leader while the others have; a topic is gone for good. In each act what is sent
is acknowledged, and read by each group, within 10 s.
"""

from __future__ import annotations

import asyncio
import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Final

from sim.checks.client_history import ClientHistory, GroupWatch, Incarnation
from sim.checks.replicas import replica_of
from sim.checks.transaction_history import TransactionHistory
from sim.invariants import require
from sim.plan import FaultKind
from sim.waiting import until
from sim.workloads.coordination import committed_offsets, coordinated_by
from sim.workloads.own_client.application import ClientApplication
from sim.workloads.own_client.members import ClientMember
from sim.workloads.own_client.producers import SILENT_S_MAX, ClientProducer
from sim.workloads.own_client.topics import (
    ALONE,
    DOOMED,
    GROWN,
    KEYED_PARTITIONS,
    PARTITIONS,
    RENEWED,
    TRANSACTED,
    ClientTopics,
)
from sim.workloads.own_client.transactions import ClientCommittedReader, ClientTransactions
from sim.world.clients import client_process
from tidelog.client.consumer import ConsumerSettings, GroupProtocol
from tidelog.client.producer import ProducerSettings
from tidelog.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sim.cluster import Cluster
    from sim.machine import BrokerMachine
    from sim.plan import Plan
    from sim.workloads.client import Router
    from sim.world.process import Process
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace

MEMBERS: Final = 2
"""Of a group."""
PROTOCOLS: Final = {"client-classic": GroupProtocol.CLASSIC, "client-848": GroupProtocol.CONSUMER}
BY_HAND: Final = {
    # That of the topic that is deleted stays among them.
    "client-by-hand": (TopicPartition(GROWN, 0), TopicPartition(DOOMED, 0)),
    # Nothing but a partition that has no leader again and again.
    "client-alone": (TopicPartition(ALONE, 0),),
}
TRANSACTIONAL: Final = ("client-one", "client-other")
"""Transactional ids."""
APPLICATION: Final = "client-application"
"""What reads and writes by one `Cluster`, and its group."""
KEYED_INCARNATIONS: Final = [Incarnation(each, 0) for each in KEYED_PARTITIONS]
LATE: Final = "client-late"
"""A group that begins when one partition has no leader."""
LOOK_S: Final = 0.25
PATIENT_S: Final = 120.0
"""A delivery timeout longer than any trouble: nothing such a producer sends may fail."""
IMPATIENT_S: Final = 2.0
"""One that passes again and again, so that batches fail."""
ASSIGNORS: Final = (("range",), ("cooperative-sticky",), ("range", "cooperative-sticky"), ("sticky",))


class ClientUsers:
    """See the module. Empty where a plan has none."""

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        make_router: Callable[[str], Router],
        random: SeededRandom,
        trace: Trace,
        generation: Callable[[], int],
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._make_router = make_router
        self._random = random
        self._trace = trace
        self.history = ClientHistory(cluster.loop.time)
        self._topics: ClientTopics | None = None
        self._producers: list[ClientProducer] = []
        self._applications: list[ClientApplication] = []
        self._members: dict[str, list[ClientMember]] = {}
        self._watches: dict[str, GroupWatch] = {}
        self._written: dict[str, int] = {}
        """[group] -> where its coordinator's log ended at the last look."""
        self._tasks: list[asyncio.Task[None]] = []
        self._changing: asyncio.Task[None] | None = None
        self._processes: list[Process] = []
        self._transactions = TransactionHistory()
        self._transactional: list[ClientTransactions] = []
        self._transacting: list[asyncio.Task[None]] = []
        self._readers: list[ClientCommittedReader] = []
        self._stopping = False
        if not plan.clients:
            return
        topics = self._topics = ClientTopics(plan, make_router("client topics"), random.stream("topics"), trace)
        topics.changed = self._topics_changed
        topics.is_awaited = lambda topic: any(producer.is_sending_to(topic) for producer in self._producers)
        self._bootstrap = ",".join(f"{host}:{port}" for host, port in (each.address for each in cluster.brokers))
        self._make_producers(topics, generation)
        self._make_transactions()
        for group in (*PROTOCOLS, *BY_HAND):
            self._make_group(group)

    def _make_producers(self, topics: ClientTopics, generation: Callable[[], int]) -> None:
        for name, timeout_s in (("client-patient", PATIENT_S), ("client-hasty", IMPATIENT_S)):
            own = self._random.stream(name)
            settings = ProducerSettings(
                delivery_timeout_s=timeout_s,
                batch_size=(300, 2_000, 16_000)[own.below(3)],
                linger_ms=(0.0, 5.0, 50.0)[own.below(3)],
                metadata_max_age_s=3.0,
            )
            common = (self._bootstrap, settings, topics, self.history, own, self._trace, generation)
            self._producers.append(ClientProducer(self._process(name), *common))
        own = self._random.stream(APPLICATION)
        settings = ProducerSettings(delivery_timeout_s=PATIENT_S, linger_ms=5.0, metadata_max_age_s=3.0)
        common = (self._bootstrap, settings, topics, self.history, own, self._trace, generation)
        each = ClientApplication(self._process(APPLICATION), *common, reads_may_fail=self._reads_may_fail)
        self._applications.append(each)

    def _make_transactions(self) -> None:
        partitions = [TopicPartition(TRANSACTED, number) for number in range(PARTITIONS[TRANSACTED])]
        for name in TRANSACTIONAL:
            own = self._random.stream(name)
            common = (self._transactions, own, self._trace, self._cluster.loop.time)
            each = ClientTransactions(name, self._process, self._bootstrap, partitions, *common)
            self._transactional.append(each)
        process = self._process("client-committed")
        reader = ClientCommittedReader(
            process,
            self._bootstrap,
            partitions,
            self._transactions,
            self._trace,
            reads_may_fail=self._reads_may_fail,
        )
        self._readers.append(reader)

    @property
    def _reads_may_fail(self) -> bool:
        return not {FaultKind.FLIPPED_READ, FaultKind.ROT}.isdisjoint(self._plan.faults)

    def _make_group(self, group: str) -> None:
        own = self._random.stream(group)
        watch = GroupWatch(group, self._cluster.loop.time)
        if PROTOCOLS.get(group, GroupProtocol.CLASSIC) is GroupProtocol.CLASSIC:
            watch.coordinator = partial(self._cluster.leadership, coordinated_by(group))
        self._watches[group] = watch
        settings = ConsumerSettings(
            assignors=ASSIGNORS[own.below(len(ASSIGNORS))],
            protocol=PROTOCOLS.get(group, GroupProtocol.CLASSIC),
            auto_commit_interval_s=1.0,
            session_timeout_s=30.0,
            heartbeat_interval_s=1.0,
            metadata_max_age_s=3.0,
        )
        self._members[group] = [
            ClientMember(
                self._process(f"{group}-{number}"),
                self._bootstrap,
                dataclasses.replace(settings, auto_commit=number == 0 or own.chance(0.5)),
                watch,
                self.history,
                own.stream(f"member {number}"),
                self._trace,
                by_hand=BY_HAND.get(group, ()),
                reads_may_fail=self._reads_may_fail,
            )
            for number in range(MEMBERS if group in PROTOCOLS else 1)
        ]

    @property
    def _all_producers(self) -> list[ClientProducer]:
        return [*self._producers, *self._applications]

    def _process(self, name: str) -> Process:
        self._cluster.client_names.append(name)
        self._cluster.answered_names.append(name)
        random = self._random.stream(f"{name} process")
        process = client_process(name, self._cluster.loop, self._cluster.network, random)
        self._processes.append(process)
        return process

    @property
    def counts(self) -> dict[str, int]:
        """What happened, for a run's last line."""
        return {
            "by our producer": self.history.acknowledged_count,
            "failed there": self.history.failed,
            "by our consumer": self.history.read,
            "topics made for them": 0 if self._topics is None else self._topics.changes,
            "their transactions": self._transactions.committed,
            "their rebalances": sum(watch.rebalances for watch in self._watches.values()),
        }

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """One that failed ends the run."""
        return self._tasks

    def _topics_changed(self, what: str) -> None:
        for watch in self._watches.values():
            watch.caused(what)

    # The course of a run.

    async def start(self) -> None:
        """Makes the topics; every user begins."""
        if self._topics is None:
            return
        await self._topics.create()
        self._changing = asyncio.ensure_future(self._topics.run())
        self._tasks = [self._changing, asyncio.ensure_future(self._look())]
        self._tasks += [producer.start() for producer in self._all_producers]
        self._transacting = [asyncio.ensure_future(each.run()) for each in self._transactional]
        self._tasks += [*self._transacting, *(reader.start() for reader in self._readers)]
        for group in self._members:
            self._begin(group)

    def _begin(self, group: str) -> None:
        self._tasks += [member.start() for member in self._members[group]]

    async def _look(self) -> None:
        while not self._stopping:
            for group, members in self._members.items():
                owned = [partition for member in members for partition in member.assignment]
                # As long as a topic is being changed, or waits for its deletion, members may hear of it late.
                is_changing = self._topics is None or self._topics.under_way is not None or not self._topics.are_open
                is_coordinated = self._is_coordinated(group)
                at_rest = not is_changing and is_coordinated and all(each.is_at_rest for each in members)
                self._watches[group].looked_at(owned if at_rest else (), self._expected(group))
            await asyncio.sleep(LOOK_S)

    def _is_coordinated(self, group: str) -> bool:
        """Whether the group's coordinator has committed what it had written at the last look. Members hear of it then,
        and not while links are cut to followers that it waits for."""
        partition = coordinated_by(group)
        machine = self._cluster.leader(partition)
        replica = None if machine is None else replica_of(machine, partition)
        if replica is None or replica.leader is None:
            return self._cluster.states is None
        written, self._written[group] = self._written.get(group, 0), replica.log.log_end_offset
        return replica.high_watermark >= written

    def _expected(self, group: str) -> list[TopicPartition]:
        assert self._topics is not None
        return [] if group in BY_HAND else self._topics.partitions

    def calm(self) -> None:
        """The last fault is over: members stay, topics stay as they are."""
        if self._topics is not None:
            self._topics.stopping = True
        for producer in self._all_producers:
            producer.calm = True
        for each in self._transactional:
            each.calm = True
        for members in self._members.values():
            for member in members:
                member.calm = True

    @property
    def ailments(self) -> list[str]:
        """What is not yet as it should be a while after the last fault."""
        if self._changing is not None and not self._changing.done():
            return ["the client's topics are still being changed"]
        return [
            f"{group} is not at rest: {[sorted(member.assignment) for member in self._members[group]]}"
            for group, watch in self._watches.items()
            if group not in BY_HAND and not watch.is_settled
        ]

    async def play(self) -> None:
        """The acts of the end, when brokers and groups are well."""
        topics = self._topics
        if topics is None:
            return
        await self._all_speak("all is well", topics.partitions)
        await asyncio.gather(*(producer.spawn(producer.flush()) for producer in self._all_producers))
        await asyncio.gather(*(each.speak() for each in self._transactional))
        await topics.renew()
        await self._all_speak("a topic was made again", topics.partitions, count=5)
        await self._without_a_leader(topics)
        await topics.delete(DOOMED)
        await self._all_speak("a topic is gone", topics.partitions)
        await asyncio.gather(*(each.speak() for each in self._transactional))
        await self._all_is_committed(topics)

    async def _without_a_leader(self, topics: ClientTopics) -> None:
        """The only replica of one partition is down, while members and a group begin: all others are used as ever."""
        machine = self._cluster.leader(TopicPartition(ALONE, 0))
        replicas = self._plan.replication_factor
        if machine is None or replicas <= self._plan.min_insync_replicas:
            return
        if replicas == 2 and FaultKind.ROT in self._plan.faults:
            return  # What has rotted on the other one could not be mended.
        with self._cluster.kept_down(machine):
            machine.kill()
            self._topics_changed(f"{machine.name} died")
            others = [each for each in topics.partitions if each.topic != ALONE]
            all_others = [*others, *KEYED_PARTITIONS]
            await until(lambda: self._are_led(all_others, machine), lambda: "leaders are not elected", look_s=LOOK_S)
            for members in self._members.values():
                members[0].begin_anew()
            self._make_group(LATE)
            for member in self._members[LATE]:
                member.calm = True
            self._begin(LATE)
            await self._all_speak("one partition has no leader", others)
        await until(
            lambda: not self._cluster.ailments(), lambda: "; ".join(self._cluster.ailments()[:4]), look_s=LOOK_S
        )
        await self._all_speak("all have leaders again", topics.partitions)

    def _are_led(self, partitions: Collection[TopicPartition], dead: BrokerMachine) -> bool:
        internal = [] if self._cluster.states is None else self._cluster.states.partitions()
        coordinators = [each for each in internal if each.topic.startswith("__")]
        leaders = [self._cluster.leader(each) for each in (*partitions, *coordinators)]
        return None not in leaders and dead not in leaders

    async def _all_speak(self, act: str, partitions: Collection[TopicPartition], count: int = 1) -> None:
        """Each producer sends to all of these, and each group is given everything of them, in time."""
        self._trace.record("act", act)
        speeches = [producer.spawn(producer.speak(partitions, count)) for producer in self._producers]
        speeches += [each.spawn(each.speak(KEYED_PARTITIONS, count)) for each in self._applications]
        await asyncio.gather(*speeches)
        spoken = dict(self.history.acknowledged)  # More comes all the time.
        for group, watch in self._watches.items():
            await self._until_read(act, watch, spoken, self._incarnations(group, partitions))
        for each in self._applications:
            await self._until_read(act, each.watch, spoken, KEYED_INCARNATIONS)

    async def _until_read(
        self, act: str, watch: GroupWatch, spoken: Mapping[Incarnation, int], wanted: Collection[Incarnation]
    ) -> None:
        def unread() -> list[str]:
            return watch.unread({each: spoken[each] for each in wanted if each in spoken})

        await until(
            lambda: not unread(),
            lambda: f"{act}: {'; '.join(unread())}",
            number=20,
            seconds=SILENT_S_MAX,
            look_s=LOOK_S,
        )

    def _incarnations(self, group: str, partitions: Collection[TopicPartition]) -> list[Incarnation]:
        """Of these, what a group reads."""
        assert self._topics is not None
        wanted = BY_HAND.get(group, partitions)
        return [self._topics.incarnation(each) for each in partitions if each in wanted]

    async def _all_is_committed(self, topics: ClientTopics) -> None:
        """Each group's offsets come to be committed while its members run, though a topic is gone."""
        self._trace.record("act", "commits")
        router = self._make_router("visitor of the client's groups")
        for group, watch in self._watches.items():
            deadline = self.history.now() + SILENT_S_MAX
            kept = self._incarnations(group, [each for each in topics.partitions if each.topic != RENEWED])
            goals = {each.partition: watch.next_offset.get(each, 0) for each in kept}
            while True:
                found = await committed_offsets(router, group, list(goals), self._trace)
                late = [f"{each}: {found[each][0]} of {goal}" for each, goal in goals.items() if found[each][0] < goal]
                if not late:
                    break
                in_time = self.history.now() < deadline
                require(20, in_time, f"{group} has not committed what it was given: {', '.join(late)}")
                await asyncio.sleep(LOOK_S)
        router.close()

    def stop(self) -> None:
        """Every user leaves."""
        for producer in self._all_producers:
            producer.stopping = True
        self._tasks.append(asyncio.ensure_future(self._end_transactions()))
        for members in self._members.values():
            for member in members:
                member.stopping = True
        self._stopping = True

    async def _end_transactions(self) -> None:
        """Who reads committed records ends last."""
        for each in self._transactional:
            each.stopping = True
        await asyncio.gather(*self._transacting)
        for reader in self._readers:
            reader.stopping = True

    @property
    def has_ended(self) -> bool:
        """Whether all have left."""
        return all(task.done() for task in self._tasks)

    def check_final(self) -> None:
        """Every user has left."""
        for task in self._tasks:
            task.result()
        if self._topics is not None:
            self._transactions.check_final(self._readers[0].values, lambda _: 0)
            present = [self._topics.incarnation(each) for each in self._topics.partitions]
            self.history.check_final([*present, *KEYED_INCARNATIONS])

    def close(self) -> None:
        """Unwinds everything, at the very end."""
        for process in self._processes:
            process.kill()
            process.close()
