"""Produce requests that wait for the high watermark or for a flush (Kafka's DelayedProduce).

    DelayedProduce --one for each append--> DelayedAppends of its replica --high watermark, flush--> try_complete

The appends of a partition are delayed in the order of their offsets, so each queue is a deque that is freed from its
front: a high watermark that advances costs only the appends that it frees. Only a producer that repeats a batch which
is still waiting is inserted further in front.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidelog.broker.deferred import Deferred
from tidelog.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.broker.shell import Shell, Timer

ACKS_ALL: Final = -1
_BY_OFFSET: Final[Any] = attrgetter("last_offset")


class DelayedAppend(Protocol):
    """One append that waits."""

    last_offset: int
    """The append can complete when everything up to here is committed, or flushed."""

    def try_complete(self) -> bool:
        """Completes the append, with success or an error, if that can be decided now; returns whether it did."""
        ...


class DelayedAppends:
    """The delayed appends of one replica."""

    __slots__ = ("_for_commit", "_for_flush")

    def __init__(self) -> None:
        self._for_commit: deque[DelayedAppend] = deque()
        self._for_flush: deque[DelayedAppend] = deque()

    def __len__(self) -> int:
        return len(self._for_commit) + len(self._for_flush)

    def add(self, append: DelayedAppend, required_acks: int) -> None:
        """Delays `append` until the high watermark passes it with acks=all, else until it is flushed."""
        queue = self._for_commit if required_acks == ACKS_ALL else self._for_flush
        if not queue or queue[-1].last_offset <= append.last_offset:
            queue.append(append)
        else:
            insort(queue, append, key=_BY_OFFSET)

    def remove(self, append: DelayedAppend) -> None:
        """Forgets `append`, whose client is gone or whose timeout has passed. Without effect when it has completed."""
        for queue in (self._for_commit, self._for_flush):
            if append in queue:
                # The oldest appends are in front, and time out first.
                queue.remove(append)

    def committed(self, high_watermark: int) -> None:
        """Everything below `high_watermark` is committed."""
        self._free(self._for_commit, high_watermark)

    def flushed(self, flushed_end: int) -> None:
        """Everything below `flushed_end` is on the device."""
        self._free(self._for_flush, flushed_end)

    def try_complete_all(self) -> None:
        """Something other than an offset has changed: leadership, the directory, the topic's settings."""
        for queue in (self._for_commit, self._for_flush):
            appends = list(queue)
            queue.clear()
            # A client that is answered may append again meanwhile, and be delayed again.
            queue.extendleft(reversed([append for append in appends if not append.try_complete()]))

    @staticmethod
    def _free(queue: deque[DelayedAppend], end: int) -> None:
        while queue and queue[0].last_offset < end:
            queue.popleft().try_complete()


class DelayedProduce:
    """The appends of one produce request, until each has completed or the request times out."""

    __slots__ = ("_acks", "_appends", "_errors", "_outcome", "_pending", "_timer", "done")

    def __init__(
        self,
        acks: int,
        appends: Sequence[tuple[DelayedAppends, int]],
        outcome: Callable[[int], ErrorCode | None],
    ) -> None:
        """`appends`: where each waits, and its last offset. `outcome(position)` decides, None: it has to wait on."""
        self._acks = acks
        self._outcome = outcome
        self._errors: list[ErrorCode] = [ErrorCode.REQUEST_TIMED_OUT] * len(appends)
        self._pending = len(appends)
        self._timer: Timer | None = None
        self._appends = [_Append(self, position, *append) for position, append in enumerate(appends)]
        self.done: Deferred[list[ErrorCode]] = Deferred()
        """An error for each append, once all have completed."""

    def begin(self, shell: Shell, timeout_ms: int) -> None:
        """Waits for `timeout_ms` at most."""
        if timeout_ms <= 0:
            self.done.complete(self._errors)
            return
        for append in self._appends:
            append.queue.add(append, self._acks)
        self._timer = shell.after(timeout_ms, self._expire)

    def leave(self) -> None:
        """Gives up the appends that have not completed: the producer is gone, or the request has timed out."""
        for append in self._appends:
            if not append.is_complete:
                append.queue.remove(append)
        self._release()

    def try_complete(self, append: _Append) -> bool:
        error = self._outcome(append.position)
        if error is None:
            return False
        append.is_complete = True
        self._errors[append.position] = error
        self._pending -= 1
        if not self._pending:
            self._release()
            self.done.complete(self._errors)
        return True

    def _release(self) -> None:
        """Lets go of what points back at this object, which then needs no garbage collection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._appends = []

    def _expire(self) -> None:
        self.leave()
        self.done.complete(self._errors)


class _Append:
    """One append of a delayed request."""

    __slots__ = ("_request", "is_complete", "last_offset", "position", "queue")

    def __init__(self, request: DelayedProduce, position: int, queue: DelayedAppends, last_offset: int) -> None:
        self._request = request
        self.position = position
        self.queue = queue
        self.last_offset = last_offset
        self.is_complete = False

    def try_complete(self) -> bool:
        return self._request.try_complete(self)
