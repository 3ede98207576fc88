"""Throttled replication between nodes joined in memory: what is limited, to what, and what goes on meanwhile.

Bytes are counted over the time that the tests move.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.broker.replica_harness import ReplicaCluster

from tidelog.metadata.image import CLUSTER_DEFAULT, ConfigResource, ConfigResourceType

RATE = 20_000
BATCH = 5_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ReplicaCluster]:
    joined = ReplicaCluster(tmp_path)
    yield joined
    joined.close()


def set_rate(cluster: ReplicaCluster, broker_id: int, side: str, rate: int | None = RATE) -> None:
    """`leader` or `follower`; None: not set any more."""
    resource = ConfigResource(ConfigResourceType.BROKER, str(broker_id))
    values = {} if rate is None else {f"{side}.replication.throttled.rate": str(rate)}
    cluster.brokers[broker_id].node.config_handler.settings_changed(resource, values)


def set_replicas(cluster: ReplicaCluster, broker_id: int, topic: str = "t", **replicas: str) -> None:
    """leader=..., follower=...: a topic's throttled replicas, as `broker_id` reads them."""
    values = {f"{side}.replication.throttled.replicas": text for side, text in replicas.items()}
    cluster.topic_settings[topic] = values
    cluster.brokers[broker_id].node.config_handler.settings_changed(
        ConfigResource(ConfigResourceType.TOPIC, topic), values
    )


