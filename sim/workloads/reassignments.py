"""Partitions on the move while things break: by requests, and as the old tools do it, by writing into the store.

Random targets with more or fewer replicas, replaced and cancelled on their way; plans in /admin/reassign_partitions,
preferred elections by node, topics that a tool makes, grows and deletes. What was accepted last must be so in the end;
of what may or may not have been carried out, either may be so.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final, NamedTuple

from sim.checks.replicas import partition_of
from sim.invariants import require
from sim.machine import SESSION_TIMEOUT_MS
from sim.store.client import SimulatedStore
from tidelog.metadata.znodes import (
    DELETE_TOPICS,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    TOPICS,
    decode_topic,
    encode_partitions,
    encode_reassignment,
    topic_path,
)
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.store.client import SessionState
from tidelog.store.errors import BadVersion, NodeExists, NoNode, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.checks.history import History
    from sim.cluster import Cluster
    from sim.store.history import Version
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from tidelog.metadata.znodes import TopicAssignment

PAUSE_S: Final = (0.2, 3.0)
REQUEST_MS_MAX: Final = 5_000
LATE_S: Final = 60.0
"""How long after it was asked for a reassignment may begin whose answer was lost: the store may have been away."""
TOOL_TOPICS_MAX: Final = 3
IN_A_ROW_MAX: Final = 3
"""Partitions that a tool adds one after the other."""


def _target_in(node: TopicAssignment, number: int) -> frozenset[int]:
    """Where a partition is, or is on its way to."""
    return frozenset(node.partitions.get(number, ())) - frozenset(node.removing.get(number, ()))


class Wish(NamedTuple):
    """A target of a partition."""

    at: float
    target: tuple[int, ...]
    is_ordered: bool
    """Whether it was begun when this was noted: all before it is over. A tool's plan is read later."""
    is_certain: bool
    """Whether it was or will be begun."""


