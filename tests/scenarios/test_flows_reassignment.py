"""What the controller writes while partitions move to other brokers: as Kafka 2.8.2, write by write.

Kafka goes through a plan in the order of a hash map; ours follows the plan, which is given in that order here.
"""

from __future__ import annotations

import json

import pytest
from tests.scenarios.kafka_flows import Flow

from tidelog.controller.requests import AlterReassignments, ReassignPartition
from tidelog.model.identifiers import BrokerId, TopicPartition

pytestmark = [pytest.mark.row("R12"), pytest.mark.row("R24")]


def topic(name: str, assignment: str, adding: str = "{}", removing: str = "{}") -> str:
    """A topic's node being written."""
    return (
        f'set /brokers/topics/{name} {{"partitions":{assignment},"topic_id":ID,"adding_replicas":{adding},'
        f'"removing_replicas":{removing},"version":3}}'
    )


def plan(name: str, **targets: list[int]) -> str:
    """The plan's node being written: p0=[1,2] is partition 0."""
    partitions = [{"topic": name, "partition": int(key[1:]), "replicas": ids} for key, ids in targets.items()]
    return (
        f"set /admin/reassign_partitions {json.dumps({'version': 1, 'partitions': partitions}, separators=(',', ':'))}"
    )


DONE = "delete /admin/reassign_partitions"


def test_a_tool_moves_partitions_to_a_new_broker() -> None:
    """Each partition by itself: topic, epoch + 1; the ISR grows; another leader, without the old one, topic, plan."""
    flow = Flow("reassign-execute", brokers=[0, 1, 2, 3]).given("""
        topic-cluster-0 (0,2,1) leader 0 epoch 0 isr 0,2,1 version 0
        topic-cluster-1 (1,0,2) leader 1 epoch 0 isr 1,0,2 version 0
        topic-cluster-2 (2,1,0) leader 2 epoch 0 isr 2,1,0 version 0
        topic-cluster-3 (0,2,1) leader 0 epoch 0 isr 0,2,1 version 0
    """)
    name = "topic-cluster"
    flow.plan((f"{name}-3", [2, 0, 1]), (f"{name}-2", [1, 3, 0]), (f"{name}-1", [0, 2, 3]), (f"{name}-0", [3, 1, 2]))
    others = '"0":[0,2,1],"1":[1,0,2],"2":[2,1,0]'
    flow.writes(f"""
        {topic(name, f'{{{others},"3":[2,0,1]}}')}
        --
        topic-cluster-3 leader 0 epoch 1 isr 0,2,1 version 1
        --
        {topic(name, f'{{{others},"3":[2,0,1]}}')}
        --
        {plan(name, p0=[3, 1, 2], p1=[0, 2, 3], p2=[1, 3, 0])}
        --
        {topic(name, '{"0":[0,2,1],"1":[1,0,2],"2":[1,3,0,2],"3":[2,0,1]}', '{"2":[3]}', '{"2":[2]}')}
        --
        topic-cluster-2 leader 2 epoch 1 isr 2,1,0 version 1
        --
        {topic(name, '{"0":[0,2,1],"1":[0,2,3,1],"2":[1,3,0,2],"3":[2,0,1]}', '{"1":[3],"2":[3]}', '{"1":[1],"2":[2]}')}
        --
        topic-cluster-1 leader 1 epoch 1 isr 1,0,2 version 1
        --
        {
        topic(
            name,
            '{"0":[3,1,2,0],"1":[0,2,3,1],"2":[1,3,0,2],"3":[2,0,1]}',
            '{"0":[3],"1":[3],"2":[3]}',
            '{"0":[0],"1":[1],"2":[2]}',
        )
    }
        --
        topic-cluster-0 leader 0 epoch 1 isr 0,2,1 version 1
    """)
    flow.grow_isr(f"{name}-2", 3)
    flow.writes(f"""
        topic-cluster-2 leader 2 epoch 1 isr 2,1,0,3 version 2
        --
        topic-cluster-2 leader 1 epoch 2 isr 2,1,0,3 version 3
        --
        topic-cluster-2 leader 1 epoch 3 isr 1,0,3 version 4
        --
        {
        topic(
            name,
            '{"0":[3,1,2,0],"1":[0,2,3,1],"2":[1,3,0],"3":[2,0,1]}',
            '{"0":[3],"1":[3]}',
            '{"0":[0],"1":[1]}',
        )
    }
        --
        {plan(name, p0=[3, 1, 2], p1=[0, 2, 3])}
    """)
    flow.grow_isr(f"{name}-1", 3)
    flow.writes(f"""
        topic-cluster-1 leader 1 epoch 1 isr 1,0,2,3 version 2
        --
        topic-cluster-1 leader 0 epoch 2 isr 1,0,2,3 version 3
        --
        topic-cluster-1 leader 0 epoch 3 isr 0,2,3 version 4
        --
        {topic(name, '{"0":[3,1,2,0],"1":[0,2,3],"2":[1,3,0],"3":[2,0,1]}', '{"0":[3]}', '{"0":[0]}')}
        --
        {plan(name, p0=[3, 1, 2])}
    """)
    flow.grow_isr(f"{name}-0", 3)
    flow.writes(f"""
        topic-cluster-0 leader 0 epoch 1 isr 0,2,1,3 version 2
        --
        topic-cluster-0 leader 3 epoch 2 isr 0,2,1,3 version 3
        --
        topic-cluster-0 leader 3 epoch 3 isr 2,1,3 version 4
        --
        {topic(name, '{"0":[3,1,2],"1":[0,2,3],"2":[1,3,0],"3":[2,0,1]}')}
        --
        {DONE}
    """)
    flow.is_the_capture()


