"""A follower of one partition: what it asks its leader for, and what the answers mean.

    FETCHING -- records ---------> APPENDING ---- appended -------> FETCHING
             -- diverging epoch -> TRUNCATING --- truncated ------> FETCHING
             -- out of range ----> LOOKING_UP --- range known ----> FETCHING, or TRUNCATING
             -- another error ---> RESTING ------ time is up -----> FETCHING
             -- fenced epoch ----> STOPPED        (the controller's next order makes a new follower)

**Truncation goes by leader epochs only (KIP-101, KIP-279), never by the high watermark.** A fetch names the epoch of
the last record that the follower has. A leader whose log knows an earlier end of that epoch, or another epoch
there, answers with what it knows: the largest epoch not above the one asked for, and where it ends. The follower looks
the same epoch up in its own log:

    both know the epoch         cut at the smaller of the two ends: up to there the logs are equal
    the follower does not       cut where its own largest epoch below it ends, and ask again with that epoch
    it knows no such epoch      cut at the leader's end of that epoch

Each round removes at least one epoch of the follower, so that it ends, and what is cut was never committed: a
committed record is on every possible leader, with its epoch.

**What a restart may trust.** The epochs after a crash are those that the batches show, plus those of the checkpoint
that begin inside the log (`storage.log_recovery`). An epoch that this broker began as a leader and wrote nothing in may
be forgotten: no record carries it. It is forgotten on purpose when a followership begins, so that the last fetched
epoch is that of the last record: had it stayed, the epoch of the next record, which may be older, would not find its
place. The high watermark of a checkpoint may be behind, for it is written from time to time; it only ever rises in a
followership, up to the log's end, and nothing is cut because of it.

**With flush.messages=1** the follower fetches from an offset only when everything below is flushed: what it asks for
is what it reports to have.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, assert_never

from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset
from tidelog.records.epochs import UNDEFINED_OFFSET
from tidelog.replication.events import Flushed, FlushPolicyChanged, HighWatermarkAdvanced
from tidelog.replication.follower_events import (
    Answered,
    EpochEnd,
    FetchPosition,
    FollowerEffect,
    FollowerEvent,
    LeaderRange,
    LogStartAdvanced,
    LogStartDurable,
    NewBeginning,
    RangeUnknown,
    RangeWanted,
    RecordsAppended,
    RecordsRefused,
    RecordsWanted,
    Resting,
    RestOver,
    Stopped,
    Truncated,
    TruncationWanted,
)

if TYPE_CHECKING:
    from tidelog.records.epochs import EpochCache

FIRST_REST_MS: Final = 20
"""The rest after a leader that does not know of its leadership yet, which mostly is a matter of milliseconds; each
further one in a row is twice as long, up to replica.fetch.backoff.ms."""
_NOT_YET: Final = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""The controller's order has reached this broker and not yet the leader."""


class Phase(Enum):
    """What a followership waits for."""

    FETCHING = "fetching"
    APPENDING = "appending"
    TRUNCATING = "truncating"
    LOOKING_UP = "looking up"
    RESTING = "resting"
    STOPPED = "stopped"


