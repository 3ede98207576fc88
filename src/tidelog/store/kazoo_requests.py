"""Requests, their outcomes and watches in the shapes that kazoo takes: what `ZooKeeperStore` hands to its thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.store import jute

if TYPE_CHECKING:
    from kazoo.client import KazooClient
    from kazoo.protocol.states import WatchedEvent

    from tidelog.metadata.operations import Operation
    from tidelog.store.client import OperationResult, Watch
    from tidelog.store.kazoo_handler import LoopHandler
    from tidelog.store.tree import LostWatches

DATA_WATCH: Final = "data"
CHILD_WATCH: Final = "child"
"""The tables of watches that a server keeps."""


class Outcome:
    """What kazoo takes for its AsyncResult: the way of one result to the event loop."""

    __slots__ = ("_handler", "_settle", "breaks_told", "convert", "future", "path", "watch")

    def __init__(
        self,
        handler: LoopHandler,
        settle: Callable[[Outcome, Any, BaseException | None], None],
        breaks_told: int,
        path: str,
        convert: Callable[[Any], Any],
        watch: ArmedWatch | None,
    ) -> None:
        """`settle` is called on the event loop with what kazoo has said: a value, or an error."""
        self._handler = handler
        self._settle = settle
        self.breaks_told = breaks_told
        """How often the connection had broken when the request was made, as the event loop knew."""
        self.path = path
        self.convert = convert
        """Makes the answer of kazoo's value; on the event loop."""
        self.watch = watch
        self.future: asyncio.Future[Any] = handler.loop.create_future()

    def set(self, value: Any = None) -> None:
        """On the connection's thread, before kazoo keeps the request's watch."""
        if self.watch is not None:
            self.watch.absent = value is None
        self._handler.deliver(lambda: self._settle(self, value, None))

    def set_exception(self, error: BaseException) -> None:
        self._handler.deliver(lambda: self._settle(self, None, error))


class ArmedWatch:
    """A callback on a node. Equal ones are one watch, in kazoo's tables as in ours."""

    __slots__ = ("_fired", "absent", "callback", "path", "table")

    def __init__(
        self, fired: Callable[[ArmedWatch, WatchedEvent], None], table: str, path: str, callback: Watch
    ) -> None:
        """`fired` is called on the connection's thread."""
        self._fired = fired
        self.table = table
        self.path = path
        """Absolute."""
        self.callback = callback
        self.absent = False
        """Whether there was no node when the watch was set."""

    def __call__(self, event: WatchedEvent) -> None:
        self._fired(self, event)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArmedWatch) and (self.table, self.path, self.callback) == (
            other.table,
            other.path,
            other.callback,
        )

    def __hash__(self) -> int:
        return hash((self.table, self.path, self.callback))


class SetWatches:
    """A request that kazoo does not know."""

    type = jute.OpCode.SET_WATCHES.value

    def __init__(self, watches: LostWatches) -> None:
        self._watches = watches

    def serialize(self) -> bytes:
        return jute.set_watches(self._watches)

    def deserialize(self, data: bytes, position: int) -> None:
        """The answer has no body."""


class Multi:
    """kazoo's Transaction takes no null data and returns no stats."""

    type = jute.OpCode.MULTI.value

    def __init__(self, operations: Sequence[Operation], root: str, client: KazooClient, *, owned: bool) -> None:
        self._operations = operations
        self._root = root
        self._client = client
        self._owned = owned

    def serialize(self) -> bytes:
        return jute.multi(self._operations, self._root, owned=self._owned)

    def deserialize(self, data: bytes, position: int) -> tuple[int, list[OperationResult | str | int]]:
        """The transaction's zxid, and what it did."""
        return self._client.last_zxid, jute.read_multi_results(jute.Reader(data, position))
