"""Who leads: elections, brokers that come and go, ISR changes, failed directories."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.harness import Cluster, broker

from tidelog.controller.elections import UNCLEAN_SETTING, choose_leader
from tidelog.controller.events import (
    ConfigsChanged,
    IsrsChanged,
    LogDirectoryFailed,
    ReplicasFailed,
    ReplicasPostponed,
    UncleanElectionAllowed,
)
from tidelog.controller.requests import (
    AllocateProducerIds,
    AlterPartition,
    ControlledShutdown,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    IsrMember,
    IsrProposal,
    NewTopic,
    ProducerIdBlock,
)
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.metadata.operations import SetData
from tidelog.metadata.znodes import StoredProducerIdBlock, decode_producer_id_block, encode_producer_id_block
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import (
    ZERO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    ProducerId,
    TopicPartition,
)

T0 = TopicPartition("t", 0)


def ids(*numbers: int) -> list[BrokerId]:
    return [BrokerId(number) for number in numbers]


def three_brokers(*assignment: list[int]) -> Cluster:
    cluster = Cluster(broker(0), broker(1), broker(2))
    cluster.make("t", *assignment)
    return cluster


def state_line(partition: int, leader: int, epoch: int, isr: str, controller_epoch: int = 1) -> str:
    return (
        f'* set /brokers/topics/t/partitions/{partition}/state {{"controller_epoch":{controller_epoch},'
        f'"leader":{leader},"version":1,"leader_epoch":{epoch},"isr":[{isr}]}}'
    )


@pytest.mark.row("R11")
@pytest.mark.parametrize(
    ("replicas", "isr", "online", "leader"),
    [([3, 1, 2], [2, 1], [1, 2], 1), ([1, 2], [1, 2], [2], 2), ([1, 2], [1], [2], None), ([1], [1], [], None)],
)
def test_leaders_come_from_the_live_isr_in_the_order_of_the_replicas(
    replicas: list[int], isr: list[int], online: list[int], leader: int | None
) -> None:
    """The ISR's own order does not matter."""
    assert choose_leader(ids(*replicas), ids(*isr), ids(*online)) == leader


@pytest.mark.row("R11")
@pytest.mark.row("R24")
def test_a_crash_moves_leaders_and_shrinks_isrs() -> None:
    """One write a partition, epoch + 1: those it led first; a sole ISR member stays in the ISR without leading."""
    cluster = three_brokers([2, 0, 1], [0, 2], [2], [0, 1])
    cluster.live(broker(0), broker(1))
    assert cluster.told() == [
        state_line(0, 0, 1, "0,1"),
        state_line(1, 0, 1, "0"),
        state_line(2, -1, 1, "2"),
    ]
    orders = cluster.sent("LeaderAndIsrRequest")
    assert {
        id: [state.partition_index for state in order.topic_states[0].partition_states] for id, order in orders.items()
    } == {
        0: [0, 1],
        1: [0],
    }
    [topic] = cluster.sent("UpdateMetadataRequest")[1].topic_states
    assert [(state.partition_index, state.offline_replicas) for state in topic.partition_states] == [
        (0, [2]),
        (1, [2]),
        (2, [2]),
    ]


@pytest.mark.row("R24")
def test_a_broker_that_returns_leads_what_nobody_else_could() -> None:
    """Its leaderless partitions, epoch + 1; it gets everything, the others the news."""
    cluster = three_brokers([2], [0])
    cluster.live(broker(0), broker(1))
    cluster.told()
    cluster.live(broker(0), broker(1), broker(2, 300))
    assert cluster.told() == [state_line(0, 2, 2, "2")]
    metadata = cluster.sent("UpdateMetadataRequest")
    assert [len(topic.partition_states) for topic in metadata[2].topic_states] == [2]
    assert [len(topic.partition_states) for topic in metadata[0].topic_states] == [1]
    assert metadata[2].broker_epoch == 300
    assert list(cluster.sent("LeaderAndIsrRequest")) == [2]


@pytest.mark.row("R24")
def test_a_broker_that_came_back_before_its_end_was_seen() -> None:
    """A higher epoch under the same id: it lost its leaderships, and learns everything anew."""
    cluster = three_brokers([2, 0])
    cluster.live(broker(0), broker(1), broker(2, 300))
    assert cluster.told() == [state_line(0, 0, 1, "0")]
    assert cluster.sent("UpdateMetadataRequest")[2].broker_epoch == 300


