"""Transactions in partitions with followers: how far committed reads see, on each replica and over elections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.harness import make_batch, whole
from tests.unit.broker.replica_harness import ReplicaCluster

from tidelog.broker.deferred import Deferred
from tidelog.model.errors import ErrorCode
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import iterate_headers, read_records

PRODUCER = 7


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ReplicaCluster]:
    """Three brokers, of which the first leads "t"."""
    cluster = ReplicaCluster(tmp_path, 3)
    cluster.create("t", replicas=[0, 1, 2])
    cluster.advance(1_000)
    yield cluster
    cluster.close()


def append(cluster: ReplicaCluster, sequence: int, *, leader: int = 0, producer: int = PRODUCER) -> None:
    """A transactional record, as if the coordinator had confirmed it."""
    batch = make_batch(
        [b"%d-%d" % (producer, sequence)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    broker = cluster.brokers[leader]
    broker.node.replicas.append(broker.replica("t"), bytearray(batch), required_acks=1)


def end(cluster: ReplicaCluster, *, commit: bool, leader: int = 0, producer: int = PRODUCER) -> Any:
    """Asks for a marker; the answer, or its deferred."""
    kind = messages.WriteTxnMarkersRequest
    marker = kind.WritableTxnMarker(
        producer_id=producer,
        producer_epoch=0,
        transaction_result=commit,
        topics=[kind.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        coordinator_epoch=0,
    )
    return cluster.brokers[leader].send(ApiKey.WRITE_TXN_MARKERS, 1, kind(markers=[marker]))


def outcome(answer: Any) -> ErrorCode:
    """The error of an answer to `end`."""
    found = answer.result() if isinstance(answer, Deferred) else answer
    response = framing.decode_response(ApiKey.WRITE_TXN_MARKERS, 1, whole(found)[4:])[1]
    return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)


def stable(cluster: ReplicaCluster) -> dict[int, int]:
    return {number: broker.replica("t").last_stable_offset for number, broker in cluster.brokers.items()}


def committed(cluster: ReplicaCluster, broker: int) -> list[bytes | None]:
    """What a reader of committed records gets of a replica, as clients drop the aborted ones."""
    data = cluster.brokers[broker].fetch("t", isolation_level=1)
    aborted = {(each.producer_id, each.first_offset) for each in data.aborted_transactions}
    dropped: set[int] = set()
    values: list[bytes | None] = []
    records = bytes(data.records)
    for position, header in iterate_headers(records):
        dropped |= {id for id, first in aborted if first <= header.last_offset and id == header.producer_id}
        if header.is_control:
            dropped.discard(header.producer_id)
            aborted = {each for each in aborted if each[0] != header.producer_id or each[1] > header.last_offset}
        elif header.producer_id not in dropped:
            values += [record.value for record in read_records(records, position)]
    return values


def test_a_marker_counts_when_it_is_committed(cluster: ReplicaCluster) -> None:
    """Until the followers have it the transaction is open for readers, and whoever asked for it waits."""
    append(cluster, 0)
    cluster.advance(1_000)
    assert stable(cluster) == {0: 0, 1: 0, 2: 0}
    cluster.part(0, 1)
    answer = end(cluster, commit=True)
    cluster.advance(100)
    assert not answer.done
    assert stable(cluster) == {0: 0, 1: 0, 2: 0}
    cluster.heal()
    cluster.advance(2_000)
    assert outcome(answer) is ErrorCode.NONE
    assert stable(cluster) == {0: 2, 1: 2, 2: 2}
    assert [committed(cluster, number) for number in range(3)] == [[b"7-0"]] * 3


def test_a_long_poll_at_a_follower_wakes_with_its_last_stable_offset(cluster: ReplicaCluster) -> None:
    """A consumer in the follower's rack waits for the marker, not for records of an open transaction."""
    follower = cluster.brokers[2]
    request = follower.fetch_request("t", isolation_level=1, max_wait_ms=60_000, version=12)
    answer = follower.send(ApiKey.FETCH, 12, request)
    append(cluster, 0)
    cluster.advance(2_000)
    assert follower.replica("t").log.high_watermark == 1
    assert not answer.done
    end(cluster, commit=True)
    cluster.advance(2_000)
    assert answer.done
    data = follower.decode(ApiKey.FETCH, 12, answer.result()).responses[0].partitions[0]
    assert (data.last_stable_offset, len(data.records) > 0) == (2, True)


def test_a_marker_that_no_follower_had_is_not_told_of(cluster: ReplicaCluster) -> None:
    """Its leader dies: the transaction is open at the next one, and may end the other way."""
    append(cluster, 0)
    cluster.advance(1_000)
    cluster.part(0, 1)
    cluster.part(0, 2)
    answer = end(cluster, commit=True)
    cluster.advance(100)
    assert committed(cluster, 0) == []
    cluster.kill(0)
    cluster.heal()
    cluster.elect("t", 1)
    cluster.advance(1_000)
    assert not answer.done
    assert stable(cluster) == {1: 0, 2: 0}
    again = end(cluster, commit=False, leader=1)
    cluster.advance(1_000)
    assert outcome(again) is ErrorCode.NONE
    cluster.restart(0)
    cluster.advance(3_000)
    assert stable(cluster) == {0: 2, 1: 2, 2: 2}
    assert [committed(cluster, number) for number in range(3)] == [[]] * 3
    lists = [cluster.log(number, "t").aborted_transactions(0, 2) for number in range(3)]
    assert [[(each.producer_id, each.first_offset, each.last_offset) for each in one] for one in lists] == [
        [(PRODUCER, 0, 1)]
    ] * 3


def test_every_replica_has_the_same_index_after_a_truncation(cluster: ReplicaCluster) -> None:
    """A deposed leader takes an aborted transaction back that only it knew of."""
    append(cluster, 0)
    end(cluster, commit=False)
    cluster.advance(2_000)
    cluster.part(0, 1)
    cluster.part(0, 2)
    append(cluster, 0, producer=8)
    end(cluster, commit=False, producer=8)
    assert len(cluster.log(0, "t").aborted_transactions(0, 10)) == 2
    cluster.elect("t", 1, isr=[1, 2], tell=[1, 2])
    append(cluster, 0, leader=1, producer=9)
    cluster.advance(1_000)
    cluster.heal()
    cluster.announce(cluster.states)
    cluster.advance(5_000)
    assert [[each.producer_id for each in cluster.log(n, "t").aborted_transactions(0, 10)] for n in range(3)] == [
        [PRODUCER]
    ] * 3
    assert stable(cluster) == {0: 2, 1: 2, 2: 2}
    assert {number: sorted(cluster.log(number, "t").producers.entries) for number in range(3)} == {
        number: [PRODUCER, 9] for number in range(3)
    }
