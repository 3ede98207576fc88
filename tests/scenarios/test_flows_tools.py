"""What the controller writes when Kafka's old tools write into the store: as Kafka, write by write.

Tools of 2.2.1 and 2.8.2, on brokers of 2.6, 2.8 and 3.9. At the end every captured flow is accounted for.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest
from tests.scenarios.kafka_flows import CAPTURE, Flow
from tests.scenarios.test_flows_topics import content, removal

from tidelog.controller.events import DeletionsRequested, IsrsChanged, PreferredElectionRequested
from tidelog.controller.requests import (
    AlterConfigs,
    AlterOperation,
    ChangeConfigs,
    ConfigChange,
    CreateTopics,
    NewTopic,
)
from tidelog.metadata import znodes
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.metadata.operations import Create, SetData
from tidelog.model.identifiers import BrokerId, PartitionEpoch, TopicPartition

pytestmark = pytest.mark.row("R23")


@pytest.mark.row("R05")
@pytest.mark.parametrize(
    ("name", "topic", "partitions", "states"),
    [
        ("create-topicone", "topicone", '{"0":[1],"1":[2]}', ["1 epoch 0 isr 1", "2 epoch 0 isr 2"]),
        (
            "create-topic-cluster2",
            "topic-cluster2",
            '{"0":[0],"1":[1],"2":[2]}',
            ["0 epoch 0 isr 0", "1 epoch 0 isr 1", "2 epoch 0 isr 2"],
        ),
        ("v3.9-with-2.8-tool-create", "old", '{"0":[2,0],"1":[0,1]}', ["2 epoch 0 isr 2,0", "0 epoch 0 isr 0,1"]),
        ("v2.2-tool-create-on-28", "mix", '{"0":[0,1],"1":[1,2]}', ["0 epoch 0 isr 0,1", "1 epoch 0 isr 1,2"]),
    ],
)
def test_tools_create_topics(name: str, topic: str, partitions: str, states: list[str]) -> None:
    """Of whatever release: an id first, then the partitions."""
    version_1 = name.startswith("v2.2")
    wrote = (
        f'{{"version":1,"partitions":{partitions}}}'
        if version_1
        else f'{{"partitions":{partitions},"adding_replicas":{{}},"removing_replicas":{{}},"version":3}}'
    )
    flow = Flow(name, brokers=[0, 1, 2], epoch=9 if version_1 else 1)
    flow.tool(Create(f"/config/topics/{topic}", znodes.encode_config({})))
    flow.tool(Create(f"/brokers/topics/{topic}", wrote.encode()))
    flow.topic_seen(topic)
    nodes = "\n".join(f"create /brokers/topics/{topic}/partitions/{index}" for index in range(len(states)))
    led = "\n".join(f"{topic}-{index} leader {state} version 0" for index, state in enumerate(states))
    flow.writes(f"""
        set /brokers/topics/{topic} {content(partitions)}
        --
        create /brokers/topics/{topic}/partitions
        --
        {nodes}
        --
        {led}
    """)
    flow.is_the_capture()


@pytest.mark.row("R05")
@pytest.mark.row("R09")
def test_a_tool_creates_and_grows_a_topic_of_racks() -> None:
    """Captured with protocol 2.6, whose controllers give no ids: ours does."""
    flow = Flow("rack-create", brokers=[0, 1, 2, 3])
    partitions = {0: [2, 1], 1: [0, 1], 2: [1, 2], 3: [2, 1]}
    flow.tool(Create("/config/topics/racked", znodes.encode_config({})))
    flow.tool(Create("/brokers/topics/racked", znodes.encode_topic(znodes.TopicAssignment(partitions))))
    flow.topic_seen("racked")
    ours = flow.take_first()
    as_json = json.dumps(partitions, separators=(",", ":"))
    assert ours == f"set /brokers/topics/racked {content(as_json)}"
    flow.writes("""
        create /brokers/topics/racked/partitions
        --
        create /brokers/topics/racked/partitions/0
        create /brokers/topics/racked/partitions/1
        create /brokers/topics/racked/partitions/2
        create /brokers/topics/racked/partitions/3
        --
        racked-0 leader 2 epoch 0 isr 2,1 version 0
        racked-1 leader 0 epoch 0 isr 0,1 version 0
        racked-2 leader 1 epoch 0 isr 1,2 version 0
        racked-3 leader 2 epoch 0 isr 2,1 version 0
    """)
    flow.is_the_capture()
    flow.continues("rack-alter-partitions")
    topic_id = flow.cluster.controller.image.topics["racked"].topic_id
    grown = znodes.TopicAssignment({**partitions, 4: [0, 1], 5: [1, 2]}, topic_id)
    flow.tool(SetData("/brokers/topics/racked", znodes.encode_topic(grown)))
    flow.topic_seen("racked")
    flow.writes("""
        create /brokers/topics/racked/partitions/4
        create /brokers/topics/racked/partitions/5
        --
        racked-4 leader 0 epoch 0 isr 0,1 version 0
        racked-5 leader 1 epoch 0 isr 1,2 version 0
    """)
    flow.is_the_capture()


@pytest.mark.row("R09")
@pytest.mark.parametrize(
    ("name", "given", "assignment", "expected"),
    [
        (
            "alter-partitions-topicone",
            "topicone-0 (1) leader 1 epoch 0 isr 1 version 0\ntopicone-1 (2) leader 2 epoch 0 isr 2 version 0",
            {0: [1], 1: [2], 2: [0]},
            "topicone-2 leader 0 epoch 0 isr 0 version 0",
        ),
        (
            "v3.9-with-2.8-tool-alter-partitions",
            "old-0 (2,0) leader 2 epoch 0 isr 2,0 version 0\nold-1 (0,1) leader 0 epoch 0 isr 0,1 version 0",
            {0: [2, 0], 1: [0, 1], 2: [1, 2]},
            "old-2 leader 1 epoch 0 isr 1,2 version 0",
        ),
    ],
)
def test_tools_add_partitions(name: str, given: str, assignment: dict[int, list[int]], expected: str) -> None:
    """Nodes and states for what is new."""
    flow = Flow(name, brokers=[0, 1, 2]).given(given)
    [(topic, image)] = flow.cluster.controller.image.topics.items()
    node = znodes.encode_topic(znodes.TopicAssignment(assignment, image.topic_id))
    flow.tool(SetData(f"/brokers/topics/{topic}", node))
    flow.topic_seen(topic)
    flow.writes(f"create /brokers/topics/{topic}/partitions/2\n--\n{expected}")
    flow.is_the_capture()


@pytest.mark.row("R09")
def test_the_documents_release_adds_partitions_and_drops_the_id() -> None:
    """As Kafka, and then the id is written back: with Kafka a controller that dies now takes it along."""
    flow = Flow("v2.2-tool-alter-on-28", epoch=9, brokers=[0, 1, 2]).given("""
        mix-0 (0,1) leader 0 epoch 0 isr 0,1 version 0
        mix-1 (1,2) leader 1 epoch 0 isr 1,2 version 0
    """)
    flow.tool(SetData("/brokers/topics/mix", b'{"version":1,"partitions":{"0":[0,1],"1":[1,2],"2":[2,0]}}'))
    flow.topic_seen("mix")
    flow.writes(
        """
        create /brokers/topics/mix/partitions/2
        --
        mix-2 leader 2 epoch 0 isr 2,0 version 0
    """,
        more=True,
    )
    written = content('{"0":[0,1],"1":[1,2],"2":[2,0]}')
    assert flow.take_first() == f"set /brokers/topics/mix {written}"
    flow.is_the_capture()


@pytest.mark.row("R08")
@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        (
            "v3.9-with-2.8-tool-delete",
            """
            old-0 (0,1,2) leader 0 epoch 3 isr 2,0,1 version 4
            old-1 (0,1) leader 0 epoch 0 isr 0,1 version 0
            old-2 (1,2) leader 1 epoch 0 isr 1,2 version 0
            """,
            """
            old-1 leader -1 epoch 1 isr 1 version 1
            old-0 leader -1 epoch 4 isr 2,1 version 5
            --
            old-1 leader -1 epoch 2 isr 1 version 2
            old-2 leader -1 epoch 1 isr 2 version 1
            old-0 leader -1 epoch 5 isr 2 version 6
            --
            old-2 leader -1 epoch 2 isr 2 version 2
            old-0 leader -1 epoch 6 isr 2 version 7
            """,
        ),
        (
            "v2.2-delete",
            """
            topicone-0 (2) leader 2 epoch 0 isr 2 version 0
            topicone-1 (0) leader 0 epoch 0 isr 0 version 0
            topicone-2 (1) leader 1 epoch 0 isr 1 version 0
            """,
            """
            topicone-0 leader -1 epoch 1 isr 2 version 1
            topicone-2 leader -1 epoch 1 isr 1 version 1
            topicone-1 leader -1 epoch 1 isr 0 version 1
            """,
        ),
    ],
)
def test_tools_delete_topics(name: str, given: str, expected: str) -> None:
    """The same in every release."""
    flow = Flow(name, brokers=[0, 1, 2]).given(given)
    [topic] = flow.cluster.controller.image.topics
    flow.tool(Create(f"/admin/delete_topics/{topic}"))
    flow.run(DeletionsRequested([topic]))
    for id in (0, 1, 2):
        flow.stopped(id, topic)
    flow.writes(f"{expected}\n--\n{removal(topic, 3)}")
    flow.is_the_capture()


@pytest.mark.row("R29")
@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        (
            "v3.9-with-2.8-tool-preferred",
            """
            t39-0 (1,0) leader 1 epoch 0 isr 1,0 version 0
            t39-1 (0,2) leader 0 epoch 0 isr 0,2 version 0
            old-0 (0,1,2) leader 2 epoch 2 isr 2,0,1 version 3
            old-1 (0,1) leader 0 epoch 0 isr 0,1 version 0
            old-2 (1,2) leader 1 epoch 0 isr 1,2 version 0
            """,
            "old-0 leader 0 epoch 3 isr 2,0,1 version 4",
        ),
        (
            "v2.2-preferred",
            """
            topic-cluster-0 (0,1,2) leader 1 epoch 1 isr 1,2,0 version 1
            topic-cluster-1 (1,2,3) leader 2 epoch 3 isr 2,1,3 version 4
            topic-cluster-2 (2,3,0) leader 3 epoch 3 isr 0,2,3 version 4
            topic-cluster-3 (3,0,1) leader 0 epoch 3 isr 1,0,3 version 4
            """,
            """
            topic-cluster-0 leader 0 epoch 2 isr 1,2,0 version 2
            topic-cluster-1 leader 1 epoch 4 isr 2,1,3 version 5
            topic-cluster-2 leader 2 epoch 4 isr 0,2,3 version 5
            topic-cluster-3 leader 3 epoch 4 isr 1,0,3 version 5
            """,
        ),
        ("preferred-election-all-noop", "pref-0 (1,0,2) leader 1 epoch 2 isr 0,2,1 version 3", ""),
        ("preferred-election-file", "pref-0 (1,0,2) leader 1 epoch 2 isr 0,2,1 version 3", ""),
    ],
)
def test_tools_elect_preferred_leaders(name: str, given: str, expected: str) -> None:
    """Only where another one leads; the node goes last, also when nothing is to be done."""
    flow = Flow(name, brokers=[0, 1, 2, 3]).given(given)
    partitions = [each for each, _ in flow.cluster.controller.image.partitions()]
    flow.tool(Create(znodes.PREFERRED_ELECTION, znodes.encode_partitions(partitions)))
    flow.run(PreferredElectionRequested(partitions))
    flow.writes(f"{expected}\n--\ndelete /admin/preferred_replica_election")
    flow.is_the_capture()


@pytest.mark.row("R05")
@pytest.mark.parametrize(
    ("name", "topic", "assignment", "settings", "epoch"),
    [
        ("v3.9-api-create", "t39", [[1, 0], [0, 2]], {"retention.ms": "100000"}, 1),
        (
            "first-consumer-group",
            "__consumer_offsets",
            [[3, 0, 2], [1, 2, 3]],
            {"compression.type": "producer", "cleanup.policy": "compact", "segment.bytes": "104857600"},
            3,
        ),
        (
            "first-transaction",
            "__transaction_state",
            [[0, 1, 2], [2, 0, 3]],
            {
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": "1",
                "segment.bytes": "104857600",
                "unclean.leader.election.enable": "false",
            },
            3,
        ),
    ],
)
def test_topics_with_settings(
    name: str, topic: str, assignment: list[list[int]], settings: dict[str, str], epoch: int
) -> None:
    """By the API of 3.9, and Kafka's own topics: settings in the order in which they came."""
    flow = Flow(name, brokers=[0, 1, 2, 3], epoch=epoch)
    configs = list(settings.items())
    flow.ask(CreateTopics([NewTopic(topic, assignment=list(enumerate(assignment)), configs=configs)]))
    replicas = json.dumps({str(index): each for index, each in enumerate(assignment)}, separators=(",", ":"))
    states = "\n".join(
        f"{topic}-{index} leader {each[0]} epoch 0 isr {','.join(map(str, each))} version 0"
        for index, each in enumerate(assignment)
    )
    flow.writes(f"""
        create /config/topics/{topic} {znodes.encode_config(settings).decode()} (no fence)
        --
        create /brokers/topics/{topic} {content(replicas)} (no fence)
        --
        create /brokers/topics/{topic}/partitions
        --
        create /brokers/topics/{topic}/partitions/0
        create /brokers/topics/{topic}/partitions/1
        --
        {states}
    """)
    flow.is_the_capture()


