"""One partition of an internal topic while this broker leads it: its coordinator, and the requests that wait for it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from tidelog.coordinator.state_machine import StateMachine
from tidelog.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.shell import Timer
    from tidelog.coordinator.result import Result
    from tidelog.storage.log import AppendInfo

M = TypeVar("M", bound=StateMachine)

BATCH_OVERHEAD: Final = 61
"""Bytes of a batch beside its records."""


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    producer_epoch: int
    committed: bool


class Batch:
    """Writes that are appended together, and the answers that rest on them."""

    __slots__ = ("outcome", "records", "replies", "results", "size")

    def __init__(self) -> None:
        self.outcome: Deferred[AppendInfo] | None = None
        """Of an append whose outcome is not awaited yet."""
        self.records: list[tuple[bytes, bytes | None]] = []
        self.size = BATCH_OVERHEAD
        """Bytes, at most."""
        self.replies: list[tuple[Deferred[Any], Any]] = []
        self.results: list[Result[Any, Any]] = []
        """Of the events whose answers those are, where `on_committed` wants them."""


class Shard(Generic[M]):
    """One partition of the topic while this broker leads it, in one leader epoch."""

    __slots__ = (
        "appends",
        "batch",
        "began_ms",
        "closed",
        "failure",
        "is_held",
        "is_loaded",
        "machine",
        "markers",
        "replica",
        "requests",
        "term",
        "timer",
        "timer_due_ms",
    )

    def __init__(self, replica: Replica, machine: M, began_ms: int = 0) -> None:
        self.replica = replica
        self.began_ms = began_ms
        """Monotonic time at which it was to be loaded."""
        self.term = replica.leader_epoch
        """The leader epoch for which it was loaded; under another one it is void."""
        self.machine = machine
        self.is_loaded = False
        self.closed = False
        """It answers no requests any more."""
        self.failure: str | None = None
        """Why it cannot be loaded, in this leader epoch."""
        self.requests: dict[int, Deferred[Any]] = {}
        """[request id] -> the answer that waits for a reply which `handle` has not given yet."""
        self.batch: Batch | None = None
        """What this turn of the loop has written."""
        self.appends: deque[Batch] = deque()
        """Appended and not committed yet, in the order of the log."""
        self.markers: list[Marker] = []
        """Transactions that ended while the partition was being loaded."""
        self.is_held = False
        """What is due waits, since the partition takes no appends."""
        self.timer: Timer | None = None
        self.timer_due_ms = 0

    @property
    def is_current(self) -> bool:
        replica = self.replica
        return (
            not self.closed and replica.leader is not None and replica.leader_epoch == self.term and not replica.removed
        )

    def close(self) -> None:
        """The state is void: clients that wait are told to look for the coordinator anew."""
        if self.closed:
            return
        self.closed = True
        if self.timer is not None:
            self.timer.cancel()
        waiting = [answer for batch in (*self.appends, self.batch) if batch is not None for answer, _ in batch.replies]
        waiting.extend(self.requests.values())
        self.appends.clear()
        self.batch = None
        self.requests = {}
        for answer in waiting:
            if not answer.done:
                answer.fail(KafkaError(ErrorCode.NOT_COORDINATOR, "The coordinator has moved, or begins anew."))
