"""The applications of a run that need coordinators: groups of consumers, transactional producers, who reads them."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sim.checks.committed_answers import CommittedAnswers
from sim.checks.group_history import GroupHistory
from sim.checks.share_history import ShareHistory
from sim.checks.transaction_history import TransactionHistory
from sim.cluster import SHARE_LOCK_MS
from sim.plan import MEMBERS, SUBSCRIBED, FaultKind
from sim.workloads.classic_members import ClassicMember
from sim.workloads.committed_reader import CommittedReader
from sim.workloads.consumer_members import ConsumerMember
from sim.workloads.coordination import PAUSE_S, committed_offsets, coordinated_by, watch_offsets
from sim.workloads.lasting_member import LastingMember
from sim.workloads.share_members import ShareMember
from sim.workloads.transactions import TransactionalProducer
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sim.checks.history import History
    from sim.cluster import Cluster
    from sim.plan import Plan
    from sim.workloads.client import Router
    from sim.workloads.members import Member
    from sim.world.loop import VirtualLoop
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace

DELIVERY_COUNT_LIMIT: Final = 5
"""group.share.delivery.count.limit."""
SHARE_GROUP: Final = "share-group"
LASTING_GROUP: Final = "lasting-group"
KEPT: Final = "kept"


class Applications:
    """See the module. Empty where a plan has none."""

    def __init__(
        self,
        plan: Plan,
        loop: VirtualLoop,
        make_router: Callable[[str], Router],
        random: SeededRandom,
        history: History,
        trace: Trace,
        cluster: Cluster,
    ) -> None:
        """`cluster` is asked who leads what, as the store has it, and as brokers do."""
        self._make_router = make_router
        self._random = random
        self._trace = trace
        self._brokers = cluster.brokers
        self._topic_ids: dict[str, TopicId] = {}
        self._subscribed = [partition for partition in plan.partitions if partition.topic in SUBSCRIBED]
        self._groups: dict[str, GroupHistory] = {}
        self._members: dict[str, list[Member]] = {}
        for protocol in plan.groups:
            name = f"{protocol}-group"
            group = GroupHistory(name, loop.time, partial(_leader, cluster, coordinated_by(name)))
            self._groups[protocol] = group
            self._members[protocol] = [
                self._member(protocol, group, f"{protocol}{number}") for number in range(MEMBERS)
            ]
        self._lasting: list[LastingMember] = []
        if plan.groups:
            self._groups["lasting"] = group = GroupHistory(
                LASTING_GROUP, loop.time, partial(_leader, cluster, coordinated_by(LASTING_GROUP))
            )
            router, own = make_router("lasting member"), random.stream("lasting member")
            self._lasting.append(LastingMember(self._subscribed[0], group, router, own, trace))
        self.share_history = ShareHistory(
            SHARE_GROUP,
            DELIVERY_COUNT_LIMIT,
            cluster.leadership,
            cluster.presumed_leadership,
            lock_s=SHARE_LOCK_MS / 1000,
            now=loop.time,
        )
        self._share_members = [
            ShareMember(
                f"share{number}",
                self._subscribed,
                self.share_history,
                make_router(f"share{number}"),
                random.stream(f"share{number}"),
                trace,
                self._topic_ids,
            )
            for number in range(plan.share_members)
        ]
        self.transactions = TransactionHistory()
        accounts = plan.transactional_partitions
        self._producers = [
            TransactionalProducer(
                f"{protocol}-890",
                accounts,
                self._subscribed[0],
                make_router,
                random.stream(f"{protocol}-890"),
                self.transactions,
                trace,
                cluster.open_transaction,
                partial(_leader, cluster),
                newer=protocol == "since",
                clocks_jump=FaultKind.CLOCK_JUMP in plan.faults,
            )
            for protocol in plan.transactions
        ]
        self._readers = [
            CommittedReader(
                "auditor of accounts",
                accounts,
                make_router("committed"),
                random.stream("committed"),
                history,
                self.transactions,
                trace,
            )
            for _ in accounts[:1]
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = asyncio.Event()

    def _member(self, protocol: str, group: GroupHistory, name: str) -> Member:
        arguments: tuple[Any, ...] = (
            name,
            self._subscribed,
            group,
            self._make_router(name),
            self._random.stream(name),
            self._trace,
        )
        if protocol == "consumer":
            return ConsumerMember(*arguments, topic_ids=self._topic_ids, belated=self._random.stream(f"{name}/belated"))
        return ClassicMember(*arguments, belated=self._random.stream(f"{name}/belated"))

    @property
    def counts(self) -> dict[str, int]:
        """What happened, for a run's last line."""
        return {
            "generations": sum(group.generations for group in self._groups.values()),
            "commits": sum(group.acknowledged for group in self._groups.values()),
            "stale commits": sum(group.refused for group in self._groups.values()),
            "shared": self.share_history.acknowledged,
            "shared by deposed leaders": self.share_history.by_deposed,
            "transactions": self.transactions.committed,
            "aborted": self.transactions.aborted,
            "fenced": self.transactions.fenced,
        }

    async def start(self) -> None:
        """Begins all of them; the topics are there."""
        if self._groups or self._share_members:
            await self._learn_topic_ids()
        if self._share_members:
            await self._share_from_the_first()
        work = [producer.run() for producer in self._producers]
        work += [reader.run() for reader in self._readers]
        work += [member.run() for member in self._share_members]
        work += [member.run() for members in self._members.values() for member in members]
        work += [member.run() for member in self._lasting]
        for group in self._groups.values():
            name = f"watcher of {group.group}"
            own = self._random.stream(name)
            router = self._make_router(name)
            answers = CommittedAnswers(self._brokers, group.group, coordinated_by(group.group))
            work.append(watch_offsets(router, group, answers, self._subscribed, own, self._trace, self._is_over))
        self._tasks = [asyncio.ensure_future(each) for each in work]

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """One that failed ends the run."""
        return self._tasks

    def calm(self) -> None:
        """The last fault is over: members stay, producers end what is under way."""
        for members in self._members.values():
            for member in members:
                member.calm = True
        for sharing in self._share_members:
            sharing.calm = True
        for producer in self._producers:
            producer.stopping = True

    @property
    def ailments(self) -> list[str]:
        """What is not yet as it should be a while after the last fault (invariant 17)."""
        producing = self._tasks[: len(self._producers)]
        found = [
            f"{producer.transactional_id} has not ended its transactions"
            for producer, task in zip(self._producers, producing, strict=True)
            if not task.done()
        ]
        if not found:
            found = [f"{partition}: {what}" for reader in self._readers for partition, what in reader.behind.items()]
        for protocol, members in self._members.items():
            owned = [partition for member in members for partition in member.positions]
            if sorted(owned) != sorted(self._subscribed) or not all(member.is_settled for member in members):
                owners = {member.name: list(member.positions) for member in members}
                found.append(f"the {protocol} group is not stable: {owners}")
        found += [f"{member.name} has not seen all" for member in self._share_members if not member.has_seen_all]
        return found

    def stop(self) -> None:
        """Every member leaves, with its offsets committed."""
        self._is_over.set()
        for reader in self._readers:
            reader.stopping = True
        for members in self._members.values():
            for member in members:
                member.stopping = True
        for sharing in self._share_members:
            sharing.stopping = True
        for lasting in self._lasting:
            lasting.stopping = True

    async def check_final(self) -> None:
        """All members are gone: what is committed is what was acknowledged last; transactions are whole, or absent."""
        # Of this topic nothing is deleted.
        self.share_history.check_final(partition for partition in self._subscribed if partition.topic == KEPT)
        for group in self._groups.values():
            floors = group.floors()
            for partition, (offset, note) in (await self._committed(group.group, self._subscribed)).items():
                group.fetched(partition, offset, note, floors)
        if not self._producers:
            return
        committed: Mapping[TopicPartition, list[bytes]] = self._readers[0].values
        offsets = {
            producer.transactional_id: (await self._committed(producer.group, [producer.source]))[producer.source][0]
            for producer in self._producers
        }
        self.transactions.check_final(committed, lambda transactional_id: offsets[transactional_id])

    async def _committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Offset and note of what a group has committed, as its coordinator says."""
        router = self._make_router(f"visitor of {group}")
        found = await committed_offsets(router, group, partitions, self._trace)
        router.close()
        return found

    async def _share_from_the_first(self) -> None:
        """The share group begins with the first record, so that state which is lost shows as deliveries."""
        router = self._make_router("share settings")
        request = messages.IncrementalAlterConfigsRequest
        change = request.AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = request.AlterConfigsResource(resource_type=32, resource_name=SHARE_GROUP, configs=[change])
        is_set = False
        while not is_set:
            with contextlib.suppress(OSError, TimeoutError):
                response = await router.ask_any(ApiKey.INCREMENTAL_ALTER_CONFIGS, request(resources=[resource]))
                is_set = not response.responses[0].error_code
            await asyncio.sleep(PAUSE_S)
        router.close()

    async def _learn_topic_ids(self) -> None:
        router = self._make_router("topic ids")
        while len(self._topic_ids) < len({partition.topic for partition in self._subscribed}):
            request = messages.MetadataRequest(topics=None, allow_auto_topic_creation=False)
            with contextlib.suppress(OSError, TimeoutError):
                response = await router.ask_any(ApiKey.METADATA, request)
                for topic in response.topics:
                    if topic.name in SUBSCRIBED:
                        self._topic_ids[topic.name] = TopicId(bytes(topic.topic_id))
            await asyncio.sleep(PAUSE_S)
        router.close()


def _leader(cluster: Cluster, partition: TopicPartition) -> int | None:
    """The broker that leads it, as the store has it now; None where none does, and with a lone broker."""
    machine = cluster.leader(partition)
    return None if machine is None else machine.broker_id
