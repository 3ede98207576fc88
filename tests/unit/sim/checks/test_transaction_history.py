"""The checker of transactions sees what must not be, and nothing else."""

from types import SimpleNamespace

import pytest
from sim.checks.log_checks import split_batches
from sim.checks.transaction_history import Fate, Transaction, TransactionHistory
from sim.invariants import InvariantBrokenError
from sim.workloads.committed_reader import committed_records

from tidelog.model.identifiers import TopicPartition
from tidelog.records.batch import build_batch
from tidelog.records.control import ControlRecordType, EndTxnMarker, build_end_txn_batch
from tidelog.records.record import Record

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def history() -> TransactionHistory:
    history = TransactionHistory()
    history.initialized("app", 1)
    return history


def written(history: TransactionHistory, number: int) -> Transaction:
    transaction = history.begin("app", number)
    transaction.values = {P0: [f"app/{number}:0".encode()], P1: [f"app/{number}:1".encode()]}
    return transaction


def seen(*numbers: int) -> dict[TopicPartition, list[bytes]]:
    """Both partitions, with all records of these transactions."""
    return {
        P0: [f"app/{number}:0".encode() for number in numbers],
        P1: [f"app/{number}:1".encode() for number in numbers],
    }


def test_all_or_nothing(history: TransactionHistory) -> None:
    """Committed ones are there whole, aborted ones not at all, the others either way."""
    for number, fate in ((1, Fate.COMMITTED), (2, Fate.ABORTED), (3, Fate.COMMITTING), (4, Fate.COMMITTING)):
        history.ended(written(history, number), fate)
    history.check_final(seen(1, 4), lambda _: -1)
    history.check_final(seen(1, 3, 4), lambda _: -1)
    for wrong in (seen(3), seen(1, 2)):
        with pytest.raises(InvariantBrokenError):
            history.check_final(wrong, lambda _: -1)
    half = seen(1, 3)
    del half[P1][1]
    with pytest.raises(InvariantBrokenError, match="app/3 is committed"):
        history.check_final(half, lambda _: -1)


def test_twice_is_too_much(history: TransactionHistory) -> None:
    """A record of a transaction stands there once."""
    history.ended(written(history, 1), Fate.COMMITTED)
    twice = seen(1)
    twice[P0] *= 2
    with pytest.raises(InvariantBrokenError):
        history.check_final(twice, lambda _: -1)


def test_offsets_go_with_the_records(history: TransactionHistory) -> None:
    """A group has what the last committed transaction says."""
    for number, fate in ((1, Fate.COMMITTED), (2, Fate.ABORTED)):
        transaction = written(history, number)
        transaction.commits_offset = True
        history.ended(transaction, fate)
    history.check_final(seen(1), lambda _: 1)
    with pytest.raises(InvariantBrokenError, match="committed offset 1 last, its group has 2"):
        history.check_final(seen(1), lambda _: 2)


def test_a_successor_aborts_what_is_open(history: TransactionHistory) -> None:
    """Readers may not see a transaction before its commit is asked for, nor after a successor has come."""
    transaction = written(history, 1)
    with pytest.raises(InvariantBrokenError, match="OPEN"):
        history.read(P0, 0, b"app/1:0")
    history.initialized("app", 2)
    assert transaction.fate is Fate.ABORTED
    with pytest.raises(InvariantBrokenError, match="ABORTED"):
        history.read(P0, 0, b"app/1:0")
    late = written(history, 2)
    late.fate = Fate.COMMITTING
    history.initialized("app", 3)
    history.read(P0, 5, b"app/2:0")


def test_zombies(history: TransactionHistory) -> None:
    """Nothing that an older instance asks after a newer one was initialized may succeed; strangers are seen."""
    before = history.newest("app")
    history.initialized("app", 2)
    history.acknowledged("app", 1, before, "a produce")
    with pytest.raises(InvariantBrokenError, match="a produce of instance 1 succeeded, 2 had been initialized"):
        history.acknowledged("app", 1, history.newest("app"), "a produce")
    with pytest.raises(InvariantBrokenError):
        history.read(P0, 7, b"app/0:zombie")


def test_committed_records_of_a_fetch() -> None:
    """Markers and records of transactions that the answer names as aborted are left out, from where they began on."""

    def batch(offset: int, producer: int, value: bytes, *, transactional: bool = True) -> bytes:
        record = Record(offset, 0, None, value)
        return build_batch(
            [record], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=transactional
        )

    def marker(offset: int, producer: int, kind: ControlRecordType) -> bytes:
        return build_end_txn_batch(
            EndTxnMarker(kind, 0), timestamp=0, producer_id=producer, producer_epoch=0, base_offset=offset
        )

    data = b"".join(
        (
            batch(0, 1, b"aborted"),
            batch(1, 2, b"kept"),
            batch(2, -1, b"plain", transactional=False),
            marker(3, 1, ControlRecordType.ABORT),
            batch(4, 1, b"kept too"),
            marker(5, 1, ControlRecordType.COMMIT),
            marker(6, 2, ControlRecordType.COMMIT),
        )
    )
    aborted = [SimpleNamespace(producer_id=1, first_offset=0)]
    assert committed_records(split_batches(data), 0, aborted) == [(1, b"kept"), (2, b"plain"), (4, b"kept too")]
    assert committed_records(split_batches(data), 2, aborted) == [(2, b"plain"), (4, b"kept too")]
