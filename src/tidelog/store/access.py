"""Who may do what with a node: the access lists that Kafka's brokers give theirs with zookeeper.set.acl.

Without it every client may do everything. With it a node belongs to the client that made it, by the credentials of its
session, and all others may read it; but not what has passwords in it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

READ: Final = 1
ALL: Final = 31
"""Read, write, create, delete, admin: ZooKeeper's bits."""


class Entry(NamedTuple):
    """One line of an access list."""

    permissions: int
    scheme: str
    id: str


ANYBODY: Final = Entry(ALL, "world", "anyone")
ANYBODY_READS: Final = Entry(READ, "world", "anyone")
CREATOR: Final = Entry(ALL, "auth", "")
"""The server puts the identities of the session that creates the node in its place."""

OPEN: Final = "/consumers"
"""Old consumers write below it, as any principal."""
SENSITIVE: Final = ("/config/users", "/config/brokers", "/delegation_token")
"""There are passwords, or what is as good, in these and below them."""


def access_list(path: str, *, owned: bool) -> tuple[Entry, ...]:
    """What a node at `path`, below the chroot, is created with; `owned` as zookeeper.set.acl says."""
    if not owned or path == OPEN:
        return (ANYBODY,)
    return (CREATOR,) if path.startswith(SENSITIVE) else (CREATOR, ANYBODY_READS)
