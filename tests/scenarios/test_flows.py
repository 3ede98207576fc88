"""What the controller writes when brokers die, return and leave, and at elections: as Kafka 2.8.2, write by write."""

from __future__ import annotations

import pytest
from tests.scenarios.kafka_flows import Flow

from tidelog.controller.events import (
    ConfigsChanged,
    LeaderBalanceDue,
    LogDirectoryFailed,
    PreferredElectionRequested,
    ReplicasFailed,
)
from tidelog.metadata import znodes
from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.metadata.operations import Create, SetData
from tidelog.model.identifiers import BrokerId, TopicPartition

pytestmark = [pytest.mark.row("R24"), pytest.mark.row("R11")]

AFTER_THE_CRASH = """
    data-0 (1,2,3) leader 1 epoch 1 isr 1,2 version 3
    data-1 (3,1,2) leader 1 epoch 1 isr 1,2 version 1
    solo-0 (3) leader -1 epoch 1 isr 3 version 1
    topic-cluster-0 (3,1,2) leader 1 epoch 5 isr 2,1 version 7
    topic-cluster-1 (0,2,3) leader 0 epoch 4 isr 0,2 version 5
    topic-cluster-2 (1,3,0) leader 1 epoch 6 isr 0,1 version 8
"""


def test_a_broker_crashes() -> None:
    """One write a partition, epoch + 1: those it led first; a sole ISR member stays in the ISR without leading."""
    flow = Flow("crash-broker-3", brokers=[0, 1, 2, 3]).given("""
        data-0 (1,2,3) leader 1 epoch 0 isr 1,2,3 version 2
        data-1 (3,1,2) leader 3 epoch 0 isr 3,1,2 version 0
        solo-0 (3) leader 3 epoch 0 isr 3 version 0
        topic-cluster-0 (3,1,2) leader 3 epoch 4 isr 2,3,1 version 6
        topic-cluster-1 (0,2,3) leader 0 epoch 3 isr 0,2,3 version 4
        topic-cluster-2 (1,3,0) leader 1 epoch 5 isr 0,3,1 version 7
        topic-cluster-3 (2,0,1) leader 2 epoch 3 isr 0,2,1 version 4
    """)
    flow.gone(3)
    flow.writes("""
        data-1 leader 1 epoch 1 isr 1,2 version 1
        topic-cluster-0 leader 1 epoch 5 isr 2,1 version 7
        --
        topic-cluster-2 leader 1 epoch 6 isr 0,1 version 8
        topic-cluster-1 leader 0 epoch 4 isr 0,2 version 5
        data-0 leader 1 epoch 1 isr 1,2 version 3
        solo-0 leader -1 epoch 1 isr 3 version 1
    """)
    flow.is_the_capture()


def test_a_broker_returns() -> None:
    """It leads what nobody else could, epoch + 1; then it comes into the ISRs, at their ends, same epoch."""
    flow = Flow("restart-broker-3", brokers=[0, 1, 2]).given(AFTER_THE_CRASH)
    flow.back(3)
    flow.writes("solo-0 leader 3 epoch 2 isr 3 version 2")
    for name in ("topic-cluster-1", "topic-cluster-2", "data-1", "data-0", "topic-cluster-0"):
        flow.grow_isr(name, 3)
    flow.writes("""
        topic-cluster-1 leader 0 epoch 4 isr 0,2,3 version 6
        --
        topic-cluster-2 leader 1 epoch 6 isr 0,1,3 version 9
        --
        data-1 leader 1 epoch 1 isr 1,2,3 version 2
        --
        data-0 leader 1 epoch 1 isr 1,2,3 version 4
        --
        topic-cluster-0 leader 1 epoch 5 isr 2,1,3 version 8
    """)
    flow.is_the_capture(without="latest_producer_id_block|brokers/ids")


