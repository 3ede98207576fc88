"""What lets the first batch of a transaction into a partition (KIP-890): a guard that a marker makes void.

A late batch of a transaction that has ended would open a transaction that is never ended, and readers of committed
records would wait at it for ever. So the leader asks the transaction coordinator before the first batch of each
transaction. An end marker may be written between the question and the append: that takes the guard away, and an answer
which is older than the marker opens nothing.
"""

from __future__ import annotations

from typing import Final


class VerificationGuard:
    """One producer's question to its coordinator, for one partition. Each question has its own."""

    __slots__ = ("asked_ms", "bumps_epochs", "lowest_sequence", "producer_epoch")

    def __init__(self, producer_epoch: int, sequence: int, asked_ms: int, *, bumps_epochs: bool) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = sequence
        """The smallest first sequence that came while nothing was appended yet: a later one alone would leave a gap."""
        self.asked_ms = asked_ms
        """Wall time: of producers that never come back it is forgotten."""
        self.bumps_epochs = bumps_epochs
        """Whether each transaction has an epoch of its own, which begins at sequence 0."""

    def also(self, producer_epoch: int, sequence: int) -> None:
        """Another batch asks for the same."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


ONGOING: Final = VerificationGuard(-1, -1, -1, bumps_epochs=False)
"""Stands for a transaction that is open in the partition: nothing was asked, and it must still be so at the append."""
