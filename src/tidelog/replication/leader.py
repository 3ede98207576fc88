"""The leader of one partition: its followers' progress, the replicas in sync, and the high watermark that follows.

The high watermark is the smallest log end among the replicas in sync. It never goes back, and four moments alone move
it (`_advance` is called there and nowhere else):

    1. this replica becomes the leader                begin
    2. the ISR changes: a replica left it             IsrCommitted, ProposalCommitted
    3. the leader's own log grows, or is flushed      Appended, Flushed; settings: FlushPolicyChanged, MinIsrChanged
    4. a follower's fetch tells its log end           FollowerFetched, after the log was read, before the answer goes

Dropping a follower that was waited for outside the ISR counts as the second (LagCheckDue, LiveBrokersChanged,
ProposalRefused).

What a replica reports as its log end is, with flush.messages=1, the flushed end: a record counts as held by a replica
when it is on its device.

**The ISR** changes by proposal to the controller, one at a time (KIP-497): `IsrProposed` goes out, `ProposalCommitted`
or `ProposalRefused` comes back. A newer state of the same leader epoch by LeaderAndIsr supersedes what is under way.
Until the answer is known the high watermark counts the *maximal* ISR: a follower that is to join counts already, one
that is to leave still counts. So whichever state the controller elects from, its members have all that was
acknowledged. A follower that has caught up and may join is waited for as well, or it could never join under load. While
the committed ISR is smaller than min.insync.replicas (or than the number of replicas, if that is less) the high
watermark stays.

**What a restart may trust**: the high watermark checkpoint is the lower bound from which a leader begins, no more: it
is cut to the log end, what lies above it is committed once the ISR has fetched it again, and nothing is ever truncated
to it. Within the life of a process a replica's high watermark does not go back, whether it leads or follows. After a
crash the checkpoint may be older than what was served; then nothing is lost, one round of fetches is waited for, and
requests for the latest offset meanwhile are told to come again (KIP-207).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, assert_never

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch
from tidelog.replication.events import (
    Appended,
    Effect,
    Event,
    Flushed,
    FlushPolicyChanged,
    FlushWanted,
    FollowerFetched,
    FollowerLeft,
    FollowerStartMoved,
    HighWatermarkAdvanced,
    IsrCommitted,
    IsrMember,
    IsrProposed,
    LagCheckDue,
    LiveBrokersChanged,
    MinIsrChanged,
    ProposalCommitted,
    ProposalRefused,
)
from tidelog.replication.progress import NEVER_MS, UNKNOWN_BROKER_EPOCH, FollowerProgress

REFUSED_REST_MS: Final = 250
"""After a refusal no replica is proposed to join for so long: the follower fetches on, maybe 1,000 times a second."""
_BACK_TO_COMMITTED: Final = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
"""Answers that leave no doubt: the proposal has not become the state, and never will."""


_NO_FOLLOWERS: Final[dict[BrokerId, FollowerProgress]] = {}


class PartitionLeader:
    """State of one leadership; a new leader epoch makes a new one."""

    __slots__ = (
        "_flush_under_way",
        "_is_live",
        "_lag_ms_max",
        "_rest_until_ms",
        "adding",
        "broker_id",
        "flush_before_acknowledge",
        "flushed_end",
        "followers",
        "high_watermark",
        "isr",
        "leader_epoch",
        "log_end",
        "min_insync_replicas",
        "partition_epoch",
        "proposal",
        "replicas",
        "start_offset",
    )

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        replicas: tuple[BrokerId, ...],
        isr: tuple[BrokerId, ...],
        log_end: Offset,
        flushed_end: Offset,
        high_watermark: Offset,
        flush_before_acknowledge: bool,
        min_insync_replicas: int,
        lag_ms_max: int,
        is_live: Callable[[BrokerId], bool],
        now_ms: int,
        adding: tuple[BrokerId, ...] = (),
    ) -> None:
        """`lag_ms_max`: replica.lag.time.max.ms; `is_live`: whether the metadata cache knows the broker as live."""
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        """As assigned; this broker is one of them."""
        self.adding = adding
        """Those of `replicas` that a reassignment is adding: they do not count until it has ended."""
        self.isr = isr
        """In-sync replicas as the controller last committed them; this broker is one of them."""
        self.start_offset = log_end
        """Where this epoch begins: a follower must reach it to join the ISR."""
        self.log_end = log_end
        self.flushed_end = flushed_end
        """Everything below is on the device; at most the log end."""
        self.high_watermark = min(high_watermark, log_end)
        """Everything below is committed. At the election: what this replica knew of it, a lower bound."""
        self.flush_before_acknowledge = flush_before_acknowledge
        self.min_insync_replicas = min_insync_replicas
        self.proposal: IsrProposed | None = None
        """What the controller is being asked for."""
        self.followers = _NO_FOLLOWERS
        """Every assigned replica but this one; replaced, never added to."""
        self._lag_ms_max = lag_ms_max
        self._is_live = is_live
        self._flush_under_way = False
        self._rest_until_ms = NEVER_MS
        self._know_followers(now_ms)

    @property
    def reported_log_end(self) -> Offset:
        """The log end that counts for the high watermark, and up to which followers may read."""
        return self.flushed_end if self.flush_before_acknowledge else self.log_end

    @property
    def effective_min_isr(self) -> int:
        """Replicas that must be in sync before anything is committed.

        min.insync.replicas, or as many as there are, if that is less: without those that a reassignment is adding, or
        a topic of one replica could not be written to while it gets two more (in Kafka it cannot).
        """
        settled = len(self.followers) + 1 - len(self.adding)
        return min(self.min_insync_replicas, max(settled, 1))

    @property
    def has_enough_replicas(self) -> bool:
        """Whether acks=all may be accepted."""
        return len(self.isr) >= self.effective_min_isr

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """Replicas in sync by the committed state or by the one that is proposed."""
        if self.proposal is None:
            return self.isr
        return (*self.isr, *(member.broker_id for member in self.proposal.isr if member.broker_id not in self.isr))

    @property
    def low_watermark(self) -> Offset | None:
        """The latest first offset that the logs of all live and all in-sync followers have reached; None without any.

        Of one that has not fetched yet it is -1. A dead one counts while it is in sync, since it may be the next
        leader: else a deposed leader that was not told yet would say that records are gone which come back with it.
        """
        counted = self.maximal_isr
        return min(
            (known.log_start for id, known in self.followers.items() if id in counted or self._is_live(id)),
            default=None,
        )

    def check_fetch(self, follower: BrokerId, broker_epoch: BrokerEpoch, *, knows_epoch: bool) -> None:
        """Refuses a fetch of a broker that is no follower of this leadership, before anything is read for it.

        KafkaError, as Kafka answers: of a broker that is not assigned UNKNOWN_LEADER_EPOCH, so that it tries again
        (this leader may not have heard of a reassignment yet), or, where it does not name the leader epoch
        (`knows_epoch`), NOT_LEADER_OR_FOLLOWER; the latter also of an earlier life of a follower (KIP-903).
        """
        progress = self.followers.get(follower)
        if progress is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Broker {follower} is none of the replicas {list(self.replicas)} in leader epoch {self.leader_epoch}.",
            )
        if UNKNOWN_BROKER_EPOCH < broker_epoch < progress.broker_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Broker {follower} fetches with epoch {broker_epoch}, and has been known by {progress.broker_epoch}.",
            )

    def begin(self, now_ms: int) -> list[Effect]:
        """What follows from the election itself: a sole in-sync replica has all its log committed."""
        effects: list[Effect] = []
        self._want_flush(effects)
        self._advance(now_ms, effects)
        return effects

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """Takes an event in; the effects are to be carried out in order. `now_ms` is monotonic.

        KafkaError, with nothing changed, where `check_fetch` refuses.
        """
        effects: list[Effect] = []
        match event:
            case Appended():
                self._appended(now_ms, event.log_end, effects)
            case Flushed(flushed_end):
                before = self.reported_log_end
                self._flush_under_way = False
                self.flushed_end = max(self.flushed_end, flushed_end)
                self._end_moved(now_ms, before, effects)
            case FlushPolicyChanged(flush_before_acknowledge):
                before = self.reported_log_end
                self.flush_before_acknowledge = flush_before_acknowledge
                self._end_moved(now_ms, before, effects)
            case MinIsrChanged(min_insync_replicas):
                self.min_insync_replicas = min_insync_replicas
                self._advance(now_ms, effects)
            case FollowerFetched():
                self._fetched(now_ms, event, effects)
            case FollowerLeft(follower, fetch_times):
                progress = self.followers.get(follower)
                if progress is not None and fetch_times in (None, progress.fetch_times):
                    progress.left()
            case LagCheckDue():
                self._propose_without_laggards(now_ms, effects)
                # Nor does the high watermark wait any more for one that was on its way into the ISR, and is not now.
                self._advance(now_ms, effects)
            case LiveBrokersChanged():
                self._advance(now_ms, effects)
            case IsrCommitted():
                if event.partition_epoch > self.partition_epoch:
                    if event.replicas:
                        self.replicas, self.adding = event.replicas, event.adding
                    self._commit(now_ms, event.isr, event.partition_epoch, effects)
            case ProposalCommitted():
                if event.proposal is self.proposal and event.partition_epoch >= self.partition_epoch:
                    self._commit(now_ms, event.isr, event.partition_epoch, effects)
            case ProposalRefused():
                if event.proposal is self.proposal and event.error in _BACK_TO_COMMITTED:
                    self.proposal = None
                    self._rest_until_ms = now_ms + REFUSED_REST_MS
                    # It may be the very member that was proposed for which the high watermark has waited.
                    self._advance(now_ms, effects)
                # After any other answer the state may be another one already, of which LeaderAndIsr will tell. Until
                # then the proposal counts, which is the cautious side.
            case _:
                assert_never(event)
        return effects

    # The leader's own log.

    def _appended(self, now_ms: int, log_end: Offset, effects: list[Effect]) -> None:
        """The hot path: each produce request comes by here."""
        before, self.log_end = self.log_end, log_end
        if self.flush_before_acknowledge:
            # Nothing counts that is not flushed.
            self._want_flush(effects)
            return
        for progress in self.followers.values():
            if progress.log_end >= before:
                progress.before_leader_append(before)
        self._advance(now_ms, effects)

    def _end_moved(self, now_ms: int, before: Offset, effects: list[Effect]) -> None:
        """What counts as the log's end, `before` until now, may be further."""
        if self.reported_log_end > before:
            for progress in self.followers.values():
                progress.before_leader_append(before)
        self._want_flush(effects)
        self._advance(now_ms, effects)

    def _want_flush(self, effects: list[Effect]) -> None:
        if self.flush_before_acknowledge and self.flushed_end < self.log_end and not self._flush_under_way:
            self._flush_under_way = True
            effects.append(FlushWanted(self.leader_epoch))

    # Followers.

    def _fetched(self, now_ms: int, event: FollowerFetched, effects: list[Effect]) -> None:
        follower = event.follower
        self.check_fetch(follower, event.broker_epoch, knows_epoch=True)
        progress = self.followers[follower]
        start_before = progress.log_start
        progress.fetched(
            now_ms,
            log_end=event.fetch_offset,
            log_start=event.log_start,
            leader_end=self.reported_log_end,
            broker_epoch=event.broker_epoch,
            fetch_times=event.fetch_times,
        )
        if progress.log_start > start_before:
            effects.append(FollowerStartMoved(follower))
        # A follower that begins earlier would bring back, as the next leader, what is said to be deleted. With the
        # answer to this fetch it hears where the leader's log begins.
        if event.log_start >= event.leader_start:
            self._propose_with(follower, progress, now_ms, effects)
        self._advance(now_ms, effects)

    def _know_followers(self, now_ms: int) -> None:
        """Keeps the progress of followers that stay assigned; of others nothing is known yet."""
        known, followers = self.followers, dict[BrokerId, FollowerProgress]()
        for id in self.replicas:
            if id != self.broker_id:
                followers[id] = known.get(id) or FollowerProgress(now_ms if id in self.isr else NEVER_MS)
        self.followers = followers or _NO_FOLLOWERS

    # The ISR.

    def _may_join(self, follower: BrokerId, progress: FollowerProgress) -> bool:
        """Invariant 8: it has all that is committed, and all with which this epoch began."""
        return progress.log_end >= self.high_watermark and progress.log_end >= self.start_offset

    def _propose_with(self, follower: BrokerId, progress: FollowerProgress, now_ms: int, effects: list[Effect]) -> None:
        if (
            self.proposal is None
            and now_ms >= self._rest_until_ms
            and follower not in self.isr
            and progress.broker_epoch != UNKNOWN_BROKER_EPOCH
            and self._may_join(follower, progress)
            and self._is_live(follower)
        ):
            self._propose((*self.isr, follower), effects)

    def _propose_without_laggards(self, now_ms: int, effects: list[Effect]) -> None:
        if self.proposal is not None:
            return
        kept = tuple(id for id in self.isr if id == self.broker_id or self._is_caught_up(id, now_ms))
        if kept != self.isr:
            self._propose(kept, effects)

    def _is_caught_up(self, follower: BrokerId, now_ms: int) -> bool:
        progress = self.followers.get(follower)
        return progress is not None and progress.is_caught_up(now_ms, self.reported_log_end, self._lag_ms_max)

    def _propose(self, isr: tuple[BrokerId, ...], effects: list[Effect]) -> None:
        members = tuple(
            IsrMember(id, self.followers[id].broker_epoch if id in self.followers else UNKNOWN_BROKER_EPOCH)
            for id in isr
        )
        self.proposal = IsrProposed(members, self.leader_epoch, self.partition_epoch)
        effects.append(self.proposal)

    def _commit(
        self, now_ms: int, isr: tuple[BrokerId, ...], partition_epoch: PartitionEpoch, effects: list[Effect]
    ) -> None:
        gone = [id for id in self.isr if id not in isr]
        self.isr, self.partition_epoch, self.proposal = isr, partition_epoch, None
        self._know_followers(now_ms)
        for id in gone:
            if id in self.followers:
                self.followers[id].removed_from_isr()
        self._advance(now_ms, effects)

    # The high watermark.

    def _advance(self, now_ms: int, effects: list[Effect]) -> None:
        """Moves the high watermark to the smallest log end among those that count, if that is further."""
        if len(self.isr) < self.min_insync_replicas and not self.has_enough_replicas:
            return
        leader_end = committed = self.reported_log_end
        if self.followers:
            maximal = self.maximal_isr
            for id, progress in self.followers.items():
                if progress.log_end < committed and (
                    id in maximal or (progress.is_caught_up(now_ms, leader_end, self._lag_ms_max) and self._is_live(id))
                ):
                    committed = progress.log_end
        if committed > self.high_watermark:
            self.high_watermark = committed
            effects.append(HighWatermarkAdvanced(committed))
