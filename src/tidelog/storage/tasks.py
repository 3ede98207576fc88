"""Work for a device that the caller's thread must not wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class DiskTask(Protocol):
    """Blocking work, in two halves.

    `run` does I/O and nothing else, in any thread; what it raises goes to `finish`, which changes the state of the
    logs, in the thread that owns them. Every task that was handed out must be finished, with or without an error, once.
    """

    def run(self) -> None: ...

    def finish(self, error: OSError | None) -> None: ...


class SimpleTask:
    """A task made of two functions."""

    __slots__ = ("_finish", "_run", "name")

    def __init__(self, name: str, run: Callable[[], None], finish: Callable[[OSError | None], None]) -> None:
        self.name = name
        """For logs and errors."""
        self._run = run
        self._finish = finish

    def run(self) -> None:
        self._run()

    def finish(self, error: OSError | None) -> None:
        self._finish(error)

    def __repr__(self) -> str:
        return f"DiskTask({self.name})"


def run_now(task: DiskTask) -> None:
    """Both halves in this thread: for start-up, shutdown and tests."""
    error: OSError | None = None
    try:
        task.run()
    except OSError as caught:
        error = caught
    task.finish(error)
