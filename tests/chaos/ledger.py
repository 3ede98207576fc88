"""What was sent, what was acknowledged and what was seen: a million records in a few tens of MiB, judged as they come.

A record's value says which it is: partition, producer, and its number among what that producer sent to that partition.
So a partition's ledger is a few arrays of integers:

    sent          [producer][number] -> the offset it was acknowledged at, or WAITING, FAILED or SOMEWHERE
    seen          [offset] -> producer and number in one integer, as the first reader saw it; 0: nobody has yet

Everything that may never happen becomes a finding, the moment it is known:

    changed       two readers saw different values at one offset, or an acknowledgement names another's offset
    lost          an acknowledged record is not at its offset, or one that was read is not there any more
    duplicated    one record stands at two offsets (`repeated` until somebody has looked at who wrote it twice)
    reordered     a producer's records stand in another order than it sent them
    moved         a reader was taken back, or past an offset, or told that what it had read up to does not exist
    foreign       a value that was never sent, or that belongs to another partition

A record whose delivery failed may be in the log, once, or not at all: its producer was told that nobody knows.
"""

from __future__ import annotations

import struct
import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

WAITING: Final = -1
FAILED: Final = -2
SOMEWHERE: Final = -3
"""Acknowledged without an offset: librdkafka's word for a retry that the broker has known for long (a duplicate)."""
FINDINGS_MAX: Final = 20
"""Findings that are kept word for word; the others are counted."""

_VALUE: Final = struct.Struct(">IIQ")  # Partition, producer, number.
_NUMBER_BITS: Final = 44


def value_of(partition: int, producer: int, number: int, size: int) -> bytes:
    """The value of a record, padded to `size` bytes."""
    return _VALUE.pack(partition, producer, number).ljust(size, b".")


def identity_of(value: bytes) -> tuple[int, int, int]:
    """(partition, producer, number) of a value; struct.error for one that is too short."""
    partition, producer, number = _VALUE.unpack_from(value)
    return partition, producer, number


