"""What the controller writes when topics are made, grow, are configured and go: as Kafka, write by write.

Kafka creates the `partitions` node of a topic that grows once more, which fails; ours knows that it is there.
"""

from __future__ import annotations

import pytest
from tests.scenarios.kafka_flows import Flow

from tidelog.controller.events import DeletionsRequested
from tidelog.controller.requests import (
    AllocateProducerIds,
    AlterConfigs,
    AlterOperation,
    ChangeConfigs,
    ConfigChange,
    CreatePartitions,
    CreateTopics,
    MorePartitions,
    NewTopic,
)
from tidelog.controller.settings import ControllerSettings
from tidelog.metadata import znodes
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.metadata.operations import Create, SetData
from tidelog.model.identifiers import ZERO_TOPIC_ID, BrokerEpoch, BrokerId

pytestmark = pytest.mark.row("R23")


def node(assignment: dict[int, list[int]], topic_id: bytes = ZERO_TOPIC_ID) -> bytes:
    return znodes.encode_topic(znodes.TopicAssignment(assignment, topic_id))


@pytest.mark.row("R05")
def test_a_tool_creates_a_topic() -> None:
    """The controller gives it an id, then all partition nodes, then all states: the first live replica leads."""
    flow = Flow("create-topic-cluster", brokers=[0, 1, 2])
    flow.tool(Create("/config/topics/topic-cluster", znodes.encode_config({})))
    flow.tool(Create("/brokers/topics/topic-cluster", node({0: [0, 2, 1], 1: [1, 0, 2], 2: [2, 1, 0]})))
    flow.topic_seen("topic-cluster")
    assignment = '{"0":[0,2,1],"1":[1,0,2],"2":[2,1,0]}'
    flow.writes(f"""
        set /brokers/topics/topic-cluster {content(assignment)}
        --
        create /brokers/topics/topic-cluster/partitions
        --
        create /brokers/topics/topic-cluster/partitions/0
        create /brokers/topics/topic-cluster/partitions/1
        create /brokers/topics/topic-cluster/partitions/2
        --
        topic-cluster-0 leader 0 epoch 0 isr 0,2,1 version 0
        topic-cluster-1 leader 1 epoch 0 isr 1,0,2 version 0
        topic-cluster-2 leader 2 epoch 0 isr 2,1,0 version 0
    """)
    flow.is_the_capture()


@pytest.mark.row("R05")
def test_the_api_creates_a_topic() -> None:
    """Settings, then the topic with its id, both without a fence; then as above, under the controller's."""
    flow = Flow("api-create-topic", controller=1, epoch=2, brokers=[0, 1, 2, 3])
    assignment = [(0, [0, 1]), (1, [2, 0])]
    flow.ask(CreateTopics([NewTopic("api", assignment=assignment, configs=[("retention.ms", "1000")])]))
    flow.writes(f"""
        create /config/topics/api {{"version":1,"config":{{"retention.ms":"1000"}}}} (no fence)
        --
        create /brokers/topics/api {content('{"0":[0,1],"1":[2,0]}')} (no fence)
        --
        create /brokers/topics/api/partitions
        --
        create /brokers/topics/api/partitions/0
        create /brokers/topics/api/partitions/1
        --
        api-0 leader 0 epoch 0 isr 0,1 version 0
        api-1 leader 2 epoch 0 isr 2,0 version 0
    """)
    flow.is_the_capture()


@pytest.mark.row("R09")
def test_a_tool_adds_partitions() -> None:
    """The new ones get nodes and states."""
    flow = Flow("alter-partitions-topic-cluster", brokers=[0, 1, 2]).given("""
        topic-cluster-0 (0,2,1) leader 0 epoch 0 isr 0,2,1 version 0
        topic-cluster-1 (1,0,2) leader 1 epoch 0 isr 1,0,2 version 0
        topic-cluster-2 (2,1,0) leader 2 epoch 0 isr 2,1,0 version 0
    """)
    topic_id = flow.cluster.controller.image.topics["topic-cluster"].topic_id
    more = node({0: [0, 2, 1], 1: [1, 0, 2], 2: [2, 1, 0], 3: [0, 2, 1]}, topic_id)
    flow.tool(SetData("/brokers/topics/topic-cluster", more))
    flow.topic_seen("topic-cluster")
    flow.writes("""
        create /brokers/topics/topic-cluster/partitions/3
        --
        topic-cluster-3 leader 0 epoch 0 isr 0,2,1 version 0
    """)
    flow.is_the_capture()