def produce(cluster: ReplicaCluster, size: int, topic: str = "t", partition: int = 0) -> None:
    """Batches of about `BATCH` bytes, `size` together."""
    for _ in range(size // BATCH):
        cluster.produce(topic, [bytes(BATCH - 70)], partition=partition)


def copied(cluster: ReplicaCluster, broker_id: int, topic: str = "t", partition: int = 0) -> int:
    """Bytes in a broker's log."""
    return int(cluster.log(broker_id, topic, partition).size)


def left_behind(cluster: ReplicaCluster, size: int, *, partitions: int = 1) -> None:
    """Topic t, of which broker 2 lacks `size` bytes of each partition; it is out of the ISR, and not started."""
    cluster.create("t", replicas=[0, 1, 2], partitions=partitions)
    cluster.advance(1_000)
    cluster.kill(2)
    for partition in range(partitions):
        produce(cluster, size, partition=partition)
    cluster.advance(50_000)
    assert cluster.isr("t") == [0, 1]


def come_back(cluster: ReplicaCluster, side: str, replicas: str, rate: int = RATE) -> None:
    """Broker 2 starts again; the throttle is in the store already, for it or for the leader."""
    cluster.start(2)
    limited = 0 if side == "leader" else 2
    set_replicas(cluster, limited, **{side: replicas})
    set_rate(cluster, limited, side, rate)
    cluster.announce(cluster.states, tell=[2])


def rates(cluster: ReplicaCluster, seconds: int, *, partitions: int = 1) -> list[int]:
    """Bytes that broker 2 got in each second that passes."""
    found = []
    before = sum(copied(cluster, 2, partition=partition) for partition in range(partitions))
    for _ in range(seconds):
        cluster.advance(1_000)
        now = sum(copied(cluster, 2, partition=partition) for partition in range(partitions))
        found.append(now - before)
        before = now
    return found


@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("partitions", [1, 7])
def test_a_replica_catches_up_at_the_rate(cluster: ReplicaCluster, side: str, partitions: int) -> None:
    """A tenth more or less over half a minute, and never more than three seconds' worth in one; then it is in sync."""
    total = 40 * RATE
    left_behind(cluster, total // partitions, partitions=partitions)
    limited = 0 if side == "leader" else 2
    come_back(cluster, side, ",".join(f"{partition}:{limited}" for partition in range(partitions)))
    found = rates(cluster, 30, partitions=partitions)
    assert 0.9 * 30 * RATE <= sum(found) <= 1.1 * 30 * RATE + RATE
    assert max(found) <= 3 * RATE
    assert partitions > 1 or cluster.isr("t") == [0, 1]
    cluster.advance(20_000)
    for partition in range(partitions):
        assert sorted(cluster.isr("t", partition)) == [0, 1, 2]
        assert cluster.data(2, "t", partition) == cluster.data(0, "t", partition)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_the_rate_is_all_brokers_default_too(cluster: ReplicaCluster, side: str) -> None:
    """/config/brokers/<default>, and `*`; a broker's own rate goes first."""
    left_behind(cluster, 40 * RATE)
    cluster.start(2)
    for broker_id in (0, 2):
        set_replicas(cluster, broker_id, **{side: "*"})
        default = {f"{side}.replication.throttled.rate": str(RATE)}
        cluster.brokers[broker_id].node.config_handler.settings_changed(CLUSTER_DEFAULT, default)
    cluster.announce(cluster.states, tell=[2])
    assert sum(rates(cluster, 10)) <= 12 * RATE
    set_rate(cluster, 0 if side == "leader" else 2, side, 100 * RATE)
    cluster.advance(2_000)
    assert copied(cluster, 2) == copied(cluster, 0)


@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("end", ["replicas", "rate"])
def test_a_throttle_that_ends_lets_all_through(tmp_path: Path, side: str, end: str) -> None:
    """The topic's list is emptied, or the rate is set no more: at once, not when the rate would have allowed it."""
    cluster = ReplicaCluster(tmp_path, settings={"replica.fetch.wait.max.ms": "20000"})
    limited = 0 if side == "leader" else 2
    left_behind(cluster, 200 * RATE)
    come_back(cluster, side, "*", RATE // 40)
    cluster.advance(5_000)
    assert copied(cluster, 2) < RATE
    if end == "replicas":
        set_replicas(cluster, limited)
    else:
        set_rate(cluster, limited, side, None)
    cluster.advance(100)
    assert copied(cluster, 2) == copied(cluster, 0)
    assert sorted(cluster.isr("t")) == [0, 1, 2]
    cluster.close()


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_other_partitions_go_on(cluster: ReplicaCluster, side: str) -> None:
    """While one partition waits for the throttle, acks=all of the others takes milliseconds, on the same connection."""
    left_behind(cluster, 40 * RATE)
    come_back(cluster, side, "*")
    cluster.create("u", replicas=[0, 1, 2], settings={"min.insync.replicas": "3"})
    cluster.advance(5_000)
    for _ in range(20):
        answer = cluster.produce("u", acks=-1)
        assert cluster.until(lambda waiting=answer: waiting.done) <= 10
        cluster.advance(100)
    assert sum(rates(cluster, 10)) <= 12 * RATE


def test_a_throttled_follower_asks_no_more_often_than_it_must(cluster: ReplicaCluster) -> None:
    """What the leader holds back waits at the leader; what the follower holds back is not asked for."""
    left_behind(cluster, 20 * RATE)
    come_back(cluster, "leader", "0:0", RATE // 4)
    cluster.advance(5_000)
    cluster.requests.clear()
    cluster.advance(10_000)
    assert len(cluster.fetches(2, 0)) <= 50
    set_rate(cluster, 0, "leader", None)
    cluster.advance(1_000)
    assert copied(cluster, 2) == copied(cluster, 0)


def test_a_held_back_fetch_is_answered_when_the_rate_allows(tmp_path: Path) -> None:
    """Long before replica.fetch.wait.max.ms."""
    cluster = ReplicaCluster(tmp_path, settings={"replica.fetch.wait.max.ms": "20000"})
    left_behind(cluster, 20 * RATE)
    come_back(cluster, "leader", "0:0")
    assert all(0.5 * RATE <= found <= 1.5 * RATE for found in rates(cluster, 15)[2:])
    cluster.close()


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_in_sync_is_not_limited(cluster: ReplicaCluster, side: str) -> None:
    """It counts, and goes on: acks=all does not wait for a throttle."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.advance(1_000)
    for broker_id in range(3):
        set_replicas(cluster, broker_id, **{side: "*"})
        set_rate(cluster, broker_id, side)
    for _ in range(20):
        answer = cluster.produce("t", [bytes(RATE)], acks=-1)
        assert cluster.until(lambda waiting=answer: waiting.done) <= 20
    assert sorted(cluster.isr("t")) == [0, 1, 2]
    quota = getattr(cluster.brokers[0 if side == "leader" else 1].node.throttles, side)
    assert quota.is_exceeded(cluster.clock.now_ms)


def test_a_replica_in_sync_is_not_limited_when_the_leader_changes(cluster: ReplicaCluster) -> None:
    """It has not heard the new leader's high watermark yet; the order that it follows says that it is in the ISR."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.advance(1_000)
    set_replicas(cluster, 2, follower="*")
    set_rate(cluster, 2, "follower", RATE // 4)
    produce(cluster, 5 * RATE)
    cluster.advance(100)
    assert cluster.brokers[2].node.throttles.follower.is_exceeded(cluster.clock.now_ms)
    cluster.elect("t", 1)
    answer = cluster.produce("t", acks=-1)
    assert cluster.until(lambda: answer.done) <= 50


def test_the_rate_holds_for_all_followers_together(cluster: ReplicaCluster) -> None:
    """Two followers that are behind share what the leader may send, and both arrive."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.advance(1_000)
    cluster.kill(1)
    cluster.kill(2)
    produce(cluster, 10 * RATE)
    cluster.advance(50_000)
    set_replicas(cluster, 0, leader="*")
    set_rate(cluster, 0, "leader")
    cluster.restart(1)
    cluster.restart(2)
    cluster.advance(8_000)
    assert 6 * RATE <= copied(cluster, 1) + copied(cluster, 2) <= 10 * RATE
    assert min(copied(cluster, 1), copied(cluster, 2)) >= 2 * RATE
    cluster.advance(20_000)
    assert sorted(cluster.isr("t")) == [0, 1, 2]


def test_a_batch_above_the_rate_goes_through_whole(cluster: ReplicaCluster) -> None:
    """Nothing is stuck for ever behind a batch that no second's worth has room for."""
    left_behind(cluster, 20 * BATCH)
    come_back(cluster, "follower", "0:2", BATCH // 2)
    cluster.advance(60_000)
    assert copied(cluster, 2) == copied(cluster, 0)


def test_invalid_replicas_in_the_store_throttle_nothing(
    cluster: ReplicaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Written past AlterConfigs: said once, with the node's path."""
    cluster.create("t", replicas=[0, 1, 2])
    set_replicas(cluster, 0, leader="0:0")
    assert cluster.brokers[0].node.throttles.leader.is_throttled("t", 0)
    set_replicas(cluster, 0, leader="zero:0")
    assert not cluster.brokers[0].node.throttles.leader.throttles_any
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "/config/topics/t" in line
    assert "must be the literal '*' or a list of replicas in the following format" in line
