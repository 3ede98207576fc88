"""Producers while things break. Each has several lanes: its records for one partition, numbered.

Idempotent ones never give up: after any failure they send what is pending again, in order, to the leader of that time.
The others send each batch once; what became of it they learn, or they don't.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sim.checks.history import Guarantee, is_tombstone, key_of
from sim.invariants import require
from sim.workloads.consumers import Reader
from sim.world.clock import EPOCH_MS
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Codec, build_batch
from tidelog.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sim.checks.history import History
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.model.identifiers import TopicPartition

IN_FLIGHT: Final = 3
"""Batches of a lane under way at once."""
REMEMBERED: Final = 5
"""Of a producer's batches a leader knows so many again (KIP-98)."""
PAUSE_S: Final = 0.1
"""Between an error and the next try."""
PRODUCE_MS_MAX: Final = 4_000
"""How long a broker may wait for the ISR."""

PROBE_CHANCE: Final = 0.05
"""How often an idempotent producer tries in a round what must be refused."""
TAKE_ID_CHANCE: Final = 0.05
"""How often it asks for a producer id that it has no use for, as producers do that come and go."""
AGAIN_CHANCE: Final = 0.08
"""How often it sends one of its last batches again, acknowledged long ago, as if it had not heard of it."""
GAP: Final = 7
"""Records that it then leaves out."""
NEVER_DELETED: Final = "kept"
"""The topic whose records are not deleted."""

UNRECOGNIZED: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
"""What a leader says of a batch that it does not know, and of one whose offset it has forgotten."""
NOTHING_WRITTEN: Final = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_RECORD,
        ErrorCode.MESSAGE_TOO_LARGE,
    }
)
"""Answers after which a record must never appear. NOT_LEADER_OR_FOLLOWER may also mean "not any more"."""


@dataclass(slots=True)
class Pending:
    """A batch that is not acknowledged yet."""

    sequence: int
    values: list[bytes]
    data: bytes
    generation: int
    """How often brokers had been started when it was first sent."""
    sent_at: float
    """When that was."""


@dataclass(slots=True)
class Acknowledged:
    """A batch that is acknowledged."""

    batch: Pending
    base_offset: int


@dataclass(slots=True)
class Lane:
    """One producer's records for one partition."""

    name: str
    partition: TopicPartition
    sequence: int = 0
    next_offset: int = 0
    """After what was acknowledged last."""
    acknowledged: bool = False
    """Whether anything was."""
    recent: deque[Acknowledged] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """What was acknowledged last, oldest first."""
    pending: deque[Pending] = field(default_factory=deque)


