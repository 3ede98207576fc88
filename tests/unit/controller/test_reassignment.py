"""Partitions on their way to other brokers, seen from the controller; the writes in full are in tests/scenarios."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from tests.unit.controller.harness import SESSION, Cluster, broker

from tidelog.controller import reassignment
from tidelog.controller.events import (
    ConfigsChanged,
    DeletionsRequested,
    LeaderBalanceDue,
    ReassignmentsRequested,
    ReplicasFailed,
    ReplicasStopped,
    Submitted,
    TopicNode,
    TopicsChanged,
)
from tidelog.controller.requests import (
    AlterPartition,
    AlterReassignments,
    ControlledShutdown,
    CreatePartitions,
    DeleteTopics,
    ElectionType,
    ElectLeaders,
    IsrMember,
    IsrProposal,
    ListReassignments,
    MorePartitions,
    OngoingReassignment,
    ReassignmentOutcome,
    ReassignPartition,
    TopicReference,
)
from tidelog.metadata import znodes
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.metadata.operations import Check, Create, Delete, Operation, SetData
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_LEADER, ZERO_TOPIC_ID, BrokerId, TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 0 to 4; t-0 on 0, 1, 2."""
    made = Cluster(*map(broker, range(5)))
    made.make("t", [0, 1, 2])
    return made


def reassign(cluster: Cluster, replicas: list[int] | None, topic_partition: TopicPartition = T0) -> ReassignmentOutcome:
    """Asks for one partition's replicas; None cancels."""
    wish = ReassignPartition(topic_partition, None if replicas is None else [BrokerId(id) for id in replicas])
    [outcome] = cluster.ask(AlterReassignments([wish]))
    assert outcome.topic_partition == topic_partition
    return outcome


def begun(cluster: Cluster, replicas: list[int] | None, topic_partition: TopicPartition = T0) -> None:
    outcome = reassign(cluster, replicas, topic_partition)
    assert outcome.error is ErrorCode.NONE, outcome


def in_sync(cluster: Cluster, *isr: int, topic_partition: TopicPartition = T0) -> None:
    """The leader proposes an ISR, and gets it."""
    image = cluster.partition(*topic_partition)
    members = [IsrMember(BrokerId(id), cluster.brokers[BrokerId(id)].epoch) for id in isr]
    proposal = IsrProposal(topic_partition, ZERO_TOPIC_ID, image.leader_epoch, members, image.partition_epoch)
    [outcome] = cluster.ask(AlterPartition(image.leader, cluster.brokers[image.leader].epoch, [proposal]))
    assert outcome.error is ErrorCode.NONE
    assert tuple(outcome.isr) == isr


def under_way(cluster: Cluster) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    return [
        (tuple(each.replicas), tuple(each.adding), tuple(each.removing)) for each in cluster.ask(ListReassignments())
    ]


def plan(cluster: Cluster, content: bytes | dict[TopicPartition, list[int]]) -> None:
    """An old tool writes the node."""
    data = content if isinstance(content, bytes) else znodes.encode_reassignment(content)
    cluster.tree.transact(SESSION, [Create(znodes.REASSIGN_PARTITIONS, data)], 0)
    cluster.run(ReassignmentsRequested(data))


def planned(cluster: Cluster) -> dict[TopicPartition, list[int]] | None:
    """What is left in the node; None where it is gone."""
    if cluster.tree.exists(znodes.REASSIGN_PARTITIONS) is None:
        return None
    return znodes.decode_reassignment(cluster.tree.get(znodes.REASSIGN_PARTITIONS)[0])


def die(cluster: Cluster, *ids: int) -> None:
    cluster.live(*[each for id, each in cluster.brokers.items() if id not in ids])


def come(cluster: Cluster, *ids: int) -> None:
    cluster.live(*cluster.brokers.values(), *(broker(id, 1_000 + id) for id in ids))


def stopped(cluster: Cluster) -> dict[int, list[bool]]:
    """By broker: of each replica that the last event stopped, whether its files go."""
    return {
        broker_id: [state.delete_partition for topic in message.topic_states for state in topic.partition_states]
        for broker_id, message in cluster.sent("StopReplicaRequest").items()
    }


def check(cluster: Cluster) -> None:
    """Another controller that reads the store knows the same."""
    known = cluster.controller.state
    loaded = cluster.loaded(known.image.controller_epoch).state
    assert (loaded.image, loaded.plan) == (known.image, known.plan)


# By request.


