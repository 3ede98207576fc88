"""Work for a device that the caller's thread must not wait for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from tidelog.storage.disk_errors import as_os_error

if TYPE_CHECKING:
    from collections.abc import Callable


logger = logging.getLogger(__name__)


class DiskTask(Protocol):
    """Blocking work, in two halves.

    `run` does I/O and nothing else, in any thread; what it raises goes to `finish`, which changes the state of the
    logs, in the thread that owns them. Every task that was handed out must be finished, with or without an error, once:
    what else than an OSError it has raised, too (`disk_errors.as_os_error`).
    """

    @property
    def log_dir(self) -> str | None:
        """Path of the log directory that `run` waits for; None for none in particular."""
        ...

    def run(self) -> None: ...

    def finish(self, error: OSError | None) -> None: ...


class SimpleTask:
    """A task made of two functions."""

    __slots__ = ("_finish", "_run", "log_dir", "name")

    def __init__(
        self,
        name: str,
        run: Callable[[], None],
        finish: Callable[[OSError | None], None],
        log_dir: str | None = None,
    ) -> None:
        self.name = name
        """For logs and errors."""
        self.log_dir = log_dir
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
    except Exception as caught:
        error = as_os_error(caught)
        log_unexpected(task, caught)
    task.finish(error)


def log_unexpected(task: object, error: Exception) -> None:
    """Says what no disk raises, with its trace: a mistake of ours."""
    if not isinstance(error, OSError):
        logger.error("disk_task_failed: task=%s error=%r", task, error, exc_info=error)