def test_the_controller_crashes() -> None:
    """The next one takes the dead broker out first, leaders too, and elects then: two writes where it led."""
    flow = Flow("crash-controller-0", controller=0, brokers=[0, 1, 2, 3]).given("""
        pref-0 (1,0,2) leader 1 epoch 2 isr 0,2,1 version 3
        pref-1 (2,1,0) leader 2 epoch 1 isr 2,0,1 version 2
        solo-0 (3) leader 3 epoch 2 isr 3 version 2
        topic-cluster-1 (0,2,3) leader 0 epoch 4 isr 0,2,3 version 6
        topic-cluster-2 (1,3,0) leader 1 epoch 6 isr 0,1,3 version 9
        topic-cluster-3 (2,0,1) leader 2 epoch 3 isr 0,2,1 version 4
        topic-cluster2-1 (1,0) leader 1 epoch 6 isr 0,1 version 9
        topic-cluster2-2 (0,1,2) leader 0 epoch 4 isr 2,0,1 version 7
    """)
    del flow.cluster.brokers[BrokerId(0)]
    flow.elected(1, 2)
    flow.writes("""
        topic-cluster-2 leader 1 epoch 7 isr 1,3 version 10
        pref-1 leader 2 epoch 2 isr 2,1 version 3
        topic-cluster-1 leader -1 epoch 5 isr 2,3 version 7
        topic-cluster2-2 leader -1 epoch 5 isr 2,1 version 8
        topic-cluster-3 leader 2 epoch 4 isr 2,1 version 5
        topic-cluster2-1 leader 1 epoch 7 isr 1 version 10
        pref-0 leader 1 epoch 3 isr 2,1 version 4
        --
        topic-cluster-1 leader 2 epoch 6 isr 2,3 version 8
        topic-cluster2-2 leader 1 epoch 6 isr 2,1 version 9
    """)
    flow.is_the_capture()


def test_somebody_deletes_the_controllers_node() -> None:
    """The new controller writes what nobody leads once more, while the last member of its ISR is away."""
    flow = Flow("controller-znode-deleted", epoch=6, brokers=[0, 1, 2]).given("""
        __consumer_offsets-1 (1,2,3) leader -1 epoch 5 isr 3 version 5
        data-0 (1,2,3) leader -1 epoch 7 isr 3 version 11
        data-1 (3,1,2) leader -1 epoch 7 isr 3 version 9
        topic-cluster-0 (3,1,2) leader -1 epoch 11 isr 3 version 15
        topic-cluster-1 (0,2,3) leader 0 epoch 10 isr 0,2 version 16
    """)
    flow.elected(0, 7)
    flow.writes("""
        topic-cluster-0 leader -1 epoch 12 isr 3 version 16
        data-1 leader -1 epoch 8 isr 3 version 10
        data-0 leader -1 epoch 8 isr 3 version 12
        __consumer_offsets-1 leader -1 epoch 6 isr 3 version 6
    """)
    flow.is_the_capture()


def test_one_broker_of_a_stopped_cluster_starts() -> None:
    """It controls, and leads what it left last; the rest waits for the others."""
    flow = Flow("start-0-alone-delete-disabled", epoch=4, brokers=[0]).given("""
        __consumer_offsets-0 (3,0,2) leader 0 epoch 2 isr 0 version 2
        __consumer_offsets-1 (1,2,3) leader -1 epoch 3 isr 3 version 3
        data-0 (1,2,3) leader -1 epoch 5 isr 3 version 9
        data-1 (3,1,2) leader -1 epoch 5 isr 3 version 7
        topic-cluster-0 (3,1,2) leader -1 epoch 9 isr 3 version 13
        topic-cluster2-0 (2) leader -1 epoch 8 isr 2 version 10
        topic-cluster2-1 (1,0) leader 0 epoch 11 isr 0 version 18
    """)
    flow.elected(0, 5)
    flow.writes("""
        topic-cluster2-0 leader -1 epoch 9 isr 2 version 11
        topic-cluster-0 leader -1 epoch 10 isr 3 version 14
        data-1 leader -1 epoch 6 isr 3 version 8
        data-0 leader -1 epoch 6 isr 3 version 10
        __consumer_offsets-1 leader -1 epoch 4 isr 3 version 4
    """)
    flow.is_the_capture(without="config_change|latest_producer_id_block|brokers/ids")


