"""From outside: a replica that was away catches up over a throttle, which holds it back until it is taken away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.waiting import until_equal

from tidelog.client.admin import AlterOperation, ConfigChange, ConfigResource, ResourceType, alter_configs
from tidelog.client.blocking import BlockingCluster
from tidelog.testing import Cluster

DEADLINE_S = 180.0
BATCHES = 20
BROKER_2 = ConfigResource(ResourceType.BROKER, "2")
ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")
THROTTLED = ConfigResource(ResourceType.TOPIC, "throttled")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({"auto.create.topics.enable": False}, brokers=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> AdminClient:
    """With topics of which brokers 0 and 2 have replicas; 0 leads."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap, "topic.metadata.refresh.interval.ms": 200})
    topics = [NewTopic(name, num_partitions=1, replica_assignment=[[0, 2]]) for name in ("throttled", "free")]
    for created in client.create_topics(topics).values():
        created.result(DEADLINE_S)
    return client


def in_sync(admin: AdminClient, topic: str) -> list[int]:
    return sorted(admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions[0].isrs)


def alter(cluster: Cluster, resource: ConfigResource, settings: dict[str, str | None]) -> str | None:
    """Sets, or with None takes away; why not."""
    changes = [
        ConfigChange(name, value, AlterOperation.DELETE if value is None else AlterOperation.SET)
        for name, value in settings.items()
    ]
    with BlockingCluster(cluster.bootstrap) as client:
        (error,) = client.run(alter_configs(client.routing, {resource: changes})).values()
    return error and str(error)


def produce(cluster: Cluster, topic: str) -> None:
    """Batch after batch, each acknowledged by all that are in sync."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    for _ in range(BATCHES):
        producer.produce(topic, bytes(10_000), partition=0)
        assert not producer.flush(DEADLINE_S)


def fall_behind(cluster: Cluster, admin: AdminClient) -> None:
    """Broker 2 is stopped, and records come to both topics meanwhile."""
    until_equal(lambda: [in_sync(admin, topic) for topic in ("throttled", "free")], [[0, 2]] * 2)
    cluster.stop(2)
    for topic in ("throttled", "free"):
        produce(cluster, topic)
    until_equal(lambda: in_sync(admin, "throttled"), [0])


@pytest.mark.row("R13")
@pytest.mark.parametrize(
    ("side", "resource", "replicas"),
    [("leader", ALL_BROKERS, "0:0,1:2"), ("follower", BROKER_2, "0:2"), ("follower", ALL_BROKERS, "*")],
)
def test_a_throttle_holds_a_replica_back(
    cluster: Cluster, admin: AdminClient, side: str, resource: ConfigResource, replicas: str
) -> None:
    """A byte a second: the topic beside it is in sync, this one lacks nearly all; in sync once the throttle is gone."""
    assert alter(cluster, THROTTLED, {f"{side}.replication.throttled.replicas": replicas}) is None
    assert alter(cluster, resource, {f"{side}.replication.throttled.rate": "1"}) is None
    fall_behind(cluster, admin)
    cluster.start(2)
    until_equal(lambda: in_sync(admin, "free"), [0, 2])
    produce(cluster, "free")
    until_equal(lambda: [in_sync(admin, topic) for topic in ("throttled", "free")], [[0], [0, 2]])
    assert alter(cluster, resource, {f"{side}.replication.throttled.rate": None}) is None
    until_equal(lambda: in_sync(admin, "throttled"), [0, 2])
    assert alter(cluster, THROTTLED, {f"{side}.replication.throttled.replicas": None}) is None


@pytest.mark.row("R13")
@pytest.mark.parametrize("value", ["0", "0:1:2", "a:1", "0:1,*", "0-1"])
def test_replicas_that_are_none_are_refused(cluster: Cluster, admin: AdminClient, value: str) -> None:
    """INVALID_CONFIG, in Kafka's words; the setting is as it was."""
    text = alter(cluster, THROTTLED, {"leader.replication.throttled.replicas": value})
    shown = ", ".join(value.split(","))
    assert text is not None
    assert text.endswith(
        f"Invalid value [{shown}] for configuration leader.replication.throttled.replicas: "
        "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


@pytest.mark.row("R13")
def test_a_rate_is_not_negative(cluster: Cluster) -> None:
    """As Kafka's ConfigDef says it."""
    text = alter(cluster, BROKER_2, {"follower.replication.throttled.rate": "-1"})
    assert text is not None
    assert "Value must be at least 0" in text
