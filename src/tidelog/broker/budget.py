"""Bytes in flight: how much memory requests may take before anyone has looked at them.

A frame that doesn't fit the shared receive buffer gets a buffer of its own, and its bytes are reserved here first, in
the order in which the frames arrived. Who gets no reservation stops reading its socket, so that the kernel's window
closes and the client waits.

There are two lanes, so that a hundred requests of 100 MB never stand before an ordinary one: frames of up to
`ORDINARY_FRAME_MAX` share the first, larger ones the second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

ORDINARY_FRAME_MAX: Final = 2 << 20
"""Bytes; twice what producers send by default (max.request.size and max.message.bytes are 1 MB)."""
ORDINARY_CAPACITY: Final = 32 << 20
"""Bytes of the ordinary lane: sixteen of its largest frames."""

_RETAINED_MAX: Final = 8 << 20
"""Bytes of buffers kept for the next large frame; a fresh one costs a page fault for every 4 KiB."""


class Reservation:
    """A place in a lane: waiting, or held."""

    __slots__ = ("granted", "lane", "on_granted", "size")

    def __init__(self, lane: Lane, size: int, on_granted: Callable[[], None]) -> None:
        self.lane = lane
        self.size = size
        self.on_granted = on_granted
        self.granted = False


class Lane:
    """Bytes handed out in order of arrival."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free = capacity
        self._waiting: deque[Reservation] = deque()

    @property
    def waiting(self) -> int:
        """Reservations that wait."""
        return len(self._waiting)

    def reserve(self, size: int, on_granted: Callable[[], None]) -> Reservation:
        """Takes `size` bytes, at most the capacity, now (`granted`); else `on_granted` is called in its turn."""
        if size > self.capacity:
            raise ValueError(f"{size} bytes can never be granted by a lane of {self.capacity}.")
        reservation = Reservation(self, size, on_granted)
        if self._waiting or size > self.free:
            self._waiting.append(reservation)
        else:
            self.free -= size
            reservation.granted = True
        return reservation

    def release(self, reservation: Reservation) -> None:
        """Gives held bytes back, or the place in the queue."""
        if reservation.granted:
            reservation.granted = False
            self.free += reservation.size
        else:
            self._waiting.remove(reservation)
        while self._waiting and self._waiting[0].size <= self.free:
            following = self._waiting.popleft()
            self.free -= following.size
            following.granted = True
            following.on_granted()


class ByteBudget:
    """The lanes of one broker, and the buffers that it keeps for reuse."""

    def __init__(self, request_bytes_max: int, queued_bytes_max: int = -1) -> None:
        """`request_bytes_max`: socket.request.max.bytes; `queued_bytes_max`: queued.max.request.bytes, -1 for none."""
        self._ordinary = Lane(ORDINARY_CAPACITY)
        self._large = Lane(max(request_bytes_max + 4, queued_bytes_max, ORDINARY_FRAME_MAX))
        self._retained: dict[int, list[bytearray]] = {}
        self._retained_bytes = 0

    def reserve(self, size: int, on_granted: Callable[[], None]) -> Reservation:
        """A reservation in the lane that frames of `size` bytes go through."""
        lane = self._ordinary if size <= ORDINARY_FRAME_MAX else self._large
        return lane.reserve(size, on_granted)

    def release(self, reservation: Reservation) -> None:
        reservation.lane.release(reservation)

    @property
    def crowded(self) -> bool:
        """Whether somebody waits for bytes: time to be strict with those who hold some and stall."""
        return bool(self._ordinary.waiting or self._large.waiting)

    def buffer(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes, its content arbitrary."""
        if size > ORDINARY_FRAME_MAX:
            return bytearray(size)
        rounded = 1 << (size - 1).bit_length()
        kept = self._retained.get(rounded)
        if kept:
            self._retained_bytes -= rounded
            return kept.pop()
        return bytearray(rounded)

    def recycle(self, buffer: bytearray) -> None:
        """Takes back a buffer that nobody looks at any more."""
        size = len(buffer)
        if size <= ORDINARY_FRAME_MAX and self._retained_bytes + size <= _RETAINED_MAX:
            self._retained.setdefault(size, []).append(buffer)
            self._retained_bytes += size

    def trim(self) -> None:
        """Lets the kept buffers go; called when the broker has been quiet for a while."""
        self._retained.clear()
        self._retained_bytes = 0
