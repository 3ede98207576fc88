"""What is due in classic groups: keys among their coordinator's deadlines."""

from __future__ import annotations

from typing import Final, NamedTuple

SESSION: Final = "classic-session"
JOIN: Final = "classic-join"
SYNC: Final = "classic-sync"


class ClassicDeadline(NamedTuple):
    """A key among the coordinator's deadlines."""

    kind: str
    """SESSION: no heartbeat of the member, or of the pending id, has come. JOIN: the rebalance waits no longer for
    members. SYNC: nor for their SyncGroup."""
    group_id: str
    member_id: str = ""
    """For SESSION."""