def test_everybody_concerned_is_told_at_the_beginning(cluster: Cluster) -> None:
    """Old and new replicas, with the next leader epoch; the new one is told that it never had the log."""
    begun(cluster, [3, 1, 2])
    orders = {
        broker_id: message.topic_states[0].partition_states[0]
        for broker_id, message in cluster.sent("LeaderAndIsrRequest").items()
    }
    assert sorted(orders) == [0, 1, 2, 3]
    assert {broker_id: order.is_new for broker_id, order in orders.items()} == {0: False, 1: False, 2: False, 3: True}
    assert (orders[3].leader, orders[3].leader_epoch, orders[3].isr) == (0, 1, [0, 1, 2])
    assert (orders[3].replicas, orders[3].adding_replicas, orders[3].removing_replicas) == ([3, 1, 2, 0], [3], [0])
    assert sorted(cluster.sent("UpdateMetadataRequest")) == [0, 1, 2, 3, 4]
    assert under_way(cluster) == [((3, 1, 2, 0), (3,), (0,))]
    check(cluster)


def test_the_target_leads_and_who_is_removed_deletes_its_files(cluster: Cluster) -> None:
    """When all of the target is in sync; the answer to the leader is what it asked for, not what followed."""
    begun(cluster, [3, 1, 2])
    in_sync(cluster, 0, 1, 2, 3)
    image = cluster.partition("t")
    assert (image.replicas, image.leader, image.leader_epoch, image.isr) == ((3, 1, 2), 3, 3, (1, 2, 3))
    assert under_way(cluster) == []
    in_sync(cluster, 1, 2, 3)
    check(cluster)


def test_orders_at_the_end(cluster: Cluster) -> None:
    """The target's replicas follow the new leader; the removed one stops, with its files; all hear who leads."""
    begun(cluster, [3, 1, 2])
    in_sync(cluster, 0, 1, 2, 3)
    assert stopped(cluster) == {0: [True]}
    orders = cluster.sent("LeaderAndIsrRequest")
    assert sorted(orders) == [1, 2, 3]
    assert orders[3].topic_states[0].partition_states[0].replicas == [3, 1, 2]
    [state] = cluster.sent("UpdateMetadataRequest")[4].topic_states[0].partition_states
    assert (state.leader, state.leader_epoch, state.replicas) == (3, 3, [3, 1, 2])


def test_a_part_of_the_target_is_not_enough(cluster: Cluster) -> None:
    """All replicas new: the second one is waited for."""
    begun(cluster, [3, 4])
    in_sync(cluster, 0, 1, 2, 3)
    assert under_way(cluster) == [((3, 4, 0, 1, 2), (3, 4), (0, 1, 2))]
    assert stopped(cluster) == {}
    in_sync(cluster, 0, 1, 2, 3, 4)
    assert cluster.partition("t").replicas == (3, 4)
    assert cluster.partition("t").isr == (3, 4)


def test_another_order_is_done_at_once(cluster: Cluster) -> None:
    """The leader stays where it is: it is of the target."""
    begun(cluster, [2, 1, 0])
    image = cluster.partition("t")
    assert (image.replicas, image.leader, image.leader_epoch, image.isr) == ((2, 1, 0), 0, 1, (0, 1, 2))
    assert stopped(cluster) == {}
    check(cluster)


@pytest.mark.row("R14")
def test_a_lower_replication_factor_is_done_at_once(cluster: Cluster) -> None:
    """Whoever leaves the ISR has a write of its own."""
    cluster.told()
    begun(cluster, [2])
    assert [json.loads(line.split(" ", 3)[3])["isr"] for line in cluster.told() if "/state " in line] == [
        [0, 1, 2],
        [1, 2],
        [2],
    ]
    assert cluster.partition("t").leader == 2
    assert stopped(cluster) == {0: [True], 1: [True]}


@pytest.mark.row("R14")
def test_a_higher_replication_factor(cluster: Cluster) -> None:
    """Nobody leaves."""
    begun(cluster, [0, 1, 2, 3])
    assert under_way(cluster) == [((0, 1, 2, 3), (3,), ())]
    in_sync(cluster, 0, 1, 2, 3)
    assert cluster.partition("t").replicas == (0, 1, 2, 3)
    assert under_way(cluster) == []


@pytest.mark.parametrize(
    ("replicas", "error", "message"),
    [
        ([], "INVALID_REPLICA_ASSIGNMENT", "Empty replica list specified in partition reassignment."),
        (
            [1, 1],
            "INVALID_REPLICA_ASSIGNMENT",
            "Duplicate replica ids in partition reassignment replica list: [1, 1]",
        ),
        ([1, -1], "INVALID_REPLICA_ASSIGNMENT", "Invalid broker id in replica list: [1, -1]"),
        (
            [1, 9],
            "INVALID_REPLICA_ASSIGNMENT",
            "Replica assignment has brokers that are not alive. Replica list: [9], live broker list: [0, 1, 2, 3, 4]",
        ),
        (None, "NO_REASSIGNMENT_IN_PROGRESS", "No partition reassignment is in progress."),
    ],
)
def test_refusals(cluster: Cluster, replicas: list[int] | None, error: str, message: str) -> None:
    """In the words of Kafka 2.8, and nothing is written."""
    cluster.told()
    outcome = reassign(cluster, replicas)
    assert (outcome.error.name, outcome.message) == (error, message)
    assert cluster.told() == []


