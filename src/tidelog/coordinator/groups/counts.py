"""What coordinators of groups have decided, as plain integers for metrics: told by the records that they write."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tidelog.coordinator.groups.classic.events import SyncGroup
from tidelog.coordinator.groups.events import CLASSIC, CONSUMER, SHARE
from tidelog.coordinator.groups.offset_events import CommitOffsets, ExpireOffsets
from tidelog.coordinator.groups.share.events import PrepareOffsets
from tidelog.coordinator.records import OffsetRecord
from tidelog.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS: Final = (CLASSIC, CONSUMER, SHARE)


class GroupCounts:
    """Of all coordinators of groups on a broker, since its start."""

    __slots__ = ("commits", "deletions", "expirations", "rebalances")

    def __init__(self) -> None:
        self.rebalances: Counter[str] = Counter()
        """[kind of group] -> generations whose leader has assigned (classic), or epochs (consumer, share)."""
        self.commits = 0
        """Offsets, those of transactions included, whose end is not known yet."""
        self.deletions = 0
        """Offsets that were deleted by request, or with their topic."""
        self.expirations = 0
        """Offsets that have expired."""

    def wrote(self, event: object, writes: Sequence[Any]) -> None:
        """An event has led to these records."""
        if type(event) is CommitOffsets:
            self.commits += len(writes)
            return
        if type(event) is SyncGroup:
            # Its leader's: the one that is written down.
            self.rebalances[CLASSIC] += 1
            return
        for write in writes:
            if type(write) is OffsetRecord:
                if type(event) is ExpireOffsets:
                    self.expirations += 1
                else:
                    self.deletions += 1
            elif write.value is not None:
                key = type(write.key)
                if key is messages.ConsumerGroupMetadataKey:
                    self.rebalances[CONSUMER] += 1
                elif key is messages.ShareGroupMetadataKey and type(event) is not PrepareOffsets:
                    self.rebalances[SHARE] += 1
