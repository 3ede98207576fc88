"""The records in flight of a share partition, as runs that split where members treat them differently and join again.

Runs are contiguous: from the start offset to the end offset each record is in one run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tidelog.sharing.records import RecordState, StateBatch

NO_MEMBER: Final = ""


@dataclass(slots=True, eq=False)
class Change:
    """States that are to be written: those of its runs."""

    runs: list[Run] = field(default_factory=list)
    """Of the partition; those that are split while the change is under way are joined by what was split off."""
    takes_deliveries_back: bool = False
    """Whether the deliveries that end by it do not count."""

    def batches(self) -> list[StateBatch]:
        """What is written, neighbours joined."""
        batches: list[StateBatch] = []
        for run in sorted(self.runs, key=_first):
            last = batches[-1] if batches else None
            if last is not None and last.last_offset + 1 == run.first and last.rank == (run.delivery_count, run.state):
                batches[-1] = last._replace(last_offset=run.last)
            else:
                batches.append(StateBatch(run.first, run.last, int(run.state), run.delivery_count))
        return batches


class Run:
    """Neighbouring records of one state. Both ends are in it."""

    __slots__ = ("change", "deadline_ms", "delivery_count", "first", "last", "member", "state")

    def __init__(self, first: int, last: int, state: RecordState, delivery_count: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        """With a change under way, the state that it leads to."""
        self.delivery_count = delivery_count
        self.member = NO_MEMBER
        """That holds the lock, or held it before the change."""
        self.deadline_ms = 0
        """Monotonic; when the lock ends."""
        self.change: Change | None = None
        """That is being written, of a run that was locked until then; None: nothing is."""

    def __repr__(self) -> str:
        return f"Run({self.first}-{self.last} {self.state.name} x{self.delivery_count} {self.member})"

    @property
    def length(self) -> int:
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        """Whether it may be delivered now."""
        return self.state is RecordState.AVAILABLE and self.change is None

    @property
    def is_locked(self) -> bool:
        """Whether a member holds it, and nothing is being written about it."""
        return self.state is RecordState.ACQUIRED and self.change is None

    def cut(self, offset: int) -> Run:
        """Ends before `offset`, and gives the rest as a run of its own."""
        rest = Run(offset, self.last, self.state, self.delivery_count)
        rest.member, rest.deadline_ms, rest.change = self.member, self.deadline_ms, self.change
        if rest.change is not None:
            rest.change.runs.append(rest)
        self.last = offset - 1
        return rest

    def takes_in(self, other: Run) -> bool:
        """Whether `other`, the neighbour, is of the same kind; locks are never joined."""
        return (
            self.state is other.state
            and self.change is None
            and other.change is None
            and self.state is not RecordState.ACQUIRED
            and self.delivery_count == other.delivery_count
        )


class Runs:
    """Runs by offset."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def append(self, run: Run) -> None:
        """Adds the run that follows the last one."""
        assert not self._runs or self._runs[-1].last + 1 == run.first, "runs are contiguous"
        self._runs.append(run)

    def index(self, offset: int) -> int:
        """Where the run that has `offset` is; -1 below the first run, the last run's above it."""
        return bisect_right(self._runs, offset, key=_first) - 1

    def cover(self, first: int, last: int) -> list[Run]:
        """The runs from `first` to `last`, split so that they end there. Both offsets are within the runs."""
        start = self.split(first)
        end = self.split(last + 1)
        return self._runs[start:end]

    def split(self, offset: int) -> int:
        """Makes a run begin at `offset`; its index, or the number of runs at their end."""
        index = self.index(offset)
        if index < 0:
            return 0
        run = self._runs[index]
        if run.first == offset:
            return index
        if offset > run.last:
            return index + 1
        self._runs.insert(index + 1, run.cut(offset))
        return index + 1

    def join(self, first: int, last: int) -> None:
        """Joins equal neighbours from the run before `first` to the one behind `last`."""
        runs = self._runs
        start = max(self.index(first) - 1, 0)
        end = min(self.index(last) + 2, len(runs))
        kept: list[Run] = []
        for run in runs[start:end]:
            if kept and kept[-1].takes_in(run):
                kept[-1].last = run.last
            else:
                kept.append(run)
        runs[start:end] = kept

    def drop_before(self, offset: int) -> list[Run]:
        """Forgets what is below `offset`; the runs that are gone."""
        index = self.split(offset)
        gone = self._runs[:index]
        del self._runs[:index]
        return gone

    def at(self, index: int) -> Run:
        return self._runs[index]


def _first(run: Run) -> int:
    return run.first
