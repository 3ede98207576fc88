"""A topic's life on one broker; a cluster of three, expanded by a fourth broker, and partitions moved onto it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import ConfigResource, NewPartitions

from tests.conformance.documents.commands import ELECTION
from tests.conformance.documents.conftest import Open
from tests.conformance.documents.joining import joined
from tests.conformance.documents.placement import is_drawn
from tests.conformance.documents.printing import Partition, plan, planned
from tests.conformance.documents.site import Site
from tests.conformance.zookeeper import shell

ALONE = Partition.of(0, "0")
BEFORE = [[1, 2, 0], [2, 0, 1], [0, 1, 2], [1, 2, 0]]
"""Where the document's cluster has its four partitions; the last was added."""
PLAN = {1: [1, 2, 3], 3: [3, 0, 1], 0: [0, 1, 2], 2: [2, 3, 0]}

pytestmark = pytest.mark.timeout(600)
"""Dozens of commands, each a start of Java: a second on a quiet machine."""


@pytest.fixture(scope="module")
def alone(open_site: Open) -> Iterator[Site]:
    """One broker, whose only user has committed an offset, as the document's had."""
    with open_site({}, brokers=1) as site:
        site.create("read", [[0]])
        consumer = Consumer({"bootstrap.servers": site.cluster.bootstrap, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition("read", 0, 0)], asynchronous=False)
        consumer.close()
        site.delete("read")
        yield site


@pytest.mark.row("R05")
@pytest.mark.row("R06")
@pytest.mark.row("R07")
@pytest.mark.row("R08")
@pytest.mark.row("R09")
def test_a_topics_life(alone: Site) -> None:
    """Created, seen in the store, listed, described, configured, grown, never shrunk, deleted with its files."""
    site = alone
    site.type("expanding: create misspelt")
    assert "topicone" not in site.children("/brokers/topics")
    site.type("expanding: create", topic="topicone")
    site.settle("topicone")
    _see_in_the_store(site)
    site.type("expanding: list")
    site.type("expanding: describe", described=site.described("topicone", [ALONE] * 2))
    site.produce("topicone")
    before = site.topic("topicone")["topic_id"]

    site.type("expanding: alter config")
    assert site.get("/config/topics/topicone")["config"] == {"flush.messages": "1"}
    site.until(lambda: site.setting("topicone", "flush.messages") == ("1", True))
    site.type("expanding: describe configured", described=site.described("topicone", [ALONE] * 2, "flush.messages=1"))

    site.type("expanding: grow")
    site.settle("topicone")
    site.type("expanding: describe grown", described=site.described("topicone", [ALONE] * 3, "flush.messages=1"))
    site.type("expanding: shrink")
    assert len(site.assignment("topicone")) == 3
    assert site.topic("topicone")["topic_id"] == before

    site.type("expanding: delete", topic="topicone")
    site.until(lambda: site.is_gone("topicone"))


def _see_in_the_store(site: Site) -> None:
    """The document's `get`, with what it shows of the node."""
    found = shell(site.hosts, ["get -s /brokers/topics/topicone"]).lines
    node = next(line for line in found if line.startswith("{"))
    assert json.loads(node)["partitions"] == {"0": [0], "1": [0]}
    shown = dict(line.split(" = ") for line in found if " = " in line)
    # Written by the tool without an id, which the controller gives it (as from Kafka 2.8 on); or once, by the broker.
    assert shown["dataVersion"] == ("1" if site.way.by_store else "0")
    assert {name: shown[name] for name in ("cversion", "aclVersion", "ephemeralOwner", "numChildren")} == {
        "cversion": "1",
        "aclVersion": "0",
        "ephemeralOwner": "0x0",
        "numChildren": "1",
    }
    assert shown["dataLength"] == str(len(node))


