"""A fetcher on asyncio: many partitions read at once, one fetch in flight at each leader, pieces in order of arrival.

The next fetch of a leader goes out as soon as its last one is answered, before the pieces are taken, as long as fewer
than `BUFFERED_BYTES_MAX` wait to be taken: readers neither starve nor drown.

    async for data in Fetcher(cluster, {TopicPartition("orders", 0): 0}):
        decode(data.records)
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from tidelog.client.addresses import Address
from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, ConnectionFailed, OffsetOutOfRange, RequestTimedOut
from tidelog.client.fetching import FetchedData, FetchSettings, fetch_request, fetched
from tidelog.client.offsets import list_offsets
from tidelog.client.routing import Call
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

BUFFERED_BYTES_MAX: Final = 64 << 20
"""Bytes of pieces not yet taken, above which no further fetch is sent; one answer a leader may come on top."""
RETRY_S_MAX: Final = 60.0
"""How long a partition may fail in ways that may pass before its error ends the iteration."""


class Fetcher:
    """Reads partitions from `positions` on; ends when each has reached its offset in `ends`, or never without them."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        *,
        ends: Mapping[TopicPartition, int] | None = None,
        settings: FetchSettings | None = None,
    ) -> None:
        self._cluster = cluster
        self._routing = cluster.routing
        self._settings = settings or FetchSettings(partition_max_bytes=1 << 20)
        self._ends = ends
        self.positions = {tp: offset for tp, offset in positions.items() if not self._ended(tp, offset)}
        """Where each partition that is not at its end goes on, pieces not yet taken counted as read."""
        self._busy: dict[asyncio.Task[None], list[TopicPartition]] = {}
        self._ready: deque[FetchedData] = deque()
        self._ready_bytes = 0
        self._failing_since: dict[TopicPartition, float] = {}
        self._attempts = 0

    def __aiter__(self) -> AsyncIterator[FetchedData]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[FetchedData]:
        try:
            while True:
                await self._start_fetches()
                if self._ready:
                    data = self._ready.popleft()
                    self._ready_bytes -= len(data.records)
                    yield data
                elif self._busy:
                    done, _ = await asyncio.wait(self._busy, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        self._busy.pop(task, None)
                        task.result()
                elif not self.positions:
                    return
        finally:
            await self.close()

    async def close(self) -> None:
        """Stops fetching; the connections that were waiting are closed, since their answers would come too late."""
        tasks = list(self._busy)
        self._busy.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _start_fetches(self) -> None:
        for task in [task for task in self._busy if task.done()]:
            self._busy.pop(task)
            task.result()
        if self._ready_bytes >= BUFFERED_BYTES_MAX:
            return
        busy = {tp for partitions in self._busy.values() for tp in partitions}
        idle = [tp for tp in self.positions if tp not in busy]
        if not idle:
            return
        unknown = {tp.topic for tp in idle if self._routing.leader(tp) is None}
        if unknown:
            await self._cluster.run(self._routing.refresh(unknown, self._routing.deadline()))
        groups: dict[Address, dict[TopicPartition, int]] = {}
        for topic_partition in idle:
            leader = self._routing.leader(topic_partition)
            if leader is None:
                self._failed(
                    topic_partition, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic_partition} has no leader")
                )
            else:
                groups.setdefault(leader.address, {})[topic_partition] = self.positions[topic_partition]
        for address, positions in groups.items():
            task = asyncio.create_task(self._fetch(address, positions))
            self._busy[task] = list(positions)
        if not groups and not self._busy:
            await self._back_off()

    async def _fetch(self, address: Address, positions: dict[TopicPartition, int]) -> None:
        timeout_s = self._routing.call_timeout_s + self._settings.max_wait_ms / 1000
        outcome: Any = await self._cluster.call(
            Call(address, fetch_request(self._routing, positions, self._settings), timeout_s)
        )
        if isinstance(outcome, (ConnectionFailed, RequestTimedOut)):
            for topic_partition in positions:
                self._failed(topic_partition, outcome)
            await self._back_off()
            return
        if isinstance(outcome, ClientError):
            raise outcome
        retriable = False
        for topic_partition, code, text, data in fetched(outcome, self._routing, positions):
            if code is ErrorCode.NONE:
                self._take(data)
            elif code.retriable:
                retriable = True
                self._failed(topic_partition, KafkaError(code, text or f"{topic_partition} can't be read: {code.name}"))
            elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                raise await self._out_of_range(topic_partition, positions[topic_partition])
            else:
                raise KafkaError(code, text or f"{topic_partition} can't be read: {code.name}")
        if retriable:
            await self._back_off()
        else:
            self._attempts = 0

    def _take(self, data: FetchedData) -> None:
        self._failing_since.pop(data.topic_partition, None)
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
        if time.monotonic() - since > RETRY_S_MAX:
            raise error
        self._routing.forget_leader(topic_partition)

    async def _back_off(self) -> None:
        self._attempts += 1
        await asyncio.sleep(self._routing.retry.pause_s(self._attempts, self._routing.draw))

    async def _out_of_range(self, topic_partition: TopicPartition, offset: int) -> KafkaError:
        earliest, latest = [
            (await self._cluster.run(list_offsets(self._routing, {topic_partition: question})))[topic_partition]
            for question in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
        ]
        if isinstance(earliest, KafkaError) or isinstance(latest, KafkaError):
            return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic_partition} does not have offset {offset}")
        return OffsetOutOfRange(topic_partition, offset, earliest.offset, latest.offset)
