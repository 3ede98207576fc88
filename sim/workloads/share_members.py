"""Members of a share group while things break: they fetch, acknowledge, release, reject, leave and vanish.

One that vanishes keeps what it holds until its connection or its locks end; what it acknowledges then must be refused,
or hold.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.workloads.coordination import PAUSE_S, Coordinator, KeyType
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.checks.share_history import Asked, Lock, ShareHistory
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.model.identifiers import TopicId, TopicPartition

ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
UNBEARABLE: Final = 7
"""One record in so many is released by whichever member gets it, until it reaches the delivery limit."""
KINDS: Final = (ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT)
POISON_EVERY: Final = 16
"""Of so many offsets one is released by each member that gets it, as a record that no application can digest: it comes
to the limit of deliveries."""
VERSION: Final = 1
FETCH_WAIT_MS: Final = 300
FETCH_RECORDS: Final = 20
VANISH_CHANCE: Final = 0.03
"""Of saying nothing for a while, at each round."""
VANISH_S_MAX: Final = 8.0
CLOSE_CHANCE: Final = 0.02
IDLE_ROUNDS: Final = 5
"""Rounds in which no partition gave anything, after which a calm member has seen all."""


class ShareMember:
    """One member; it fetches from all partitions that any member was given, so that members meet at each of them."""

    def __init__(
        self,
        name: str,
        partitions: Sequence[TopicPartition],
        history: ShareHistory,
        router: Router,
        random: SeededRandom,
        trace: Trace,
        topic_ids: Mapping[str, TopicId],
    ) -> None:
        self.name = name
        self._partitions = list(partitions)
        self._history = history
        self._router = router
        self._random = random
        self._trace = trace
        self._topic_ids = topic_ids
        self._coordinator = Coordinator(router, KeyType.GROUP, history.group)
        self._epoch = 0
        self._tells_all = True
        """A heartbeat without an answer is followed by one that says all: then the assignment is told again."""
        self._sessions: dict[int, int] = {}
        """[broker] -> the epoch of the next request there."""
        self._locks: list[Lock] = []
        """Of what it has not acknowledged yet."""
        self.idle_rounds = 0
        self.calm = False
        """Set it, and it accepts all that it gets, and neither vanishes nor closes."""
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self._heartbeat()
                await self._round()
            except (OSError, TimeoutError) as error:
                self._trace.record("share_member_retries", self.name, repr(error))
                self._give_up()
                self.idle_rounds = 0
                await asyncio.sleep(self._random.between(0.0, 2 * PAUSE_S))
            if not self.calm and self._random.chance(VANISH_CHANCE):
                await asyncio.sleep(self._random.between(0.0, VANISH_S_MAX))
        self._router.close()

    def _give_up(self) -> None:
        """Forgets what it holds: how long that is locked is not known any more."""
        for lock in self._locks:
            lock.is_given_up = True
        self._locks.clear()

    @property
    def has_seen_all(self) -> bool:
        """Whether there is nothing left for it."""
        return self.idle_rounds >= IDLE_ROUNDS

    async def _heartbeat(self) -> None:
        request = messages.ShareGroupHeartbeatRequest(
            group_id=self._history.group,
            member_id=self.name,
            member_epoch=self._epoch,
            subscribed_topic_names=sorted(self._topic_ids) if self._epoch == 0 or self._tells_all else None,
        )
        self._tells_all = True
        response = await self._coordinator.ask(ApiKey.SHARE_GROUP_HEARTBEAT, request, version=VERSION)
        code = ErrorCode(response.error_code)
        self._coordinator.check(code)
        if code is not ErrorCode.NONE:
            self._epoch = 0
            raise ConnectionError(f"{code.name}: {response.error_message}")
        self._epoch = response.member_epoch
        self._tells_all = False
        if response.assignment is not None:
            given = {
                (bytes(each.topic_id), number)
                for each in response.assignment.topic_partitions
                for number in each.partitions
            }
            self._history.assigned |= {
                each for each in self._partitions if (bytes(self._topic_ids[each.topic]), each.partition) in given
            }

    async def _round(self) -> None:
        await self._router.refresh(sorted({partition.topic for partition in self._partitions}))
        by_leader: dict[int, list[TopicPartition]] = {}
        places = [partition for partition in self._partitions if partition in self._history.assigned]
        for partition in places:
            leader = self._router.leader(partition)
            if leader is None or leader.broker_id < 0:
                raise ConnectionError(f"{partition} has no leader")
            by_leader.setdefault(leader.broker_id, []).append(partition)
        got = 0
        for broker, partitions in by_leader.items():
            got += await self._fetch(broker, partitions)
        self.idle_rounds = 0 if got or len(places) < len(self._partitions) else self.idle_rounds + 1
        if not places:
            await asyncio.sleep(PAUSE_S)

    async def _fetch(self, broker: int, partitions: Sequence[TopicPartition]) -> int:
        """Fetches and acknowledges; how many records it got."""
        if broker not in self._router.brokers:
            raise ConnectionError(f"broker {broker} is not known")
        if not self.calm and self._random.chance(CLOSE_CHANCE):
            self._router.brokers[broker].close()
        if not self._router.brokers[broker].is_connected:
            self._sessions.pop(broker, None)
        epoch = self._sessions.get(broker, 0)
        asked = {partition: self._history.asks(partition, broker) for partition in self._partitions}
        request = messages.ShareFetchRequest
        message = request(
            group_id=self._history.group,
            member_id=self.name,
            share_session_epoch=epoch,
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=FETCH_RECORDS,
            batch_size=FETCH_RECORDS,
            topics=[
                request.FetchTopic(
                    topic_id=self._topic_ids[each.topic],
                    partitions=[request.FetchPartition(partition_index=each.partition)],
                )
                for each in partitions
            ],
        )
        self._sessions.pop(broker, None)
        try:
            response = await self._router.ask(broker, ApiKey.SHARE_FETCH, message, version=VERSION)
            self._check(response)
            self._sessions[broker] = epoch + 1
            got = self._take(broker, response, asked)
        except (OSError, TimeoutError):
            self._history.unanswered(partitions)
            raise
        self._locks = [lock for *_, lock in got if lock is not None]
        for place, each, lock in got:
            await self._acknowledge(broker, place, each, lock)
        self._locks.clear()
        return sum(each.last_offset - each.first_offset + 1 for _, each, _ in got)

    def _take(
        self, broker: int, response: Any, asked: Mapping[TopicPartition, Asked]
    ) -> list[tuple[TopicPartition, Any, Lock | None]]:
        """What the answer gives, with its locks; ConnectionError where a partition gives an error."""
        got: list[tuple[TopicPartition, Any, Lock | None]] = []
        is_whole = self._router.brokers[broker].wholeness()
        for place, data in self._answers(response):
            if data.error_code:
                # The session may name partitions that have moved: the next one begins anew.
                self._sessions.pop(broker, None)
                raise ConnectionError(f"{place}: {ErrorCode(data.error_code).name}")
            for each in data.acquired_records:
                first, last = each.first_offset, each.last_offset
                self._trace.record("share_acquires", self.name, str(place), first, last)
                count, was = each.delivery_count, asked[place]
                lock = self._history.acquired(place, self.name, first, last, count, was, is_whole)
                got.append((place, each, lock))
        return got

    async def _acknowledge(self, broker: int, place: TopicPartition, each: Any, lock: Lock | None) -> None:
        first, last = each.first_offset, each.last_offset
        drawn = KINDS[self._random.below(len(KINDS))]
        kind = ACCEPT if self.calm else RELEASE if first % UNBEARABLE == 0 else drawn
        if not self.calm and first % POISON_EVERY + last - first >= POISON_EVERY - 1:
            kind = RELEASE
        if not self.calm and self._random.chance(VANISH_CHANCE):
            await asyncio.sleep(self._random.between(0.0, VANISH_S_MAX))
        if lock is not None:
            lock.is_given_up = True
        epoch = self._sessions.pop(broker)
        request = messages.ShareAcknowledgeRequest
        batch = request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        partition = request.AcknowledgePartition(partition_index=place.partition, acknowledgement_batches=[batch])
        topic = request.AcknowledgeTopic(topic_id=self._topic_ids[place.topic], partitions=[partition])
        message = request(group_id=self._history.group, member_id=self.name, share_session_epoch=epoch, topics=[topic])
        if kind == RELEASE:
            self._history.releases(place, self.name, first, last, each.delivery_count)
        try:
            response = await self._router.ask(broker, ApiKey.SHARE_ACKNOWLEDGE, message, version=VERSION)
            self._check(response)
        except (OSError, TimeoutError):
            self._history.unanswered([place])
            raise
        self._sessions[broker] = epoch + 1
        ((_, data),) = self._answers(response)
        code = ErrorCode(data.error_code)
        self._trace.record("share_acknowledges", self.name, str(place), first, last, kind, code.name)
        if code is not ErrorCode.NONE:
            self._history.refused += 1
            self._history.unanswered([place])
        elif kind in (ACCEPT, REJECT):
            self._history.accepted(place, self.name, first, last)

    def _check(self, response: Any) -> None:
        if response.error_code:
            raise ConnectionError(ErrorCode(response.error_code).name)

    def _answers(self, response: Any) -> list[tuple[TopicPartition, Any]]:
        by_id = {(self._topic_ids[each.topic], each.partition): each for each in self._partitions}
        return [
            (by_id[bytes(topic.topic_id), data.partition_index], data)  # type: ignore[index]
            for topic in response.responses
            for data in topic.partitions
        ]