class PartitionFollower:
    """State of one followership; a new leader epoch makes a new one."""

    __slots__ = (
        "_epochs",
        "_failures",
        "_leader_high_watermark",
        "_leader_log_start",
        "flush_before_fetch",
        "flushed_end",
        "high_watermark",
        "is_in_sync",
        "leader_epoch",
        "leader_id",
        "log_end",
        "log_start",
        "phase",
        "reported_log_start",
        "rest_ms_max",
    )

    def __init__(
        self,
        *,
        leader_id: BrokerId,
        leader_epoch: LeaderEpoch,
        epochs: EpochCache,
        log_start: Offset,
        log_end: Offset,
        flushed_end: Offset,
        high_watermark: Offset,
        flush_before_fetch: bool,
        rest_ms_max: int,
        is_in_sync: bool = False,
    ) -> None:
        """`is_in_sync`: the order to follow says that this broker is in the ISR."""
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self._epochs = epochs
        """The log's own, read only here. None of them begins at the log's end."""
        self.log_start = log_start
        self.reported_log_start = log_start
        """As the leader is told: one that a crash would take back is not told yet."""
        self.log_end = log_end
        self.flushed_end = flushed_end
        """Everything below is on the device; at most the log end."""
        self.high_watermark = high_watermark
        """Everything below is committed, as far as is known here; from the log start to the log end."""
        self.flush_before_fetch = flush_before_fetch
        self.rest_ms_max = rest_ms_max
        """replica.fetch.backoff.ms"""
        self.phase = Phase.FETCHING
        self.is_in_sync = is_in_sync
        """Whether the replica was in the ISR when the followership began."""
        self._leader_high_watermark = Offset(-1)
        self._leader_log_start = Offset(-1)
        self._failures = 0
        """Answers in a row that came to nothing."""

    def position(self) -> FetchPosition | None:
        """What to fetch now; None while the follower waits for something else."""
        if self.phase is not Phase.FETCHING or (self.flush_before_fetch and self.flushed_end < self.log_end):
            return None
        return FetchPosition(self.log_end, self._epochs.latest, self.reported_log_start, self.leader_epoch)

    @property
    def has_untold_start(self) -> bool:
        """Whether the log start is not durable yet."""
        return self.reported_log_start < self.log_start

    @property
    def lag(self) -> int:
        """Records that the leader has said to be committed and that are not here."""
        return max(self._leader_high_watermark - self.log_end, 0)

    @property
    def has_all_committed(self) -> bool:
        """Whether the log goes as far as the leader's last known high watermark.

        Before the leader has said one, a replica in the ISR has all that is committed, and no other is known to.
        """
        if self._leader_high_watermark < 0:
            return self.is_in_sync
        return self._leader_high_watermark <= self.log_end

    def step(self, event: FollowerEvent) -> list[FollowerEffect]:
        """Takes an event in; the effects are to be carried out in order. An event that comes too late has none."""
        match event:
            case Answered():
                return self._answered(event) if self.phase is Phase.FETCHING else []
            case RecordsAppended(log_end, log_start):
                self.phase = Phase.FETCHING
                if log_start != self.log_start:
                    # By the log's own retention, whose files are gone.
                    self.reported_log_start = log_start
                self.log_end, self.log_start = log_end, log_start
                return self._follow()
            case RecordsRefused(error):
                return self._failed(error)
            case Truncated(log_end, log_start):
                self.phase = Phase.FETCHING
                self.log_end, self.log_start = log_end, log_start
                self.reported_log_start = log_start
                # A log that begins anew, at its end, has nothing to flush.
                self.flushed_end = log_end if log_start == log_end else min(self.flushed_end, log_end)
                self.high_watermark = max(min(self.high_watermark, log_end), log_start)
                return []
            case LogStartDurable(offset):
                self.reported_log_start = max(self.reported_log_start, min(offset, self.log_start))
                return []
            case LeaderRange(log_start, log_end):
                return self._start_over(log_start, log_end) if self.phase is Phase.LOOKING_UP else []
            case RangeUnknown(error):
                return self._failed(error) if self.phase is Phase.LOOKING_UP else []
            case RestOver():
                if self.phase is Phase.RESTING:
                    self.phase = Phase.FETCHING
                return []
            case Flushed(flushed_end):
                self.flushed_end = min(max(self.flushed_end, flushed_end), self.log_end)
                return []
            case FlushPolicyChanged(flush_before_fetch):
                self.flush_before_fetch = flush_before_fetch
                return []
            case _:
                assert_never(event)

    def begin_truncation(self) -> None:
        """The log was cut, which a power cut may still undo: nothing is fetched before `Truncated`."""
        self.phase = Phase.TRUNCATING

    # Answers.

    def _answered(self, answer: Answered) -> list[FollowerEffect]:
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.phase = Phase.LOOKING_UP
            return [RangeWanted()]
        if answer.error is not ErrorCode.NONE:
            return self._failed(answer.error)
        if answer.diverging is not None:
            return self._diverged(answer.diverging)
        self._failures = 0
        self._leader_high_watermark = answer.high_watermark
        self._leader_log_start = answer.log_start_offset
        begins_before = 0 <= answer.first_offset < self.log_end <= answer.log_start_offset
        if begins_before and self.log_start < self.log_end:
            # DeleteRecords has left the leader the end of a batch, of which this log has a beginning, or another one.
            # All that it has lies below the leader's start: only an empty log can go on with the whole batch.
            self.phase = Phase.TRUNCATING
            return [NewBeginning(answer.log_start_offset)]
        if answer.size:
            self.phase = Phase.APPENDING
            return [RecordsWanted()]
        return self._follow()

    def _follow(self) -> list[FollowerEffect]:
        """The leader's high watermark and log start, as far as the own log goes."""
        effects: list[FollowerEffect] = []
        committed = min(self._leader_high_watermark, self.log_end)
        if committed > self.high_watermark:
            self.high_watermark = committed
            effects.append(HighWatermarkAdvanced(committed))
        start = min(self._leader_log_start, self.high_watermark)
        if start > self.log_start:
            self.log_start = start
            effects.append(LogStartAdvanced(start))
        return effects

    def _failed(self, error: ErrorCode) -> list[FollowerEffect]:
        """As Kafka's AbstractFetcherThread: a fenced epoch ends the followership, else rest.

        The own disk may have refused one operation for a lack of descriptors or memory: that is tried again. A broken
        one takes its directory offline, which ends the followership by another way.
        """
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self.phase = Phase.STOPPED
            return [Stopped(error)]
        delay_ms = self.rest_ms_max
        if error in _NOT_YET:
            delay_ms = min(delay_ms, FIRST_REST_MS << min(self._failures, 16))
        self._failures += 1
        self.phase = Phase.RESTING
        return [Resting(delay_ms, error)]

    # Truncation.

    def _diverged(self, leader: EpochEnd) -> list[FollowerEffect]:
        """Kafka's getOffsetTruncationState; the epochs that it speaks of stand at the head of this file."""
        target = min(self._truncation_point(leader), self.log_end)
        if target >= self.log_end:
            # Nothing to cut where the leader sees a difference: it contradicts itself, or its answer is damaged.
            return self._failed(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._failures = 0
        self.phase = Phase.TRUNCATING
        return [TruncationWanted(target, committed=max(0, self.high_watermark - target))]

    def _truncation_point(self, leader: EpochEnd) -> Offset:
        if leader.epoch == NO_LEADER_EPOCH:
            return leader.end_offset
        epoch, end_offset = self._epochs.end_offset_for(leader.epoch, self.log_end)
        if end_offset == UNDEFINED_OFFSET:
            return leader.end_offset
        if epoch != leader.epoch:
            return end_offset
        return min(end_offset, leader.end_offset)

    def _start_over(self, leader_start: Offset, leader_end: Offset) -> list[FollowerEffect]:
        """What follows from OFFSET_OUT_OF_RANGE, once it is known what the leader has (Kafka's fetchOffsetAndTruncate).

        A log that ends below the leader's start has nothing that may still be read, and an empty one has nothing
        at all: both begin anew. Where a part is common, the epochs must decide, and the next fetch asks them. Only
        records without an epoch, from before KIP-101, leave nothing but the leader's end to go by. An epoch above the
        leader's was never given: it stands in the damaged header of a batch, which no checksum covers, and the leader
        knows nothing of it. The log is cut there.
        """
        if leader_start > self.log_end or (self.log_start == self.log_end and self.log_end > leader_end):
            self.phase = Phase.TRUNCATING
            return [NewBeginning(leader_start)]
        if self.log_end > leader_end and self._epochs.latest == NO_LEADER_EPOCH:
            self.phase = Phase.TRUNCATING
            return [TruncationWanted(leader_end, committed=max(0, self.high_watermark - leader_end))]
        damaged = next((entry for entry in self._epochs.entries if entry.epoch > self.leader_epoch), None)
        if damaged is not None and damaged.start_offset < self.log_end:
            self.phase = Phase.TRUNCATING
            target = max(damaged.start_offset, self.log_start)
            return [TruncationWanted(target, committed=max(0, self.high_watermark - target))]
        return self._failed(ErrorCode.OFFSET_OUT_OF_RANGE)
