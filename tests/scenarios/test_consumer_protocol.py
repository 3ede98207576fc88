"""The next-generation consumer protocol (KIP-848) from outside: librdkafka's members of both protocols in one group.

They share a topic's partitions, take each other's place, and a member of the classic protocol never notices that the
group is a consumer group for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.waiting import until, until_equal

from tidelog.testing import Cluster

PARTITIONS = 7
RECORDS = 70
SETTINGS = {"group.consumer.heartbeat.interval.ms": 200, "group.initial.rebalance.delay.ms": 0}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(SETTINGS) as running:
        yield running


class Group:
    """Consumers of one group, and what they have read."""

    def __init__(self, cluster: Cluster) -> None:
        self.bootstrap = cluster.bootstrap
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.read: list[tuple[int, int]] = []
        self.consumers: list[Consumer] = []

    def join(self, protocol: str = "consumer", topics: Sequence[str] = ("t",), **settings: object) -> Consumer:
        if protocol == "classic":
            settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "g",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        consumer.subscribe(list(topics))
        self.consumers.append(consumer)
        return consumer

    def leave(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        consumer.close()

    def shares(self) -> list[int]:
        """Polls everybody once; how many partitions each has, the fewest first."""
        for consumer in self.consumers:
            message = consumer.poll(0.02)
            if message is not None:
                assert message.error() is None, message.error()
                self.read.append((message.partition(), message.offset()))
        return sorted(len(consumer.assignment()) for consumer in self.consumers)

    def until_shared(self, *wanted: int) -> None:
        until(lambda: self.shares() == list(wanted), lambda: f"{wanted}; there is {self.shares()}", every_s=0.0)

    def until_described(self, wanted: tuple[str, str]) -> None:
        """Members have their shares before they tell the coordinator so: type and state of the group."""

        def described() -> tuple[str, str]:
            self.shares()
            found = self.admin.describe_consumer_groups(["g"])["g"].result(180)
            return found.type.name, found.state.name

        until_equal(described, wanted)


def places(consumer: Consumer) -> set[tuple[str, int]]:
    return {(place.topic, place.partition) for place in consumer.assignment()}


@pytest.fixture
def group(cluster: Cluster) -> Iterator[Group]:
    group = Group(cluster)
    group.admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(180)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        producer.produce("t", str(number), partition=number % PARTITIONS)
    assert producer.flush(180) == 0
    yield group
    for consumer in list(group.consumers):
        group.leave(consumer)


def test_members_share_and_take_over(group: Group) -> None:
    """A second member gets its share from the first; what was committed stays; alone again, one has everything."""
    first = group.join()
    until(lambda: group.shares() and len(set(group.read)) == RECORDS, "everything is read", every_s=0.0)
    first.commit(asynchronous=False)
    second = group.join()
    group.until_shared(3, 4)
    assert not places(first) & places(second)
    group.until_described(("CONSUMER", "STABLE"))
    group.leave(first)
    group.until_shared(PARTITIONS)
    assert len(group.read) == RECORDS
    assert second.committed([TopicPartition("t", 0)])[0].offset == RECORDS // PARTITIONS


def test_upgrade_and_downgrade(group: Group) -> None:
    """A fleet rolls to the new protocol and back, and nobody is without its share meanwhile."""
    old = group.join("classic")
    group.until_shared(PARTITIONS)
    group.until_described(("CLASSIC", "STABLE"))
    new = group.join("consumer")
    group.until_shared(3, 4)
    group.until_described(("CONSUMER", "STABLE"))
    group.leave(old)
    group.until_shared(PARTITIONS)
    late = group.join("classic")
    group.until_shared(3, 4)
    group.leave(new)
    group.until_shared(PARTITIONS)
    assert late.assignment()
    group.until_described(("CLASSIC", "STABLE"))


def test_a_coordinator_that_restarts(cluster: Cluster, group: Group) -> None:
    """The group is what the log says: members go on with their epochs."""
    group.join()
    group.join()
    group.until_shared(3, 4)
    cluster.restart(0)
    group.until_shared(3, 4)
    group.join()
    group.until_shared(2, 2, 3)


def test_patterns(group: Group) -> None:
    """Topics that match are read, also those that come later."""
    group.join(topics=["^t.*"])
    group.until_shared(PARTITIONS)
    group.admin.create_topics([NewTopic("t2", 1, 1)])["t2"].result(180)
    group.until_shared(PARTITIONS + 1)