class Reassigner:
    """See the module."""

    def __init__(
        self,
        router: Router,
        random: SeededRandom,
        cluster: Cluster,
        history: History,
        partitions: Sequence[TopicPartition],
        *,
        replicas_min: int,
    ) -> None:
        """`partitions`: what it moves; `replicas_min`: of a target."""
        self._router = router
        self._random = random
        self._growths = random.stream("growths")
        self._cluster = cluster
        self._history = history
        self._partitions = partitions
        self._replicas_min = replicas_min
        self._tool: SimulatedStore | None = None
        self._wishes: dict[TopicPartition, list[Wish]] = {}
        self._begun: dict[TopicPartition, list[frozenset[int]]] = {}
        """[partition of the request under way] -> the targets that its topic's node was given since it was asked."""
        self._ids: dict[str, TopicId] = {}
        """[topic] -> the id that it had last."""
        self._topics: dict[str, int | None] = {}
        """[a tool's topic] -> how many partitions it must have in the end; 0: it is gone; None: not known."""
        self.half_made: set[str] = set()
        """Topics whose creation by a tool was cut short: their settings may be in the store without them."""
        self.done = 0
        """Reassignments that were accepted."""
        self.stopping = False
        cluster.store_history.observers.append(self._changed)

    async def run(self) -> None:
        kinds = (self._request, self._request, self._cancel, self._plan, self._elect, self._create, self._grow)
        while not self.stopping:
            await asyncio.sleep(self._random.between(*PAUSE_S))
            try:
                await kinds[self._random.below(len(kinds))]()
            except (OSError, TimeoutError, StoreError) as error:
                self._cluster.trace.record("reassigner_fails", repr(error))
        self._router.close()
        if self._tool is not None:
            await self._tool.close()

    def _changed(self, path: str, before: Version, after: Version) -> None:
        """Observes the store: who leaves a partition forgets what it was; targets, while a request is under way."""
        topic = path.removeprefix(f"{TOPICS}/")
        if topic == path or "/" in topic or before.stat is None or after.stat is None:
            return
        was, now = decode_topic(topic, before.data), decode_topic(topic, after.data)
        if was.topic_id != ZERO_TOPIC_ID:
            self._ids[topic] = was.topic_id
        if now.topic_id not in (ZERO_TOPIC_ID, self._ids.get(topic, now.topic_id)):
            # A tool dropped the id, and a controller that was elected just then, on a broker that had just started,
            # could not know it: as Kafka's, brokers that have the topic under its former id are to be helped by hand.
            self._cluster.estranged.add(topic)
        for number, replicas in was.partitions.items():
            for broker in replicas:
                if broker not in now.partitions.get(number, ()):
                    self._history.replica_left(TopicPartition(topic, number), broker)
        for partition, targets in self._begun.items():
            if partition.topic == topic:
                target = _target_in(now, partition.partition)
                if target != _target_in(was, partition.partition):
                    targets.append(target)

    # Wishes.

    def _some(self) -> list[TopicPartition]:
        count = min(1 + self._random.below(3), len(self._partitions))
        first = self._random.below(len(self._partitions))
        chosen = [self._partitions[(first + index) % len(self._partitions)] for index in range(count)]
        for partition in chosen:
            if partition not in self._wishes and self._cluster.states is not None:
                now = self._cluster.states.replicas(partition)
                self._wishes[partition] = [Wish(0.0, now, is_ordered=True, is_certain=True)]
        return chosen

    def _target(self) -> tuple[int, ...]:
        """Some brokers in some order, none of them twice."""
        brokers = [machine.broker_id for machine in self._cluster.brokers]
        most = min(len(brokers), 4)
        count = self._replicas_min + self._random.below(most - self._replicas_min + 1)
        return tuple(brokers.pop(self._random.below(len(brokers))) for _ in range(count))

    def _note(
        self, partition: TopicPartition, target: Sequence[int], *, is_ordered: bool = True, is_certain: bool = True
    ) -> None:
        self._wishes[partition].append(Wish(self._cluster.loop.time(), tuple(target), is_ordered, is_certain))
        self.done += is_certain

    def _note_refused(self, partition: TopicPartition, target: Sequence[int]) -> None:
        """A refusal says that nothing was done, unless the store shows that it was.

        A broker that forwards a request asks again when its connection to the controller breaks. The first controller
        may have carried it out, and stood still or died before it answered; what the next one refuses is the repetition
        ("no reassignment is in progress", for it was taken back; a broker of the target that has died meanwhile). Kafka
        cannot tell them apart either. The next one answers when it has read all that the first one wrote, which can
        write no more: what was not begun by then never will be. The store may yet have lost it in a crash.
        """
        if frozenset(target) in self._begun[partition]:
            self._note(partition, target, is_certain=False)

    def _possible(self, partition: TopicPartition) -> list[frozenset[int]]:
        """Where a partition may be in the end."""
        found: list[tuple[int, ...]] = []
        wishes = self._wishes[partition]
        for wish in wishes:
            if wish.is_certain:
                late = [each for each in wishes if not each.is_ordered and each.at >= wish.at - LATE_S]
                found = [each.target for each in late if each.at < wish.at]
            found.append(wish.target)
        return [frozenset(target) for target in found]

    async def _request(self) -> None:
        moves = {partition: self._target() for partition in self._some()}
        await self._alter(moves)

    async def _alter(self, moves: dict[TopicPartition, tuple[int, ...]]) -> None:
        request = messages.AlterPartitionReassignmentsRequest(
            timeout_ms=REQUEST_MS_MAX,
            topics=[
                messages.AlterPartitionReassignmentsRequest.ReassignableTopic(
                    name=partition.topic,
                    partitions=[
                        messages.AlterPartitionReassignmentsRequest.ReassignablePartition(
                            partition_index=partition.partition, replicas=list(target)
                        )
                    ],
                )
                for partition, target in moves.items()
            ],
        )
        codes = dict.fromkeys(moves, ErrorCode.REQUEST_TIMED_OUT)
        self._begun = {partition: [] for partition in moves}
        try:
            response = await self._router.ask_any(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
            if response.error_code:
                codes = dict.fromkeys(moves, ErrorCode(response.error_code))
            for topic in response.responses:
                for found in topic.partitions:
                    codes[TopicPartition(topic.name, found.partition_index)] = ErrorCode(found.error_code)
        finally:
            for partition, code in codes.items():
                self._cluster.trace.record("reassign", partition, moves[partition], code.name)
                if code is ErrorCode.NONE:
                    self._note(partition, moves[partition])
                elif code is ErrorCode.INVALID_REPLICA_ASSIGNMENT:  # A broker that is not live.
                    self._note_refused(partition, moves[partition])
                else:
                    self._note(partition, moves[partition], is_ordered=False, is_certain=False)
            self._begun = {}

    async def _cancel(self) -> None:
        """Takes back what is under way, if anything is."""
        for partition in self._partitions:
            data = self._cluster.store_history.now(topic_path(partition.topic)).data
            known = decode_topic(partition.topic, data)
            if partition.partition not in {*known.adding, *known.removing}:
                continue
            adding = known.adding.get(partition.partition, ())
            origin = tuple(id for id in known.partitions[partition.partition] if id not in adding)
            await self._take_back(partition, origin)
            return

    async def _take_back(self, partition: TopicPartition, origin: tuple[int, ...]) -> None:
        request = messages.AlterPartitionReassignmentsRequest(
            timeout_ms=REQUEST_MS_MAX,
            topics=[
                messages.AlterPartitionReassignmentsRequest.ReassignableTopic(
                    name=partition.topic,
                    partitions=[
                        messages.AlterPartitionReassignmentsRequest.ReassignablePartition(
                            partition_index=partition.partition, replicas=None
                        )
                    ],
                )
            ],
        )
        code = ErrorCode.REQUEST_TIMED_OUT
        self._begun = {partition: []}
        try:
            response = await self._router.ask_any(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
            codes = [found.error_code for topic in response.responses for found in topic.partitions]
            code = ErrorCode(response.error_code or codes[0])
        finally:
            self._cluster.trace.record("cancel", partition, origin, code.name)
            if code is ErrorCode.NONE:
                self._note(partition, origin)
            elif code in (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.INVALID_REPLICA_ASSIGNMENT):
                self._note_refused(partition, origin)
            else:
                self._note(partition, origin, is_ordered=False, is_certain=False)
            self._begun = {}

    # As the old tools do it.

    async def _session(self) -> SimulatedStore:
        if self._tool is None or self._tool.state in (SessionState.EXPIRED, SessionState.CLOSED):
            store = self._cluster.store
            assert store is not None
            self._tool = await SimulatedStore.connect(
                self._cluster.network.host("tool"),
                store.hosts,
                SESSION_TIMEOUT_MS,
                self._random.stream("tool"),
                self._cluster.store_history,
            )
        return self._tool

    async def _plan(self) -> None:
        """kafka-reassign-partitions --zookeeper --execute: not while another plan is there."""
        plan = {partition: self._target() for partition in self._some()}
        store = await self._session()
        is_certain = False
        try:
            await store.create(REASSIGN_PARTITIONS, encode_reassignment(plan))
            is_certain = True
        except NodeExists:
            plan.clear()
        finally:
            for partition, target in plan.items():
                self._cluster.trace.record("plan", partition, target, is_certain)
                self._note(partition, target, is_ordered=False, is_certain=is_certain)

    async def _elect(self) -> None:
        """kafka-preferred-replica-election."""
        store = await self._session()
        try:
            await store.create(PREFERRED_ELECTION, encode_partitions(self._some()))
        except NodeExists:
            return
        self._cluster.trace.record("election_by_node")

    async def _create(self) -> None:
        """kafka-topics --create, or --delete: the settings, then the topic without an id."""
        store = await self._session()
        known = [name for name, count in self._topics.items() if count]
        if len(self._topics) >= TOOL_TOPICS_MAX:
            if known:
                await self._delete(store, known[self._random.below(len(known))])
            return
        name = f"tool-{len(self._topics)}"
        self._topics[name] = None
        self.half_made.add(name)
        await store.create(f"/config/topics/{name}", b'{"version":1,"config":{"segment.bytes":"4000"}}')
        await store.create(topic_path(name), self._node({"0": list(self._target())}))
        self._topics[name] = 1
        self.half_made.remove(name)
        self._cluster.trace.record("topic_by_tool", name)

    async def _delete(self, store: SimulatedStore, name: str) -> None:
        self._topics[name] = None
        await store.create(f"{DELETE_TOPICS}/{name}")
        self._topics[name] = 0
        self._cluster.trace.record("deletion_by_tool", name)

    async def _grow(self) -> None:
        """kafka-topics --alter --partitions of 2.2.1, which writes the topic's node anew without its id.

        Once or several times in a row: the controller is still writing the id back when the next partition comes.
        """
        store = await self._session()
        known = [name for name, count in self._topics.items() if count]
        if not known:
            return
        name = known[self._random.below(len(known))]
        for _ in range(1 + self._growths.below(IN_A_ROW_MAX)):
            await self._grow_once(store, name)

    async def _grow_once(self, store: SimulatedStore, name: str) -> None:
        count = self._topics[name]
        if not count:
            return
        try:
            data, stat = await store.get(topic_path(name))
        except NoNode:
            return
        partitions = {str(number): list(ids) for number, ids in decode_topic(name, data).partitions.items()}
        partitions[str(count)] = list(self._target())
        self._topics[name] = None
        try:
            await store.set(topic_path(name), self._node(partitions), stat.version)
            self._topics[name] = count + 1
        except BadVersion:
            self._topics[name] = count
        self._cluster.trace.record("growth_by_tool", name, count + 1)

    def _node(self, partitions: dict[str, list[int]]) -> bytes:
        """As 2.2.1 writes it, or 2.8."""
        content: dict[str, object] = {"version": 1, "partitions": partitions}
        if self._random.chance(0.5):
            content = {"partitions": partitions, "adding_replicas": {}, "removing_replicas": {}, "version": 3}
        return json.dumps(content, separators=(",", ":")).encode()

    # In the end.

    def ailments(self) -> list[str]:
        """What is not yet as it was asked for."""
        found = []
        for path in (REASSIGN_PARTITIONS, PREFERRED_ELECTION):
            version = self._cluster.store_history.now(path)
            if version.stat is not None:
                found.append(f"{path} is still there: {version.data!r}")
        for partition in self._wishes:
            known = decode_topic(partition.topic, self._cluster.store_history.now(topic_path(partition.topic)).data)
            replicas = known.partitions[partition.partition]
            under_way = {*known.adding.get(partition.partition, ()), *known.removing.get(partition.partition, ())}
            possible = self._possible(partition)
            if under_way:
                found.append(f"{partition} is still moving: {replicas}, {under_way} come and go")
            elif frozenset(replicas) not in possible:
                found.append(f"{partition} is on {replicas}, it was to be on {[sorted(ids) for ids in possible]}")
            found += self._left_behind(partition, replicas)
        for name, count in self._topics.items():
            data = self._cluster.store_history.now(topic_path(name)).data
            if count is not None and (data is None) != (count == 0):
                found.append(f"{name} was to have {count} partitions, its node says {data!r}")
        return found

    def _left_behind(self, partition: TopicPartition, replicas: Sequence[int]) -> list[str]:
        """Folders of replicas that were removed."""
        return [
            f"{machine.name} has a folder of {partition}, which is on {replicas}"
            for machine in self._cluster.brokers
            for directory in machine.log_dirs
            if machine.broker_id not in replicas and partition in map(partition_of, machine.disk.folders(directory))
        ]

    async def check_final(self, router: Router) -> None:
        """What brokers say, when all is whole."""
        for broker in router.brokers:
            request = messages.MetadataRequest(topics=None, allow_auto_topic_creation=False)
            response = await router.ask(broker, ApiKey.METADATA, request)
            topics = {topic.name: len(topic.partitions) for topic in response.topics}
            for name, count in self._topics.items():
                if count is not None:
                    require(17, topics.get(name, 0) == count, f"{name} has {topics.get(name)} of {count} partitions")
        asked = messages.ListPartitionReassignmentsRequest(timeout_ms=REQUEST_MS_MAX, topics=None)
        response = await router.ask_any(ApiKey.LIST_PARTITION_REASSIGNMENTS, asked)
        require(17, not response.topics, f"still said to be moving: {response.topics}")
