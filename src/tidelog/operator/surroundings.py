"""What carrying out a plan needs of the machine it runs on, and what it shows."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from tidelog.operator.journal import Asked, Journal


class Stage(enum.StrEnum):
    """What a run is doing."""

    MOVING = "moving"
    PAUSED = "paused"
    FINISHING = "finishing"


@dataclass(frozen=True, slots=True)
class Sight:
    """What a run shows while it goes on."""

    stage: Stage
    wave: int
    """From 1."""
    waves: int
    done: int
    """Moves (partitions) that have arrived."""
    moves: int
    bytes_left: int
    bytes_at_start: int
    rate: float
    """Bytes a second, over the last ten seconds or so."""
    throttle: int | None
    waiting_for: tuple[int, ...] = ()
    """Brokers that are not live and that moves wait for."""


class Surroundings(Protocol):
    """What a run needs of the machine it runs on."""

    def journal(self) -> Journal:
        """The journal as it was saved last."""

    def save(self, journal: Journal) -> None:
        """Replaces it, durably, before it returns. OSError."""

    def wish(self) -> Asked | None:
        """What another process asks, once."""

    def has_wish(self) -> bool:
        """Whether `wish` would give one."""

    def wall_ms(self) -> int:
        """Wall time in milliseconds."""

    def show(self, sight: Sight) -> None:
        """Something is to be seen."""

    def say(self, text: str) -> None:
        """A line for the operator."""
