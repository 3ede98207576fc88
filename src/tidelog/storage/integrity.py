"""Looking through a segment's batches for rot: what is not what was written, whatever wrote over it.

    a read of FileRanges --> SegmentCheck.sound_end --> remembered (`Verified`)? --> yes: nothing to do
                                                        no: the batches are read and checked, and remembered

What was checked is trusted for `TRUSTED_MS`, and only while the file system says that nothing has written to the file
since (`File.version`). So a range that many readers want is checked once, and one that has to come from the device
again is checked again. Rot is told by `RottenBatch` and noted in `Findings`, from where the broker has it repaired.

What a reader that goes through a segment will want next is checked by another thread (`check_ahead`), while the reader
is sent what it has. A device is slower than both, so the reader comes up with that thread, and waits for it: to copy
the bytes out of the page cache and sum them once more would cost as much as all the rest of the read.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.records.batch import HEADER_SIZE, MAGIC, MAGIC_POSITION
from tidelog.records.batch_header import SIZE_PREFIX
from tidelog.records.integrity import check_batches
from tidelog.storage.checked_ranges import CheckUnderWay, Verified
from tidelog.storage.errors import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidelog.ports.disk import File
    from tidelog.records.epochs import EpochEntry
    from tidelog.storage.segment import Segment

_LENGTH: Final = Struct(">i")
_LENGTH_POSITION: Final = 8
_OFFSET: Final = Struct(">q")

TRUSTED_MS: Final = 300_000
"""For how long a range that was checked is not checked again."""
INLINE_BYTES_MAX: Final = 128 << 10
"""Bytes that are checked where they are asked for; more is for an I/O thread, which takes some tens of microseconds."""
AHEAD_BYTES: Final = 4 << 20
"""Bytes that are checked before a reader that goes through a segment asks for them."""
_CHUNK: Final = 512 << 10
"""Bytes read at once: few enough to be still in the processor's cache when they are summed."""
_RANGES_MAX: Final = 4
"""Ranges remembered of a segment: readers that go through it side by side."""


class Checked(NamedTuple):
    """What a walk over batches found."""

    end: int
    """Position behind the last batch that is sound."""
    next_offset: int | None
    flaw: str | None
    """What is wrong with the batch at `end`; None where the walk ended as it should."""


