"""Appends that wait for the high watermark or for a flush, by offset: who moves one of the two pays for those it frees.

Appends of a partition wait in the order of their offsets as a rule, so each line is a deque whose front is freed. Only
a producer that repeats itself while its batch is under way stands before its turn.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from operator import attrgetter
from typing import Any, Final, Protocol

ACKS_ALL: Final = -1
_BY_OFFSET: Final[Any] = attrgetter("last_offset")


class Wait(Protocol):
    """One append that waits."""

    last_offset: int
    """The append is settled when everything up to here is committed, or flushed."""

    def look(self) -> bool:
        """Settles the append if it can be now, for good or ill; says whether it did."""
        ...


class AckQueue:
    """Who waits for the appends of one replica."""

    __slots__ = ("_committed", "_flushed")

    def __init__(self) -> None:
        self._committed: deque[Wait] = deque()
        self._flushed: deque[Wait] = deque()

    def __len__(self) -> int:
        return len(self._committed) + len(self._flushed)

    def add(self, wait: Wait, required_acks: int) -> None:
        """Takes a place: for the high watermark with acks=all, else for the flush."""
        line = self._committed if required_acks == ACKS_ALL else self._flushed
        if not line or line[-1].last_offset <= wait.last_offset:
            line.append(wait)
        else:
            insort(line, wait, key=_BY_OFFSET)

    def remove(self, wait: Wait) -> None:
        """Its client is gone, or its time is up; without effect when it is settled."""
        for line in (self._committed, self._flushed):
            if wait in line:
                # The oldest stand in front, and time is up for those first.
                line.remove(wait)

    def committed(self, high_watermark: int) -> None:
        """Everything below is committed."""
        self._free(self._committed, high_watermark)

    def flushed(self, flushed_end: int) -> None:
        """Everything below is on the device."""
        self._free(self._flushed, flushed_end)

    def look_at_all(self) -> None:
        """Something else has changed: leadership, the directory, what is asked of an append."""
        for line in (self._committed, self._flushed):
            waits = list(line)
            line.clear()
            # Whoever is told may append again, and wait again, meanwhile.
            line.extendleft(reversed([wait for wait in waits if not wait.look()]))

    @staticmethod
    def _free(line: deque[Wait], end: int) -> None:
        while line and line[0].last_offset < end:
            line.popleft().look()
