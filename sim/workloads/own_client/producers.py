"""The product's own producer while things break: idempotent, and impatient or not."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sim.checks.client_history import value_for
from sim.invariants import require
from sim.workloads.own_client.topics import GROWN, PARTITIONS
from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError
from tidelog.client.partitioners.hashes import murmur2, to_positive
from tidelog.client.producer import Delivery, Producer, ProducerSettings, RecordPlace
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from sim.checks.client_history import ClientHistory
    from sim.workloads.own_client.topics import ClientTopics
    from sim.world.process import Process
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace

BURST_MAX: Final = 3
KEYS: Final = 9
"""Different ones."""
PAUSE_S: Final = 0.4
CALM_PAUSE_S: Final = 1.5
SILENT_S_MAX: Final = 10.0
"""How long a flush may take when all is well."""


class Sent(NamedTuple):
    """A record that is not acknowledged yet."""

    value: bytes
    topic: str
    incarnation: int
    at: float
    generation: int
    """How often brokers had been started."""
    delivery: Delivery
    key: bytes | None
    """By which the producer chose the partition; None: by something else."""


def require_place_of_key(value: bytes, key: bytes, found: TopicPartition) -> None:
    """Records of a key are in the partition that Kafka's own producers choose, as long as the topic gets no more."""
    expected = to_positive(murmur2(key)) % PARTITIONS[found.topic]
    require(20, found.partition == expected, f"{value!r} with the key {key!r} stands in {found}, not in {expected}")


