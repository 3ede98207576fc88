"""A container of numbered notifications in the store (`/config/changes`, `/kafka-acl-changes`), followed in a session.

Each node tells of one change. They may be missed: old ones are deleted by the brokers, and while a connection is down
some come and go unseen. The container counts how many were ever made; where those that are there do not explain the
count, `new` says so, and everything is to be read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.cluster.store_results import results
from tidelog.store.errors import NoAuth, NoNode, NotEmpty

if TYPE_CHECKING:
    from tidelog.store.client import Stat, StoreClient, Watch

AGE_MS_MAX: Final = 15 * 60 * 1000
"""Notifications older than the newest one by this are deleted, by the store's clock (Kafka's bound)."""


class Notifications:
    """One container, in one session with the store."""

    def __init__(self, store: StoreClient, path: str, watch: Watch) -> None:
        self._store = store
        self._watch = watch
        self.path = path
        self._position: tuple[int, int] | None = None
        """czxid of the container, and how many notifications were ever made in it."""

    async def begin(self) -> None:
        """Watches from here on; what is there already is history. StoreError, NoNode where there is no container."""
        _, stat = await self._store.children(self.path, self._watch)
        self._position = _position_of(stat)

    async def new(self) -> list[tuple[str, bytes | None]] | None:
        """Path and content of each that came since; None where some were missed. Watches for more. StoreError."""
        names, stat = await self._store.children(self.path, self._watch)
        before, now = self._position, _position_of(stat)
        self._position = now
        if before is None or before[0] != now[0]:
            return None
        fresh = sorted(name for name in names if _number_of(name) >= before[1])
        paths = [f"{self.path}/{name}" for name in fresh]
        # What this broker may not read counts as missed.
        found = await results([self._store.get(path) for path in paths], NoNode, NoAuth)
        if len(fresh) != now[1] - before[1] or None in found:
            return None
        return [(path, node[0]) for path, node in zip(paths, found, strict=True) if node is not None]

    async def purge(self) -> None:
        """Deletes old ones. StoreError."""
        names, _ = await self._store.children(self.path)
        stats = await results([self._store.exists(f"{self.path}/{name}") for name in names])
        ctimes = {name: stat.ctime for name, stat in zip(names, stats, strict=True) if stat is not None}
        oldest_ms = max(ctimes.values(), default=0) - AGE_MS_MAX
        old = [name for name, ctime in ctimes.items() if ctime < oldest_ms]
        await results([self._store.delete(f"{self.path}/{name}") for name in old], NoNode, NotEmpty, NoAuth)


def _position_of(stat: Stat) -> tuple[int, int]:
    # ZooKeeper counts creations and shows them as the count of all changes: two for each child that has gone.
    return stat.czxid, (stat.cversion + stat.num_children) // 2


def _number_of(name: str) -> int:
    digits = name[-10:]
    return int(digits) if digits.isdecimal() else -1
