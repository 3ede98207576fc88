"""A closed segment, read from front to back in chunks of whole batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.records.batch import HEADER_SIZE, read_header
from tidelog.storage.cleaner.errors import Uncleanable
from tidelog.storage.file_names import LOG

if TYPE_CHECKING:
    from tidelog.storage.segment import Segment


class ChunkReader:
    """Chunks of `size` bytes; a batch that is larger comes alone, however large it is."""

    __slots__ = ("_segment", "_size", "position")

    def __init__(self, segment: Segment, position: int, size: int) -> None:
        self._segment = segment
        self._size = max(size, HEADER_SIZE)
        self.position = position
        """Where the next chunk begins."""

    def read(self) -> bytes:
        """The next chunk, which may end inside a batch; empty at the segment's end. OSError, `Uncleanable`."""
        return self._read(self._size)

    def _read(self, size: int) -> bytes:
        left = self._segment.size - self.position
        size = min(size, left)
        with self._segment.log_file as file:
            data = file.pread(size, self.position) if size else b""
        if len(data) < size:
            raise Uncleanable(f"{self._place} ends {left - len(data)} bytes before its time")
        return data

    def took(self, data: bytes, count: int) -> bytes | None:
        """`count` bytes of the chunk are dealt with. A larger chunk if not even its first batch was whole."""
        self.position += count
        if count:
            return None
        left = self._segment.size - self.position
        if left < HEADER_SIZE:
            raise Uncleanable(f"{self._place} ends with {left} bytes that are no batch")
        size = read_header(data).size
        if size > left:
            raise Uncleanable(f"{self._place} at {self.position} has a batch of {size} bytes where {left} are left")
        return self._read(size)

    @property
    def _place(self) -> str:
        return self._segment.path(LOG)
