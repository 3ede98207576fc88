"""What happens to a follower's replica, and what it wants done. Effects are to be carried out in the order given."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import LeaderEpoch, Offset
from tidelog.model.values import value
from tidelog.replication.events import Flushed, FlushPolicyChanged, HighWatermarkAdvanced

_UNKNOWN: Final = Offset(-1)


class FetchPosition(NamedTuple):
    """What a fetch request says of a partition."""

    offset: Offset
    """The follower's log end: what it has not got."""
    last_fetched_epoch: LeaderEpoch
    """Epoch of the record before `offset`; -1 where the log has none."""
    log_start_offset: Offset
    """Of the follower's own log, as no crash takes it back: DeleteRecords is done when all have followed."""
    current_leader_epoch: LeaderEpoch


class EpochEnd(NamedTuple):
    """Where the leader's part of an epoch ends: the diverging epoch of a fetch's answer (KIP-595)."""

    epoch: LeaderEpoch
    end_offset: Offset


# Events.


@value
class Answered:
    """The leader's answer to the fetch of the present position."""

    error: ErrorCode
    high_watermark: Offset = _UNKNOWN
    log_start_offset: Offset = _UNKNOWN
    size: int = 0
    """Bytes of records, which the caller holds until `RecordsWanted` asks for them."""
    diverging: EpochEnd | None = None
    first_offset: Offset = _UNKNOWN
    """Base offset of the first batch in them: below the position where the leader's log begins inside of that batch."""


@value
class RecordsAppended:
    """The records of the answer are in the log."""

    log_end: Offset
    log_start: Offset


@value
class RecordsRefused:
    """They are not: CORRUPT_MESSAGE. KAFKA_STORAGE_ERROR where the own disk failed, at that or at a truncation."""

    error: ErrorCode


@value
class Truncated:
    """A truncation is done, and a power cut will not undo it."""

    log_end: Offset
    log_start: Offset


@value
class LogStartDurable:
    """The checkpoint says that the log begins at `offset`, or later: no crash takes that back."""

    offset: Offset


@value
class LeaderRange:
    """What the leader's log holds, asked for by `RangeWanted`."""

    log_start: Offset
    log_end: Offset


@value
class RangeUnknown:
    """The leader could not say."""

    error: ErrorCode


@value
class RestOver:
    """The time of `Resting` has passed."""


FollowerEvent: TypeAlias = (
    Answered
    | RecordsAppended
    | RecordsRefused
    | Truncated
    | LogStartDurable
    | LeaderRange
    | RangeUnknown
    | RestOver
    | Flushed
    | FlushPolicyChanged
)


# Effects.


@value
class RecordsWanted:
    """Append the records of this answer; `RecordsAppended` or `RecordsRefused` follows."""


@value
class TruncationWanted:
    """Remove `offset` and all that follows, durably; `Truncated` follows."""

    offset: Offset
    committed: int = 0
    """Offsets among them that were below the high watermark: an unclean election has lost them, or worse."""


@value
class NewBeginning:
    """Remove everything, durably, and go on at `offset`, the leader's log start; `Truncated` follows."""

    offset: Offset


@value
class LogStartAdvanced:
    """The leader's log begins at `offset` now: the follower's begins there, too; `LogStartDurable` follows."""

    offset: Offset


@value
class RangeWanted:
    """Ask the leader where its log begins and ends; `LeaderRange` or `RangeUnknown` follows."""


@value
class Resting:
    """No fetch for `delay_ms`; then `RestOver`."""

    delay_ms: int
    error: ErrorCode


@value
class Stopped:
    """No fetch any more, until the controller orders anew."""

    error: ErrorCode


FollowerEffect: TypeAlias = (
    RecordsWanted
    | TruncationWanted
    | NewBeginning
    | HighWatermarkAdvanced
    | LogStartAdvanced
    | RangeWanted
    | Resting
    | Stopped
)
