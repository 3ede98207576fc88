"""InitProducerId with a transactional id: epochs, fencing, and producers that say who they were (KIP-360)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.coordinator.transactions.turns import P0, P1, TIMEOUT_MS, Turns

from tidelog.coordinator.transactions.events import DescribeTransaction, InitProducer, NeedsProducerId, ProducerIdentity
from tidelog.coordinator.transactions.records import record_of
from tidelog.coordinator.transactions.states import TransactionState
from tidelog.coordinator.transactions.transaction import EPOCH_MAX, LAST_USABLE_EPOCH, Transaction
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ProducerEpoch, ProducerId


@pytest.fixture
def turns() -> Turns:
    return Turns()


def state_of(turns: Turns, name: str = "a") -> Transaction:
    reply = turns.coordinator.handle(0, DescribeTransaction(0, name)).replies[0][1]
    transaction: Transaction = reply.transaction  # type: ignore[union-attr]
    return transaction


def at_epoch(turns: Turns, epoch: int, *, state: TransactionState = TransactionState.EMPTY) -> ProducerIdentity:
    """A producer that has come to this epoch."""
    who = turns.init()
    changed = replace(state_of(turns), producer_epoch=ProducerEpoch(epoch), state=state)
    if state is TransactionState.ONGOING:
        changed = replace(changed, partitions=frozenset({P0}), started_ms=turns.wall_ms)
    record = record_of("a", changed)
    turns.log.append(record.encode())
    turns.coordinator.replay(record)
    return replace(who, producer_epoch=ProducerEpoch(epoch))


def test_the_first_producer_of_an_id_gets_a_fresh_producer_id(turns: Turns) -> None:
    """Without one at hand the coordinator does nothing but ask for it."""
    asked = turns.handle(InitProducer(900, "a", TIMEOUT_MS, turns.wall_ms))
    assert asked.replies == [(900, NeedsProducerId())]
    assert not asked.writes
    assert turns.init() == ProducerIdentity(ErrorCode.NONE, ProducerId(100), ProducerEpoch(0))


def test_the_next_producer_of_an_id_fences_the_one_before(turns: Turns) -> None:
    """It has the same producer id and the next epoch; the former one is told so by whatever it asks."""
    first = turns.init()
    second = turns.init()
    assert second == ProducerIdentity(ErrorCode.NONE, first.producer_id, ProducerEpoch(1))
    assert turns.add(first) is ErrorCode.PRODUCER_FENCED
    assert turns.verify(first, P0) == [ErrorCode.PRODUCER_FENCED]
    for version in (0, 2):
        assert turns.end(first, version=version).error is ErrorCode.PRODUCER_FENCED
    assert turns.init(expected=(first.producer_id, first.producer_epoch)).error is ErrorCode.PRODUCER_FENCED
    assert turns.add(second) is ErrorCode.NONE


def test_who_takes_over_waits_for_the_abort_of_what_was_begun(turns: Turns) -> None:
    """The ongoing transaction is aborted with a higher epoch; then the new producer is answered unasked."""
    first = turns.begun(P0, P1)
    waiting = turns.held_init()
    (send,) = turns.sends
    assert not send.committed
    assert send.partitions == (P0, P1)
    assert send.producer_epoch > first.producer_epoch
    turns.write_markers()
    second = turns.replies[waiting]
    assert isinstance(second, ProducerIdentity)
    assert second.error is ErrorCode.NONE
    assert second.producer_epoch > send.producer_epoch
    assert turns.end(first).error is ErrorCode.PRODUCER_FENCED


def test_who_takes_over_is_told_to_come_again_when_the_abort_takes_long(turns: Turns) -> None:
    """CONCURRENT_TRANSACTIONS after the time that it may wait; the abort goes on."""
    turns.begun(P0, P1)
    waiting = turns.held_init(hold_ms=50)
    turns.pass_time(49)
    assert waiting not in turns.replies
    turns.pass_time(1)
    assert turns.replies[waiting] == ProducerIdentity(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert turns.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    turns.write_markers()
    assert turns.init().error is ErrorCode.NONE


def test_without_waiting_the_answer_is_kafkas(turns: Turns) -> None:
    """CONCURRENT_TRANSACTIONS at once, and the abort under way."""
    turns.begun()
    assert turns.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert state_of(turns).state is TransactionState.PREPARE_ABORT


def test_taking_over_from_a_transaction_without_partitions(turns: Turns) -> None:
    """It needs no markers: who takes over is answered in the next turn."""
    turns.begun()
    record = record_of("a", replace(state_of(turns), partitions=frozenset()))
    turns.coordinator.replay(record)
    waiting = turns.held_init()
    assert not turns.sends
    turns.pass_time()
    reply = turns.replies[waiting]
    assert isinstance(reply, ProducerIdentity)
    assert reply.error is ErrorCode.NONE


def test_a_producer_that_says_who_it_was_gets_the_next_epoch_and_may_repeat_itself(turns: Turns) -> None:
    """KIP-360: the same question again has the same answer, until somebody else has come."""
    first = turns.init()
    was = (first.producer_id, first.producer_epoch)
    second = turns.init(expected=was)
    assert second.producer_epoch == 1
    assert turns.init(expected=was) == second
    third = turns.init()
    assert third.producer_epoch == 2
    assert turns.init(expected=was).error is ErrorCode.PRODUCER_FENCED
    assert turns.init(expected=(second.producer_id, second.producer_epoch)).error is ErrorCode.PRODUCER_FENCED


def test_a_superseded_producer_does_not_end_its_successors_transaction(turns: Turns) -> None:
    """Nor does one with a foreign producer id."""
    first = turns.init()
    second = turns.init()
    assert turns.add(second) is ErrorCode.NONE
    for expected in ((first.producer_id, first.producer_epoch), (999, 0)):
        assert turns.init(expected=expected).error is ErrorCode.PRODUCER_FENCED
    assert turns.end(second).error is ErrorCode.NONE


def test_a_foreign_producer_id_is_fenced(turns: Turns) -> None:
    """Whoever claims an id that this transactional id never had."""
    turns.init()
    assert turns.init(expected=(999, 0)).error is ErrorCode.PRODUCER_FENCED


def test_a_claim_on_an_unknown_transactional_id_is_served(turns: Turns) -> None:
    """As when the id was forgotten meanwhile: the producer begins anew."""
    assert turns.init(expected=(7, 3)) == ProducerIdentity(ErrorCode.NONE, ProducerId(100), ProducerEpoch(0))


@pytest.mark.parametrize("says_who", [False, True])
def test_used_up_epochs_bring_another_producer_id(turns: Turns, says_who: bool) -> None:
    """The last epoch is never given: it is kept to fence with. Saying who one was works across the change, too."""
    last = at_epoch(turns, LAST_USABLE_EPOCH)
    expected = (last.producer_id, last.producer_epoch) if says_who else None
    following = turns.init(expected=expected)
    assert following.error is ErrorCode.NONE
    assert following.producer_id != last.producer_id
    assert following.producer_epoch == 0
    again = turns.init(expected=(last.producer_id, last.producer_epoch))
    assert again == (following if says_who else ProducerIdentity(ErrorCode.PRODUCER_FENCED))


@pytest.mark.parametrize("epoch", range(EPOCH_MAX - 4, EPOCH_MAX))
def test_fencing_at_the_end_of_the_epochs(turns: Turns, epoch: int) -> None:
    """There is always one left to fence with, the fenced producer never succeeds, and the next one has an epoch."""
    last = at_epoch(turns, epoch, state=TransactionState.ONGOING)
    waiting = turns.held_init()
    (send,) = turns.sends
    assert epoch < send.producer_epoch <= EPOCH_MAX
    turns.write_markers()
    assert turns.replies.get(waiting) == NeedsProducerId() or send.producer_epoch < LAST_USABLE_EPOCH
    for version in (0, 2):
        assert turns.end(last, committed=False, version=version).error is ErrorCode.PRODUCER_FENCED
        assert turns.end(last, committed=True, version=version).error is ErrorCode.PRODUCER_FENCED
    following = turns.init()
    assert following.error is ErrorCode.NONE
    assert following.producer_epoch <= LAST_USABLE_EPOCH
    assert turns.end(last, committed=False, version=2).error is not ErrorCode.NONE


def test_the_timeout_is_that_of_the_last_question(turns: Turns) -> None:
    """Also of one that is repeated."""
    first = turns.init(timeout_ms=1_000)
    turns.init(expected=(first.producer_id, 0), timeout_ms=2_000)
    turns.init(expected=(first.producer_id, 0), timeout_ms=3_000)
    assert state_of(turns).timeout_ms == 3_000
