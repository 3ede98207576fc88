"""The share consumer: records that the group's members share, given to the caller in batches, each acknowledged.

    poll: what was given before is accepted (implicit mode) --> a fetch from each leader, which takes acknowledgements
          along --> the first batch that comes

Records are locked from the moment in which a broker hands them out: nothing is fetched ahead of the caller's question.
What runs by itself are heartbeats, and fetches of one `poll` that came to an end with another broker's records.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from tidelog.client.arguments import require_timeout, require_topics
from tidelog.client.cluster import Cluster
from tidelog.client.coordination import CoordinatorConnection
from tidelog.client.errors import ClientError, ConnectionFailed, RequestTimedOut
from tidelog.client.share_consumer.deliveries import (
    LED_ELSEWHERE,
    AcknowledgeResult,
    AcknowledgeType,
    Delivery,
    SharedBatch,
    SharedRecord,
)
from tidelog.client.share_consumer.leader import Fetched, Leader, require_renewals
from tidelog.client.share_consumer.membership import ShareMembership
from tidelog.client.share_consumer.settings import AcknowledgementMode, ShareConsumerSettings
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.sharing.sessions import SharedPlace

logger: Final = logging.getLogger(__name__)

REFRESH_S_MAX: Final = 10.0
"""How long one refresh of leaders may take, over all brokers."""

OnAcknowledged = Callable[[Sequence[AcknowledgeResult]], object]


class ShareConsumer:
    """Takes records of topics as a member of a share group (KIP-932).

    One task uses it at a time. In implicit mode what was given is accepted when the caller asks for more, commits or
    leaves the `async with` without an error; with one, it is released. In explicit mode each record is acknowledged by
    `acknowledge`, at once or after further polls, before its lock ends. Acknowledgements go out with the next `poll` or
    `commit`; `on_acknowledged` is told what became of each.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        settings: ShareConsumerSettings | None = None,
        *,
        on_acknowledged: OnAcknowledged | None = None,
    ) -> None:
        self._cluster = cluster
        self._routing = cluster.routing
        self._group = group
        self._settings = settings or ShareConsumerSettings()
        self._is_implicit = self._settings.acknowledgement_mode is AcknowledgementMode.IMPLICIT
        self._on_acknowledged = on_acknowledged
        self._woken = asyncio.Event()
        self._coordinator = CoordinatorConnection(cluster, group)
        self._membership = ShareMembership(cluster, self._coordinator, group, self._settings, self._woken.set)
        self._topics: frozenset[str] = frozenset()
        self._leaders: dict[int, Leader] = {}
        self._turns: dict[asyncio.Task[None], Leader] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshes = 0
        """Since fetches went well, as pauses grow."""
        self._arrived: deque[Delivery] = deque()
        """What was not given out yet."""
        self._given: list[Delivery] = []
        self._failure: Exception | None = None
        """For the next `poll` to raise."""
        self._collected: list[AcknowledgeResult] | None = None
        """What a `commit` that is under way will return."""
        self._closing = False
        self._closed = False

    async def __aenter__(self) -> ShareConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(accepts=error is None)

    # What is shared

    def subscribe(self, topics: Iterable[str]) -> None:
        """Takes records of these topics, with the other members of the group; again with others to change them."""
        self._require_open()
        names = frozenset(require_topics(topics))
        if not names:
            raise ValueError("a share consumer subscribes to at least one topic; close it to leave the group")
        self._topics = names
        self._membership.subscribe(self._topics)
        self._woken.set()

    @property
    def member_id(self) -> str:
        """By which the group knows this consumer."""
        return self._membership.member_id

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer takes records of now; others may take records of them, too."""
        named = ((self._routing.topic_name(place.topic_id), place.partition) for place in self._membership.assignment)
        return frozenset(TopicPartition(name, partition) for name, partition in named if name is not None)

    @property
    def lock_timeout_s(self) -> float | None:
        """How long a record is locked for the member that got it, in seconds; None before the first came."""
        return next((leader.lock_s for leader in self._leaders.values() if leader.lock_s is not None), None)

    # Records

    async def poll(self, timeout_s: float | None = None) -> SharedBatch | None:
        """The next records of any partition; None when there were none within `timeout_s` seconds (None: waits on).

        KafkaError or ClientError where fetching or the group fails for good.
        """
        self._require_open()
        require_timeout(timeout_s)
        if not self._topics:
            raise ValueError("nothing is subscribed to: call subscribe()")
        self._accept_given()
        self._membership.polled(waiting=True)
        batch: SharedBatch | None = None
        waiting = asyncio.timeout(timeout_s)
        try:
            async with waiting:
                batch = await self._next()
        except TimeoutError:
            if not waiting.expired():
                raise  # Of the user's own function.
        finally:
            self._membership.polled(waiting=False)
        return batch

    def __aiter__(self) -> AsyncIterator[SharedBatch]:
        return self

    async def __anext__(self) -> SharedBatch:
        batch = await self.poll()
        assert batch is not None
        return batch

    async def _next(self) -> SharedBatch:
        while True:
            self._woken.clear()
            self._require_open()
            self._membership.raise_failure()
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            delivery = self._take()
            if delivery is None:
                self._ask_leaders()
            else:
                self._flush_leaders()
                self._given.append(delivery)
                return SharedBatch(delivery.topic_partition, delivery.records)
            await self._woken.wait()

    def _take(self) -> Delivery | None:
        """What came first of what is still locked."""
        for leader in self._leaders.values():
            leader.look()
        while self._arrived:
            delivery = self._arrived.popleft()
            if delivery.topic_partition.topic not in self._topics:
                delivery.say_of_rest(AcknowledgeType.RELEASE)
            elif delivery.lost is not None or delivery.lock_ends_at <= time.monotonic():
                delivery.forget()  # Its records come again, to this member or another one.
            elif delivery.records:
                return delivery
        return None

    def _ask_leaders(self) -> None:
        """A fetch for each leader that none is under way to."""
        by_leader, leaderless = self._by_leader()
        now = time.monotonic()
        for broker_id, wanted in by_leader.items():
            leader = self._leader(broker_id)
            if not leader.is_busy and leader.resting_until <= now:
                self._start(self._fetch(leader, wanted), leader)
        self._flush_leaders(besides=by_leader)
        if leaderless and self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh())

    def _flush_leaders(self, besides: Collection[int] = ()) -> None:
        """Acknowledgements for leaders to which no fetch is going to take them."""
        for broker_id, leader in self._leaders.items():
            if broker_id not in besides and leader.has_said and not leader.is_busy:
                deadline = self._routing.deadline(self._settings.max_wait_ms / 1000)
                self._start(leader.acknowledge(deadline), leader)

    def _by_leader(self) -> tuple[dict[int, dict[SharedPlace, TopicPartition]], bool]:
        """[broker] -> the partitions that it leads, of those assigned; and whether the leader of some is not known."""
        found: dict[int, dict[SharedPlace, TopicPartition]] = {}
        leaderless = False
        for place in sorted(self._membership.assignment):
            name = self._routing.topic_name(place.topic_id)
            topic_partition = TopicPartition(name or "", place.partition)
            leader = self._routing.leader(topic_partition) if name is not None else None
            if leader is None or self._routing.is_replaced(topic_partition.topic, place.topic_id):
                leaderless = True
            else:
                found.setdefault(leader.broker_id, {})[place] = topic_partition
        return found, leaderless

    def _leader(self, broker_id: int) -> Leader:
        leader = self._leaders.get(broker_id)
        if leader is None:
            leader = self._leaders[broker_id] = Leader(
                self._cluster, broker_id, self._group, self._membership.member_id, self._settings, self._told
            )
        return leader

    # Acknowledging

    def acknowledge(
        self, what: SharedRecord | Iterable[SharedRecord], kind: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Says what became of a record, or of several, such as a batch; until it is sent another word may follow.

        ValueError for one that is not in the caller's hands: it was not given, or was acknowledged and told before.
        UnsupportedByBroker for RENEW where brokers renew no locks.
        """
        self._require_open()
        kind = AcknowledgeType(kind)
        records = (what,) if isinstance(what, SharedRecord) else what
        delivery: Delivery | None = None
        for record in records:
            if delivery is None or not _holds(delivery, record):
                delivery = next((each for each in reversed(self._given) if _holds(each, record)), None)
                if delivery is None:
                    raise ValueError(
                        f"{record.topic}-{record.partition} offset {record.offset} is not in hand: it was acknowledged"
                        " before, or never given"
                    )
                if kind is AcknowledgeType.RENEW:
                    require_renewals(self._leader_of(delivery))
            delivery.say(record.offset, kind)

    def _leader_of(self, delivery: Delivery) -> Leader:
        return next(leader for leader in self._leaders.values() if delivery in leader.deliveries)

    async def commit(self, timeout_s: float | None = None) -> list[AcknowledgeResult]:
        """Sends what was acknowledged, in implicit mode with all that was given; what became of each.

        Acknowledgements that a broker may take later are sent again for `timeout_s` (None: the cluster's
        operation_timeout_s), and by the next `poll` or `commit`. Errors are in the results: nothing is raised for them.
        Where the caller is cancelled, what is on its way goes on, and `on_acknowledged` is told what became of it.
        """
        self._require_open()
        self._accept_given()
        collected = self._collected = []
        deadline = self._routing.deadline(timeout_s)
        turns = [self._start(leader.acknowledge(deadline), leader) for leader in self._leaders.values()]
        try:
            # Turns of their own: a request that is given up, as its caller is cancelled, ends the share session.
            if turns:
                await asyncio.wait(turns)
        finally:
            self._collected = None
        return collected

    def _accept_given(self) -> None:
        """What was given and not spoken of is accepted in implicit mode; what is done is out of the caller's hands."""
        if self._is_implicit:
            for delivery in self._given:
                delivery.say_of_rest(AcknowledgeType.ACCEPT)
        self._given = [each for each in self._given if not each.is_done]

    def _told(self, results: list[AcknowledgeResult]) -> None:
        if not results:
            return
        for result in results:
            if result.error is not None:
                logger.info(
                    "acknowledgement failed: group=%s partition=%s first_offset=%d last_offset=%d type=%s error=%s",
                    self._group,
                    result.topic_partition,
                    result.first_offset,
                    result.last_offset,
                    result.type.name,
                    result.error,
                )
        if self._collected is not None:
            self._collected += results
        if self._on_acknowledged is not None:
            try:
                self._on_acknowledged(results)
            except Exception as error:  # Of the caller's own function, whatever it is: `poll` raises it.
                self._failure = error

    # Turns with leaders

    def _start(self, work: Coroutine[Any, Any, None], leader: Leader) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._turns[task] = leader
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._turns.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error if isinstance(error, Exception) else self._failure
        self._woken.set()

    async def _fetch(self, leader: Leader, wanted: Mapping[SharedPlace, TopicPartition]) -> None:
        try:
            fetched = await leader.fetch(wanted)
        except (KafkaError, ClientError) as error:
            if not _passes(error):
                raise
            logger.info("share fetch failed: group=%s error=%s", self._group, error)
            for topic_partition in wanted.values():
                self._routing.forget_leader(topic_partition)
            self._rest(leader)
            return
        self._arrived.extend(fetched.deliveries)
        if fetched.errors or fetched.refusals:
            self._look_at_errors(leader, fetched, wanted)
        else:
            leader.failures = 0
            self._refreshes = min(self._refreshes, 1)
        if fetched.damage:
            raise fetched.damage[0]

    def _look_at_errors(self, leader: Leader, fetched: Fetched, wanted: Mapping[SharedPlace, TopicPartition]) -> None:
        """Refused acknowledgements are told to the caller elsewhere, but may show that the leader has moved."""
        # What the broker does not explain Java's consumer asks again, too; the log shows it where it does not pass.
        unexplained = [error for error in fetched.errors.values() if error.code is ErrorCode.UNKNOWN_SERVER_ERROR]
        for error in unexplained:
            logger.warning("not read: group=%s error=%s", self._group, error)
        failures = [
            error
            for error in fetched.errors.values()
            if (not error.retriable and error not in unexplained) or error.code is ErrorCode.CORRUPT_MESSAGE
        ]
        if failures:
            self._failure = failures[0]
        passing = [(place, error) for place, error in (*fetched.errors.items(), *fetched.refusals.items())]
        for place, error in passing:
            is_moved = error.code in LED_ELSEWHERE and place in wanted
            hint = fetched.hints.get(place)
            if is_moved and not self._routing.take_leader(wanted[place], place.topic_id, hint):
                self._routing.forget_leader(wanted[place])
        if unexplained or any(error.retriable for _, error in passing):
            self._rest(leader)

    def _rest(self, leader: Leader) -> None:
        """The leader is not asked for a while."""
        leader.failures += 1
        pause_s = self._routing.retry.pause_s(leader.failures, self._routing.draw)
        leader.resting_until = time.monotonic() + pause_s
        asyncio.get_running_loop().call_later(pause_s, self._woken.set)

    async def _refresh(self) -> None:
        """Asks for the leaders of what is subscribed to; after a pause, if that was done just now."""
        try:
            if self._refreshes:
                await asyncio.sleep(self._routing.retry.pause_s(self._refreshes, self._routing.draw))
            self._refreshes += 1
            await self._cluster.run(self._routing.refresh(sorted(self._topics), self._routing.deadline(REFRESH_S_MAX)))
        except (KafkaError, ClientError) as error:
            if not _passes(error):
                self._failure = error
            logger.info("leaders not found: group=%s error=%s", self._group, error)
        finally:
            self._refreshing = None
            self._woken.set()

    # The end

    async def close(self) -> None:
        """Sends what was acknowledged, in implicit mode with all that was given, releases what is left, and leaves.

        Brokers that do not answer are given up after `close_timeout_s`: locks end without us, too.
        """
        await self._close(accepts=True)

    async def _close(self, *, accepts: bool) -> None:
        if self._closing:
            return
        self._closing = True
        if accepts:
            self._accept_given()
        self._woken.set()  # Ends the wait of a `poll` in another task.
        deadline = self._routing.deadline(self._settings.close_timeout_s)
        # Whatever goes wrong, or is cancelled, on the way: each of these ends; the last one first.
        async with contextlib.AsyncExitStack() as ends:
            ends.callback(self._end)
            ends.push_async_callback(self._membership.leave, deadline)
            ends.push_async_callback(self._end_turns)
            if self._refreshing is not None:
                self._refreshing.cancel()
            # A fetch that waits for records ends by itself, soon: its session is to end with an answer.
            await asyncio.gather(*(leader.close(deadline) for leader in self._leaders.values()))

    async def _end_turns(self) -> None:
        tasks = [*self._turns] if self._refreshing is None else [*self._turns, self._refreshing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self) -> None:
        self._coordinator.close()
        self._arrived.clear()
        self._given.clear()
        self._closed = True

    def _require_open(self) -> None:
        if self._closing:
            raise RuntimeError("the share consumer is closed")


def _holds(delivery: Delivery, record: SharedRecord) -> bool:
    return (
        record.offset in delivery
        and record.partition == delivery.topic_partition.partition
        and record.topic == delivery.topic_partition.topic
    )


def _passes(error: Exception) -> bool:
    """Whether the same may go well later."""
    if isinstance(error, KafkaError):
        return error.code.retriable
    return isinstance(error, (ConnectionFailed, RequestTimedOut))
