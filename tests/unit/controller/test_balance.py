"""Leadership goes back to where it was assigned: the count, the threshold, the times, and who may not be elected."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.harness import Cluster, broker

from tidelog.controller.balance import FIRST_CHECK_MS
from tidelog.controller.events import LeaderBalanceDue, Submitted
from tidelog.controller.requests import (
    AlterPartition,
    DeleteTopics,
    ElectionType,
    ElectLeaders,
    IsrMember,
    IsrProposal,
    TopicReference,
)
from tidelog.controller.result import Timer
from tidelog.controller.settings import ControllerSettings
from tidelog.metadata import znodes
from tidelog.metadata.operations import SetData
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ZERO_TOPIC_ID, BrokerId, TopicPartition

pytestmark = pytest.mark.row("R29")

DUE = LeaderBalanceDue()


def cluster_of(*assignment: list[int], brokers: int = 4, settings: ControllerSettings | None = None) -> Cluster:
    cluster = Cluster(*map(broker, range(brokers)), settings=settings)
    cluster.make("t", *assignment)
    return cluster


def lead(cluster: Cluster, **leaders: int) -> None:
    """Moves leaderships, `p0=1`, as elections after crashes would have; everybody stays in sync."""
    for name, leader in leaders.items():
        image = cluster.partition("t", int(name[1:]))
        state = znodes.PartitionState(BrokerId(leader), image.leader_epoch, image.isr, image.controller_epoch)
        path = znodes.state_path("t", int(name[1:]))
        cluster.tree.transact(1, [SetData(path, znodes.encode_state(state))], 0)
    cluster.controller = cluster.loaded(1)
    cluster.told()


def leaders(cluster: Cluster) -> list[int]:
    return [image.leader for _, image in cluster.controller.image.partitions()]


def test_the_documents_case() -> None:
    """Four brokers, four partitions with all of them: 0, 2 and 3 lead another's partition, 1 leads its own.

    The document counts 1 of 4 replicas, Kafka 1 of the 1 partition that it should lead: both above 10 per cent.
    """
    cluster = cluster_of([3, 0, 2, 1], [1, 2, 3, 0], [0, 3, 1, 2], [2, 1, 0, 3])
    lead(cluster, p0=0, p2=2, p3=3)
    assert leaders(cluster) == [0, 1, 2, 3]
    cluster.run(DUE)
    assert leaders(cluster) == [3, 1, 0, 2]
    assert len(cluster.told()) == 3
    # Everybody is told in one request of a kind.
    assert sorted(cluster.sent("LeaderAndIsrRequest")) == [0, 1, 2, 3]


@pytest.mark.parametrize(("misled", "moves"), [(1, False), (2, True)])
def test_more_than_the_percentage_moves_them(misled: int, moves: bool) -> None:
    """One of ten is 10 per cent and stays; two of ten go back."""
    cluster = cluster_of(*([0, 1] for _ in range(10)), brokers=2)
    lead(cluster, **{f"p{index}": 1 for index in range(misled)})
    cluster.run(DUE)
    assert leaders(cluster).count(1) == (0 if moves else misled)
    assert len(cluster.told()) == (misled if moves else 0)


def test_zero_per_cent_moves_every_one() -> None:
    """The threshold is a setting."""
    cluster = cluster_of(*([0, 1] for _ in range(50)), brokers=2)
    lead(cluster, p7=1)
    cluster.run(DUE)
    assert leaders(cluster).count(1) == 1
    cluster.controller.settings = ControllerSettings(leader_imbalance_per_broker_percentage=0)
    cluster.run(DUE)
    assert leaders(cluster).count(1) == 0


def test_the_timer_outlives_everything() -> None:
    """First 5 s after an election, then at the interval, also while the balance is switched off."""
    settings = ControllerSettings(leader_imbalance_check_interval_s=300)
    cluster = cluster_of([0, 1], brokers=2, settings=settings)
    cluster.term(2)
    assert cluster.last.timers == [Timer(FIRST_CHECK_MS, DUE)] == [Timer(5_000, DUE)]
    assert cluster.run(DUE).timers == [Timer(300_000, DUE)]
    lead(cluster, p0=1)
    cluster.controller.settings = replace(settings, leader_rebalance_enable=False)
    assert cluster.run(DUE).timers == [Timer(300_000, DUE)]
    assert leaders(cluster) == [1]
    # A driver finds its timer by the event.
    assert {DUE: 1}[LeaderBalanceDue()] == 1


def test_who_is_away_or_out_of_sync_is_not_elected() -> None:
    """It counts as imbalance, and nothing is written; when it is in sync, it leads."""
    cluster = cluster_of([0, 1], [1, 0], brokers=2)
    cluster.live(broker(1))
    cluster.told()
    cluster.run(DUE)
    cluster.live(broker(1), broker(0, 500))
    cluster.run(DUE)
    assert cluster.told() == []
    assert leaders(cluster) == [1, 1]
    image = cluster.partition("t")
    members = [IsrMember(BrokerId(1)), IsrMember(BrokerId(0))]
    proposal = IsrProposal(TopicPartition("t", 0), ZERO_TOPIC_ID, image.leader_epoch, members, image.partition_epoch)
    cluster.ask(AlterPartition(BrokerId(1), cluster.brokers[BrokerId(1)].epoch, [proposal]))
    cluster.told()
    cluster.run(DUE)
    assert leaders(cluster) == [0, 1]
    assert cluster.partition("t").isr == (1, 0)


def test_what_is_deleted_or_reassigned_is_left_alone() -> None:
    """Its leader changes with the deletion or the reassignment."""
    cluster = cluster_of([0, 1], [0, 1], brokers=3)
    lead(cluster, p0=1, p1=1)
    content = znodes.TopicAssignment(
        {0: [0, 1], 1: [0, 1, 2]}, cluster.controller.image.topics["t"].topic_id, adding={1: [2]}
    )
    cluster.tree.transact(1, [SetData(znodes.topic_path("t"), znodes.encode_topic(content))], 0)
    cluster.controller = cluster.loaded(1)
    cluster.run(DUE)
    assert leaders(cluster) == [0, 1]
    cluster.run(Submitted(1, DeleteTopics([TopicReference("t")])))
    assert cluster.run(DUE).writes == []


def test_a_partition_named_twice_is_elected_once() -> None:
    """Of an election by hand; and one with nobody assigned is refused, not a crash."""
    cluster = cluster_of([0, 1], brokers=2)
    lead(cluster, p0=1)
    twice = [TopicPartition("t", 0)] * 2
    outcomes = cluster.ask(ElectLeaders(ElectionType.PREFERRED, twice))
    assert [outcome.error for outcome in outcomes] == [ErrorCode.NONE]
    path = znodes.topic_path("t")
    nobody = znodes.TopicAssignment({0: []}, cluster.controller.image.topics["t"].topic_id)
    cluster.tree.transact(1, [SetData(path, znodes.encode_topic(nobody))], 0)
    cluster.controller = cluster.loaded(1)
    cluster.run(DUE)
    [outcome] = cluster.ask(ElectLeaders(ElectionType.PREFERRED))
    assert outcome.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