@pytest.mark.row("R14")
def test_a_tool_raises_the_replication_factor() -> None:
    """The leader stays, and its epoch grows at the end all the same."""
    flow = Flow("rf-up-execute", brokers=[0, 1, 2]).given("""
        topic-cluster2-0 (0) leader 0 epoch 0 isr 0 version 0
        topic-cluster2-1 (1) leader 1 epoch 0 isr 1 version 0
        topic-cluster2-2 (2) leader 2 epoch 0 isr 2 version 0
    """)
    name = "topic-cluster2"
    flow.plan((f"{name}-1", [0, 1, 2]), (f"{name}-0", [0, 1, 2]), (f"{name}-2", [0, 1, 2]))
    everywhere = '{"0":[0,1,2],"1":[0,1,2],"2":[0,1,2]}'
    flow.writes(f"""
        {topic(name, '{"0":[0],"1":[0,1,2],"2":[2]}', '{"1":[0,2]}')}
        --
        topic-cluster2-1 leader 1 epoch 1 isr 1 version 1
        --
        {topic(name, '{"0":[0,1,2],"1":[0,1,2],"2":[2]}', '{"0":[1,2],"1":[0,2]}')}
        --
        topic-cluster2-0 leader 0 epoch 1 isr 0 version 1
        --
        {topic(name, everywhere, '{"0":[1,2],"1":[0,2],"2":[0,1]}')}
        --
        topic-cluster2-2 leader 2 epoch 1 isr 2 version 1
    """)
    flow.grow_isr(f"{name}-1", 2)
    flow.grow_isr(f"{name}-2", 0)
    flow.grow_isr(f"{name}-2", 1)
    flow.writes(f"""
        topic-cluster2-1 leader 1 epoch 1 isr 1,2 version 2
        --
        topic-cluster2-2 leader 2 epoch 1 isr 2,0 version 2
        --
        topic-cluster2-2 leader 2 epoch 1 isr 2,0,1 version 3
        --
        topic-cluster2-2 leader 2 epoch 2 isr 2,0,1 version 4
        --
        {topic(name, everywhere, '{"0":[1,2],"1":[0,2]}')}
        --
        {plan(name, p0=[0, 1, 2], p1=[0, 1, 2])}
    """)
    flow.grow_isr(f"{name}-1", 0)
    flow.writes(f"""
        topic-cluster2-1 leader 1 epoch 1 isr 1,2,0 version 3
        --
        topic-cluster2-1 leader 1 epoch 2 isr 1,2,0 version 4
        --
        {topic(name, everywhere, '{"0":[1,2]}')}
        --
        {plan(name, p0=[0, 1, 2])}
    """)
    flow.grow_isr(f"{name}-0", 1)
    flow.grow_isr(f"{name}-0", 2)
    flow.writes(f"""
        topic-cluster2-0 leader 0 epoch 1 isr 0,1 version 2
        --
        topic-cluster2-0 leader 0 epoch 1 isr 0,1,2 version 3
        --
        topic-cluster2-0 leader 0 epoch 2 isr 0,1,2 version 4
        --
        {topic(name, everywhere)}
        --
        {DONE}
    """)
    flow.is_the_capture()


