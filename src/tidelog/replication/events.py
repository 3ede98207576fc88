"""What happens to a partition's replica, and what it wants done.

Effects are to be carried out in the order given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidelog.model.identifiers import BrokerId, LeaderEpoch, Offset, PartitionEpoch


@dataclass(frozen=True, slots=True)
class Appended:
    """The log has grown; it is not on the device yet."""

    log_end: Offset


@dataclass(frozen=True, slots=True)
class Flushed:
    """Everything below `flushed_end` is on the device."""

    flushed_end: Offset


@dataclass(frozen=True, slots=True)
class FlushPolicyChanged:
    """flush.messages became 1, or ceased to be: whether only flushed records count as held."""

    flush_before_acknowledge: bool


@dataclass(frozen=True, slots=True)
class IsrCommitted:
    """The controller's word on who is in sync, with the version of that state."""

    isr: tuple[BrokerId, ...]
    partition_epoch: PartitionEpoch


Event: TypeAlias = Appended | Flushed | FlushPolicyChanged | IsrCommitted


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """Everything below `offset` is committed: fetches may return it, produce requests with acks=all are done."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class FlushWanted:
    """The log is to be flushed, off the loop; `Flushed` tells when it is. At most one is under way."""

    leader_epoch: LeaderEpoch


Effect: TypeAlias = HighWatermarkAdvanced | FlushWanted
