"""What the metadata store answers when it does not do what was asked.

The numbers are those of ZooKeeper's protocol, so that the store's server and a client of a real ensemble share them.
"""

from __future__ import annotations

from typing import ClassVar


class StoreError(Exception):
    """Base of all refusals. `path` is the node concerned; `index` the operation's place in its multi, if in one."""

    code: ClassVar[int] = -1
    """ZooKeeper's error code; -1 is its system error."""

    def __init__(self, path: str = "", message: str = "", *, index: int | None = None) -> None:
        name = type(self).__name__
        super().__init__(": ".join(part for part in (name, path, message) if part))
        self.path = path
        self.index = index

    @property
    def is_the_stores(self) -> bool:
        """Whether it says nothing of what was asked: the store is overloaded, or fails within. Another try may do."""
        return type(self) is StoreError


class ConnectionLoss(StoreError):
    """The connection broke while the request was under way: it may or may not have been carried out. Read back."""

    code = -4


class Unimplemented(StoreError):
    """The store does not do that."""

    code = -6


class BadArguments(StoreError):
    """The path is malformed, or the data too large (1 MiB)."""

    code = -8


class NoNode(StoreError):
    """The node, or the parent of one to be created, does not exist."""

    code = -101


class NoAuth(StoreError):
    """The node's access list does not allow it to this session's credentials."""

    code = -102

    def __init__(self, path: str = "", message: str = "", *, index: int | None = None) -> None:
        advice = "the node's access list does not allow it: see zookeeper.digest, and who made the node"
        super().__init__(path, message or advice, index=index)


class BadVersion(StoreError):
    """The node's version is not the one expected: another client wrote. Read again and decide anew."""

    code = -103


class NoChildrenForEphemerals(StoreError):
    """An ephemeral node can have no children."""

    code = -108


class NodeExists(StoreError):
    """There is a node at that path."""

    code = -110


class NotEmpty(StoreError):
    """A node that has children cannot be deleted."""

    code = -111


class SessionExpired(StoreError):
    """The session is over and its ephemeral nodes are gone. Open a new one and start anew."""

    code = -112


class InvalidAcl(StoreError):
    """The access list is not one that this store keeps."""

    code = -114

    def __init__(self, path: str = "", message: str = "", *, index: int | None = None) -> None:
        advice = "this store does not keep such an access list: zookeeper.set.acl is for a ZooKeeper ensemble"
        super().__init__(path, message or advice, index=index)


class AuthFailed(StoreError):
    """The store does not know that way of authenticating."""

    code = -115


class NoWatcher(StoreError):
    """There is no such watch to be removed."""

    code = -121


class StoreClosed(StoreError):
    """The store or this client of it was closed."""

    code = -116


class StoreCorrupt(Exception):
    """The store's file cannot be read. The message names the file and says what to do."""


class StoreLocked(Exception):
    """Another process uses this store. The message names the directory."""
