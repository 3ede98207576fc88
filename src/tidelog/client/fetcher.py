"""A fetcher on asyncio: many partitions read at once, one fetch in flight for each broker, pieces in order of arrival.

The next fetch of a broker goes out as soon as its last one is answered, before the pieces are taken, as long as fewer
than `BUFFERED_BYTES_MAX` wait to be taken: readers neither starve nor drown. Each broker has a session (KIP-227), so
that a fetch names only what has changed since the last one. Its connections are its own: brokers answer each connection
in order, so that a fetch which waits for records would hold up other fetchers'.

    async for data in Fetcher(cluster, {TopicPartition("orders", 0): 0}):
        decode(data.records)

Partitions fail and recover one by one: while one has no leader, or an error that may pass, its leader is asked for in
the background, with growing pauses, and the others are read on.

With a rack in the settings, partitions are read from the followers that their leaders name (KIP-392), until one
refuses or the choice is old. When a partition has another leader, it is asked whether its log still has what was read
(KIP-320); see `log_checks`.

What is read may change at any time: `seek` begins a partition or goes on elsewhere, `drop` ends it, `pause` leaves it
for a while. What was fetched of a partition that went elsewhere is never given out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from typing import Any, Final

from tidelog.client.addresses import Address
from tidelog.client.cluster import Cluster
from tidelog.client.errors import (
    ClientError,
    ConnectionFailed,
    LogTruncated,
    OffsetOutOfRange,
    RequestTimedOut,
    TopicChanged,
)
from tidelog.client.fetch_session import FetchSession, Wanted
from tidelog.client.fetching import FetchedData, FetchSettings, fetched, rotten_batch
from tidelog.client.leader_hints import LeaderHint
from tidelog.client.log_checks import LogChecks, log_range
from tidelog.client.near_replicas import NearReplicas
from tidelog.client.operations import Call, Purpose
from tidelog.client.pieces import Pieces
from tidelog.client.truncation import UNKNOWN, EpochEnd, Position
from tidelog.client.views import partition_error, topic_error
from tidelog.model.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition

logger: Final = logging.getLogger(__name__)

BUFFERED_BYTES_MAX: Final = 64 << 20
"""Bytes of pieces not yet taken, above which no further fetch is sent; one answer a leader may come on top."""
REFRESH_S_MAX: Final = 10.0
"""How long one refresh of leaders may take, over all brokers."""
ANSWER_S_MAX: Final = 10.0
"""How long a leader may take beyond max_wait_ms before something of its answer arrives, and then more of it: one that
hangs, and does not lead any more, must be left soon, but a large answer takes long on a slow way."""
END_S_MAX: Final = 1.0
"""How long a broker may take to answer that a session has ended, before `close` goes on without its answer."""
RETRY_S_MAX: Final = 60.0
"""How long a partition may fail in ways that may pass before its error ends the iteration."""

FOLLOWER_S_MAX: Final = 300.0
"""How long a partition is read from a follower before its leader is asked again (metadata.max.age.ms)."""

Recover = Callable[[OffsetOutOfRange], "int | None"]
"""Where to go on after an offset that is not there (auto.offset.reset), or (LogTruncated) in a log that was cut; None
raises the error."""

Replaced = Callable[[TopicChanged, "list[TopicPartition]"], object]
"""Told when a topic that is read was deleted and made again, with its partitions, which are left; may raise."""


def _raise(error: TopicChanged, partitions: list[TopicPartition]) -> None:
    raise error


class Fetcher:
    """Reads partitions from `positions` on; ends when each has reached its offset in `ends`, or never without them.

    `recover` says where to go on when an offset is out of range, `replaced` what to do about a topic made again
    (raise TopicChanged); `patience_s` is how long a partition may fail in
    ways that may pass, such as having no leader, before its error is raised.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        *,
        ends: Mapping[TopicPartition, int] | None = None,
        settings: FetchSettings | None = None,
        recover: Recover = lambda error: None,
        replaced: Replaced = _raise,
        patience_s: float = RETRY_S_MAX,
        follower_s_max: float = FOLLOWER_S_MAX,
    ) -> None:
        self._cluster = cluster
        self._routing = cluster.routing
        self._settings = settings or FetchSettings(partition_max_bytes=1 << 20)
        self._ends = ends
        self._recover = recover
        self._replaced = replaced
        self._topic_ids: dict[str, TopicId] = {}
        """The topics that are read, as they were when their reading began."""
        self._patience_s = patience_s
        self.positions = {tp: offset for tp, offset in positions.items() if not self._ended(tp, offset)}
        """Where each partition that is not at its end goes on, pieces not yet taken counted as read."""
        self.paused: set[TopicPartition] = set()
        self.bounds: dict[TopicPartition, tuple[int, int]] = {}
        """[partition] -> high watermark and last stable offset, as last told."""
        self._checks = LogChecks(cluster, ANSWER_S_MAX)
        self._near = NearReplicas(self._routing, self._settings.rack, follower_s_max)
        self._sessions: dict[Address, FetchSession] = {}
        self._busy: dict[asyncio.Task[None], Collection[TopicPartition]] = {}
        self._asked: dict[asyncio.Task[None], Address] = {}
        """The fetches among them, of which a broker has one at a time."""
        self._is_stale = True
        """Whether there may be something to send that was not there at the last look."""
        self._ready = Pieces()
        self._failing_since: dict[TopicPartition, float] = {}
        self._resume_at: dict[TopicPartition, float] = {}
        """Partitions that are left alone until then, in monotonic seconds."""
        self._refreshing: asyncio.Task[None] | None = None
        self._attempts = 0
        """Refreshes of leaders since all partitions were well."""
        self._woken = asyncio.Event()

    def __aiter__(self) -> AsyncIterator[FetchedData]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[FetchedData]:
        try:
            while True:
                await self.advance()
                data = self.take()
                if data is not None:
                    yield data
                elif not self.positions and not self._busy:
                    return
                else:
                    await self.wait()
        finally:
            await self.close()

    # What is read

    def seek(self, topic_partition: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Reads a partition from `offset` on, whether it was read before or not.

        `epoch` is the leader epoch of the record before, where it is known: the log must still have that record.
        """
        self._ready.forget(topic_partition)
        self._place(topic_partition, offset, epoch)
        # From now on, not from the next `advance` on: the topic may be made again in between.
        self._topic_ids.setdefault(topic_partition.topic, self._routing.topic_id(topic_partition.topic))
        self._wake()

    def _place(self, topic_partition: TopicPartition, offset: int, epoch: int = -1, checked_by: int = -1) -> None:
        self.positions[topic_partition] = offset
        self._checks.placed(topic_partition, epoch, checked_by)

    def leave(self, topic_partition: TopicPartition) -> None:
        """Reads a partition no more until `seek` says from where; it stays paused if it is."""
        is_paused = topic_partition in self.paused
        self.drop([topic_partition])
        if is_paused:
            self.paused.add(topic_partition)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Reads these no more."""
        for topic_partition in partitions:
            self._ready.forget(topic_partition)
            self._near.forget(topic_partition)
            self._checks.forget(topic_partition)
            self.paused.discard(topic_partition)
            for known in (self.positions, self.bounds, self._failing_since, self._resume_at):
                known.pop(topic_partition, None)
        still = {tp.topic for tp in self.positions}
        for topic in {tp.topic for tp in partitions} - still:
            self._topic_ids.pop(topic, None)

    def pause(self, partitions: Collection[TopicPartition], epochs: Mapping[TopicPartition, int] | None = None) -> None:
        """Fetches nothing of these until `resume`; what waits to be taken is fetched again then.

        `epochs`: [partition] -> leader epoch of the record that was taken last, where that is known.
        """
        for topic_partition in partitions:
            self.paused.add(topic_partition)
            first = self._ready.forget(topic_partition)
            if first is not None:
                self._place(topic_partition, first, -1 if epochs is None else epochs.get(topic_partition, -1))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Goes on with what was paused."""
        self.paused.difference_update(partitions)
        self._wake()

    # Step by step, for callers that have more to wait for than data

    async def advance(self) -> None:
        """Sends what fetches there are to send; raises the error of one that failed for good.

        A `wake` from here on ends the next `wait`: what a caller looks at between the two is not missed.
        """
        self._woken.clear()
        await self._start_fetches()

    def take(self, records_max: int | None = None) -> FetchedData | None:
        """The next piece, with `records_max` records at the most, None where none has arrived."""
        was_full = self._ready.bytes >= BUFFERED_BYTES_MAX
        data = self._ready.take(records_max)
        self._is_stale = self._is_stale or was_full
        return data

    def next_piece(self, topic_partition: TopicPartition) -> FetchedData | None:
        """What `take` will give next of a partition, as far as it has arrived."""
        return self._ready.first(topic_partition)

    async def wait(self) -> None:
        """Waits until a fetch is answered, a partition is to be tried again, or `wake` was called since `advance`."""
        pause_s = None
        if self._resume_at:
            pause_s = max(0.0, min(self._resume_at.values()) - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._woken.wait()
        self._reap()

    def wake(self) -> None:
        """Ends a `wait`."""
        self._wake()

    def _wake(self) -> None:
        self._is_stale = True
        self._woken.set()

    def _reap(self) -> None:
        if self._refreshing is not None and self._refreshing.done():
            refreshing, self._refreshing = self._refreshing, None
            self._is_stale = True
            refreshing.result()
        for task in [task for task in self._busy if task.done()]:
            del self._busy[task]
            self._asked.pop(task, None)
            self._is_stale = True
            task.result()

    async def close(self) -> None:
        """Stops fetching, and tells the brokers that its sessions end."""
        tasks = [*self._busy] if self._refreshing is None else [*self._busy, self._refreshing]
        sessions, self._sessions = self._sessions, {}
        self._busy.clear()
        self._asked.clear()
        self._refreshing = None
        self._is_stale = True
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(self._end(address, session) for address, session in sessions.items()))
        finally:
            self._cluster.close_those_of(self)

    async def _end(self, address: Address, session: FetchSession) -> None:
        """Ends a session at its broker, if that is in reach: a session that is left behind goes by itself, later."""
        request = session.ending()
        if request is not None and self._cluster.is_connected(address, Purpose.FETCH, self):
            # A fetch that waits for records holds up what follows it on its connection, so this goes by another one.
            await self._cluster.call(Call(address, request, END_S_MAX))

    async def _start_fetches(self) -> None:
        self._reap()
        now = time.monotonic()
        self._end_rests(now)
        if self._ready.bytes >= BUFFERED_BYTES_MAX or not self._is_stale:
            return
        self._is_stale = False
        self._notice_replaced_topics()
        busy = {tp for partitions in self._busy.values() for tp in partitions}
        asked = set(self._asked.values())
        fetches: dict[Address, dict[TopicPartition, Wanted]] = {}
        checks: dict[Address, dict[TopicPartition, Position]] = {}
        followed: set[TopicPartition] = set()
        leaderless: list[TopicPartition] = []
        for topic_partition, offset in self.positions.items():
            if topic_partition in busy or topic_partition in self.paused or topic_partition in self._resume_at:
                continue
            leader = self._routing.leader(topic_partition)
            if leader is None:
                leaderless.append(topic_partition)
                continue
            leader_epoch = self._routing.leader_epoch(topic_partition)
            to_check = self._checks.due(topic_partition, offset, leader_epoch)
            if to_check is not None:
                checks.setdefault(leader.address, {})[topic_partition] = to_check
                continue
            source = self._near.source(topic_partition, leader)
            if source is not leader:
                followed.add(topic_partition)
            if source.address not in asked:
                topic_id = self._routing.topic_id(topic_partition.topic)
                fetches.setdefault(source.address, {})[topic_partition] = Wanted(offset, leader_epoch, topic_id)
        for address, wanted in fetches.items():
            task = self._start(self._fetch(address, wanted, followed & wanted.keys()), wanted.keys())
            self._asked[task] = address
        for address, positions in checks.items():
            self._start(self._check(address, positions), positions.keys())
        if leaderless and self._refreshing is None:
            self._refresh_leaders(leaderless, now)
        if fetches or checks:
            # Lets them go out: the caller may work on what it takes now for long, and brokers can meanwhile, too.
            await asyncio.sleep(0)

    def _refresh_leaders(self, leaderless: list[TopicPartition], now: float) -> None:
        for topic_partition in leaderless:
            if topic_partition not in self._failing_since:
                continue  # It is new here: nothing is wrong before its leader has been asked for.
            text = f"{topic_partition} has no leader"
            self._failed(topic_partition, partition_error(topic_partition, ErrorCode.LEADER_NOT_AVAILABLE, text))
        self._refreshing = asyncio.create_task(self._refresh({tp.topic for tp in leaderless}))
        self._refreshing.add_done_callback(self._ended_work)
        for topic_partition in leaderless:
            self._failing_since.setdefault(topic_partition, now)

    def topic_read(self, topic: str) -> TopicId:
        """The id of the topic that is read under a name, zero where none is or none is known.

        Until `advance` has noticed that the topic was made again, it is that of the former one.
        """
        return self._topic_ids.get(topic, ZERO_TOPIC_ID)

    def _notice_replaced_topics(self) -> None:
        """An offset of a topic means nothing in another topic of its name."""
        for topic in {tp.topic for tp in self.positions}:
            present = self._routing.topic_id(topic)
            former = self._topic_ids.setdefault(topic, present)
            if present == ZERO_TOPIC_ID or former == present:
                continue
            self._topic_ids[topic] = present
            if former != ZERO_TOPIC_ID:
                partitions = sorted(tp for tp in self.positions if tp.topic == topic)
                for topic_partition in partitions:
                    self.leave(topic_partition)
                self._replaced(TopicChanged(topic, former, present), partitions)

    def _start(self, work: Coroutine[Any, Any, None], partitions: Collection[TopicPartition]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended_work)
        self._busy[task] = partitions
        return task

    def _ended_work(self, task: asyncio.Task[None]) -> None:
        self._woken.set()

    async def _refresh(self, topics: set[str]) -> None:
        """Asks for the leaders of topics, after a pause that grows while that does not help.

        KafkaError for a topic that may not be read.
        """
        if self._attempts:
            await asyncio.sleep(self._pause_s())
        self._attempts += 1
        # Where no broker answers, the next round finds that out again.
        with contextlib.suppress(ConnectionFailed, RequestTimedOut):
            errors = await self._cluster.run(self._routing.refresh(topics, self._routing.deadline(REFRESH_S_MAX)))
            still = {tp.topic for tp in self.positions}
            for topic, code in errors.items():
                if topic in still and not code.retriable:
                    raise topic_error(topic, code)

    def _pause_s(self) -> float:
        return self._routing.retry.pause_s(max(1, self._attempts), self._routing.draw)

    # Fetching

    async def _fetch(
        self, address: Address, wanted: dict[TopicPartition, Wanted], followed: set[TopicPartition]
    ) -> None:
        """One fetch of one broker, which is a follower for those in `followed`."""
        session = self._sessions.setdefault(address, FetchSession())
        timeout_s = min(self._routing.call_timeout_s, ANSWER_S_MAX) + self._settings.max_wait_ms / 1000
        request = session.request(wanted, self._settings, self._near.rack_for(wanted))
        outcome: Any = await self._cluster.call(Call(address, request, timeout_s, Purpose.FETCH, self))
        if isinstance(outcome, ClientError):
            session.lost()
            if not isinstance(outcome, (ConnectionFailed, RequestTimedOut)):
                raise outcome
            for topic_partition in wanted:
                self._refused(topic_partition, outcome, topic_partition in followed)
            return
        if not session.answered(outcome):
            if session.refusals > 1:
                self._rest(wanted)
            return
        positions = {tp: each.offset for tp, each in wanted.items()}
        failures: list[TidelogError] = []
        for topic_partition, code, text, data in fetched(outcome, self._routing, positions, session.names):
            wished = wanted[topic_partition]
            if not self._still_wants(topic_partition, wished):
                continue  # It went elsewhere while this was on its way.
            if code is ErrorCode.NONE:
                self._take(data, wished.leader_epoch)
                continue
            error = partition_error(topic_partition, code, text)
            try:
                self._refused(topic_partition, error, topic_partition in followed, data.leader, wished.topic_id)
            except TidelogError as failure:
                failures.append(failure)  # Raised below: what the answer has of other partitions is theirs.
        if self._failing_since and outcome.error_code == ErrorCode.NONE:
            for topic_partition in wanted.keys() - {
                TopicPartition(topic.topic or session.names.get(topic.topic_id, ""), entry.partition_index)
                for topic in outcome.responses
                for entry in topic.partitions
            }:
                self._is_well(topic_partition)  # A session tells of what has news only.
        if failures:
            raise failures[0]

    def _still_wants(self, topic_partition: TopicPartition, wanted: Wanted) -> bool:
        if self.positions.get(topic_partition) != wanted.offset or topic_partition in self.paused:
            return False
        return self._topic_ids.get(topic_partition.topic, wanted.topic_id) in (wanted.topic_id, ZERO_TOPIC_ID)

    def _refused(
        self,
        topic_partition: TopicPartition,
        error: KafkaError | ClientError,
        is_followed: bool,
        hint: LeaderHint | None = None,
        topic_id: TopicId = ZERO_TOPIC_ID,
    ) -> None:
        """A partition could not be read: what comes of it. Raises what will not pass.

        `hint` is the leader that the broker has named instead of itself, of the topic `topic_id`.
        """
        code = error.code if isinstance(error, KafkaError) else None
        offset = self.positions.get(topic_partition)
        if offset is None:
            return
        if is_followed:
            self._near.leave(topic_partition)  # Whatever it was, the leader knows better.
        elif code is ErrorCode.CORRUPT_MESSAGE:
            raise rotten_batch(topic_partition, offset)
        elif code is ErrorCode.UNKNOWN_SERVER_ERROR:
            # Java's consumer asks again, too. It does not show what will not pass, so the log has to.
            logger.warning("not read: partition=%s offset=%d error=%s", topic_partition, offset, error)
            self._failed(topic_partition, error)
        elif code is None or code.retriable:
            self._failed(topic_partition, error, hint, topic_id)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if topic_partition in self._ready:
                # What was fetched before comes first: the caller has not read up to here yet.
                self._rest([topic_partition])
            else:
                self._start(self._reset(topic_partition, offset), [topic_partition])
        else:
            raise error

    def _take(self, data: FetchedData, leader_epoch: int) -> None:
        topic_partition = data.topic_partition
        self._is_well(topic_partition)
        if data.preferred_replica >= 0:
            self._near.prefer(topic_partition, data.preferred_replica)
        self.bounds[topic_partition] = (data.high_watermark, data.last_stable_offset)
        if data.records:
            self._ready.add(data)
        if self._ended(topic_partition, data.next_offset):
            del self.positions[topic_partition]
        else:
            epoch = data.leader_epoch if data.records else self._checks.epoch(topic_partition)
            if data.records:
                del self.positions[topic_partition]  # It comes to the end: answers are filled in the order of requests.
            self._place(topic_partition, data.next_offset, epoch, checked_by=leader_epoch)

    def _is_well(self, topic_partition: TopicPartition) -> None:
        if self._failing_since.pop(topic_partition, None) is not None and not self._failing_since:
            self._attempts = 0

    def _rest(self, partitions: Collection[TopicPartition]) -> None:
        """Leaves partitions alone for a moment."""
        at = time.monotonic() + self._pause_s()
        self._resume_at.update(dict.fromkeys(partitions, at))

    def _end_rests(self, now: float) -> None:
        """Forgets the rests that are over: `wait` would end at once for each."""
        resting = {tp: at for tp, at in self._resume_at.items() if at > now}
        self._is_stale = self._is_stale or len(resting) < len(self._resume_at)
        self._resume_at = resting

    def _ended(self, topic_partition: TopicPartition, offset: int) -> bool:
        return self._ends is not None and offset >= self._ends.get(topic_partition, 0)

    def _failed(
        self,
        topic_partition: TopicPartition,
        error: Exception,
        hint: LeaderHint | None = None,
        topic_id: TopicId = ZERO_TOPIC_ID,
    ) -> None:
        since = self._failing_since.setdefault(topic_partition, time.monotonic())
        if time.monotonic() - since > self._patience_s:
            raise error
        if not self._routing.take_leader(topic_partition, topic_id, hint):
            self._routing.forget_leader(topic_partition)

    # Positions that the log does not have

    async def _check(self, address: Address, positions: dict[TopicPartition, Position]) -> None:
        """Asks a leader that is new whether its log has what was read before these positions (KIP-320)."""
        failures: list[TidelogError] = []
        for topic_partition, answer in (await self._checks.ask(address, positions)).items():
            asked = positions[topic_partition]
            if self.positions.get(topic_partition) != asked.offset:
                continue  # It went elsewhere meanwhile.
            try:
                self._take_end(topic_partition, asked, answer)
            except TidelogError as failure:
                failures.append(failure)  # Raised below: what the answer says of other partitions is theirs.
        if failures:
            raise failures[0]

    def _take_end(
        self, topic_partition: TopicPartition, asked: Position, answer: EpochEnd | KafkaError | ClientError
    ) -> None:
        """What a leader says of one position."""
        if not isinstance(answer, EpochEnd):
            self._refused(topic_partition, answer, False)
        elif answer.divergence(asked) is None:
            self._checks.passed(topic_partition, asked)
        elif topic_partition in self._ready:
            self._rest([topic_partition])  # What was fetched before comes first.
        else:
            self._go_back(topic_partition, asked, answer)

    def _go_back(self, topic_partition: TopicPartition, position: Position, end: EpochEnd) -> None:
        """The log was cut below the position of its reader."""
        divergent = end.divergence(position)
        if divergent == UNKNOWN:
            self._start(self._reset(topic_partition, position.offset, position), [topic_partition])
            return
        error = LogTruncated(topic_partition, position.offset, position.epoch, divergent)
        recovered = self._recover(error)
        if recovered is None:
            raise error
        self._place(topic_partition, recovered, end.epoch, checked_by=position.leader_epoch)

    async def _reset(self, topic_partition: TopicPartition, offset: int, position: Position | None = None) -> None:
        """Goes on where `recover` says, or raises what the partition has instead of `offset`.

        `position`: the leader does not know its epoch, and can't say where its log was cut.
        """
        answer = await log_range(self._cluster, topic_partition, self._settings.isolation, ANSWER_S_MAX)
        if not isinstance(answer, tuple):
            self._refused(topic_partition, answer, False)
            return
        if self.positions.get(topic_partition) != offset:
            return
        start, end = answer
        if position is None:
            gone = OffsetOutOfRange(topic_partition, offset, start, end)
        else:
            gone = LogTruncated(topic_partition, offset, position.epoch, None, start, end)
        recovered = self._recover(gone)
        if recovered is None:
            raise gone
        self._place(topic_partition, recovered)