@pytest.mark.row("R09")
def test_the_api_adds_partitions() -> None:
    """The topic first, without a fence."""
    flow = Flow("api-create-partitions", controller=1, epoch=2, brokers=[0, 1, 2, 3]).given("""
        api-0 (0,1) leader 0 epoch 0 isr 0,1 version 0
        api-1 (2,0) leader 2 epoch 0 isr 2,0 version 0
    """)
    flow.ask(CreatePartitions([MorePartitions("api", 3, [[2, 3]])]))
    flow.writes(f"""
        set /brokers/topics/api {content('{"0":[0,1],"1":[2,0],"2":[2,3]}')} (no fence)
        --
        create /brokers/topics/api/partitions/2
        --
        api-2 leader 2 epoch 0 isr 2,3 version 0
    """)
    flow.is_the_capture()


@pytest.mark.row("R07")
@pytest.mark.parametrize(
    ("name", "type", "entity", "known", "change", "expected"),
    [
        (
            "api-alter-config",
            ConfigResourceType.TOPIC,
            "api",
            {"retention.ms": "1000"},
            ("flush.messages", "7"),
            'set /config/topics/api {"version":1,"config":{"retention.ms":"1000","flush.messages":"7"}} (no fence)\n'
            'create /config/changes/config_change_ {"version":2,"entity_path":"topics/api"} (no fence)',
        ),
        (
            "api-broker-config",
            ConfigResourceType.BROKER,
            "1",
            {},
            ("log.cleaner.threads", "2"),
            'set /config/brokers/1 {"version":1,"config":{"log.cleaner.threads":"2"}} (no fence)\n'
            'create /config/changes/config_change_ {"version":2,"entity_path":"brokers/1"} (no fence)',
        ),
        (
            "api-broker-default-config",
            ConfigResourceType.BROKER,
            "",
            None,
            ("log.cleaner.threads", "2"),
            'create /config/brokers/<default> {"version":1,"config":{"log.cleaner.threads":"2"}} (no fence)\n'
            'create /config/changes/config_change_ {"version":2,"entity_path":"brokers/<default>"} (no fence)',
        ),
    ],
)
def test_the_api_alters_settings(
    name: str,
    type: ConfigResourceType,
    entity: str,
    known: dict[str, str] | None,
    change: tuple[str, str],
    expected: str,
) -> None:
    """The whole map, then the notification; neither has a fence."""
    flow = Flow(name, controller=1, epoch=2, brokers=[0, 1, 2, 3])
    flow.given("api-0 (0,1) leader 0 epoch 0 isr 0,1 version 0")
    resource = ConfigResource(type, entity)
    if known is not None:
        flow.store(znodes.config_path(resource), znodes.encode_config(known))
    step = ConfigChange(change[0], AlterOperation.SET, change[1])
    flow.ask(AlterConfigs([ChangeConfigs(resource, [step])]))
    flow.writes(expected.replace("\n", "\n--\n"))
    flow.is_the_capture()


@pytest.mark.row("R08")
def test_a_tool_deletes_a_topic() -> None:
    """Each replica leaves its ISR, broker by broker; when all are stopped, states, partitions, topic, config, mark."""
    flow = Flow("delete-topicone", brokers=[0, 1, 2]).given("""
        topicone-0 (1) leader 1 epoch 0 isr 1 version 0
        topicone-1 (2) leader 2 epoch 0 isr 2 version 0
        topicone-2 (0) leader 0 epoch 0 isr 0 version 0
    """)
    flow.tool(Create("/admin/delete_topics/topicone"))
    flow.run(DeletionsRequested(["topicone"]))
    for id in (0, 1, 2):
        flow.stopped(id, "topicone")
    flow.writes(f"""
        topicone-2 leader -1 epoch 1 isr 0 version 1
        --
        topicone-0 leader -1 epoch 1 isr 1 version 1
        --
        topicone-1 leader -1 epoch 1 isr 2 version 1
        --
        {removal("topicone", 3)}
    """)
    flow.is_the_capture()


@pytest.mark.row("R08")
def test_the_api_deletes_a_topic() -> None:
    """The mark is set without a fence; a replica that leaves twice costs a write each time."""
    flow = Flow("api-delete-topic", controller=1, epoch=2, brokers=[0, 1, 2, 3]).given("""
        api-0 (2,3) leader 2 epoch 4 isr 2,3 version 6
        api-1 (2,0) leader 2 epoch 2 isr 2,0 version 4
        api-2 (2,3) leader 2 epoch 0 isr 2,3 version 0
    """)
    flow.delete("api")
    for id in (0, 2, 3):
        flow.stopped(id, "api")
    flow.writes(f"""
        create /admin/delete_topics/api (no fence)
        --
        api-1 leader 2 epoch 3 isr 2 version 5
        --
        api-2 leader -1 epoch 1 isr 3 version 1
        api-0 leader -1 epoch 5 isr 3 version 7
        api-1 leader -1 epoch 4 isr 2 version 6
        --
        api-2 leader -1 epoch 2 isr 3 version 2
        api-0 leader -1 epoch 6 isr 3 version 8
        --
        {removal("api", 3)}
    """)
    flow.is_the_capture()


