"""The consumer: partitions read by a group or by assignment, given to the caller in batches, their offsets committed.

The caller's `poll`, or its `async for`, is what everything happens in: between two of them the caller works with a
batch, and nothing is taken from under it. What runs by itself are heartbeats, fetches, the automatic commit, and a
rebalance up to the point where partitions would go.

    poll: what was in hand counts as done -> rebalance, if there is one -> positions of new partitions -> the next batch
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import re
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from types import TracebackType
from typing import Final

from tidelog.client.arguments import (
    OFFSET_MAX,
    require_offset,
    require_partitions,
    require_timeout,
    require_topics,
    require_whole,
)
from tidelog.client.cluster import Cluster
from tidelog.client.consumed import first_timestamp
from tidelog.client.consumer.batch import ConsumedBatch
from tidelog.client.consumer.classic import ClassicMembership
from tidelog.client.consumer.commits import Commits
from tidelog.client.consumer.listener import RebalanceListener
from tidelog.client.consumer.membership import Membership
from tidelog.client.consumer.next_generation import NextGenerationMembership
from tidelog.client.consumer.ownership import Ownership
from tidelog.client.consumer.patterns import Subscription, SubscriptionPattern, matching
from tidelog.client.consumer.settings import ConsumerSettings, GroupProtocol
from tidelog.client.coordination import CoordinatorConnection
from tidelog.client.errors import ClientError
from tidelog.client.fetching import FetchedData
from tidelog.client.offsets import CommittedOffset, GroupMember, OffsetFound, judged_offsets, list_offsets
from tidelog.client.views import topic_error
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

LOOK_INTERVAL_S: Final = 1.0
"""Between two looks at whether topics are to be asked for."""
RENEWED_AFTER_S: Final = 3_600.0
"""When offsets of partitions that were assigned by hand are committed again, though they are no news: those of a group
without members expire (offsets.retention.minutes, a week) after their last commit."""


class Consumer:
    """Reads topics as a member of a `group`, or (`assign`) partitions of the caller's choice, with or without a group.

    One task uses it at a time. Offsets are committed automatically as the caller asks for more, unless the settings say
    otherwise: only of what the caller was given, and not of a batch whose handling raised out of the `async with`.
    """

    def __init__(self, cluster: Cluster, group: str | None = None, settings: ConsumerSettings | None = None) -> None:
        self._cluster = cluster
        self._routing = cluster.routing
        self._settings = settings or ConsumerSettings()
        self._group = group
        self._connections: list[CoordinatorConnection] = []
        self._commits: Commits | None = None
        if group is not None:
            # Two connections: a JoinGroup that waits for other members must not hold up a commit.
            self._connections = [CoordinatorConnection(cluster, group) for _ in range(2)]
            self._commits = Commits(
                cluster,
                self._connections[0],
                self._member_now,
                lambda: self._membership is not None,
                lambda topic: self._fetcher.topic_read(topic),
            )
        self._ownership = Ownership(cluster, self._settings, self._commits)
        self._fetcher = self._ownership.fetcher
        self._membership: Membership | None = None
        self._topics: tuple[str, ...] = ()
        self._pattern: re.Pattern[str] | None = None
        self._is_unmatched = False
        """Whether the pattern has not been matched with what topics there are."""
        self._refused: dict[str, ErrorCode] = {}
        """[topic that is subscribed to] -> why it cannot be read, as Metadata said last."""
        self._refusals: list[KafkaError] = []
        """News of these; each `poll` raises one."""
        self._look = asyncio.Event()
        """Set: the topics are to be asked for now."""
        self._in_hand: tuple[TopicPartition, int] | None = None
        """The partition of the batch that the caller works on, and from which offset on that is not done."""
        self._commits_by_hand = 0
        """That are under way."""
        self._given_to: GroupMember | None = None
        self._settling: asyncio.Task[None] | None = None
        self._committing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._polling = False
        self._closing = False
        self._closed = False

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._take_back()
        await self.close()

    # What to read

    def subscribe(self, topics: Subscription, listener: RebalanceListener | None = None) -> None:
        """Reads these topics together with the other members of the group; again with others to change them.

        Of a pattern (`re.compile`), all whose whole name it matches, and those that come to exist later, found within
        `metadata_max_age_s`; a SubscriptionPattern is the coordinator's to match. ValueError for one of those in a
        classic group.
        """
        self._require_open()
        if self._group is None:
            raise ValueError("a consumer without a group reads what it is assigned: call assign()")
        names = () if isinstance(topics, (SubscriptionPattern, re.Pattern)) else require_topics(topics)
        if self._membership is None and self._ownership.positions:
            raise ValueError("partitions were assigned by hand: a consumer has one way of getting them")
        by_server = topics if isinstance(topics, SubscriptionPattern) else None
        if by_server is not None and self._settings.protocol is not GroupProtocol.CONSUMER:
            raise ValueError("a SubscriptionPattern needs protocol='consumer'; re.compile(...) works in any group")
        self._refused, self._refusals = {}, []
        self._pattern = topics if isinstance(topics, re.Pattern) else None
        self._is_unmatched = self._pattern is not None
        if not isinstance(topics, (SubscriptionPattern, re.Pattern)):
            self._topics = names
        elif by_server is not None or self._membership is None:
            self._topics = ()
        if listener is not None:
            self._ownership.listener = listener
        if self._membership is None:
            make = NextGenerationMembership if self._settings.protocol is GroupProtocol.CONSUMER else ClassicMembership
            self._membership = make(
                self._cluster, self._connections[1], self._group, self._settings, self._ownership, self._fetcher.wake
            )
            self._watching = asyncio.create_task(self._watch_layout())
        self._start_committing()
        if self._pattern is None:
            self._membership.subscribe(self._topics, by_server)
        else:
            self._look.set()  # The topics are looked for first: joining without them would be a rebalance for nothing.

    def assign(self, partitions: Collection[TopicPartition] | Mapping[TopicPartition, int]) -> None:
        """Reads these partitions and no others, from the offsets given or, without them, where the group committed.

        Of those left out what was given counts as done, and is committed meanwhile where commits are automatic.
        """
        self._require_open()
        if self._membership is not None:
            raise ValueError("topics were subscribed: the group assigns their partitions")
        require_partitions(partitions)
        if isinstance(partitions, Mapping):
            for topic_partition, offset in partitions.items():
                require_offset(topic_partition, offset)
        self._ownership.leave([tp for tp in self._ownership.positions if tp not in partitions])
        for topic_partition in partitions:
            self._ownership.positions.setdefault(topic_partition, None)
        if isinstance(partitions, Mapping):
            for topic_partition, offset in partitions.items():
                self.seek(topic_partition, offset)
        self._start_committing()
        self._fetcher.wake()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer has now."""
        return frozenset(self._ownership.positions)

    @property
    def member(self) -> GroupMember:
        """This consumer's identity in its group, for `Producer.send_offsets`: a former member is fenced by it.

        A former member keeps the identity with which it was given its last batch: without one it would not be fenced.
        It names the ids of the topics whose batches were given out last: offsets of a topic that was deleted and made
        again since are not committed.
        """
        member = self._member_now()
        if member.generation < 0 and self._given_to is not None:
            member = self._given_to
        return dataclasses.replace(member, topics_read=dict(self._ownership.topics_given))

    def _member_now(self) -> GroupMember:
        return GroupMember(self._group or "") if self._membership is None else self._membership.member

    # Reading

    async def poll(self, timeout_s: float | None = None) -> ConsumedBatch | None:
        """The next batch of any partition; None when there was none within `timeout_s` seconds (None: waits for ever).

        What was given before counts as done. Rebalances happen in here, and call the listener. KafkaError or
        ClientError where reading or the group fails for good; NoOffset and OffsetOutOfRange ask for a `seek`.
        """
        self._require_open()
        require_timeout(timeout_s)
        if self._polling:
            raise RuntimeError("another task waits in poll: one task uses a consumer at a time")
        self._polling = True
        try:
            return await self._poll(timeout_s)
        finally:
            self._polling = False

    async def _poll(self, timeout_s: float | None) -> ConsumedBatch | None:
        self._in_hand = None
        self._ownership.at_rest.set()
        if self._membership is not None:
            self._membership.polled(True)
        data: FetchedData | None = None
        waiting = asyncio.timeout(timeout_s)
        try:
            async with waiting:
                data = await self._next()
        except TimeoutError:
            if not waiting.expired():
                raise  # A listener's own.
            # A poll without time has sent the next fetches, and looked for nothing.
            if not self._begins_to_settle():
                data = self._take()
        finally:
            if self._membership is not None:
                self._membership.polled(False)
        return None if data is None else self._give(data)

    def __aiter__(self) -> AsyncIterator[ConsumedBatch]:
        return self

    async def __anext__(self) -> ConsumedBatch:
        batch = await self.poll()
        assert batch is not None
        return batch

    async def _next(self) -> FetchedData:
        while True:
            await self._fetcher.advance()
            if self._begins_to_settle():
                # It begins before anything is given out: of partitions that are others' already, nothing is.
                await asyncio.sleep(0)
            data = self._take()
            if data is not None:
                return data
            await self._fetcher.wait()

    def _take(self) -> FetchedData | None:
        """What has arrived, where it may be given out."""
        return None if self._held_back else self._fetcher.take(self._settings.max_poll_records)

    def _begins_to_settle(self) -> bool:
        """Whether a rebalance begins just now; RuntimeError where the consumer is closed."""
        if self._closing:
            raise RuntimeError("the consumer is closed")
        return self._settle_if_needed()

    @property
    def _held_back(self) -> bool:
        """Whether nothing may be given out now: partitions are about to go, or a commit by hand would come too late.

        Cooperative members read on while a rebalance waits for others. But a member that commits what it was given at
        once, as a transaction does, would name the former generation when the next one has just begun, and be refused.
        """
        rebalancing = self._settling is not None and not self._settings.auto_commit
        return self._ownership.changing or rebalancing

    def _settle_if_needed(self) -> bool:
        """Starts to rebalance and to find positions, if there is need; raises what that failed with, and which topic
        may not be read.

        It is a task of its own because a poll that times out must not undo half of a rebalance.
        """
        if self._settling is not None and self._settling.done():
            task, self._settling = self._settling, None
            task.result()
        if self._refusals:
            raise self._refusals.pop(0)
        self._ownership.find_positions()
        needed = self._membership is not None and self._membership.unsettled and not self._is_unmatched
        if not needed or self._settling is not None:
            return False
        self._settling = asyncio.create_task(self._settle())
        self._settling.add_done_callback(lambda task: self._fetcher.wake())
        return True

    async def _settle(self) -> None:
        if self._membership is not None and self._membership.unsettled:
            await self._membership.settle()

    def _give(self, data: FetchedData) -> ConsumedBatch:
        topic_partition = data.topic_partition
        self._in_hand = (topic_partition, data.fetch_offset)
        self._ownership.given(topic_partition, data.next_offset, data.leader_epoch)
        self._ownership.topics_given[topic_partition.topic] = self._fetcher.topic_read(topic_partition.topic)
        self._ownership.at_rest.clear()
        if self._membership is not None:
            self._given_to = self._member_now()
        return ConsumedBatch(data, self._settings.committed_only)

    def _take_back(self) -> None:
        """What is in hand was not done: it is the group's to give out again."""
        if self._in_hand is not None:
            topic_partition, offset = self._in_hand
            self._in_hand = None
            if topic_partition in self._ownership.positions:
                self._ownership.given(topic_partition, offset)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Gives out nothing of these until `resume`; they stay this consumer's. KeyError where one is not assigned."""
        self._require_open()
        require_partitions(partitions)
        self._ownership.require_here(partitions)
        self._fetcher.pause(partitions, self._ownership.epochs)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Goes on with what was paused. KeyError where one is not assigned."""
        self._require_open()
        require_partitions(partitions)
        self._ownership.require_here(partitions)
        self._fetcher.resume(partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(self._fetcher.paused)

    # Positions and commits

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Goes on from `offset`, also within the batch in hand. KeyError where the partition is not assigned."""
        self._require_open()
        require_partitions([topic_partition])
        require_offset(topic_partition, offset)
        self._ownership.seek(topic_partition, offset)
        if self._in_hand is not None and self._in_hand[0] == topic_partition:
            self._in_hand = None

    def seek_to_beginning(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Goes on from the first record that each partition still has; None: all that are assigned. The offset is asked
        for as the caller polls. KeyError where one is not assigned."""
        self._seek_to(partitions, EARLIEST_TIMESTAMP)

    def seek_to_end(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Goes on with what is written from now on, with read_committed from the last stable offset on."""
        self._seek_to(partitions, LATEST_TIMESTAMP)

    def _seek_to(self, partitions: Collection[TopicPartition] | None, question: int) -> None:
        self._require_open()
        if partitions is not None:
            require_partitions(partitions)
        chosen = list(self._ownership.positions) if partitions is None else list(partitions)
        self._ownership.seek_to(chosen, question)
        if self._in_hand is not None and self._in_hand[0] in chosen:
            self._in_hand = None

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The offset of the next batch; None where that is not known yet. KeyError where it is not assigned."""
        return self._ownership.position(topic_partition)

    def lag(self, topic_partition: TopicPartition) -> int | None:
        """Offsets from the position to the end as the last fetch told it; None where nothing was fetched yet. KeyError
        where it is not assigned."""
        position, bounds = self._ownership.position(topic_partition), self._fetcher.bounds.get(topic_partition)
        if position is None or bounds is None:
            return None
        high_watermark, last_stable_offset = bounds
        return max(0, (last_stable_offset if self._settings.committed_only else high_watermark) - position)

    def time_lag_s(self, topic_partition: TopicPartition) -> float | None:
        """Seconds since the timestamp of the next record not given out yet; 0 at the end, None where that record has
        not been fetched. KeyError where the partition is not assigned."""
        lag = self.lag(topic_partition)
        if not lag:
            return None if lag is None else 0.0
        piece = self._fetcher.next_piece(topic_partition)
        timestamp = None if piece is None else first_timestamp(piece, committed_only=self._settings.committed_only)
        return None if timestamp is None else max(0.0, time.time() - timestamp / 1000)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetFound | None]:
        """The first record of each partition at or after a timestamp (ms since 1970); None: there is none so late.

        The partitions need not be assigned. KafkaError for the first that could not be asked.
        """
        require_partitions(timestamps)
        for topic_partition, timestamp in timestamps.items():
            require_whole(f"the timestamp for {topic_partition}", timestamp, most=OFFSET_MAX)
        found = await self._ask_offsets(timestamps)
        return {tp: answer if answer.offset >= 0 else None for tp, answer in found.items()}

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each partition still has; they need not be assigned."""
        require_partitions(partitions)
        found = await self._ask_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        return {tp: answer.offset for tp, answer in found.items()}

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each partition ends, with read_committed its last stable offset; they need not be assigned."""
        require_partitions(partitions)
        found = await self._ask_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))
        return {tp: answer.offset for tp, answer in found.items()}

    async def _ask_offsets(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetFound]:
        self._require_open()
        operation = list_offsets(self._routing, questions, isolation=self._settings.fetch.isolation)
        found: dict[TopicPartition, OffsetFound] = {}
        for topic_partition, answer in (await self._cluster.run(operation)).items():
            if isinstance(answer, KafkaError):
                raise answer
            found[topic_partition] = answer
        return found

    async def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Commits the offsets given, each the next one to read, or (None) after all that `poll` has given out.

        CommitRefused where the group has given this member up, or is changing hands: go on polling.
        """
        self._require_open()
        if self._commits is None:
            raise ValueError("a consumer without a group commits nothing")
        chosen = self._ownership.uncommitted() if offsets is None else judged_offsets(offsets)
        self._commits_by_hand += 1
        try:
            await self._ownership.commit(chosen)
        finally:
            self._commits_by_hand -= 1
            self._count_as_done(chosen)

    def _count_as_done(self, committed: Mapping[TopicPartition, CommittedOffset]) -> None:
        """What the caller has committed of the batch in hand is no more in hand: no commit that comes by itself is to
        take it back."""
        if self._in_hand is None:
            return
        topic_partition, offset = self._in_hand
        told, given = committed.get(topic_partition), self._ownership.positions.get(topic_partition)
        if told is None or given is None or not offset < told.offset <= given:
            return
        if self._ownership.is_committed(topic_partition, told.offset):
            self._in_hand = (topic_partition, told.offset)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """What the group committed for these; those without a commit are left out."""
        self._require_open()
        if self._commits is None:
            raise ValueError("a consumer without a group commits nothing")
        require_partitions(partitions)
        return await self._commits.committed(partitions)

    async def _commit_regularly(self) -> None:
        """Commits what is done every `auto_commit_interval_s`: all that was given, but for the batch in hand."""
        renewed_at = time.monotonic()
        while True:
            await asyncio.sleep(self._settings.auto_commit_interval_s)
            if self._membership is None and time.monotonic() - renewed_at >= RENEWED_AFTER_S:
                renewed_at = time.monotonic()
                self._ownership.commit_anew()
            if not self._commits_by_hand:  # Behind one, it could take back what that commits of the batch in hand.
                await self._ownership.commit_quietly(besides=self._in_hand)

    def _start_committing(self) -> None:
        if self._committing is None and self._settings.auto_commit and self._commits is not None:
            self._committing = asyncio.create_task(self._commit_regularly())

    # The life of it

    async def _watch_layout(self) -> None:
        """Asks for the group's topics now and then: partitions may have been added, topics created or deleted."""
        assert self._membership is not None
        asked_at = -math.inf
        missing = True
        while True:
            laid_out = self._membership.laid_out or {}
            # The leader may have assigned by what a broker said that had not heard of a new topic.
            is_due = missing or self._look.is_set() or 0 in laid_out.values()
            if is_due or time.monotonic() - asked_at >= self._settings.metadata_max_age_s:
                self._look.clear()
                asked_at = time.monotonic()
                # The next poll finds out by itself that no broker answers.
                try:
                    missing = await self._look_at_layout(laid_out)
                except (KafkaError, ClientError):
                    missing = missing or self._is_unmatched
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_INTERVAL_S, self._settings.metadata_max_age_s)):
                    await self._look.wait()

    async def _look_at_layout(self, laid_out: Mapping[str, int]) -> bool:
        """Asks for the topics once; whether one of them is missing."""
        assert self._membership is not None
        pattern, views = self._pattern, self._routing.topics
        named = None if pattern else sorted({*self._topics, *laid_out})
        errors = await self._cluster.run(self._routing.refresh(named, self._routing.deadline()))
        self._take_refusals(errors)
        if pattern is not None and pattern is self._pattern:
            found = tuple(matching(pattern, views))
            if found != self._topics or self._is_unmatched:
                self._topics = found
                self._is_unmatched = False
                self._membership.subscribe(found)
                self._fetcher.wake()
        counts = {name: len(views[name].partitions) if name in views else 0 for name in {*self._topics, *laid_out}}
        if any(counts[name] != count for name, count in laid_out.items()):
            self._membership.layout_changed()
        return 0 in counts.values()

    def _take_refusals(self, errors: Mapping[str, ErrorCode]) -> None:
        """Has `poll` raise which topics cannot be read, such as those that the caller has no right to; each once."""
        refused = {name: code for name, code in errors.items() if name in self._topics and not code.retriable}
        news = [topic_error(name, code) for name, code in refused.items() if self._refused.get(name) is not code]
        self._refused = refused
        if news:
            self._refusals += news
            self._fetcher.wake()

    async def close(self) -> None:
        """Commits what was given, where commits are automatic, leaves the group at once, and stops fetching.

        A coordinator that does not answer is given up after `close_timeout_s`: its session ends without us, too.
        """
        if self._closing:
            return
        self._closing = True
        self._fetcher.wake()  # Ends the wait of a `poll` in another task.
        # Whatever goes wrong, or is cancelled, on the way: each of these ends; the last one first.
        async with contextlib.AsyncExitStack() as ends:
            ends.callback(self._end)
            ends.push_async_callback(self._fetcher.close)
            ends.push_async_callback(self._ownership.placement.close)
            ends.push_async_callback(self._ownership.left, 0)
            await self._commit_and_leave()

    def _end(self) -> None:
        self._ownership.drop(self.assignment)
        for connection in self._connections:
            connection.close()
        self._closed = True

    async def _commit_and_leave(self) -> None:
        deadline = self._routing.deadline(self._settings.close_timeout_s)
        try:
            await _cancelled(self._settling, self._watching, self._committing)
            if self._settings.auto_commit:
                await self._ownership.commit_quietly(deadline.remaining_s)
                await self._ownership.left(max(0.0, deadline.remaining_s))
            await self._tell_revoked()
        finally:
            # Whatever went wrong, or was cancelled: a member that only sends heartbeats would keep its partitions.
            if self._membership is not None:
                await self._membership.leave(deadline)

    async def _tell_revoked(self) -> None:
        owned: Sequence[TopicPartition] = sorted(self._ownership.positions)
        if owned and self._membership is not None:
            await self._ownership.listener.on_revoked(owned)

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("the consumer is closed")


async def _cancelled(*tasks: asyncio.Task[None] | None) -> None:
    """Ends tasks, whatever they end with."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
