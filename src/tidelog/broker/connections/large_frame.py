"""A frame that is larger than what came of it: a buffer of its own, once the broker has room for its bytes.

reserved (`budget`) -> waits, with a copy of its beginning -> begun: the rest is read into its buffer -> complete
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

    from tidelog.broker.connections.budget import ByteBudget

STALL_MS_MAX: Final = 5_000
"""Time without a byte after which the sender of a large frame is closed, while others wait for its memory."""
FRAME_MS_MAX: Final = 60_000
"""Time for a whole large frame, until it is handled, while others wait for its memory."""


class LargeFrame:
    """One frame under way, `size` bytes with its prefix."""

    __slots__ = ("_beginning", "_budget", "_buffer", "_filled", "_reservation", "_started_ms", "size")

    def __init__(self, budget: ByteBudget, size: int, on_granted: Callable[[], None]) -> None:
        """`on_granted` is called when there is room, unless there is at once (`may_begin`)."""
        self.size = size
        self._budget = budget
        self._reservation = budget.reserve(size, on_granted)
        self._buffer: bytearray | mmap.mmap | None = None
        self._beginning = b""
        """What has come, as long as there is no buffer for it."""
        self._filled = 0
        self._started_ms = 0

    @property
    def may_begin(self) -> bool:
        """Whether its bytes are reserved."""
        return self._reservation.granted

    @property
    def has_begun(self) -> bool:
        """Whether it has its buffer."""
        return self._buffer is not None

    @property
    def is_complete(self) -> bool:
        """Whether all of it has come."""
        return self._buffer is not None and self._filled == self.size

    def keep(self, beginning: memoryview) -> None:
        """Keeps a copy of what came, until it may begin."""
        self._beginning = bytes(beginning)

    def begin(self, now_ms: int, beginning: memoryview | None = None) -> None:
        """Takes a buffer, and puts what came into it: `beginning`, or what was kept."""
        start = self._beginning if beginning is None else beginning
        buffer = self._buffer = self._budget.buffer(self.size)
        buffer[: len(start)] = start
        self._filled = len(start)
        self._started_ms = now_ms
        self._beginning = b""

    def rest(self) -> memoryview:
        """Where the bytes go that have not come yet; it has begun."""
        assert self._buffer is not None
        return memoryview(self._buffer)[self._filled : self.size]

    def filled(self, count: int) -> None:
        """So many bytes have come into `rest`."""
        self._filled += count

    def view(self) -> memoryview:
        """The whole frame; it is complete."""
        assert self._buffer is not None
        return memoryview(self._buffer)[: self.size]

    def give_back(self) -> None:
        """Gives back buffer and reservation; the frame is not read any more."""
        if self._buffer is None:
            self._budget.release(self._reservation)
        else:
            self._budget.give_back(self._buffer, self._reservation)

    def stalled(self, now_ms: int, active_ms: int) -> str | None:
        """Why its sender, of whom the last byte came at `active_ms`, should be closed when others wait for memory."""
        if not self.has_begun:
            return None
        if self.is_complete:
            if now_ms - self._started_ms < FRAME_MS_MAX:
                return None
            return f"its request of {self.size} bytes waits behind another one, or for the end of a throttle"
        if now_ms - active_ms >= STALL_MS_MAX:
            return f"it sent {self._filled} of {self.size} bytes and stalled for {STALL_MS_MAX} ms"
        if now_ms - self._started_ms >= FRAME_MS_MAX:
            return f"it needed more than {FRAME_MS_MAX} ms for a request of {self.size} bytes"
        return None
