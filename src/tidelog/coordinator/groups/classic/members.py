"""A member of a classic group: what it said when it joined, what it was assigned, and which of its requests wait."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Protocol(NamedTuple):
    """A way of assigning that a member supports, `range` for instance; a member names the one it likes best first."""

    name: str
    metadata: bytes
    """The member's subscription, for the leader's eyes: opaque here."""


@dataclass(slots=True)
class ClassicMember:
    """Changed by its group alone."""

    member_id: str
    instance_id: str | None
    """group.instance.id of a static member (KIP-345)."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Sequence[Protocol]
    assignment: bytes = b""
    """What the leader gave it; opaque here. Empty between a rebalance and the leader's SyncGroup."""
    join_request: int | None = None
    """Id of its JoinGroup that waits for the others."""
    sync_request: int | None = None
    """Id of its SyncGroup that waits for the leader."""
    is_new: bool = False
    """Whether its first JoinGroup is still waiting: then it does not know its id, cannot send heartbeats, and expires
    although it waits."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def needs_no_heartbeat(self) -> bool:
        """Whether a request of its that waits here says that it lives."""
        return not self.is_new and (self.join_request is not None or self.sync_request is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """What it said for that protocol; nothing if it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Container[str]) -> str | None:
        """The protocol that it likes best among the candidates."""
        return next((name for name, _ in self.protocols if name in candidates), None)


def names(protocols: Sequence[Protocol]) -> list[str]:
    """The protocols' names, each once: a request may name one twice."""
    return list(dict.fromkeys(protocol.name for protocol in protocols))
