"""What a node and its parts ask of the runtime around them: timers, turns of the loop, threads for the disk, and the
way to the other brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tidelog.broker.deferred import Deferred

if TYPE_CHECKING:
    from tidelog.storage.tasks import DiskTask

T = TypeVar("T")


class Purpose(Enum):
    """What a connection between brokers is for. Requests of one purpose keep their order, and wait for one another."""

    FETCH = "fetch"
    """A follower's fetches, and what it asks beside them."""
    CONTROL = "control"
    """The controller's orders."""
    REPORT = "report"
    """What a broker asks the controller for itself: AlterPartition, AllocateProducerIds, ControlledShutdown."""
    FORWARD = "forward"
    """Clients' requests, on their way to the controller; some of them wait for long."""
    TRANSACTIONS = "transactions"
    """What transaction coordinators ask leaders: WriteTxnMarkers."""
    VERIFICATION = "verification"
    """What leaders ask transaction coordinators: AddPartitionsToTxn."""
    REPAIR = "repair"
    """What is missing in a damaged log: a consumer's Fetch."""
    METRICS = "metrics"
    """Where partitions end, and since when records are there, for the lag of groups."""
    SHARE_STATE = "share state"
    """What leaders of share partitions, and group coordinators, ask share coordinators."""
    SETTINGS = "settings"
    """Which versions of altered settings other brokers have."""


class InDirectories:
    """Work for `Shell.in_pool` that waits for these log directories alone, and is not to keep others waiting."""

    __slots__ = ("_work", "directories")

    def __init__(self, directories: Iterable[str], work: Callable[[], Any]) -> None:
        self.directories = frozenset(directories)
        """Their paths."""
        self._work = work

    def __call__(self) -> Any:
        return self._work()


def blocking_half(task: DiskTask) -> Callable[[], None]:
    """A disk task's `run`, for `Shell.in_pool`."""
    return task.run if task.log_dir is None else InDirectories((task.log_dir,), task.run)


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Idempotent; without effect once it ran."""
        ...


def pause(shell: Shell, delay_ms: int) -> Deferred[None]:
    """Completes after `delay_ms`."""
    over: Deferred[None] = Deferred()
    shell.after(delay_ms, over.complete, None)
    return over


def at_latest(shell: Shell, outcome: Deferred[T], delay_ms: int, late: Callable[[], Exception]) -> Deferred[T]:
    """`outcome`, or a failure with `late()` after `delay_ms`; what `outcome` stands for goes on."""
    if outcome.done:
        return outcome
    bounded: Deferred[T] = Deferred()
    timer = shell.after(max(0, delay_ms), lambda: None if bounded.done else bounded.fail(late()))

    def in_time(settled: Deferred[T]) -> None:
        timer.cancel()
        if not bounded.done:
            settled.forward_to(bounded)

    outcome.on_complete(in_time)
    return bounded


class Shell(Protocol):
    """What a node asks of the runtime around it."""

    def after(self, delay_ms: int, callback: Callable[..., object], *arguments: Any) -> Timer:
        """Calls back on the loop's thread after `delay_ms`."""
        ...

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Calls back on the loop's thread in its next turn."""
        ...

    def in_pool(self, work: Callable[[], T]) -> Deferred[T]:
        """Runs `work` on one of a few I/O threads; completes on the loop's thread, with what work raised if it did.

        Work in log directories is `InDirectories`: each directory has threads of its own, so that one that hangs stalls
        nothing else.
        """
        ...

    def ask(self, broker_id: int, purpose: Purpose, message: Any, version: int, timeout_ms: int) -> Deferred[Any]:
        """Sends another broker a message of protocol.messages in `version`; completes with the message of its answer.

        Fails with an OSError: ConnectionError where the broker is not known, cannot be reached, or its connection
        breaks, TimeoutError without an answer in time. Then all that waits on the same connection fails too; the next
        question connects anew. Records of a FetchResponse are views that stay valid.
        """
        ...
