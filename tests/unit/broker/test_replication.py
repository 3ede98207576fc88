"""Replication between nodes joined in memory: what followers copy, ask and cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.harness import make_batch, topic_id_of
from tests.unit.broker.replica_harness import ReplicaCluster

from tidelog.broker.deferred import Deferred
from tidelog.broker.following.leader_fetcher import PARTITIONS_PER_TURN
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerId, TopicPartition
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Codec
from tidelog.replication.follower import Phase
from tidelog.storage.errors import CorruptIndex
from tidelog.storage.log import Log


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ReplicaCluster]:
    joined = ReplicaCluster(tmp_path)
    yield joined
    joined.close()


def test_followers_copy_what_the_leader_appends(cluster: ReplicaCluster) -> None:
    """Byte for byte, whatever the batch is; the high watermark follows everywhere."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.produce("t", [b"plain"])
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        cluster.produce("t", [codec.name.encode()] * 20, codec=codec)
    for sequence in range(3):
        cluster.produce("t", [b"once"], producer_id=9, producer_epoch=0, base_sequence=sequence)
    cluster.advance(1000)
    end = cluster.log(0, "t").log_end_offset
    assert end == 84
    assert cluster.log_ends("t") == cluster.high_watermarks("t") == [end] * 3
    assert cluster.data(0, "t") == cluster.data(1, "t") == cluster.data(2, "t")
    assert all(cluster.log(one, "t").producers.entries[9].last_sequence == 2 for one in range(3))
    assert cluster.isr("t") == [0, 1, 2]


def test_an_idle_follower_asks_for_nothing_new(cluster: ReplicaCluster) -> None:
    """One empty request each replica.fetch.wait.max.ms, however many partitions there are."""
    cluster.create("t", replicas=[0, 1, 2], partitions=50)
    cluster.advance(2000)
    cluster.requests.clear()
    cluster.advance(5000)
    fetches = cluster.fetches(1, 0)
    assert 9 <= len(fetches) <= 11
    assert all(not fetch.topics and not fetch.forgotten_topics_data for fetch in fetches)
    assert not cluster.fetches(0, 1)


def test_only_what_changed_is_named(cluster: ReplicaCluster) -> None:
    """A partition whose position moved is in the next request, the others are not."""
    cluster.create("t", replicas=[0, 1, 2], partitions=50)
    cluster.advance(2000)
    cluster.requests.clear()
    cluster.produce("t", partition=7)
    cluster.advance(100)
    named = [
        (partition.partition, partition.fetch_offset)
        for fetch in cluster.fetches(1, 0)
        for topic in fetch.topics
        for partition in topic.partitions
    ]
    assert named == [(7, 1)]


def test_a_new_partition_does_not_wait_for_the_fetch_that_waits(cluster: ReplicaCluster) -> None:
    """While a fetch waits at the leader for half a second, a second one follows: acks=all takes milliseconds."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.advance(1200)
    cluster.create("u", replicas=[0, 1, 2])
    answer = cluster.produce("u", acks=-1)
    assert cluster.until(lambda: answer.done) <= 10


def test_acks_all_is_answered_by_the_followers_next_fetch(cluster: ReplicaCluster) -> None:
    """Four trips: records there, the next request back, on each connection."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.advance(1000)
    for _ in range(5):
        answer = cluster.produce("t", acks=-1)
        assert cluster.until(lambda waiting=answer: waiting.done) <= 4
        cluster.advance(7)


def test_a_batch_larger_than_any_limit_goes_through(tmp_path: Path) -> None:
    """The first batch of an answer is whole, whatever the limits say."""
    limits = {"replica.fetch.max.bytes": 1000, "replica.fetch.response.max.bytes": 2000}
    cluster = ReplicaCluster(tmp_path, settings=limits)
    cluster.create("t", replicas=[0, 1, 2], partitions=3)
    for partition in range(3):
        for _ in range(3):
            cluster.produce("t", [bytes(100_000)], partition=partition)
    cluster.advance(1000)
    for partition in range(3):
        assert cluster.log_ends("t", partition) == [3] * 3
        assert cluster.data(1, "t", partition) == cluster.data(0, "t", partition)
    cluster.close()


