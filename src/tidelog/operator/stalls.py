"""Copies between directories that stand still: noticed by what brokers tell of them. No I/O.

A broker that is asked again for a copy that it has begun does nothing. Apache Kafka leaves one standing where its
thread was fenced by a new leader epoch, or where the controller did not take note of the new directory. Asked for the
directory where the replica lies, the broker drops the copy; asked for the other one after that, it begins anew.

A broker copies one partition after the other, so a copy that waits for its turn stands still as well. Only when all
copies of a broker do, something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.model.identifiers import TopicPartition
from tidelog.placement.plan.state import DirectoryMoveState

STALL_S: Final = 60.0
"""So long the copies of a broker may stand still."""
PORTION_BYTES: Final = 4 << 20
"""And for as long besides as this takes at the throttle: a broker copies in portions, and waits after each."""

Copies = frozenset[tuple[TopicPartition, str, int]]


class Stalls:
    """How long the copies of each broker have stood still."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Copies, float]] = {}

    def see(self, now: float, copies: Iterable[DirectoryMoveState]) -> dict[int, float]:
        """[broker] -> seconds since one of its copies came further, began or ended; of brokers that copy something."""
        by_broker: dict[int, set[tuple[TopicPartition, str, int]]] = {}
        for each in copies:
            copy = each.key, each.path, each.bytes_done
            by_broker.setdefault(each.broker, set()).add(copy)
        before = self._seen
        self._seen = {}
        for broker, present in by_broker.items():
            known, since = before.get(broker, (frozenset(), now))
            self._seen[broker] = frozenset(present), since if known == present else now
        return {broker: now - since for broker, (_, since) in self._seen.items()}

    def forget(self, broker: int) -> None:
        """Its copies are begun anew."""
        self._seen.pop(broker, None)


def patience_s(rate: int | None) -> float:
    """How long copies may stand still at a throttle in bytes a second; None: none."""
    return STALL_S + (PORTION_BYTES / rate if rate else 0.0)