def test_a_clean_shutdown() -> None:
    """First what it leads goes to others, then it leaves the ISRs of what it follows; its end costs nothing more."""
    flow = Flow("clean-shutdown-broker-1", brokers=[0, 1, 2, 3]).given("""
        pref-0 (1,0,2) leader 1 epoch 0 isr 1,0,2 version 0
        pref-1 (2,1,0) leader 2 epoch 0 isr 2,1,0 version 0
        topic-cluster-0 (3,1,2) leader 3 epoch 3 isr 2,1,3 version 4
        topic-cluster-2 (1,3,0) leader 1 epoch 3 isr 1,0,3 version 4
        topic-cluster-3 (2,0,1) leader 0 epoch 1 isr 0,2,1 version 1
        topic-cluster2-1 (1,0) leader 1 epoch 4 isr 1,0 version 6
        topic-cluster2-2 (0,1,2) leader 2 epoch 2 isr 2,0,1 version 4
    """)
    assert flow.shut_down(1) == []
    flow.writes("""
        topic-cluster-2 leader 3 epoch 4 isr 0,3 version 5
        topic-cluster2-1 leader 0 epoch 5 isr 0 version 7
        pref-0 leader 0 epoch 1 isr 0,2 version 1
        --
        topic-cluster-3 leader 0 epoch 2 isr 0,2 version 2
        topic-cluster-0 leader 3 epoch 4 isr 2,3 version 5
        pref-1 leader 2 epoch 1 isr 2,0 version 1
        topic-cluster2-2 leader 2 epoch 3 isr 2,0 version 5
    """)
    assert flow.shut_down(1) == []
    flow.gone(1)
    flow.is_the_capture()


def test_a_clean_shutdown_of_the_controller() -> None:
    """It serves its own shutdown; the next controller finds nothing left to do."""
    flow = Flow("clean-shutdown-controller-1", controller=1, epoch=2, brokers=[0, 1, 2, 3]).given("""
        data-0 (1,2,3) leader 1 epoch 1 isr 1,2,3 version 4
        data-1 (3,1,2) leader 1 epoch 1 isr 1,2,3 version 2
        topic-cluster-0 (3,1,2) leader 1 epoch 5 isr 2,1,3 version 8
        topic-cluster-2 (1,3,0) leader 1 epoch 9 isr 1,3,0 version 15
        topic-cluster-3 (2,0,1) leader 2 epoch 6 isr 2,1,0 version 10
        topic-cluster2-1 (1,0) leader 1 epoch 9 isr 1,0 version 15
        topic-cluster2-2 (0,1,2) leader 1 epoch 8 isr 2,1,0 version 14
    """)
    assert flow.shut_down(1) == []
    flow.writes("""
        topic-cluster-2 leader 3 epoch 10 isr 3,0 version 16
        data-0 leader 2 epoch 2 isr 2,3 version 5
        topic-cluster2-2 leader 0 epoch 9 isr 2,0 version 15
        topic-cluster-0 leader 3 epoch 6 isr 2,3 version 9
        data-1 leader 3 epoch 2 isr 2,3 version 3
        topic-cluster2-1 leader 0 epoch 10 isr 0 version 16
        --
        topic-cluster-3 leader 2 epoch 7 isr 2,0 version 11
    """)
    del flow.cluster.brokers[BrokerId(1)]
    flow.elected(3, 3)
    flow.is_the_capture()


