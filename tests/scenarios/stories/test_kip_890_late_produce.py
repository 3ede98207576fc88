"""KIP-890: what comes late, after its transaction has ended, belongs to no transaction, and must not begin or end one.

A batch is on its way while its producer commits. Let in after the marker, it opens a transaction of which no
coordinator knows: nobody ends it, and who reads committed records stands still before it for ever. So the leader asks
first. An EndTxn that comes late must not end the next transaction: since KIP-890 each has an epoch of its own.
"""

from __future__ import annotations

import pytest
from tests.scenarios.stories import former_protocols
from tests.scenarios.stories.test_zombie_producers import LEADER, NAME, TOPIC, Application, cluster, committed
from tests.unit.broker.harness import make_batch, produce_request, whole
from tests.unit.broker.replica_harness import ReplicaCluster

from tidelog.broker.deferred import Deferred
from tidelog.model.errors import ErrorCode
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey

__all__ = ["cluster"]

VERIFIED, ADDING = 11, 12
"""Versions of Produce: whose partition is looked for in the transaction, or added to it."""


class StandsStill(AssertionError):
    """Readers of committed records do not get on."""


def produce(application: Application, value: bytes, version: int = VERIFIED) -> ErrorCode:
    """As it travels: the leader may ask the coordinator."""
    batch = make_batch(
        [value],
        producer_id=application.producer_id,
        producer_epoch=application.epoch,
        base_sequence=application.sequence,
        transactional=True,
    )
    request = produce_request(TOPIC, batch, 0, -1, version)
    request.transactional_id = NAME
    brokers = application.cluster
    answer = brokers.brokers[LEADER].send(ApiKey.PRODUCE, version, request)
    if isinstance(answer, Deferred):
        brokers.until(lambda: answer.done)
        answer = answer.result()
    response = framing.decode_response(ApiKey.PRODUCE, version, whole(answer)[4:])[1]
    application.sequence += 1
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def end(application: Application, version: int, *, commit: bool, epoch: int | None = None) -> ErrorCode:
    """EndTxn; from v5 on its answer has the next epoch."""
    request = messages.EndTxnRequest(
        transactional_id=NAME,
        producer_id=application.producer_id,
        producer_epoch=application.epoch if epoch is None else epoch,
        committed=commit,
    )
    answer = application.ask(ApiKey.END_TXN, version, request)
    if version >= 5 and not answer.error_code and epoch is None:
        application.epoch, application.sequence = answer.producer_epoch, 0
    return ErrorCode(answer.error_code)


def late_batch(brokers: ReplicaCluster) -> ErrorCode:
    """A batch of a transaction arrives when that one has ended; readers must get to the end of the log."""
    application = Application(brokers)
    application.begin()
    assert produce(application, b"in time") is ErrorCode.NONE
    assert application.commit() is ErrorCode.NONE
    brokers.advance(1_000)
    told = produce(application, b"late")
    brokers.advance(120_000)
    replica = brokers.brokers[LEADER].replica(TOPIC)
    if replica.last_stable_offset != replica.log.log_end_offset:
        raise StandsStill(f"at {replica.last_stable_offset}, before the end at {replica.log.log_end_offset}")
    assert committed(brokers) == [b"in time"]
    return told


def test_a_late_batch_is_refused(cluster: ReplicaCluster) -> None:
    """Its partition belongs to no open transaction."""
    assert late_batch(cluster) is ErrorCode.TRANSACTION_ABORTABLE


def test_without_verification_readers_stand_still(cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As before Kafka 3.6."""
    former_protocols.transactions_begin_unasked(monkeypatch)
    with pytest.raises(StandsStill):
        late_batch(cluster)


def late_end(brokers: ReplicaCluster, version: int) -> list[bytes | None]:
    """An EndTxn comes again, when the next transaction has begun and is not complete."""
    application = Application(brokers)
    adds = version >= 5
    values = []
    for values in ([b"first"], [b"second, part 1", b"second, part 2"]):
        if not adds:
            application.begin()
        for value in values[:1]:
            assert produce(application, value, ADDING if adds else VERIFIED) is ErrorCode.NONE
        if len(values) == 1:
            before = application.epoch
            assert end(application, version, commit=True) is ErrorCode.NONE
            brokers.advance(1_000)
    end(application, version, commit=True, epoch=before)
    brokers.advance(1_000)
    return committed(brokers)


def test_a_late_end_does_not_end_the_next_transaction(cluster: ReplicaCluster) -> None:
    """It has the epoch of the one before."""
    assert late_end(cluster, 5) == [b"first"]


def test_without_epochs_of_their_own_half_a_transaction_is_committed(cluster: ReplicaCluster) -> None:
    """As before transaction.version 2, which older clients still speak."""
    assert late_end(cluster, 3) == [b"first", b"second, part 1"]
