"""Operations that wait for something to happen to a partition, and no longer than their deadline.

A fetch with too little to give waits for the high watermark, a DeleteRecords for the followers. (Appends to be
acknowledged stand in line by offset, `acks`; followers' fetches wait in their sessions, `replica_fetch`.) Each is
registered under the partitions that may complete it. What changes a partition calls `check` with its key, an append
`check_soon`; the deadline is a timer of the operation's own. Nothing polls.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.broker.shell import Shell, Timer


class Operation(Protocol):
    """Something that waits."""

    def try_complete(self) -> bool:
        """Completes the operation if its condition holds now, and says whether it did. Called again and again."""
        ...

    def expire(self) -> None:
        """Completes the operation as it is: the deadline came first."""
        ...


class Entry:
    """An operation that waits, as `cancel` wants it."""

    __slots__ = ("done", "keys", "operation", "timer", "trying")

    def __init__(self, operation: Operation, keys: tuple[Hashable, ...]) -> None:
        self.operation = operation
        self.keys = keys
        self.timer: Timer | None = None
        self.trying = False
        """Whether it is being completed just now: what that sets off must not come back to it."""
        self.done = False


class Purgatory:
    """`key -> operations that wait for it`. Bounded: a connection has at most a few requests in the broker at once."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._watchers: dict[Hashable, dict[Entry, None]] = {}
        self._size = 0
        self._changed: dict[Hashable, None] = {}
        """Keys to be checked in the loop's next turn."""

    def __len__(self) -> int:
        """Operations that wait."""
        return self._size

    def watched(self, key: Hashable) -> bool:
        """Whether anything waits for `key`."""
        return key in self._watchers

    def wait(self, operation: Operation, keys: Iterable[Hashable], timeout_ms: int) -> Entry | None:
        """Completes `operation` now if it can be, else when a check finds that it can, else after `timeout_ms`.

        None when it is complete already.
        """
        if operation.try_complete():
            return None
        if timeout_ms <= 0:
            operation.expire()
            return None
        entry = Entry(operation, tuple(keys))
        for key in entry.keys:
            self._watchers.setdefault(key, {})[entry] = None
        self._size += 1
        entry.timer = self._shell.after(timeout_ms, self._expire, entry)
        return entry

    def check(self, key: Hashable) -> None:
        """Something changed for `key`: completes, in order of arrival, what can be completed now."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return
        for entry in list(watchers):
            # Completing one operation may complete another, through a callback.
            if entry.done or entry.trying:
                continue
            entry.trying = True
            try:
                completed = entry.operation.try_complete()
            finally:
                entry.trying = False
            if completed:
                self._remove(entry)

    def check_soon(self, key: Hashable) -> None:
        """As `check`, in the loop's next turn, once for all that happens to `key` in this one.

        So a fetch that waits gets what all producers of this turn have sent, and none of them waits while it is read.
        """
        if key not in self._watchers:
            return
        if not self._changed:
            self._shell.soon(self._check_changed)
        self._changed[key] = None

    def _check_changed(self) -> None:
        changed, self._changed = self._changed, {}
        try:
            while changed:
                key = next(iter(changed))
                del changed[key]
                self.check(key)
        finally:
            # One operation has failed, a fault of the broker: the others are checked all the same.
            for key in changed:
                self.check_soon(key)

    def cancel(self, entry: Entry) -> None:
        """Drops an operation whose client is gone; it is neither completed nor expired."""
        self._remove(entry)

    def _expire(self, entry: Entry) -> None:
        if not entry.done:
            self._remove(entry)
            entry.operation.expire()

    def _remove(self, entry: Entry) -> None:
        if entry.done:
            return
        entry.done = True
        self._size -= 1
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None  # It points back at the entry.
        for key in entry.keys:
            watchers = self._watchers.get(key)
            if watchers is not None:
                watchers.pop(entry, None)
                if not watchers:
                    del self._watchers[key]
