"""What docs/clients.md shows is run as it stands there."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from pathlib import Path

import pytest
from tests.scenarios.documents import CLIENTS_PAGE, documented

from tidelog.client import admin, errors
from tidelog.client.admin import ConfigChange, ConfigResource, NewTopic, ResourceType
from tidelog.client.cluster import Cluster as ClientCluster
from tidelog.client.consumer import Consumer, ConsumerSettings
from tidelog.client.errors import KafkaError
from tidelog.client.fetching import READ_COMMITTED, FetchSettings
from tidelog.client.offsets import committed_offsets
from tidelog.client.producer import Producer, ProducerSettings
from tidelog.client.share_consumer import ShareConsumerSettings
from tidelog.model.identifiers import TopicPartition
from tidelog.testing import Cluster

PAGE = CLIENTS_PAGE.read_text()


def test_every_example_runs() -> None:
    """Each is named in a test; what is too small for that compiles."""
    named = set(re.findall(r"<!-- runs: (\w+) -->", PAGE))
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert {name for name in named if f'documented("{name}")' not in tests} == set()
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        compile(code, "docs/clients.md", "exec")


def test_the_page_names_all_there_is() -> None:
    """Settings with their defaults, operations of administrators, errors."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    for kind in (ProducerSettings, ConsumerSettings, ShareConsumerSettings):
        for field in dataclasses.fields(kind):
            assert any(f"`{field.name}`" in row for row in rows), field.name
    operations = {name for name in admin.__all__ if name[0].islower()}
    assert {name for name in operations if f"`{name}`" not in PAGE} == set()
    helpers = {"ClientError", "ErrorCode", "TidelogError", "refusal", "require_plaintext"}
    assert {name for name in set(errors.__all__) - helpers if not any(f"`{name}`" in row for row in rows)} == set()


def test_the_examples_connect_administer_scan_and_tell(broker: Cluster) -> None:
    """A topic with a setting of its own, the values of a topic read without asyncio, an error in words."""
    assert asyncio.run(documented("connect")["connect"](broker.bootstrap)) == 1
    administer = documented("administer")["administer"]
    scan = documented("scan")["scan"]
    store = documented("store")["store"]
    assert asyncio.run(administer(broker.bootstrap)) == {"retention.ms": "3600000"}
    with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
        asyncio.run(administer(broker.bootstrap))
    assert asyncio.run(store(broker.bootstrap, "audit", b"one")) == "stored at 0"
    assert asyncio.run(store(broker.bootstrap, "audit", bytes(2 << 20))) == (
        "audit: send smaller records, or raise it (try again: False)"
    )
    assert scan(broker.bootstrap, "audit") == [b"one"]


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


def test_the_example_shares_records(broker: Cluster) -> None:
    """Records are accepted, one is released once, one is rejected."""
    send_mails = documented("share")["send_mails"]

    async def run() -> None:
        async with ClientCluster(broker.bootstrap) as cluster:
            await cluster.run(admin.create_topics(cluster.routing, [NewTopic("mails", 1, 1)]))
            group = ConfigResource(ResourceType.GROUP, "mailers")
            changes = {group: [ConfigChange("share.auto.offset.reset", "earliest")]}
            assert await cluster.run(admin.alter_configs(cluster.routing, changes)) == {group: None}
            async with Producer(cluster) as producer:
                for value in (b"a", None, b"later", b"b"):
                    await producer.send("mails", value=value)
                await producer.flush()
            assert await send_mails(broker.bootstrap, 3) == [b"a", b"b", b"later"]

    asyncio.run(run())
