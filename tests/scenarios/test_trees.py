"""A cluster's whole tree in the metadata store, and the order in which brokers write at their start: as Kafka's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from tests.interop.support import DEADLINE_S
from tests.scenarios.kafka_flows import CAPTURE as FLOWS
from tests.scenarios.kafka_trees import AFTER_START, END, captured, dump, lines, node_line, without_versions
from tests.scenarios.store_tool import tool
from tests.waiting import until

from tidelog.launcher import metadata_store
from tidelog.metadata import znodes
from tidelog.metadata.operations import Check, Create, Operation, SetData
from tidelog.metadata.replica_marks import MARKS
from tidelog.model.identifiers import TopicPartition
from tidelog.ports.real import SystemClock, SystemDisk, SystemRandom
from tidelog.store.client import Created, OperationResult, Stat
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.local import LocalStore
from tidelog.store.sqlite import SqlitePersistence
from tidelog.testing import Cluster

pytestmark = pytest.mark.row("R23")

OF_RELEASES: Final = ("/controller", "/feature", "/latest_producer_id_block")
"""Nodes that 3.9.1 writes in a newer version; ours as 2.8.2."""


def test_the_copies_are_the_capture() -> None:
    """Where that is at hand."""
    start, end = captured("after_start_2.8.2"), captured("end_3.9.1")
    if start is None or end is None:
        pytest.skip("the capture is not at hand")
    assert [each for each in start if not each.startswith("/latest_producer")] == lines(AFTER_START)
    assert without_versions(end, *OF_RELEASES) == lines(END)


def test_the_tree_after_the_start() -> None:
    """Three brokers: node for node, with versions, contents and access lists; nobody has asked for producer ids yet."""
    with Cluster(brokers=3) as cluster, tool(cluster) as client:
        found = dump(client, numbers(client))
    assert "/latest_producer_id_block 0" in found
    found.remove("/latest_producer_id_block 0")
    assert found == sorted(lines(AFTER_START))


@pytest.mark.row("R05")
@pytest.mark.row("R08")
@pytest.mark.row("R12")
@pytest.mark.row("R24")
@pytest.mark.row("R29")
def test_the_tree_after_a_life() -> None:
    """What 3.9.1 was put through: the API, an old tool's writes, an idempotent producer, crashes, the controller's too.

    Every node ends as it did there, its version included: so often it was written, and no more.
    """
    settings = {"auto.leader.rebalance.enable": False, "auto.create.topics.enable": False}
    with Cluster(settings, brokers=3, processes=True) as cluster, tool(cluster) as client:
        ours = {number: id for id, number in numbers(client).items()}
        live_as_captured(cluster, client, [ours[number] for number in range(3)])
        found = dump(client, {id: number for number, id in ours.items()})
    assert without_versions(found, *OF_RELEASES) == sorted(lines(END))


def live_as_captured(cluster: Cluster, client: KazooClient, ids: list[int]) -> None:
    """The flows of 3.9.1, in their order; `ids` are ours for its brokers 0, 1 and 2."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assignment = [[ids[1], ids[0]], [ids[0], ids[2]]]
    wanted = NewTopic("t39", 2, replica_assignment=assignment, config={"retention.ms": "100000"})
    admin.create_topics([wanted])["t39"].result(DEADLINE_S)
    node = "/brokers/topics/old"
    # kafka-topics --create, --alter; kafka-reassign-partitions --execute; kafka-preferred-replica-election.
    client.create("/config/topics/old", znodes.encode_config({}))
    client.create(node, topic([[ids[2], ids[0]], [ids[0], ids[1]]]))
    until(lambda: client.exists(f"{node}/partitions/1/state"), "partitions of a tool's topic")
    client.set(node, topic([[ids[2], ids[0]], [ids[0], ids[1]], [ids[1], ids[2]]], client.get(node)[0]))
    until(lambda: client.exists(f"{node}/partitions/2/state"), "another partition")
    client.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment({TopicPartition("old", 0): ids}))
    until(lambda: client.exists(znodes.REASSIGN_PARTITIONS) is None, "the reassignment's end")
    every = [TopicPartition("t39", 0), TopicPartition("old", 0), TopicPartition("old", 1)]
    client.create(znodes.PREFERRED_ELECTION, znodes.encode_partitions(every))
    until(lambda: client.exists(znodes.PREFERRED_ELECTION) is None, "the election's end")
    assert state(client, "old", 0)["leader"] == ids[0]
    # kafka-configs, for a topic and a user; kafka-topics --delete.
    client.set("/config/topics/old", znodes.encode_config({"retention.ms": "9999"}))
    client.create("/config/users/bob", znodes.encode_config({"SCRAM-SHA-256": "salt=c2FsdA=="}))
    for entity in ("topics/old", "users/bob"):
        client.create("/config/changes/config_change_", znodes.encode_config_change(entity), sequence=True)
    client.create("/admin/delete_topics/old")
    until(lambda: client.exists("/admin/delete_topics/old") is None, "the topic's end")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    producer.produce("t39", b"record", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    cluster.kill(ids[2])
    until(lambda: state(client, "t39", 1)["isr"] == [ids[0]], "the dead one is out of the ISR")
    cluster.restart(ids[2])
    until(lambda: state(client, "t39", 1)["isr"] == [ids[0], ids[2]], "it is back in the ISR")
    cluster.kill(ids[0])
    until(lambda: state(client, "t39", 1)["leader"] == ids[2], "another controller, another leader")
    cluster.restart(ids[0])
    for partition, first in ((0, ids[1]), (1, ids[2])):
        until(partial(has_isr, client, partition, [first, ids[0]]), "it is back in the ISR")
    until(lambda: client.exists(MARKS) is None, "elections have taken account of the last kill")


def topic(assignment: list[list[int]], written: bytes | None = None) -> bytes:
    """A topic's node as the tool of 2.8.2 writes it: with the id that it has read."""
    topic_id = {} if written is None else {"topic_id": json.loads(written)["topic_id"]}
    partitions = {str(index): replicas for index, replicas in enumerate(assignment)}
    content = {"partitions": partitions, **topic_id, "adding_replicas": {}, "removing_replicas": {}, "version": 3}
    return json.dumps(content, separators=(",", ":")).encode()


def state(client: KazooClient, name: str, partition: int) -> Any:
    return json.loads(client.get(znodes.state_path(name, partition))[0])


def has_isr(client: KazooClient, partition: int, isr: list[int]) -> bool:
    return bool(state(client, "t39", partition)["isr"] == isr)


def numbers(client: KazooClient) -> dict[int, int]:
    """The controller is number 0, the others follow."""
    controller = znodes.decode_controller(client.get(znodes.CONTROLLER)[0])
    others = sorted(int(name) for name in client.get_children("/brokers/ids") if int(name) != controller)
    return {id: number for number, id in enumerate([controller, *others])}


def test_the_tree_after_the_end(tmp_path: Path) -> None:
    """When all brokers have stopped, what was theirs is gone, and the rest is as it was."""
    cluster = Cluster(brokers=2, data=str(tmp_path))
    with cluster, tool(cluster) as client:
        before = dump(client, {})
        persistent = [each.partition(" ")[0] for each in before if " ephemeral" not in each]
    assert len(before) - len(persistent) == 3

    async def stored() -> list[str]:
        store = EmbeddedStore(SqlitePersistence(f"{tmp_path}/store", SystemDisk()), SystemClock(), SystemRandom())
        store.start()
        paths = [path for path in store.tree.paths() if path not in ("", "/")]
        await store.close()
        return paths

    assert sorted(path for path in asyncio.run(stored()) if not path.startswith("/zookeeper")) == persistent


# The order of writes.


class Recording(LocalStore):
    """A session that notes what it writes, a line each; what is written together stands together."""

    sessions: list[Recording]

    @property
    def transcript(self) -> list[str]:
        if not hasattr(self, "_transcript"):
            self._transcript: list[str] = []
            Recording.sessions.append(self)
        return self._transcript

    def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> Awaitable[Created]:
        self.transcript.append(line(Create(path, data, ephemeral, sequential)))
        return super().create(path, data, ephemeral=ephemeral, sequential=sequential)

    def set(self, path: str, data: bytes | None, version: int = -1) -> Awaitable[Stat]:
        self.transcript.append(line(SetData(path, data, version)))
        return super().set(path, data, version)

    def multi(self, operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
        self.transcript.append(" + ".join(line(each) for each in operations if not isinstance(each, Check)))
        return super().multi(operations)


def line(operation: Operation) -> str:
    data = getattr(operation, "data", None)
    kind = {"Create": "create", "SetData": "set", "Delete": "delete"}[type(operation).__name__]
    return f"{kind} {node_line(operation.path, None if data is None else data.decode(), 0)}"


def captured_start(name: str, *, without: str) -> list[str] | None:
    """What a broker wrote at its start, in the same form; None where the capture is not at hand."""
    if not FLOWS.exists():
        return None
    [flow] = [flow for flow in json.loads(FLOWS.read_bytes()) if flow["name"] == name]
    found = []
    for write in flow["writes"]:
        operations = [each for each in write.get("ops", [write]) if each["op"] in ("create", "set")]
        texts = [f"{each['op']} {node_line(each['path'], each.get('data'), 0)}" for each in operations]
        if texts and not any(without in text for text in texts):
            found.append(" + ".join(texts))
    return found


def test_what_brokers_write_at_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one: containers, the cluster's id, itself, controller and epoch at once. A later one: itself."""
    Recording.sessions = []
    monkeypatch.setattr(metadata_store, "LocalStore", Recording)
    with Cluster() as cluster:
        [first] = Recording.sessions
        begun = list(first.transcript)
        cluster.restart(0)
        again = Recording.sessions[-1].transcript
        registration = next(each for each in begun if "/brokers/ids/0 " in each)
        assert again[0] == registration
        assert [each.split()[1] for each in again] == ["/brokers/ids/0", "/controller"]
    expected = captured_start("first-broker-start", without="/latest_producer_id_block 0 {")
    if expected is not None:
        assert begun == expected
    assert begun[0] == "create /consumers 0"
    assert begun[-2].startswith("create /controller 0 {")
    assert " + set /controller_epoch 0 1" in begun[-2]
    other = captured_start("v3.9-start-1", without="/latest_producer_id_block 0 {")
    if other is not None:
        assert [each.replace("/brokers/ids/1", "/brokers/ids/0") for each in other] == [registration]
