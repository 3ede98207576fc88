"""Bytes in flight: how much memory requests may take before they are handled.

A frame that doesn't fit the shared receive buffer gets a buffer of its own, and its bytes are reserved here first, in
the order in which the frames arrived. A connection without a reservation stops reading its socket, so that the kernel's
window closes and the client waits.

There are two lanes, so that a hundred requests of 100 MB never stand before an ordinary one: frames of up to
`ORDINARY_FRAME_MAX` share the first, larger ones the second.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable
from typing import Final

ORDINARY_FRAME_MAX: Final = 2 << 20
"""Bytes; twice what producers send by default (max.request.size and max.message.bytes are 1 MB)."""
ORDINARY_CAPACITY: Final = 32 << 20
"""Bytes of the ordinary lane: sixteen of its largest frames."""

UNMAP_SLICE: Final = 4 << 20
"""Bytes of a large buffer that are given back to the kernel in one turn: 100 MB at once would take 50 ms."""
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

    __slots__ = ("capacity", "free", "queue")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free = capacity
        self.queue: deque[Reservation] = deque()
        """Reservations that wait, in order of arrival."""

    def reserve(self, size: int, on_granted: Callable[[], None]) -> Reservation:
        """Takes `size` bytes, at most the capacity, now (`granted`); else `on_granted` is called in its turn."""
        if size > self.capacity:
            raise ValueError(f"{size} bytes can never be granted by a lane of {self.capacity}.")
        reservation = Reservation(self, size, on_granted)
        if self.queue or size > self.free:
            self.queue.append(reservation)
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
            self.queue.remove(reservation)
        while self.queue and self.queue[0].size <= self.free:
            following = self.queue.popleft()
            self.free -= following.size
            following.granted = True
            following.on_granted()


class ByteBudget:
    """The lanes of one broker, and the buffers that it keeps for reuse."""

    __slots__ = ("_large", "_ordinary", "_retained", "_retained_bytes", "_soon", "_unmapping")

    def __init__(
        self, request_bytes_max: int, queued_bytes_max: int, soon: Callable[[Callable[[], None]], None]
    ) -> None:
        """`request_bytes_max`: socket.request.max.bytes; `queued_bytes_max`: queued.max.request.bytes, which
        may be less (-1): one request of the greatest size always fits.

        `soon` calls back in the loop's next turn.
        """
        self._soon = soon
        self._unmapping: deque[tuple[mmap.mmap, int, Reservation]] = deque()
        """Large buffers on their way back to the kernel, and how far each has been given back."""
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
        """Whether a connection waits for bytes: those that hold some and stall are closed then."""
        return bool(self._ordinary.queue or self._large.queue)

    def buffer(self, size: int) -> bytearray | mmap.mmap:
        """A buffer of at least `size` bytes, its content arbitrary."""
        if size > ORDINARY_FRAME_MAX:
            # Pages come as they are written to. A bytearray would be cleared whole at once: 300 ms for 100 MB.
            return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        rounded = 1 << (size - 1).bit_length()
        kept = self._retained.get(rounded)
        if kept:
            self._retained_bytes -= rounded
            return kept.pop()
        return bytearray(rounded)

    def give_back(self, buffer: bytearray | mmap.mmap, reservation: Reservation) -> None:
        """Takes back a buffer that is not read any more, and, when its memory is free, the reservation."""
        if isinstance(buffer, bytearray):
            size = len(buffer)
            if self._retained_bytes + size <= _RETAINED_MAX:
                self._retained.setdefault(size, []).append(buffer)
                self._retained_bytes += size
            self.release(reservation)
            return
        if not self._unmapping:
            self._soon(self._unmap)
        self._unmapping.append((buffer, 0, reservation))

    def _unmap(self) -> None:
        """Gives a slice of the first large buffer back to the kernel; the rest in the turns that follow."""
        buffer, position, reservation = self._unmapping.popleft()
        size = min(UNMAP_SLICE, len(buffer) - position)
        buffer.madvise(mmap.MADV_DONTNEED, position, size)
        position += size
        if position < len(buffer):
            self._unmapping.appendleft((buffer, position, reservation))
        if self._unmapping:
            self._soon(self._unmap)
        if position == len(buffer):
            self.release(reservation)

    def trim(self) -> None:
        """Lets the kept buffers go; called when the broker has been quiet for a while."""
        self._retained.clear()
        self._retained_bytes = 0