class SegmentCheck:
    """What is known of the log around one segment, for the batches in it to be judged by."""

    __slots__ = ("_end_offset", "_epochs", "_must_reach_end", "_now_ms", "_rotten", "_segment", "_size", "ahead")

    def __init__(
        self,
        segment: Segment,
        epochs: Sequence[EpochEntry],
        *,
        size: int,
        end_offset: int,
        now_ms: int,
        rotten: Mapping[int, int],
        must_reach_end: bool = False,
    ) -> None:
        """`size` is the segment's; `end_offset` is where the next one begins, or the log ended when it had this size,
        or later. `now_ms` is monotonic time. `rotten`: as `Segment.rotten`, what is passed by. `must_reach_end`: the
        last batch ends at `end_offset`, else some are missing.
        """
        self._segment = segment
        self._epochs = epochs
        self._end_offset = end_offset
        self._must_reach_end = must_reach_end
        self._now_ms = now_ms
        self._size = size
        self._rotten = rotten
        self.ahead: int | None = None
        """From where it is worth while to check ahead, after `sound_end`: a reader goes through the segment."""

    def sound_end(
        self, position: int, end: int, *, offset: int, is_recent: bool, blocking: bool
    ) -> tuple[int, str | None]:
        """Up to where in `position` .. `end` batches are sound, and what is wrong behind that.

        `offset` is what is read, in the batch at `position` or before it; `is_recent` says that this batch begins with
        it. Of a last batch that `end` cuts short, which readers drop, the header is checked. `WouldBlock`.
        """
        segment = self._segment
        with segment.log_file as file:
            version = file.version()
            known = self._known(position, version)
            if known is not None and known.end < end and blocking:
                known = self._await_check(position, end, known, version)
            if known is not None and end <= known.end:
                self.ahead = known.end if known.end - end < AHEAD_BYTES // 2 else None
                return end, None
            if not blocking and end - (position if known is None else known.end) > INLINE_BYTES_MAX:
                raise WouldBlock
            start, next_offset = position, offset if is_recent else None
            if known is not None:
                start, next_offset = known.end, known.next_offset
            elif not is_recent:
                start = segment.index_entry(offset, blocking=blocking).position
                next_offset = segment.base_offset if start == 0 else None
                # What lies between the index entry and `position` is walked over only; no rot in it concerns the read.
                passed = max((behind for behind in self._rotten.values() if start < behind <= position), default=start)
                if passed > start:
                    start, next_offset = passed, None
            checked = self._walk(file, start, next_offset, must=position, end=end, blocking=blocking)
        if version is not None and checked.end > start:
            self._remember(known, start, checked, version)
            self.ahead = None if known is None else checked.end
        return end if checked.flaw is None else min(checked.end, end), checked.flaw

    def check_ahead(self, position: int) -> None:
        """Checks what follows the range that is known to be sound up to `position`, so that its reader need not wait.

        It also brings that into the page cache. OSError.
        """
        with self._segment.log_file as file:
            version = file.version()
            known = self._known(position, version)
            if known is None or version is None or known.end - position >= AHEAD_BYTES:
                return
            end = min(known.end + AHEAD_BYTES, self._size)
            under_way = self._segment.check_under_way = CheckUnderWay(known.end, end)

            def note(checked: Checked) -> None:
                nonlocal known
                assert known is not None
                if checked.end > known.end:
                    known = self._remember(known, known.start, checked, version)
                    under_way.advanced()

            try:
                note(self._walk(file, known.end, known.next_offset, must=end - 1, end=end, blocking=True, note=note))
            finally:
                self._segment.check_under_way = None
                under_way.advanced(is_over=True)

    def _await_check(self, position: int, end: int, known: Verified, version: int | None) -> Verified:
        """What is known of the batches from `position` on; `known`, or up to `end` if a check under way comes there."""
        under_way = self._segment.check_under_way

        def is_enough() -> bool:
            now_known = self._known(position, version)
            return now_known is not None and now_known.end >= end

        if under_way is not None and under_way.start <= known.end < under_way.end:
            under_way.wait_until(is_enough)
        # Also a check that is over by now may have come further since.
        return self._known(position, version) or known

    @property
    def size(self) -> int:
        """Bytes of the segment that are looked at."""
        return self._size

    @property
    def end_offset(self) -> int:
        """No batch in them reaches beyond it."""
        return self._end_offset

    def walk(self, start: int, next_offset: int | None, end: int) -> Checked:
        """Checks the batches from `start` on, of which the first that ends at `end` or behind is the last.

        `next_offset` is where the batch before `start` ended, None where that is not known. OSError.
        """
        with self._segment.log_file as file:
            checked = self._walk(file, start, next_offset, must=end - 1, end=end, blocking=True)
        if checked.flaw is None and checked.end >= self._size and self.is_missing_from(checked.next_offset):
            return Checked(
                checked.end, checked.next_offset, f"is missing: the next segment begins at {self._end_offset}"
            )
        return checked

    def is_missing_from(self, next_offset: int | None) -> bool:
        """Whether batches are missing behind the segment's last one, which ends at `next_offset`."""
        return self._must_reach_end and next_offset is not None and next_offset < self._end_offset

    def _walk(
        self,
        file: File,
        start: int,
        next_offset: int | None,
        *,
        must: int,
        end: int,
        blocking: bool,
        note: Callable[[Checked], None] | None = None,
    ) -> Checked:
        """From `start` to the batch that holds the position `must`, and on to the last that ends before `end`.

        `note` is told how far it has come, each time that something was read.
        """
        position, needed, has_gap = start, 0, False
        while position < end:
            if needed:
                flaw = self._impossible_size(file, position, needed, next_offset, blocking=blocking)
                if flaw is not None:
                    return Checked(position, next_offset, flaw)
                if position > must:
                    # A batch that `end` cuts short is left unread.
                    return Checked(position, next_offset, "begins behind a gap" if has_gap else None)
            wanted = max(min(end - position, _CHUNK), needed) + HEADER_SIZE
            size = min(wanted, self._size - position)
            data = file.pread(size, position) if blocking else file.probe(size, position)
            if data is None:
                raise WouldBlock
            is_last = position + size >= self._size and len(data) == size
            sound = check_batches(
                data,
                next_offset=next_offset,
                epochs=self._epochs,
                end_offset=self._end_offset if is_last else None,
            )
            if sound.flaw is not None:
                return Checked(position + sound.end, sound.next_offset, sound.flaw)
            if sound.end == 0:
                if len(data) < size:
                    return Checked(position, next_offset, f"is cut short: {len(data)} bytes are there")
                needed, has_gap = sound.needed, sound.has_gap
                continue
            position, next_offset, needed = position + sound.end, sound.next_offset, 0
            if note is not None:
                note(Checked(position, next_offset, None))
        return Checked(position, next_offset, None)

    def following(self, position: int, next_offset: int) -> int:
        """Where the next sound batch begins behind the rotten one at `position`, before which the log had come to
        `next_offset`; the segment's size if there is none. OSError.

        Where the header's length leads to a sound batch, that is it; else the bytes are searched for one.
        """
        with self._segment.log_file as file:
            header = file.pread(HEADER_SIZE, position)
            if len(header) == HEADER_SIZE:
                behind: int = position + SIZE_PREFIX + _LENGTH.unpack_from(header, _LENGTH_POSITION)[0]
                if behind > position and self._is_sound(file, behind, next_offset):
                    return behind
            first, last = _OFFSET.pack(next_offset), _OFFSET.pack(self._end_offset)
            prefix = first[: next((at for at in range(8) if first[at] != last[at]), 8)]
            start = position + 1
            while start + HEADER_SIZE <= self._size:
                window = file.pread(min(_CHUNK, self._size - start), start)
                at = window.find(prefix)
                while 0 <= at <= len(window) - MAGIC_POSITION - 1:
                    if window[at + MAGIC_POSITION] == MAGIC and self._is_sound(file, start + at, next_offset):
                        return start + at
                    at = window.find(prefix, at + 1)
                if len(window) < _CHUNK:
                    break
                start += _CHUNK - MAGIC_POSITION
        return self._size

    def is_sound(self, position: int, next_offset: int) -> bool:
        """Whether the file goes on at `position` with a sound batch at `next_offset` or behind, or ends. OSError."""
        with self._segment.log_file as file:
            return self._is_sound(file, position, next_offset)

    def _is_sound(self, file: File, position: int, next_offset: int) -> bool:
        """Whether a sound batch begins at `position`, at an offset not below `next_offset`; true at the end."""
        if position >= self._size:
            return position == self._size
        checked = self._walk(file, position, next_offset, must=position, end=position + 1, blocking=True)
        return checked.flaw is None and checked.end > position

    def _impossible_size(
        self, file: File, position: int, size: int, next_offset: int | None, *, blocking: bool
    ) -> str | None:
        """What is wrong with the size that a header tells: so that a wrong one does not have the whole file read."""
        following = position + size
        if following > self._size:
            return f"has {size} bytes, more than the file"
        if following < self._size:
            data = file.pread(HEADER_SIZE, following) if blocking else file.probe(HEADER_SIZE, following)
            if data is None:
                raise WouldBlock
            if len(data) < HEADER_SIZE or data[MAGIC_POSITION] != MAGIC:
                return f"has {size} bytes, and no batch behind it"
            if not (next_offset or 0) <= _OFFSET.unpack_from(data)[0] <= self._end_offset:
                return f"has {size} bytes, and no batch behind it"
        return None

    def _known(self, position: int, version: int | None) -> Verified | None:
        if version is None:
            return None
        for known in self._segment.verified:
            if known.start <= position <= known.end and known.version == version and self._now_ms < known.until_ms:
                return known
        return None

    def _remember(self, known: Verified | None, start: int, checked: Checked, version: int) -> Verified:
        """Adds what was checked; beside another thread that does so the one or the other is forgotten."""
        until_ms = self._now_ms + TRUSTED_MS
        if known is not None:
            start, until_ms = known.start, known.until_ms
        others = [
            each
            for each in self._segment.verified
            if each is not known and each.version == version and not start <= each.start <= checked.end
        ]
        verified = Verified(start, checked.end, checked.next_offset, version, until_ms)
        self._segment.verified = (verified, *others[: _RANGES_MAX - 1])
        return verified
