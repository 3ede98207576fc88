"""The metadata store as brokers see it: one interface for the embedded store and for ZooKeeper.

**Order.** An operation takes its place in the session's order when the method is called, not when its result is
awaited. So many writes can be under way at once, as ZooKeeper clients pipeline them, and still happen in the order of
the calls:

    pending = [store.multi([check, write]) for write in writes]
    for outcome in pending:
        await outcome

A result arrives when the write is durable. Methods raise nothing themselves; awaiting raises a `StoreError`.

**Watches** are ZooKeeper's: one shot, set by a read, called on the event loop before the reader could see the change
by another read, with the event that fired it. Setting the same callback on the same node twice is one watch. `get` and
`children` on an absent node set none; `exists` does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.metadata.operations import ANY_VERSION, Operation


class Stat(NamedTuple):
    """A node's bookkeeping, ZooKeeper's names and meanings. Times are milliseconds since 1970."""

    czxid: int
    """Transaction that created the node; for /brokers/ids/N this is the broker epoch."""
    mzxid: int
    """The id (zxid) of the transaction that last changed the node's data."""
    ctime: int
    mtime: int
    version: int
    """Changes of the data."""
    cversion: int
    """Changes of the set of children (creations and deletions)."""
    aversion: int
    """Changes of the access list."""
    ephemeral_owner: int
    """Session that owns an ephemeral node; 0 for a persistent one."""
    data_length: int
    """Bytes; 0 for null."""
    num_children: int
    pzxid: int
    """Transaction that last created or deleted a child, or that created the node itself."""


class EventType(IntEnum):
    """What happened to a watched node; ZooKeeper's numbers."""

    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4


class WatchEvent(NamedTuple):
    type: EventType
    path: str


Watch: TypeAlias = Callable[[WatchEvent], None]
"""Called once, on the event loop. It must return soon and raise nothing."""


class SessionState(Enum):
    """Of the client's session with the store."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """Without connection; the session may live on or not."""
    EXPIRED = "expired"
    """Over: every later call fails with SessionExpired, watches are gone, ephemeral nodes too."""
    CLOSED = "closed"


class SessionKey(NamedTuple):
    """What a session is known by: a client that has it can go on with the session, or end it. A secret."""

    id: int
    password: bytes

    @classmethod
    def parse(cls, text: str) -> SessionKey:
        """The key that `str()` wrote; ValueError."""
        id, colon, password = text.partition(":")
        if not colon:
            raise ValueError("a session's key is two hexadecimal numbers with a colon between them")
        return cls(int(id, 16), bytes.fromhex(password))

    def __str__(self) -> str:
        return f"{self.id:#x}:{self.password.hex()}"


class Created(NamedTuple):
    """Outcome of a Create: the path (with its number, if sequential) and the new node's stat."""

    path: str
    stat: Stat


OperationResult: TypeAlias = Created | Stat | None
"""Of a Create, of a SetData, of a Delete or Check."""


class StoreClient(Protocol):
    """A session with the store."""

    @property
    def session_id(self) -> int: ...

    @property
    def session_timeout_ms(self) -> int: ...

    @property
    def state(self) -> SessionState: ...

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        """Calls `listener` at each change of `state`, on the event loop."""
        ...

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[tuple[bytes | None, Stat]]:
        """A node's data and stat. NoNode."""
        ...

    def exists(self, path: str, watch: Watch | None = None) -> Awaitable[Stat | None]:
        """A node's stat, None when it is absent; the watch fires at its creation too."""
        ...

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[tuple[Sequence[str], Stat]]:
        """Names of a node's children, sorted, and the node's stat. NoNode."""
        ...

    def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> Awaitable[Created]:
        """NodeExists, NoNode (the parent), NoChildrenForEphemerals, BadArguments."""
        ...

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Awaitable[Stat]:
        """NoNode, BadVersion, BadArguments."""
        ...

    def delete(self, path: str, version: int = ANY_VERSION) -> Awaitable[None]:
        """NoNode, BadVersion, NotEmpty."""
        ...

    def multi(self, operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
        """All or nothing, in order; raises the error of the operation that failed, with its `index`."""
        ...

    def sync(self) -> Awaitable[None]:
        """Has the reads that are asked after it show all that was durable when it was called, by any client.

        Without it a server of an ensemble may be a moment behind the others; but never behind what this session was
        told or has written, and not behind its own lost requests when a connection has broken.
        """
        ...

    def close(self) -> Awaitable[None]:
        """Ends the session: its ephemeral nodes vanish at once. Idempotent."""
        ...
