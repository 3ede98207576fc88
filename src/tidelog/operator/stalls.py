"""Copies that stand still, between brokers or between directories: noticed by what brokers tell of them. No I/O.

Between directories: a broker that is asked again for a copy that it has begun does nothing. Apache Kafka leaves one
standing where its thread was fenced by a new leader epoch, or where the controller did not take note of the new
directory. Asked for the directory where the replica lies, the broker drops the copy; asked for the other one after
that, it begins anew.

Between brokers: one whose disk is full, or that cannot reach a leader, is asked for nothing else than before. What is
wrong is in the logs of brokers, and the operator is told whose.

A broker may copy one partition after the other, so a copy that waits for its turn stands still as well. Only when all
copies of a broker do, something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.model.identifiers import TopicPartition

STALL_S: Final = 60.0
"""So long the copies of a broker may stand still."""
PORTION_BYTES: Final = 4 << 20
"""And for as long besides as this takes at the throttle: a broker copies in portions, and waits after each."""
FETCH_BYTES: Final = 10 << 20
"""As much comes from another broker at once (replica.fetch.response.max.bytes): the throttle counts it afterwards."""


class Copying(NamedTuple):
    """A replica that a broker is making."""

    broker: int
    key: TopicPartition
    path: str
    """The directory; empty for a copy from another broker."""
    bytes_done: int


Copies = frozenset[Copying]


class Stalls:
    """How long the copies of each broker have stood still."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Copies, float]] = {}

    def see(self, now: float, copies: Iterable[Copying]) -> dict[int, float]:
        """[broker] -> seconds since one of its copies came further, began or ended; of brokers that copy something."""
        by_broker: dict[int, set[Copying]] = {}
        for each in copies:
            by_broker.setdefault(each.broker, set()).add(each)
        before = self._seen
        self._seen = {}
        for broker, present in by_broker.items():
            known, since = before.get(broker, (frozenset(), now))
            self._seen[broker] = frozenset(present), since if known == present else now
        return {broker: now - since for broker, (_, since) in self._seen.items()}

    def forget(self, broker: int) -> None:
        """Its copies are begun anew."""
        self._seen.pop(broker, None)


def patience_s(rate: int | None, portion_bytes: int = PORTION_BYTES) -> float:
    """How long copies in such portions may stand still at a throttle in bytes a second; None: none."""
    return STALL_S + (portion_bytes / rate if rate else 0.0)
