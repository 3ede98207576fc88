"""Consumers while things break: they read along, and every answer is checked as it comes.

A `Reader` reads one partition from its leader. A `Consumer` reads several, with one fetch for each broker, from the
leaders or, if it names a rack, from wherever they send it (KIP-392), and goes on where it was after every failure.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.checks.history import value_of
from sim.checks.log_checks import split_batches
from sim.invariants import require
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.errors import InvalidBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.checks.history import History, Shown
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.model.identifiers import TopicPartition
    from tidelog.records.record import Record

PAUSE_S: Final = 0.1
"""Between an error and the next try."""
MAX_WAIT_MS: Final = 400


class Reader:
    """One partition's place in a consumer; by itself it reads to the end once."""

    def __init__(
        self, name: str, partition: TopicPartition, router: Router, random: SeededRandom, history: History, trace: Trace
    ) -> None:
        self.name = name
        self.partition = partition
        self._router = router
        self._random = random
        self._history = history
        self._trace = trace
        self.offset = 0
        self.high_watermark = -1
        """As its leader said last; -1 before it has said anything."""
        self.log_start = 0
        self.preferred = -1
        """The follower that the leader has sent it to; -1: the leader itself."""
        self.values: dict[int, bytes] = {}
        """[offset] -> value of everything read."""
        self.sequences: dict[tuple[int, int], int] = {}
        """[producer id and epoch] -> base sequence of its last batch that was read, with records or without."""
        self._shown: Shown | None = None
        """Of the partition, when it was last asked for."""
        self.records: list[Record] = []
        """What the last answer gave."""
        self.epochs: dict[int, int] = {}
        """[offset] -> leader epoch of the same."""

    @property
    def target(self) -> int:
        """The broker to fetch from; -1 while there is none."""
        leader = self._router.leader(self.partition)
        if leader is None or leader.broker_id < 0:
            return -1
        return leader.broker_id if self.preferred < 0 else self.preferred

    async def read_to_the_end(self) -> None:
        """Up to the high watermark of the leader. OSError, TimeoutError."""
        self.high_watermark = -1
        while self.offset > self.high_watermark or self.offset < self.high_watermark:
            if self.target < 0:
                await self._router.refresh([self.partition.topic])
            target = self.target
            if target < 0:
                raise ConnectionError(f"{self.partition} has no leader")
            response = await self._router.ask(target, ApiKey.FETCH, fetch_request([self], self._random, 100, ""))
            if response.error_code:
                raise ConnectionError(ErrorCode(response.error_code).name)
            ((result,),) = [topic.partitions for topic in response.responses]
            await self.take(result, target)

    def wanted(self) -> messages.FetchRequest.FetchPartition:
        leader = self._router.leader(self.partition)
        self._shown = self._history.shown(self.partition)
        return messages.FetchRequest.FetchPartition(
            partition=self.partition.partition,
            current_leader_epoch=-1 if leader is None else leader.epoch,
            fetch_offset=self.offset,
            partition_max_bytes=100 + self._random.below(3000),
        )

    async def take(self, result: Any, broker: int) -> None:
        """Takes in what a fetch gave for this partition; ConnectionError when it must be asked again."""
        asked = self.offset
        code = ErrorCode(result.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if self.preferred >= 0:
                self.preferred = -1  # A follower may not have come so far.
                return
            self.offset = self.log_start = await self._router.earliest(self.partition)
            self._history.out_of_range(self.partition, asked, self.offset)
            return
        if code is not ErrorCode.NONE:
            self.preferred = -1
            self._router.forget(self.partition)
            raise ConnectionError(f"{self.partition}: {code.name}")
        if result.preferred_read_replica >= 0:
            self.preferred = result.preferred_read_replica
            return
        data = bytes(result.records or b"")
        try:
            batches = split_batches(data)
        except InvalidBatch as error:
            # As Kafka's, a broker does not look into what it serves: a bit that was read wrong is the client's to see.
            self._history.corrupt(f"{self.partition} fetched at {asked}: {error}")
            raise ConnectionError(f"{self.partition}: what was served is corrupt") from None
        self.offset = self._history.fetched(
            self.partition,
            broker,
            asked,
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
            batches,
            shown=self._shown,
        )
        self.high_watermark, self.log_start = result.high_watermark, result.log_start_offset
        self.records = [record for batch in batches for record in batch.records if record.offset >= asked]
        self.epochs = {
            record.offset: batch.header.partition_leader_epoch for batch in batches for record in batch.records
        }
        for batch in batches:
            self.sequences[batch.header.producer_id, batch.header.producer_epoch] = batch.header.base_sequence
            self.values |= {record.offset: value_of(record) for record in batch.records if record.offset >= asked}
        if batches:
            self._trace.record("fetched", self.name, self.partition, broker, asked, self.offset, self.high_watermark)


class FetchSession:
    """A consumer's fetch session with one broker (KIP-227): of what it wants it sends only what has changed."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._known: dict[tuple[str, int], tuple[int, int]] = {}
        """What the broker knows it to want: leader epoch and offset."""

    def ask(self, request: messages.FetchRequest) -> None:
        """Turns a full request into one of the session."""
        request.session_id, request.session_epoch = self._id, self._epoch
        wanted = {
            (topic.topic, each.partition): (each.current_leader_epoch, each.fetch_offset)
            for topic in request.topics
            for each in topic.partitions
        }
        if self._id:
            for topic in request.topics:
                topic.partitions = [
                    each
                    for each in topic.partitions
                    if wanted[topic.topic, each.partition] != self._known.get((topic.topic, each.partition))
                ]
            request.topics = [topic for topic in request.topics if topic.partitions]
            request.forgotten_topics_data = [
                messages.FetchRequest.ForgottenTopic(topic=topic, partitions=[partition])
                for topic, partition in self._known
                if (topic, partition) not in wanted
            ]
        self._known = wanted

    def answered(self, id: int) -> None:
        """The broker has taken the request; 0: it keeps no session."""
        if id == 0:
            self.end()
        else:
            self._id, self._epoch = id, self._epoch % (2**31 - 1) + 1

    def end(self) -> None:
        """The next request is a full one."""
        self._id = self._epoch = 0
        self._known = {}


class Consumer:
    """See the module."""

    def __init__(
        self,
        name: str,
        partitions: Sequence[TopicPartition],
        rack: str,
        router: Router,
        random: SeededRandom,
        history: History,
        trace: Trace,
    ) -> None:
        """`rack` is where it says it is; empty: it reads from leaders only."""
        self.name = name
        self.readers = [Reader(name, partition, router, random, history, trace) for partition in partitions]
        self._topics = sorted({partition.topic for partition in partitions})
        self._rack = rack
        self._router = router
        self._random = random
        self._trace = trace
        self._sessions = {broker: FetchSession() for broker in router.brokers}
        self._uses_sessions = random.chance(0.6)
        self.stopping = False

    @property
    def behind(self) -> list[str]:
        """What it has not read yet, for the message of a run that stands still."""
        return [
            f"{reader.partition}: at {reader.offset} of {reader.high_watermark}"
            for reader in self.readers
            if reader.offset != reader.high_watermark
        ]

    async def run(self) -> None:
        """Until it is told to stop, and has read to the high watermarks."""
        while not self.stopping or self.behind:
            try:
                if any(reader.target < 0 for reader in self.readers):
                    await self._router.refresh(self._topics)
                await self._round()
            except (OSError, TimeoutError) as error:
                self._trace.record("consumer_retries", self.name, repr(error))
                await asyncio.sleep(self._random.between(0.0, 2 * PAUSE_S))
        self._router.close()

    async def _round(self) -> None:
        """One fetch from each broker that has something to read."""
        groups: dict[int, list[Reader]] = {}
        for reader in self.readers:
            if reader.target >= 0:
                groups.setdefault(reader.target, []).append(reader)
        if not groups:
            raise ConnectionError("no partition has a leader")
        outcomes = await asyncio.gather(
            *(self._fetch(broker, readers) for broker, readers in groups.items()), return_exceptions=True
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _fetch(self, broker: int, readers: list[Reader]) -> None:
        by_partition = {tuple(reader.partition): reader for reader in readers}
        session = self._sessions[broker]
        try:
            request = fetch_request(readers, self._random, MAX_WAIT_MS, self._rack)
            if self._uses_sessions:
                session.ask(request)
            response = await self._router.ask(broker, ApiKey.FETCH, request)
        except (OSError, TimeoutError):
            session.end()
            for reader in readers:
                reader.preferred = -1
                self._router.forget(reader.partition)
            raise
        if response.error_code:
            session.end()
            raise ConnectionError(ErrorCode(response.error_code).name)
        session.answered(response.session_id)
        failure: Exception | None = None
        for topic in response.responses:
            for result in topic.partitions:
                try:
                    answered = by_partition.get((topic.topic, result.partition_index))
                    where = f"{self.name}: {topic.topic}-{result.partition_index}"
                    require(17, answered is not None, f"{where} is answered, and was not asked for")
                    assert answered is not None
                    await answered.take(result, broker)
                except (OSError, TimeoutError) as error:
                    failure = error
        if failure is not None:
            raise failure


def fetch_request(
    readers: Sequence[Reader], random: SeededRandom, max_wait_ms: int, rack: str
) -> messages.FetchRequest:
    """A fetch of all that the readers want, without a session."""
    topics: dict[str, list[messages.FetchRequest.FetchPartition]] = {}
    for reader in readers:
        topics.setdefault(reader.partition.topic, []).append(reader.wanted())
    return messages.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=random.below(2),
        session_id=0,
        session_epoch=-1,
        rack_id=rack,
        topics=[
            messages.FetchRequest.FetchTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()
        ],
    )