@pytest.mark.row("R07")
@pytest.mark.row("R09")
def test_the_admin_client(alone: Site) -> None:
    """The document's Java: a setting altered in the way that replaces all others, and five partitions."""
    site = alone
    site.create("topicone", [[0]], {"flush.messages": "1"})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "topicone", set_config={"cleanup.policy": "compact"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        altered = site.admin.alter_configs([resource])
    altered[resource].result(10)
    assert site.get("/config/topics/topicone")["config"] == {"cleanup.policy": "compact"}
    site.until(lambda: site.setting("topicone", "cleanup.policy") == ("compact", True))
    site.admin.create_partitions([NewPartitions("topicone", 5)])["topicone"].result(10)
    site.settle("topicone")
    assert site.assignment("topicone") == {number: [0] for number in range(5)}
    site.delete("topicone")


@pytest.mark.row("R05")
def test_more_replicas_than_brokers(alone: Site) -> None:
    """Refused, by whoever places the replicas; nothing is left of the attempt."""
    alone.type("expanding: create too many", factor="2", brokers="1")
    assert "toomany" not in alone.children("/brokers/topics")
    assert "toomany" not in alone.children("/config/topics")


@pytest.mark.row("R08")
def test_deletion_disabled(open_site: Open) -> None:
    """The old tools mark the topic all the same; the mark goes, the topic stays, used or not, over a restart too."""
    with open_site({"delete.topic.enable": False}, brokers=1) as site:
        site.create("kept", [[0]])
        site.produce("kept")
        site.type("expanding: delete refused", topic="kept")
        site.until(lambda: site.children("/admin/delete_topics") == [], "the mark is gone")
        site.settle("kept")
        site.cluster.restart(0)
        site.settle("kept")


@pytest.fixture(scope="module")
def cluster(open_site: Open) -> Iterator[Site]:
    """Three brokers in processes, since a fourth is made from the first one's file."""
    with open_site({"auto.leader.rebalance.enable": False}, brokers=3, processes=True) as site:
        yield site


@pytest.mark.row("R12")
@pytest.mark.row("R13")
@pytest.mark.row("R14")
def test_partitions_move_to_a_new_broker(cluster: Site) -> None:
    """Three brokers, a partition more, a broker more, a plan, its execution; leaders as the document's in the end."""
    site = cluster
    topic = "topic-cluster"
    site.type("expanding: cluster create", topic=topic)
    site.settle(topic)
    assert is_drawn(site.assignment(topic), [0, 1, 2])
    site.type("expanding: cluster describe", described=site.described(topic))

    # From here on with the document's draw.
    site.delete(topic)
    site.create(topic, BEFORE[:3])
    site.type("expanding: cluster grow")
    site.settle(topic)
    shown = [Partition(replicas[0], tuple(replicas), tuple(replicas)) for replicas in BEFORE]
    site.type("expanding: cluster describe grown", described=site.described(topic, shown))
    site.produce(topic)

    with joined(site, 3):
        site.until(lambda: "3" in site.children("/brokers/ids"))
        site.type("expanding: cluster describe joined", described=site.described(topic, shown))
        assert not any(broker == 3 for broker, _ in site.folders(topic))

        site.write("reassign.json", json.dumps({"topics": [{"topic": topic}], "version": 1}))
        printed = site.type("expanding: generate", current=site.current(topic, BEFORE))
        proposed = next(line for line in reversed(printed.out.splitlines()) if line)
        assert is_drawn(planned(proposed), [0, 1, 2, 3])
        site.type("expanding: generate too few", factor="3", brokers="1")

        site.write("assignplan.json", plan(topic, PLAN))
        site.type("expanding: execute", current=site.current(topic, BEFORE), **site.moved(topic))
        site.settle(topic)
        site.until(lambda: site.get("/admin/reassign_partitions") is None)
        site.type("expanding: verify", **site.moved(topic))
        moved = [
            Partition.of(1, "0,1,2", "1,2,0"),
            Partition.of(2, "1,2,3", "2,1,3"),
            Partition.of(0, "2,3,0", "0,2,3"),
            Partition.of(1, "3,0,1", "1,0,3"),
        ]
        site.type("expanding: cluster describe reassigned", described=site.described(topic, moved))
        site.check_replicas(topic)

        chosen = [{"topic": topic, "partition": number} for number in (1, 2, 3)]
        file = site.write("election.json", json.dumps({"partitions": chosen}))
        site.type_this(ELECTION, file=str(file), partitions=",".join(f"{topic}-{number}" for number in (1, 2, 3)))
        leaders = [1, 1, 2, 3]
        site.until(lambda: [each.leader for each in site.metadata(topic)] == leaders)
        elected = [Partition(leader, each.replicas, each.isr) for leader, each in zip(leaders, moved, strict=True)]
        site.type("expanding: cluster describe elected", described=site.described(topic, elected))
        _raise_the_factor(site)


def _raise_the_factor(site: Site) -> None:
    topic = "topic-cluster2"
    site.create(topic, [[0], [1], [2]])
    site.produce(topic)
    before = site.current(topic)
    site.write("replication-factor.json", plan(topic, [[0, 1, 2]] * 3, directory=None))
    site.type("expanding: raise factor", current=before, **site.moved(topic))
    site.until(lambda: site.assignment(topic) == {number: [0, 1, 2] for number in range(3)})
    site.settle(topic)
    site.until(lambda: site.get("/admin/reassign_partitions") is None)
    site.type("expanding: raise factor verify", **site.moved(topic))
    assert [each.leader for each in site.partitions(topic)] == [0, 1, 2]
    site.check_replicas(topic)