@pytest.mark.row("R24")
def test_brokers_of_3_9_come_and_go() -> None:
    """A follower's crash and return, then the controller's crash."""
    flow = Flow("v3.9-crash-2", brokers=[0, 1, 2]).given("""
        t39-0 (1,0) leader 1 epoch 0 isr 1,0 version 0
        t39-1 (0,2) leader 0 epoch 0 isr 0,2 version 0
    """)
    flow.gone(2)
    flow.writes("t39-1 leader 0 epoch 1 isr 0 version 1")
    flow.is_the_capture()
    flow.continues("v3.9-restart-2")
    flow.back(2)
    flow.grow_isr("t39-1", 2)
    flow.writes("t39-1 leader 0 epoch 1 isr 0,2 version 2")
    flow.is_the_capture()
    flow.continues("v3.9-crash-controller")
    del flow.cluster.brokers[BrokerId(0)]
    flow.elected(1, 2)
    flow.writes("""
        t39-0 leader 1 epoch 1 isr 1 version 1
        t39-1 leader -1 epoch 2 isr 2 version 3
        --
        t39-1 leader 2 epoch 3 isr 2 version 4
    """)
    flow.is_the_capture()


@pytest.mark.row("R24")
def test_a_broker_that_left_cleanly_comes_back() -> None:
    """It comes into the ISRs, at their ends, same epoch; nothing else is written."""
    flow = Flow("restart-broker-1", brokers=[0, 2, 3]).given("""
        pref-0 (1,0,2) leader 0 epoch 1 isr 0,2 version 1
        pref-1 (2,1,0) leader 2 epoch 1 isr 2,0 version 1
        topic-cluster-0 (3,1,2) leader 3 epoch 4 isr 2,3 version 5
        topic-cluster-2 (1,3,0) leader 3 epoch 4 isr 0,3 version 5
        topic-cluster-3 (2,0,1) leader 0 epoch 2 isr 0,2 version 2
        topic-cluster2-1 (1,0) leader 0 epoch 5 isr 0 version 7
        topic-cluster2-2 (0,1,2) leader 2 epoch 3 isr 2,0 version 5
    """)
    flow.back(1)
    flow.writes("")
    names = ("pref-1", "topic-cluster2-2", "topic-cluster-3", "pref-0", "topic-cluster2-1", "topic-cluster-2")
    for name in (*names, "topic-cluster-0"):
        flow.grow_isr(name, 1)
    flow.writes("""
        pref-1 leader 2 epoch 1 isr 2,0,1 version 2
        --
        topic-cluster2-2 leader 2 epoch 3 isr 2,0,1 version 6
        --
        topic-cluster-3 leader 0 epoch 2 isr 0,2,1 version 3
        --
        pref-0 leader 0 epoch 1 isr 0,2,1 version 2
        --
        topic-cluster2-1 leader 0 epoch 5 isr 0,1 version 8
        --
        topic-cluster-2 leader 3 epoch 4 isr 0,3,1 version 6
        --
        topic-cluster-0 leader 3 epoch 4 isr 2,3,1 version 6
    """)
    flow.is_the_capture(without="latest_producer_id_block")