class Producer:
    """See the module."""

    def __init__(
        self,
        name: str,
        partitions: Sequence[TopicPartition],
        guarantee: Guarantee,
        pause_s: float,
        router: Router,
        random: SeededRandom,
        history: History,
        trace: Trace,
    ) -> None:
        """`pause_s` is the longest pause between two rounds of requests."""
        self.name = name
        self.guarantee = guarantee
        self._lanes = [Lane(f"{name}.{number}", partition) for number, partition in enumerate(partitions)]
        self._topics = sorted({partition.topic for partition in partitions})
        self._router = router
        self._random = random
        self._history = history
        self._trace = trace
        self._pause_s = pause_s
        self._again_random = random.stream("again")
        self._ids_random = random.stream("ids")
        self._producer_id = -1
        self._producer_epoch = -1
        self.is_deposed: Callable[[TopicPartition, int], bool] = lambda partition, broker: False
        """Whether a broker does not lead a partition, as the store has it: what such a one says is not believed."""
        self.stopping = False
        """Set it, and `run` returns once all is acknowledged, or known to be lost."""
        for lane in self._lanes:
            history.lane(lane.name, guarantee)

    @property
    def pending(self) -> list[str]:
        """What is not acknowledged yet, for the message of a run that stands still."""
        return [f"{lane.partition}: {lane.pending[0].values[0]!r}" for lane in self._lanes if lane.pending]

    async def run(self) -> None:
        while not self.stopping or any(lane.pending for lane in self._lanes):
            try:
                if self.guarantee is Guarantee.EXACTLY_ONCE and self._producer_id < 0:
                    await self._initialize()
                if self.guarantee is Guarantee.EXACTLY_ONCE and self._random.chance(PROBE_CHANCE):
                    await self._probe()
                if self.guarantee is Guarantee.EXACTLY_ONCE and self._again_random.chance(AGAIN_CHANCE):
                    await self._again()
                if self.guarantee is Guarantee.EXACTLY_ONCE and self._ids_random.chance(TAKE_ID_CHANCE):
                    await self._take_id()
                await self._round()
                await asyncio.sleep(self._random.between(0.0, self._pause_s))
            except (OSError, TimeoutError) as error:
                self._trace.record("producer_retries", self.name, repr(error))
                await asyncio.sleep(self._random.between(0.0, 2 * PAUSE_S))
        self._router.close()

    async def _initialize(self) -> None:
        self._producer_id, self._producer_epoch = await self._take_id()

    async def _take_id(self) -> tuple[int, int]:
        """A producer id, which no producer has had before, and its epoch."""
        response = await self._router.ask_any(
            ApiKey.INIT_PRODUCER_ID,
            messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
        )
        if response.error_code != ErrorCode.NONE:
            raise ConnectionError(ErrorCode(response.error_code).name)
        self._history.identified(response.producer_id)
        return response.producer_id, response.producer_epoch

    def _next_batch(self, lane: Lane) -> Pending:
        count = 1 + self._random.below(4)
        values = [f"{lane.name}:{lane.sequence + index}".encode() for index in range(count)]
        data = self._batch(values, lane.sequence, keyed=lane.partition.topic in self._history.compacted)
        now = asyncio.get_running_loop().time()
        pending = Pending(lane.sequence, values, data, self._history.generation, now)
        lane.sequence += count
        return pending

    def _batch(self, values: Sequence[bytes], sequence: int, *, keyed: bool = False, epochs_ahead: int = 0) -> bytes:
        timestamp = EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)
        records = [
            Record(index, timestamp, b"key" if self._random.chance(0.5) else None, value)
            if not keyed
            else _keyed(index, timestamp, value)
            for index, value in enumerate(values)
        ]
        idempotent = self.guarantee is Guarantee.EXACTLY_ONCE
        return build_batch(
            records,
            base_offset=0,
            codec=Codec(self._random.below(5)),
            producer_id=self._producer_id if idempotent else -1,
            producer_epoch=self._producer_epoch + epochs_ahead if idempotent else -1,
            base_sequence=sequence if idempotent else -1,
        )

    async def _probe(self) -> None:
        """Sends a batch that leaves a gap behind what was acknowledged, or before it in the next epoch: no broker may
        take it."""
        known = [lane for lane in self._lanes if lane.acknowledged and not lane.pending and self._leader(lane) >= 0]
        # Of a producer whose records were all deleted a broker need not know anything.
        known = [lane for lane in known if lane.partition.topic == NEVER_DELETED]
        if not known:
            return
        lane = known[self._random.below(len(known))]
        values = [f"{lane.name}.gap:{lane.sequence}".encode()]
        self._history.refused(values)
        ahead = self._random.below(2)
        pending = Pending(0, values, self._batch(values, lane.sequence + GAP, epochs_ahead=ahead), 0, 0.0)
        response = await self._router.ask(self._leader(lane), ApiKey.PRODUCE, self._request([(lane, pending)]))
        ((found,),) = [topic.partition_responses for topic in response.responses]
        code = ErrorCode(found.error_code)
        self._trace.record("probed", lane.name, lane.partition, code.name)
        require(
            12,
            code is not ErrorCode.NONE,
            f"{lane.partition}: {lane.name} left a gap of {GAP}, {ahead} epochs on, which was taken",
        )

    async def _again(self) -> None:
        """Sends one of the last batches again: the answer is the same, though all records of the producer may be gone
        by now, and its leader another, or started anew. Leaders know all of them, if no broker was started since.
        """
        known = [lane for lane in self._lanes if lane.recent and not lane.pending and self._leader(lane) >= 0]
        if not known:
            return
        lane = known[self._again_random.below(len(known))]
        again = lane.recent[self._again_random.below(len(lane.recent))]
        if lane.partition.topic != NEVER_DELETED and again.batch.generation != self._history.generation:
            return  # Where its records are deleted a snapshot tells of it, if there is one; else a start forgets it.
        asked = self._leader(lane)
        response = await self._router.ask(asked, ApiKey.PRODUCE, self._request([(lane, again.batch)]))
        ((found,),) = [topic.partition_responses for topic in response.responses]
        code = ErrorCode(found.error_code)
        self._trace.record("again", lane.name, lane.partition, again.batch.sequence, code.name, found.base_offset)
        require(
            12,
            code is not ErrorCode.NONE or found.base_offset == again.base_offset,
            f"{lane.partition}: what {lane.name} sent again, and was told to stand at {again.base_offset}, has been"
            f" written once more, at {found.base_offset}",
        )
        # What is deleted may be forgotten, and after a start older batches are (Kafka's snapshots keep one).
        must_know = lane.partition.topic == NEVER_DELETED and again.batch.generation == self._history.generation
        must_know = must_know and not self.is_deposed(lane.partition, asked)
        require(
            12,
            not must_know or code not in UNRECOGNIZED,
            f"{lane.partition}: what {lane.name} sent again, which stands at {again.base_offset}, was not recognized",
        )

    async def _round(self) -> None:
        """Sends what is pending of some lanes, and something new, to the leaders; takes the answers in order."""
        lanes = [lane for lane in self._lanes if lane.pending]
        fresh = self._lanes[self._random.below(len(self._lanes))]
        if not self.stopping and fresh not in lanes:
            lanes.append(fresh)
        if any(self._leader(lane) < 0 for lane in lanes):
            await self._router.refresh(self._topics)
        for lane in lanes:
            # A producer of which nothing is known may begin anywhere, as with Kafka: where its first batch is refused
            # (no descriptor is left), the second one would be taken.
            in_flight = IN_FLIGHT if self.guarantee is Guarantee.EXACTLY_ONCE and lane.acknowledged else 1
            while len(lane.pending) < in_flight and not self.stopping and self._leader(lane) >= 0:
                lane.pending.append(self._next_batch(lane))
                if self._random.chance(0.6):
                    break
        by_leader: dict[int, list[Lane]] = {}
        for lane in lanes:
            if lane.pending and self._leader(lane) >= 0:
                by_leader.setdefault(self._leader(lane), []).append(lane)
        if not by_leader:
            raise ConnectionError(f"{lanes[0].partition} has no leader" if lanes else "nothing to do")
        outcomes = await asyncio.gather(
            *(self._send(broker, group) for broker, group in by_leader.items()), return_exceptions=True
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def _leader(self, lane: Lane) -> int:
        leader = self._router.leader(lane.partition)
        return -1 if leader is None else leader.broker_id

    async def _send(self, broker: int, lanes: list[Lane]) -> None:
        """Sends each lane's pending batches to one broker: the first of each in one request, then the second, ..."""
        client = self._router.brokers[broker]
        requests = []
        try:
            if not client.is_connected:
                await asyncio.wait_for(client.connect(), PRODUCE_MS_MAX / 1000)
            for depth in range(max(len(lane.pending) for lane in lanes)):
                batches = [(lane, lane.pending[depth]) for lane in lanes if len(lane.pending) > depth]
                requests.append((batches, client.send(ApiKey.PRODUCE, self._request(batches))))
            failed: set[str] = set()
            while requests:
                batches, answer = requests[0]
                response = await asyncio.wait_for(answer, PRODUCE_MS_MAX / 1000 + 2)
                del requests[0]
                await self._answered(broker, batches, response, failed)
        except (OSError, TimeoutError):
            client.close()
            for batches, _ in requests:
                for lane, pending in batches:
                    self._unknown(lane, pending)
            for lane in lanes:
                self._router.forget(lane.partition)
            raise

    async def _answered(
        self, broker: int, batches: list[tuple[Lane, Pending]], response: Any, failed: set[str]
    ) -> None:
        results = {
            (topic.name, found.index): found for topic in response.responses for found in topic.partition_responses
        }
        error: ConnectionError | None = None
        for lane, pending in batches:
            found = results[lane.partition.topic, lane.partition.partition]
            code = ErrorCode(found.error_code)
            if lane.name in failed:
                continue  # What came before it was not written: it is sent again behind that.
            if code is ErrorCode.NONE:
                self._acknowledged(lane, found.base_offset)
                continue
            failed.add(lane.name)
            self._trace.record("refused", lane.name, lane.partition, pending.sequence, code.name)
            if self.guarantee is not Guarantee.EXACTLY_ONCE:
                if code in NOTHING_WRITTEN:
                    self._history.refused(pending.values)
                self._unknown(lane, pending)
            elif code in UNRECOGNIZED and not self.is_deposed(lane.partition, broker):
                await self._recall(lane)
            if code is not ErrorCode.NOT_ENOUGH_REPLICAS:
                self._router.forget(lane.partition)
            error = ConnectionError(f"{code.name}: {found.error_message}")
        if error is not None:
            raise error

    def _unknown(self, lane: Lane, pending: Pending) -> None:
        """A batch may have been written or not: it is sent again, by those who do."""
        if self.guarantee is not Guarantee.EXACTLY_ONCE and lane.pending and lane.pending[0] is pending:
            lane.pending.popleft()

    def _acknowledged(self, lane: Lane, base_offset: int) -> None:
        pending = lane.pending.popleft()
        self._trace.record("acknowledged", lane.partition, lane.name, pending.sequence, base_offset)
        self._history.acknowledged(lane.partition, base_offset, pending.values, self.guarantee, pending.sent_at)
        lane.next_offset = base_offset + len(pending.values)
        lane.acknowledged = True
        lane.recent.append(Acknowledged(pending, base_offset))

    async def _recall(self, lane: Lane) -> None:
        """Looks in the log for what is pending.

        A broker that was started again remembers one batch of each producer (Kafka's snapshots keep no more), so it
        does not know an older one that it had written before it could answer. An application would have to look, too.
        """
        restarted = lane.pending[0].generation != self._history.generation
        require(12, restarted, f"{lane.partition}: what {lane.name} sent again is out of order, or was not recognized")
        reader = Reader(lane.name, lane.partition, self._router, self._random, self._history, self._trace)
        reader.offset = lane.next_offset
        await reader.read_to_the_end()
        offsets = {value: offset for offset, value in reader.values.items()}
        last_sequence = reader.sequences.get((self._producer_id, self._producer_epoch), -1)
        if reader.log_start > lane.next_offset and lane.pending[0].values[0] not in offsets:
            # Written, for it is next in order, and deleted since: nobody can say where it stood.
            self._trace.record("deleted_before_answer", lane.name, lane.partition, lane.pending[0].sequence)
            self._history.deleted_unseen(lane.pending.popleft().values)
        while lane.pending:
            first = lane.pending[0].values[0]
            if first in offsets:
                self._acknowledged(lane, offsets[first])
            elif lane.partition.topic in self._history.compacted and (
                self._is_any_in(offsets, lane) or lane.pending[0].sequence <= last_sequence
            ):
                # Written, for what comes behind it is there, if only as an empty batch, and superseded since.
                self._trace.record("compacted_before_answer", lane.name, lane.partition, lane.pending[0].sequence)
                lane.pending.popleft()
            else:
                break

    @staticmethod
    def _is_any_in(offsets: Mapping[bytes, int], lane: Lane) -> bool:
        """Whether a record of what is pending is in the log."""
        return any(value in offsets for batch in lane.pending for value in batch.values)

    def _request(self, batches: list[tuple[Lane, Pending]]) -> messages.ProduceRequest:
        topics: dict[str, list[messages.ProduceRequest.PartitionProduceData]] = {}
        for lane, pending in batches:
            topics.setdefault(lane.partition.topic, []).append(
                messages.ProduceRequest.PartitionProduceData(index=lane.partition.partition, records=pending.data)
            )
        return messages.ProduceRequest(
            acks=1 if self.guarantee is Guarantee.LEADER else -1,
            timeout_ms=PRODUCE_MS_MAX,
            topic_data=[
                messages.ProduceRequest.TopicProduceData(name=topic, partition_data=data)
                for topic, data in topics.items()
            ],
        )


def _keyed(index: int, timestamp: int, value: bytes) -> Record:
    """A record of a compacted topic."""
    if is_tombstone(value):
        return Record(index, timestamp, key_of(value), None, [("value", value)])
    return Record(index, timestamp, key_of(value), value)
