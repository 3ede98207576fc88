"""A fetcher on asyncio: many partitions read at once, one fetch in flight for each, pieces in order of arrival.

The next fetch of a leader goes out as soon as its last one is answered, before the pieces are taken, as long as fewer
than `BUFFERED_BYTES_MAX` wait to be taken: readers neither starve nor drown.

    async for data in Fetcher(cluster, {TopicPartition("orders", 0): 0}):
        decode(data.records)

Partitions fail and recover one by one: while one has no leader, or an error that may pass, its leader is asked for in
the background, with growing pauses, and the others are read on.

What is read may change at any time: `seek` begins a partition or goes on elsewhere, `drop` ends it, `pause` leaves it
for a while. What was fetched of a partition that went elsewhere is never given out.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from typing import Any, Final

from tidelog.client.addresses import Address
from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, ConnectionFailed, OffsetOutOfRange, RequestTimedOut, TopicChanged
from tidelog.client.fetching import FetchedData, FetchSettings, fetch_request, fetched, rotten_batch
from tidelog.client.offsets import list_offsets
from tidelog.client.operations import Call, Purpose
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ZERO_TOPIC_ID, TopicId, TopicPartition

BUFFERED_BYTES_MAX: Final = 64 << 20
"""Bytes of pieces not yet taken, above which no further fetch is sent; one answer a leader may come on top."""
REFRESH_S_MAX: Final = 10.0
"""How long one refresh of leaders may take, over all brokers."""
ANSWER_S_MAX: Final = 10.0
"""How long a leader may take beyond max_wait_ms: one that hangs, and does not lead any more, must be left soon."""
RETRY_S_MAX: Final = 60.0
"""How long a partition may fail in ways that may pass before its error ends the iteration."""

Recover = Callable[[OffsetOutOfRange], "int | None"]
"""Where to go on after an offset that is not there (auto.offset.reset); None raises the error."""

Replaced = Callable[[TopicChanged, "list[TopicPartition]"], object]
"""Told when a topic that is read was deleted and made again, with its partitions, which are dropped; may raise."""


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
        self._busy: dict[asyncio.Task[None], list[TopicPartition]] = {}
        self._ready: deque[FetchedData] = deque()
        self._ready_bytes = 0
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

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Reads a partition from `offset` on, whether it was read before or not."""
        self._forget(topic_partition)
        self.positions[topic_partition] = offset
        self._woken.set()

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Reads these no more."""
        for topic_partition in partitions:
            self._forget(topic_partition)
            self.positions.pop(topic_partition, None)
            self.paused.discard(topic_partition)
            self._failing_since.pop(topic_partition, None)
            self._resume_at.pop(topic_partition, None)
        still = {tp.topic for tp in self.positions}
        for topic in {tp.topic for tp in partitions} - still:
            self._topic_ids.pop(topic, None)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Fetches nothing of these until `resume`; what waits to be taken is fetched again then."""
        for topic_partition in partitions:
            self.paused.add(topic_partition)
            first = self._forget(topic_partition)
            if first is not None:
                self.positions[topic_partition] = first

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Goes on with what was paused."""
        self.paused.difference_update(partitions)
        self._woken.set()

    def _forget(self, topic_partition: TopicPartition) -> int | None:
        """Drops the pieces of a partition that were not taken; where the first of them began."""
        pieces = [data for data in self._ready if data.topic_partition == topic_partition]
        if not pieces:
            return None
        self._ready = deque(data for data in self._ready if data.topic_partition != topic_partition)
        self._ready_bytes -= sum(len(data.records) for data in pieces)
        return pieces[0].fetch_offset

    # Step by step, for those who have more to wait for than data

    async def advance(self) -> None:
        """Sends what fetches there are to send; raises the error of one that failed for good.

        A `wake` from here on ends the next `wait`: what a caller looks at between the two is not missed.
        """
        self._woken.clear()
        await self._start_fetches()

    def take(self) -> FetchedData | None:
        """The next piece, None where none has arrived."""
        if not self._ready:
            return None
        data = self._ready.popleft()
        self._ready_bytes -= len(data.records)
        return data

    async def wait(self) -> None:
        """Waits until a fetch is answered, a partition is to be tried again, or `wake` was called since `advance`."""
        woken = asyncio.create_task(self._woken.wait())
        awaited = [*self._busy, woken] if self._refreshing is None else [*self._busy, woken, self._refreshing]
        pause_s = None
        if self._resume_at:
            pause_s = max(0.0, min(self._resume_at.values()) - time.monotonic())
        try:
            await asyncio.wait(awaited, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
        self._reap()

    def wake(self) -> None:
        """Ends a `wait`."""
        self._woken.set()

    def _reap(self) -> None:
        if self._refreshing is not None and self._refreshing.done():
            refreshing, self._refreshing = self._refreshing, None
            refreshing.result()
        for task in [task for task in self._busy if task.done()]:
            self._busy.pop(task)
            task.result()

    async def close(self) -> None:
        """Stops fetching; the connections that were waiting are closed, since their answers would come too late."""
        tasks = [*self._busy] if self._refreshing is None else [*self._busy, self._refreshing]
        self._busy.clear()
        self._refreshing = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _start_fetches(self) -> None:
        self._reap()
        if self._ready_bytes >= BUFFERED_BYTES_MAX:
            return
        now = time.monotonic()
        self._resume_at = {tp: at for tp, at in self._resume_at.items() if at > now}
        busy = {tp for partitions in self._busy.values() for tp in partitions}
        self._notice_replaced_topics()
        groups: dict[Address, dict[TopicPartition, int]] = {}
        leaderless: list[TopicPartition] = []
        for topic_partition, position in self.positions.items():
            if topic_partition in busy or topic_partition in self.paused or topic_partition in self._resume_at:
                continue
            leader = self._routing.leader(topic_partition)
            if leader is None:
                leaderless.append(topic_partition)
            else:
                groups.setdefault(leader.address, {})[topic_partition] = position
        for address, positions in groups.items():
            self._start(self._fetch(address, positions), list(positions))
        if leaderless and self._refreshing is None:
            for topic_partition in leaderless:
                if topic_partition not in self._failing_since:
                    continue  # It is new here: nothing is wrong before its leader has been asked for.
                self._failed(
                    topic_partition, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic_partition} has no leader")
                )
            self._refreshing = asyncio.create_task(self._refresh({tp.topic for tp in leaderless}))
            for topic_partition in leaderless:
                self._failing_since.setdefault(topic_partition, now)

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
                self.drop(partitions)
                self._replaced(TopicChanged(topic, former, present), partitions)

    def _start(self, work: Coroutine[Any, Any, None], partitions: list[TopicPartition]) -> None:
        self._busy[asyncio.create_task(work)] = partitions

    async def _refresh(self, topics: set[str]) -> None:
        """Asks for the leaders of topics, after a pause that grows while that does not help."""
        if self._attempts:
            await asyncio.sleep(self._pause_s())
        self._attempts += 1
        # Where no broker answers, the next round finds that out again.
        with contextlib.suppress(ConnectionFailed, RequestTimedOut):
            await self._cluster.run(self._routing.refresh(topics, self._routing.deadline(REFRESH_S_MAX)))

    def _pause_s(self) -> float:
        return self._routing.retry.pause_s(max(1, self._attempts), self._routing.draw)

    async def _fetch(self, address: Address, positions: dict[TopicPartition, int]) -> None:
        timeout_s = min(self._routing.call_timeout_s, ANSWER_S_MAX) + self._settings.max_wait_ms / 1000
        outcome: Any = await self._cluster.call(
            Call(address, fetch_request(self._routing, positions, self._settings), timeout_s, Purpose.FETCH)
        )
        if isinstance(outcome, (ConnectionFailed, RequestTimedOut)):
            for topic_partition in positions:
                self._failed(topic_partition, outcome)
            return
        if isinstance(outcome, ClientError):
            raise outcome
        for topic_partition, code, text, data in fetched(outcome, self._routing, positions):
            if self.positions.get(topic_partition) != data.fetch_offset or topic_partition in self.paused:
                continue  # It went elsewhere while this was on its way.
            if code is ErrorCode.NONE:
                self._take(data)
            elif code is ErrorCode.CORRUPT_MESSAGE:
                raise rotten_batch(topic_partition, data.fetch_offset)
            elif code.retriable:
                self._failed(topic_partition, KafkaError(code, text or f"{topic_partition} can't be read: {code.name}"))
            elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                if any(piece.topic_partition == topic_partition for piece in self._ready):
                    # What was fetched before comes first: the caller has not read up to here yet.
                    self._resume_at[topic_partition] = time.monotonic() + self._pause_s()
                else:
                    self._start(self._reset(topic_partition, positions[topic_partition]), [topic_partition])
            else:
                raise KafkaError(code, text or f"{topic_partition} can't be read: {code.name}")

    def _take(self, data: FetchedData) -> None:
        if self._failing_since.pop(data.topic_partition, None) is not None and not self._failing_since:
            self._attempts = 0
        if data.records:
            self._ready.append(data)
            self._ready_bytes += len(data.records)
        if self._ended(data.topic_partition, data.next_offset):
            del self.positions[data.topic_partition]
        else:
            self.positions[data.topic_partition] = data.next_offset

    def _ended(self, topic_partition: TopicPartition, offset: int) -> bool:
        return self._ends is not None and offset >= self._ends.get(topic_partition, 0)

    def _failed(self, topic_partition: TopicPartition, error: Exception) -> None:
        since = self._failing_since.setdefault(topic_partition, time.monotonic())
        if time.monotonic() - since > self._patience_s:
            raise error
        self._routing.forget_leader(topic_partition)

    async def _reset(self, topic_partition: TopicPartition, offset: int) -> None:
        """Goes on where `recover` says, or raises what the partition has instead of `offset`."""
        earliest, latest = [
            (await self._cluster.run(list_offsets(self._routing, {topic_partition: question})))[topic_partition]
            for question in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
        ]
        if self.positions.get(topic_partition) != offset:
            return
        if isinstance(earliest, KafkaError) or isinstance(latest, KafkaError):
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic_partition} does not have offset {offset}")
        error = OffsetOutOfRange(topic_partition, offset, earliest.offset, latest.offset)
        recovered = self._recover(error)
        if recovered is None:
            raise error
        self.positions[topic_partition] = recovered
