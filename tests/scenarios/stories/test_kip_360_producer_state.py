"""KIP-360: a broker remembers an idempotent producer though the producer's records are gone.

A producer's batch is appended, and the answer is lost. Before it asks again, retention or DeleteRecords takes all its
records. If the broker forgets it with them, the same batch is a new one: it is appended once more.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.scenarios.stories import former_protocols
from tests.scenarios.stories.checked_cluster import TOPIC, CheckedCluster, RecordTwice, values_by_offset
from tests.unit.broker.replica_harness import ReplicaCluster

pytestmark = pytest.mark.row("R28")

A, B = 0, 1
PRODUCER = {"producer_id": 4000, "producer_epoch": 0}

Meanwhile = Callable[[ReplicaCluster], None]


def nothing(cluster: ReplicaCluster) -> None:
    """The same leader is asked again."""


def restart(cluster: ReplicaCluster) -> None:
    """The leader is stopped and started: it has its snapshot of producers."""
    cluster.stop(A)
    cluster.restart(A)


def another_leader(cluster: ReplicaCluster) -> None:
    """The follower leads, which has built its own state from the batches that it copied."""
    cluster.kill(A)
    cluster.elect(TOPIC, B)


def a_batch_is_sent_again(cluster: ReplicaCluster, meanwhile: Meanwhile) -> int:
    """The offset that the second answer tells."""
    checked = CheckedCluster(cluster)
    cluster.create(TOPIC, replicas=[A, B])
    checked.produce(b"first", base_sequence=0, **PRODUCER)
    checked.produce(b"second", base_sequence=1, **PRODUCER)
    cluster.advance(1_000)
    seen = list(values_by_offset(cluster, A).items())
    # The answer to the second one never arrived. All records go; the log begins at 2.
    cluster.delete_records(TOPIC, 2)
    cluster.advance(1_000)
    assert [cluster.log(id, TOPIC).log_start_offset for id in (A, B)] == [2, 2]
    meanwhile(cluster)
    leader = cluster.states[next(iter(cluster.states))].leader
    offset = checked.settle(cluster.produce(TOPIC, [b"second"], acks=-1, base_sequence=1, **PRODUCER), b"second")
    cluster.advance(1_000)
    checked.check_once([*seen, *values_by_offset(cluster, leader).items()])
    return offset


@pytest.mark.parametrize("meanwhile", [nothing, restart, another_leader])
def test_what_was_sent_is_known(two: ReplicaCluster, meanwhile: Meanwhile) -> None:
    """The answer is that of the first time: its offset, and nothing is appended."""
    assert a_batch_is_sent_again(two, meanwhile) == 1


@pytest.mark.parametrize("meanwhile", [nothing, restart, another_leader])
def test_a_producer_that_is_forgotten_with_its_records_writes_twice(
    two: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, meanwhile: Meanwhile
) -> None:
    """A consumer reads the second record at 1, and again at 2."""
    former_protocols.producers_go_with_their_records(monkeypatch)
    with pytest.raises(RecordTwice, match="second"):
        a_batch_is_sent_again(two, meanwhile)
