"""The way from a client to its coordinator: asked for, used, and forgotten when it is not the one any more."""

from __future__ import annotations

import asyncio
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from sim.checks.group_history import NOTHING
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_LEADER, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.workloads.client import Router
    from sim.world.trace import Trace
    from tidelog.protocol.messages import Message


PAUSE_S: Final = 0.1
"""Between two tries."""


class KeyType(IntEnum):
    """What FindCoordinator is asked for."""

    GROUP = 0
    TRANSACTION = 1


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


async def committed_offsets(
    router: Router, group: str, partitions: Sequence[TopicPartition], trace: Trace
) -> dict[TopicPartition, tuple[int, str]]:
    """Offset and note of what a group has committed, as its coordinator says once it answers."""
    coordinator = Coordinator(router, KeyType.GROUP, group)
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    topics = [
        messages.OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
        for topic, indexes in by_topic.items()
    ]
    asked = messages.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)
    while True:
        try:
            request = messages.OffsetFetchRequest(groups=[asked], require_stable=True)
            response = await coordinator.ask(ApiKey.OFFSET_FETCH, request)
            (answer,) = response.groups
            coordinator.check(ErrorCode(answer.error_code))
            results = {
                TopicPartition(topic.name, each.partition_index): each
                for topic in answer.topics
                for each in topic.partitions
            }
            if not answer.error_code and not any(each.error_code for each in results.values()):
                break
        except (OSError, TimeoutError) as error:
            trace.record("visitor_retries", group, repr(error))
        await asyncio.sleep(PAUSE_S)
    return {
        partition: (max(each.committed_offset, NOTHING), each.metadata or "") for partition, each in results.items()
    }
