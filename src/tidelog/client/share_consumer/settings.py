"""What a share consumer may be told: Kafka's settings, by its names where it has them.

Where a group begins, how long a lock lasts, how often a record is delivered, and whether records of open transactions
are, is the group's own (`tidelog configs`, resource type group: share.*), not a member's.
"""

from __future__ import annotations

import dataclasses
import enum

from tidelog.client.arguments import INT32_MAX, require_number, require_text, require_whole


class AcknowledgementMode(enum.StrEnum):
    """share.acknowledgement.mode."""

    IMPLICIT = "implicit"
    """What was given is accepted when the caller comes back for more, unless `acknowledge` said otherwise."""
    EXPLICIT = "explicit"
    """Nothing is acknowledged but by `acknowledge`."""


class AcquireMode(enum.StrEnum):
    """share.acquire.mode (KIP-1206)."""

    BATCH_OPTIMIZED = "batch_optimized"
    """Whole batches of the log: there may be some more records than were asked for."""
    RECORD_LIMIT = "record_limit"
    """Never more; brokers with ShareFetch 2 (Kafka 4.2)."""


@dataclasses.dataclass(frozen=True, slots=True)
class ShareConsumerSettings:
    """Kafka's share consumer settings.

    A fetch is answered when there are `min_bytes`, or `max_wait_ms` have passed, with at most `max_bytes` and about
    `max_poll_records` records. A member whose caller does not come back for more within `max_poll_interval_s` leaves
    the group until it does.
    """

    acknowledgement_mode: AcknowledgementMode = AcknowledgementMode.IMPLICIT
    acquire_mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED
    max_poll_records: int = 500
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    rack: str | None = None
    max_poll_interval_s: float = 300.0
    close_timeout_s: float = 30.0
    """How long `close` may try to send acknowledgements and to leave the group."""

    def __post_init__(self) -> None:
        # Plain words are taken too; compared by identity later, they must be the enumerations' own.
        object.__setattr__(self, "acknowledgement_mode", AcknowledgementMode(self.acknowledgement_mode))
        object.__setattr__(self, "acquire_mode", AcquireMode(self.acquire_mode))
        require_text("rack", self.rack)
        require_whole("max_poll_records", self.max_poll_records, least=1, most=INT32_MAX)
        for name in ("max_wait_ms", "min_bytes", "max_bytes"):
            require_whole(name, getattr(self, name), most=INT32_MAX)
        require_number("max_poll_interval_s", self.max_poll_interval_s, above=0)
        require_number("close_timeout_s", self.close_timeout_s, least=0)
