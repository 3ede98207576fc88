"""Whatever a broker of a later version answers, a client tells it as an error of its own: never a ValueError."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import pytest

from tidelog.client import admin
from tidelog.client.admin import ConfigChange, ConfigResource, ElectionType, MemberIdentity, NewTopic, ResourceType
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer, ConsumerSettings
from tidelog.client.errors import TidelogError
from tidelog.client.exchange import Exchange
from tidelog.client.offsets import CommittedOffset, commit_offsets, committed_offsets, delete_records, list_offsets
from tidelog.client.operations import Operation
from tidelog.client.producer import Producer, ProducerSettings
from tidelog.client.routing import Routing
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol.apis import ApiKey
from tidelog.testing import Cluster as Brokers

YOUNGER = 9999
T0 = TopicPartition("t", 0)
OF_GROUP = ConfigResource(ResourceType.GROUP, "g")
TIMEOUT_S = 2.0

OPERATIONS: list[tuple[ApiKey, Callable[[Routing], Operation[Any]]]] = [
    (ApiKey.METADATA, lambda routing: routing.require_topics(["t"], routing.deadline())),
    (ApiKey.CREATE_TOPICS, lambda routing: admin.create_topics(routing, [NewTopic("u", 1, 1)])),
    (ApiKey.DELETE_TOPICS, lambda routing: admin.delete_topics(routing, ["u"])),
    (ApiKey.CREATE_PARTITIONS, lambda routing: admin.create_partitions(routing, {"t": 1})),
    (ApiKey.DESCRIBE_CONFIGS, lambda routing: admin.describe_configs(routing, [OF_GROUP])),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        lambda routing: admin.alter_configs(routing, {OF_GROUP: [ConfigChange("x", "1")]}),
    ),
    (ApiKey.LIST_CONFIG_RESOURCES, lambda routing: admin.list_config_resources(routing)),
    (ApiKey.DESCRIBE_LOG_DIRS, lambda routing: admin.describe_log_dirs(routing)),
    (ApiKey.LIST_GROUPS, lambda routing: admin.list_groups(routing)),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, lambda routing: admin.describe_groups(routing, ["g"])),
    (ApiKey.DESCRIBE_GROUPS, lambda routing: admin.describe_groups(routing, ["g"])),
    (ApiKey.DELETE_GROUPS, lambda routing: admin.delete_groups(routing, ["g"])),
    (ApiKey.OFFSET_DELETE, lambda routing: admin.delete_offsets(routing, "g", [T0])),
    (ApiKey.LEAVE_GROUP, lambda routing: admin.remove_members(routing, "g", [MemberIdentity("m")])),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, lambda routing: admin.remove_members(routing, "g", [MemberIdentity("m")])),
    (ApiKey.FIND_COORDINATOR, lambda routing: admin.delete_groups(routing, ["g"])),
    (ApiKey.ELECT_LEADERS, lambda routing: admin.elect_leaders(routing, ElectionType.PREFERRED, [T0])),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda routing: admin.alter_reassignments(routing, {T0: [0]})),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda routing: admin.reassignments(routing)),
    (ApiKey.LIST_TRANSACTIONS, lambda routing: admin.list_transactions(routing)),
    (ApiKey.DESCRIBE_TRANSACTIONS, lambda routing: admin.describe_transactions(routing, ["x"])),
    (ApiKey.DESCRIBE_PRODUCERS, lambda routing: admin.describe_producers(routing, [T0])),
    (ApiKey.INIT_PRODUCER_ID, lambda routing: admin.fence_producers(routing, ["x"])),
    (
        ApiKey.WRITE_TXN_MARKERS,
        lambda routing: admin.abort_transaction(routing, T0, producer_id=1, producer_epoch=0, coordinator_epoch=0),
    ),
    (ApiKey.LIST_OFFSETS, lambda routing: list_offsets(routing, {T0: -1})),
    (ApiKey.DELETE_RECORDS, lambda routing: delete_records(routing, {T0: 0})),
    (ApiKey.OFFSET_COMMIT, lambda routing: commit_offsets(routing, "g", {T0: CommittedOffset(0)})),
    (ApiKey.OFFSET_FETCH, lambda routing: committed_offsets(routing, "g", [T0])),
]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Brokers({"auto.create.topics.enable": "false"}) as brokers:
        asyncio.run(_prepare(brokers.bootstrap))
        yield brokers.bootstrap


async def _prepare(bootstrap: str) -> None:
    async with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        await cluster.run(admin.create_topics(cluster.routing, [NewTopic("t", 1, 1)]))
        await (await producer.send("t", b"v")).place()
        await cluster.run(commit_offsets(cluster.routing, "g", {T0: CommittedOffset(0)}))


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[ApiKey], None]:
    """From now on every answer of an API has an unknown code wherever it has one."""

    def install(key: ApiKey) -> None:
        real = Exchange.decode

        def decode(exchange: Exchange, frame: Any) -> tuple[int, Any]:
            number, message = real(exchange, frame)
            if key == message.API_KEY:
                _spoil(message)
            return number, message

        monkeypatch.setattr(Exchange, "decode", decode)

    return install


def _spoil(message: Any) -> None:
    for name in message.__slots__:
        value = getattr(message, name)
        if name.endswith("error_code"):
            setattr(message, name, YOUNGER)
        elif isinstance(value, list):
            for each in value:
                if hasattr(each, "__slots__"):
                    _spoil(each)


def _told(outcome: Any) -> bool:
    """Whether an error is among what came back, which names the code."""
    if isinstance(outcome, Mapping):
        return any(_told(each) for each in outcome.values())
    if isinstance(outcome, list):
        return any(_told(each) for each in outcome)
    if hasattr(outcome, "error"):
        return bool(outcome.error == YOUNGER)
    return isinstance(outcome, TidelogError) and str(YOUNGER) in str(outcome)


@pytest.mark.parametrize(("key", "operation"), OPERATIONS, ids=[key.name for key, _ in OPERATIONS])
async def test_operations(
    key: ApiKey,
    operation: Callable[[Routing], Operation[Any]],
    bootstrap: str,
    refuse: Callable[[ApiKey], None],
) -> None:
    """Raised, or as what became of the one thing that was asked."""
    refuse(key)
    async with Cluster(bootstrap, operation_timeout_s=TIMEOUT_S) as cluster:
        try:
            outcome = await cluster.run(operation(cluster.routing))
        except TidelogError as error:
            outcome = error
    assert _told(outcome), outcome


async def _produce(cluster: Cluster) -> None:
    async with Producer(cluster, ProducerSettings(linger_ms=0, delivery_timeout_s=TIMEOUT_S)) as producer:
        await (await producer.send("t", b"v")).place()


async def _transact(cluster: Cluster) -> None:
    settings = ProducerSettings(transactional_id="x", linger_ms=0, delivery_timeout_s=TIMEOUT_S)
    async with Producer(cluster, settings) as producer, producer.transaction():
        await (await producer.send("t", b"v")).place()


async def _consume(cluster: Cluster, protocol: str) -> None:
    settings = ConsumerSettings(protocol=protocol, auto_offset_reset="earliest")
    async with Consumer(cluster, f"g-{protocol}", settings) as consumer:
        consumer.subscribe(["t"])
        assert await consumer.poll(10) is not None
        await consumer.commit()


CLIENTS: list[tuple[ApiKey, Callable[[Cluster], Awaitable[None]]]] = [
    (ApiKey.INIT_PRODUCER_ID, _produce),
    (ApiKey.PRODUCE, _produce),
    (ApiKey.INIT_PRODUCER_ID, _transact),
    (ApiKey.PRODUCE, _transact),
    (ApiKey.END_TXN, _transact),
    *((key, lambda cluster: _consume(cluster, "classic")) for key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, lambda cluster: _consume(cluster, "consumer")),
    (ApiKey.OFFSET_FETCH, lambda cluster: _consume(cluster, "classic")),
    (ApiKey.OFFSET_COMMIT, lambda cluster: _consume(cluster, "classic")),
    (ApiKey.FETCH, lambda cluster: _consume(cluster, "classic")),
]


@pytest.mark.parametrize(
    ("key", "work"), CLIENTS, ids=[f"{key.name}-{index}" for index, (key, _) in enumerate(CLIENTS)]
)
async def test_producers_and_consumers(
    key: ApiKey, work: Callable[[Cluster], Awaitable[None]], bootstrap: str, refuse: Callable[[ApiKey], None]
) -> None:
    refuse(key)
    with pytest.raises(TidelogError, match=str(YOUNGER)):
        async with Cluster(bootstrap, operation_timeout_s=TIMEOUT_S) as cluster:
            await work(cluster)
