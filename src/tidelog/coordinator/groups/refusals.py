"""The broker's log of refusals by which a member loses its place in a group.

Logged are errors in the answers to a member's requests: the group does not know the member any more, or not by that
epoch. Where a session ends is logged by the code that ends it. So the log says why an application lost its partitions.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from tidelog.coordinator.groups.classic.events import Heartbeat, JoinGroup, SyncGroup
from tidelog.coordinator.groups.classic.group import ClassicGroup
from tidelog.coordinator.groups.consumer.events import ConsumerHeartbeat
from tidelog.coordinator.groups.modern import ModernGroup
from tidelog.coordinator.groups.offset_events import NO_GENERATION, CommitOffsets, CommitOutcome
from tidelog.coordinator.groups.share.events import ShareHeartbeat
from tidelog.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.coordinator.groups.group import Group

logger = logging.getLogger(__name__)

LINES_MAX: Final = 20
"""Lines that one coordinator writes in each `WINDOW_MS`: a group may have thousands of members, and a client that takes
no notice of a refusal asks again at once."""
WINDOW_MS: Final = 10_000

_OF_MEMBERS: Final = frozenset({CommitOffsets, ConsumerHeartbeat, Heartbeat, JoinGroup, ShareHeartbeat, SyncGroup})
_REFUSALS: Final = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)
"""Others are part of an ordinary rebalance, or told to each request of a kind."""


class RefusalLog:
    """The refusals of one coordinator, LINES_MAX in each window; how many more there were is told with the next one."""

    def __init__(self) -> None:
        self._window_ends_ms = 0
        self._lines = 0
        self._left_out = 0

    def look(self, now_ms: int, event: Any, replies: Sequence[tuple[int, Any]], groups: Mapping[str, Group]) -> None:
        """Logs what `event` was refused, if it was."""
        if type(event) not in _OF_MEMBERS:
            return
        for request_id, reply in replies:
            error = _error_of(reply) if request_id == event.request_id else ErrorCode.NONE
            if error in _REFUSALS and self._has_room(now_ms):
                logger.info(
                    "member refused: group=%s member=%s request=%s epoch=%d group_epoch=%d error=%s reason=%s",
                    event.group,
                    event.member_id,
                    type(event).__name__,
                    _named_epoch(event),
                    _present_epoch(groups.get(event.group)),
                    error.name,
                    getattr(reply, "message", None) or "none given",
                )

    def _has_room(self, now_ms: int) -> bool:
        if now_ms >= self._window_ends_ms:
            if self._left_out:
                logger.info("more members refused: count=%d", self._left_out)
            self._window_ends_ms, self._lines, self._left_out = now_ms + WINDOW_MS, 0, 0
        if self._lines < LINES_MAX:
            self._lines += 1
            return True
        self._left_out += 1
        return False


def _error_of(reply: Any) -> ErrorCode:
    """The reply's error. What a commit's member is refused for stands at each of its partitions."""
    if isinstance(reply, CommitOutcome):
        return reply.errors[0][1] if reply.errors else ErrorCode.NONE
    error: ErrorCode = reply.error
    return error


def _named_epoch(event: object) -> int:
    match event:
        case ConsumerHeartbeat() | ShareHeartbeat():
            return event.epoch
        case CommitOffsets() | Heartbeat() | SyncGroup():
            return event.generation
        case _:
            return NO_GENERATION


def _present_epoch(group: object) -> int:
    match group:
        case ClassicGroup():
            return group.generation
        case ModernGroup():
            return group.epoch
        case _:
            return NO_GENERATION
