"""What the share coordinator is asked about one share partition (KIP-932), and what it answers.

Each request carries a request id, by which its reply, a `StateReply`, is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId, format_topic_id
from tidelog.model.values import value
from tidelog.sharing.records import StateBatch

UNINITIALIZED_START: Final = -1
"""Of a group that begins where its setting says."""
NO_COUNT: Final = -1
"""Of records whose delivery is complete, where the leader has not said."""


class ShareKey(NamedTuple):
    """A share partition."""

    group: str
    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        """As in FindCoordinator; its hash is the partition of `__share_group_state`."""
        return f"{self.group}:{format_topic_id(self.topic_id)}:{self.partition}"


@value
class InitializeState:
    """The group begins, or begins anew, at an offset: what was stored under earlier epochs is void.

    With UNINITIALIZED_START it only wants state: what is stored already stays, under the later epoch.
    Said twice with one epoch it holds once: the second one may arrive when members have acknowledged records already.
    """

    request_id: int
    key: ShareKey
    state_epoch: int
    start_offset: int
    wall_ms: int


@value
class ReadState:
    """A leader takes the partition over: former leaders may not write any more."""

    request_id: int
    key: ShareKey
    leader_epoch: int
    wall_ms: int


@value
class WriteState:
    """What has changed since the leader's last write."""

    request_id: int
    key: ShareKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    """-1: as it was."""
    batches: Sequence[StateBatch]
    wall_ms: int
    delivery_complete_count: int = NO_COUNT


@value
class DeleteState:
    """The group is gone, or the topic."""

    request_id: int
    key: ShareKey


@value
class SummarizeState:
    """Epochs and offset, for tools. Changes nothing."""

    request_id: int
    key: ShareKey


@value
class SnapshotAll:
    """Writes what is known of every share partition anew, so that nothing before is needed. Answered by Remaining."""

    request_id: int
    wall_ms: int
    rest: Any = None
    """Keys that are left; None: all."""


@value
class ForgetTopics:
    """These topics were deleted: the state of all their share partitions goes. No reply."""

    topics: frozenset[TopicId]


@value
class StateReply:
    """NONE; INVALID_REQUEST where nothing is stored; FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    batches: Sequence[StateBatch] = ()
    delivery_complete_count: int = NO_COUNT
