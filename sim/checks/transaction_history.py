"""What transactional producers asked for and were told, and what must therefore be so (invariant 13).

A transaction's records, and the offset that it commits for a group, name it: so a reader of committed records only
sees all of it or nothing, whatever became of the producer, the coordinator and the leaders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from sim.invariants import require
from tidelog.model.identifiers import TopicPartition


class Fate(Enum):
    """What is known of a transaction's end."""

    OPEN = "nobody has asked to commit it"
    COMMITTING = "its commit was asked for, and not answered"
    COMMITTED = "its commit was answered"
    ABORTED = "its abort was answered, or its producer was fenced before it asked for anything"


@dataclass(slots=True)
class Transaction:
    """One transaction of one instance of a producer."""

    name: str
    """Unique in a run: transactional id / number."""
    number: int
    values: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    """Those that were acknowledged, in their order."""
    commits_offset: bool = False
    """Whether its number was committed for the producer's group with it, and that was acknowledged."""
    fate: Fate = Fate.OPEN


class TransactionHistory:
    """Of a whole run."""

    def __init__(self) -> None:
        self._transactions: dict[str, Transaction] = {}
        self._newest_instance: dict[str, int] = {}
        """[transactional id] -> the newest instance that was initialized: older ones are fenced."""
        self.committed = 0
        self.aborted = 0
        self.fenced = 0
        """Requests of older instances that were refused."""

    def initialized(self, transactional_id: str, instance: int) -> None:
        """An instance was given its epoch: what older ones had not asked to commit is aborted."""
        self._newest_instance[transactional_id] = max(instance, self._newest_instance.get(transactional_id, 0))
        for transaction in self._of(transactional_id):
            if transaction.fate is Fate.OPEN:
                transaction.fate = Fate.ABORTED

    def begin(self, transactional_id: str, number: int) -> Transaction:
        transaction = Transaction(f"{transactional_id}/{number}", number)
        self._transactions[transaction.name] = transaction
        return transaction

    def acknowledged(self, transactional_id: str, instance: int, newest_before: int, what: str) -> None:
        """A request of an instance succeeded; `newest_before` is what `newest` gave at its sending."""
        require(
            13,
            instance >= newest_before,
            f"{transactional_id}: {what} of instance {instance} succeeded, {newest_before} had been initialized",
        )

    def newest(self, transactional_id: str) -> int:
        return self._newest_instance.get(transactional_id, 0)

    def ended(self, transaction: Transaction, fate: Fate) -> None:
        """An end was answered."""
        transaction.fate = fate
        self.committed += fate is Fate.COMMITTED
        self.aborted += fate is Fate.ABORTED

    def _of(self, transactional_id: str) -> list[Transaction]:
        prefix = f"{transactional_id}/"
        return [transaction for name, transaction in self._transactions.items() if name.startswith(prefix)]

    # What readers of committed records see.

    def read(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A committed record was read."""
        transaction = self._transactions.get(name_of(value))
        fate = Fate.ABORTED if transaction is None else transaction.fate
        require(
            13,
            fate in (Fate.COMMITTING, Fate.COMMITTED),
            f"{partition}: {value!r} of an {fate.name} transaction is read at {offset}",
        )

    def check_final(self, values: Mapping[TopicPartition, Sequence[bytes]], offset_of: Callable[[str], int]) -> None:
        """`values`: all committed records in their order, at the end. `offset_of(transactional id)`: what its group has
        committed.
        """
        found: dict[str, dict[TopicPartition, list[bytes]]] = {}
        for partition, ordered in values.items():
            for value in ordered:
                found.setdefault(name_of(value), {}).setdefault(partition, []).append(value)
        newest: dict[str, int] = {}
        for name, transaction in self._transactions.items():
            seen = found.get(name, {})
            if transaction.fate is Fate.COMMITTED or (transaction.fate is Fate.COMMITTING and seen):
                require(
                    13, seen == transaction.values, f"{name} is committed: {seen}, written were {transaction.values}"
                )
                if transaction.commits_offset:
                    transactional_id = name.rpartition("/")[0]
                    newest[transactional_id] = max(transaction.number, newest.get(transactional_id, 0))
            else:
                require(13, not seen, f"{name} is {transaction.fate.name}: {seen}")
        for transactional_id, number in newest.items():
            offset = offset_of(transactional_id)
            require(13, offset == number, f"{transactional_id} committed offset {number} last, its group has {offset}")


def name_of(value: bytes) -> str:
    """The transaction of a record's value, name:number."""
    return value.decode().rpartition(":")[0]
