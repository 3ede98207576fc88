"""The way from a client to its coordinator: asked for, used, and forgotten when it is not the one any more.

A client that is no member of a group asks here for the offsets that the group has committed.
"""

from __future__ import annotations

import asyncio
import contextlib
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from sim.checks.group_history import NOTHING
from sim.cluster import OFFSETS_PARTITIONS, TRANSACTION_PARTITIONS
from tidelog.coordinator.partitions import partition_for
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_LEADER, TopicPartition
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sim.checks.committed_answers import CommittedAnswers
    from sim.checks.group_history import GroupHistory
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.protocol.messages import Message


PAUSE_S: Final = 0.1
"""Between two tries."""
WATCH_S: Final = (0.1, 0.9)
"""Between two looks at what a group has committed."""


class KeyType(IntEnum):
    """What FindCoordinator is asked for."""

    GROUP = 0
    TRANSACTION = 1


def coordinated_by(key: str, key_type: KeyType = KeyType.GROUP) -> TopicPartition:
    """The key's partition of `__consumer_offsets` or `__transaction_state`: its leader is the coordinator."""
    if key_type is KeyType.GROUP:
        return TopicPartition(CONSUMER_OFFSETS_TOPIC, partition_for(key, OFFSETS_PARTITIONS))
    return TopicPartition(TRANSACTION_STATE_TOPIC, partition_for(key, TRANSACTION_PARTITIONS))


NOT_THE_COORDINATOR = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Answers after which the coordinator is looked for again."""


class AskAgain(ConnectionError):  # It is no failure: the caller goes on.
    """The coordinator is another one, or not ready."""


class Coordinator:
    """One key's coordinator, as one client sees it."""

    def __init__(self, router: Router, key_type: KeyType, key: str) -> None:
        self._router = router
        self._key_type = key_type
        self._key = key
        self._broker: int = NO_LEADER

    @property
    def partition(self) -> TopicPartition:
        """The partition whose leader is the coordinator."""
        return coordinated_by(self._key, self._key_type)

    async def ask(self, api: ApiKey, message: Message, *, timeout_s: float = 6.0, version: int | None = None) -> Any:
        """The answer of the coordinator. OSError or TimeoutError where there is none: it is looked for again."""
        if self._broker == NO_LEADER:
            self._broker = await self._find()
        try:
            return await self._router.ask(self._broker, api, message, timeout_s, version)
        except (OSError, TimeoutError):
            self.forget()
            raise

    @property
    def broker(self) -> int:
        """The one that answered last; NO_LEADER before it was looked for, and after it was forgotten."""
        return self._broker

    async def _find(self) -> int:
        request = messages.FindCoordinatorRequest(key_type=int(self._key_type), coordinator_keys=[self._key])
        response = await self._router.ask_any(ApiKey.FIND_COORDINATOR, request)
        (found,) = response.coordinators
        if found.error_code != ErrorCode.NONE:
            raise AskAgain(ErrorCode(found.error_code).name)
        return int(found.node_id)

    def forget(self) -> None:
        self._broker = NO_LEADER

    def check(self, code: ErrorCode) -> None:
        """Raises AskAgain where the answer was that this is not the coordinator, or not yet."""
        if code in NOT_THE_COORDINATOR:
            self.forget()
            raise AskAgain(code.name)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """[topic] -> indexes of the partitions, in their order."""
    found: dict[str, list[int]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, []).append(partition.partition)
    return found


def offset_fetch(group: str, partitions: Sequence[TopicPartition]) -> messages.OffsetFetchRequest:
    """Asks what a group has committed, stable offsets alone."""
    kind = messages.OffsetFetchRequest
    topics = [
        kind.OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
        for topic, indexes in by_topic(partitions).items()
    ]
    return kind(groups=[kind.OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True)


async def committed_offsets(
    router: Router, group: str, partitions: Sequence[TopicPartition], trace: Trace
) -> dict[TopicPartition, tuple[int, str]]:
    """Offset and note of what a group has committed, as its coordinator says once it answers."""
    coordinator = Coordinator(router, KeyType.GROUP, group)
    while True:
        try:
            found = await _fetch_offsets(coordinator, group, partitions)
            if found is not None:
                return found
        except (OSError, TimeoutError) as error:
            trace.record("visitor_retries", group, repr(error))
        await asyncio.sleep(PAUSE_S)


async def watch_offsets(
    router: Router,
    history: GroupHistory,
    answers: CommittedAnswers,
    partitions: Sequence[TopicPartition],
    random: SeededRandom,
    trace: Trace,
    is_over: asyncio.Event,
) -> None:
    """Asks again and again what a group has committed, as lag monitors do: what was told once is not taken back, and
    is committed."""
    coordinator = Coordinator(router, KeyType.GROUP, history.group)
    while not is_over.is_set():
        try:
            floors = history.floors()
            asked = coordinator.broker, answers.reign(coordinator.broker)
            found = await _fetch_offsets(coordinator, history.group, partitions)
            if found is not None and coordinator.broker == asked[0]:
                answers.check(*asked, found)
            if found is not None and history.is_coordinator(coordinator.broker):
                for partition, (offset, note) in found.items():
                    history.fetched(partition, offset, note, floors)
        except (OSError, TimeoutError) as error:
            trace.record("watcher_retries", history.group, repr(error))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(is_over.wait(), random.between(*WATCH_S))
    router.close()


async def _fetch_offsets(
    coordinator: Coordinator, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, str]] | None:
    """Offset and note of what a group has committed; None where not all of it is told now. OSError, TimeoutError."""
    response = await coordinator.ask(ApiKey.OFFSET_FETCH, offset_fetch(group, partitions))
    (answer,) = response.groups
    coordinator.check(ErrorCode(answer.error_code))
    results = {
        TopicPartition(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions
    }
    if answer.error_code or any(each.error_code for each in results.values()):
        return None
    return {
        partition: (max(each.committed_offset, NOTHING), each.metadata or "") for partition, each in results.items()
    }
