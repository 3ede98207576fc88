"""A user's own assignor: the one of docs/clients.md, in our consumer, beside a stock client in one group."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from tests.scenarios.consumers import KAFKA_PYTHON_WARNS
from tests.scenarios.documents import documented
from tests.waiting import eventually

from tidelog.client import admin
from tidelog.client.admin import GroupDescription, NewTopic
from tidelog.client.cluster import Cluster as ClientCluster
from tidelog.client.consumer import Consumer, ConsumerSettings
from tidelog.model.identifiers import TopicPartition
from tidelog.testing import Cluster

with warnings.catch_warnings():
    # It reads its schemas by a function that Python is about to drop; that is the client's affair.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.abstract import (
        AbstractPartitionAssignor,
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
    )

pytestmark = [pytest.mark.row("R19"), *KAFKA_PYTHON_WARNS]

PARTITIONS = 8


class CapacityOfOne(AbstractPartitionAssignor):  # type: ignore[misc]  # kafka-python has no types.
    """The same assignor, as kafka-python takes one; this member can carry one share."""

    name = "capacity"

    def metadata(self, topics: Any) -> Any:
        """What it tells the others: its capacity."""
        return ConsumerProtocolSubscription(0, list(topics), b"1")

    def on_assignment(self, assignment: Any, generation: Any) -> None:
        """Nothing to remember."""

    def assign(self, cluster: Any, members: Any) -> dict[str, Any]:
        """As in the docs: whoever has the least for its capacity takes the next partition."""
        capacities = {each.member_id: int(each.metadata.user_data or b"1") for each in members}
        given: dict[str, dict[str, list[int]]] = {member: {} for member in sorted(capacities)}
        counts = dict.fromkeys(given, 0)
        for topic in sorted({topic for each in members for topic in each.metadata.topics}):
            takers = sorted(each.member_id for each in members if topic in each.metadata.topics)
            for partition in sorted(cluster.partitions_for_topic(topic) or ()):
                taker = min(takers, key=lambda member: (counts[member] + 1) / capacities[member])
                counts[taker] += 1
                given[taker].setdefault(topic, []).append(partition)
        return {member: ConsumerProtocolAssignment(0, sorted(topics.items()), b"") for member, topics in given.items()}


class StockMember:
    """kafka-python's consumer in a thread of its own, polling until it is told to leave."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.partitions: frozenset[int] = frozenset()
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id="stock",
            partition_assignment_strategy=[CapacityOfOne()],
            heartbeat_interval_ms=200,
            metadata_max_age_ms=500,
        )
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self) -> None:
        while not self._leaving.is_set():
            self._consumer.poll(timeout_ms=50)
            self.partitions = frozenset(each.partition for each in self._consumer.assignment())

    def leave(self) -> None:
        """Closes the consumer."""
        self._leaving.set()
        self._thread.join(180)
        self._consumer.close()


@contextlib.contextmanager
def stock_member(bootstrap: str, topic: str, group: str) -> Iterator[StockMember]:
    """A stock member that is gone at the end."""
    member = StockMember(bootstrap, topic, group)
    try:
        yield member
    finally:
        member.leave()


async def keep_polling(consumer: Consumer) -> None:
    """What an application does."""
    async for _ in consumer:
        pass


@contextlib.asynccontextmanager
async def polling(consumer: Consumer) -> Any:
    """The consumer polls meanwhile."""
    task = asyncio.create_task(keep_polling(consumer))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("ours_first", [True, False], ids=["we-lead", "the-stock-client-leads"])
def test_an_assignor_of_the_docs_beside_a_stock_client(broker: Cluster, ours_first: bool) -> None:
    """Our member can carry three times what kafka-python's can, and gets 6 of 8 partitions, whichever of them leads."""
    topic = group = f"capacity-{ours_first}"
    assignor = documented("assignor")["Capacity"](3)
    settings = ConsumerSettings(assignors=(assignor,), heartbeat_interval_s=0.2)

    async def run() -> None:
        async with ClientCluster(broker.bootstrap, client_id="ours") as cluster:
            await cluster.run(admin.create_topics(cluster.routing, [NewTopic(topic, PARTITIONS, 1)]))
            async with contextlib.AsyncExitStack() as stack:
                if not ours_first:
                    stock = stack.enter_context(stock_member(broker.bootstrap, topic, group))
                    await eventually(lambda: len(stock.partitions) == PARTITIONS, "the stock client has everything")
                consumer = await stack.enter_async_context(Consumer(cluster, group, settings))
                consumer.subscribe([topic])
                await stack.enter_async_context(polling(consumer))
                if ours_first:
                    await eventually(lambda: len(consumer.assignment) == PARTITIONS, "ours has everything")
                    stock = stack.enter_context(stock_member(broker.bootstrap, topic, group))
                await eventually(
                    lambda: (len(consumer.assignment), len(stock.partitions)) == (6, 2), "6 partitions here, 2 there"
                )
                assert {tp.partition for tp in consumer.assignment} | stock.partitions == set(range(PARTITIONS))
                described = (await cluster.run(admin.describe_groups(cluster.routing, [group])))[group]
                assert isinstance(described, GroupDescription)
                assert (described.state, described.assignor) == ("Stable", "capacity")
                assert sorted(len(member.partitions) for member in described.members) == [2, 6]

    asyncio.run(run())


@pytest.mark.row("R18")
@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_a_leave_moves_only_what_the_leaver_had(broker: Cluster, assignor: str) -> None:
    """Three members; one goes: the others keep what they have, and share what it had."""
    topic = group = f"leave-{assignor}"
    settings = ConsumerSettings(assignors=(assignor,), heartbeat_interval_s=0.1)

    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(ClientCluster(broker.bootstrap))
            await cluster.run(admin.create_topics(cluster.routing, [NewTopic(topic, 9, 1)]))
            consumers: list[Consumer] = []
            for _ in range(3):
                client = await stack.enter_async_context(ClientCluster(broker.bootstrap))
                consumer = await stack.enter_async_context(Consumer(client, group, settings))
                consumer.subscribe([topic])
                await stack.enter_async_context(polling(consumer))
                consumers.append(consumer)
            await eventually(lambda: [len(each.assignment) for each in consumers] == [3, 3, 3], "three each")
            before = [each.assignment for each in consumers]
            assert frozenset().union(*before) == {TopicPartition(topic, partition) for partition in range(9)}
            await consumers[0].close()
            rest = consumers[1:]
            await eventually(lambda: sum(len(each.assignment) for each in rest) == 9, "two have everything")
            for kept, consumer in zip(before[1:], rest, strict=True):
                assert kept <= consumer.assignment

    asyncio.run(run())