def test_isrs_that_leaders_of_old_protocols_write() -> None:
    """With protocol 2.6 the leader writes and gives notice; a controller of ours reads the state and wipes the notice.

    Our own leaders ask the controller, who writes the same.
    """
    flow = Flow("isr-shrink-expand-before-2.7", brokers=[0, 1, 2]).given(
        "data-0 (1,2,0) leader 1 epoch 0 isr 1,2,0 version 0"
    )
    flow.propose("data-0", [1, 0])
    flow.propose("data-0", [1, 0, 2])
    flow.writes("""
        data-0 leader 1 epoch 0 isr 1,0 version 1
        --
        data-0 leader 1 epoch 0 isr 1,0,2 version 2
    """)
    flow.is_the_capture(without="isr_change_notification")
    notice = "/isr_change_notification/isr_change_0000000000"
    flow.tool(Create(notice, znodes.encode_partitions([TopicPartition("data", 0)])))
    state = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    flow.run(IsrsChanged([(TopicPartition("data", 0), state, PartitionEpoch(3))], [notice]))
    flow.forget("delete /isr_change_notification/isr_change_")
    image = flow.cluster.partition("data")
    assert (image.isr, image.partition_epoch) == ((1,), 3)


@pytest.mark.row("R07")
def test_throttles_are_cleared_by_the_api() -> None:
    """As --verify does at the end: each broker's whole map, made where there was none, and a notification each."""
    flow = Flow("api-reassign-verify", controller=1, epoch=2, brokers=[0, 1, 2, 3])
    flow.given("api-0 (0,1) leader 0 epoch 0 isr 0,1 version 0")
    throttled = "leader.replication.throttled.rate"
    for id, values in ((0, {}), (1, {"log.cleaner.threads": "2"}), (2, {})):
        flow.store(f"/config/brokers/{id}", znodes.encode_config({**values, throttled: "1000"}))
    settings = {"retention.ms": "1000", "flush.messages": "7"}
    flow.store("/config/topics/api", znodes.encode_config({**settings, "leader.replication.throttled.replicas": "*"}))
    for type, name, setting in (
        (ConfigResourceType.BROKER, "1", throttled),
        (ConfigResourceType.BROKER, "0", throttled),
        (ConfigResourceType.BROKER, "2", throttled),
        (ConfigResourceType.BROKER, "3", throttled),
        (ConfigResourceType.TOPIC, "api", "leader.replication.throttled.replicas"),
    ):
        step = ConfigChange(setting, AlterOperation.DELETE)
        flow.ask(AlterConfigs([ChangeConfigs(ConfigResource(type, name), [step])]))
    flow.writes("""
        set /config/brokers/1 {"version":1,"config":{"log.cleaner.threads":"2"}} (no fence)
        create /config/changes/config_change_ {"version":2,"entity_path":"brokers/1"} (no fence)
        set /config/brokers/0 {"version":1,"config":{}} (no fence)
        create /config/changes/config_change_ {"version":2,"entity_path":"brokers/0"} (no fence)
        set /config/brokers/2 {"version":1,"config":{}} (no fence)
        create /config/changes/config_change_ {"version":2,"entity_path":"brokers/2"} (no fence)
        create /config/brokers/3 {"version":1,"config":{}} (no fence)
        create /config/changes/config_change_ {"version":2,"entity_path":"brokers/3"} (no fence)
        --
        set /config/topics/api {"version":1,"config":{"retention.ms":"1000","flush.messages":"7"}} (no fence)
        create /config/changes/config_change_ {"version":2,"entity_path":"topics/api"} (no fence)
    """)
    flow.is_the_capture()


