"""Memory for the frames that connections receive: large buffers, used again once nothing looks into them.

The C library returns large blocks to the system when they are freed, and each page of the next one is then fetched from
there anew, zeroed, which takes longer than to read records into it. A frame's records are views of its buffer, so a
buffer is free again when the last view of it is gone.
"""

from __future__ import annotations

from typing import Final

LARGE: Final = 64 << 10
"""Bytes. Smaller frames get memory of their own: it comes from what the process has already."""
KEPT_BYTES_MAX: Final = 16 << 20
"""Bytes of buffers that the connections of one client keep to use again: some answers of 1 MiB, or one of many
partitions."""
_WASTE_MAX: Final = 4
"""A frame takes no buffer that is more than so many times as large: its records may be held for long."""


class FrameBuffers:
    """What the connections of one client share, on one thread."""

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._kept: list[bytearray] = []

    @property
    def kept_bytes(self) -> int:
        """Bytes of the buffers that are kept, whether they are in use or not."""
        return sum(map(len, self._kept))

    def take(self, size: int) -> bytearray | memoryview:
        """Memory of exactly `size` bytes, with whatever was in it before. It is taken until no view of it is left."""
        if size < LARGE:
            return bytearray(size)
        for buffer in self._kept:
            if size <= len(buffer) <= size * _WASTE_MAX and _is_free(buffer):
                return memoryview(buffer)[:size]
        buffer = bytearray(-(-size // LARGE) * LARGE)
        self._keep(buffer)
        return memoryview(buffer)[:size]

    def _keep(self, buffer: bytearray) -> None:
        """Keeps a buffer where there is room, also in the place of free ones, which were too small or too large."""
        if len(buffer) > self._kept_bytes_max:
            return
        excess = self.kept_bytes + len(buffer) - self._kept_bytes_max
        for other in self._kept[:]:
            if excess <= 0:
                break
            if _is_free(other):
                self._kept.remove(other)
                excess -= len(other)
        if excess <= 0:
            self._kept.append(buffer)


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of it is left: Python changes the size of no other bytearray."""
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)
    return True
