"""From outside: a leader is killed, another one leads; the first is back, follows, and gets its leaderships again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.waiting import until_equal

from tidelog import cli
from tidelog.testing import Cluster

DEADLINE_S = 180.0
PARTITIONS = [TopicPartition("t", index) for index in range(3)]
PREFERRED = [0, 1, 2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three processes; the balance looks every second, after the first 5."""
    settings = {
        "leader.imbalance.check.interval.seconds": 1,
        "broker.session.timeout.ms": 9000,
        "zookeeper.session.timeout.ms": 6000,
        "auto.create.topics.enable": False,
    }
    with Cluster(settings, brokers=3, processes=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> AdminClient:
    """With a topic of three partitions on all brokers, each led by another one."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap, "topic.metadata.refresh.interval.ms": 200})
    topic = NewTopic("t", num_partitions=3, replica_assignment=[[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    client.create_topics([topic])["t"].result(DEADLINE_S)
    return client


def leaders(admin: AdminClient) -> list[int]:
    partitions = admin.list_topics("t", timeout=DEADLINE_S).topics["t"].partitions
    return [partitions[index].leader for index in sorted(partitions)]


def in_sync(admin: AdminClient) -> list[int]:
    partitions = admin.list_topics("t", timeout=DEADLINE_S).topics["t"].partitions
    return [len(partitions[index].isrs) for index in sorted(partitions)]


@pytest.mark.row("R11")
@pytest.mark.row("R29")
def test_leadership_moves_and_comes_back(cluster: Cluster, admin: AdminClient) -> None:
    """To the next replica in sync when the leader is killed; by itself to the first one when that is in sync again."""
    until_equal(lambda: leaders(admin), PREFERRED)
    cluster.kill(1)
    until_equal(lambda: leaders(admin), [0, 2, 2])
    until_equal(lambda: in_sync(admin), [2, 2, 2])
    cluster.restart(1)
    until_equal(lambda: in_sync(admin), [3, 3, 3])
    until_equal(lambda: leaders(admin), PREFERRED)


@pytest.mark.row("R29")
def test_elections_by_hand(cluster: Cluster, admin: AdminClient, capsys: pytest.CaptureFixture[str]) -> None:
    """By a client and by our command line: not needed where all is well; an unknown partition has its error."""
    until_equal(lambda: leaders(admin), PREFERRED)
    wanted = [*PARTITIONS, TopicPartition("t", 9)]
    results = admin.elect_leaders(ElectionType.PREFERRED, wanted).result(DEADLINE_S)
    names = {each.partition: error and error.name() for each, error in results.items()}
    assert names == dict.fromkeys(PREFERRED, "ELECTION_NOT_NEEDED") | {9: "UNKNOWN_TOPIC_OR_PART"}
    cluster.kill(2)
    until_equal(lambda: leaders(admin), [0, 1, 0])
    arguments = ["leaders", "elect", "-e", "preferred", "-t", "t", "-p", "2", "-b", cluster.bootstrap]
    assert cli.run(arguments) == 1
    assert "the preferred leader 2 is not live or not in sync" in capsys.readouterr().err
    cluster.restart(2)
    until_equal(lambda: in_sync(admin), [3, 3, 3])
    assert cli.run(arguments) == 0
    until_equal(lambda: leaders(admin), PREFERRED)
