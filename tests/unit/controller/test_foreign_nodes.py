"""What tools and strangers write into the store by themselves: taken over, completed, put back, or left out."""

from __future__ import annotations

import json

import pytest
from tests.unit.controller.harness import SESSION, Cluster, broker

from tidelog.controller.announcements import FULL_UPDATE, UNKNOWN_TYPE
from tidelog.controller.events import (
    DeletionsRequested,
    Elected,
    PreferredElectionRequested,
    ReassignmentsRequested,
    ReplicasPostponed,
    ReplicasStopped,
    Submitted,
    TopicIdsDue,
    TopicIdsTold,
    TopicNode,
    TopicsChanged,
)
from tidelog.controller.requests import (
    AlterReassignments,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    ReassignPartition,
    TopicReference,
)
from tidelog.controller.settings import ControllerSettings
from tidelog.metadata.operations import Create, Delete, SetData
from tidelog.metadata.znodes import (
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    PartitionState,
    TopicAssignment,
    decode_topic,
    delete_topic_path,
    encode_config,
    encode_reassignment,
    encode_state,
    encode_topic,
)
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import (
    NO_LEADER,
    ZERO_TOPIC_ID,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicId,
    TopicPartition,
)


def create(cluster: Cluster, topic: NewTopic) -> CreatedTopic:
    [outcome] = cluster.ask(CreateTopics([topic]))
    return outcome


def put_topic(cluster: Cluster, content: TopicAssignment) -> None:
    """Somebody writes a topic's node, and the controller sees it."""
    data = encode_topic(content)
    cluster.tree.transact(1, [SetData("/brokers/topics/t", data)], 0)
    cluster.run(TopicsChanged([cluster.node("t")]))


