"""On a running broker: topics made, shown and grown, their records staying where they are."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.interop.support import DEADLINE_S, topic_name
from tests.scenarios.observing import create, folder, read, send

from tidelog.testing import Cluster


@pytest.fixture
def admin(broker: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.mark.row("R05")
@pytest.mark.row("R06")
def test_an_explicit_assignment(broker: Cluster, admin: AdminClient) -> None:
    """Replicas as asked for are what the description shows; a broker that is not there is refused by its name."""
    topic = topic_name("assigned")
    wanted = NewTopic(topic, 2, replica_assignment=[[0], [0]])
    admin.create_topics([wanted])[topic].result(DEADLINE_S)
    partitions = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
    assert {index: (each.leader, each.replicas, each.isrs) for index, each in partitions.items()} == {
        0: (0, [0], [0]),
        1: (0, [0], [0]),
    }
    elsewhere = NewTopic(topic_name("elsewhere"), 1, replica_assignment=[[7]])
    with pytest.raises(KafkaException, match="7"):
        admin.create_topics([elsewhere])[elsewhere.topic].result(DEADLINE_S)


@pytest.mark.row("R05")
def test_more_replicas_than_brokers(admin: AdminClient) -> None:
    """Refused with Kafka's reason."""
    topic = topic_name("many")
    with pytest.raises(KafkaException, match="target replication factor of 3 cannot be reached because only 1 broker"):
        admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(DEADLINE_S)


@pytest.mark.row("R09")
@pytest.mark.row("R10")
def test_partitions_only_grow_and_records_stay(broker: Cluster, admin: AdminClient) -> None:
    """New partitions are empty, the old ones have what they had; fewer, or as many, are refused."""
    topic = topic_name("grown")
    create(broker, topic, 2, retention_ms=-1)
    for partition in (0, 1):
        assert not send(broker, topic, [b"%d" % partition] * 3, partition=partition)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(DEADLINE_S)
    assert sorted(admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions) == [0, 1, 2, 3, 4]
    for partition in (0, 1):
        assert read(broker, topic, 0, 3, partition) == [b"%d" % partition] * 3
    assert not send(broker, topic, [b"new"], partition=4)
    assert read(broker, topic, 0, 1, 4) == [b"new"]
    assert folder(broker, topic, 4).is_dir()
    for count in (5, 3):
        with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
            admin.create_partitions([NewPartitions(topic, count)])[topic].result(DEADLINE_S)