def test_a_follower_that_was_away_catches_up(cluster: ReplicaCluster) -> None:
    """It is out of the ISR meanwhile, and back when it has all."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.advance(1000)
    cluster.kill(2)
    for _ in range(100):
        cluster.produce("t")
    cluster.advance(50_000)
    assert cluster.isr("t") == [0, 1]
    cluster.restart(2)
    cluster.advance(2000)
    assert cluster.isr("t") == [0, 1, 2]
    assert cluster.log_ends("t") == cluster.high_watermarks("t") == [100] * 3


def test_a_lost_session_is_begun_anew(cluster: ReplicaCluster) -> None:
    """FETCH_SESSION_ID_NOT_FOUND, as when the leader evicted it: nothing is lost, nothing comes twice."""
    cluster.create("t", replicas=[0, 1, 2], partitions=3)
    cluster.advance(1000)
    lost = [ErrorCode.FETCH_SESSION_ID_NOT_FOUND]

    def lose(asker: int, asked: int, key: Any, message: Any) -> Any:
        if lost and asker == 1:
            message.responses.clear()
            message.error_code = lost.pop()
        return message

    cluster.on_answer.append(lose)
    cluster.produce("t", partition=2)
    cluster.advance(1000)
    assert not lost
    assert cluster.log_ends("t", 2) == [1] * 3
    assert cluster.isr("t", 2) == [0, 1, 2]


def test_a_broken_connection_is_made_again(cluster: ReplicaCluster) -> None:
    """After a rest that begins short: what came meanwhile is fetched then."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.advance(1000)
    cluster.part(1, 0)
    cluster.produce("t")
    cluster.advance(3000)
    assert cluster.log_ends("t") == [1, 0, 1]
    cluster.heal()
    cluster.advance(1100)
    assert cluster.log_ends("t") == [1] * 3


def test_a_fail_over_loses_nothing_that_was_acknowledged(cluster: ReplicaCluster) -> None:
    """The new leader has all that was committed; the old one comes back, cuts what nobody else has, and follows."""
    cluster.create("t", replicas=[0, 1, 2], settings={"min.insync.replicas": "2"})
    cluster.advance(1000)
    answer = cluster.produce("t", [b"acknowledged"], acks=-1)
    cluster.until(lambda: answer.done)
    cluster.part(1, 0)
    cluster.part(2, 0)
    cluster.produce("t", [b"only here"] * 5)
    cluster.advance(10)
    cluster.kill(0)
    cluster.heal()
    cluster.elect("t", 1)
    cluster.advance(100)
    cluster.produce("t", [b"of the new leader"])
    cluster.advance(1000)
    cluster.restart(0)
    cluster.advance(3000)
    expected = [b"acknowledged", b"of the new leader"]
    assert [cluster.values(one, "t") for one in range(3)] == [expected] * 3
    assert cluster.high_watermarks("t") == [2] * 3
    assert sorted(cluster.isr("t")) == [0, 1, 2]
    assert [cluster.log(one, "t").epochs.entries for one in range(3)] == [[(0, 0), (1, 1)]] * 3
    assert all(broker.node.fetcher_manager.lossy_truncations == 0 for broker in cluster.brokers.values())