@pytest.mark.parametrize(
    "partitions",
    [{0: [2, 1], 1: [1, 0]}, {0: [0, 1]}, {0: [0, 1, 2], 1: [], 2: [2]}],
    ids=["other", "fewer", "more too"],
)
def test_replicas_that_somebody_else_moves_are_put_back(partitions: dict[int, list[int]]) -> None:
    """A partition's replicas move by reassignment alone; else an ISR would name brokers that hold nothing."""
    cluster = Cluster(broker(0), broker(1), broker(2))
    cluster.make("t", [0, 1], [1, 0])
    topic_id = cluster.controller.image.topics["t"].topic_id
    put_topic(cluster, TopicAssignment(partitions, topic_id))
    assert cluster.partition("t", 0).replicas == (0, 1)
    assert cluster.partition("t", 1).replicas == (1, 0)
    assert cluster.told()[0].startswith('* set /brokers/topics/t {"partitions":{"0":[0,1],"1":[1,0]')
    # What is new is welcome.
    assert len(cluster.controller.image.topics["t"].partitions) == max(2, len(partitions))
    assert cluster.loaded(1).state.image == cluster.controller.image


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"version":4,"partitions":{"0":[0,1]}}',
        b'{"version":3,"partitions":{"0":[0,1]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAg"}',
        b'{"version":3,"partitions":{"0":[0,4294967296]}}',
        b'{"version":3,"partitions":{"0":null}}',
    ],
    ids=["broken", "no object", "version", "another id", "too large an id", "no list"],
)
def test_a_topics_node_that_somebody_breaks_is_put_back(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The controller knows what stood there; the next one would leave the topic out. The message names the node."""
    cluster = Cluster(broker(0), broker(1))
    cluster.make("t", [0, 1])
    known, before = cluster.partition("t"), cluster.tree.get("/brokers/topics/t")[0]
    cluster.tree.transact(1, [SetData("/brokers/topics/t", data)], 0)
    cluster.run(TopicsChanged([TopicNode("t", data, is_same_node=True)]))
    assert cluster.partition("t") == known
    assert cluster.tree.get("/brokers/topics/t")[0] == before
    assert "/brokers/topics/t" in caplog.text
    assert cluster.loaded(1).state.image == cluster.controller.image


def test_a_node_that_was_read_before_the_controllers_last_write_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A watch was on its way while a reassignment began: what it led to is older than what the controller knows."""
    cluster = Cluster(broker(0), broker(1), broker(2))
    cluster.make("t", [0, 1])
    read = cluster.node("t", is_same_node=True)
    wish = ReassignPartition(TopicPartition("t", 0), (BrokerId(0), BrokerId(2)))
    cluster.run(Submitted(1, AlterReassignments([wish])))
    cluster.told()
    cluster.run(TopicsChanged([read]))
    assert cluster.told() == []
    assert cluster.partition("t").adding == (2,)
    assert caplog.text == ""


def test_a_topic_that_is_being_deleted_does_not_grow() -> None:
    """Partitions that a tool adds meanwhile are taken out of the node again, as Kafka does."""
    cluster = Cluster(broker(0), broker(1))
    cluster.make("t", [0, 1])
    topic_id = cluster.controller.image.topics["t"].topic_id
    cluster.run(Submitted(1, DeleteTopics([TopicReference("t")])))
    cluster.told()
    put_topic(cluster, TopicAssignment({0: [0, 1], 1: [1, 0]}, topic_id))
    assert list(cluster.controller.image.topics["t"].partitions) == [0]
    [line] = cluster.told()
    assert line.startswith('* set /brokers/topics/t {"partitions":{"0":[0,1]}')


def test_two_topics_with_one_id(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody copied a node: the second one is left out, and its name stays taken."""
    cluster = Cluster(broker(0))
    cluster.make("t", [0])
    data = cluster.tree.get("/brokers/topics/t")[0]
    cluster.tree.transact(1, [Create("/brokers/topics/copy", data)], 0)
    cluster.run(TopicsChanged([TopicNode("copy", data)]))
    assert list(cluster.controller.image.topics) == ["t"]
    assert "/brokers/topics/copy in the metadata store is malformed: its id is that of topic t" in caplog.text
    outcome = create(cluster, NewTopic("copy", 1, 1))
    assert outcome.error is ErrorCode.TOPIC_ALREADY_EXISTS
    assert outcome.message is not None
    assert "/brokers/topics/copy" in outcome.message


def test_a_partition_whose_state_nobody_can_read_is_left_alone() -> None:
    """No leader is elected, for nobody knows the last epoch; the other partition is, and both go with the topic."""
    cluster = Cluster(broker(0))
    cluster.make("t", [0], [0])
    cluster.tree.transact(1, [SetData("/brokers/topics/t/partitions/1/state", b"broken")], 0)
    cluster.told()
    cluster.term(2)
    assert cluster.told() == []
    assert cluster.partition("t", 0).leader == 0
    assert not cluster.partition("t", 1).has_state
    assert list(cluster.controller.state.malformed) == ["/brokers/topics/t/partitions/1/state"]
    cluster.run(Submitted(1, DeleteTopics([TopicReference("t")])))
    stopped = {TopicPartition("t", index): ErrorCode.NONE for index in (0, 1)}
    cluster.run(ReplicasStopped(BrokerId(0), stopped))
    assert not [path for path in cluster.tree.paths() if path.startswith("/brokers/topics/")]


def test_a_partition_in_the_last_leader_epoch_is_left_alone() -> None:
    """Epochs travel as 32 bits: the next one would fit into no order, and a lower one would have records cut."""
    cluster = Cluster(broker(0), broker(1))
    cluster.make("t", [0, 1], [0, 1])
    path = "/brokers/topics/t/partitions/1/state"
    state = encode_state(
        PartitionState(BrokerId(0), LeaderEpoch(2**31 - 1), (BrokerId(0), BrokerId(1)), ControllerEpoch(1))
    )
    cluster.tree.transact(1, [SetData(path, state)], 0)
    cluster.told()
    cluster.term(2)
    cluster.live(broker(1))
    assert cluster.partition("t", 0).leader == 1
    assert cluster.tree.get(path)[0] == state
    assert "2147483647" in cluster.controller.state.malformed[path]


@pytest.mark.parametrize("target", [None, [0, 1]], ids=["cancelled", "another target"])
def test_no_replica_goes_whose_partition_has_a_state_that_nobody_can_read(target: list[int] | None) -> None:
    """It is being added, and may be the only one in sync: it may lead."""
    cluster = Cluster(broker(0), broker(1), broker(2))
    cluster.make("t", [0])
    wish = ReassignPartition(TopicPartition("t", 0), (BrokerId(2),))
    cluster.ask(AlterReassignments([wish]))
    cluster.tree.transact(1, [SetData("/brokers/topics/t/partitions/0/state", b"broken")], 0)
    cluster.term(2)
    wish = ReassignPartition(TopicPartition("t", 0), None if target is None else tuple(map(BrokerId, target)))
    [outcome] = cluster.ask(AlterReassignments([wish]))
    assert outcome.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.sent("StopReplicaRequest") == {}
    assert cluster.partition("t").adding == (2,)


def test_a_topic_whose_settings_nobody_can_read_has_no_unclean_leader() -> None:
    """All other topics may have one; this one may have said that it does not want any."""
    cluster = Cluster(broker(0), broker(1), settings=ControllerSettings(unclean_leader_election_enable=True))
    cluster.make("t", [0, 1])
    cluster.live(broker(0))
    cluster.tree.transact(1, [SetData("/config/topics/t", b"broken")], 0)
    cluster.brokers = {BrokerId(1): broker(1, 300)}
    cluster.term(2)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (NO_LEADER, (0,))
    cluster.tree.transact(1, [SetData("/config/topics/t", encode_config({}))], 0)
    cluster.term(3)
    assert cluster.partition("t").leader == 1


def test_a_plan_waits_for_a_state_that_nobody_can_read() -> None:
    """It goes on when the node is mended."""
    cluster = Cluster(broker(0), broker(1), broker(2))
    cluster.make("t", [0])
    path, t0 = "/brokers/topics/t/partitions/0/state", TopicPartition("t", 0)
    cluster.ask(AlterReassignments([ReassignPartition(t0, (BrokerId(2),))]))
    before, _ = cluster.tree.get(path)
    cluster.tree.transact(1, [SetData(path, b"broken")], 0)
    cluster.term(2)
    data = encode_reassignment({t0: [0, 1]})
    cluster.tree.transact(1, [Create(REASSIGN_PARTITIONS, data)], 0)
    cluster.run(ReassignmentsRequested(data))
    assert cluster.sent("StopReplicaRequest") == {}
    assert cluster.partition("t").adding == (2,)
    cluster.tree.transact(1, [SetData(path, before)], 0)
    cluster.term(3)
    assert cluster.partition("t").adding == (1,)


def test_a_topic_whose_node_nobody_can_read_is_not_told_to_be_gone() -> None:
    """For brokers it would be deleted, and with it what groups have committed. Strangers' nodes do not count."""
    cluster = Cluster(broker(0), broker(1))
    cluster.make("t", [0, 1])
    before, _ = cluster.tree.get("/brokers/topics/t")
    cluster.tree.transact(1, [Create("/brokers/topics/stranger", b"broken")], 0)
    cluster.tree.transact(1, [SetData("/brokers/topics/t", b"broken")], 0)
    cluster.term(2)
    assert {request.type for request in cluster.sent("UpdateMetadataRequest").values()} == {UNKNOWN_TYPE}
    cluster.live(broker(0), broker(1, 300))
    assert {request.type for request in cluster.sent("UpdateMetadataRequest").values()} == {UNKNOWN_TYPE}
    cluster.tree.transact(1, [SetData("/brokers/topics/t", before)], 0)
    cluster.term(3)
    assert {request.type for request in cluster.sent("UpdateMetadataRequest").values()} == {FULL_UPDATE}


def test_a_state_that_no_topic_refers_to_goes_with_the_topic() -> None:
    """Somebody made the topic smaller while there was no controller."""
    cluster = Cluster(broker(0))
    cluster.make("t", [0], [0])
    topic_id = cluster.controller.image.topics["t"].topic_id
    cluster.tree.transact(1, [SetData("/brokers/topics/t", encode_topic(TopicAssignment({0: [0]}, topic_id)))], 0)
    cluster.term(2)
    cluster.run(Submitted(1, DeleteTopics([TopicReference("t")])))
    cluster.run(ReplicasStopped(BrokerId(0), {TopicPartition("t", 0): ErrorCode.NONE}))
    assert not [path for path in cluster.tree.paths() if path.startswith("/brokers/topics/")]


def shrink(cluster: Cluster, partitions: dict[int, list[int]]) -> None:
    """Somebody makes the topic smaller while there is no controller; then one is elected."""
    topic_id = cluster.controller.image.topics["t"].topic_id
    put = SetData("/brokers/topics/t", encode_topic(TopicAssignment(partitions, topic_id)))
    cluster.tree.transact(1, [put], 0)
    cluster.term(2)


def test_states_that_no_topic_refers_to_keep_no_controller_from_its_work() -> None:
    """The folder of the topic's partitions is there, though none of those that the topic has was ever led."""
    cluster = Cluster(broker(0), broker(1))
    cluster.make("t", [0, 1], [1, 0])
    shrink(cluster, {2: [0, 1]})
    assert cluster.partition("t", 2).leader == 0
    assert cluster.loaded(2).state.image == cluster.controller.image


def test_a_topic_grows_again_where_it_was_made_smaller() -> None:
    """What is left of the partitions goes on in the next leader epoch: brokers take no order of an older one."""
    cluster = Cluster(broker(0), broker(1))
    cluster.make("t", [0, 1], [1, 0], [0, 1])
    shrink(cluster, {0: [0, 1]})
    [outcome] = cluster.ask(CreatePartitions([MorePartitions("t", 2, [[0, 1]])]))
    assert outcome.error is ErrorCode.NONE
    assert (cluster.partition("t", 1).leader, cluster.partition("t", 1).leader_epoch) == (0, 1)
    assert set(cluster.sent("LeaderAndIsrRequest")) == {0, 1}
    topic_id = cluster.controller.image.topics["t"].topic_id
    put_topic(cluster, TopicAssignment({0: [0, 1], 1: [0, 1], 2: [1, 0]}, topic_id))
    assert (cluster.partition("t", 2).leader, cluster.partition("t", 2).leader_epoch) == (1, 1)
    assert set(cluster.sent("LeaderAndIsrRequest")) == {0, 1}
    assert cluster.loaded(2).state.image == cluster.controller.image
    assert cluster.controller.state.orphans == {}


@pytest.mark.parametrize(
    "strangers",
    [
        ["partitions/foo"],
        ["partitions/7"],
        ["partitions/07", "partitions/07/state"],
        ["partitions/foo/state", "partitions/foo/state/below"],
        ["partitions/0/other"],
        ["partitions/0/state/below"],
        ["other", "other/below"],
    ],
    ids=" ".join,
)
def test_nodes_that_nobody_knows_go_with_the_topic(strangers: list[str]) -> None:
    """As Kafka deletes recursively; until then they disturb nobody."""
    cluster = Cluster(broker(0))
    cluster.make("t", [0], [0])
    for stranger in strangers:
        path = "/brokers/topics/t"
        for name in stranger.split("/"):
            path += f"/{name}"
            if cluster.tree.exists(path) is None:
                cluster.tree.transact(1, [Create(path)], 0)
    known = cluster.controller.image
    cluster.term(2)
    assert cluster.controller.image.topics == known.topics
    assert cluster.told() == []
    cluster.run(Submitted(1, DeleteTopics([TopicReference("t")])))
    cluster.run(ReplicasStopped(BrokerId(0), {TopicPartition("t", index): ErrorCode.NONE for index in (0, 1)}))
    assert not [path for path in cluster.tree.paths() if path.startswith("/brokers/topics/")]
    assert cluster.controller.state.bare_nodes == {}


def test_another_topic_of_the_same_name() -> None:
    """Removed and made anew by somebody between two looks: nothing of the old one is kept."""
    cluster = Cluster(broker(0), broker(1))
    cluster.make("t", [0, 1])
    for path in sorted((path for path in cluster.tree.paths() if path.startswith("/brokers/topics/t")), reverse=True):
        cluster.tree.transact(1, [Delete(path)], 0)
    data = encode_topic(TopicAssignment({0: [1]}, TopicId(b"another topic id")))
    cluster.tree.transact(1, [Create("/brokers/topics/t", data)], 0)
    cluster.run(TopicsChanged([TopicNode("t", data)]))
    image = cluster.partition("t")
    assert (image.replicas, image.leader, image.leader_epoch, image.partition_epoch) == ((1,), 1, 0, 0)
    assert cluster.loaded(1).state.image == cluster.controller.image


def test_an_old_tool_that_drops_the_id_does_not_change_it() -> None:
    """2.2.1 rewrites the node as version 1; the topic is the same one, and its new partition gets a leader.

    The id is written back after all else: the next controller would give the topic another one.
    """
    cluster = Cluster(broker(0), broker(1))
    outcome = create(cluster, NewTopic("t", assignment=[(0, [0])]))
    cluster.told()
    drop_the_id(cluster)
    cluster.run(TopicsChanged([TopicNode("t", cluster.tree.get("/brokers/topics/t")[0], is_same_node=True)]))
    assert cluster.controller.image.topics["t"].topic_id == outcome.topic_id
    assert cluster.partition("t", 1).leader == 1
    assert cluster.told()[-1].startswith('* set /brokers/topics/t {"partitions":{"0":[0],"1":[1]},"topic_id":')
    assert decode_topic("t", cluster.tree.get("/brokers/topics/t")[0]).topic_id == outcome.topic_id


def test_a_controller_dies_when_an_old_tool_has_dropped_the_id() -> None:
    """The next one takes the id that its broker knows."""
    cluster = Cluster(broker(0), broker(1))
    topic_id = create(cluster, NewTopic("t", assignment=[(0, [0])])).topic_id
    drop_the_id(cluster)
    cluster.controller = cluster.loaded(2)
    cluster.controller.load([], {"t": topic_id})
    cluster.run(Elected())
    assert cluster.controller.image.topics["t"].topic_id == topic_id
    assert cluster.partition("t", 1).leader == 1


def without_id(*isr: int) -> tuple[Cluster, TopicId]:
    """A controller has died as a tool dropped the id of topic t, which its successor does not know; its partition 0 has
    this ISR."""
    cluster = Cluster(*map(broker, isr or (0, 1)))
    topic_id = create(cluster, NewTopic("t", assignment=[(0, list(isr or (0,)))])).topic_id
    drop_the_id(cluster, *isr)
    cluster.term(2)
    return cluster, topic_id


def say(cluster: Cluster, broker_id: int, partition: int, topic_id: TopicId) -> None:
    cluster.run(TopicIdsTold(BrokerId(broker_id), {TopicPartition("t", partition): topic_id}))


def test_the_id_that_brokers_logs_have_is_the_topics() -> None:
    """Brokers would put aside logs of another id, with all that is in them: they are asked first."""
    cluster, topic_id = without_id()
    [asked] = cluster.sent("LeaderAndIsrRequest")[0].topic_states
    assert (asked.topic_name, asked.topic_id) == ("t", ZERO_TOPIC_ID)
    assert cluster.partition("t", 1).leader == 1
    say(cluster, 0, 0, topic_id)
    assert decode_topic("t", cluster.tree.get("/brokers/topics/t")[0]).topic_id == topic_id
    told = [cluster.sent(kind)[1].topic_states[0] for kind in ("UpdateMetadataRequest", "LeaderAndIsrRequest")]
    assert [topic.topic_id for topic in told] == [topic_id, topic_id]
    say(cluster, 1, 1, ZERO_TOPIC_ID)
    assert cluster.controller.image.topics["t"].topic_id == topic_id
    assert cluster.loaded(1).state.image.topics == cluster.controller.image.topics


def test_a_topic_of_whose_logs_none_has_an_id_gets_a_new_one() -> None:
    """Once all live members of its ISR have said so: one from before topic ids (KIP-516). Brokers of a version that
    does not know the question answer in the same way."""
    cluster, topic_id = without_id(0, 1)
    say(cluster, 1, 1, ZERO_TOPIC_ID)
    say(cluster, 0, 0, ZERO_TOPIC_ID)
    assert cluster.controller.image.topics["t"].topic_id == ZERO_TOPIC_ID
    say(cluster, 1, 0, ZERO_TOPIC_ID)
    assert cluster.controller.image.topics["t"].topic_id not in (ZERO_TOPIC_ID, topic_id)


def test_a_member_that_dies_is_waited_for_no_longer() -> None:
    cluster, topic_id = without_id(0, 1)
    say(cluster, 0, 0, ZERO_TOPIC_ID)
    cluster.live(broker(0))
    assert cluster.controller.image.topics["t"].topic_id not in (ZERO_TOPIC_ID, topic_id)


@pytest.mark.parametrize("is_back", [True, False])
def test_a_dead_partition_does_not_keep_the_id_from_the_others(is_back: bool) -> None:
    """An id is the whole topic's. The partition whose broker is away for long need not be asked; one that is back in
    time has the id, and its records: with another one they would be put aside."""
    cluster = Cluster(broker(0), broker(1))
    topic_id = create(cluster, NewTopic("t", assignment=[(0, [0]), (1, [1])])).topic_id
    drop_the_id(cluster)
    cluster.brokers.pop(BrokerId(1))
    cluster.term(2)
    assert cluster.partition("t", 1).leader == NO_LEADER
    say(cluster, 0, 0, ZERO_TOPIC_ID)
    assert cluster.controller.image.topics["t"].topic_id == ZERO_TOPIC_ID
    due = [timer for timer in cluster.last.timers if isinstance(timer.event, TopicIdsDue)]
    assert [timer.delay_ms for timer in due] == [cluster.settings.isr_return_wait_ms]
    if is_back:
        cluster.live(broker(0), broker(1, 301))
        say(cluster, 1, 1, topic_id)
        assert cluster.controller.image.topics["t"].topic_id == topic_id
    else:
        cluster.now_ms += cluster.settings.isr_return_wait_ms
        cluster.run(due[0].event)
        assert cluster.controller.image.topics["t"].topic_id not in (ZERO_TOPIC_ID, topic_id)


def test_a_replica_that_is_not_in_sync_is_not_believed() -> None:
    """Its folder may be that of a deleted topic of the name, which its disk has brought back."""
    cluster, topic_id = without_id(0, 1)
    cluster.live(broker(0), broker(1, 301))
    assert cluster.partition("t").isr == (0,)
    say(cluster, 1, 0, TopicId(b"the former topic"))
    assert cluster.controller.image.topics["t"].topic_id == ZERO_TOPIC_ID
    say(cluster, 0, 0, topic_id)
    assert cluster.controller.image.topics["t"].topic_id == topic_id


def test_a_broker_that_postponed_the_order_is_asked_again() -> None:
    """It carries the order out by itself, and says nothing more."""
    cluster, topic_id = without_id()
    cluster.run(ReplicasPostponed(BrokerId(0), [TopicPartition("t", 0)]))
    [due] = [timer.event for timer in cluster.last.timers if isinstance(timer.event, TopicIdsDue)]
    cluster.run(due)
    assert [topic.topic_name for topic in cluster.sent("LeaderAndIsrRequest")[0].topic_states] == ["t"]
    say(cluster, 0, 0, topic_id)
    assert cluster.controller.image.topics["t"].topic_id == topic_id


def test_an_id_that_somebody_else_writes_is_told() -> None:
    """An operator, upon the warning, or a controller that was deposed a moment later."""
    cluster, topic_id = without_id()
    put_topic(cluster, TopicAssignment({0: [0], 1: [1]}, topic_id))
    told = [topic for id in (0, 1) for topic in cluster.sent("LeaderAndIsrRequest")[id].topic_states]
    assert [topic.topic_id for topic in told] == [topic_id, topic_id]


def test_the_id_of_another_topic_is_not_taken() -> None:
    """Somebody has copied a log's folder: the topic gets an id of its own."""
    cluster = Cluster(broker(0))
    other = create(cluster, NewTopic("other", assignment=[(0, [0])])).topic_id
    create(cluster, NewTopic("t", assignment=[(0, [0])]))
    cluster.tree.transact(1, [SetData("/brokers/topics/t", b'{"version":1,"partitions":{"0":[0]}}')], 0)
    cluster.term(2)
    say(cluster, 0, 0, other)
    assert cluster.controller.image.topics["t"].topic_id not in (ZERO_TOPIC_ID, other)


def test_a_topic_that_is_deleted_gets_no_id() -> None:
    """What brokers still say of it comes too late."""
    cluster, topic_id = without_id()
    cluster.tree.transact(1, [Create(delete_topic_path("t"))], 0)
    cluster.run(DeletionsRequested(["t"]))
    say(cluster, 0, 0, topic_id)
    say(cluster, 0, 0, ZERO_TOPIC_ID)
    assert not any(line.startswith("* set /brokers/topics/t ") for line in cluster.told())


def test_a_topic_that_is_made_anew_does_not_get_the_id_of_the_old_one() -> None:
    """A tool of 2.8 made it without an id; it was never led, so it is not the one that a broker remembers."""
    cluster = Cluster(broker(0))
    cluster.tree.transact(1, [Create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[0]}}')], 0)
    cluster.controller = cluster.loaded(2)
    cluster.controller.load([], {"t": TopicId(b"another topic id")})
    cluster.run(Elected())
    assert cluster.controller.image.topics["t"].topic_id not in (ZERO_TOPIC_ID, b"another topic id")


def drop_the_id(cluster: Cluster, *replicas: int) -> None:
    """As kafka-topics of 2.2.1 --alter writes topic t with a second partition."""
    data = json.dumps({"version": 1, "partitions": {"0": replicas or [0], "1": replicas or [1]}}).encode()
    cluster.tree.transact(1, [SetData("/brokers/topics/t", data)], 0)


def removals(cluster: Cluster) -> list[Delete]:
    return [write.operation for write in cluster.last.writes if isinstance(write.operation, Delete)]


def test_the_wish_that_is_removed_is_the_one_that_was_read() -> None:
    """So that a removal that is repeated, since its answer was lost, does not take the next wish of a tool."""
    cluster = Cluster(broker(0), broker(1))
    cluster.make("t", [0, 1])
    for path in (PREFERRED_ELECTION, delete_topic_path("x"), REASSIGN_PARTITIONS):
        cluster.tree.transact(SESSION, [Create(path)], 0)
    cluster.run(PreferredElectionRequested((), 41))
    assert removals(cluster) == [Delete(PREFERRED_ELECTION, czxid=41)]
    cluster.run(DeletionsRequested(["x"], {"x": 42}))
    assert removals(cluster) == [Delete(delete_topic_path("x"), czxid=42)]
    plan = encode_reassignment({TopicPartition("t", 0): (BrokerId(0), BrokerId(1))})
    cluster.run(ReassignmentsRequested(plan, 0, 43))
    assert removals(cluster) == [Delete(REASSIGN_PARTITIONS, 0, 43)]
