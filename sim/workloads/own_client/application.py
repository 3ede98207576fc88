"""An application that reads and writes by one `Cluster`: what its consumer learns of leaders, its producer goes by.

Its records have keys, and its topic (`keyed`) never changes: each key has one partition, wherever leaders move.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.checks.client_history import GroupWatch
from sim.invariants import require
from sim.workloads.own_client.producers import BURST_MAX, KEYS, ClientProducer
from sim.workloads.own_client.topics import KEYED, KEYED_PARTITIONS
from tidelog.client.consumer import AutoOffsetReset, ConsumedBatch, Consumer, ConsumerSettings
from tidelog.client.errors import ClientError
from tidelog.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.producer import Producer

PAUSE_S_MAX: Final = 0.2
"""After each round: without it each poll would return at once, with the application's own records."""
POLL_S: Final = (0.05, 0.4)
CALM_POLL_S: Final = (0.5, 1.0)
SETTINGS: Final = ConsumerSettings(
    auto_offset_reset=AutoOffsetReset.EARLIEST,
    auto_commit_interval_s=1.0,
    session_timeout_s=30.0,
    heartbeat_interval_s=1.0,
    metadata_max_age_s=3.0,
)


class ClientApplication(ClientProducer):
    """The one member of its group, which is called as the application is."""

    def __init__(self, *arguments: Any, reads_may_fail: bool) -> None:
        """`arguments` are a producer's."""
        super().__init__(*arguments)
        self._reads_may_fail = reads_may_fail
        self.watch = GroupWatch(self.name, self._history.now)

    def _key(self) -> bytes:
        return b"%d" % self._random.below(KEYS)

    async def _produce(self, cluster: Cluster, producer: Producer) -> None:
        """Sends and reads in turn; begins anew where the bytes on a disk were damaged."""
        while not self.stopping:
            async with Consumer(cluster, self.name, SETTINGS) as consumer:
                consumer.subscribe([KEYED])
                try:
                    await self._read_and_write(consumer, producer)
                except (KafkaError, ClientError) as error:
                    damaged = isinstance(error, KafkaError) and error.code is ErrorCode.CORRUPT_MESSAGE
                    require(20, damaged and self._reads_may_fail, f"{self.name}: poll raises {error!r}")
                    self._trace.record("client_fails", self.name, repr(error))

    async def _read_and_write(self, consumer: Consumer, producer: Producer) -> None:
        while not self.stopping:
            for _ in range(1 if self.calm else 1 + self._random.below(BURST_MAX)):
                # Which of the partitions is named does not matter: the key decides.
                await self._send(producer, KEYED_PARTITIONS[0], by_partitioner=True)
            self._look()
            batch = await consumer.poll(self._random.between(*(CALM_POLL_S if self.calm else POLL_S)))
            while batch is not None:
                self._take(batch)
                batch = await consumer.poll(0.0)
            await asyncio.sleep(self._random.between(0.0, PAUSE_S_MAX))

    def _take(self, batch: ConsumedBatch) -> None:
        for record in batch:
            self._trace.record("client_reads", self.name, batch.topic_partition, record.offset)
            self._history.consumed(self.watch, self.name, batch.topic_partition, record.offset, record.value or b"")