def test_a_broker_that_moved_is_announced() -> None:
    """New endpoints under the same epoch: only the list of brokers is told."""
    cluster = three_brokers([0])
    cluster.live(broker(0), broker(1), replace(broker(2), rack="r9"))
    assert cluster.told() == []
    assert [live.rack for live in cluster.sent("UpdateMetadataRequest")[0].live_brokers] == [None, None, "r9"]
    assert cluster.sent("LeaderAndIsrRequest") == {}


@pytest.mark.row("R11")
def test_unclean_election_only_where_allowed() -> None:
    """With it, a replica out of sync leads alone; without, nobody does."""
    cluster = three_brokers([1, 2])
    for live in ([0, 1], [0], [0, 2]):
        cluster.live(*map(broker, live))
    assert cluster.partition("t").leader == -1
    cluster.settings = replace(cluster.settings, unclean_leader_election_enable=True)
    cluster.controller.settings = cluster.settings
    cluster.live(broker(0), broker(2, 400))
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))


@pytest.mark.row("R24")
def test_a_new_controller_writes_twice_what_a_dead_one_led() -> None:
    """As captured when the controller crashes: first without a leader, then with the next one; epoch + 2."""
    cluster = three_brokers([2, 0], [0, 2], [0, 1])
    cluster.brokers.pop(BrokerId(2))
    cluster.term(2)
    assert cluster.told() == [
        state_line(0, -1, 1, "0", 2),
        state_line(1, 0, 1, "0", 2),
        state_line(0, 0, 2, "0", 2),
    ]
    assert sorted(cluster.sent("LeaderAndIsrRequest")) == [0, 1]


def test_a_restart_of_everything_writes_nothing() -> None:
    """All brokers are there, all leaders live: the new controller only tells."""
    cluster = three_brokers([2, 0], [0, 2], [0, 1])
    cluster.term(2)
    assert cluster.told() == []
    assert sorted(cluster.sent("LeaderAndIsrRequest")) == [0, 1, 2]


def propose(cluster: Cluster, *isr: IsrMember, **changes: object) -> ErrorCode:
    image = cluster.partition("t")
    proposal = IsrProposal(T0, ZERO_TOPIC_ID, image.leader_epoch, isr, image.partition_epoch)
    leader = image.leader
    [outcome] = cluster.ask(
        AlterPartition(leader, cluster.brokers[leader].epoch, [replace(proposal, **changes)])  # type: ignore[arg-type]
    )
    return outcome.error


@pytest.mark.row("R25")
def test_an_isr_changes_by_compare_and_set() -> None:
    """The same leader epoch, the next partition epoch; everybody's metadata, nobody's orders."""
    cluster = three_brokers([0, 1, 2])
    assert propose(cluster, IsrMember(BrokerId(0))) is ErrorCode.NONE
    assert cluster.told() == [state_line(0, 0, 0, "0")]
    image = cluster.partition("t")
    assert (image.isr, image.leader_epoch, image.partition_epoch) == ((0,), 0, 1)
    assert cluster.tree.get("/brokers/topics/t/partitions/0/state")[1].version == 1
    assert sorted(cluster.sent("UpdateMetadataRequest")) == [0, 1, 2]
    assert cluster.sent("LeaderAndIsrRequest") == {}
    assert propose(cluster, IsrMember(BrokerId(0)), IsrMember(BrokerId(1), BrokerEpoch(101))) is ErrorCode.NONE
    assert cluster.partition("t").isr == (0, 1)


def test_an_isr_that_is_there_already_is_confirmed_without_a_write() -> None:
    """The answer to the last proposal was lost."""
    cluster = three_brokers([0, 1])
    assert propose(cluster, IsrMember(BrokerId(0)), IsrMember(BrokerId(1))) is ErrorCode.NONE
    assert cluster.told() == []


def test_a_leader_whose_answer_was_lost_is_confirmed() -> None:
    """It asks again on the state before: refused, it would wait for ever for a state that nobody announces."""
    cluster = three_brokers([0, 1, 2])
    assert propose(cluster, IsrMember(BrokerId(0)), partition_epoch=PartitionEpoch(0)) is ErrorCode.NONE
    cluster.told()
    image = cluster.partition("t")
    proposal = IsrProposal(T0, ZERO_TOPIC_ID, image.leader_epoch, [IsrMember(BrokerId(0))], PartitionEpoch(0))
    [outcome] = cluster.ask(AlterPartition(BrokerId(0), BrokerEpoch(100), [proposal]))
    assert (outcome.error, outcome.isr, outcome.partition_epoch) == (ErrorCode.NONE, (0,), 1)
    assert cluster.told() == []