def test_the_last_member_of_an_isr_shuts_down() -> None:
    """Asked thrice, nobody can take over; when it is gone, the partition is without a leader, the ISR stays."""
    flow = Flow("unclean-stop-last-leader", epoch=7, brokers=[0, 1]).given("""
        __transaction_state-0 (0,1,2) leader 1 epoch 4 isr 0,1 version 7
        topic-cluster-2 (1,3,0) leader 1 epoch 12 isr 0,1 version 20
        topic-cluster-3 (2,0,1) leader 1 epoch 11 isr 0,1 version 19
        topic-cluster2-1 (1,0) leader 1 epoch 11 isr 0,1 version 19
        topic-cluster2-2 (0,1,2) leader 1 epoch 13 isr 0,1 version 23
        un-0 (1,2) leader 1 epoch 1 isr 1 version 1
    """)
    for _ in range(4):
        assert flow.shut_down(1) == ["un-0"]
    flow.gone(1)
    flow.writes("""
        topic-cluster-2 leader 0 epoch 13 isr 0 version 21
        __transaction_state-0 leader 0 epoch 5 isr 0 version 8
        topic-cluster2-2 leader 0 epoch 14 isr 0 version 24
        topic-cluster-3 leader 0 epoch 12 isr 0 version 20
        topic-cluster2-1 leader 0 epoch 12 isr 0 version 20
        --
        un-0 leader -1 epoch 2 isr 1 version 2
    """)
    flow.is_the_capture()


def test_a_topic_is_allowed_unclean_elections() -> None:
    """By a tool: the leaderless partition elects at once, its ISR is that leader; counted."""
    flow = Flow("unclean-enable", epoch=7, brokers=[0, 2]).given("un-0 (1,2) leader -1 epoch 2 isr 1 version 2")
    values = {"unclean.leader.election.enable": "true"}
    flow.tool(SetData("/config/topics/un", znodes.encode_config(values)))
    flow.run(ConfigsChanged(ConfigResource(ConfigResourceType.TOPIC, "un"), values))
    flow.writes("un-0 leader 2 epoch 3 isr 2 version 3")
    assert flow.cluster.controller.unclean_elections == 1
    flow.is_the_capture()


def test_an_isr_shrinks_and_grows() -> None:
    """By AlterIsr (2.7 and later): the same leader epoch."""
    flow = Flow("isr-shrink-expand-2.8", brokers=[0, 1, 2, 3]).given(
        "data-0 (1,2,3) leader 1 epoch 0 isr 1,2,3 version 0"
    )
    flow.propose("data-0", [1, 2])
    flow.propose("data-0", [1, 2, 3])
    flow.writes("""
        data-0 leader 1 epoch 0 isr 1,2 version 1
        --
        data-0 leader 1 epoch 0 isr 1,2,3 version 2
    """)
    flow.is_the_capture()


def test_a_broker_that_cannot_register_in_time_is_gone() -> None:
    """Killed and started before its session ended, it is refused; with its session its leaderships go."""
    flow = Flow("broker-restart-before-session-expiry", epoch=7, brokers=[0, 1, 2]).given("""
        __consumer_offsets-0 (3,0,2) leader 0 epoch 2 isr 0,2 version 3
        __transaction_state-0 (0,1,2) leader 0 epoch 2 isr 0,1,2 version 4
        __transaction_state-1 (2,0,3) leader 0 epoch 2 isr 0,2 version 3
        topic-cluster-1 (0,2,3) leader 0 epoch 10 isr 0,2 version 16
        topic-cluster-3 (2,0,1) leader 0 epoch 9 isr 0,2,1 version 16
        topic-cluster2-0 (2) leader 2 epoch 11 isr 2 version 13
        topic-cluster2-2 (0,1,2) leader 0 epoch 11 isr 0,2,1 version 20
    """)
    flow.gone(2)
    flow.writes("""
        __transaction_state-0 leader 0 epoch 3 isr 0,1 version 5
        topic-cluster-1 leader 0 epoch 11 isr 0 version 17
        topic-cluster2-2 leader 0 epoch 12 isr 0,1 version 21
        topic-cluster2-0 leader -1 epoch 12 isr 2 version 14
        topic-cluster-3 leader 0 epoch 10 isr 0,1 version 17
        __consumer_offsets-0 leader 0 epoch 3 isr 0 version 4
        __transaction_state-1 leader 0 epoch 3 isr 0 version 4
    """)
    flow.is_the_capture()


