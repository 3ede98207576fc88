"""What is due when: the sessions, rebalances and other waits of one coordinator. Pure.

A heap of (due time, key). Moving a deadline on, as each heartbeat does, only notes the new time; the heap's own entry
is put right when it comes to the top. So a heartbeat costs a look into a dict, whatever the number of members.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush


class Deadlines:
    """Keys with a time each, in monotonic milliseconds. Setting a key again moves it; keys need no order."""

    __slots__ = ("_count", "_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[Hashable, int] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._due

    def due_ms(self, key: Hashable) -> int | None:
        """When `key` is due; None when it is not set."""
        return self._due.get(key)

    def is_due(self, key: Hashable, now_ms: int) -> bool:
        """Whether `key` is set, and due by now."""
        due_ms = self._due.get(key)
        return due_ms is not None and due_ms <= now_ms

    def set(self, key: Hashable, due_ms: int) -> None:
        """`key` is due at `due_ms`; an earlier deadline of it no longer counts."""
        before = self._due.get(key)
        self._due[key] = due_ms
        if before is None or due_ms < before:
            # Otherwise the heap has an earlier entry, which `pop_due` corrects when it comes up.
            self._push(key, due_ms)
            self._bound()

    def cancel(self, key: Hashable) -> None:
        """`key` is not due any more; without effect when it is not set."""
        self._due.pop(key, None)
        self._bound()

    @property
    def next_due_ms(self) -> int | None:
        """When to look next: never later than the first deadline, sometimes earlier than it. None: nothing is set."""
        heap = self._heap
        while heap and heap[0][2] not in self._due:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now_ms: int) -> Hashable | None:
        """Removes the key that is due first, among equals the one that was set first; None where no key is due."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            at, _, key = heappop(heap)
            due_ms = self._due.get(key)
            if due_ms == at:
                del self._due[key]
                return key
            if due_ms is not None:
                self._push(key, due_ms)
        return None

    def _push(self, key: Hashable, due_ms: int) -> None:
        self._count += 1
        heappush(self._heap, (due_ms, self._count, key))

    def _bound(self) -> None:
        """Entries of what was cancelled, or moved to and fro, must not outgrow what is set."""
        if len(self._heap) > 2 * len(self._due) + 64:
            self._rebuild()

    def _rebuild(self) -> None:
        """Keeps the first entry of each key."""
        first: dict[Hashable, tuple[int, int, Hashable]] = {}
        for entry in sorted(self._heap):
            if entry[2] in self._due:
                first.setdefault(entry[2], entry)
        self._heap = list(first.values())