@pytest.mark.row("R14")
def test_a_tool_lowers_the_replication_factor() -> None:
    """Nothing is waited for; each replica that leaves the ISR is a write; another leader where the old one goes."""
    flow = Flow("rf-down-execute-throttled", brokers=[0, 1, 2, 3]).given("""
        topic-cluster2-0 (0,1,2) leader 0 epoch 2 isr 0,1,2 version 4
        topic-cluster2-1 (0,1,2) leader 1 epoch 2 isr 1,2,0 version 4
        topic-cluster2-2 (0,1,2) leader 2 epoch 2 isr 2,0,1 version 4
    """)
    name = "topic-cluster2"
    flow.plan((f"{name}-1", [1, 0]), (f"{name}-0", [2]))
    flow.writes(f"""
        {topic(name, '{"0":[0,1,2],"1":[1,0,2],"2":[0,1,2]}', removing='{"1":[2]}')}
        --
        topic-cluster2-1 leader 1 epoch 3 isr 1,2,0 version 5
        --
        topic-cluster2-1 leader 1 epoch 4 isr 1,0 version 6
        --
        {topic(name, '{"0":[0,1,2],"1":[1,0],"2":[0,1,2]}')}
        --
        {plan(name, p0=[2])}
        --
        {topic(name, '{"0":[2,0,1],"1":[1,0],"2":[0,1,2]}', removing='{"0":[0,1]}')}
        --
        topic-cluster2-0 leader 2 epoch 3 isr 0,1,2 version 5
        --
        topic-cluster2-0 leader 2 epoch 4 isr 1,2 version 6
        --
        topic-cluster2-0 leader 2 epoch 5 isr 2 version 7
        --
        {topic(name, '{"0":[2],"1":[1,0],"2":[0,1,2]}')}
        --
        {DONE}
    """)
    flow.is_the_capture()


def test_the_api_moves_a_partition() -> None:
    """The same without the plan's node."""
    flow = Flow("api-reassign-execute", controller=1, epoch=2, brokers=[0, 1, 2, 3]).given("""
        api-0 (0,1) leader 0 epoch 0 isr 0,1 version 0
        api-1 (2,0) leader 2 epoch 0 isr 2,0 version 0
        api-2 (2,3) leader 2 epoch 0 isr 2,3 version 0
    """)
    flow.ask(AlterReassignments([ReassignPartition(TopicPartition("api", 0), [BrokerId(2), BrokerId(3)])]))
    flow.grow_isr("api-0", 2)
    flow.grow_isr("api-0", 3)
    flow.writes(f"""
        {topic("api", '{"0":[2,3,0,1],"1":[2,0],"2":[2,3]}', '{"0":[2,3]}', '{"0":[0,1]}')}
        --
        api-0 leader 0 epoch 1 isr 0,1 version 1
        --
        api-0 leader 0 epoch 1 isr 0,1,2 version 2
        --
        api-0 leader 0 epoch 1 isr 0,1,2,3 version 3
        --
        api-0 leader 2 epoch 2 isr 0,1,2,3 version 4
        --
        api-0 leader 2 epoch 3 isr 1,2,3 version 5
        --
        api-0 leader 2 epoch 4 isr 2,3 version 6
        --
        {topic("api", '{"0":[2,3],"1":[2,0],"2":[2,3]}')}
    """)
    flow.is_the_capture()


def test_a_target_that_is_dead_is_waited_for() -> None:
    """Begun, and no more than that."""
    flow = Flow("zk-reassign-stuck-execute", controller=1, epoch=2, brokers=[1, 2, 3]).given("""
        solo-0 (3) leader 3 epoch 2 isr 3 version 2
    """)
    flow.plan(("solo-0", [0]))
    flow.writes(f"""
        {topic("solo", '{"0":[0,3]}', '{"0":[0]}', '{"0":[3]}')}
        --
        solo-0 leader 3 epoch 3 isr 3 version 3
    """)
    flow.is_the_capture()