def test_unknown_partitions_are_refused(cluster: Cluster) -> None:
    """Those of topics that are being deleted too."""
    die(cluster, 2)
    cluster.run(Submitted(1, DeleteTopics([TopicReference("t")])))
    for topic_partition in (TopicPartition("t", 7), TopicPartition("u", 0), T0):
        for replicas in ([0], None):
            outcome = reassign(cluster, replicas, topic_partition)
            assert outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert outcome.message == "The partition does not exist."


def test_the_replication_factor_can_be_kept(cluster: Cluster) -> None:
    """KIP-860; while a reassignment is under way, that of its target counts."""
    wish = ReassignPartition(T0, [BrokerId(3), BrokerId(4)])
    [outcome] = cluster.ask(AlterReassignments([wish], allow_replication_factor_change=False))
    assert outcome.error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert outcome.message == "The replication factor is changed from 3 to 2"
    begun(cluster, [3, 4])
    wish = ReassignPartition(T0, [BrokerId(4), BrokerId(0)])
    [outcome] = cluster.ask(AlterReassignments([wish], allow_replication_factor_change=False))
    assert outcome.error is ErrorCode.NONE


def test_each_partition_is_answered_once() -> None:
    """Of several wishes for one partition the last counts; good and bad ones stand side by side."""
    cluster = Cluster(*map(broker, range(3)))
    cluster.make("t", [0], [1])
    wishes = [
        ReassignPartition(T0, [BrokerId(1)]),
        ReassignPartition(TopicPartition("t", 1), None),
        ReassignPartition(T0, [BrokerId(2)]),
    ]
    outcomes = cluster.ask(AlterReassignments(wishes))
    assert [(each.topic_partition.partition, each.error.name) for each in outcomes] == [
        (0, "NONE"),
        (1, "NO_REASSIGNMENT_IN_PROGRESS"),
    ]
    assert cluster.partition("t").adding == (2,)


def test_the_list_is_of_what_is_asked(cluster: Cluster) -> None:
    """Unknown partitions and those that stand still are left out."""
    begun(cluster, [3, 1, 2])
    wanted = [T0, TopicPartition("t", 5), TopicPartition("u", 0), T0]
    assert cluster.ask(ListReassignments(wanted)) == [OngoingReassignment(T0, (3, 1, 2, 0), (3,), (0,))]
    assert cluster.ask(ListReassignments([])) == []


# Another one on top, and back.


def test_another_target_on_top(cluster: Cluster) -> None:
    """From where the partition came; the replica that is not wanted any more goes at once."""
    begun(cluster, [3, 1, 2])
    begun(cluster, [4, 1, 2])
    image = cluster.partition("t")
    assert (image.replicas, image.adding, image.removing) == ((4, 1, 2, 0), (4,), (0,))
    assert stopped(cluster) == {3: [True]}
    in_sync(cluster, 0, 1, 2, 4)
    assert cluster.partition("t").replicas == (4, 1, 2)
    check(cluster)


def test_another_target_on_top_of_one_that_is_half_done(cluster: Cluster) -> None:
    """Who was in sync and is not wanted leaves the ISR, with a leader epoch more."""
    begun(cluster, [3, 4])
    in_sync(cluster, 0, 1, 2, 3)
    epoch = cluster.partition("t").leader_epoch
    begun(cluster, [4, 0])
    image = cluster.partition("t")
    assert (image.isr, image.leader_epoch) == ((0, 1, 2), epoch + 2)
    assert (image.adding, image.removing) == ((4,), (1, 2))


def test_another_target_on_top_when_one_that_is_dropped_leads() -> None:
    """Somebody else in sync, and live, leads at once, and this is what everybody is told; broker 0 is a broker too."""
    cluster = Cluster(*map(broker, range(7)))
    cluster.make("t", [0, 1, 2])
    begun(cluster, [4, 5])
    in_sync(cluster, 0, 1, 2, 4)
    die(cluster, 0)
    assert cluster.partition("t").leader == 4
    come(cluster, 0)
    in_sync(cluster, 1, 2, 4, 0)
    begun(cluster, [6, 5])
    image = cluster.partition("t")
    assert (image.leader, image.isr, image.adding) == (0, (1, 2, 0), (6, 5))
    [topic] = cluster.sent("LeaderAndIsrRequest")[6].topic_states
    [state] = topic.partition_states
    assert state.leader == 0


