"""Applications with our own client, each a process that a test may kill: `python -m tests.scenarios.applications`.

copy BOOTSTRAP ID     copies "in" to "out" in transactions, with the offsets it has come to, as a member of group "copy"
"""

from __future__ import annotations

import asyncio
import sys
from typing import NoReturn

from tidelog.client.cluster import Cluster
from tidelog.client.consumer import AutoOffsetReset, Consumer, ConsumerSettings
from tidelog.client.errors import ClientError
from tidelog.client.fetching import READ_COMMITTED, FetchSettings
from tidelog.client.producer import Producer, ProducerSettings
from tidelog.model.errors import KafkaError

COPYING = ConsumerSettings(
    assignors=("cooperative-sticky",),
    auto_offset_reset=AutoOffsetReset.EARLIEST,
    auto_commit=False,
    heartbeat_interval_s=0.3,
    session_timeout_s=2,
    fetch=FetchSettings(partition_max_bytes=1_000, isolation=READ_COMMITTED),
)
"""A few records a transaction."""


async def copy(bootstrap: str, transactional_id: str) -> NoReturn:
    """Whatever refuses a transaction ends this life of it; what it had not committed is read again."""
    while True:
        try:
            await _copy(bootstrap, transactional_id)
        except (KafkaError, ClientError) as error:
            print("begins anew:", error, flush=True)


async def _copy(bootstrap: str, transactional_id: str) -> NoReturn:
    async with (
        Cluster(bootstrap) as cluster,
        Producer(cluster, ProducerSettings(transactional_id=transactional_id)) as producer,
        Consumer(cluster, "copy", COPYING) as consumer,
    ):
        consumer.subscribe(["in"])
        while True:
            batch = await consumer.poll()
            assert batch is not None
            async with producer.transaction():
                for record in batch:
                    await producer.send("out", record.value, key=record.key)
                await producer.send_offsets({batch.topic_partition: batch.next_offset}, consumer.member)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    asyncio.run({"copy": copy}[command](*arguments))
