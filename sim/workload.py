"""What clients do while things break: idempotent producers that never give up, consumers that read along."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sim.clock import EPOCH_MS
from sim.invariants import require
from sim.log_checks import split_batches
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import EARLIEST_TIMESTAMP
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Codec, build_batch
from tidelog.records.record import Record

if TYPE_CHECKING:
    from sim.client import Client
    from sim.history import History
    from sim.randomness import SeededRandom
    from sim.trace import Trace
    from tidelog.model.identifiers import TopicPartition

IN_FLIGHT: Final = 3
"""Batches that a producer has under way at once; a broker remembers five."""
PAUSE_S: Final = 0.05
"""Between an error and the next try."""


@dataclass(slots=True)
class Pending:
    """A batch that is not acknowledged yet."""

    sequence: int
    values: list[bytes]
    data: bytes
    generation: int
    """Of the broker that it was first sent to."""


class Producer:
    """Sends numbered records to one partition, acks=all; after any failure it sends what is pending again, in order."""

    def __init__(
        self, name: str, partition: TopicPartition, client: Client, random: SeededRandom, history: History, trace: Trace
    ) -> None:
        self.name = name
        self.partition = partition
        self._client = client
        self._random = random
        self._history = history
        self._trace = trace
        self._pending: deque[Pending] = deque()
        self._pause_s = (0.005, 0.1)[random.below(2)]
        """Longest pause between two rounds of requests: some producers are in a hurry."""
        self._sequence = 0
        self._next_offset = 0
        """After what was acknowledged last."""
        self._producer_id = -1
        self._producer_epoch = -1
        self.stopping = False
        """Set it, and `run` returns once all is acknowledged."""

    async def run(self) -> None:
        while self._pending or not self.stopping:
            try:
                if self._producer_id < 0:
                    await self._initialize()
                await self._send_all()
                await asyncio.sleep(self._random.between(0.0, self._pause_s))
            except (OSError, TimeoutError) as error:
                self._trace.record("producer_retries", self.name, repr(error))
                self._client.close()
                await asyncio.sleep(PAUSE_S)

    async def _initialize(self) -> None:
        response = await self._client.request(
            ApiKey.INIT_PRODUCER_ID,
            messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
        )
        if response.error_code != ErrorCode.NONE:
            raise ConnectionError(ErrorCode(response.error_code).name)
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch

    def _next_batch(self) -> Pending:
        count = 1 + self._random.below(4)
        values = [f"{self.name}:{self._sequence + index}".encode() for index in range(count)]
        timestamp = EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)
        records = [
            Record(index, timestamp, b"key" if self._random.chance(0.5) else None, value)
            for index, value in enumerate(values)
        ]
        data = build_batch(
            records,
            base_offset=0,
            codec=Codec(self._random.below(5)),
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._sequence,
        )
        pending = Pending(self._sequence, values, data, self._history.generation)
        self._sequence += count
        return pending

    async def _send_all(self) -> None:
        """Sends what is pending, and something new, in order; takes the answers in the same order."""
        if not self._client.is_connected:
            await self._client.connect()
        while len(self._pending) < IN_FLIGHT and not self.stopping:
            self._pending.append(self._next_batch())
            if self._random.chance(0.5):
                break
        answers = [self._client.send(ApiKey.PRODUCE, self._request(pending.data)) for pending in self._pending]
        for answer in answers:
            response = await asyncio.wait_for(answer, 10)
            ((result,),) = [topic.partition_responses for topic in response.responses]
            code = ErrorCode(result.error_code)
            if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and await self._recall():
                raise ConnectionError("some of it had been written; the rest is sent again")
            if code is not ErrorCode.NONE:
                raise ConnectionError(f"{code.name}: {result.error_message}")
            self._acknowledged(result.base_offset)

    def _acknowledged(self, base_offset: int) -> None:
        pending = self._pending.popleft()
        self._trace.record("acknowledged", self.partition, base_offset, len(pending.values))
        self._history.acknowledged(self.partition, base_offset, pending.values)
        self._next_offset = base_offset + len(pending.values)

    async def _recall(self) -> bool:
        """Looks in the log for what is pending; true if some of it is there.

        A broker that was started again remembers one batch of each producer (Kafka's snapshots keep no more), so it
        does not know an older one that it had written before it could answer. An application would have to look, too.
        """
        restarted = self._pending[0].generation != self._history.generation
        require(12, restarted, f"{self.partition}: what {self.name} sent again is out of order, or was not recognized")
        reader = Consumer(self.name, self.partition, self._client, self._random, self._history, self._trace)
        reader.offset = self._next_offset
        await reader.fetch()
        while reader.offset < reader.high_watermark:
            await reader.fetch()
        offsets = {value: offset for offset, value in reader.values.items()}
        count = len(self._pending)
        while self._pending and self._pending[0].values[0] in offsets:
            self._acknowledged(offsets[self._pending[0].values[0]])
        return len(self._pending) < count

    def _request(self, data: bytes) -> messages.ProduceRequest:
        return messages.ProduceRequest(
            acks=-1,
            timeout_ms=5_000,
            topic_data=[
                messages.ProduceRequest.TopicProduceData(
                    name=self.partition.topic,
                    partition_data=[
                        messages.ProduceRequest.PartitionProduceData(index=self.partition.partition, records=data)
                    ],
                )
            ],
        )


class Consumer:
    """Reads one partition from its start, with long polls, and goes on where it was after every failure."""

    def __init__(
        self, name: str, partition: TopicPartition, client: Client, random: SeededRandom, history: History, trace: Trace
    ) -> None:
        self.name = name
        self.partition = partition
        self._client = client
        self._random = random
        self._history = history
        self._trace = trace
        self.offset = 0
        self.high_watermark = 0
        self.log_start = 0
        self.values: dict[int, bytes] = {}
        """[offset] -> value of everything read."""
        self.stopping = False

    async def run(self) -> None:
        """Until it is told to stop, and has read to the high watermark."""
        while not self.stopping or self.offset < self.high_watermark:
            try:
                await self.fetch()
            except (OSError, TimeoutError) as error:
                self._trace.record("consumer_retries", self.name, repr(error))
                self._client.close()
                await asyncio.sleep(PAUSE_S)

    async def fetch(self) -> None:
        """One fetch; OSError when it was not answered with records or with none."""
        asked = self.offset
        response = await self._client.request(ApiKey.FETCH, self._request())
        if response.error_code:
            raise ConnectionError(ErrorCode(response.error_code).name)
        ((result,),) = [topic.partitions for topic in response.responses]
        code = ErrorCode(result.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.offset = await self._earliest()
            self._history.out_of_range(self.partition, asked, self.offset)
            return
        if code is not ErrorCode.NONE:
            raise ConnectionError(code.name)
        batches = split_batches(bytes(result.records or b""), f"{self.partition} fetched at {asked}")
        self.offset = self._history.fetched(
            self.partition,
            asked,
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
            batches,
        )
        self.high_watermark, self.log_start = result.high_watermark, result.log_start_offset
        for batch in batches:
            self.values |= {record.offset: record.value or b"" for record in batch.records if record.offset >= asked}
        self._trace.record("fetched", self.partition, asked, self.offset, self.high_watermark)

    async def _earliest(self) -> int:
        request = messages.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                messages.ListOffsetsRequest.ListOffsetsTopic(
                    name=self.partition.topic,
                    partitions=[
                        messages.ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=self.partition.partition, timestamp=EARLIEST_TIMESTAMP
                        )
                    ],
                )
            ],
        )
        response = await self._client.request(ApiKey.LIST_OFFSETS, request)
        ((result,),) = [topic.partitions for topic in response.topics]
        if result.error_code:
            raise ConnectionError(ErrorCode(result.error_code).name)
        return int(result.offset)

    def _request(self) -> messages.FetchRequest:
        return messages.FetchRequest(
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self._random.below(2),
            session_id=0,
            session_epoch=-1,
            topics=[
                messages.FetchRequest.FetchTopic(
                    topic=self.partition.topic,
                    partitions=[
                        messages.FetchRequest.FetchPartition(
                            partition=self.partition.partition,
                            fetch_offset=self.offset,
                            partition_max_bytes=100 + self._random.below(3000),
                        )
                    ],
                )
            ],
        )