def test_answers_of_an_earlier_leader_are_dropped(cluster: ReplicaCluster) -> None:
    """What the old leader sent is on the way when the order to follow another one comes: it is not appended."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.advance(1000)
    cluster.produce("t", [b"on the way"])
    cluster.turn()
    cluster.elect("t", 1, tell=[1, 2])
    cluster.advance(1000)
    assert cluster.values(1, "t") == cluster.values(2, "t") == []


def test_flush_messages_1_reports_only_what_is_flushed(tmp_path: Path) -> None:
    """A follower whose disk has not flushed yet is not counted; its other partitions go on."""
    cluster = ReplicaCluster(tmp_path, 2)
    cluster.create("t", replicas=[0, 1], settings={"flush.messages": "1"})
    cluster.create("u", replicas=[0, 1])
    cluster.advance(1000)
    slow = cluster.brokers[1].shell
    slow.pool_waits = True
    answer = cluster.produce("t", acks=-1)
    cluster.advance(200)
    assert cluster.log_ends("t") == [1, 1]
    assert not answer.done
    other = cluster.produce("u", acks=-1)
    assert cluster.until(lambda: other.done) <= 10
    slow.pool_waits = False
    slow.run_pool()
    assert cluster.until(lambda: answer.done) <= 10
    cluster.close()


def test_corrupt_records_are_refused_and_fetched_again(cluster: ReplicaCluster) -> None:
    """A flipped bit on the way: never appended, logged once, other partitions go on."""
    cluster.create("t", replicas=[0, 1, 2], partitions=2)
    cluster.advance(1000)
    flips = [0, 0]

    def flip(asker: int, asked: int, key: Any, message: Any) -> Any:
        for topic in getattr(message, "responses", ()):
            for data in topic.partitions:
                if asker == 1 and data.partition_index == 0 and data.records and flips:
                    flips.pop()
                    data.records[-1] ^= 1
        return message

    cluster.on_answer.append(flip)
    cluster.produce("t", partition=0)
    cluster.produce("t", partition=1)
    cluster.advance(500)
    assert cluster.log_ends("t", 0) == [1, 0, 1]
    assert cluster.log_ends("t", 1) == [1, 1, 1]
    cluster.advance(2500)
    assert not flips
    assert cluster.log_ends("t", 0) == [1, 1, 1]


def test_the_log_start_of_the_leader_is_followed(cluster: ReplicaCluster) -> None:
    """DeleteRecords at the leader reaches the followers, whose new start the leader learns."""
    cluster.create("t", replicas=[0, 1, 2])
    for _ in range(10):
        cluster.produce("t")
    cluster.advance(1000)
    cluster.delete_records("t", 4)
    cluster.advance(1000)
    assert [cluster.log(one, "t").log_start_offset for one in range(3)] == [4] * 3


def test_a_followers_log_start_is_told_once_it_is_durable(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader answers DeleteRecords by it; were all killed then, the follower might lead, with the records."""
    cluster.create("t", replicas=[0, 1, 2])
    for _ in range(10):
        cluster.produce("t")
    cluster.advance(1000)
    held: list[Deferred[None]] = []

    def hold(_: Iterable[str]) -> Deferred[None]:
        held.append(Deferred())
        return held[-1]

    monkeypatch.setattr(cluster.brokers[1].node.disk_scheduler, "starts_durable", hold)
    cluster.delete_records("t", 4)
    cluster.advance(1000)

    def told() -> list[int]:
        leader = cluster.brokers[0].replica("t").leader
        assert leader is not None
        return [leader.followers[BrokerId(one)].log_start for one in (1, 2)]

    assert told() == [0, 4]
    cluster.elect("t", 0)
    cluster.advance(1000)
    assert told() == [0, 4], "Nor in the next followership."
    for each in held:
        each.complete(None)
    cluster.advance(1000)
    assert told() == [4, 4]


def test_a_follower_far_behind_begins_anew_where_the_leader_begins(cluster: ReplicaCluster) -> None:
    """Everything that it has is deleted at the leader: it starts at the leader's start, inside a batch if need be."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.produce("t", [b"old"] * 3)
    cluster.advance(1000)
    cluster.kill(2)
    cluster.elect("t", 0)
    cluster.produce("t", [b"%d" % number for number in range(10)])
    cluster.produce("t", [b"last"])
    cluster.advance(1000)
    cluster.delete_records("t", 8)
    cluster.restart(2)
    cluster.advance(3000)
    assert cluster.values(2, "t") == cluster.values(0, "t") == [b"5", b"6", b"7", b"8", b"9", b"last"]
    assert cluster.log(2, "t").log_start_offset == 8
    assert cluster.isr("t") == [0, 1, 2]
    cluster.kill(2)
    cluster.restart(2)
    assert cluster.log(2, "t").log_start_offset == 8


def test_what_comes_twice_is_appended_once(cluster: ReplicaCluster) -> None:
    """Records that a pipelined request brings again, before the leader knows that they came, are left alone."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.advance(1200)
    cluster.create("u", replicas=[0, 1, 2])
    cluster.produce("t", [b"once"])
    cluster.advance(1000)
    cluster.produce("t", [b"and again"])
    cluster.advance(1000)
    assert cluster.values(1, "t") == [b"once", b"and again"]
    assert not cluster.brokers[1].node.fetcher_manager.get(TopicPartition("t", 0)).complaint


def test_a_leader_without_room_for_sessions_is_asked_for_everything(tmp_path: Path) -> None:
    """Session id 0: each request names all partitions, and all else is as ever."""
    cluster = ReplicaCluster(tmp_path, 2)

    def without_session(asker: int, asked: int, key: Any, message: Any) -> Any:
        if key is ApiKey.FETCH:
            message.session_id = 0
        return message

    cluster.on_answer.append(without_session)
    cluster.create("t", replicas=[0, 1], partitions=3)
    cluster.advance(1000)
    answer = cluster.produce("t", acks=-1)
    cluster.until(lambda: answer.done)
    assert {fetch.session_epoch for fetch in cluster.fetches(1, 0)} == {0}
    assert len(cluster.fetches(1, 0)[-1].topics[0].partitions) == 3
    cluster.close()


