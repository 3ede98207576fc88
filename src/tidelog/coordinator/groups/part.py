"""How a subject plugs into the coordinator of groups: which events, records and deadlines are its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.coordinator.result import Result

if TYPE_CHECKING:
    from tidelog.protocol.messages import Message

GroupResult: TypeAlias = Result[Any, Any]
"""Writes are `CoordinatorRecord`s and `OffsetRecord`s."""
EventHandler: TypeAlias = Callable[[int, Any, GroupResult], None]
"""(now_ms, event, result): adds to the result's writes and replies."""
Replayer: TypeAlias = "Callable[[Any, Message | None], None]"
"""(key, value or None for a tombstone)."""
DeadlineHandler: TypeAlias = Callable[[int, int, Any, GroupResult], None]
"""(now_ms, wall_ms, the deadline's key, result)."""


class Part:
    """One subject of the coordinator: offsets, classic groups, consumer groups."""

    def handlers(self) -> Mapping[type, EventHandler]:
        """[class of the event] -> the method that decides it."""
        return {}

    def replayers(self) -> Mapping[type, Replayer]:
        """[class of a record's key] -> the method that applies the record."""
        return {}

    def deadlines(self) -> Mapping[str, DeadlineHandler]:
        """[kind: the first element of a key in `coordinator.deadlines`] -> the method to call when it is due."""
        return {}

    def loaded(self, now_ms: int, wall_ms: int, result: GroupResult) -> None:
        """The log was read to its end: sessions and rebalances begin anew, by deadlines of this part's kinds."""