def test_cancelled(cluster: Cluster) -> None:
    """Back to the former replicas, and the new one deletes what it has."""
    begun(cluster, [3, 1, 2])
    begun(cluster, None)
    image = cluster.partition("t")
    assert (set(image.replicas), image.adding, image.removing) == ({0, 1, 2}, (), ())
    assert stopped(cluster) == {3: [True]}
    assert under_way(cluster) == []
    assert reassign(cluster, None).error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    check(cluster)


def test_cancelled_when_a_new_replica_leads(cluster: Cluster) -> None:
    """A former one in sync leads instead."""
    begun(cluster, [3, 4])
    in_sync(cluster, 0, 1, 2, 3)
    die(cluster, 0, 1)
    cluster.ask(ElectLeaders(ElectionType.PREFERRED, [T0]))
    assert cluster.partition("t").leader == 3
    begun(cluster, None)
    image = cluster.partition("t")
    assert (image.leader, image.isr) == (2, (2,))


def lone_newcomer(cluster: Cluster) -> None:
    """Only broker 3, which a reassignment adds, is in sync; 4 is still to come."""
    begun(cluster, [3, 4])
    in_sync(cluster, 0, 1, 2, 3)
    die(cluster, 0, 1, 2)
    come(cluster, 0, 1, 2)
    assert cluster.partition("t").isr == (3,)


def test_a_cancellation_that_would_lose_records_is_refused(cluster: Cluster) -> None:
    """As Kafka's newer controllers do; whoever allows unclean elections has not asked for one here."""
    lone_newcomer(cluster)
    values = {"unclean.leader.election.enable": "true"}
    cluster.run(ConfigsChanged(ConfigResource(ConfigResourceType.TOPIC, "t"), values))
    outcome = reassign(cluster, None)
    assert outcome.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert outcome.message == (
        "Unable to revert partition assignment for t:0 because it would require an unclean leader election."
    )
    assert cluster.partition("t").isr == (3,)


def test_the_only_replica_in_sync_is_never_dropped(cluster: Cluster) -> None:
    """Going back by a target: it stays until another one is in sync."""
    lone_newcomer(cluster)
    begun(cluster, [0, 1, 2])
    image = cluster.partition("t")
    assert (image.replicas, image.adding, image.removing) == ((0, 1, 2, 3), (), (3,))
    assert (image.leader, image.isr) == (3, (3,))
    in_sync(cluster, 3, 0, 1, 2)
    image = cluster.partition("t")
    assert (image.replicas, image.leader, image.isr) == ((0, 1, 2), 0, (0, 1, 2))


# Brokers die, come back, leave.


def test_a_target_that_dies_is_waited_for(cluster: Cluster) -> None:
    """When it is back it is told again, with the next leader epoch."""
    begun(cluster, [3, 1, 2])
    die(cluster, 3)
    assert under_way(cluster) == [((3, 1, 2, 0), (3,), (0,))]
    epoch = cluster.partition("t").leader_epoch
    come(cluster, 3)
    assert cluster.partition("t").leader_epoch == epoch + 1
    order = cluster.sent("LeaderAndIsrRequest")[3].topic_states[0].partition_states[0]
    assert (order.is_new, order.adding_replicas) == (True, [3])
    in_sync(cluster, 0, 1, 2, 3)
    assert cluster.partition("t").replicas == (3, 1, 2)


def test_a_removed_replica_that_is_away_changes_nothing(cluster: Cluster) -> None:
    """It is not waited for, neither to die nor to come back."""
    begun(cluster, [3, 1, 2])
    die(cluster, 0)
    epoch = cluster.partition("t").leader_epoch
    come(cluster, 0)
    assert cluster.partition("t").leader_epoch == epoch
    die(cluster, 0)
    in_sync(cluster, 1, 2, 3)
    assert cluster.partition("t").replicas == (3, 1, 2)
    assert stopped(cluster) == {}


def test_who_is_told_that_it_is_new_may_not_have_been_in_sync(cluster: Cluster) -> None:
    """A replica in sync whose directory failed would make an empty log, and be believed to have all."""
    begun(cluster, [3, 4])
    in_sync(cluster, 0, 1, 2, 3)
    die(cluster, 4)
    come(cluster, 4)
    orders = cluster.sent("LeaderAndIsrRequest")
    news = {id: message.topic_states[0].partition_states[0].is_new for id, message in orders.items()}
    assert news == {0: False, 1: False, 2: False, 3: False, 4: True}


