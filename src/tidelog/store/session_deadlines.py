"""When sessions end that are silent.

A heap of deadlines, looked at only when the first one is due: hearing from a session is one write to a dictionary, and
its entry in the heap moves when it comes up. Time is handed in, monotonic.

Time in which the server did not listen does not count: a process that was stopped, or so busy that it woke late, has
not heard what its clients said meanwhile, and must not hold it against them.
"""

from __future__ import annotations

import heapq
from typing import Final

LATENESS_FORGIVEN_MS: Final = 100
"""A wake-up later than this means that the process did not run."""


class SessionDeadlines:
    """Sessions with their timeouts. Times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._timeouts: dict[int, int] = {}
        self._heard: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        self._missed_ms = 0

    def __contains__(self, session_id: int) -> bool:
        return session_id in self._timeouts

    def __len__(self) -> int:
        return len(self._timeouts)

    def add(self, session_id: int, timeout_ms: int, now_ms: int) -> None:
        """A session begins, or begins anew."""
        self._leave_out_pause(now_ms)
        self._timeouts[session_id] = timeout_ms
        self._heard[session_id] = now_ms - self._missed_ms
        heapq.heappush(self._heap, (now_ms - self._missed_ms + timeout_ms, session_id))

    def heard_from(self, session_id: int, now_ms: int) -> None:
        """The session lives."""
        if session_id in self._heard:
            self._leave_out_pause(now_ms)
            self._heard[session_id] = now_ms - self._missed_ms

    def remove(self, session_id: int) -> None:
        """The session is over. Its entry in the heap goes when it comes up."""
        self._timeouts.pop(session_id, None)
        self._heard.pop(session_id, None)

    @property
    def next_ms(self) -> int | None:
        """When to call `due` next; None: never."""
        return self._heap[0][0] + self._missed_ms if self._heap else None

    def due(self, now_ms: int) -> list[int]:
        """Sessions whose time is over; they are removed. To be called at `next_ms`, and not later."""
        self._leave_out_pause(now_ms)
        over: list[int] = []
        while self._heap and self._heap[0][0] + self._missed_ms <= now_ms:
            _, session_id = heapq.heappop(self._heap)
            if session_id not in self._timeouts:
                continue
            deadline_ms = self._heard[session_id] + self._timeouts[session_id]
            if deadline_ms + self._missed_ms <= now_ms:
                self.remove(session_id)
                over.append(session_id)
            else:
                heapq.heappush(self._heap, (deadline_ms, session_id))
        return over

    def _leave_out_pause(self, now_ms: int) -> None:
        """If `due` should have been called long before; as a process wakes up, it reads what has come before that."""
        if self._heap:
            late_ms = now_ms - self._missed_ms - self._heap[0][0]
            if late_ms > LATENESS_FORGIVEN_MS:
                self._missed_ms += late_ms