class Ledger:
    """All partitions of one run. Producers, readers and the judge are threads: every method may be called by any."""

    def __init__(self, partitions: int, producers: int) -> None:
        self.sent = [[array("q") for _ in range(producers)] for _ in range(partitions)]
        self.seen = [array("Q") for _ in range(partitions)]
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self.repeated: list[tuple[int, int, int]] = []
        """Partition, offset and offset of a record that is in the log twice, found by `judge`: for `duplicated`."""
        self.failures: Counter[str] = Counter()
        """Why deliveries failed, as the producers were told."""
        self._lock = threading.Lock()

    # The producers' side

    def send(self, partition: int, producer: int) -> int:
        """Takes the next number for a record that is about to be sent."""
        numbers = self.sent[partition][producer]
        numbers.append(WAITING)
        return len(numbers) - 1

    def next_numbers(self, partition: int) -> list[int]:
        """[producer] -> the number that its next record will have."""
        return [len(numbers) for numbers in self.sent[partition]]

    def acknowledge(self, partition: int, producer: int, number: int, offset: int | None) -> None:
        """A broker said that this record is in the log at `offset`, or, None, that it is there."""
        with self._lock:
            if offset is None or offset < 0:
                self.sent[partition][producer][number] = SOMEWHERE
                return
            self.sent[partition][producer][number] = offset
            self._compare(partition, offset, _code(producer, number), "an acknowledgement", record=False)

    def fail(self, partition: int, producer: int, number: int, reason: str) -> None:
        """The producer gave up: nobody knows whether the record is in the log."""
        with self._lock:
            self.sent[partition][producer][number] = FAILED
            self.failures[reason] += 1

    # The readers' side

    def see(self, reader: str, partition: int, offset: int, value: bytes) -> None:
        """A reader was given `value` at `offset`."""
        with self._lock:
            try:
                said, producer, number = identity_of(value)
            except struct.error:
                self._found("foreign", f"{reader}: {partition} @ {offset} holds {value[:40]!r}, which nobody sent")
                return
            known = producer < len(self.sent[partition]) and number < len(self.sent[partition][producer])
            if said != partition or not known:
                self._found("foreign", f"{reader}: {partition} @ {offset} holds {said}: {producer}/{number}")
                return
            self._compare(partition, offset, _code(producer, number), reader, record=True)

    def moved(self, reader: str, partition: int, what: str) -> None:
        """A reader was not given the offset that it had to be given."""
        with self._lock:
            self._found("moved", f"{reader}: {partition}: {what}")

    def _compare(self, partition: int, offset: int, code: int, who: str, *, record: bool) -> None:
        seen = self.seen[partition]
        if record and offset >= len(seen):
            seen.extend(array("Q", bytes(8 * (offset + 1 - len(seen)))))
        if offset < len(seen) and seen[offset] not in (0, code):
            self._found("changed", f"{partition} @ {offset} was {_name(seen[offset])}; {who} says {_name(code)}")
        elif record:
            seen[offset] = code

    def _found(self, kind: str, text: str) -> None:
        self.counts[kind] += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(f"{kind}: {text}")

    # The judgement

    def judge(self, ends: Iterable[int]) -> None:
        """What holds of the whole, when a last reader has seen every partition up to its end in `ends`."""
        with self._lock:
            for partition, end in enumerate(ends):
                self._judge(partition, end)

    def _judge(self, partition: int, end: int) -> None:
        seen = self.seen[partition]
        for offset in range(end, len(seen)):
            if seen[offset]:
                self._found("lost", f"{partition} @ {offset}: {_name(seen[offset])} was read; the log ends at {end}")
        somewhere = {
            _code(producer, number)
            for producer, offsets in enumerate(self.sent[partition])
            for number, offset in enumerate(offsets)
            if offset == SOMEWHERE
        }
        somewhere.difference_update(seen[:end])
        for code in sorted(somewhere):
            self._found("lost", f"{partition}: {_name(code)} was acknowledged without an offset, and is nowhere")
        first_at: list[dict[int, int]] = [{} for _ in self.sent[partition]]
        last = [-1] * len(self.sent[partition])
        for offset in range(min(end, len(seen))):
            if not seen[offset]:
                self._found("moved", f"{partition} @ {offset}: no reader was given it; the log ends at {end}")
                continue
            producer, number = _parts(seen[offset])
            if number > last[producer]:
                last[producer] = number
                continue
            # Rare, and only then is it worth an index: was that number there before, or does it come too late?
            if not first_at[producer]:
                first_at[producer] = dict(_places(seen, producer, end))
            if (first := first_at[producer][number]) < offset:
                self.repeated.append((partition, first, offset))
            else:
                what = f"{partition} @ {offset}: {_name(seen[offset])} after number {last[producer]}"
                self._found("reordered", what)
        for producer, offsets in enumerate(self.sent[partition]):
            for number, offset in enumerate(offsets):
                if offset >= 0 and (offset >= min(end, len(seen)) or seen[offset] != _code(producer, number)):
                    there = _name(seen[offset]) if offset < min(end, len(seen)) else "nothing"
                    self._found("lost", f"{partition} @ {offset}: {producer}/{number} acknowledged, {there} there")

    def duplicated(self, partition: int, first: int, again: int, why: str) -> None:
        """A record of `repeated` that only a broker can have written twice."""
        with self._lock:
            what = f"{partition} @ {first} and {again}: {_name(self.seen[partition][first])}"
            self._found("duplicated", f"{what}, {why}")

    @property
    def total_sent(self) -> int:
        return sum(len(numbers) for producers in self.sent for numbers in producers)

    @property
    def total_acknowledged(self) -> int:
        return sum(
            1 for producers in self.sent for numbers in producers for offset in numbers if _is_acknowledged(offset)
        )

    @property
    def total_unknown(self) -> int:
        """Records of which their producers do not know whether they are in the log."""
        return self.total_sent - self.total_acknowledged

    @property
    def total_somewhere(self) -> int:
        """Records acknowledged without an offset."""
        return sum(1 for producers in self.sent for numbers in producers for offset in numbers if offset == SOMEWHERE)


def _is_acknowledged(offset: int) -> bool:
    return offset >= 0 or offset == SOMEWHERE


def _code(producer: int, number: int) -> int:
    return producer << _NUMBER_BITS | number + 1


def _parts(code: int) -> tuple[int, int]:
    return code >> _NUMBER_BITS, (code & (1 << _NUMBER_BITS) - 1) - 1


def _name(code: int) -> str:
    producer, number = _parts(code)
    return f"{producer}/{number}"


def _places(seen: array[int], producer: int, end: int) -> Iterator[tuple[int, int]]:
    """(number, first offset) of a producer's records."""
    found: set[int] = set()
    for offset in range(min(end, len(seen))):
        owner, number = _parts(seen[offset])
        if seen[offset] and owner == producer and number not in found:
            found.add(number)
            yield number, offset
