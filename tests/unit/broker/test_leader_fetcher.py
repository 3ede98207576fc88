"""A follower's requests to one leader: what they name, and how many are under way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.replica_harness import ReplicaCluster

from tidelog.metadata.image import ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol.apis import ApiKey
from tidelog.replication.follower import Phase
from tidelog.storage.log import Log


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ReplicaCluster]:
    joined = ReplicaCluster(tmp_path, 2)
    yield joined
    joined.close()


def refuse(cluster: ReplicaCluster, partition: int, times: int, *, session: bool = True) -> list[int]:
    """The leader's next answers about a partition are UNKNOWN_LEADER_EPOCH; what is left of `times`.

    Without `session` the leader keeps none.
    """
    left = [times]

    def change(asker: int, asked: int, key: ApiKey, message: Any) -> Any:
        if key is not ApiKey.FETCH:
            return message
        if not session:
            message.session_id = 0
        for topic in message.responses:
            for data in topic.partitions:
                if data.partition_index == partition and left[0]:
                    left[0] -= 1
                    data.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
                    data.records = b""
        return message

    cluster.on_answer.append(change)
    return left


def named(cluster: ReplicaCluster) -> list[list[int]]:
    """Partitions that each request since the last `requests.clear()` has named."""
    return [
        [partition.partition for topic in fetch.topics for partition in topic.partitions]
        for fetch in cluster.fetches(1, 0)
    ]


def test_a_partition_that_rested_is_named_again(cluster: ReplicaCluster) -> None:
    """From the same position too, when another request has waited at the leader all the while: its session may see no
    reason to look at the partition by itself."""
    cluster.create("t", replicas=[0, 1])
    cluster.advance(1_100)
    left = refuse(cluster, 0, 1)
    cluster.produce("t")
    cluster.turn()
    # The answer is on its way, and the second request too.
    cluster.create("u", replicas=[0, 1])
    cluster.requests.clear()
    cluster.until(lambda: not left[0])
    followed = cluster.brokers[1].node.fetcher_manager.get(TopicPartition("t", 0))
    assert followed is not None
    assert followed.follower.phase is Phase.RESTING
    assert cluster.until(lambda: followed.follower.phase is Phase.FETCHING) <= 25
    assert [len(fetch.topics) for fetch in cluster.fetches(1, 0)] == [1]
    cluster.requests.clear()
    cluster.advance(5)
    assert named(cluster)[0] == [0]
    assert cluster.log_ends("t") == [1, 1]


def test_the_only_partition_is_fetched_again_after_its_flush(cluster: ReplicaCluster) -> None:
    """flush.messages=1 is set while the last record is not flushed. By the time that it is, nothing is under way: the
    partition is fetched from where it was, though the leader was told of that position before."""
    cluster.create("t", replicas=[0, 1])
    cluster.produce("t")
    cluster.advance(100)
    follower = cluster.brokers[1]
    follower.shell.pool_waits = True
    topic = ConfigResource(ConfigResourceType.TOPIC, "t")
    follower.node.config_handler.settings_changed(topic, {"flush.messages": "1"})
    cluster.advance(1_000)
    assert cluster.log_ends("t") == [1, 1]
    follower.shell.pool_waits = False
    follower.shell.run_pool()
    cluster.advance(100)
    cluster.produce("t")
    cluster.advance(1_000)
    assert cluster.log_ends("t") == [2, 2]


def test_a_partition_rests_while_the_leader_keeps_no_session(cluster: ReplicaCluster) -> None:
    """It is left out of the requests, all of which are full; there is nothing to forget, and the others go on."""
    left = refuse(cluster, 1, 4, session=False)
    cluster.create("t", replicas=[0, 1], partitions=3)
    cluster.advance(100)
    assert left[0] < 4
    for partition in range(3):
        cluster.produce("t", partition=partition)
    cluster.advance(5_000)
    assert not left[0]
    assert [0, 2] in named(cluster)
    assert [0, 1, 2] in named(cluster)
    assert not any(fetch.forgotten_topics_data for fetch in cluster.fetches(1, 0))
    assert all(cluster.log_ends("t", partition) == [1, 1] for partition in range(3))


def test_one_full_request_is_under_way(cluster: ReplicaCluster) -> None:
    """A second one would begin another session, and the answers would not say which of them is meant."""
    cluster.create("t", replicas=[0, 1])
    cluster.turn()
    cluster.create("u", replicas=[0, 1])
    cluster.turn()
    cluster.advance(1)
    assert [fetch.session_epoch for fetch in cluster.fetches(1, 0)] == [0]
    cluster.advance(1_000)
    assert [fetch.session_epoch for fetch in cluster.fetches(1, 0)].count(0) == 1
    for topic in ("t", "u"):
        answer = cluster.produce(topic, acks=-1)
        assert cluster.until(lambda waiting=answer: waiting.done) <= 10


def elect_one_that_lacks_what_is_committed(cluster: ReplicaCluster) -> None:
    """Broker 1 leads, with one record; broker 0, which is stopped, has committed four, and will be truncated."""
    cluster.create("t", replicas=[0, 1])
    cluster.produce("t", [b"both have it"])
    cluster.advance(1_000)
    cluster.kill(1)
    cluster.elect("t", 0, isr=[0])
    cluster.produce("t", [b"committed by one"] * 3)
    cluster.advance(1_000)
    cluster.stop(0)
    cluster.restart(1)
    cluster.elect("t", 1, isr=[1])
    cluster.advance(100)


def test_a_truncation_below_the_high_watermark_is_said_once(
    cluster: ReplicaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """An unclean election loses what was committed: an ERROR with partition, offsets and leader, and it is counted."""
    elect_one_that_lacks_what_is_committed(cluster)
    cluster.restart(0)
    cluster.advance(3_000)
    assert cluster.brokers[0].node.fetcher_manager.lossy_truncations == 1
    lines = [record.getMessage() for record in caplog.records if "high watermark" in record.msg]
    assert len(lines) == 1
    assert lines[0].startswith("truncation below the high watermark: partition=t-0 to=1 high_watermark=4 log_end=4")
    assert "leader=1" in lines[0]


def test_a_truncation_that_came_half_way_leaves_no_high_watermark_above_the_end(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses a step of it; consumers of the follower's rack, and its checkpoint, go by the high watermark."""
    elect_one_that_lacks_what_is_committed(cluster)
    truncate = Log.truncate_to
    found: list[tuple[int, int]] = []

    def refused_once(log: Log, offset: int) -> bool:
        if found:
            replica = cluster.brokers[0].replica("t")
            found.append((replica.high_watermark, log.log_end_offset))
            return truncate(log, offset)
        truncate(log, offset)
        found.append((0, 0))
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(Log, "truncate_to", refused_once)
    cluster.restart(0)
    cluster.advance(3_000)
    assert found == [(0, 0), (1, 1)]
