"""Two zombies: a producer that was thought dead and goes on, and a coordinator that does not know that it was deposed.

An application is paused for so long that another instance with its transactional id takes over, and then goes on where
it stopped. Epochs of producers keep its records out of what is committed. Epochs of coordinators do the same for the
markers of a transaction that has long ended: they must not end the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.scenarios.stories import former_protocols
from tests.unit.broker.harness import make_batch, whole
from tests.unit.broker.replica_harness import ReplicaCluster

from tidelog.broker.deferred import Deferred
from tidelog.controller.requests import AllocateProducerIds, ProducerIdBlock
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ProducerId
from tidelog.model.topics import TRANSACTION_STATE_TOPIC
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import iterate_headers, read_records

LEADER, COORDINATOR, NEXT_COORDINATOR = 0, 1, 2
TOPIC, NAME = "payments", "the application"
BLOCK = 1_000

Answer = Callable[[], Any]


class Application:
    """An instance of the application: a transactional producer, by hand, as before transaction.version 2."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster = cluster
        self.coordinator = COORDINATOR
        request = messages.InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
        answer = self.retried(ApiKey.INIT_PRODUCER_ID, 4, request)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequence = 0

    def ask(self, key: ApiKey, version: int, request: Any) -> Any:
        sent = self.cluster.brokers[self.coordinator].send(key, version, request)
        if isinstance(sent, Deferred):
            self.cluster.until(lambda: sent.done)
            sent = sent.result()
        return framing.decode_response(key, version, whole(sent)[4:])[1]

    def retried(self, key: ApiKey, version: int, request: Any) -> Any:
        """Asks until it is not to be asked again."""
        while True:
            answer = self.ask(key, version, request)
            if answer.error_code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                return answer
            self.cluster.advance(20)

    def begin(self) -> None:
        kind = messages.AddPartitionsToTxnRequest
        request = kind(
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        for _ in range(100):
            answer = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
            (place,) = answer.results_by_topic_v3_and_below[0].results_by_partition
            if place.partition_error_code == ErrorCode.NONE:
                return
            self.cluster.advance(20)
        raise AssertionError(f"the partition does not join: {ErrorCode(place.partition_error_code).name}")

    def write(self, value: bytes) -> None:
        """Raises KafkaError where the leader refuses it."""
        batch = make_batch(
            [value],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        leader = self.cluster.brokers[LEADER]
        leader.node.replicas.append(leader.replica(TOPIC), bytearray(batch), required_acks=1)
        self.sequence += 1

    def commit(self) -> ErrorCode:
        request = messages.EndTxnRequest(
            transactional_id=NAME, producer_id=self.producer_id, producer_epoch=self.epoch, committed=True
        )
        return ErrorCode(self.retried(ApiKey.END_TXN, 3, request).error_code)


@pytest.fixture
def cluster(three: ReplicaCluster) -> ReplicaCluster:
    three.create(TOPIC, replicas=[LEADER, COORDINATOR])
    three.create(TRANSACTION_STATE_TOPIC, replicas=[COORDINATOR, NEXT_COORDINATOR])
    for number, broker in three.brokers.items():
        decide = broker.controller.on_submit
        assert decide is not None

        def submit(event: Any, number: int = number, decide: Callable[[Any], Any] = decide) -> Any:
            if isinstance(event, AllocateProducerIds):
                return ProducerIdBlock(ProducerId(number * BLOCK), BLOCK)
            return decide(event)

        broker.controller.on_submit = submit
    three.advance(1_000)
    return three


def committed(cluster: ReplicaCluster) -> list[bytes | None]:
    """What a reader of committed records gets."""
    leader = cluster.brokers[LEADER]
    data = leader.fetch(TOPIC, isolation_level=1)
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


def paused_application(cluster: ReplicaCluster) -> None:
    """It writes a payment and is paused; its successor does the same payment anew; it goes on and commits."""
    paused = Application(cluster)
    paused.begin()
    paused.write(b"pay 100, paused")
    successor = Application(cluster)
    successor.begin()
    successor.write(b"pay 100, successor")
    assert successor.commit() is ErrorCode.NONE
    cluster.advance(1_000)
    with pytest.raises(KafkaError) as refused:
        paused.write(b"pay 100 again")
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert paused.commit() is ErrorCode.PRODUCER_FENCED
    assert committed(cluster) == [b"pay 100, successor"]


def deposed_coordinator(cluster: ReplicaCluster) -> None:
    """Its marker for a transaction is on its way when its successor completes that one, and arrives in the next."""
    application = Application(cluster)
    application.begin()
    application.write(b"first")
    cluster.cut(COORDINATOR, LEADER)
    assert application.commit() is ErrorCode.NONE
    late = messages.WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=application.producer_id,
        producer_epoch=application.epoch,
        transaction_result=True,
        topics=[messages.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
        coordinator_epoch=0,
    )
    cluster.elect(TRANSACTION_STATE_TOPIC, NEXT_COORDINATOR)
    cluster.heal()
    application.coordinator = NEXT_COORDINATOR
    cluster.until(lambda: committed(cluster) == [b"first"])
    application.begin()
    application.write(b"second, not to be committed")
    leader = cluster.brokers[LEADER]
    sent = leader.send(ApiKey.WRITE_TXN_MARKERS, 2, messages.WriteTxnMarkersRequest(markers=[late]))
    cluster.advance(1_000)
    found = leader.decode_any(ApiKey.WRITE_TXN_MARKERS, 2, sent.result() if isinstance(sent, Deferred) else sent)
    assert committed(cluster) == [b"first"]
    (place,) = found.markers[0].topics[0].partitions
    assert place.error_code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_what_a_paused_application_wrote_is_not_committed(cluster: ReplicaCluster) -> None:
    """It is fenced by its successor's epoch: the payment is made once."""
    paused_application(cluster)


def test_fenced_but_not_aborted_the_payment_is_made_twice(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the paused one wrote is committed with its successor's."""
    former_protocols.what_was_begun_is_inherited(monkeypatch)
    with pytest.raises(AssertionError):
        paused_application(cluster)
    assert committed(cluster) == [b"pay 100, paused", b"pay 100, successor"]


def test_the_marker_of_a_deposed_coordinator_ends_nothing(cluster: ReplicaCluster) -> None:
    """It is refused, for the partition has seen its successor's."""
    deposed_coordinator(cluster)


def test_without_coordinator_epochs_a_late_marker_commits_the_next_transaction(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it, at that: what its producer has written so far."""
    former_protocols.markers_of_any_coordinator(monkeypatch)
    with pytest.raises(AssertionError):
        deposed_coordinator(cluster)
    assert committed(cluster) == [b"first", b"second, not to be committed"]
