"""`tidelog groups remove-members` and `tidelog transactions fence`: who is removed, what is ended, who is told what."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.cli.conftest import Tidelog

from tidelog.client.blocking import BlockingCluster
from tidelog.client.cluster import Cluster
from tidelog.client.errors import Fenced
from tidelog.client.producer import Producer, ProducerSettings
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages


class Group:
    """A group's members, without clients that would join again."""

    def __init__(self, cluster: BlockingCluster, name: str) -> None:
        self._cluster = cluster
        self.name = name

    def ask(self, message: Any) -> Any:
        routing = self._cluster.routing
        asked = routing.ask_coordinator(self.name, message, routing.deadline(), lambda answer: (answer.error_code,))
        return self._cluster.run(asked)

    def join_classic(self, instance_id: str | None = None) -> str:
        """The member's id. The group waits for its leader's assignment for ever."""
        join = messages.JoinGroupRequest
        wanted = join(
            group_id=self.name,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[join.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
        )
        answer = self.ask(wanted)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            wanted.member_id = answer.member_id
            answer = self.ask(wanted)
        assert answer.error_code == ErrorCode.NONE
        return str(answer.member_id)

    def join(self, member_id: str, instance_id: str | None = None) -> str:
        """By KIP-848."""
        answer = self.ask(
            messages.ConsumerGroupHeartbeatRequest(
                group_id=self.name,
                member_id=member_id,
                instance_id=instance_id,
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=["nothing"],
                topic_partitions=[],
            )
        )
        assert answer.error_code == ErrorCode.NONE
        return member_id


@pytest.fixture
def group(bootstrap: str, topic: str) -> Iterator[Group]:
    """Nobody is in it yet."""
    with BlockingCluster(bootstrap) as cluster:
        yield Group(cluster, topic)


def members(tidelog: Tidelog, group: Group) -> list[str]:
    """The ids of those that are in the group."""
    (described,) = tidelog("groups", "describe", group.name, "--members", "-o", "json").json
    return sorted(each["member"] for each in described["members"])


def test_a_static_member_of_a_classic_group(tidelog: Tidelog, group: Group) -> None:
    """By its instance id alone; a second time it is none."""
    group.join_classic("i")
    command = ("groups", "remove-members", group.name, "--instance-id", "i")
    assert tidelog(*command, "--reason", "its machine is gone") == (0, f"Removed i from group {group.name}.\n", "")
    assert members(tidelog, group) == []
    assert tidelog(*command) == (1, "", f"tidelog: group '{group.name}' has no member 'i'\n")


def test_a_dynamic_member_of_a_classic_group(tidelog: Tidelog, group: Group) -> None:
    """By its id; what is named and not there is told, the rest is removed."""
    member = group.join_classic()
    removed = tidelog("groups", "remove-members", group.name, "--member-id", member, "--member-id", "x", "-o", "json")
    assert removed.code == 1
    assert removed.json == [{"group": group.name, "member": member, "instance": None}]
    assert removed.err == f"tidelog: group '{group.name}' has no member 'x'\n"
    assert members(tidelog, group) == []


def test_everyone_in_a_consumer_group(tidelog: Tidelog, group: Group) -> None:
    """KIP-848: static members by their instance ids, the others by the heartbeat with which they would leave."""
    for name in ("a", "b"):
        group.join(name)
    group.join("c", "i")
    removed = tidelog("groups", "remove-members", group.name, "--member-id", "a")
    assert removed == (0, f"Removed a from group {group.name}.\n", "")
    assert members(tidelog, group) == ["b", "c"]
    removed = tidelog("groups", "remove-members", group.name, "--all-members")
    assert removed.err == ""
    assert sorted(removed.lines) == [f"Removed b from group {group.name}.", f"Removed i from group {group.name}."]
    assert members(tidelog, group) == []
    assert tidelog("groups", "remove-members", group.name, "--all-members") == (0, "", "")


def test_whom_to_remove_must_be_said(tidelog: Tidelog, group: Group) -> None:
    """And the group must be there."""
    assert tidelog("groups", "remove-members", group.name).code == 2
    assert tidelog("groups", "remove-members", group.name, "--all-members", "--member-id", "a").code == 2
    refused = tidelog("groups", "remove-members", group.name, "--all-members")
    assert refused == (1, "", f"tidelog: group '{group.name}' does not exist\n")


def test_a_fenced_producer_has_its_transaction_aborted(tidelog: Tidelog, topic: str, bootstrap: str) -> None:
    """It learns of that when it commits; another of that id goes on. An id that was never there gets an epoch."""
    tidelog("topics", "create", topic)

    async def produce() -> None:
        settings = ProducerSettings(transactional_id=topic, linger_ms=0)
        async with Cluster(bootstrap) as cluster:
            async with Producer(cluster, settings) as producer:
                await producer.begin()
                await (await producer.send(topic, b"never")).place()
                fenced = await asyncio.to_thread(tidelog, "transactions", "fence", topic, "-o", "json")
                assert fenced.code == 0
                assert [entry["transactionalId"] for entry in fenced.json] == [topic]
                with pytest.raises(Fenced):
                    await producer.commit()
            async with Producer(cluster, settings) as another, another.transaction():
                await another.send(topic, b"read")

    asyncio.run(produce())
    assert tidelog("consume", topic, "--read-committed").out == "read\n"
    fenced = tidelog("transactions", "fence", f"{topic}-new")
    assert fenced.code == 0
    assert fenced.out.startswith(f"{topic}-new: producers before epoch ")
