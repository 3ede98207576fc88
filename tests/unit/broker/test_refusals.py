"""Batches in flight behind a refused one are refused like it, and not called out of order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.broker.harness import Broker, topic_id_of
from tests.unit.broker.replica_harness import ReplicaCluster

from tidelog.broker.replicas.refusals import (
    PARTITIONS_BEFORE_MAX,
    PRODUCERS_BEFORE_MAX,
    PRODUCERS_MAX,
    REMEMBERED_MS,
    Refusals,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.records.batch import build_batch
from tidelog.records.record import Record

PRODUCER = 5


def batch(sequence: int, epoch: int = 0, producer_id: int = PRODUCER) -> bytes:
    """One record."""
    return build_batch(
        [Record(0, 1000, None, b"v")], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def send(broker: Broker, sequence: int, *, acks: int = 1) -> ErrorCode:
    """The answer to a batch of one record."""
    answer = broker.produce("t", [b"v"], producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence, acks=acks)
    return ErrorCode(answer.error_code)


def elsewhere(broker: Broker, epoch: int) -> None:
    broker.lead("t", leader=1, leader_epoch=epoch, isr=[0, 1], partition_epoch=epoch)


def here(broker: Broker, epoch: int) -> None:
    broker.lead("t", leader=0, leader_epoch=epoch, isr=[0, 1], partition_epoch=epoch)


@pytest.fixture
def leader(start_broker: Callable[..., Broker]) -> Broker:
    broker = start_broker()
    here(broker, 0)
    return broker


def test_a_leader_that_was_away_for_a_moment(leader: Broker) -> None:
    """Sequence 1 came while another one led: 2 and 3, in flight behind it, have to wait; then all come in order."""
    assert send(leader, 0) is ErrorCode.NONE
    elsewhere(leader, 1)
    assert send(leader, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    here(leader, 2)
    assert [send(leader, number) for number in (2, 3)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert [send(leader, number) for number in (1, 2, 3)] == [ErrorCode.NONE] * 3
    assert leader.replica("t").refusals is None
    assert send(leader, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_leaves_no_gap(start_broker: Callable[..., Broker]) -> None:
    """Its first batch met too few in sync; the second does not become the first in the log."""
    broker = start_broker()
    broker.settings.topics["t"] = {"min.insync.replicas": "2"}
    broker.lead("t", isr=[0], replicas=[0, 1])
    assert send(broker, 0, acks=-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    # With acks=1 nothing else would keep these out.
    assert send(broker, 1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert [send(broker, number) for number in (0, 1)] == [ErrorCode.NONE] * 2


def test_a_repetition_of_what_is_there_is_answered_as_ever(leader: Broker) -> None:
    """A duplicate of an earlier batch passes, and the refused one is still waited for."""
    assert send(leader, 0) is ErrorCode.NONE
    elsewhere(leader, 1)
    assert send(leader, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    here(leader, 2)
    assert send(leader, 0) is ErrorCode.NONE
    assert leader.replica("t").log.log_end_offset == 1
    assert send(leader, 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_gap_of_the_producers_own_is_told_before_long(leader: Broker) -> None:
    """What a producer sends seconds later was not in flight: it has given the refused batch up."""
    assert send(leader, 0) is ErrorCode.NONE
    elsewhere(leader, 1)
    assert send(leader, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    here(leader, 2)
    leader.shell.advance(REMEMBERED_MS + 1)
    assert send(leader, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert leader.replica("t").refusals is None


def test_a_new_epoch_of_the_producer_begins_afresh(leader: Broker) -> None:
    """What the old epoch had in flight is no matter any more."""
    assert send(leader, 0) is ErrorCode.NONE
    elsewhere(leader, 1)
    assert send(leader, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    here(leader, 2)
    assert leader.produce("t", producer_id=PRODUCER, producer_epoch=1, base_sequence=0).error_code == 0
    assert leader.replica("t").refusals is None


def test_a_client_that_is_faster_than_the_replica(start_broker: Callable[..., Broker]) -> None:
    """Metadata names a new partition before it is there: its first batch is refused, the second does not go first."""
    broker = start_broker()
    partition = messages.UpdateMetadataRequest.UpdateMetadataPartitionState(isr=[0], replicas=[0])
    state = messages.UpdateMetadataRequest.UpdateMetadataTopicState
    broker.tell_brokers([state(topic_name="t", topic_id=TopicId(topic_id_of("t")), partition_states=[partition])])
    assert send(broker, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    here(broker, 0)
    assert send(broker, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [send(broker, number) for number in (0, 1)] == [ErrorCode.NONE] * 2
    assert not broker.node.replicas.refusals_before


def test_partitions_that_never_come_are_forgotten(start_broker: Callable[..., Broker]) -> None:
    """Clients that ask the wrong broker push out the oldest."""
    replicas = start_broker().node.replicas
    for number in range(PARTITIONS_BEFORE_MAX + 1):
        replicas.note_refusal(TopicPartition("t", number), batch(0), ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    expected = [TopicPartition("t", number) for number in range(1, PARTITIONS_BEFORE_MAX + 1)]
    assert list(replicas.refusals_before) == expected
    for producer_id in range(100, 100 + PRODUCERS_BEFORE_MAX + 1):
        replicas.note_refusal(expected[0], batch(1, producer_id=producer_id), ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)
    refusals = replicas.refusals_before[expected[0]]
    refusals.check(batch(2, producer_id=100), 1, {})
    with pytest.raises(KafkaError):
        refusals.check(batch(2, producer_id=101), 1, {})


def test_nothing_is_kept_for_longer_than_it_is_of_use(start_broker: Callable[..., Broker]) -> None:
    """What is old goes when something is noted: whole partitions that are not there, and single producers."""
    replicas = start_broker().node.replicas
    for number, at_ms in ((0, 0), (1, 1), (0, 3), (2, 2 + REMEMBERED_MS)):
        partition = TopicPartition("t", number)
        replicas.note_refusal(partition, batch(0, producer_id=at_ms), ErrorCode.NOT_LEADER_OR_FOLLOWER, at_ms)
    assert list(replicas.refusals_before) == [TopicPartition("t", 0), TopicPartition("t", 2)]
    refusals = Refusals()
    for producer_id, at_ms in ((1, 0), (2, 1), (1, REMEMBERED_MS)):
        refusals.note(producer_id, 0, at_ms + 1, ErrorCode.NOT_ENOUGH_REPLICAS, at_ms)
    assert refusals
    # That of producer 1 is as old as its first one.
    refusals.expire(REMEMBERED_MS + 1)
    assert refusals
    refusals.expire(REMEMBERED_MS + 2)
    assert not refusals


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ReplicaCluster]:
    joined = ReplicaCluster(tmp_path)
    yield joined
    joined.close()


def test_what_was_cut_is_waited_for(cluster: ReplicaCluster) -> None:
    """0 appended sequence 1 alone, followed 1 and cut it, and leads again: 2 is not taken before 1 is there again."""
    cluster.create("t", replicas=[0, 1])
    session = {"producer_id": PRODUCER, "producer_epoch": 0}
    cluster.produce("t", [b"0"], base_sequence=0, **session)
    cluster.advance(1000)
    cluster.part(0, 1)
    cluster.produce("t", [b"1"], base_sequence=1, **session)
    cluster.elect("t", 1)
    cluster.heal()
    cluster.advance(1000)
    assert cluster.log(0, "t").log_end_offset == 1
    cluster.elect("t", 0)
    codes = [
        cluster.brokers[0].produce("t", [b"v"], base_sequence=sequence, **session).error_code for sequence in (2, 1, 2)
    ]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0]


def test_what_another_leader_took_is_not_waited_for(cluster: ReplicaCluster) -> None:
    """0 refused sequence 1, which 1 took while it led: 0 has it by now, and takes what follows."""
    cluster.create("t", replicas=[0, 1])
    session = {"producer_id": PRODUCER, "producer_epoch": 0}
    cluster.produce("t", [b"0"], base_sequence=0, **session)
    cluster.elect("t", 1)
    first = cluster.brokers[0].produce("t", [b"1"], base_sequence=1, **session)
    assert first.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for number in (1, 2):
        cluster.produce("t", [b"%d" % number], base_sequence=number, **session)
    cluster.advance(1000)
    cluster.elect("t", 0)
    codes = [
        cluster.brokers[0].produce("t", [b"v"], base_sequence=sequence, **session).error_code for sequence in (2, 3)
    ]
    assert codes == [0, 0]


def test_refusals_because_of_a_refusal_do_not_prolong_it(leader: Broker) -> None:
    """The producer has given sequence 1 up, and goes on and on with 2: it hears of the gap before long."""
    assert send(leader, 0) is ErrorCode.NONE
    elsewhere(leader, 1)
    assert send(leader, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    here(leader, 2)
    leader.shell.advance(REMEMBERED_MS - 1)
    assert send(leader, 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.shell.advance(2)
    assert send(leader, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_begin_again_at_zero() -> None:
    """0 comes after 2^31 - 1."""
    refusals = Refusals()
    refusals.note(PRODUCER, 0, 2**31 - 1, ErrorCode.NOT_ENOUGH_REPLICAS, 0)
    refusals.note(PRODUCER, 0, 0, ErrorCode.NOT_ENOUGH_REPLICAS, 0)
    with pytest.raises(KafkaError, match="refused: NOT_ENOUGH_REPLICAS"):
        refusals.check(batch(0), 0, {})
    refusals.check(batch(2**31 - 1), 0, {})
    assert not refusals


def test_no_more_is_remembered_than_a_bound() -> None:
    """Hostile producers push out the oldest."""
    refusals = Refusals()
    for producer_id in range(PRODUCERS_MAX + 1):
        refusals.note(producer_id, 0, 1, ErrorCode.NOT_ENOUGH_REPLICAS, 0)
    refusals.check(batch(2, producer_id=0), 0, {})
    with pytest.raises(KafkaError):
        refusals.check(batch(2, producer_id=1), 0, {})