def test_the_leader_leaves_in_order(cluster: Cluster) -> None:
    """Another one leads, and the reassignment goes on."""
    begun(cluster, [3, 4])
    cluster.ask(ControlledShutdown(BrokerId(0), cluster.brokers[BrokerId(0)].epoch))
    assert cluster.partition("t").leader == 1
    in_sync(cluster, 1, 2, 3, 4)
    assert (cluster.partition("t").replicas, cluster.partition("t").leader) == ((3, 4), 3)


def test_a_target_that_is_about_to_leave_does_not_lead(cluster: Cluster) -> None:
    """The next one of the target does."""
    begun(cluster, [3, 4])
    in_sync(cluster, 0, 1, 2, 3)
    cluster.ask(ControlledShutdown(BrokerId(3), cluster.brokers[BrokerId(3)].epoch))
    die(cluster, 3)
    come(cluster, 3)
    in_sync(cluster, 0, 1, 2, 4)
    assert under_way(cluster) != []
    in_sync(cluster, 0, 1, 2, 4, 3)
    assert cluster.partition("t").leader == 3


def test_a_log_directory_fails_at_the_target(cluster: Cluster) -> None:
    """Its replica leaves the ISR, and the reassignment waits for the broker to be started again."""
    begun(cluster, [3, 4])
    in_sync(cluster, 0, 1, 2, 3)
    cluster.run(ReplicasFailed(BrokerId(3), [T0]))
    in_sync(cluster, 0, 1, 2, 4)
    assert under_way(cluster) == [((3, 4, 0, 1, 2), (3, 4), (0, 1, 2))]
    come_back = [each for id, each in cluster.brokers.items() if id != 3]
    cluster.live(*come_back, broker(3, 2_000))
    in_sync(cluster, 0, 1, 2, 4, 3)
    assert cluster.partition("t").replicas == (3, 4)


def test_a_replica_that_was_taken_away_has_not_failed_when_it_comes_back(cluster: Cluster) -> None:
    """Its broker makes it anew, in a log directory that works, or says again that it cannot."""
    begun(cluster, [3, 4])
    cluster.run(ReplicasFailed(BrokerId(3), [T0]))
    begun(cluster, None)
    assert cluster.partition("t").replicas == (0, 1, 2)
    begun(cluster, [3, 4])
    in_sync(cluster, 0, 1, 2, 4, 3)
    assert cluster.partition("t").replicas == (3, 4)


def test_nobody_of_the_target_is_left_to_lead(cluster: Cluster) -> None:
    """The last one in sync of a target is away: it is finished when that one is back."""
    die(cluster, 0, 1)
    die(cluster, 2)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (NO_LEADER, (2,))
    begun(cluster, [2])
    assert under_way(cluster) == [((2, 0, 1), (), (0, 1))]
    come(cluster, 0)
    assert under_way(cluster) != []
    come(cluster, 2)
    image = cluster.partition("t")
    assert (image.replicas, image.leader, image.isr) == ((2,), 2, (2,))


def test_an_unclean_leader_is_sought_among_the_former_replicas_first(cluster: Cluster) -> None:
    """One that is being added may have next to nothing yet."""
    begun(cluster, [3, 1])
    in_sync(cluster, 0)
    die(cluster, 0)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.ask(ElectLeaders(ElectionType.UNCLEAN, [T0]))
    assert cluster.partition("t").leader == 1


def test_a_partition_that_was_never_led_moves_too() -> None:
    """None of its replicas was ever live, so there is nothing to copy."""
    cluster = Cluster(broker(0), broker(1))
    data = znodes.encode_topic(znodes.TopicAssignment({0: [7]}))
    cluster.tree.transact(SESSION, [Create(znodes.topic_path("t"), data)], 0)
    cluster.term(2)
    begun(cluster, [1])
    image = cluster.partition("t")
    assert (image.replicas, image.leader, image.isr) == ((1,), 1, (1,))
    check(cluster)


# Other things happen meanwhile.


def test_the_leader_balance_leaves_it_alone(cluster: Cluster) -> None:
    """Its first replica is not in sync yet, or about to lead anyway."""
    begun(cluster, [3, 4])
    in_sync(cluster, 0, 1, 2, 3)
    cluster.run(LeaderBalanceDue())
    assert cluster.partition("t").leader == 0


