"""Which leader epoch began at which offset: the memory that truncation after a change of leaders works from (KIP-101).

    entries   (0, 0) (3, 120) (4, 250)          epoch 0 wrote 0..119, epoch 3 wrote 120..249, epoch 4 writes from 250
    end_offset_for(3, log_end=300) -> (3, 250)   end_offset_for(1, 300) -> (0, 120)   end_offset_for(4, 300) -> (4, 300)

Both the epochs and the offsets of the entries rise strictly. The cache holds no file: the owner of the partition's
folder writes `to_checkpoint_text` into `leader-epoch-checkpoint` after a call that changed something.
"""

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from tidelog.model.identifiers import NO_LEADER_EPOCH, LeaderEpoch, Offset

UNDEFINED_OFFSET: Final = Offset(-1)
"""`end_offset_for` of an epoch that the cache cannot place."""
_CHECKPOINT_VERSION: Final = "0"


class EpochEntry(NamedTuple):
    epoch: LeaderEpoch
    start_offset: Offset
    """Offset of the first record that a leader of this epoch wrote."""


_FIRST_ALONE: Final = [EpochEntry(LeaderEpoch(0), Offset(0))]
"""The entries of most partitions: those of thousands of partitions are one object."""


class CheckpointError(ValueError):
    """The text is no leader-epoch-checkpoint; the message names the line."""


class EpochCache:
    """The epochs of one partition's log, oldest first."""

    __slots__ = ("_entries",)

    def __init__(self, entries: list[EpochEntry] | None = None) -> None:
        self._entries: list[EpochEntry] = []
        """Replaced, never changed: several partitions may have the same list. Compiled code reads it
        (`storage/_append.pyx`)."""
        for epoch, start_offset in entries or ():
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> list[EpochEntry]:
        """A copy, oldest first."""
        return self._entries.copy()

    @property
    def latest(self) -> LeaderEpoch:
        """The newest epoch, -1 if none is known."""
        return self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH

    @property
    def latest_entry(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return self._entries[0] if self._entries else None

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Notes that `epoch` begins at `start_offset`; true when that changed the cache.

        Entries that contradict the new one (an epoch or an offset that is not smaller) go: the log was truncated below
        them, or the new leader knows better.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} from offset {start_offset}: neither may be negative")
        entries = self._entries
        if entries:
            last = entries[-1]
            if last.epoch == epoch and start_offset >= last.start_offset:
                return False
            keep = min(bisect_left(entries, epoch, key=_epoch), bisect_left(entries, start_offset, key=_start_offset))
            entries = entries[:keep]
        entries = [*entries, EpochEntry(epoch, start_offset)]
        self._entries = _FIRST_ALONE if entries == _FIRST_ALONE else entries
        return True

    def take_over(self, other: "EpochCache") -> bool:
        """Knows what `other` knows from now on, and nothing else; true when that changed the cache."""
        is_new = self._entries != other._entries
        self._entries = other._entries
        return is_new

    def end_offset_for(self, epoch: LeaderEpoch, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest known epoch that is not above `epoch`, and the offset at which it ended.

        (-1, -1) when `epoch` is -1 or above every known one; the requested epoch itself with the first entry's start
        when it is below every known one (its records are gone, so that is where its part of the log ends).
        """
        entries = self._entries
        if epoch == NO_LEADER_EPOCH or not entries or epoch > entries[-1].epoch:
            return NO_LEADER_EPOCH, UNDEFINED_OFFSET
        if epoch == entries[-1].epoch:
            return epoch, log_end
        above = bisect_right(entries, epoch, key=_epoch)
        if above == 0:
            return epoch, entries[0].start_offset
        return entries[above - 1].epoch, entries[above].start_offset

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """The epoch that wrote `offset`, -1 if it lies before every known one."""
        index = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[index - 1].epoch if index else NO_LEADER_EPOCH

    def truncate_from_end(self, offset: Offset) -> bool:
        """Forgets epochs that begin at `offset` or later, as the log has been cut to end there; true if any went."""
        keep = bisect_left(self._entries, offset, key=_start_offset)
        removed = keep < len(self._entries)
        self._entries = self._entries[:keep]
        return removed

    def truncate_from_start(self, offset: Offset) -> bool:
        """Forgets what lies before `offset`, the new start of the log; true when that changed the cache.

        The epoch in which `offset` lies stays, and now begins there.
        """
        through = bisect_right(self._entries, offset, key=_start_offset)
        if through == 0:
            return False
        first = EpochEntry(self._entries[through - 1].epoch, offset)
        if through == 1 and self._entries[0] == first:
            return False
        self._entries = [first, *self._entries[through:]]
        return True

    def clear(self) -> None:
        self._entries = []

    def to_checkpoint_text(self) -> str:
        """The content of a `leader-epoch-checkpoint` file: version, count, then "epoch offset" a line."""
        lines = [
            _CHECKPOINT_VERSION,
            str(len(self._entries)),
            *(f"{entry.epoch} {entry.start_offset}" for entry in self._entries),
        ]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_checkpoint_text(cls, text: str) -> "EpochCache":
        """The inverse; `CheckpointError` naming the line when the text is not of that form."""
        lines = text.splitlines()
        if not lines or lines[0].strip() != _CHECKPOINT_VERSION:
            raise CheckpointError(
                f"line 1: version {_CHECKPOINT_VERSION} expected, found {lines[0] if lines else ''!r}"
            )
        if len(lines) < 2 or not lines[1].strip().isdecimal():
            raise CheckpointError(f"line 2: a count expected, found {lines[1] if len(lines) > 1 else ''!r}")
        count = int(lines[1])
        if count != len(lines) - 2:
            raise CheckpointError(f"line 2: {count} entries announced, {len(lines) - 2} found")
        cache = cls()
        for number, line in enumerate(lines[2:], 3):
            fields = line.split()
            if len(fields) != 2 or not all(field.isdecimal() for field in fields):
                raise CheckpointError(f"line {number}: two numbers expected (epoch, start offset), found {line!r}")
            cache.assign(LeaderEpoch(int(fields[0])), Offset(int(fields[1])))
        return cache

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochCache) and self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]  # Mutable; equal by content.

    def __repr__(self) -> str:
        return f"EpochCache({[tuple(entry) for entry in self._entries]})"


def _epoch(entry: EpochEntry) -> LeaderEpoch:
    return entry.epoch


def _start_offset(entry: EpochEntry) -> Offset:
    return entry.start_offset
