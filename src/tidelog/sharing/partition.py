"""One share partition: a partition of a topic as one share group consumes it (KIP-932). Pure.

    start_offset                                                             end_offset
    | ACKNOWLEDGED | ACQUIRED by a | AVAILABLE, 1 time | ACQUIRED by b |     not looked at yet ...

    acquire      AVAILABLE, or new     --> ACQUIRED, its lock ends at a deadline
    acknowledge  ACQUIRED by the member--> ACKNOWLEDGED | AVAILABLE | ARCHIVED, or the lock is renewed
    release, time_passed   ACQUIRED    --> AVAILABLE, or ARCHIVED at the delivery limit
    start_moved  anything below        --> gone

What has to outlive the leader is a `Change`, which the caller writes: nothing else happens to its records until
`written` or `failed` says what became of it. The start offset moves over terminal records once they are written, and
goes along with the next write.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.sharing.records import RecordState, StateBatch
from tidelog.sharing.runs import NO_MEMBER, Change, Run, Runs
from tidelog.sharing.settings import ShareSettings

RUNS_MAX: Final = 10_000
"""Runs in flight behind which no new records are acquired. While one record is held, what is behind it is settled and
stays: all of it is looked at with each acknowledgement, and is stored as one record from time to time."""


class AcknowledgeType(IntEnum):
    """As in requests."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_STATES: Final = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
    AcknowledgeType.RENEW: RecordState.ACQUIRED,
}

_NOT_ACQUIRED: Final = "The offset cannot be acknowledged. The offset is not acquired."


class ReadBatch(NamedTuple):
    """A record batch that was read from the log."""

    first_offset: int
    last_offset: int
    is_deliverable: bool = True
    """False for markers of transactions, and for what an aborted one has written where only committed is delivered."""


