"""The last replica in sync loses its power (KIP-966, and why the high watermark waits for min.insync.replicas).

With min.insync.replicas=2 two disks stand behind what anybody is told. When the ISR has shrunk to one, that one still
takes records with acks=1. Kafka before 3.7 called them committed, so consumers read them; then one power cut takes
them away, and the election after it is a clean one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scenarios.stories import former_protocols
from tests.scenarios.stories.checked_cluster import TOPIC, CheckedCluster, Consumer, SkippedInSilence
from tests.unit.broker.replica_harness import ReplicaCluster

pytestmark = pytest.mark.row("R25")

A, B = 0, 1


def last_replica_standing(cluster: ReplicaCluster, consumer: Consumer) -> None:
    """B is away; A takes m2 with acks=1, and its power fails before the disk has it."""
    checked = CheckedCluster(cluster)
    cluster.create(TOPIC, replicas=[A, B], settings={"min.insync.replicas": "2"})
    checked.produce(b"m1")
    cluster.advance(1_000)
    cluster.part(A, B)
    cluster.elect(TOPIC, A, isr=[A], tell=[A])
    segment = Path(cluster.log(A, TOPIC).segments[-1].log_file.path)
    on_the_disk = cluster.log(A, TOPIC).segments[-1].size
    cluster.produce(TOPIC, [b"m2"], acks=1)
    cluster.advance(100)
    consumer.poll(A)
    cluster.kill(A)
    with segment.open("r+b") as file:
        file.truncate(on_the_disk)
    # It is the only one in sync: elected, and by no means unclean.
    cluster.restart(A)
    cluster.elect(TOPIC, A, isr=[A], tell=[A])
    consumer.check(A)
    checked.check()


def test_nobody_has_read_what_one_disk_held(two: ReplicaCluster) -> None:
    """The high watermark stays where two replicas were: m2 is gone, and nobody was told of it but by acks=1."""
    consumer = Consumer(two, knows_epochs=True)
    last_replica_standing(two, consumer)
    assert consumer.read == {0: b"m1"}


def test_a_record_that_was_read_is_gone(two: ReplicaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the high watermark of before, m2 is committed by one replica."""
    former_protocols.commits_below_min_insync_replicas(monkeypatch)
    with pytest.raises(SkippedInSilence, match="m2"):
        last_replica_standing(two, Consumer(two, knows_epochs=True))