def test_partitions_are_not_added_meanwhile(cluster: Cluster) -> None:
    """Refused, as in Kafka."""
    begun(cluster, [3, 1, 2])
    [outcome] = cluster.ask(CreatePartitions([MorePartitions("t", 2)]))
    assert outcome.error is ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_a_tool_that_knows_of_no_reassignments_adds_partitions_meanwhile(cluster: Cluster) -> None:
    """One of 2.2 rewrites the node without what is added and removed: that is put back, and the new partition made."""
    begun(cluster, [3, 1, 2])
    data = b'{"version":1,"partitions":{"0":[3,1,2,0],"1":[4,0]}}'
    cluster.tree.transact(SESSION, [SetData(znodes.topic_path("t"), data)], 0)
    cluster.run(TopicsChanged([TopicNode("t", data)]))
    assert under_way(cluster) == [((3, 1, 2, 0), (3,), (0,))]
    assert cluster.partition("t", 1).leader == 4
    check(cluster)
    in_sync(cluster, 0, 1, 2, 3)
    assert cluster.partition("t").replicas == (3, 1, 2)
    check(cluster)


def test_a_topic_is_deleted_meanwhile(cluster: Cluster) -> None:
    """All replicas are stopped, old and new, and the plan is rid of it."""
    cluster.make("u", [0])
    plan(cluster, {T0: [3, 1, 2], TopicPartition("u", 0): [4]})
    cluster.run(Submitted(1, DeleteTopics([TopicReference("t")])))
    assert stopped(cluster) == {0: [True], 1: [True], 2: [True], 3: [True]}
    assert planned(cluster) == {TopicPartition("u", 0): [4]}
    assert [each.topic_partition.topic for each in cluster.ask(ListReassignments())] == ["u"]


def test_a_topic_is_deleted_by_a_tool_meanwhile(cluster: Cluster) -> None:
    """The node goes with the last partition in it."""
    plan(cluster, {T0: [3, 1, 2]})
    cluster.tree.transact(SESSION, [Create(znodes.delete_topic_path("t"))], 0)
    cluster.run(DeletionsRequested(["t"]))
    assert planned(cluster) is None


# Controllers die.


def test_a_topic_whose_target_nobody_is_can_be_deleted(cluster: Cluster) -> None:
    """A broker that was never there is not waited for."""
    plan(cluster, {T0: [77]})
    cluster.run(Submitted(1, DeleteTopics([TopicReference("t")])))
    for broker_id in (0, 1, 2):
        cluster.run(ReplicasStopped(BrokerId(broker_id), {T0: ErrorCode.NONE}))
    assert cluster.controller.image.topics == {}
    assert planned(cluster) is None


@pytest.mark.parametrize("by_plan", [False, True])
def test_a_new_controller_goes_on(cluster: Cluster, by_plan: bool) -> None:
    """From the topics' nodes, and from the plan; everybody is told again."""
    if by_plan:
        plan(cluster, {T0: [3, 1, 2]})
    else:
        begun(cluster, [3, 1, 2])
    epoch = cluster.partition("t").leader_epoch
    cluster.term(2)
    assert under_way(cluster) == [((3, 1, 2, 0), (3,), (0,))]
    assert cluster.partition("t").leader_epoch == epoch + 1
    in_sync(cluster, 0, 1, 2, 3)
    assert cluster.partition("t").replicas == (3, 1, 2)
    assert planned(cluster) is None


def whole_life(cluster: Cluster) -> None:
    """The whole life of a planned reassignment."""
    plan(cluster, {T0: [3, 4, 1]})
    in_sync(cluster, 0, 1, 2, 3)
    in_sync(cluster, 0, 1, 2, 3, 4)


class Killed(Exception):
    """The controller dies here."""


WRITES = 9
"""Topic, state; two growths; leader, two that leave, topic, plan."""


