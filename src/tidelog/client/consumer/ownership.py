"""The partitions that a consumer has: how they come and go, and how far each was given to the caller.

A partition comes without a position, which is found before it is read: where the caller seeks, else what the group
committed, else what auto.offset.reset says. It goes only while the caller waits for more, so that the caller never
loses a partition with records of it in hand; then what was given is committed, the listener is told, and it is dropped.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from tidelog.client.cluster import Cluster
from tidelog.client.consumer.commits import Commits
from tidelog.client.consumer.listener import RebalanceListener
from tidelog.client.consumer.placement import Placement
from tidelog.client.consumer.settings import AutoOffsetReset, ConsumerSettings
from tidelog.client.errors import ClientError, LogTruncated, OffsetOutOfRange, TopicChanged
from tidelog.client.fetcher import Fetcher
from tidelog.client.offsets import CommittedOffset
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition

logger: Final = logging.getLogger(__name__)

REVOCATION_COMMIT_S: Final = 30.0
"""How long the commit before a partition goes may take; the group does not wait for ever."""
FORMER_TOPICS: Final = 2
"""Topics of a name whose positions are kept: the present one, and one that a broker which lags has shown."""


class Ownership:
    """What this consumer has, [partition] -> position; None as position: not found yet."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, commits: Commits | None) -> None:
        self._cluster = cluster
        self._settings = settings
        self._commits = commits
        self.listener = RebalanceListener()
        self.fetcher = Fetcher(
            cluster,
            {},
            settings=dataclasses.replace(settings.fetch, rack=settings.rack or settings.fetch.rack),
            recover=self._recover,
            replaced=self._replaced,
            patience_s=float("inf"),
            follower_s_max=settings.metadata_max_age_s,
        )
        self.placement = Placement(cluster, settings, commits, self._placed, self.fetcher.wake)
        self.positions: dict[TopicPartition, int | None] = {}
        """[partition] -> the next offset to give to the caller."""
        self.topics_given: dict[str, TopicId] = {}
        """[topic] -> its id as of the last batch that the caller was given, zero where it is not known."""
        self.epochs: dict[TopicPartition, int] = {}
        """[partition] -> leader epoch of the record before its position, where that is known: a commit names it."""
        self.changing = False
        """Whether partitions are about to go or come: nothing may be given out."""
        self.at_rest = asyncio.Event()
        """Set while the caller waits for more and has nothing in hand."""
        self._committed: dict[TopicPartition, int] = {}
        self._tenures: dict[TopicPartition, object] = {}
        """[partition] -> another object each time the group gives it to us: another member may have had it between."""
        self._leaving: dict[asyncio.Task[None], Collection[TopicPartition]] = {}
        """Commits of partitions that the caller has left out of its assignment, with these partitions."""
        self._left_at: dict[TopicPartition, dict[TopicId, CommittedOffset]] = {}
        """[partition] -> where it was in topics that bore its name before, the last `FORMER_TOPICS` of them."""

    # Coming and going; called by the membership

    async def assign(self, partitions: Collection[TopicPartition], still: Callable[[], bool] = lambda: True) -> None:
        """Takes partitions that are new here, if that is `still` to be done once the caller waits for more."""
        self.changing = True
        try:
            await self.at_rest.wait()
            if not still():
                return
            for topic_partition in sorted(partitions):
                self.positions[topic_partition] = None
                self._tenures[topic_partition] = object()
            await self.listener.on_assigned(sorted(partitions))
        finally:
            self._settled()

    async def revoke(self, partitions: Collection[TopicPartition], still: Callable[[], bool] = lambda: True) -> None:
        """Gives partitions up, with their commits where those are automatic.

        Not where that is not `still` to be done once the caller waits for more: they may be lost by then, see `lose`.
        """
        self.changing = True
        try:
            await self.at_rest.wait()
            if self._settings.auto_commit and still():
                await self._commit_before_leaving(partitions)
            if not still():
                return
            if partitions:
                await self.listener.on_revoked(sorted(partitions))
            self.drop(partitions)
        finally:
            self._settled()

    async def lose(self) -> None:
        """Drops everything: it is others' already."""
        self.changing = True
        try:
            await self.at_rest.wait()
            lost = sorted(self.positions)
            self.drop(lost)
            if lost:
                logger.warning("partitions lost: partitions=%s", ",".join(map(str, lost)))
                await self.listener.on_lost(lost)
        finally:
            self._settled()

    def leave(self, partitions: Collection[TopicPartition]) -> None:
        """Drops partitions at once, at the caller's wish: what was given of them is committed meanwhile, where commits
        are automatic (as by Java's `assign`). `left` waits for that."""
        given = {tp: offset for tp, offset in self.uncommitted().items() if tp in partitions}
        topics_read = self._topics_read(given)
        self.drop(partitions)
        if self._settings.auto_commit and self._commits is not None and given:
            task = asyncio.create_task(self._commit_quietly(given, topics_read, REVOCATION_COMMIT_S))
            self._leaving[task] = given.keys()
            task.add_done_callback(self._has_left)

    def _has_left(self, task: asyncio.Task[None]) -> None:
        self._leaving.pop(task, None)
        self.fetcher.wake()

    async def left(self, timeout_s: float) -> None:
        """Waits for the commits of partitions that were left, so long at the most; then gives them up."""
        leaving = list(self._leaving)
        if leaving:
            await asyncio.wait(leaving, timeout=timeout_s)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets partitions at once, without a word."""
        self.fetcher.drop(partitions)
        self.placement.forget(partitions)
        for topic_partition in partitions:
            self.positions.pop(topic_partition, None)
            self.epochs.pop(topic_partition, None)
            self._tenures.pop(topic_partition, None)
            self._committed.pop(topic_partition, None)
            self._left_at.pop(topic_partition, None)
        still = {tp.topic for tp in self.positions}
        for topic in {tp.topic for tp in partitions} - still:
            self.topics_given.pop(topic, None)

    def _settled(self) -> None:
        self.changing = False
        self.fetcher.wake()

    # Positions

    @property
    def unplaced(self) -> list[TopicPartition]:
        """Partitions whose position is to be found."""
        return [tp for tp, position in self.positions.items() if position is None]

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The next offset to give, None where it is not found yet. KeyError where the partition is not here."""
        self.require_here([topic_partition])
        return self.positions[topic_partition]

    def require_here(self, partitions: Collection[TopicPartition]) -> None:
        """KeyError where one of the partitions is not here."""
        for topic_partition in partitions:
            if topic_partition not in self.positions:
                raise KeyError(f"{topic_partition} is not assigned to this consumer")

    def given(self, topic_partition: TopicPartition, offset: int, epoch: int = -1) -> None:
        """The caller was given what lies before `offset`; `epoch` is the leader epoch of the last record."""
        self.positions[topic_partition] = offset
        self.epochs[topic_partition] = epoch

    def seek(self, topic_partition: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Goes on from `offset`; `epoch` is the leader epoch of the record before it, -1: not known. KeyError where the
        partition is not here."""
        self.require_here([topic_partition])
        self._left_at.pop(topic_partition, None)
        self._place(topic_partition, offset, epoch)

    def _place(self, topic_partition: TopicPartition, offset: int, epoch: int) -> None:
        if self.positions[topic_partition] == offset:
            return  # What was fetched from there on stays good.
        self.placement.forget([topic_partition])
        self.given(topic_partition, offset, epoch)
        self.fetcher.seek(topic_partition, offset, epoch)

    def seek_to(self, partitions: Collection[TopicPartition], question: int) -> None:
        """Goes on where the leaders answer `question` (ListOffsets) with; KeyError where a partition is not here."""
        self.require_here(partitions)
        for topic_partition in partitions:
            self.positions[topic_partition] = None
            self._left_at.pop(topic_partition, None)
            self.fetcher.leave(topic_partition)
        self.placement.ask(partitions, question)
        self.fetcher.wake()

    def find_positions(self) -> None:
        """Begins to find where to begin with partitions that are new; raises what a former search failed with.

        NoOffset where nothing says where to begin.
        """
        for topic_partition in self.unplaced:
            left_at = self._left_in_present_topic(topic_partition)
            if left_at is not None:
                self._place(topic_partition, left_at.offset, left_at.leader_epoch)
        # What was given of a partition before it was left is done: it begins there, so its commit comes first.
        leaving = frozenset[TopicPartition]().union(*self._leaving.values())
        self.placement.search([tp for tp in self.unplaced if tp not in leaving or self.placement.is_asked(tp)])

    def _left_in_present_topic(self, topic_partition: TopicPartition) -> CommittedOffset | None:
        """Where it was when metadata named another topic, which was a former one in truth: of a broker that lags."""
        return self._left_at.get(topic_partition, {}).get(self._cluster.routing.topic_id(topic_partition.topic))

    def _placed(self, topic_partition: TopicPartition, position: CommittedOffset, is_committed: bool) -> None:
        # The caller may have sought elsewhere meanwhile, or the partition may have gone.
        if topic_partition in self.positions and self.positions[topic_partition] is None:
            if is_committed:
                self._committed[topic_partition] = position.offset
            self._place(topic_partition, position.offset, position.leader_epoch)

    def _recover(self, error: OffsetOutOfRange) -> int | None:
        match self._settings.auto_offset_reset:
            case AutoOffsetReset.NONE:
                return None
            case AutoOffsetReset.EARLIEST:
                offset = error.start
            case AutoOffsetReset.LATEST:
                offset = error.end
        if isinstance(error, LogTruncated):
            offset = offset if error.divergent is None else error.divergent
            logger.warning(
                "log truncated: partition=%s offset=%d epoch=%d reset=%d",
                error.topic_partition,
                error.offset,
                error.leader_epoch,
                offset,
            )
        else:
            logger.warning(
                "offset out of range: partition=%s offset=%d reset=%d", error.topic_partition, error.offset, offset
            )
        self.given(error.topic_partition, offset)
        return offset

    def _replaced(self, error: TopicChanged, partitions: list[TopicPartition]) -> None:
        """A topic was deleted and made again: its partitions begin anew, where auto.offset.reset says so.

        Or metadata came from a broker that lags: then they go on where they were, once the present topic is shown.
        """
        self.placement.forget(partitions)
        for topic_partition in partitions:
            self._remember(topic_partition, error.former)
            self.positions[topic_partition] = None
            self.epochs.pop(topic_partition, None)
            self._committed.pop(topic_partition, None)
        if all(map(self._left_in_present_topic, partitions)):
            return
        if self._settings.auto_offset_reset is AutoOffsetReset.NONE:
            raise error
        logger.warning(
            "topic replaced: partitions=%s reset=%s reason=%s",
            ",".join(map(str, partitions)),
            self._settings.auto_offset_reset,
            error.message,
        )

    def _remember(self, topic_partition: TopicPartition, topic_id: TopicId) -> None:
        position = self.positions[topic_partition]
        if position is not None:
            left_at = self._left_at.setdefault(topic_partition, {})
            left_at.pop(topic_id, None)
            left_at[topic_id] = CommittedOffset(position, self.epochs.get(topic_partition, -1))
            if len(left_at) > FORMER_TOPICS:
                del left_at[next(iter(left_at))]

    # Commits

    def uncommitted(self) -> dict[TopicPartition, CommittedOffset]:
        """What was given to the caller and not committed since: the next offset of each partition."""
        return {
            tp: CommittedOffset(position, self.epochs.get(tp, -1))
            for tp, position in self.positions.items()
            if position is not None and self._committed.get(tp) != position
        }

    def commit_anew(self) -> None:
        """What was committed is to be committed once more."""
        self._committed.clear()

    def is_committed(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether this offset is what was committed of a partition last."""
        return self._committed.get(topic_partition) == offset

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], timeout_s: float | None = None) -> None:
        """Commits each partition by itself, and remembers what is no news any more; raises the first refusal."""
        await self._commit(offsets, self._topics_read(offsets), timeout_s)

    async def _commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        topics_read: Mapping[str, TopicId],
        timeout_s: float | None,
    ) -> None:
        assert self._commits is not None
        tenures = {tp: self._tenures.get(tp) for tp in offsets}
        refused = await self._commits.commit(
            offsets, topics_read, timeout_s=timeout_s, still=lambda tp: self._tenures.get(tp) is tenures[tp]
        )
        # The reader may have begun to read the next topic of a name meanwhile, of which nothing was committed.
        self._committed |= {
            tp: committed.offset
            for tp, committed in offsets.items()
            if tp in self.positions and tp not in refused and self.fetcher.topic_read(tp.topic) == topics_read[tp.topic]
        }
        for error in refused.values():
            raise error

    def _topics_read(self, partitions: Collection[TopicPartition]) -> dict[str, TopicId]:
        return {tp.topic: self.fetcher.topic_read(tp.topic) for tp in partitions}

    async def commit_quietly(
        self, timeout_s: float | None = None, *, besides: tuple[TopicPartition, int] | None = None
    ) -> None:
        """Commits what was given; a failure is only told of in the log, since the next commit covers it.

        `besides` is a batch that is not done, as its partition and offset: what lies before it is committed.
        """
        offsets = self.uncommitted()
        if besides is not None and besides[0] in offsets:
            topic_partition, offset = besides
            if self._committed.get(topic_partition) == offset:
                del offsets[topic_partition]
            else:
                offsets[topic_partition] = CommittedOffset(offset)
        await self._commit_quietly(offsets, self._topics_read(offsets), timeout_s)

    async def _commit_quietly(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        topics_read: Mapping[str, TopicId],
        timeout_s: float | None,
    ) -> None:
        if self._commits is None or not offsets:
            return
        try:
            await self._commit(offsets, topics_read, timeout_s)
        except (KafkaError, ClientError) as error:
            refused = {str(tp): c.offset for tp, c in offsets.items() if self._committed.get(tp) != c.offset}
            logger.warning("commit failed: offsets=%s error=%s", refused, error)

    async def _commit_before_leaving(self, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            await self.commit_quietly(REVOCATION_COMMIT_S)