PREF = """
    pref-0 (1,0,2) leader 1 epoch 3 isr 2,1 version 4
    pref-1 (2,1,0) leader 2 epoch 2 isr 2,1 version 3
"""
PREF_OFFLINE = """
    pref-0 leader -1 epoch 4 isr 2 version 5
    pref-1 leader 2 epoch 3 isr 2 version 4
    --
    pref-0 leader -1 epoch 5 isr 2 version 6
    pref-1 leader -1 epoch 4 isr 2 version 5
"""


@pytest.mark.row("R08")
def test_a_topic_with_a_dead_replica_is_deleted() -> None:
    """The live replicas go; the topic waits for the dead broker."""
    flow = Flow("delete-with-dead-replica", controller=1, epoch=2, brokers=[1, 2, 3]).given(PREF)
    flow.tool(Create("/admin/delete_topics/pref"))
    flow.run(DeletionsRequested(["pref"]))
    for id in (1, 2):
        flow.stopped(id, "pref")
    flow.writes(PREF_OFFLINE)
    flow.is_the_capture()
    assert "pref" in flow.cluster.controller.state.deleting


@pytest.mark.row("R08")
@pytest.mark.parametrize("another", [False, True], ids=["the same controller", "another controller"])
def test_the_dead_broker_returns_and_the_deletion_ends(another: bool) -> None:
    """Its replicas of other topics come into their ISRs; when it has dropped the topic's, the nodes go.

    A controller elected meanwhile takes the live replicas offline once more, and asks all of them again.
    """
    flow = Flow("restart-broker-0-finishes-delete", controller=1, epoch=2, brokers=[1, 2, 3]).given(PREF)
    flow.given("topic-cluster-2 (1,3,0) leader 1 epoch 7 isr 1,3 version 10")
    flow.tool(Create("/admin/delete_topics/pref"))
    flow.run(DeletionsRequested(["pref"]))
    for id in (1, 2):
        flow.stopped(id, "pref")
    flow.forget(PREF_OFFLINE)
    if another:
        flow.elected(2, 3)
        flow.forget("""
            pref-0 leader -1 epoch 6 isr 2 version 7
            pref-1 leader -1 epoch 5 isr 2 version 6
        """)
        for id in (1, 2):
            flow.stopped(id, "pref")
    flow.back(0)
    flow.grow_isr("topic-cluster-2", 0)
    flow.stopped(0, "pref")
    flow.writes(f"""
        topic-cluster-2 leader 1 epoch 7 isr 1,3,0 version 11
        --
        {removal("pref", 2)}
    """)
    flow.is_the_capture(without="latest_producer_id_block|topic-cluster2|topic-cluster/partitions/[013]")
    assert "pref" not in flow.cluster.controller.state.deleting


@pytest.mark.row("R08")
@pytest.mark.parametrize(
    ("name", "topic", "controller", "enabled"),
    [("delete-disabled", "data", 0, False), ("delete-unknown-topic", "ghost", 0, True)],
)
def test_a_mark_that_is_wiped_away(name: str, topic: str, controller: int, enabled: bool) -> None:
    """While deletion is disabled, and for a topic that nobody knows."""
    flow = Flow(
        name, controller=controller, brokers=[0, 1, 2], settings=ControllerSettings(delete_topic_enable=enabled)
    )
    flow.given("data-0 (0) leader 0 epoch 0 isr 0 version 0")
    flow.tool(Create(f"/admin/delete_topics/{topic}"))
    flow.run(DeletionsRequested([topic]))
    flow.writes(f"delete /admin/delete_topics/{topic}")
    flow.is_the_capture()


def test_producer_ids_for_a_broker() -> None:
    """The first block, by the controller, as Kafka 3.9 does; without a fence, but against the version of the last."""
    flow = Flow("v3.9-idempotent-producer", brokers=[0, 1, 2])
    flow.ask(AllocateProducerIds(BrokerId(2), BrokerEpoch(102)))
    flow.writes('set /latest_producer_id_block {"version":1,"broker":2,"block_start":"0","block_end":"999"} (no fence)')
    flow.is_the_capture()


def content(partitions: str) -> str:
    """The node of a topic."""
    return f'{{"partitions":{partitions},"topic_id":ID,"adding_replicas":{{}},"removing_replicas":{{}},"version":3}}'


def removal(topic: str, partitions: int) -> str:
    """The end of a topic, one after the other."""
    folder = f"/brokers/topics/{topic}"
    paths = [f"{folder}/partitions/{index}{part}" for index in range(partitions) for part in ("/state", "")]
    paths += [f"{folder}/partitions", folder, f"/config/topics/{topic}", f"/admin/delete_topics/{topic}"]
    return "\n--\n".join(f"delete {path}" for path in paths)