@pytest.mark.parametrize("survived", range(WRITES))
def test_a_controller_dies_after_any_write(cluster: Cluster, survived: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one brings the partition to its target."""
    left, transact = survived, cluster.tree.transact

    def mortal(session: int, operations: Sequence[Operation], now_ms: int) -> object:
        nonlocal left
        if isinstance(operations[0], Check):
            if left == 0:
                raise Killed
            left -= 1
        return transact(session, operations, now_ms)

    monkeypatch.setattr(cluster.tree, "transact", mortal)
    with pytest.raises(Killed):
        whole_life(cluster)
    monkeypatch.undo()
    cluster.term(2)
    image = cluster.partition("t")
    if image.is_reassigning:
        in_sync(cluster, *dict.fromkeys([image.leader, *image.isr, *image.replicas]))
    image = cluster.partition("t")
    assert (image.replicas, image.is_reassigning, set(image.isr)) == ((3, 4, 1), False, {3, 4, 1})
    assert image.leader in image.isr
    assert planned(cluster) is None
    check(cluster)


# The plan of an old tool.


def test_a_plan_shrinks_and_goes(cluster: Cluster) -> None:
    """Partition by partition, the node with the last one."""
    cluster.make("u", [0], [1])
    plan(cluster, {T0: [3, 1, 2], TopicPartition("u", 0): [3], TopicPartition("u", 1): [1]})
    assert planned(cluster) == {T0: [3, 1, 2], TopicPartition("u", 0): [3]}
    in_sync(cluster, 0, 3, topic_partition=TopicPartition("u", 0))
    assert planned(cluster) == {T0: [3, 1, 2]}
    in_sync(cluster, 0, 1, 2, 3)
    assert planned(cluster) is None
    check(cluster)


def test_what_makes_no_sense_is_dropped(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """With the reason, once; the rest of the plan is followed, lists of other lengths too."""
    cluster.make("u", [0], [1], [2], [3])
    plan(
        cluster,
        {
            TopicPartition("nope", 0): [1],
            TopicPartition("u", 9): [1],
            TopicPartition("u", 0): [],
            TopicPartition("u", 1): [2, 2],
            TopicPartition("u", 2): [-3],
            TopicPartition("u", 3): [3, 4, 0],
        },
    )
    assert planned(cluster) == {TopicPartition("u", 3): [3, 4, 0]}
    assert cluster.partition("u", 3).adding == (4, 0)
    said = [record.getMessage() for record in caplog.records if record.name == reassignment.__name__]
    assert len(said) == 5
    assert all("path=/admin/reassign_partitions" in text for text in said)


@pytest.mark.parametrize("content", [b"{", b"[]", b"", b'{"version":1}', b'{"version":1,"partitions":[{"topic":7}]}'])
def test_a_plan_that_cannot_be_read_stays(cluster: Cluster, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """As with Kafka; the log says where it is and what to do. What is under way goes on."""
    begun(cluster, [3, 1, 2])
    plan(cluster, content)
    assert cluster.last.writes == []
    assert "/admin/reassign_partitions" in caplog.text
    assert "delete the node" in caplog.text
    in_sync(cluster, 0, 1, 2, 3)
    assert cluster.partition("t").replicas == (3, 1, 2)
    cluster.tree.transact(SESSION, [Delete(znodes.REASSIGN_PARTITIONS)], 0)
    cluster.run(ReassignmentsRequested(None))
    plan(cluster, {T0: [0, 1, 2]})
    assert cluster.partition("t").adding == (0,)


def test_a_plan_that_names_nobody_stays(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """As with Kafka."""
    plan(cluster, {})
    assert planned(cluster) == {}
    assert "names no partition" in caplog.text


def test_our_own_writes_start_nothing(cluster: Cluster) -> None:
    """The watch fires for them too."""
    cluster.make("u", [0])
    plan(cluster, {T0: [3, 1, 2], TopicPartition("u", 0): [0]})
    data, _ = cluster.tree.get(znodes.REASSIGN_PARTITIONS)
    cluster.run(ReassignmentsRequested(data))
    assert cluster.last.writes == []


def test_a_plan_that_is_overwritten(cluster: Cluster) -> None:
    """What is new in it begins; what is missing goes on."""
    cluster.make("u", [0])
    plan(cluster, {T0: [3, 1, 2]})
    data = znodes.encode_reassignment({TopicPartition("u", 0): [4]})
    cluster.tree.transact(SESSION, [SetData(znodes.REASSIGN_PARTITIONS, data)], 0)
    cluster.run(ReassignmentsRequested(data))
    assert len(under_way(cluster)) == 2
    in_sync(cluster, 0, 1, 2, 3)
    in_sync(cluster, 0, 4, topic_partition=TopicPartition("u", 0))
    assert under_way(cluster) == []
    assert planned(cluster) is None


def test_a_request_takes_a_partition_out_of_the_plan(cluster: Cluster) -> None:
    """The latest wish counts; a cancellation too."""
    cluster.make("u", [0])
    plan(cluster, {T0: [3, 1, 2], TopicPartition("u", 0): [4]})
    begun(cluster, [4, 1, 2])
    assert planned(cluster) == {TopicPartition("u", 0): [4]}
    begun(cluster, None, TopicPartition("u", 0))
    assert planned(cluster) is None
    assert under_way(cluster) == [((4, 1, 2, 0), (4,), (0,))]


# Many at once.


def test_thousands_of_partitions_share_their_writes() -> None:
    """A plan for a large topic writes its node once to begin; and once, with the plan, for all that end in a turn."""
    cluster, count = Cluster(*map(broker, range(4))), 2_000
    cluster.make("big", *([id % 3, (id + 1) % 3] for id in range(count)))
    targets = {TopicPartition("big", index): [3, (index + 1) % 3] for index in range(count)}
    cluster.told()
    plan(cluster, targets)
    assert sum("set /brokers/topics/big " in line for line in cluster.told()) == 1
    assert len(cluster.sent("LeaderAndIsrRequest")) == 4
    for leader in range(3):
        led = [each for each in targets if cluster.partition(*each).leader == leader]
        proposals = []
        for each in led:
            image = cluster.partition(*each)
            members = [IsrMember(BrokerId(id), cluster.brokers[BrokerId(id)].epoch) for id in (*image.isr, BrokerId(3))]
            proposals.append(IsrProposal(each, ZERO_TOPIC_ID, image.leader_epoch, members, image.partition_epoch))
        cluster.ask(AlterPartition(BrokerId(leader), cluster.brokers[BrokerId(leader)].epoch, proposals))
        lines = cluster.told()
        assert sum("set /brokers/topics/big " in line for line in lines) == 1
        assert sum("/admin/reassign_partitions" in line for line in lines) == 1
    assert planned(cluster) is None
    assert all(cluster.partition(*each).replicas == tuple(target) for each, target in targets.items())
    check(cluster)


def small_nodes(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The store takes t with its four partitions, of which one may move at a time."""
    cluster = Cluster(*map(broker, range(5)))
    cluster.make("t", *[[0, 1]] * 4)
    cluster.make("u", [0, 1])
    size = len(cluster.tree.get("/brokers/topics/t")[0] or b"")
    monkeypatch.setattr(reassignment, "TOPIC_NODE_SIZE_MAX", size + 30)
    cluster.told()
    return cluster


def test_wishes_that_the_store_could_not_keep_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """While partitions move their topic's node is larger: nothing is begun of what makes it too large, all else is."""
    cluster = small_nodes(monkeypatch)
    others = [BrokerId(2), BrokerId(3)]
    moved = [TopicPartition("t", 0), TopicPartition("u", 0), TopicPartition("t", 1)]
    outcomes = cluster.ask(AlterReassignments([ReassignPartition(each, others) for each in moved]))
    assert [outcome.topic_partition for outcome in outcomes] == moved
    assert [outcome.error for outcome in outcomes] == [
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
    ]
    assert outcomes[0].message is not None
    assert "/brokers/topics/t in the metadata store would hold" in outcomes[0].message
    assert "fewer partitions at a time" in outcomes[0].message
    assert not any("/brokers/topics/t " in line for line in cluster.told())
    begun(cluster, [2, 3], moved[0])
    assert reassign(cluster, [2, 3], moved[2]).error is ErrorCode.POLICY_VIOLATION


def test_a_node_that_is_too_large_already_may_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else wrote it: what makes it no larger is done."""
    cluster = small_nodes(monkeypatch)
    begun(cluster, [2, 3])
    monkeypatch.setattr(reassignment, "TOPIC_NODE_SIZE_MAX", 10)
    assert reassign(cluster, [2, 3], TopicPartition("t", 1)).error is ErrorCode.POLICY_VIOLATION
    begun(cluster, None)
    assert cluster.partition("t").replicas == (0, 1)


def test_it_is_never_too_large_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """One grows before the other shrinks: a write for each partition."""
    cluster = small_nodes(monkeypatch)
    begun(cluster, [2, 3])
    wishes = [ReassignPartition(TopicPartition("t", 1), [BrokerId(2), BrokerId(3)]), ReassignPartition(T0, None)]
    outcomes = cluster.ask(AlterReassignments(wishes))
    assert [outcome.error for outcome in outcomes] == [ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]


def test_a_plan_that_the_store_could_not_keep_is_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic's part of it, with a message; a new controller does not take it up either."""
    cluster = small_nodes(monkeypatch)
    u0 = TopicPartition("u", 0)
    plan(cluster, {T0: [2, 3], TopicPartition("t", 1): [2, 3], u0: [2, 3]})
    assert planned(cluster) == {u0: [2, 3]}
    assert [each.levelname for each in caplog.records if "/brokers/topics/t in the" in each.getMessage()] == ["ERROR"]
    assert not any("/brokers/topics/t " in line for line in cluster.told())
    cluster.term(2)
    assert [each.topic_partition for each in cluster.ask(ListReassignments())] == [u0]


def test_a_failure_that_is_told_of_a_replica_that_is_gone_says_nothing_of_a_later_one(cluster: Cluster) -> None:
    """The answer to an order was under way while the partition moved away; it comes back to a directory that works."""
    cluster.run(ReplicasFailed(BrokerId(3), [T0]))
    begun(cluster, [0, 1, 3])
    in_sync(cluster, 0, 1, 2, 3)
    assert under_way(cluster) == []
    assert cluster.partition("t").isr == (0, 1, 3)
