"""The losses that KIP-101 and KIP-279 prevent, end to end, each with the algorithm that it speaks against.

Before KIP-101 a replica that came back was cut to its high watermark, which may be older than what is committed, and
nothing else was compared. `old_algorithm` brings that back, and then each story ends as it did then.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.replica_harness import ReplicaCluster

from tidelog.model.identifiers import NO_LEADER_EPOCH
from tidelog.protocol.apis import ApiKey
from tidelog.replication.follower import PartitionFollower
from tidelog.replication.follower_events import FetchPosition
from tidelog.storage.log import Log

A, B = 0, 1


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[ReplicaCluster]:
    cluster = ReplicaCluster(tmp_path, 2)
    yield cluster
    cluster.close()


@pytest.fixture(params=[False, True], ids=["epochs", "high watermark"])
def old_algorithm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether followers are cut to their high watermark when they begin to follow, and no epoch is asked for."""
    if request.param:
        begin, position = Log.begin_following, PartitionFollower.position

        def cut(log: Log) -> None:
            begin(log)
            if log.high_watermark < log.log_end_offset:
                log.truncate_to(log.high_watermark)

        def without_epoch(follower: PartitionFollower) -> FetchPosition | None:
            found = position(follower)
            return None if found is None else found._replace(last_fetched_epoch=NO_LEADER_EPOCH)

        monkeypatch.setattr(Log, "begin_following", cut)
        monkeypatch.setattr(PartitionFollower, "position", without_epoch)
    return bool(request.param)


def checkpoint(cluster: ReplicaCluster) -> None:
    """High watermarks go to their checkpoint files."""
    for broker in cluster.brokers.values():
        for task in broker.logs.maintenance.checkpoint_tasks():
            task.run()
            task.finish(None)


def test_loss(pair: ReplicaCluster, old_algorithm: bool) -> None:
    """A has m2 and has not heard that it is committed; A restarts, then B dies, and A leads: m2 must be there."""
    pair.create("t", replicas=[B, A])
    pair.produce("t", [b"m1"])
    pair.advance(1000)
    checkpoint(pair)
    answer = pair.produce("t", [b"m2"], acks=-1)
    # A's answer of the second round is lost: B has counted A's fetch from 2, A does not know.
    pair.until(lambda: pair.brokers[B].replica("t").high_watermark == 2)
    assert answer.done
    assert pair.brokers[A].replica("t").high_watermark == 1
    pair.kill(A)
    pair.restart(A)
    assert pair.log(A, "t").log_end_offset == (1 if old_algorithm else 2)
    pair.kill(B)
    pair.elect("t", A)
    pair.advance(100)
    pair.restart(B)
    pair.advance(2000)
    kept = [b"m1"] if old_algorithm else [b"m1", b"m2"]
    assert pair.values(A, "t") == pair.values(B, "t") == kept


def test_divergence(pair: ReplicaCluster, old_algorithm: bool) -> None:
    """A alone has m2; both die, B comes back first and takes m3; A must not keep m2 at m3's place.

    B was not in the ISR, so that this is an unclean election: m2 is gone, counted, and the logs are equal.
    """
    pair.create("t", replicas=[A, B])
    pair.produce("t", [b"m1"])
    pair.advance(1000)
    pair.part(A, B)
    pair.elect("t", A, isr=[A], tell=[A])
    pair.produce("t", [b"m2"])
    pair.advance(100)
    checkpoint(pair)
    assert pair.high_watermarks("t") == [2, 1]
    pair.kill(A)
    pair.kill(B)
    pair.heal()
    pair.restart(B)
    pair.elect("t", B, isr=[B])
    pair.advance(100)
    pair.produce("t", [b"m3"])
    pair.advance(100)
    pair.restart(A)
    pair.advance(2000)
    assert pair.values(B, "t") == [b"m1", b"m3"]
    assert pair.values(A, "t") == ([b"m1", b"m2"] if old_algorithm else [b"m1", b"m3"])
    assert pair.brokers[A].node.fetcher_manager.lossy_truncations == (0 if old_algorithm else 1)


def test_fast_leader_changes(pair: ReplicaCluster) -> None:
    """KIP-279: epochs that the other has never heard of are cut one after the other, until both know one."""
    pair.create("t", replicas=[A, B])
    pair.produce("t", [b"common"])
    pair.advance(1000)
    pair.part(A, B)
    for leader, value in ((B, b"b1"), (A, b"a2"), (A, b"a3"), (B, b"b4")):
        pair.elect("t", leader, isr=[leader], tell=[leader])
        pair.produce("t", [value])
    pair.advance(100)
    assert [pair.values(one, "t") for one in (A, B)] == [[b"common", b"a2", b"a3"], [b"common", b"b1", b"b4"]]
    pair.heal()
    pair.announce(pair.states)
    pair.advance(3000)
    assert pair.values(A, "t") == pair.values(B, "t") == [b"common", b"b1", b"b4"]
    assert pair.log(A, "t").epochs == pair.log(B, "t").epochs


@pytest.mark.parametrize("restarts", [False, True])
def test_an_epoch_without_records_is_forgotten(pair: ReplicaCluster, restarts: bool) -> None:
    """A leads an epoch, writes nothing, perhaps crashes before the checkpoint knows, and then copies older records.

    Had its cache kept that epoch, the records of the older one that come next would have moved that one's start.
    """
    pair.create("t", replicas=[B, A])
    pair.produce("t", [b"m1"])
    pair.advance(1000)
    pair.part(A, B)
    pair.produce("t", [b"m2"])
    pair.elect("t", A, isr=[A], tell=[A])
    assert pair.log(A, "t").epochs.latest == 1
    if restarts:
        pair.kill(A)
    pair.elect("t", B, isr=[B], tell=[B])
    pair.heal()
    if restarts:
        pair.restart(A)
    else:
        pair.announce(pair.states)
    pair.produce("t", [b"m3"])
    pair.advance(2000)
    assert pair.values(A, "t") == [b"m1", b"m2", b"m3"]
    assert pair.log(A, "t").epochs.entries == pair.log(B, "t").epochs.entries == [(0, 0), (2, 2)]


def test_the_two_rounds_of_of_replication(pair: ReplicaCluster) -> None:
    """One record: after the first round both have it and neither counts it, after the second both do."""
    pair.create("t", replicas=[A, B])
    pair.until(lambda: len(pair.fetches(B, A)) >= 2)
    rows: list[tuple[Any, ...]] = []

    def note() -> None:
        leader, follower = pair.brokers[A].replica("t"), pair.brokers[B].replica("t")
        remote = leader.leader.followers[B].log_end
        row = (
            leader.log.log_end_offset,
            leader.high_watermark,
            remote,
            follower.log.log_end_offset,
            follower.high_watermark,
        )
        if not rows or rows[-1] != row:
            rows.append(row)

    note()
    pair.produce("t", [b"m"])
    note()
    for _ in range(200):
        pair.advance(1)
        note()
    assert rows == [
        # leader's log end, high watermark, remote log end; follower's log end, high watermark
        (0, 0, 0, 0, 0),
        (1, 0, 0, 0, 0),
        (1, 0, 0, 1, 0),
        (1, 1, 1, 1, 0),
        (1, 1, 1, 1, 1),
    ]
    assert all(key is ApiKey.FETCH for _, _, key, _, _ in pair.requests)
