"""KIP-279: leaders change faster than followers can ask.

    A   epoch 0: common   epoch 2: a2   epoch 3: a3
    B   epoch 0: common   epoch 1: b1   epoch 4: b4     and B leads

A asks where its epoch 3 ends. B has never heard of it: the next epoch that it knows begins at 2, so everything below is
not newer than 3. That is true, and useless without saying *which* epoch ends there: A would keep a2, where B has b1.
"""

from __future__ import annotations

import pytest
from tests.scenarios.stories import former_protocols
from tests.scenarios.stories.checked_cluster import TOPIC, CheckedCluster, LogsDiffer
from tests.unit.broker.replica_harness import ReplicaCluster

pytestmark = pytest.mark.row("R28")

A, B = 0, 1


def fast_leader_changes(cluster: ReplicaCluster) -> None:
    """Two leaders that do not hear of each other write in turn; then they meet."""
    checked = CheckedCluster(cluster)
    cluster.create(TOPIC, replicas=[A, B])
    checked.produce(b"common")
    cluster.advance(1_000)
    cluster.part(A, B)
    for leader, value in ((B, b"b1"), (A, b"a2"), (A, b"a3"), (B, b"b4")):
        cluster.elect(TOPIC, leader, isr=[leader], tell=[leader])
        cluster.produce(TOPIC, [value])
    cluster.advance(100)
    cluster.heal()
    cluster.announce(cluster.states)
    cluster.advance(3_000)
    checked.check()


def test_epochs_are_cut_until_both_know_one(two: ReplicaCluster) -> None:
    """The answer names epoch 1: A, which has none, cuts back to the end of its epoch 0, and asks again."""
    fast_leader_changes(two)
    assert two.values(A, TOPIC) == two.values(B, TOPIC) == [b"common", b"b1", b"b4"]
    assert two.log(A, TOPIC).epochs == two.log(B, TOPIC).epochs


def test_an_answer_without_an_epoch_leaves_two_logs_that_differ(
    two: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As KIP-101 was at first."""
    former_protocols.one_question_without_an_epoch_in_the_answer(monkeypatch)
    with pytest.raises(LogsDiffer, match="b1"):
        fast_leader_changes(two)