@pytest.mark.row("R03")
def test_a_log_directory_fails() -> None:
    """The notice goes, then the replicas that the broker names, as in a crash; those on its other directories stay."""
    flow = Flow("log-dir-failure", controller=3, epoch=3, brokers=[0, 1, 2, 3]).given("""
        data-0 (1,2,3) leader 2 epoch 2 isr 2,3,1 version 6
        data-1 (3,1,2) leader 3 epoch 2 isr 2,3,1 version 4
        topic-cluster-0 (3,1,2) leader 3 epoch 6 isr 2,3,1 version 10
        topic-cluster-3 (2,0,1) leader 2 epoch 7 isr 2,0,1 version 12
        topic-cluster2-0 (2) leader 2 epoch 5 isr 2 version 7
    """)
    notice = "/log_dir_event_notification/log_dir_event_0000000000"
    flow.tool(Create(notice, znodes.encode_log_directory_event(2)))
    flow.run(LogDirectoryFailed(BrokerId(2), [notice]))
    failed = [("data", 1), ("topic-cluster", 0), ("topic-cluster", 3), ("topic-cluster2", 0)]
    flow.run(ReplicasFailed(BrokerId(2), [TopicPartition(*each) for each in failed]))
    flow.writes("""
        delete /log_dir_event_notification/log_dir_event_
        --
        topic-cluster-3 leader 0 epoch 8 isr 0,1 version 13
        --
        data-1 leader 3 epoch 3 isr 3,1 version 5
        topic-cluster-0 leader 3 epoch 7 isr 3,1 version 11
        topic-cluster2-0 leader -1 epoch 6 isr 2 version 8
    """)
    flow.is_the_capture()


@pytest.mark.row("R29")
def test_preferred_leaders_are_elected_by_a_tool() -> None:
    """Where the first replica is in sync and does not lead: epoch + 1, the ISR stays; the tool's node goes last."""
    flow = Flow("preferred-election-all", brokers=[0, 1, 2, 3]).given("""
        pref-0 (1,0,2) leader 0 epoch 1 isr 0,2,1 version 2
        pref-1 (2,1,0) leader 2 epoch 1 isr 2,0,1 version 2
        topic-cluster-0 (3,1,2) leader 3 epoch 4 isr 2,3,1 version 6
        topic-cluster-2 (1,3,0) leader 3 epoch 4 isr 0,3,1 version 6
        topic-cluster-3 (2,0,1) leader 0 epoch 2 isr 0,2,1 version 3
        topic-cluster2-0 (2) leader 2 epoch 5 isr 2 version 7
        topic-cluster2-1 (1,0) leader 0 epoch 5 isr 0,1 version 8
        topic-cluster2-2 (0,1,2) leader 2 epoch 3 isr 2,0,1 version 6
    """)
    partitions = [each for each, _ in flow.cluster.controller.image.partitions()]
    flow.tool(Create(znodes.PREFERRED_ELECTION, znodes.encode_partitions(partitions)))
    flow.run(PreferredElectionRequested(partitions))
    flow.writes("""
        topic-cluster-2 leader 1 epoch 5 isr 0,3,1 version 7
        topic-cluster2-2 leader 0 epoch 4 isr 2,0,1 version 7
        topic-cluster-3 leader 2 epoch 3 isr 0,2,1 version 4
        topic-cluster2-1 leader 1 epoch 6 isr 0,1 version 9
        pref-0 leader 1 epoch 2 isr 0,2,1 version 3
        --
        delete /admin/preferred_replica_election
    """)
    flow.is_the_capture()


