"""What happens to a partition's leader, and what it wants done.

Effects are to be carried out in the order given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch
from tidelog.model.values import value
from tidelog.replication.progress import FetchTimes


@value
class Appended:
    """The log has grown; it is not on the device yet."""

    log_end: Offset


@value
class Flushed:
    """Everything below `flushed_end` is on the device."""

    flushed_end: Offset


@value
class FlushPolicyChanged:
    """flush.messages became 1, or ceased to be: whether only flushed records count as held."""

    flush_before_acknowledge: bool


@value
class MinIsrChanged:
    """min.insync.replicas has another value."""

    min_insync_replicas: int


@value
class FollowerFetched:
    """A follower's fetch was read: it asked for `fetch_offset`, so everything below is in its log.

    Only for fetches that were answered with records or none; one that diverges, or lies outside the log, says nothing.
    """

    follower: BrokerId
    fetch_offset: Offset
    log_start: Offset
    """The first offset of the follower's own log."""
    broker_epoch: BrokerEpoch
    """Of the registration under which it fetches; -1 where it does not say."""
    leader_start: Offset
    """The first offset of the leader's log: what lies before it may have been told as deleted while the follower was
    away."""
    fetch_times: FetchTimes | None = None
    """Of its session, where the following requests need not name the partition."""


@value
class FollowerLeft:
    """A follower took the partition out of its fetch session, or the session is gone."""

    follower: BrokerId
    fetch_times: FetchTimes | None = None
    """Of that session; if the follower has fetched in another one since, that one stands. None: whichever it is."""


@value
class LagCheckDue:
    """Half of replica.lag.time.max.ms has passed since the last look for followers that lag."""


@value
class LiveBrokersChanged:
    """The metadata cache knows other brokers as live than before."""


@value
class IsrCommitted:
    """The controller's state of the partition, by LeaderAndIsr of this leader epoch: the ISR, and the version of that
    state."""

    isr: tuple[BrokerId, ...]
    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...] = ()
    """As assigned; empty: as before."""
    adding: tuple[BrokerId, ...] = ()
    """Those of them that a reassignment is adding."""


@value
class IsrMember:
    """A replica that is proposed to be in sync."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    """By which the leader knows it (KIP-903); -1 for the leader itself, and for one that has not fetched yet."""


@dataclass(frozen=True, slots=True, eq=False)
class IsrProposed:
    """The controller is to be asked for this ISR. At most one proposal of a leader is under way.

    The answer comes back as `ProposalCommitted` or `ProposalRefused` with this very object.
    """

    isr: tuple[IsrMember, ...]
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    """The version of the state that the proposal is to replace."""


@value
class ProposalCommitted:
    """The controller's answer: the state that holds now."""

    proposal: IsrProposed
    isr: tuple[BrokerId, ...]
    partition_epoch: PartitionEpoch


@value
class ProposalRefused:
    """The controller has refused it. A proposal whose outcome is unknown is repeated by the part that sends it."""

    proposal: IsrProposed
    error: ErrorCode


Event: TypeAlias = (
    Appended
    | Flushed
    | FlushPolicyChanged
    | MinIsrChanged
    | FollowerFetched
    | FollowerLeft
    | LagCheckDue
    | LiveBrokersChanged
    | IsrCommitted
    | ProposalCommitted
    | ProposalRefused
)


@value
class HighWatermarkAdvanced:
    """Everything below `offset` is committed: fetches may return it, produce requests with acks=all are done."""

    offset: Offset


@value
class FlushWanted:
    """The log is to be flushed, off the loop; `Flushed` tells when it is. At most one is under way."""

    leader_epoch: LeaderEpoch


@value
class FollowerStartMoved:
    """A follower's log begins later than before: the low watermark may have risen."""

    follower: BrokerId


Effect: TypeAlias = HighWatermarkAdvanced | FlushWanted | IsrProposed | FollowerStartMoved