@pytest.mark.parametrize(
    ("isr", "changes", "error"),
    [
        ([0], {"leader_epoch": LeaderEpoch(0)}, ErrorCode.FENCED_LEADER_EPOCH),
        ([0], {"leader_epoch": LeaderEpoch(9)}, ErrorCode.NOT_CONTROLLER),
        ([0, 1], {"partition_epoch": PartitionEpoch(0)}, ErrorCode.INVALID_UPDATE_VERSION),
        ([0], {"partition_epoch": PartitionEpoch(9)}, ErrorCode.NOT_CONTROLLER),
        ([0], {"topic_id": b"x" * 16}, ErrorCode.UNKNOWN_TOPIC_ID),
        ([0], {"topic_partition": TopicPartition("t", 7)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([0], {"topic_partition": TopicPartition("x", 0)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([0, 0], {}, ErrorCode.INVALID_REQUEST),
        ([0, 2], {}, ErrorCode.INVALID_REQUEST),
        ([0, 1], {}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_isr_proposals_that_are_refused(isr: list[int], changes: dict[str, object], error: ErrorCode) -> None:
    """Stale epochs, wrong members, members that are not live."""
    cluster = three_brokers([1, 0])
    # Broker 1 dies: broker 0 leads with leader epoch 1, partition epoch 1.
    cluster.live(broker(0), broker(2))
    cluster.told()
    assert propose(cluster, *(IsrMember(id) for id in ids(*isr)), **changes) is error
    assert cluster.told() == []


def test_a_member_of_an_earlier_life_is_not_eligible() -> None:
    """KIP-903: a leader that knows the follower by its last registration may not bring it into the ISR."""
    cluster = three_brokers([0, 1])
    cluster.live(broker(0), broker(1, 500), broker(2))
    assert (
        propose(cluster, IsrMember(BrokerId(0)), IsrMember(BrokerId(1), BrokerEpoch(101)))
        is ErrorCode.INELIGIBLE_REPLICA
    )
    assert propose(cluster, IsrMember(BrokerId(0)), IsrMember(BrokerId(1), BrokerEpoch(500))) is ErrorCode.NONE


def test_only_the_leader_may_propose() -> None:
    """A follower with the right epochs is refused; and each proposal of a request by itself."""
    cluster = three_brokers([0, 1], [1, 0])
    good, bad = (
        IsrProposal(
            TopicPartition("t", index), ZERO_TOPIC_ID, LeaderEpoch(0), [IsrMember(BrokerId(1))], PartitionEpoch(0)
        )
        for index in (1, 0)
    )
    outcomes = cluster.ask(AlterPartition(BrokerId(1), BrokerEpoch(101), [bad, good]))
    assert [outcome.error for outcome in outcomes] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert cluster.told() == [state_line(1, 1, 0, "1")]


def test_who_shuts_down_comes_into_no_isr() -> None:
    """KIP-841: until it registers anew. A leader that shuts down may still bring in who can take over."""
    cluster = three_brokers([0, 2], [2, 0])
    cluster.live(broker(1), broker(2))
    cluster.live(broker(0, 300), broker(1), broker(2))
    assert [cluster.partition("t", index).isr for index in (0, 1)] == [(2,), (2,)]
    cluster.ask(ControlledShutdown(BrokerId(2), BrokerEpoch(102)))
    cluster.ask(ControlledShutdown(BrokerId(0), BrokerEpoch(300)))
    cluster.told()
    both = [IsrMember(BrokerId(2), BrokerEpoch(102)), IsrMember(BrokerId(0), BrokerEpoch(300))]
    assert propose(cluster, *both) is ErrorCode.INELIGIBLE_REPLICA
    cluster.live(broker(1), broker(2), broker(0, 400))
    both[1] = IsrMember(BrokerId(0), BrokerEpoch(400))
    assert propose(cluster, *both) is ErrorCode.NONE
    assert cluster.ask(ControlledShutdown(BrokerId(2), BrokerEpoch(102))) == [TopicPartition("t", 1)]
    assert cluster.partition("t").leader == 0


def test_who_shuts_down_is_not_elected() -> None:
    """Neither when a leader dies, nor by hand, nor as an unclean leader."""
    cluster = three_brokers([0, 1], [1, 0])
    cluster.controller.settings = replace(cluster.settings, unclean_leader_election_enable=True)
    cluster.ask(ControlledShutdown(BrokerId(1), BrokerEpoch(101)))
    assert cluster.ask(ElectLeaders(ElectionType.PREFERRED))[0].error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.live(broker(1), broker(2))
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (-1, (0,))
    assert cluster.controller.unclean_elections == 0
    # It came back: a new life, and the setting allows it to lead.
    cluster.live(broker(1, 400), broker(2))
    assert (cluster.partition("t").leader, cluster.controller.unclean_elections) == (1, 2)


def test_a_shutdown_that_is_asked_for_again_costs_nothing() -> None:
    """What was handed over stays so; only the order to stop following is given again."""
    cluster = three_brokers([2, 0], [0, 2])
    cluster.ask(ControlledShutdown(BrokerId(2), BrokerEpoch(102)))
    cluster.told()
    assert cluster.ask(ControlledShutdown(BrokerId(2), BrokerEpoch(102))) == []
    assert cluster.told() == []
    cluster.live(broker(0), broker(1))
    assert cluster.told() == []


def test_the_last_two_replicas_shut_down_at_once() -> None:
    """None is handed what the other one leaves: the last one keeps its leaderships."""
    cluster = three_brokers([1, 2], [2, 1])
    assert cluster.ask(ControlledShutdown(BrokerId(1), BrokerEpoch(101))) == []
    assert cluster.ask(ControlledShutdown(BrokerId(2), BrokerEpoch(102))) == [T0, TopicPartition("t", 1)]
    assert [cluster.partition("t", index).leader for index in (0, 1)] == [2, 2]


def test_a_broker_that_bounced_leaves_the_isrs_it_followed_in() -> None:
    """KIP-380: what it had not flushed may be lost, so it catches up first; a sole member leads again at once."""
    cluster = three_brokers([0, 2], [2])
    cluster.live(broker(0), broker(1), broker(2, 300))
    assert cluster.told() == [state_line(0, 0, 1, "0"), state_line(1, -1, 1, "2"), state_line(1, 2, 2, "2")]


def test_a_broker_that_bounced_is_not_replaced_by_an_unclean_leader() -> None:
    """It has all records and is back: an unclean leader, though allowed, would lose some for nothing."""
    cluster = three_brokers([1, 2])
    cluster.live(broker(0), broker(1))
    cluster.live(broker(0), broker(1), broker(2, 300))
    cluster.controller.settings = replace(cluster.settings, unclean_leader_election_enable=True)
    cluster.live(broker(0), broker(1, 301), broker(2, 300))
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (1, (1,))
    assert cluster.controller.unclean_elections == 0


def test_brokers_that_die_together_cost_one_write_a_partition() -> None:
    """Kafka writes one for each dead broker; the outcome is the same but for the epoch."""
    cluster = three_brokers([0, 1, 2], [1, 2, 0])
    cluster.live(broker(0))
    assert cluster.told() == [state_line(1, 0, 1, "0"), state_line(0, 0, 1, "0")]


def test_endpoints_that_change_do_not_mend_a_directory() -> None:
    """The registration is the same one: its failed replicas stay failed, and a shutdown goes on."""
    cluster = three_brokers([0, 2])
    cluster.run(ReplicasFailed(BrokerId(2), [T0]))
    cluster.ask(ControlledShutdown(BrokerId(1), BrokerEpoch(101)))
    cluster.live(broker(0), replace(broker(1), rack="r"), replace(broker(2), rack="r"))
    assert not cluster.controller.state.is_online(BrokerId(2), T0)
    assert not cluster.controller.state.is_online(BrokerId(1), T0)


@pytest.mark.row("R11")
def test_unclean_elections_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Each one, by whatever way; clean ones are not."""
    cluster = three_brokers([1, 2], [1, 0])
    cluster.controller.settings = replace(cluster.settings, unclean_leader_election_enable=True)
    cluster.live(broker(0), broker(1))
    cluster.live(broker(0), broker(1), broker(2, 300))
    assert cluster.controller.unclean_elections == 0
    cluster.live(broker(0), broker(2, 300))
    assert cluster.controller.unclean_elections == 1
    assert [record.getMessage() for record in caplog.records] == [
        "unclean election: broker 2 becomes leader of t-0 without having been in sync; records that only its ISR had "
        "are lost; it is number 1 since this controller began"
    ]


@pytest.mark.row("R11")
def test_unclean_elections_allowed_for_all_topics() -> None:
    """At run time: what has no leader gets one now, but where the topic itself forbids it."""
    cluster = three_brokers([1, 2])
    cluster.ask(CreateTopics([NewTopic("never", assignment=[(0, [1, 2])], configs=[(UNCLEAN_SETTING, "false")])]))
    for live in ([0, 1], [0], [0, 2]):
        cluster.live(*map(broker, live))
    cluster.told()
    cluster.controller.settings = replace(cluster.settings, unclean_leader_election_enable=True)
    cluster.run(UncleanElectionAllowed())
    assert cluster.told() == [state_line(0, 2, 3, "2")]
    assert cluster.partition("never").leader == -1


def test_settings_that_a_tool_wrote() -> None:
    """They count from when they are read; those of unknown topics are not kept; the same ones change nothing."""
    cluster = three_brokers([1, 2])
    for live in ([0, 1], [0], [0, 2]):
        cluster.live(*map(broker, live))
    cluster.told()
    topic, other = (ConfigResource(ConfigResourceType.TOPIC, name) for name in ("t", "nobody"))
    allowed = {"unclean.leader.election.enable": "true"}
    cluster.run(ConfigsChanged(other, allowed))
    cluster.run(ConfigsChanged(topic, {"flush.ms": "1"}))
    assert cluster.told() == []
    assert cluster.controller.image.configs[topic] == {"flush.ms": "1"}
    assert other not in cluster.controller.image.configs
    cluster.run(ConfigsChanged(topic, allowed))
    assert cluster.told() == [state_line(0, 2, 3, "2")]
    cluster.run(ConfigsChanged(topic, allowed))
    cluster.run(ConfigsChanged(topic, None))
    assert cluster.told() == []
    assert topic not in cluster.controller.image.configs


def test_a_state_that_was_read_before_the_controllers_last_write_says_nothing() -> None:
    """A broker of a protocol below 2.7 tells of its change late: the end of a broker was read with it, and handled."""
    cluster = three_brokers([2, 0])
    read = cluster.node_read("/brokers/topics/t/partitions/0/state")
    cluster.live(broker(0), broker(1))
    written = cluster.partition("t")
    assert written.leader == 0
    cluster.run(IsrsChanged([(T0, read.data, PartitionEpoch(read.version))]))
    assert cluster.partition("t") == written
    assert cluster.sent("UpdateMetadataRequest") == {}


def test_what_a_broker_of_an_earlier_life_asks_is_refused() -> None:
    """KIP-380: as a whole."""
    cluster = three_brokers([0])
    for request in (
        AlterPartition(BrokerId(0), BrokerEpoch(1), []),
        AllocateProducerIds(BrokerId(0), BrokerEpoch(1)),
        ControlledShutdown(BrokerId(9), BrokerEpoch(109)),
    ):
        with pytest.raises(KafkaError) as refusal:
            cluster.ask(request)  # type: ignore[misc]
        assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.row("R03")
def test_replicas_on_a_failed_directory_are_as_good_as_gone() -> None:
    """Their partitions move as in a crash; those on the broker's other directories stay."""
    cluster = three_brokers([2, 0], [2, 1], [2])
    cluster.run(LogDirectoryFailed(BrokerId(2)))
    assert list(cluster.sent("LeaderAndIsrRequest")) == [2]
    cluster.run(ReplicasFailed(BrokerId(2), [T0, TopicPartition("t", 2)]))
    assert cluster.told() == [state_line(0, 0, 1, "0"), state_line(2, -1, 1, "2")]
    cluster.run(ReplicasFailed(BrokerId(2), [T0]))
    assert cluster.told() == []
    cluster.live(broker(0), broker(1))
    assert cluster.partition("t", 2).isr == (2,)
    cluster.live(broker(0), broker(1), broker(2, 300))
    assert cluster.partition("t", 2).leader == 2


def test_a_leader_that_tries_again_later_gives_way_to_another() -> None:
    """It leaves the ISR, and may come back at once; where no other can lead, and where it follows, it is waited for."""
    cluster = three_brokers([2, 0], [0, 2], [2])
    cluster.run(ReplicasPostponed(BrokerId(2), [TopicPartition("t", index) for index in range(4)]))
    assert cluster.told() == [state_line(0, 0, 1, "0")]
    assert cluster.controller.state.is_online(BrokerId(2), T0)
    cluster.run(ReplicasPostponed(BrokerId(2), [T0]))
    assert cluster.told() == []


def test_no_unclean_leader_is_elected_for_one_that_tries_again_later() -> None:
    """Another replica that is not in sync does not lead in its place."""
    cluster = three_brokers([2, 0])
    cluster.controller.settings = replace(cluster.settings, unclean_leader_election_enable=True)
    cluster.live(broker(1), broker(2))
    cluster.live(broker(0, 300), broker(1), broker(2))
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    cluster.told()
    cluster.run(ReplicasPostponed(BrokerId(2), [T0]))
    assert cluster.partition("t").leader == 2


@pytest.mark.row("R29")
def test_preferred_leaders_by_hand() -> None:
    """Elected where live and in sync; refused where not; not needed where it leads."""
    cluster = three_brokers([2, 0], [0, 1], [2, 1])
    cluster.live(broker(0), broker(1))
    cluster.live(broker(0), broker(1), broker(2, 300))
    cluster.told()
    partitions = [TopicPartition("t", index) for index in (0, 1, 9)]
    outcomes = cluster.ask(ElectLeaders(ElectionType.PREFERRED, partitions))
    assert [outcome.error for outcome in outcomes] == [
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    propose(cluster, IsrMember(BrokerId(0)), IsrMember(BrokerId(2)))
    cluster.told()
    outcomes = cluster.ask(ElectLeaders(ElectionType.PREFERRED))
    assert [(outcome.topic_partition.partition, outcome.error) for outcome in outcomes] == [
        (0, ErrorCode.NONE),
        (2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ]
    assert cluster.told() == [state_line(0, 2, 2, "0,2")]


@pytest.mark.row("R11")
def test_unclean_leaders_by_hand() -> None:
    """Only for a partition without a leader, from whoever is live."""
    cluster = three_brokers([1, 2], [0], [1])
    for live in ([0, 1], [0], [0, 2]):
        cluster.live(*map(broker, live))
    cluster.told()
    outcomes = cluster.ask(ElectLeaders(ElectionType.UNCLEAN, [TopicPartition("t", index) for index in range(3)]))
    assert [outcome.error for outcome in outcomes] == [
        ErrorCode.NONE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ]
    assert cluster.partition("t").isr == (2,)


@pytest.mark.row("R24")
def test_a_clean_shutdown_hands_over() -> None:
    """Leaderships move, then ISRs shrink, and it is told to stop, not to follow: a leader would take it in again.

    What nobody else can lead remains.
    """
    cluster = three_brokers([2, 0], [0, 2], [2], [2, 1])
    proposal = IsrProposal(
        TopicPartition("t", 3), ZERO_TOPIC_ID, LeaderEpoch(0), [IsrMember(BrokerId(2))], PartitionEpoch(0)
    )
    cluster.ask(AlterPartition(BrokerId(2), BrokerEpoch(102), [proposal]))
    cluster.told()
    remaining = cluster.ask(ControlledShutdown(BrokerId(2), BrokerEpoch(102)))
    assert remaining == [TopicPartition("t", 3)]
    assert cluster.told() == [state_line(0, 0, 1, "0"), state_line(1, 0, 1, "0")]
    [topic] = cluster.sent("StopReplicaRequest")[2].topic_states
    assert [(state.partition_index, state.delete_partition) for state in topic.partition_states] == [
        (0, False),
        (1, False),
    ]
    assert sorted(cluster.sent("LeaderAndIsrRequest")) == [0]


def test_producer_ids_are_given_away_in_blocks() -> None:
    """A thousand each, written against the version of the last; a new controller goes on where the old one ended."""
    cluster = three_brokers([0])
    first = cluster.ask(AllocateProducerIds(BrokerId(0), BrokerEpoch(100)))
    assert first == ProducerIdBlock(ProducerId(0), 1000)
    assert cluster.told() == [
        'set /latest_producer_id_block {"version":1,"broker":0,"block_start":"0","block_end":"999"}'
    ]
    cluster.term(2)
    second = cluster.ask(AllocateProducerIds(BrokerId(1), BrokerEpoch(101)))
    assert second.first == 1000
    assert decode_producer_id_block(cluster.tree.get("/latest_producer_id_block")[0]) == StoredProducerIdBlock(
        BrokerId(1), 1000, 1999
    )


def test_producer_ids_end_at_63_bits() -> None:
    """Refused, not wrapped."""
    cluster = three_brokers([0])
    data = encode_producer_id_block(StoredProducerIdBlock(BrokerId(0), 0, (1 << 63) - 500))
    cluster.tree.transact(1, [SetData("/latest_producer_id_block", data)], 0)
    cluster.term(2)
    with pytest.raises(KafkaError, match="given away"):
        cluster.ask(AllocateProducerIds(BrokerId(0), BrokerEpoch(100)))