@pytest.mark.row("R29")
def test_a_preferred_election_of_nothing_known() -> None:
    """Only the tool's node goes."""
    flow = Flow("bad-preferred", brokers=[0, 1])
    flow.tool(Create(znodes.PREFERRED_ELECTION, znodes.encode_partitions([TopicPartition("nope", 3)])))
    flow.run(PreferredElectionRequested([TopicPartition("nope", 3)]))
    flow.writes("delete /admin/preferred_replica_election")
    flow.is_the_capture()


@pytest.mark.row("R29")
def test_leadership_comes_back_by_itself() -> None:
    """A broker is stopped and started; when it is in sync again, the balance gives it back what it should lead.

    Captured with protocol 2.6, where leaders wrote their ISRs themselves and gave notice: ours ask the controller.
    """
    flow = Flow("auto-leader-rebalance", brokers=[0, 1, 2]).given("""
        data-0 (1,2,0) leader 1 epoch 0 isr 0,1,2 version 2
        data-1 (2,0,1) leader 2 epoch 0 isr 2,0,1 version 0
        racked-0 (2,1) leader 2 epoch 0 isr 2,1 version 0
        racked-1 (0,1) leader 0 epoch 0 isr 0,1 version 0
        racked-2 (1,2) leader 1 epoch 0 isr 1,2 version 0
        racked-3 (2,1) leader 2 epoch 0 isr 2,1 version 0
        racked-4 (0,1) leader 0 epoch 0 isr 0,1 version 0
        racked-5 (1,2) leader 1 epoch 0 isr 1,2 version 0
        unracked-0 (0,1) leader 0 epoch 0 isr 0,1 version 0
        unracked-1 (1,2) leader 1 epoch 0 isr 1,2 version 0
    """)
    assert flow.shut_down(1) == []
    flow.writes("""
        racked-5 leader 2 epoch 1 isr 2 version 1
        unracked-1 leader 2 epoch 1 isr 2 version 1
        racked-2 leader 2 epoch 1 isr 2 version 1
        data-0 leader 2 epoch 1 isr 0,2 version 3
        --
        racked-4 leader 0 epoch 1 isr 0 version 1
        unracked-0 leader 0 epoch 1 isr 0 version 1
        racked-0 leader 2 epoch 1 isr 2 version 1
        racked-1 leader 0 epoch 1 isr 0 version 1
        racked-3 leader 2 epoch 1 isr 2 version 1
        data-1 leader 2 epoch 1 isr 2,0 version 1
    """)
    flow.gone(1)
    flow.back(1)
    names = ("unracked-0", "racked-1", "racked-4", "data-1", "data-0", "racked-0", "racked-3", "racked-2", "racked-5")
    for name in (*names, "unracked-1"):
        flow.grow_isr(name, 1)
    flow.writes("""
        unracked-0 leader 0 epoch 1 isr 0,1 version 2
        racked-1 leader 0 epoch 1 isr 0,1 version 2
        racked-4 leader 0 epoch 1 isr 0,1 version 2
        data-1 leader 2 epoch 1 isr 2,0,1 version 2
        data-0 leader 2 epoch 1 isr 0,2,1 version 4
        racked-0 leader 2 epoch 1 isr 2,1 version 2
        racked-3 leader 2 epoch 1 isr 2,1 version 2
        racked-2 leader 2 epoch 1 isr 2,1 version 2
        racked-5 leader 2 epoch 1 isr 2,1 version 2
        unracked-1 leader 2 epoch 1 isr 2,1 version 2
    """)
    flow.run(LeaderBalanceDue())
    flow.writes("""
        racked-5 leader 1 epoch 2 isr 2,1 version 3
        unracked-1 leader 1 epoch 2 isr 2,1 version 3
        racked-2 leader 1 epoch 2 isr 2,1 version 3
        data-0 leader 1 epoch 2 isr 0,2,1 version 5
    """)
    flow.is_the_capture(without="isr_change_notification|latest_producer_id_block")
