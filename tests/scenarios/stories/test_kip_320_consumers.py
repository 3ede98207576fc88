"""KIP-320: a consumer tells the leader epoch that it knows, and that of the last record that it has read.

Without them, an old leader that does not know that it is deposed answers as if the consumer were mad, and a log that
was cut and grew again looks as if nothing had happened.
"""

from __future__ import annotations

import pytest
from tests.scenarios.stories.checked_cluster import TOPIC, CheckedCluster, Consumer, SkippedInSilence, WentBack
from tests.unit.broker.replica_harness import ReplicaCluster

from tidelog.model.errors import ErrorCode

pytestmark = pytest.mark.row("R28")

A, B = 0, 1


def stale_leader(cluster: ReplicaCluster, consumer: Consumer) -> ErrorCode:
    """B leads and the consumer has read from it; then metadata that is out of date sends it to A, which led before."""
    checked = CheckedCluster(cluster)
    cluster.create(TOPIC, replicas=[A, B])
    checked.produce(b"m0", b"m1")
    cluster.advance(1_000)
    # A is cut off: it still believes to lead, in epoch 0.
    cluster.part(A, B)
    cluster.elect(TOPIC, B, isr=[B], tell=[B])
    checked.produce(b"m2")
    consumer.learn(leader_epoch=1)
    assert consumer.poll(B) is ErrorCode.NONE
    assert consumer.position == 3
    # A broker that has heard nothing says: A leads, epoch 0. A's log ends at 2.
    consumer.learn(leader_epoch=0)
    return consumer.poll(A)


def truncated_log(cluster: ReplicaCluster, consumer: Consumer) -> None:
    """The consumer has read five records of A. B, which has three, is elected uncleanly, and takes three others."""
    checked = CheckedCluster(cluster)
    cluster.create(TOPIC, replicas=[A, B])
    checked.produce(b"m0", b"m1", b"m2")
    cluster.advance(1_000)
    cluster.part(A, B)
    cluster.elect(TOPIC, A, isr=[A], tell=[A])
    cluster.produce(TOPIC, [b"m3"])
    cluster.produce(TOPIC, [b"m4"])
    cluster.advance(100)
    consumer.learn(leader_epoch=1)
    consumer.poll(A)
    assert consumer.position == 5
    cluster.kill(A)
    cluster.elect(TOPIC, B, isr=[B])
    for value in (b"n3", b"n4", b"n5"):
        cluster.produce(TOPIC, [value])
    cluster.advance(100)
    consumer.learn(leader_epoch=2)
    for _ in range(2):
        consumer.poll(B)
        consumer.check(B)


def test_a_deposed_leader_is_known_by_its_epoch(two: ReplicaCluster) -> None:
    """It answers that it has not heard of such an epoch: the consumer stays where it is, and asks for metadata."""
    consumer = Consumer(two, knows_epochs=True)
    assert stale_leader(two, consumer) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert consumer.position == 3
    assert consumer.poll(B) is ErrorCode.NONE


def test_without_an_epoch_a_deposed_leader_sends_the_consumer_back(two: ReplicaCluster) -> None:
    """Its offset is out of range there: it begins anew, and reads all once more."""
    with pytest.raises(WentBack):
        stale_leader(two, Consumer(two, knows_epochs=False))


def test_a_consumer_is_told_where_the_log_was_cut(two: ReplicaCluster) -> None:
    """At its next fetch: what it has read from 3 on is gone. From there it reads what is there now."""
    consumer = Consumer(two, knows_epochs=True)
    truncated_log(two, consumer)
    assert consumer.told == [3]
    assert list(consumer.read.values()) == [b"m0", b"m1", b"m2", b"n3", b"n4", b"n5"]


def test_without_an_epoch_a_cut_goes_unnoticed(two: ReplicaCluster) -> None:
    """It goes on at 5: n3 and n4 it will never see, and m3 and m4 it takes for real."""
    consumer = Consumer(two, knows_epochs=False)
    with pytest.raises(SkippedInSilence, match="m3"):
        truncated_log(two, consumer)
    assert consumer.told == []
