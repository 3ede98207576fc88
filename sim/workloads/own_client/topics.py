"""The topics that users of the product's own client write and read, and what becomes of them.

`grown` gets partitions, `alone` has one replica of its partition, `renewed` is deleted and made again under its name,
and `doomed` is deleted in the end. `transacted` is written in transactions only, and by nothing else read or changed;
`keyed` is read and written by one application (`application.py`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.checks.client_history import Incarnation
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sim.plan import Plan
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.protocol.messages import Message

GROWN: Final = "client-grown"
ALONE: Final = "client-alone"
RENEWED: Final = "client-renewed"
DOOMED: Final = "client-doomed"
ALL: Final = (GROWN, ALONE, RENEWED, DOOMED)
TRANSACTED: Final = "client-transacted"
KEYED: Final = "client-keyed"
PARTITIONS: Final = {GROWN: 2, ALONE: 1, RENEWED: 2, DOOMED: 1, TRANSACTED: 2, KEYED: 3}
KEYED_PARTITIONS: Final = tuple(TopicPartition(KEYED, number) for number in range(PARTITIONS[KEYED]))
GROWN_MAX: Final = 5
REQUEST_MS_MAX: Final = 5_000
PAUSE_S: Final = 0.2
BY_ID: Final = 6
"""The first version of DeleteTopics that names topics by their ids: one that comes late deletes no later topic."""


class ClientTopics:
    """Makes and changes them; each change is told to `changed` before it is asked for, and when it is done."""

    def __init__(self, plan: Plan, router: Router, random: SeededRandom, trace: Trace) -> None:
        self._plan = plan
        self._router = router
        self._random = random
        self._trace = trace
        self.counts = dict(PARTITIONS)
        self.incarnations = dict.fromkeys((*ALL, KEYED), 0)
        """[topic] -> how many bore its name before."""
        self.open: set[str] = set()
        """Topics that are there, and may be written to."""
        self.changed: Callable[[str], object] = lambda what: None
        self.is_awaited: Callable[[str], bool] = lambda topic: False
        """Whether records for a topic are on their way, so that it cannot be deleted yet."""
        self.under_way: str | None = None
        """The change that was begun and is not done: brokers and members may hear of it at any moment."""
        self.changes = 0
        self.stopping = False
        self._ids: dict[str, bytes] = {}

    @property
    def partitions(self) -> list[TopicPartition]:
        """Of all topics that are there and belong to no one user."""
        return [
            TopicPartition(topic, each) for topic in ALL if topic in self.open for each in range(self.counts[topic])
        ]

    @property
    def are_open(self) -> bool:
        """Whether all topics that belong to no one user are there, and none is to be deleted next."""
        return self.open.issuperset(ALL)

    def incarnation(self, partition: TopicPartition) -> Incarnation:
        """The one that is there now."""
        return Incarnation(partition, self.incarnations[partition.topic])

    async def create(self) -> None:
        """All of them, at the beginning."""
        for topic in (*ALL, TRANSACTED, KEYED):
            await self._create(topic)

    async def run(self) -> None:
        """Changes them again and again."""
        while True:
            await asyncio.sleep(self._random.between(1.0, 6.0))
            if self.stopping:
                return
            if self._random.chance(0.4) and self.counts[GROWN] < GROWN_MAX:
                await self.grow()
            else:
                await self.renew()

    def _begins(self, what: str) -> None:
        self.under_way = what
        self.changed(what)

    def _is_done(self, what: str) -> None:
        self.under_way = None
        self.changed(what)

    async def grow(self) -> None:
        """One more partition."""
        kind = messages.CreatePartitionsRequest
        count = self.counts[GROWN] + 1
        self._begins(f"{GROWN} grows")
        asked = kind.CreatePartitionsTopic(name=GROWN, count=count, assignments=None)
        # INVALID_PARTITIONS: it has as many already, by a request whose answer was lost.
        wanted = (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS)
        request = kind(topics=[asked], timeout_ms=REQUEST_MS_MAX)
        await self._until(ApiKey.CREATE_PARTITIONS, request, lambda answer: answer.results[0].error_code, wanted)
        self.counts[GROWN] = count
        self._is_done(f"{GROWN} has grown")

    async def renew(self) -> None:
        """Deletes a topic, and makes another one of its name."""
        await self.delete(RENEWED)
        self.incarnations[RENEWED] += 1
        await self._create(RENEWED)

    async def delete(self, topic: str) -> None:
        """Deletes a topic, once nothing is on its way to it that could arrive in the next one of its name."""
        self.open.discard(topic)
        await self._until_at_rest(topic)
        self._begins(f"{topic} is deleted")
        kind = messages.DeleteTopicsRequest
        request = kind(
            topics=[kind.DeleteTopicState(name=None, topic_id=TopicId(self._ids[topic]))], timeout_ms=REQUEST_MS_MAX
        )
        wanted = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID)
        await self._until(
            ApiKey.DELETE_TOPICS, request, lambda answer: answer.responses[0].error_code, wanted, version=BY_ID
        )
        self._is_done(f"{topic} was deleted")

    async def _until_at_rest(self, topic: str) -> None:
        while True:
            if not self.is_awaited(topic):
                return
            await asyncio.sleep(PAUSE_S)

    async def _create(self, topic: str) -> None:
        self._begins(f"{topic} is made")
        kind = messages.CreateTopicsRequest
        configs = {
            "segment.bytes": "16000",
            "min.insync.replicas": "1" if topic == ALONE else str(self._plan.min_insync_replicas),
            # The only copy must survive a power cut.
            "flush.messages": "1" if topic == ALONE or self._plan.flushes else "1000000",
        }
        asked = kind.CreatableTopic(
            name=topic,
            num_partitions=PARTITIONS[topic],
            replication_factor=1 if topic == ALONE else self._plan.replication_factor,
            configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        wanted = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        request = kind(topics=[asked], timeout_ms=REQUEST_MS_MAX)
        former = self._ids.get(topic)
        while True:
            await self._until(ApiKey.CREATE_TOPICS, request, lambda answer: answer.topics[0].error_code, wanted)
            known = await self._id_of(topic)
            # A broker that is behind shows the former one: what was answered is that that one was there.
            if known not in (None, former):
                break
            await asyncio.sleep(PAUSE_S)
        assert known is not None
        self._ids[topic] = known
        self.changes += 1
        self._is_done(f"{topic} was made")
        self.open.add(topic)

    async def _id_of(self, topic: str) -> bytes | None:
        kind = messages.MetadataRequest
        request = kind(topics=[kind.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        try:
            (found,) = (await self._router.ask_any(ApiKey.METADATA, request)).topics
        except (OSError, TimeoutError):
            return None
        return None if found.error_code else bytes(found.topic_id)

    async def _until(
        self,
        key: ApiKey,
        message: Message,
        code_of: Callable[[Any], int],
        wanted: Collection[ErrorCode],
        version: int | None = None,
    ) -> None:
        """Asks some broker, again and again, until the answer is one of those wanted."""
        brokers = list(self._router.brokers)
        while True:
            try:
                broker = brokers[self._random.below(len(brokers))]
                code = ErrorCode(code_of(await self._router.ask(broker, key, message, version=version)))
                self._trace.record("client_topics", key.name, code.name)
                if code in wanted:
                    return
            except (OSError, TimeoutError) as error:
                self._trace.record("client_topics", key.name, repr(error))
            await asyncio.sleep(PAUSE_S)