class ClientProducer:
    """One producer in a process of its own."""

    def __init__(
        self,
        process: Process,
        bootstrap: str,
        settings: ProducerSettings,
        topics: ClientTopics,
        history: ClientHistory,
        random: SeededRandom,
        trace: Trace,
        generation: Callable[[], int],
    ) -> None:
        """`generation` counts the starts of brokers."""
        self.name = process.name
        self._process = process
        self._bootstrap = bootstrap
        self._settings = settings
        self._topics = topics
        self._history = history
        self._random = random
        self._trace = trace
        self._generation = generation
        self._number = 0
        self._pending: deque[Sent] = deque()
        self._sending: str | None = None
        self._producer: Producer | None = None
        self.calm = False
        """Set it, and little more comes."""
        self.stopping = False

    def start(self) -> asyncio.Task[None]:
        """Begins to send."""
        return self._process.spawn(self._run())

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Does something else within its process."""
        return self._process.spawn(work)

    def is_sending_to(self, topic: str) -> bool:
        """Whether records for a topic are on their way."""
        return self._sending == topic or any(sent.topic == topic for sent in self._pending)

    async def _run(self) -> None:
        while not self.stopping:
            try:
                async with (
                    Cluster(self._bootstrap, client_id=self.name) as cluster,
                    Producer(cluster, self._settings) as producer,
                ):
                    self._producer = producer
                    await self._produce(cluster, producer)
                    # What fails is judged where its delivery is looked at.
                    with contextlib.suppress(KafkaError, ClientError):
                        await producer.flush()
                    self._look()
            except (KafkaError, ClientError) as error:
                # No broker gave it a producer id.
                require(20, self._producer is None, f"{self.name} ends with {error!r}")
                self._trace.record("client_retries", self.name, repr(error))
                await asyncio.sleep(PAUSE_S)

    async def _produce(self, cluster: Cluster, producer: Producer) -> None:
        """Until it is to stop; `cluster` is what the producer uses."""
        while not self.stopping:
            for _ in range(1 if self.calm else 1 + self._random.below(BURST_MAX)):
                partitions = self._topics.partitions
                if partitions:
                    chosen = partitions[self._random.below(len(partitions))]
                    await self._send(producer, chosen, by_partitioner=self._random.chance(0.4))
            self._look()
            await asyncio.sleep(self._random.between(0.0, CALM_PAUSE_S if self.calm else PAUSE_S))

    async def _send(self, producer: Producer, partition: TopicPartition, *, by_partitioner: bool) -> Sent | None:
        topic, incarnation = partition.topic, self._topics.incarnations[partition.topic]
        value = value_for(self.name, incarnation, self._number)
        self._number += 1
        key = self._key()
        self._sending = topic
        at, generation = self._history.now(), self._generation()
        try:
            delivery = await producer.send(
                topic, value, key=key, partition=None if by_partitioner else partition.partition
            )
        except (KafkaError, ClientError) as error:
            # The topic or the partition is new, and the broker that was asked has not heard of it.
            self._trace.record("client_refused", self.name, partition, repr(error))
            return None
        finally:
            self._sending = None
        chosen_by = key if by_partitioner else None
        self._pending.append(sent := Sent(value, topic, incarnation, at, generation, delivery, chosen_by))
        return sent

    def _key(self) -> bytes | None:
        return b"%d" % self._random.below(KEYS) if self._random.chance(0.5) else None

    def _look(self) -> None:
        """Takes what has come of the records."""
        for _ in range(len(self._pending)):
            sent = self._pending.popleft()
            match sent.delivery.outcome:
                case None:
                    self._pending.append(sent)
                case RecordPlace() as place:
                    self._trace.record("client_acknowledged", sent.value.decode(), place.topic_partition, place.offset)
                    self._history.delivered(sent.value, place.topic_partition, place.offset)
                    if sent.key is not None and sent.topic != GROWN:
                        require_place_of_key(sent.value, sent.key, place.topic_partition)
                case error:
                    self._failed(sent, error)

    def _failed(self, sent: Sent, error: Exception) -> None:
        """A record was not delivered: its time must have been over."""
        self._trace.record("client_failed", sent.value.decode(), repr(error))
        self._history.failed += 1
        # A broker that was started anew remembers one batch of a producer: it cannot tell whether it has another one.
        is_forgotten = (
            isinstance(error, KafkaError)
            and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            and sent.generation != self._generation()
        )
        waited_s = self._history.now() - sent.at
        # Its time is that of its batch, which may have begun as long before it as a batch lingers.
        is_late = waited_s >= self._settings.delivery_timeout_s - self._settings.linger_ms / 1000 - 0.01
        require(20, is_late or is_forgotten, f"{sent.value!r} fails after {waited_s:.3f} s: {error!r}")

    async def speak(self, partitions: Collection[TopicPartition], count: int = 1) -> None:
        """Sends something to each partition when its leader is there: it is acknowledged in time."""
        deadline = self._history.now() + SILENT_S_MAX
        spoken: set[bytes] = set()
        for partition in partitions:
            for _ in range(count):
                while (sent := await self._send_by(deadline, partition)) is None:
                    require(20, self._history.now() < deadline, f"{self.name} cannot send to {partition}")
                    await asyncio.sleep(PAUSE_S)
                spoken.add(sent.value)
        while left := [sent.value for sent in self._pending if sent.value in spoken]:
            self._look()
            what = f"{self.name} has not been told for {SILENT_S_MAX:g} s what became of {left[0]!r}"
            require(20, self._history.now() < deadline, what)
            await asyncio.sleep(PAUSE_S)

    async def flush(self) -> None:
        """Waits for all that was sent, when all leaders are there: not for long."""
        if self._producer is None:
            return
        try:
            async with asyncio.timeout(SILENT_S_MAX):
                await self._producer.flush()
        except TimeoutError:
            require(20, False, f"{self.name}: flush has been silent for {SILENT_S_MAX:g} s")
        except (KafkaError, ClientError) as error:
            # What failed since the last time, perhaps long ago: its delivery was or will be judged.
            self._trace.record("client_flush_fails", self.name, repr(error))
        self._look()

    async def _send_by(self, deadline: float, partition: TopicPartition) -> Sent | None:
        if self._producer is None:
            return None
        try:
            async with asyncio.timeout(max(0.0, deadline - self._history.now())):
                return await self._send(self._producer, partition, by_partitioner=False)
        except TimeoutError:
            return None
