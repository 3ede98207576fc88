"""What docs/clients.md shows is run as it stands there."""

from __future__ import annotations

import asyncio

from tests.scenarios.documents import documented

from tidelog.client import admin
from tidelog.client.admin import NewTopic
from tidelog.client.cluster import Cluster as ClientCluster
from tidelog.client.consumer import Consumer, ConsumerSettings
from tidelog.client.fetching import READ_COMMITTED, FetchSettings
from tidelog.client.offsets import committed_offsets
from tidelog.model.identifiers import TopicPartition
from tidelog.testing import Cluster


def test_the_examples_send_read_and_transform(broker: Cluster) -> None:
    """Orders are produced, read by a group, and turned into totals in transactions, with their offsets."""
    produce = documented("produce")["produce"]
    consume = documented("consume")["consume"]
    transform = documented("transform")["transform"]
    since = documented("since")["count_since"]

    async def run() -> None:
        async with ClientCluster(broker.bootstrap) as cluster:
            await cluster.run(
                admin.create_topics(cluster.routing, [NewTopic("orders", 1, 1), NewTopic("totals", 1, 1)])
            )
            assert [await produce(broker.bootstrap) for _ in range(3)] == [0, 1, 2]
            assert await consume(broker.bootstrap, 3) == [b"a value"] * 3
            await transform(broker.bootstrap, 3)
            orders = [TopicPartition("orders", 0)]
            assert await since(broker.bootstrap, orders, 0) == 3
            assert await since(broker.bootstrap, orders, 1 << 50) == 0
            settings = ConsumerSettings(
                auto_offset_reset="earliest",  # type: ignore[arg-type]  # Plain words are taken.
                fetch=FetchSettings(isolation=READ_COMMITTED),
            )
            async with Consumer(cluster, settings=settings) as consumer:
                consumer.assign([TopicPartition("totals", 0)])
                records: list[tuple[bytes | None, bytes | None]] = []
                while len(records) < 3:
                    batch = await consumer.poll(30)
                    assert batch is not None
                    records += [(record.key, record.value) for record in batch]
            assert records == [(b"a key", b"a value")] * 3
            for group in ("billing", "totals"):
                committed = await cluster.run(committed_offsets(cluster.routing, group))
                assert committed[TopicPartition("orders", 0)].offset == 3

    asyncio.run(run())
