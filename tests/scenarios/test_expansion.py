"""Partitions that are added go on where the creation ended, whoever made the topic and whoever lets it grow.

There was once a topic of two partitions made by Kafka's admin API, over the brokers in the order 1, 0, 2 in which
the cache happened to have them, and a third partition placed over 0, 1, 2: it landed on a broker in use. `the_defect`
brings that back, to see these tests fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kazoo.client import KazooClient
from tests.interop.support import DEADLINE_S, topic_name
from tests.scenarios.store_tool import tool
from tests.waiting import until

from tidelog.controller import topics
from tidelog.metadata import znodes
from tidelog.model.identifiers import TopicId
from tidelog.placement.assignment import assign_replicas, expand
from tidelog.placement.brokers import BrokerRack, in_creation_order
from tidelog.ports.real import SystemRandom
from tidelog.testing import Cluster

pytestmark = [pytest.mark.row("R09"), pytest.mark.row("R10")]

TOPICS: Final = 3
"""Of each kind: where a topic begins is drawn."""
RACKS: Final = {0: {"broker.rack": "a"}, 1: {"broker.rack": "a"}, 2: {"broker.rack": "b"}}
"""The list that goes through the racks is 0, 2, 1 here."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers."""
    with Cluster({"num.partitions": 2}, brokers=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def racks() -> Iterator[Cluster]:
    """Three brokers in two racks."""
    with Cluster({"num.partitions": 2}, brokers=3, of_broker=RACKS) as cluster:
        yield cluster


def leaders(client: KazooClient, name: str, count: int) -> list[int]:
    """The preferred leaders; when they are there, so is the controller's work."""
    until(lambda: client.exists(znodes.state_path(name, count - 1)), f"{count} partitions of {name}")
    return [replicas[0] for _, replicas in sorted(stored(client, name).partitions.items())]


def has_id(client: KazooClient, name: str, topic_id: TopicId) -> bool:
    return stored(client, name).topic_id == topic_id


def stored(client: KazooClient, name: str) -> znodes.TopicAssignment:
    return znodes.decode_topic(name, client.get(znodes.topic_path(name))[0])


# Who makes a topic of two partitions, and who adds a third one.


def created_by_the_api(cluster: Cluster, client: KazooClient, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(DEADLINE_S)


def created_when_asked_for(cluster: Cluster, client: KazooClient, name: str) -> None:
    AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(name, timeout=DEADLINE_S)


def created_by_the_old_tool(cluster: Cluster, client: KazooClient, name: str) -> None:
    """kafka-topics --zookeeper --create places by itself, over the sorted brokers that are registered."""
    assignment = assign_replicas(registered(client), 2, 1, random=SystemRandom())
    client.create(f"/config/topics/{name}", znodes.encode_config({}))
    client.create(znodes.topic_path(name), znodes.encode_topic(znodes.TopicAssignment(assignment)))


def grown_by_the_api(cluster: Cluster, client: KazooClient, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_partitions([NewPartitions(name, 3)])[name].result(DEADLINE_S)


def grown_by_the_old_tool(cluster: Cluster, client: KazooClient, name: str) -> None:
    """kafka-topics --zookeeper --alter of 2.8.2."""
    content = stored(client, name)
    added = expand(name, content.partitions, registered(client), 3, random=SystemRandom())
    grown = znodes.TopicAssignment({**content.partitions, **added}, content.topic_id)
    client.set(znodes.topic_path(name), znodes.encode_topic(grown))


def grown_by_the_documents_tool(cluster: Cluster, client: KazooClient, name: str) -> None:
    """The same of 2.2.1, which drops the topic's id."""
    content = stored(client, name)
    added = expand(name, content.partitions, registered(client), 3, random=SystemRandom())
    partitions = {str(index): list(ids) for index, ids in {**content.partitions, **added}.items()}
    client.set(znodes.topic_path(name), json.dumps({"version": 1, "partitions": partitions}).encode())


def registered(client: KazooClient) -> list[BrokerRack]:
    """The brokers as the tools read them."""
    ids = sorted(int(name) for name in client.get_children(znodes.BROKER_IDS))
    contents: list[dict[str, Any]] = [json.loads(client.get(znodes.broker_path(id))[0]) for id in ids]
    return [BrokerRack(id, content.get("rack")) for id, content in zip(ids, contents, strict=True)]


Step = Callable[[Cluster, KazooClient, str], None]
CREATED: Final[list[Step]] = [created_by_the_api, created_when_asked_for, created_by_the_old_tool]
GROWN: Final[list[Step]] = [grown_by_the_api, grown_by_the_old_tool, grown_by_the_documents_tool]


def check(cluster: Cluster, created: Step, grown: Step) -> None:
    """Each of the three brokers leads one of the three partitions; the topic is the same one throughout."""
    with tool(cluster) as client:
        for _ in range(TOPICS):
            name = topic_name("grown")
            created(cluster, client, name)
            before = leaders(client, name, 2)
            topic_id = stored(client, name).topic_id
            grown(cluster, client, name)
            after = leaders(client, name, 3)
            assert after[:2] == before
            assert sorted(after) == [0, 1, 2], "the new partition is on a broker in use"
            until(partial(has_id, client, name, topic_id), "the id is kept")


@pytest.mark.parametrize("grown", GROWN, ids=lambda step: step.__name__)
@pytest.mark.parametrize("created", CREATED, ids=lambda step: step.__name__)
def test_a_new_partition_is_on_the_unused_broker(cluster: Cluster, created: Step, grown: Step) -> None:
    """Every way of making a topic with every way of letting it grow."""
    check(cluster, created, grown)


@pytest.mark.row("R02")
@pytest.mark.parametrize("created", CREATED, ids=lambda step: step.__name__)
def test_with_racks(racks: Cluster, created: Step) -> None:
    """Kafka's tools count on from the wrong place there; the API does not."""
    check(racks, created, grown_by_the_api)


@pytest.fixture
def the_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics are made by the API over 1, 0, 2, and grow over 0, 1, 2, as in the document."""
    cached = [1, 0, 2]
    monkeypatch.setattr(topics, "in_creation_order", lambda live: sorted(live, key=lambda each: cached.index(each.id)))
    monkeypatch.setattr(topics, "in_order_of", lambda existing, live: in_creation_order(live))


@pytest.mark.usefixtures("the_defect")
@pytest.mark.parametrize("grown", GROWN, ids=lambda step: step.__name__)
@pytest.mark.parametrize("created", CREATED[:2], ids=lambda step: step.__name__)
def test_the_documents_defect_is_found(cluster: Cluster, created: Step, grown: Step) -> None:
    """With it, what the API makes fails the test above, whoever lets it grow."""
    with pytest.raises(AssertionError, match="on a broker in use"):
        check(cluster, created, grown)