def test_a_large_answer_is_taken_in_over_several_turns(cluster: ReplicaCluster) -> None:
    """The loop has its turn between a hundred partitions' records."""
    cluster.create("t", replicas=[0, 1, 2], partitions=200)
    cluster.advance(1000)
    for partition in range(200):
        cluster.produce("t", partition=partition)
    shell = cluster.brokers[1].shell
    most = 0
    for _ in range(10):
        cluster.wire.advance(1)
        before = sum(cluster.log(1, "t", partition).log_end_offset for partition in range(200))
        while shell.turns:
            shell.run_turn()
            now = sum(cluster.log(1, "t", partition).log_end_offset for partition in range(200))
            most, before = max(most, now - before), now
        cluster.turn()
    cluster.advance(1000)
    assert most == PARTITIONS_PER_TURN
    assert all(cluster.log_ends("t", partition) == [1] * 3 for partition in range(200))


def test_a_directory_that_fails_stops_its_partitions_only(tmp_path: Path) -> None:
    """An error of the disk while appending: the partition is not fetched any more, its neighbour is."""
    folders = f"{tmp_path}/first,{tmp_path}/second"
    cluster = ReplicaCluster(tmp_path / "brokers", 2, settings_of={1: {"log.dirs": folders}})
    cluster.create("t", replicas=[0, 1], partitions=2)
    cluster.advance(1000)
    broken = cluster.log(1, "t", 0).folder.owner
    assert broken is not cluster.log(1, "t", 1).folder.owner
    broken.failed(OSError(5, "Input/output error"), "a test")
    cluster.brokers[1].node.directory_failed()
    cluster.produce("t", partition=0)
    cluster.produce("t", partition=1)
    cluster.advance(1000)
    assert cluster.log_ends("t", 0) == [1, 0]
    assert cluster.log_ends("t", 1) == [1, 1]
    assert len(cluster.brokers[1].node.fetcher_manager) == 1
    cluster.close()


def test_a_partition_without_a_leader_is_not_fetched(cluster: ReplicaCluster) -> None:
    """Leader -1, and StopReplica: the fetcher of a leader that has nothing left to give asks no more."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.advance(1000)
    cluster.elect("t", -1, isr=[0])
    cluster.advance(600)
    cluster.requests.clear()
    cluster.advance(2000)
    assert not cluster.fetches(1, 0)
    assert len(cluster.brokers[1].node.fetcher_manager) == 0
    cluster.elect("t", 0, isr=[0])
    cluster.produce("t")
    cluster.advance(1000)
    assert cluster.log_ends("t") == [1] * 3


def test_stop_replica_ends_the_following(cluster: ReplicaCluster) -> None:
    """A topic that is deleted is forgotten by its fetcher."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.create("u", replicas=[0, 1, 2])
    cluster.advance(1000)
    cluster.brokers[1].delete("t")
    cluster.produce("u")
    cluster.advance(1000)
    assert len(cluster.brokers[1].node.fetcher_manager) == 1
    assert [topic.topic_id for fetch in cluster.fetches(1, 0) for topic in fetch.forgotten_topics_data] == [
        topic_id_of("t")
    ]


def test_an_isr_change_leaves_the_following_as_it_is(cluster: ReplicaCluster) -> None:
    """The same leader epoch with a newer partition epoch: nothing is fetched anew."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.advance(1000)
    followed = cluster.brokers[1].node.fetcher_manager.get(TopicPartition("t", 0))
    state = cluster.states[TopicPartition("t", 0)]
    state.isr, state.partition_epoch = [0, 1], 5
    cluster.announce(cluster.states)
    assert cluster.brokers[1].node.fetcher_manager.get(TopicPartition("t", 0)) is followed
    assert cluster.brokers[1].replica("t").partition_epoch == 5


def test_the_order_may_reach_the_follower_first(cluster: ReplicaCluster) -> None:
    """UNKNOWN_LEADER_EPOCH from a leader that has not heard yet costs some tens of milliseconds, not a second."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.advance(1000)
    cluster.elect("t", 1, tell=[0, 2])
    cluster.advance(100)
    cluster.announce(cluster.states)
    answer = cluster.produce("t", acks=-1)
    assert cluster.until(lambda: answer.done) <= 200


