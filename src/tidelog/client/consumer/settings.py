"""What a consumer may be told: Kafka's settings, by its names where it has them."""

from __future__ import annotations

import dataclasses
import enum

from tidelog.assignors import CONSUMERS, assignor_named
from tidelog.assignors.assignor import Assignor, is_cooperative
from tidelog.client.arguments import INT32_MAX, require_number, require_text, require_whole
from tidelog.client.fetching import READ_COMMITTED, FetchSettings


class AutoOffsetReset(enum.StrEnum):
    """Where to begin where a group has committed nothing, or what it committed is gone; NONE: with an error."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class GroupProtocol(enum.StrEnum):
    """How members get their assignment: by a leader among them, or (KIP-848) from the coordinator."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Kafka's consumer settings.

    `assignors` (partition.assignment.strategy) are names, or assignors of a user's own, in order of preference; members
    vote among those that all of them have. Partitions are kept during a rebalance only if all are cooperative.
    With GroupProtocol.CONSUMER the broker assigns, by `server_assignor` where one is named.
    `instance_id` makes the member static: it keeps its partitions over a restart within `session_timeout_s`.
    A member whose caller does not come back for more within `max_poll_interval_s` leaves its partitions to others.
    """

    assignors: tuple[str | Assignor, ...] = ("range", "cooperative-sticky")
    protocol: GroupProtocol = GroupProtocol.CLASSIC
    server_assignor: str | None = None
    instance_id: str | None = None
    rack: str | None = None
    auto_commit: bool = True
    auto_commit_interval_s: float = 5.0
    auto_offset_reset: AutoOffsetReset = AutoOffsetReset.LATEST
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 3.0
    max_poll_interval_s: float = 300.0
    close_timeout_s: float = 30.0
    """How long `close` may try to commit and to leave the group."""
    metadata_max_age_s: float = 300.0
    """How often the subscribed topics are asked for, so that new partitions are found."""
    max_poll_records: int | None = None
    """Records that a batch has at the most; None: as many as came together. A batch that is cut is decompressed again
    for each of its parts."""
    fetch: FetchSettings = dataclasses.field(default_factory=lambda: FetchSettings(partition_max_bytes=1 << 20))
    """Its `isolation` also decides whether aborted records are given out."""

    def __post_init__(self) -> None:
        # Plain words are taken too; compared by identity later, they must be the enumerations' own.
        object.__setattr__(self, "protocol", GroupProtocol(self.protocol))
        object.__setattr__(self, "auto_offset_reset", AutoOffsetReset(self.auto_offset_reset))
        for name in ("instance_id", "rack", "server_assignor"):
            require_text(name, getattr(self, name))
        if self.max_poll_records is not None:
            require_whole("max_poll_records", self.max_poll_records, least=1)
        for name in ("session_timeout_s", "max_poll_interval_s"):
            require_number(name, getattr(self, name), above=0, most=INT32_MAX / 1000)
        for name in ("heartbeat_interval_s", "auto_commit_interval_s", "metadata_max_age_s"):
            require_number(name, getattr(self, name), above=0)
        require_number("close_timeout_s", self.close_timeout_s, least=0)
        if not self.assignors:
            raise ValueError("a consumer needs an assignor")
        names = [assignor.name for assignor in self.chosen_assignors()]
        if len(set(names)) < len(names):
            raise ValueError(f"two assignors have one name: {', '.join(names)}")

    @property
    def committed_only(self) -> bool:
        """Whether records of aborted transactions are left out."""
        return self.fetch.isolation == READ_COMMITTED

    @property
    def cooperative(self) -> bool:
        """Whether partitions are kept during a rebalance: all assignors must be of that kind (KIP-429)."""
        return all(is_cooperative(assignor) for assignor in self.chosen_assignors())

    def chosen_assignors(self) -> list[Assignor]:
        """The assignors in order of preference; ValueError for a name that there is none of."""
        return [assignor_named(each, CONSUMERS) if isinstance(each, str) else each for each in self.assignors]
