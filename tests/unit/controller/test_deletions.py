"""Topics on their way out."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import Cluster, broker

from tidelog.controller.announcements import EPOCH_DURING_DELETE, LEADER_DURING_DELETE
from tidelog.controller.events import (
    DeletionsDue,
    DeletionsRequested,
    ReplicasStopped,
    Submitted,
    TopicNode,
    TopicsChanged,
)
from tidelog.controller.requests import DeletedTopic, DeleteTopics, TopicReference
from tidelog.controller.settings import ControllerSettings
from tidelog.metadata.operations import Create, Delete
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerId, TopicId, TopicPartition


def cluster_with(*assignment: list[int], settings: ControllerSettings | None = None) -> Cluster:
    cluster = Cluster(broker(0), broker(1), broker(2), settings=settings)
    cluster.make("t", *assignment)
    return cluster


def delete(cluster: Cluster, *topics: TopicReference) -> None:
    cluster.run(Submitted(7, DeleteTopics(topics)))


def stopped(cluster: Cluster, broker_id: int, *partitions: int, error: ErrorCode = ErrorCode.NONE) -> None:
    cluster.run(ReplicasStopped(BrokerId(broker_id), {TopicPartition("t", index): error for index in partitions}))


@pytest.mark.row("R08")
def test_a_deletion_is_written_in_kafkas_order() -> None:
    """As captured: the mark, a write a replica that leaves its ISR; when all stopped, bottom up, the mark last."""
    cluster = cluster_with([1], [2, 0])
    delete(cluster, TopicReference("t"))
    state = "set /brokers/topics/t/partitions"
    assert cluster.told() == [
        "create /admin/delete_topics/t",
        f'* {state}/1/state {{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":1,"isr":[2]}}',
        f'* {state}/0/state {{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":1,"isr":[1]}}',
        f'* {state}/1/state {{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":2,"isr":[2]}}',
    ]
    assert cluster.last.replies == []
    stopped(cluster, 0, 1)
    stopped(cluster, 1, 0)
    assert cluster.told() == []
    topic_id = cluster.controller.image.topics["t"].topic_id
    stopped(cluster, 2, 1)
    assert cluster.told() == [
        "* delete /brokers/topics/t/partitions/0/state",
        "* delete /brokers/topics/t/partitions/0",
        "* delete /brokers/topics/t/partitions/1/state",
        "* delete /brokers/topics/t/partitions/1",
        "* delete /brokers/topics/t/partitions",
        "* delete /brokers/topics/t",
        "* delete /config/topics/t",
        "* delete /admin/delete_topics/t",
    ]
    assert cluster.last.replies == [(7, [DeletedTopic("t", topic_id)])]
    assert cluster.controller.image.topics == {}


@pytest.mark.row("R08")
def test_brokers_are_told_to_forget_and_to_remove() -> None:
    """Everybody: leader -2. Who has a replica: stop it, with its files, whatever epoch it knows."""
    cluster = cluster_with([1], [2, 0])
    delete(cluster, TopicReference("t"))
    metadata = cluster.sent("UpdateMetadataRequest")
    assert sorted(metadata) == [0, 1, 2]
    [topic] = metadata[0].topic_states
    assert {state.leader for state in topic.partition_states} == {LEADER_DURING_DELETE}
    stops = cluster.sent("StopReplicaRequest")
    [topic] = stops[2].topic_states
    [state] = topic.partition_states
    assert (state.partition_index, state.delete_partition, state.leader_epoch) == (1, True, EPOCH_DURING_DELETE)
    assert sorted(stops) == [0, 1, 2]
    assert cluster.sent("LeaderAndIsrRequest") == {}


@pytest.mark.row("R08")
def test_by_id() -> None:
    """The answer has the name too."""
    cluster = cluster_with([0])
    topic_id = cluster.controller.image.topics["t"].topic_id
    delete(cluster, TopicReference(topic_id=topic_id))
    stopped(cluster, 0, 0)
    assert cluster.last.replies == [(7, [DeletedTopic("t", topic_id)])]


@pytest.mark.row("R08")
def test_refusals_are_answered_at_once() -> None:
    """Nothing is written for them."""
    cluster = cluster_with([0])
    topic_id = cluster.controller.image.topics["t"].topic_id
    delete(
        cluster,
        TopicReference("x"),
        TopicReference(topic_id=TopicId(b"9" * 16)),
        TopicReference(),
        TopicReference("t", topic_id),
        TopicReference("t"),
        TopicReference("t"),
    )
    [(_, outcomes)] = cluster.last.replies
    assert [outcome.error for outcome in outcomes] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        *[ErrorCode.INVALID_REQUEST] * 4,
    ]
    assert outcomes[-1].message == "Duplicate topic name."
    assert cluster.told() == []


@pytest.mark.row("R08")
def test_a_cluster_that_forbids_deletion() -> None:
    """delete.topic.enable=false: requests are refused, and an old tool's mark is wiped away."""
    cluster = cluster_with([0], settings=ControllerSettings(delete_topic_enable=False))
    delete(cluster, TopicReference("t"))
    [(_, [outcome])] = cluster.last.replies
    assert (outcome.error, outcome.message) == (ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    cluster.tree.transact(1, [Create("/admin/delete_topics/t")], 0)
    cluster.run(DeletionsRequested(["t"]))
    assert cluster.told() == ["* delete /admin/delete_topics/t"]
    assert "t" in cluster.controller.image.topics


@pytest.mark.row("R08")
def test_a_forbidden_deletion_does_not_keep_a_new_controller_from_the_topic() -> None:
    """A tool has marked it while there was no controller: it is led by a member of its ISR that lives, as any other."""
    cluster = cluster_with([1, 2], settings=ControllerSettings(delete_topic_enable=False))
    cluster.tree.transact(1, [Create("/admin/delete_topics/t")], 0)
    del cluster.brokers[BrokerId(1)]
    cluster.term(2)
    assert "/admin/delete_topics/t" not in cluster.tree.paths()
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    [topic] = cluster.sent("LeaderAndIsrRequest")[2].topic_states
    assert topic.topic_name == "t"


@pytest.mark.row("R08")
def test_an_old_tools_mark_is_carried_out_and_an_unknown_one_wiped_away() -> None:
    """/admin/delete_topics/T written from outside."""
    cluster = cluster_with([0])
    cluster.tree.transact(1, [Create("/admin/delete_topics/t"), Create("/admin/delete_topics/x")], 0)
    cluster.run(DeletionsRequested(["t", "x"]))
    assert cluster.told()[0] == "* delete /admin/delete_topics/x"
    stopped(cluster, 0, 0)
    assert cluster.told()[-1] == "* delete /admin/delete_topics/t"


@pytest.mark.row("R08")
def test_a_dead_replica_holds_a_deletion_up_until_it_is_back() -> None:
    """Then it is told to stop, and the deletion ends."""
    cluster = cluster_with([0, 2])
    cluster.live(broker(0), broker(1))
    delete(cluster, TopicReference("t"))
    stopped(cluster, 0, 0)
    assert cluster.last.replies == []
    cluster.told()
    cluster.live(broker(0), broker(1), broker(2, 300))
    assert cluster.told() == []
    assert list(cluster.sent("StopReplicaRequest")) == [2]
    assert cluster.sent("LeaderAndIsrRequest") == {}
    stopped(cluster, 2, 0)
    assert "t" not in cluster.controller.image.topics


@pytest.mark.row("R08")
def test_a_replica_that_could_not_be_removed_holds_a_deletion_up() -> None:
    """Its directory failed. One that the broker does not know is as good as removed."""
    cluster = cluster_with([0], [0])
    delete(cluster, TopicReference("t"))
    stopped(cluster, 0, 0, error=ErrorCode.KAFKA_STORAGE_ERROR)
    stopped(cluster, 0, 1, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert "t" in cluster.controller.image.topics
    stopped(cluster, 0, 0)
    assert "t" not in cluster.controller.image.topics


def test_the_next_controller_goes_on() -> None:
    """The mark is in the store: every replica is asked again, no state is written twice."""
    cluster = cluster_with([0], [1])
    delete(cluster, TopicReference("t"))
    cluster.told()
    cluster.term(2)
    assert sorted(cluster.sent("StopReplicaRequest")) == [0, 1]
    cluster.told()
    stopped(cluster, 0, 0)
    stopped(cluster, 1, 1)
    assert cluster.told()[-1] == "* delete /admin/delete_topics/t"


def test_two_requests_for_one_deletion_are_both_answered() -> None:
    """The second one joins."""
    cluster = cluster_with([0])
    delete(cluster, TopicReference("t"))
    cluster.run(Submitted(8, DeleteTopics([TopicReference("t")])))
    assert cluster.last.writes == []
    stopped(cluster, 0, 0)
    assert [request_id for request_id, _ in cluster.last.replies] == [7, 8]


def test_a_topic_without_replicas_goes_at_once() -> None:
    """A tool has made it so."""
    cluster = Cluster(broker(0))
    cluster.tree.transact(1, [Create("/brokers/topics/t", b'{"version":1,"partitions":{}}')], 0)
    cluster.run(TopicsChanged([cluster.node("t")]))
    topic_id = cluster.controller.image.topics["t"].topic_id
    delete(cluster, TopicReference("t"))
    assert cluster.last.replies == [(7, [DeletedTopic("t", topic_id)])]
    assert "/brokers/topics/t" not in cluster.tree.paths()


@pytest.mark.row("R08")
def test_a_topic_that_is_named_and_given_by_its_id_is_refused_as_kafka_does() -> None:
    """As one that is named twice. Others of the request are deleted."""
    cluster = cluster_with([0])
    cluster.make("u", [0])
    topic_id = cluster.controller.image.topics["t"].topic_id
    delete(cluster, TopicReference("t"), TopicReference("u"), TopicReference(None, topic_id))
    cluster.run(ReplicasStopped(BrokerId(0), {TopicPartition("u", 0): ErrorCode.NONE}))
    [(_, [by_name, other, by_id])] = cluster.last.replies
    assert (by_name.name, by_name.topic_id, by_name.error) == ("t", topic_id, ErrorCode.INVALID_REQUEST)
    assert by_name.message == "The provided topic name maps to an ID that was already supplied."
    assert (by_id.topic_id, by_id.error) == (topic_id, ErrorCode.INVALID_REQUEST)
    assert other.error is ErrorCode.NONE
    assert list(cluster.controller.image.topics) == ["t"]


def foreign_removal(cluster: Cluster) -> None:
    """Somebody removes the topic's nodes, bottom up, behind the controller's back."""
    for path in sorted((path for path in cluster.tree.paths() if path.startswith("/brokers/topics/t")), reverse=True):
        cluster.tree.transact(1, [Delete(path)], 0)


@pytest.mark.row("R08")
def test_a_topic_that_somebody_else_removes_is_gone() -> None:
    """In the middle of a deletion that waits for a dead broker: settings and mark go, the request is answered."""
    cluster = cluster_with([0, 1], [1, 0])
    cluster.live(broker(0), broker(2))
    delete(cluster, TopicReference("t"))
    stopped(cluster, 0, 0, 1)
    cluster.told()
    foreign_removal(cluster)
    cluster.run(TopicsChanged([TopicNode("t", None)]))
    assert cluster.told() == ["* delete /config/topics/t", "* delete /admin/delete_topics/t"]
    [(_, [outcome])] = cluster.last.replies
    assert (outcome.name, outcome.error) == ("t", ErrorCode.NONE)
    # The late answers of brokers find nothing, and do no harm.
    stopped(cluster, 1, 0, 1)
    cluster.live(broker(0), broker(1, 300), broker(2))
    assert cluster.told() == []
    assert cluster.loaded(1).state.image.topics == {}


def test_a_topic_that_somebody_else_makes_anew_is_not_deleted_with_the_former_one() -> None:
    """Topic and mark were removed, and the topic made again, between two reads. What brokers still answer to the former
    deletion, and that one of them comes back, changes nothing."""
    cluster = cluster_with([0, 1], [1, 0])
    cluster.live(broker(0), broker(2))
    delete(cluster, TopicReference("t"))
    cluster.told()
    foreign_removal(cluster)
    node = b'{"version":2,"partitions":{"0":[2]},"topic_id":"AAAAAAAAAAAAAAAAAAAAZw"}'
    cluster.tree.transact(1, [Delete("/admin/delete_topics/t"), Create("/brokers/topics/t", node)], 0)
    cluster.run(TopicsChanged([TopicNode("t", node, version=0, is_spared=True)]))
    [(_, [outcome])] = cluster.last.replies
    assert (outcome.name, outcome.error) == ("t", ErrorCode.NONE)
    assert cluster.partition("t").leader == 2
    cluster.told()
    stopped(cluster, 0, 0, 1)
    cluster.live(broker(0), broker(1, 300), broker(2))
    assert cluster.told() == []
    assert cluster.sent("StopReplicaRequest") == {}
    assert cluster.loaded(1).state.image.topics == cluster.controller.image.topics


def test_a_mark_of_a_topic_that_somebody_else_removed() -> None:
    """Found by the next controller: the mark and the settings are wiped away."""
    cluster = cluster_with([0, 1])
    cluster.live(broker(0), broker(2))
    delete(cluster, TopicReference("t"))
    foreign_removal(cluster)
    cluster.told()
    cluster.term(2)
    assert cluster.told() == ["* delete /admin/delete_topics/t"]


@pytest.mark.row("R08")
def test_a_dead_broker_that_was_the_last_in_sync_leaves_when_it_is_back() -> None:
    """Nothing is written for it while it is away; then its replica goes as any other."""
    cluster = cluster_with([1, 0])
    cluster.live(broker(1), broker(2))
    cluster.live(broker(2))
    cluster.told()
    delete(cluster, TopicReference("t"))
    assert cluster.told() == ["create /admin/delete_topics/t"]
    cluster.live(broker(2), broker(0, 300))
    stopped(cluster, 0, 0)
    assert cluster.told() == []
    cluster.live(broker(2), broker(0, 300), broker(1, 301))
    [line] = cluster.told()
    assert line.startswith("* set /brokers/topics/t/partitions/0/state")
    assert sorted(cluster.sent("StopReplicaRequest")) == [1]
    stopped(cluster, 1, 0)
    assert cluster.told()[-1] == "* delete /admin/delete_topics/t"


@pytest.mark.row("R08")
def test_a_broker_that_dies_while_it_deletes_is_asked_again() -> None:
    """Its answer never came. It leaves the ISR once more, as in Kafka, and leads nothing."""
    cluster = cluster_with([0, 1])
    delete(cluster, TopicReference("t"))
    stopped(cluster, 0, 0)
    cluster.told()
    cluster.live(broker(0), broker(2))
    cluster.live(broker(0), broker(1, 300), broker(2))
    [line] = cluster.told()
    assert line.endswith('"leader":-1,"version":1,"leader_epoch":3,"isr":[1]}')
    assert sorted(cluster.sent("StopReplicaRequest")) == [1]
    assert cluster.sent("LeaderAndIsrRequest") == {}


@pytest.mark.row("R08")
@pytest.mark.parametrize("error", [ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_broker_that_cannot_delete_for_now_is_asked_again(error: ErrorCode) -> None:
    """It lacks descriptors, or an error came that nobody foresaw: for what is left there, and without another write.
    A directory that failed is not asked."""
    cluster = cluster_with([0, 1], [1, 0])
    delete(cluster, TopicReference("t"))
    stopped(cluster, 0, 0, 1)
    stopped(cluster, 1, 0)
    cluster.told()
    stopped(cluster, 1, 1, error=ErrorCode.KAFKA_STORAGE_ERROR)
    assert cluster.last.timers == []
    stopped(cluster, 1, 1, error=error)
    [timer] = cluster.last.timers
    assert timer.event == DeletionsDue(BrokerId(1))
    cluster.run(timer.event)
    assert cluster.told() == []
    [topic] = cluster.sent("StopReplicaRequest")[1].topic_states
    assert [(each.partition_index, each.delete_partition) for each in topic.partition_states] == [(1, True)]
    stopped(cluster, 1, 1)
    assert cluster.told()[-1] == "* delete /admin/delete_topics/t"
    cluster.run(timer.event)
    assert cluster.last.sends == []