class Acquired(NamedTuple):
    """Records that a member got; both ends are in it."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """What a member says of records; both ends are in it."""

    first_offset: int
    last_offset: int
    types: Sequence[int]
    """One for all, or one for each."""


class SharePartition:
    """State of one partition for one group, at its leader. Offsets are those of records."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = (), settings: ShareSettings | None = None):
        """As it was stored; `batches` are sorted and disjoint. What lies between them was never delivered."""
        self.settings = ShareSettings() if settings is None else settings
        self.start_offset = start_offset
        self.end_offset = start_offset
        """Behind the last record that was acquired once."""
        self._runs = Runs()
        self._locked = 0
        """Records in flight that are not terminal: they count against partition_max_record_locks."""
        self._complete = 0
        """Records above the start offset that are terminal, or about to be."""
        self._hint = start_offset
        """No run below is available."""
        self._due: list[int] = []
        """Deadlines of locks, a heap; some of locks that are no more."""
        self._dues: set[int] = set()
        for batch in batches:
            if batch.last_offset < self.end_offset:
                continue
            if batch.first_offset > self.end_offset:
                self._extend(self.end_offset, batch.first_offset - 1, RecordState.AVAILABLE, 0)
            first = max(batch.first_offset, self.end_offset)
            self._extend(first, batch.last_offset, RecordState(batch.state), batch.delivery_count)
        self._advance()

    # What it is asked.

    @property
    def runs(self) -> Sequence[Run]:
        """In their order, not to be changed."""
        return list(self._runs)

    @property
    def delivery_complete_count(self) -> int:
        """Records above the start offset that are never delivered again (KIP-1226)."""
        return self._complete

    @property
    def records_in_flight(self) -> int:
        """Records that are locked, or were and may be delivered again."""
        return self._locked

    @property
    def has_locks(self) -> bool:
        """Whether a member holds records, or a change is being written."""
        return any(run.is_locked or run.change is not None for run in self._runs)

    @property
    def next_fetch_offset(self) -> int:
        """The first record that may be acquired, in the log already or not."""
        index = self._runs.index(self._hint)
        for position in range(max(index, 0), len(self._runs)):
            run = self._runs.at(position)
            if run.is_available:
                self._hint = max(run.first, self._hint)
                return run.first
            self._hint = run.last + 1
        self._hint = max(self._hint, self.end_offset)
        return self.end_offset

    def can_acquire(self, limit: int) -> bool:
        """Whether there is something to acquire below the offset `limit`."""
        offset = self.next_fetch_offset
        if offset >= limit:
            return False
        return offset < self.end_offset or self._has_room

    @property
    def _has_room(self) -> bool:
        """Whether records may be acquired that never were."""
        return self._locked < self.settings.partition_max_record_locks and len(self._runs) < RUNS_MAX

    @property
    def next_due_ms(self) -> int | None:
        """When `time_passed` is to be called next; monotonic."""
        return self._due[0] if self._due else None

    # Acquiring.

    def acquire(
        self,
        now_ms: int,
        member: str,
        batches: Sequence[ReadBatch],
        records_max: int,
        *,
        read_from: int = 0,
        batch_size: int = 0,
        is_strict: bool = False,
    ) -> list[Acquired]:
        """Locks for `member` what was read, `batches`, from the offset `read_from` on; sorted, each of one lock.

        `read_from` is the next fetch offset of when the read began. What was released meanwhile below it waits for the
        next read.

        About `records_max` records are acquired: whole batches, or that many at most if `is_strict` (KIP-1206). What
        is acquired is told in pieces that end with a batch once they have `batch_size` records. Offsets that no
        batch has, or that are not to be delivered, are archived. Records that were delivered often come by
        themselves, fewer each time and one by one in the end, so that one which its consumers cannot bear takes no
        others along.
        """
        acquired: list[Acquired] = []
        count = 0
        offset = max(self.next_fetch_offset, read_from)
        for batch in batches:
            if count >= records_max or batch.last_offset < offset:
                continue
            first = max(batch.first_offset, offset)
            if batch.first_offset > offset:
                self._skip(offset, batch.first_offset - 1)
            if not batch.is_deliverable:
                self._skip(first, batch.last_offset)
                offset = batch.last_offset + 1
                continue
            room = records_max - count if is_strict else batch.last_offset - first + 1
            got = self._acquire_range(now_ms, member, first, batch, room, is_first=not acquired)
            for each in got:
                count += each.last_offset - each.first_offset + 1
                _add(acquired, each, batch_size)
            if acquired and self._is_suspect(acquired[-1].delivery_count - 1):
                break
            if self.end_offset <= batch.last_offset:
                break  # Not all of it was taken in: what is behind it has to wait.
            offset = batch.last_offset + 1
            if not self._has_room and offset >= self.end_offset:
                break
        self._advance()
        return acquired

    def _is_suspect(self, delivery_count: int) -> bool:
        """Whether records that were delivered so often are to come by themselves."""
        return delivery_count >= max(2, (self.settings.delivery_count_limit + 1) // 2)

    def _suspects_max(self, delivery_count: int, batch: ReadBatch) -> int:
        """How many of the batch's records that were delivered so often are delivered together."""
        limit = self.settings.delivery_count_limit
        if delivery_count >= limit - 1:
            return 1
        halvings = delivery_count - max(2, (limit + 1) // 2) + 1
        return max(1, (batch.last_offset - batch.first_offset + 1) >> halvings)

    def _acquire_range(
        self, now_ms: int, member: str, first: int, batch: ReadBatch, room: int, *, is_first: bool
    ) -> list[Acquired]:
        """Locks what is available of a batch from `first` on, `room` records at most; suspects only if first."""
        begin, last = max(first, self.end_offset), batch.last_offset
        if last >= begin and self._has_room:
            self._extend(begin, min(last, begin + room - 1), RecordState.AVAILABLE, 0)
        last = min(last, self.end_offset - 1)
        deadline_ms = now_ms + self.settings.record_lock_duration_ms
        acquired: list[Acquired] = []
        for run in self._runs.cover(first, last) if first <= last else ():
            if not run.is_available:
                continue
            is_suspect = self._is_suspect(run.delivery_count)
            if is_suspect:
                if acquired or not is_first:
                    break
                room = min(room, self._suspects_max(run.delivery_count, batch))
            if room <= 0:
                break
            if run.length > room:
                self._runs.split(run.first + room)
            room -= run.length
            run.delivery_count += 1
            run.member, run.deadline_ms, run.state = member, deadline_ms, RecordState.ACQUIRED
            acquired.append(Acquired(run.first, run.last, run.delivery_count))
            if is_suspect:
                break
        if acquired:
            self._expect(deadline_ms)
            self._runs.join(first, last)
        return acquired

    def _skip(self, first: int, last: int) -> None:
        """There is nothing to deliver from `first` to `last`."""
        if last >= self.end_offset:
            self._extend(max(first, self.end_offset), last, RecordState.ARCHIVED, 0)
        if first > last:
            return
        for run in self._runs.cover(max(first, self.start_offset), last):
            if run.is_available:
                self._set(run, RecordState.ARCHIVED)
        self._runs.join(first, last)

    # Acknowledging.

    def acknowledge(self, now_ms: int, member: str, acknowledgements: Sequence[Acknowledgement]) -> Change:
        """What a member says of records that it holds; the change may be empty, where locks were renewed.

        KafkaError INVALID_REQUEST for what is malformed, not in ascending order or was never delivered,
        INVALID_RECORD_STATE where the member does not hold a lock, or named the record before; then nothing at all has
        changed. What lies below the start offset is passed over.
        """
        wanted: list[tuple[int, int, AcknowledgeType]] = []
        previous = -1
        for each in acknowledgements:
            if each.first_offset < previous:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The batches are not in ascending order.")
            if each.first_offset == previous >= self.start_offset:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, _NOT_ACQUIRED)
            wanted.extend(self._checked(member, each))
            previous = each.last_offset
        change = Change()
        renewed = False
        for first, last, kind in wanted:
            for run in self._runs.cover(first, last):
                if kind is AcknowledgeType.RENEW:
                    run.deadline_ms = now_ms + self.settings.record_lock_duration_ms
                    renewed = True
                else:
                    self._begin(run, _STATES[kind], change)
        if renewed:
            self._expect(now_ms + self.settings.record_lock_duration_ms)
        return change

    def _checked(self, member: str, each: Acknowledgement) -> list[tuple[int, int, AcknowledgeType]]:
        """(first, last, type) of one acknowledgement, once all of it is found to hold."""
        first, last, types = each
        pieces = _pieces(first, last, types)
        if last < self.start_offset:
            return []
        for offset, which in ((first, "first"), (last, "last")):
            if offset >= self.end_offset:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Batch record not found. The {which} offset in request is past acquired records.",
                )
        start = max(first, self.start_offset)
        for index in range(self._runs.index(start), self._runs.index(last) + 1):
            run = self._runs.at(index)
            if run.member != member and run.state is RecordState.ACQUIRED:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of offset")
            if not run.is_locked:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, _NOT_ACQUIRED)
        return [(max(begin, start), end, kind) for begin, end, kind in pieces if end >= start]

    # What ends locks without a request of the member.

    def release(self, member: str) -> Change:
        """The member's session has ended: what it holds is free.

        It has not failed with these records, so that the delivery that ends now does not count, and no limit is reached
        by it.
        """
        change = Change(takes_deliveries_back=True)
        for run in list(self._runs):
            if run.is_locked and run.member == member:
                run.delivery_count -= 1
                self._begin(run, RecordState.AVAILABLE, change)
        return change

    def time_passed(self, now_ms: int) -> Change:
        """Ends the locks whose time is over."""
        change = Change()
        if not self._due or self._due[0] > now_ms:
            return change
        while self._due and self._due[0] <= now_ms:
            self._dues.discard(heapq.heappop(self._due))
        for run in list(self._runs):
            if run.is_locked and run.deadline_ms <= now_ms:
                self._begin(run, RecordState.AVAILABLE, change)
        return change

    def start_moved(self, log_start_offset: int) -> bool:
        """The log begins at `log_start_offset`: what was below is not there any more. Whether that was news."""
        if log_start_offset <= self.start_offset:
            return False
        if log_start_offset >= self.end_offset:
            gone = self._runs.drop_before(self.end_offset)
            self.end_offset = log_start_offset
        else:
            gone = self._runs.drop_before(log_start_offset)
        self.start_offset = log_start_offset
        for run in gone:
            self._uncount(run)
            # A change that is under way finds nothing left to do.
            run.change = None
        self._advance()
        return True

    # What became of a change.

    def written(self, change: Change) -> None:
        """The change is stored: it holds."""
        for run in change.runs:
            if run.change is not change:
                # The log does not begin with it any more.
                continue
            run.change = None
            run.member = NO_MEMBER
            if run.state is RecordState.AVAILABLE:
                self._hint = min(self._hint, run.first)
        for run in change.runs:
            if run.last >= self.start_offset:
                self._runs.join(run.first, run.last)
        self._advance()

    def failed(self, now_ms: int, change: Change) -> None:
        """The change is not stored: members hold their locks as before, if their time has not come."""
        for run in change.runs:
            if run.change is change:
                run.change = None
                run.delivery_count += change.takes_deliveries_back
                self._set(run, RecordState.ACQUIRED)
                self._expect(max(run.deadline_ms, now_ms))

    # How it changes.

    def _begin(self, run: Run, state: RecordState, change: Change) -> None:
        if state is RecordState.AVAILABLE and run.delivery_count >= self.settings.delivery_count_limit:
            state = RecordState.ARCHIVED
        self._set(run, state)
        run.change = change
        change.runs.append(run)

    def _set(self, run: Run, state: RecordState) -> None:
        self._uncount(run)
        run.state = state
        self._count(run)

    def _count(self, run: Run) -> None:
        if run.state.is_terminal:
            self._complete += run.length
        else:
            self._locked += run.length

    def _uncount(self, run: Run) -> None:
        if run.state.is_terminal:
            self._complete -= run.length
        else:
            self._locked -= run.length

    def _extend(self, first: int, last: int, state: RecordState, delivery_count: int) -> None:
        if last < first:
            return
        run = Run(first, last, state, delivery_count)
        self._runs.append(run)
        self._count(run)
        self.end_offset = last + 1
        if state is RecordState.AVAILABLE:
            self._hint = min(self._hint, first)

    def _expect(self, deadline_ms: int) -> None:
        if deadline_ms not in self._dues:
            self._dues.add(deadline_ms)
            heapq.heappush(self._due, deadline_ms)

    def _advance(self) -> None:
        """The start offset moves over what is terminal and written."""
        offset = self.start_offset
        for run in self._runs:
            if not run.state.is_terminal or run.change is not None:
                break
            offset = run.last + 1
        if offset > self.start_offset:
            for run in self._runs.drop_before(offset):
                self._uncount(run)
            self.start_offset = offset
        self._hint = max(self._hint, self.start_offset)


def _pieces(first: int, last: int, types: Sequence[int]) -> list[tuple[int, int, AcknowledgeType]]:
    """(first, last, type), equal neighbours joined; KafkaError INVALID_REQUEST."""
    if first < 0 or first > last or len(types) not in (1, last - first + 1):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    try:
        kinds = [AcknowledgeType(kind) for kind in types]
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST) from error
    if len(kinds) == 1:
        return [(first, last, kinds[0])]
    pieces: list[tuple[int, int, AcknowledgeType]] = []
    for offset, kind in enumerate(kinds, first):
        if pieces and pieces[-1][2] is kind:
            pieces[-1] = (pieces[-1][0], offset, kind)
        else:
            pieces.append((offset, offset, kind))
    return pieces


def _add(acquired: list[Acquired], each: Acquired, batch_size: int) -> None:
    """Joins a lock's records with those before, unless these are a batch by themselves."""
    last = acquired[-1] if acquired else None
    if (
        last is not None
        and last.last_offset + 1 == each.first_offset
        and last.delivery_count == each.delivery_count
        and last.last_offset - last.first_offset + 1 < batch_size
    ):
        acquired[-1] = last._replace(last_offset=each.last_offset)
    else:
        acquired.append(each)
