"""Nodes of every kind that somebody broke: the message names the node, once, and the rest of the cluster goes on."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.amount import thorough
from tests.interop.support import DEADLINE_S, topic_name
from tests.scenarios.observing import described, read, send
from tests.scenarios.store_tool import tool
from tests.waiting import until

from tidelog.broker.failure import BrokerFailed
from tidelog.metadata import znodes
from tidelog.testing import Cluster

pytestmark = [pytest.mark.row("R23"), pytest.mark.row("R24")]

GARBAGE: Final = [
    pytest.param(b"{", id="cut short"),
    pytest.param(
        b'{"version":1,"partitions":{"0":{"a":[]}},"config":{"retention.ms":7},"entity_path":{},"brokerid":"x"}',
        id="other types",
        marks=thorough,
    ),
]

OF_TOMORROW: Final = pytest.param(
    b'{"version":99,"partitions":{"0":[0]},"config":{},"entity_path":"topics/good"}', id="of tomorrow"
)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three brokers; topic `good` is nobody's business."""
    settings = {"auto.create.topics.enable": False, "log.initial.task.delay.ms": 0, "default.replication.factor": 3}
    with Cluster(settings, brokers=3) as cluster:
        make(cluster, "good", 3)
        yield cluster


def make(cluster: Cluster, name: str, partitions: int = 1, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin.create_topics([NewTopic(name, partitions, 3, config=config)])[name].result(DEADLINE_S)


def goes_on(cluster: Cluster) -> None:
    """What has nothing to do with the broken node works: records, new topics, settings."""
    fresh = topic_name("fresh")
    make(cluster, fresh, 3)
    for name in ("good", fresh):
        for partition in range(3):
            assert not send(cluster, name, [b"record"], partition=partition, acks="all")
    assert read(cluster, fresh, 0, 1, 2) == [b"record"]
    assert len(cluster.runtimes) == 3


def complaints(caplog: pytest.LogCaptureFixture, path: str) -> list[str]:
    """The messages that name a node."""
    return [each.getMessage() for each in caplog.records if path in each.getMessage() and each.levelno >= logging.ERROR]


def is_gone(client: KazooClient, path: str) -> bool:
    return client.exists(path) is None


def another_controller(cluster: Cluster, client: KazooClient) -> None:
    """Somebody deletes /controller; when it is there again, its holder has read the store."""
    epoch = int(client.get(znodes.CONTROLLER_EPOCH)[0])
    client.delete(znodes.CONTROLLER)
    until(lambda: int(client.get(znodes.CONTROLLER_EPOCH)[0]) > epoch, "another controller")


@pytest.mark.parametrize("garbage", [*GARBAGE, OF_TOMORROW])
def test_topics(cluster: Cluster, garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A topic's node is put back while its controller lives; one that was never read keeps its name taken."""
    make(cluster, "t", 1)
    with tool(cluster) as client:
        before, _ = client.get("/brokers/topics/t")
        client.set("/brokers/topics/t", garbage)
        client.create("/brokers/topics/stranger", garbage)
        client.create("/brokers/topics/no topic's name", before)
        until(lambda: client.get("/brokers/topics/t")[0] == before, "the node is put back")
        for path in ("/brokers/topics/t", "/brokers/topics/stranger", "/brokers/topics/no topic's name"):
            until(partial(complaints, caplog, path), "a message")
        goes_on(cluster)
        assert not send(cluster, "t", [b"record"])
        another_controller(cluster, client)
        goes_on(cluster)
        # Mended, it is a topic like any other, without another election.
        client.set("/brokers/topics/stranger", b'{"version":1,"partitions":{"0":[1,2]}}')
        until(lambda: client.exists("/brokers/topics/stranger/partitions/0/state"), "a leader")
    assert not send(cluster, "stranger", [b"record"])


@pytest.mark.parametrize("garbage", GARBAGE)
def test_states(cluster: Cluster, garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The leader serves on; for the next controller nobody leads the partition, until its state is mended."""
    make(cluster, "t", 2)
    path = "/brokers/topics/t/partitions/0/state"
    with tool(cluster) as client:
        before, _ = client.get(path)
        client.set(path, garbage)
        goes_on(cluster)
        assert not send(cluster, "t", [b"record"])
        another_controller(cluster, client)
        until(lambda: complaints(caplog, path), "a message")
        goes_on(cluster)
        assert not send(cluster, "t", [b"record"], partition=1)
        assert len(complaints(caplog, path)) == 1
        client.set(path, before.replace(b'"leader_epoch":0', b'"leader_epoch":1'))
        until(lambda: partition_leader(cluster, "t") >= 0, "a leader")
    assert not send(cluster, "t", [b"another"])
    assert read(cluster, "t", 0, 2) == [b"record", b"another"]


def partition_leader(cluster: Cluster, topic: str) -> int:
    found = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic, timeout=DEADLINE_S)
    partition = found.topics[topic].partitions.get(0)
    return -1 if partition is None else int(partition.leader)


@pytest.mark.parametrize("known", [True, False])
def test_nodes_below_a_topic(cluster: Cluster, known: bool) -> None:
    """They go with the topic, whether its controller has read them or comes upon them."""
    make(cluster, "t", 2)
    with tool(cluster) as client:
        for name in ("partitions/foo/state", "partitions/7", "partitions/1/notes", "notes"):
            client.ensure_path(f"/brokers/topics/t/{name}")
        if known:
            another_controller(cluster, client)
        assert not send(cluster, "t", [b"record"])
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.delete_topics(["t"])["t"].result(DEADLINE_S)
        until(partial(is_gone, client, "/brokers/topics/t"), "the topic is gone")
        until(partial(is_gone, client, "/admin/delete_topics/t"), "the request to delete it is gone")
        goes_on(cluster)
        make(cluster, "t", 2)
    assert not send(cluster, "t", [b"record"])


@pytest.mark.parametrize("garbage", GARBAGE)
def test_settings(cluster: Cluster, garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever has them: what held before holds. A broker that starts does not know it, and lets nothing expire."""
    make(cluster, "t", 1, retention_ms="-1", max_message_bytes="1000")
    names = ("topics/t", "brokers/1", "brokers/<default>", "users/u", "users/<default>", "users/u/clients/c")
    with tool(cluster) as client:
        for name in (*names, "clients/c", "ips/127.0.0.9"):
            client.ensure_path(f"/config/{name}")
            client.set(f"/config/{name}", garbage)
            change = znodes.encode_config_change(name)
            client.create("/config/changes/config_change_", change, sequence=True)
        client.create("/config/changes/config_change_", garbage, sequence=True)
        client.create("/config/changes/no change", garbage)
        # Notifications are followed in order: this one comes after all those.
        client.set("/config/topics/good", znodes.encode_config({"max.message.bytes": "2000"}))
        client.create("/config/changes/config_change_", znodes.encode_config_change("topics/good"), sequence=True)
        until(lambda: described(cluster, "good")["max.message.bytes"] == "2000", "the notification is followed")
        settings = described(cluster, "t")
        assert (settings["retention.ms"], settings["max.message.bytes"]) == ("-1", "1000")
        for path in ("/config/topics/t", "/config/brokers/<default>"):
            until(partial(complaints, caplog, path), "a message")
        goes_on(cluster)
        another_controller(cluster, client)
        goes_on(cluster)
        for broker_id in (0, 1, 2):
            cluster.restart(broker_id)
        assert described(cluster, "t")["retention.ms"] == "-1"
        goes_on(cluster)
        # By the API it is written anew.
        client.set("/config/topics/t", znodes.encode_config({"max.message.bytes": "3000"}))
        client.create("/config/changes/config_change_", znodes.encode_config_change("topics/t"), sequence=True)
        until(lambda: described(cluster, "t")["max.message.bytes"] == "3000", "mended settings take effect")


def test_settings_that_cannot_be(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Tools write what they like: wrong values and unknown names are said and left out, the others take effect."""
    make(cluster, "t", 1, max_message_bytes="1000")
    wrong = {"retention.ms": "soon", "cleanup.policy": "burn", "no.such.setting": "1", "max.message.bytes": "2000"}
    brokers = {
        "log.cleaner.threads": "many",
        "no.such.setting": "1",
        "log.retention.ms": "soon",
        "min.insync.replicas": "-7",
    }
    with tool(cluster) as client:
        for entity, config in (
            ("brokers/<default>", brokers),
            ("brokers/1", brokers),
            ("brokers/seven", brokers),
            ("topics/t", wrong),
            ("topics/ghost", wrong),
        ):
            client.ensure_path(f"/config/{entity}")
            client.set(f"/config/{entity}", znodes.encode_config(config))
            client.create("/config/changes/config_change_", znodes.encode_config_change(entity), sequence=True)
        until(lambda: described(cluster, "t")["max.message.bytes"] == "2000", "what is right takes effect")
        assert not send(cluster, "t", [b"record"])
        goes_on(cluster)
        another_controller(cluster, client)
        goes_on(cluster)
        cluster.restart(1)
        goes_on(cluster)
        assert not send(cluster, "t", [b"record"])
    for path in ("/config/topics/t ", "/config/brokers/<default> ", "/config/brokers/1 "):
        assert [each for each in complaints(caplog, path) if "retention.ms" in each]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_what_tools_ask_for(cluster: Cluster, garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Requests and notices that cannot be read go all the same, or no tool could ask again."""
    with tool(cluster) as client:
        asked = [
            client.create("/admin/preferred_replica_election", garbage),
            client.create("/admin/delete_topics/ghost", garbage),
            client.create("/isr_change_notification/isr_change_", garbage, sequence=True),
            client.create("/log_dir_event_notification/log_dir_event_", garbage, sequence=True),
        ]
        for path in asked:
            until(partial(is_gone, client, path), path)
        until(partial(complaints, caplog, "/admin/preferred_replica_election"), "a message")
        goes_on(cluster)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_brokers(cluster: Cluster, garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A broker whose node somebody overwrites is what it was; strangers that say nothing readable are left out."""
    with tool(cluster) as client:
        before, _ = client.get("/brokers/ids/1")
        client.set("/brokers/ids/1", garbage)
        client.create("/brokers/ids/7", garbage, ephemeral=True)
        client.create("/brokers/ids/99999999999", before, ephemeral=True)
        client.create("/brokers/ids/seven", before, ephemeral=True)
        for path in ("/brokers/ids/1", "/brokers/ids/7", "/brokers/ids/99999999999"):
            until(partial(complaints, caplog, path), "a message")
        goes_on(cluster)
        assert len(complaints(caplog, "/brokers/ids/7 ")) == 1
        metadata = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=DEADLINE_S)
        assert sorted(metadata.brokers) == [0, 1, 2]
        client.set("/brokers/ids/1", before)
        another_controller(cluster, client)
        goes_on(cluster)


def stored_epoch(client: KazooClient) -> int:
    """-1: it is not there, or no number."""
    try:
        return int(client.get(znodes.CONTROLLER_EPOCH)[0])
    except (NoNodeError, ValueError):
        return -1


@pytest.mark.parametrize("garbage", [b"-1", b"1e3", None])
def test_the_controllers_epoch(cluster: Cluster, garbage: bytes | None) -> None:
    """It is counted on from what the brokers know; None: the node is gone."""
    with tool(cluster) as client:
        if garbage is None:
            client.delete(znodes.CONTROLLER_EPOCH)
        else:
            client.set(znodes.CONTROLLER_EPOCH, garbage)
        # It notices at its next write, which may be in vain.
        with contextlib.suppress(KafkaException):
            make(cluster, "in-vain")
        until(lambda: stored_epoch(client) > 1, "mended")
        goes_on(cluster)
        another_controller(cluster, client)
        goes_on(cluster)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_the_controllers_node(cluster: Cluster, garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Records flow on; who controls is settled when the node is deleted."""
    with tool(cluster) as client:
        client.set(znodes.CONTROLLER, garbage)
        until(lambda: complaints(caplog, znodes.CONTROLLER), "a message")
        assert not send(cluster, "good", [b"record"])
        client.delete(znodes.CONTROLLER)
        goes_on(cluster)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_the_cluster_as_a_whole(garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Producer ids are not given twice; a cluster's id that nobody can read keeps a broker from starting."""
    with Cluster({"default.replication.factor": 3}, brokers=3) as cluster:
        make(cluster, "good", 3)
        with tool(cluster) as client:
            for path in ("/latest_producer_id_block", "/cluster/id", "/feature", "/brokers/seqid"):
                client.set(path, garbage)
            for container in ("/isr_change_notification", "/config/ips", "/config/clients"):
                client.delete(container)
            goes_on(cluster)
            another_controller(cluster, client)
            goes_on(cluster)
            cluster.stop(2)
            with pytest.raises(BrokerFailed, match="/cluster/id"):
                cluster.start(2)
            client.set("/cluster/id", znodes.encode_cluster_id(cluster.runtime.node.cluster_id))
            cluster.start(2)
            goes_on(cluster)
    assert complaints(caplog, "/latest_producer_id_block")