def test_a_plan_with_an_unknown_topic_and_an_unknown_broker() -> None:
    """The topic is dropped from the plan; for the broker the partition waits."""
    flow = Flow("bad-reassignment", epoch=9, brokers=[0, 1, 2, 3]).given("""
        mix-0 (2,0) leader 0 epoch 3 isr 0,2 version 4
        mix-1 (1,2) leader 1 epoch 0 isr 1,2 version 0
        mix-2 (2,0) leader 2 epoch 0 isr 2,0 version 0
    """)
    flow.plan(("nope-0", [0]), ("mix-1", [77]))
    flow.writes(f"""
        {topic("mix", '{"0":[2,0],"1":[77,1,2],"2":[2,0]}', '{"1":[77]}', '{"1":[1,2]}')}
        --
        mix-1 leader 1 epoch 1 isr 1,2 version 1
        --
        {plan("mix", p1=[77])}
    """)
    flow.is_the_capture()


def test_a_tool_of_2_2_moves_a_partition() -> None:
    """The leader is none of the target's first, and stays, for it is of the target."""
    flow = Flow("v2.2-tool-reassign-on-28", epoch=9, brokers=[0, 1, 2, 3]).given("""
        mix-0 (0,1) leader 0 epoch 0 isr 0,1 version 0
        mix-1 (1,2) leader 1 epoch 0 isr 1,2 version 0
        mix-2 (2,0) leader 2 epoch 0 isr 2,0 version 0
    """)
    flow.plan(("mix-0", [2, 0]))
    flow.grow_isr("mix-0", 2)
    flow.writes(f"""
        {topic("mix", '{"0":[2,0,1],"1":[1,2],"2":[2,0]}', '{"0":[2]}', '{"0":[1]}')}
        --
        mix-0 leader 0 epoch 1 isr 0,1 version 1
        --
        mix-0 leader 0 epoch 1 isr 0,1,2 version 2
        --
        mix-0 leader 0 epoch 2 isr 0,1,2 version 3
        --
        mix-0 leader 0 epoch 3 isr 0,2 version 4
        --
        {topic("mix", '{"0":[2,0],"1":[1,2],"2":[2,0]}')}
        --
        {DONE}
    """)
    flow.is_the_capture()


@pytest.mark.row("R14")
def test_kafka_3_9_does_the_same() -> None:
    """The last release with ZooKeeper, asked by a tool of 2.8."""
    flow = Flow("v3.9-with-2.8-tool-reassign", brokers=[0, 1, 2]).given("""
        old-0 (0,2) leader 2 epoch 0 isr 2,0 version 0
        old-1 (0,1) leader 0 epoch 0 isr 0,1 version 0
        old-2 (1,2) leader 1 epoch 0 isr 1,2 version 0
    """)
    flow.plan(("old-0", [0, 1, 2]))
    flow.grow_isr("old-0", 1)
    everywhere = '{"0":[0,1,2],"1":[0,1],"2":[1,2]}'
    flow.writes(f"""
        {topic("old", everywhere, '{"0":[1]}')}
        --
        old-0 leader 2 epoch 1 isr 2,0 version 1
        --
        old-0 leader 2 epoch 1 isr 2,0,1 version 2
        --
        old-0 leader 2 epoch 2 isr 2,0,1 version 3
        --
        {topic("old", everywhere)}
        --
        {DONE}
    """)
    flow.is_the_capture()


def test_a_plan_that_is_deleted_cancels_nothing() -> None:
    """What is under way stays so, and nothing is written."""
    flow = Flow("zk-reassign-cancel-by-delete", controller=1, epoch=2, brokers=[1, 2, 3]).given("""
        solo-0 (3) leader 3 epoch 2 isr 3 version 2
    """)
    flow.plan(("solo-0", [0]))
    flow.forget(f"""
        {topic("solo", '{"0":[0,3]}', '{"0":[0]}', '{"0":[3]}')}
        --
        solo-0 leader 3 epoch 3 isr 3 version 3
    """)
    flow.plan_deleted()
    flow.writes("")
    assert flow.cluster.partition("solo").adding == (0,)
    flow.is_the_capture()
