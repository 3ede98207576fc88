"""What the groups of one partition committed, and what transactions under way are going to. Pure.

    committed   group -> topic -> partition -> value       the bytes of the record's value
    pending     producer id -> group -> (topic, partition) -> Pending

Offsets of a transaction are pending until its marker. Of a plain commit and a transaction's, or two transactions', the
one that stands later in the log holds, whichever became valid first. So a pending offset is struck out as soon as a
later record about the same partition holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinator.records import check_offset, decode_offset_key

if TYPE_CHECKING:
    from tidelog.coordinator.records import OffsetRecord


class Pending(NamedTuple):
    """An offset of a transaction that is under way."""

    turn: int
    """Which of all pending offsets it was: a larger one stands later in the log."""
    value: bytes | None
    """None: struck out, since something later holds."""


class OffsetStore:
    """`replay`, `load` and `transaction_ended` change it; all else asks."""

    __slots__ = ("_open", "_places", "_turn", "committed", "pending")

    def __init__(self) -> None:
        self.committed: dict[str, dict[str, dict[int, bytes]]] = {}
        self.pending: dict[int, dict[str, dict[tuple[str, int], Pending]]] = {}
        self._turn = 0
        self._open: dict[str, dict[int, None]] = {}
        """[group][producer id]: transactions that have offsets of the group, in order."""
        self._places: dict[bytes, dict[int, bytes]] = {}
        """While loading: [key without type and partition] -> partitions of that group and topic."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, OffsetStore)
            and self.committed == other.committed
            and self.pending == other.pending
            and self._open == other._open
        )

    __hash__ = None  # type: ignore[assignment]  # It changes.

    def __len__(self) -> int:
        """Committed offsets held."""
        return sum(len(partitions) for topics in self.committed.values() for partitions in topics.values())

    # Questions.

    def knows(self, group: str) -> bool:
        """Whether the group has an offset, or a transaction is about to give it one."""
        return group in self.committed or group in self._open

    def groups(self) -> Iterator[str]:
        """All groups that are known, each once."""
        yield from self.committed
        for group in self._open:
            if group not in self.committed:
                yield group

    def has_open_transactions(self, group: str) -> bool:
        """Whether a transaction has, or had, offsets of the group; until its marker."""
        return group in self._open

    def get(self, group: str, topic: str, partition: int) -> bytes | None:
        """The value of the committed offset."""
        partitions = self.committed.get(group, {}).get(topic)
        return None if partitions is None else partitions.get(partition)

    def of_group(self, group: str) -> Iterator[tuple[str, int, bytes]]:
        """Topic, partition and value of all that the group committed."""
        for topic, partitions in self.committed.get(group, {}).items():
            for partition, value in partitions.items():
                yield topic, partition, value

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        """Whether a transaction under way has an offset for the partition."""
        place = (topic, partition)
        return any(place in self.pending[producer].get(group, ()) for producer in self._open.get(group, ()))

    def pending_of_group(self, group: str) -> Iterator[tuple[str, int]]:
        """Partitions for which transactions under way have offsets; one may come twice."""
        for producer in self._open.get(group, ()):
            yield from self.pending[producer].get(group, ())

    # Changes.

    def replay(self, record: OffsetRecord) -> None:
        """Brings in a record of the log."""
        group, topic, partition, value, producer = record
        if producer is not None:
            if value is not None:
                self._open.setdefault(group, {})[producer[0]] = None
                self._turn += 1
                offsets = self.pending.setdefault(producer[0], {}).setdefault(group, {})
                offsets[topic, partition] = Pending(self._turn, value)
            return
        if value is not None:
            self._put(group, topic, partition, value)
        else:
            self._remove(group, topic, partition)

    def load(self, key: bytes, value: bytes | None) -> None:
        """As `replay`, of a record of no transaction as it stands in the log; MalformedRecord.

        A record of a group and topic that came before costs two look-ups.
        """
        if value is not None:
            check_offset(value)
        place = key[2:-4]
        partitions = self._places.get(place)
        if partitions is None or value is None or self._open:
            group, topic, partition = decode_offset_key(key)
            if value is None:
                self._remove(group, topic, partition)
                if not self.committed.get(group, {}).get(topic):
                    self._places.pop(place, None)
                return
            self._put(group, topic, partition, value)
            self._places[place] = self.committed[group][topic]
        else:
            partitions[int.from_bytes(key[-4:], "big", signed=True)] = value

    def loaded(self) -> None:
        """No more comes by `load`."""
        self._places = {}

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """The producer's marker is in the log; without effect when it has nothing pending."""
        groups = self.pending.pop(producer_id, None)
        if groups is None:
            return
        for group, offsets in groups.items():
            transactions = self._open[group]
            del transactions[producer_id]
            if not transactions:
                del self._open[group]
            for (topic, partition), (turn, value) in offsets.items():
                if committed and value is not None:
                    self._put(group, topic, partition, value, turn)

    def _put(self, group: str, topic: str, partition: int, value: bytes, turn: int | None = None) -> None:
        """`turn`: that of the pending offset that holds now; None: a plain commit, after all that is pending."""
        topics = self.committed.get(group)
        if topics is None:
            topics = self.committed[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = value
        if self._open:
            for producer in self._open.get(group, ()):
                offsets = self.pending[producer].get(group)
                other = None if offsets is None else offsets.get((topic, partition))
                if offsets is not None and other is not None and (turn is None or other.turn < turn):
                    offsets[topic, partition] = Pending(other.turn, None)

    def _remove(self, group: str, topic: str, partition: int) -> None:
        topics = self.committed.get(group)
        partitions = None if topics is None else topics.get(topic)
        if topics is not None and partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del topics[topic]
            if not topics:
                del self.committed[group]
        for producer in self._open.get(group, ()):
            offsets = self.pending[producer].get(group)
            if offsets is not None:
                offsets.pop((topic, partition), None)
