"""What a share consumer holds and says, and what its sessions' requests name: without I/O."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.client.errors import UnsupportedByBroker
from tidelog.client.share_consumer.deliveries import GAP, AcknowledgeType, Delivery, Said, Taken, delivered
from tidelog.client.share_consumer.session import LeaderSession
from tidelog.client.share_consumer.settings import AcquireMode, ShareConsumerSettings
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.records.batch import build_batch
from tidelog.records.record import Record
from tidelog.sharing.sessions import SharedPlace

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = TopicId(bytes([1]) * 16)
P0, P1 = SharedPlace(ID, 0), SharedPlace(ID, 1)


def data(*acquired: tuple[int, int, int], records: bytes) -> Any:
    kind = messages.ShareFetchResponse
    return kind.PartitionData(
        records=records,
        acquired_records=[
            kind.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in acquired
        ],
    )


def batch(first: int, count: int) -> bytes:
    return build_batch([Record(offset, 0, None, b"%d" % offset) for offset in range(first, first + count)])


def test_only_what_is_locked_is_delivered_with_its_count() -> None:
    """A batch holds more than was acquired; an offset that is acquired and has no record is a gap."""
    found = data((11, 12, 1), (14, 16, 3), records=batch(10, 6))
    delivery, damage = delivered(P0, T0, found, 100.0)
    assert damage is None
    assert [(r.offset, r.value, r.delivery_count) for r in delivery.records] == [
        (11, b"11", 1),
        (12, b"12", 1),
        (14, b"14", 3),
        (15, b"15", 3),
    ]
    assert delivery.take() == [Said(16, 16, GAP)]
    assert [offset in delivery for offset in (13, 14, 16)] == [False, True, False]


def test_records_of_a_damaged_batch_come_again() -> None:
    """What could be decoded is given, the rest is released, and the caller is told."""
    rotten = bytearray(batch(12, 2))
    rotten[-1] ^= 1
    delivery, damage = delivered(P0, T0, data((10, 13, 1), records=batch(10, 2) + bytes(rotten)), 100.0)
    assert "offset 12" in str(damage)
    assert [record.offset for record in delivery.records] == [10, 11]
    assert delivery.take() == [Said(12, 13, RELEASE)]


def test_the_last_word_counts_and_is_said_once() -> None:
    delivery = Delivery(P0, T0, range(6), 100.0)
    delivery.say(1, RELEASE)
    delivery.say(1, REJECT)
    delivery.say(4, RENEW)
    delivery.say_of_rest(ACCEPT)
    assert delivery.take() == [
        Said(0, 0, ACCEPT),
        Said(1, 1, REJECT),
        Said(2, 3, ACCEPT),
        Said(4, 4, RENEW),
        Said(5, 5, 1),
    ]
    assert delivery.take() == []
    assert 4 in delivery, "what is renewed is still held"
    delivery.say(4, ACCEPT)
    assert delivery.take() == [Said(4, 4, ACCEPT)]
    assert delivery.is_done


def test_what_may_be_taken_later_is_said_again_while_the_lock_lasts() -> None:
    """A refusal that may pass is no result; a final one is, and so is every refusal once the lock has ended."""
    passing = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    delivery = Delivery(P0, T0, range(2), lock_ends_at=100.0)
    delivery.say_of_rest(ACCEPT)
    assert Taken([delivery]).answered({P0: passing}, now=50.0, lock_s=None) == []
    assert delivery.has_said
    moved = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    ((place, first, last, kind, error),) = Taken([delivery]).answered({P0: moved}, now=50.0, lock_s=None)
    assert (place, first, last, kind, error) == (T0, 0, 1, ACCEPT, moved)
    late = Delivery(P0, T0, range(1), lock_ends_at=10.0)
    late.say(0, REJECT)
    (result,) = Taken([late]).answered({P0: passing}, now=50.0, lock_s=None)
    assert result.error is passing


def test_a_renewed_lock_lasts_as_long_as_the_broker_says() -> None:
    delivery = Delivery(P0, T0, range(2), lock_ends_at=100.0)
    delivery.say(0, RENEW)
    taken = Taken([delivery])
    assert taken.renews
    (result,) = taken.answered({}, now=90.0, lock_s=30.0)
    assert (result.type, result.error, delivery.lock_ends_at) == (RENEW, None, 120.0)


def names(request: Any) -> list[tuple[int, list[tuple[int, int, list[int]]]]]:
    return [
        (
            partition.partition_index,
            [
                (each.first_offset, each.last_offset, list(each.acknowledge_types))
                for each in partition.acknowledgement_batches
            ],
        )
        for topic in request.topics
        for partition in topic.partitions
    ]


def test_a_session_names_what_is_new_and_what_is_said() -> None:
    session = LeaderSession("g", "m", ShareConsumerSettings(max_poll_records=7))
    first = session.fetch([P0], {}).build(2)
    assert (first.share_session_epoch, names(first), first.max_records) == (0, [(0, [])], 7)
    said = {P0: [Said(3, 5, ACCEPT), Said(6, 7, RELEASE), Said(9, 9, GAP)]}
    second = session.fetch([P0, P1], said).build(2)
    assert second.share_session_epoch == 1
    assert names(second) == [(0, [(3, 7, [1, 1, 1, 2, 2]), (9, 9, [0])]), (1, [])]
    third = session.fetch([P1], {}).build(1)
    assert (third.share_session_epoch, names(third)) == (2, [])
    assert [(topic.topic_id, topic.partitions) for topic in third.forgotten_topics_data] == [(ID, [0])]
    assert session.acknowledge({P1: [Said(0, 0, ACCEPT)]}).build(1).share_session_epoch == 3
    last = session.close({})
    assert last.build(1).share_session_epoch == -1
    assert not session.is_open
    assert session.fetch([P1], {}).build(2).share_session_epoch == 0


def test_what_a_broker_is_too_old_for_is_refused() -> None:
    session = LeaderSession("g", "m", ShareConsumerSettings(acquire_mode=AcquireMode.RECORD_LIMIT))
    assert session.fetch([P0], {}).build(2).share_acquire_mode == 1
    with pytest.raises(UnsupportedByBroker, match="record_limit"):
        session.fetch([P0], {}).build(1)
    renewal = session.acknowledge({P0: [Said(0, 0, RENEW)]}, renews=True)
    assert renewal.build(2).is_renew_ack
    with pytest.raises(UnsupportedByBroker, match="renews no locks"):
        renewal.build(1)
