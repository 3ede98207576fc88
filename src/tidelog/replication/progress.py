"""How far a follower has come, as its leader reckons it from its fetches (Kafka's `Replica.updateFetchState`).

A follower that has read up to the leader's log end has caught up. While records keep coming that moment never comes, so
a fetch at or past where the leader's log ended *at the fetch before* counts as caught up at the time of that one:

    fetch at t=10, leader's end 50 ... fetch at t=20 from offset 50, leader's end 80: caught up as of t=10
"""

from __future__ import annotations

from typing import Final

from tidelog.model.identifiers import BrokerEpoch, Offset

UNKNOWN_OFFSET: Final = Offset(-1)
"""The follower has not fetched since this leadership began."""
UNKNOWN_BROKER_EPOCH: Final = BrokerEpoch(-1)
"""The follower has not said which registration it fetches under."""
NEVER_MS: Final = -(1 << 62)
"""A monotonic time before all others."""


class FetchTimes:
    """When a follower last fetched in a session; the partitions of the session share one.

    An incremental session (KIP-227) names only what changed: a request that does not name a partition is a fetch at the
    same offset as before, and `latest_ms` is how the partition's leader learns of it without being called.
    """

    __slots__ = ("latest_ms",)

    def __init__(self, latest_ms: int = NEVER_MS) -> None:
        self.latest_ms = latest_ms
        """Monotonic; of the session's last request."""


class FollowerProgress:
    """One follower of one partition, within one leadership."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "fetch_ms",
        "fetch_times",
        "leader_end_at_fetch",
        "log_end",
        "log_start",
    )

    def __init__(self, caught_up_ms: int) -> None:
        self.log_end = UNKNOWN_OFFSET
        """Everything below is in its log (and on its device, where flush.messages is 1)."""
        self.log_start = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        """The registration under which it last fetched (KIP-903); never goes back."""
        self.caught_up_ms = caught_up_ms
        """Until when it is known to have had all that the leader had; `NEVER_MS` before it ever had."""
        self.fetch_ms = NEVER_MS
        """When the last fetch that named the partition came."""
        self.leader_end_at_fetch = UNKNOWN_OFFSET
        """The leader's log end then."""
        self.fetch_times = FetchTimes()

    def fetched(
        self,
        now_ms: int,
        *,
        log_end: Offset,
        log_start: Offset,
        leader_end: Offset,
        broker_epoch: BrokerEpoch,
        fetch_times: FetchTimes | None,
    ) -> None:
        """A fetch from offset `log_end` was read while the leader's log ended at `leader_end`."""
        if log_end >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif log_end >= self.leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.fetch_ms)
        self.log_end = log_end
        self.log_start = log_start
        self.leader_end_at_fetch = max(leader_end, self.leader_end_at_fetch)
        self.fetch_ms = now_ms
        self.broker_epoch = max(broker_epoch, self.broker_epoch)
        self.fetch_times = FetchTimes(now_ms) if fetch_times is None else fetch_times

    def before_leader_append(self, leader_end: Offset) -> None:
        """The leader's log, which ended at `leader_end` until now, grows: a follower that had it all had it until its
        session's last request."""
        if self.log_end >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.fetch_times.latest_ms)

    def left(self) -> None:
        """It fetches no more within its session: what the session does from now on says nothing of this partition."""
        self.fetch_times = FetchTimes(self.fetch_times.latest_ms)

    def removed_from_isr(self) -> None:
        """The controller took it out of the ISR: until it fetches again, nothing waits for it."""
        self.caught_up_ms = self.fetch_ms = NEVER_MS
        self.fetch_times = FetchTimes()

    def last_caught_up_ms(self, leader_end: Offset) -> int:
        """When it last was known to have all."""
        return max(self.caught_up_ms, self.fetch_times.latest_ms) if self.log_end >= leader_end else self.caught_up_ms

    def is_caught_up(self, now_ms: int, leader_end: Offset, lag_ms_max: int) -> bool:
        """Whether it has all, or had all at most `lag_ms_max` ago (replica.lag.time.max.ms)."""
        return self.log_end >= leader_end or now_ms - self.caught_up_ms <= lag_ms_max
