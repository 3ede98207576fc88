"""The two losses for which KIP-101 was made: a loss, and two logs that differ.

Both come of truncation by the high watermark, which a follower learns one round late. Leader epochs tell where two logs
part, whatever their high watermarks are.
"""

from __future__ import annotations

import pytest
from tests.scenarios.stories import former_protocols
from tests.scenarios.stories.checked_cluster import TOPIC, CheckedCluster, LogsDiffer, RecordLost, checkpoint
from tests.unit.broker.replica_harness import ReplicaCluster

pytestmark = [pytest.mark.row("R27"), pytest.mark.row("R28")]

A, B = 0, 1


def loss(cluster: ReplicaCluster) -> None:
    """A follows B. Both have m2; B knows that it is committed, A does not yet. A restarts; then B dies."""
    checked = CheckedCluster(cluster)
    cluster.create(TOPIC, replicas=[B, A])
    checked.produce(b"m1")
    cluster.advance(1_000)
    checkpoint(cluster, [A, B])
    answer = cluster.produce(TOPIC, [b"m2"], acks=-1)
    cluster.until(lambda: cluster.brokers[B].replica(TOPIC).high_watermark == 2)
    checked.settle(answer, b"m2")
    assert cluster.brokers[A].replica(TOPIC).high_watermark == 1
    # A's node goes down before the answer comes that would have told it, and is back at once.
    cluster.kill(A)
    cluster.restart(A)
    # Just then B dies too: A, which is in sync, leads.
    cluster.kill(B)
    cluster.elect(TOPIC, A)
    cluster.advance(100)
    checked.check()
    # B comes back and follows; nothing that anybody was told goes.
    cluster.restart(B)
    cluster.advance(2_000)
    checked.check()


def divergence(cluster: ReplicaCluster) -> None:
    """A leads alone and has m2, B has m1 alone. Both die; B is first, leads, and takes m3 where A has m2."""
    checked = CheckedCluster(cluster)
    cluster.create(TOPIC, replicas=[A, B])
    checked.produce(b"m1")
    cluster.advance(1_000)
    cluster.part(A, B)
    cluster.elect(TOPIC, A, isr=[A], tell=[A])
    cluster.produce(TOPIC, [b"m2"])
    cluster.advance(100)
    checkpoint(cluster, [A, B])
    assert cluster.high_watermarks(TOPIC) == [2, 1]
    cluster.kill(A)
    cluster.kill(B)
    cluster.heal()
    # B was not in sync: an unclean election. m2 is lost, and that is told; it must not live on beside m3.
    cluster.restart(B)
    cluster.elect(TOPIC, B, isr=[B])
    cluster.advance(100)
    checked.produce(b"m3")
    cluster.restart(A)
    cluster.advance(2_000)
    checked.check()


def test_nothing_is_lost(two: ReplicaCluster) -> None:
    """With leader epochs A keeps m2: the leader's log holds that epoch up to there."""
    loss(two)
    assert two.values(A, TOPIC) == two.values(B, TOPIC) == [b"m1", b"m2"]


def test_truncation_by_high_watermark_loses_an_acknowledged_record(
    two: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cuts m2 at its restart, and leads without it."""
    former_protocols.truncation_by_high_watermark(monkeypatch)
    with pytest.raises(RecordLost, match="m2"):
        loss(two)


def test_the_logs_are_equal(two: ReplicaCluster) -> None:
    """With leader epochs A learns that epoch 0 ends at 1, cuts m2 and takes m3; the loss is counted."""
    divergence(two)
    assert two.values(A, TOPIC) == two.values(B, TOPIC) == [b"m1", b"m3"]
    assert two.brokers[A].node.fetcher_manager.lossy_truncations == 1


def test_truncation_by_high_watermark_leaves_two_logs_that_differ(
    two: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ends are 2, both high watermarks too: nothing is cut, nothing is fetched."""
    former_protocols.truncation_by_high_watermark(monkeypatch)
    with pytest.raises(LogsDiffer, match="differ"):
        divergence(two)
