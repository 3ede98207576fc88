"""Where the embedded store keeps its tree: a small port, and its implementation in memory.

A commit is durable when it returns. It takes several transactions merged, so that all that arrived during one fsync
share the next one. SQLite's implementation is in `tidelog.store.sqlite`; tests use the one here; a simulator has its
own, with a disk that forgets.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.store.tree import Changes, Snapshot


class PersistenceFailed(Exception):
    """A commit failed: what is on disk is what was committed before. The store must be loaded anew; never retry."""


class NoRoom(Exception):
    """A commit found no room on the disk, or no descriptor or memory: nothing of it is there; it may be tried again."""


class Persistence(Protocol):
    """Has one user at a time: one load, then commits one after the other, then one close."""

    def load(self) -> Snapshot:
        """Everything committed. May block. Raises StoreCorrupt, or StoreLocked when another process uses it."""
        ...

    async def commit(self, changes: Changes) -> None:
        """Makes the changes durable, whole or not at all. Must not block the loop.

        Raises PersistenceFailed, or NoRoom, after which the same changes may be committed, alone or with further ones.
        """
        ...

    async def close(self) -> None:
        """Releases files and locks. Idempotent."""
        ...


class MemoryPersistence:
    """Keeps what was committed for as long as the object lives; durable at once."""

    def __init__(self) -> None:
        self.committed = Snapshot()

    def load(self) -> Snapshot:
        return Snapshot(self.committed.zxid, dict(self.committed.nodes), dict(self.committed.sessions))

    async def commit(self, changes: Changes) -> None:
        self.committed.apply(changes)

    async def close(self) -> None:
        """Nothing to release."""
