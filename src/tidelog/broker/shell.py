"""What a node and its parts ask of the runtime around them: timers, turns of the loop, threads for the disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from tidelog.broker.deferred import Deferred

T = TypeVar("T")


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Idempotent; without effect once it ran."""
        ...


class Shell(Protocol):
    """What a node asks of the runtime around it."""

    def after(self, delay_ms: int, callback: Callable[..., object], *arguments: Any) -> Timer:
        """Calls back on the loop's thread after `delay_ms`."""
        ...

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Calls back on the loop's thread in its next turn."""
        ...

    def in_pool(self, work: Callable[[], T]) -> Deferred[T]:
        """Runs `work` on one of the few I/O threads; completes on the loop's thread, with OSError if work raised it."""
        ...