def test_a_deposed_leader_does_not_fence_for_ever(cluster: ReplicaCluster) -> None:
    """FENCED_LEADER_EPOCH ends a followership of the past; the order that follows begins the next."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.advance(1000)
    cluster.elect("t", 0, tell=[0])
    cluster.advance(2000)
    assert cluster.brokers[1].node.fetcher_manager.get(TopicPartition("t", 0)).follower.phase is Phase.STOPPED
    cluster.announce(cluster.states)
    answer = cluster.produce("t", acks=-1)
    assert cluster.until(lambda: answer.done) <= 50


def test_another_topic_of_that_name_is_not_copied(cluster: ReplicaCluster, caplog: pytest.LogCaptureFixture) -> None:
    """INCONSISTENT_TOPIC_ID or UNKNOWN_TOPIC_ID: the partition rests, said once, the others go on."""
    cluster.create("t", replicas=[0, 1, 2])
    cluster.create("u", replicas=[0, 1, 2])
    cluster.advance(1000)
    followed = cluster.brokers[1].node.fetcher_manager.get(TopicPartition("t", 0))

    def other(asker: int, asked: int, key: Any, message: Any) -> Any:
        for topic in getattr(message, "responses", ()):
            for data in topic.partitions:
                if asker == 1 and topic.topic_id == topic_id_of("t"):
                    data.error_code, data.records = ErrorCode.INCONSISTENT_TOPIC_ID, b""
        return message

    cluster.on_answer.append(other)
    cluster.produce("t")
    cluster.produce("u")
    cluster.advance(5000)
    assert cluster.log_ends("t") == [1, 0, 1]
    assert cluster.log_ends("u") == [1] * 3
    assert followed.complaint is ErrorCode.INCONSISTENT_TOPIC_ID
    assert sum("INCONSISTENT_TOPIC_ID" in record.getMessage() for record in caplog.records) == 1


def test_truncation_waits_for_the_disk_and_others_do_not(cluster: ReplicaCluster) -> None:
    """While a cut is not durable the partition is left out of the requests; then it goes on where the cut is."""
    cluster.create("t", replicas=[0, 1, 2], partitions=2)
    cluster.advance(1000)
    cluster.part(0, 1)
    cluster.part(0, 2)
    cluster.produce("t", [b"lost"] * 3)
    cluster.elect("t", 1, tell=[1, 2])
    cluster.produce("t", [b"kept"])
    shell = cluster.brokers[0].shell
    shell.pool_waits = True
    cluster.heal()
    cluster.announce(cluster.states)
    cluster.advance(2000)
    log = cluster.log(0, "t")
    assert log.log_end_offset == 3, "It is announced, and not cut yet."
    other = cluster.produce("t", partition=1, acks=-1)
    assert cluster.until(lambda: other.done) <= 10
    shell.run_pool()
    assert log.log_end_offset == 0, "It is cut, and not durable yet."
    cluster.advance(1000)
    assert log.log_end_offset == 0
    shell.pool_waits = False
    shell.run_pool()
    cluster.advance(1000)
    assert [cluster.values(one, "t") for one in range(3)] == [[b"kept"]] * 3


def test_an_unexpected_error_costs_its_partition_only(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said with its traceback, and the partition is fetched again when the controller orders anew."""
    cluster.create("t", replicas=[0, 1, 2], partitions=2)
    cluster.advance(1000)
    broken = cluster.log(1, "t", 0)
    append = Log.append_as_follower

    def fail(log: Log, *arguments: Any, **named: Any) -> Any:
        if log is broken:
            raise CorruptIndex("a test")
        return append(log, *arguments, **named)

    monkeypatch.setattr(Log, "append_as_follower", fail)
    for partition in (0, 1):
        cluster.produce("t", partition=partition)
    cluster.advance(1000)
    assert cluster.log_ends("t", 0) == [1, 0, 1]
    assert cluster.log_ends("t", 1) == [1, 1, 1]
    assert "a test" in caplog.text
    monkeypatch.undo()
    cluster.elect("t", 0)
    cluster.advance(1000)
    assert cluster.log_ends("t", 0) == [1, 1, 1]


def test_what_an_acknowledgement_sets_off_is_copied_at_once(cluster: ReplicaCluster) -> None:
    """Who appends to another partition because a fetch has committed something: that very fetch brings it."""
    for topic in ("a", "z"):
        cluster.create(topic, replicas=[0, 1])
    cluster.advance(1_000)
    replicas = cluster.brokers[0].node.replicas
    done = []

    def append(topic: str) -> Any:
        return replicas.append_and_wait(TopicPartition(topic, 0), make_batch([b"value"]), 1_000)

    for first, second in (("a", "z"), ("z", "a")):
        append(first).on_complete(lambda _, second=second: append(second).on_complete(done.append))
        cluster.until(lambda: done, limit_ms=20)
        done.clear()
