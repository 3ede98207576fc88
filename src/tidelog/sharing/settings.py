"""What a share group goes by where its partitions are led: group.share.*, and the group's own share.*."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION: Final = "by_duration"


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Kafka's defaults."""

    record_lock_duration_ms: int = 30_000
    """How long an acquired record is locked for its member."""
    delivery_count_limit: int = 5
    """A record that was delivered so often, and is released, is archived."""
    partition_max_record_locks: int = 2_000
    """Records of a partition that may be in flight: delivered or deliverable again, above the start offset."""
    auto_offset_reset: str = LATEST
    """Where a group begins: EARLIEST, LATEST, BY_DURATION."""
    reset_duration_ms: int = 0
    """With BY_DURATION: begins with the records that are no older."""
    read_committed: bool = False
    renew_enabled: bool = True
    """Whether members may renew locks (KIP-1222)."""