ELSEWHERE: Final = {
    "first-broker-start": "tests/scenarios/test_trees.py",
    "start-broker-3": "tests/scenarios/test_trees.py",
    "v3.9-start-0": "tests/scenarios/test_trees.py",
    "v3.9-start-1": "tests/scenarios/test_trees.py",
    "broker-id-generation": "tests/scenarios/test_trees.py",
    "rack-start-0": "a broker of protocol 2.6: as first-broker-start, registration version 4, feature status 0",
    "v2.2-start-0": "a broker of 2.2.1: as first-broker-start, registration version 4, no ips, no feature",
    "v2.2-create-topicone": "a controller of 2.2.1 gives no ids: as create-topicone without the first write",
    "v2.2-alter-partitions": "a controller of 2.2.1: as alter-partitions-topicone",
    "v2.2-execute": "a controller of 2.2.1 writes topics as version 1: as reassign-execute",
    "v2.2-verify": "brokers of 2.2.1 write their ISRs while the tool reads: as isr-shrink-expand-before-2.7",
    "v3.9-with-2.8-tool-reassign": "as reassign-execute",
    "zk-reassign-stuck-verify": "a broker is stopped meanwhile: as clean-shutdown-broker-1",
}
"""Flows in which brokers write, and no test here copies: why."""


@pytest.mark.skipif(not CAPTURE.exists(), reason="the capture is not at hand")
def test_every_captured_flow_is_accounted_for() -> None:
    """Copied by a test, or nothing is written by brokers in it, or it says why not."""
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_flows*.py"))
    named = set(re.findall(r'"([\w.-]+)"', sources))
    flows = {flow["name"]: flow for flow in json.loads(CAPTURE.read_bytes())}
    assert len(flows) == 131
    by_brokers = {
        name for name, flow in flows.items() if any(write["by"].startswith("broker") for write in flow["writes"])
    }
    assert set(ELSEWHERE) <= by_brokers
    assert sorted(by_brokers - named) == []
