"""To which simulated process code belongs: what the loop, the network and the disks know of one.

`process.Process` is one, with its life and death.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from sim.world.randomness import SeededRandom
    from tidelog.ports.network import Network


class Outside(NamedTuple):
    """What a process has of the world whose code asks its event loop and Python's modules for it."""

    network: Network
    random: SeededRandom


class Owner(ABC):
    """A process, as whatever runs its callbacks sees it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outside: Outside | None = None
        """None for brokers and stores, to which network and chance are given."""
        self.alive = True
        self.runs = True
        """Alive, and not paused."""
        self.held: list[asyncio.Handle] = []
        """Callbacks that came due while it was paused."""

    @abstractmethod
    def started(self, task: asyncio.Task[Any]) -> None:
        """A task that belongs to the process."""

    @abstractmethod
    def on_close(self, callback: Callable[[], object]) -> None:
        """What else is unwound at the end."""


PROCESS: Final[ContextVar[Owner | None]] = ContextVar("simulated process", default=None)
"""To which simulated process the running code belongs; None for the simulator's own."""
