"""The store machine's server: sessions of brokers on other machines, upon the product's own `EmbeddedStore`.

A session lives as long as it is heard of within its timeout, over whatever connection; its watches are told over the
connection of the moment, or wait for the next one. The run's `StoreHistory` is told of every change as it is applied.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from sim.store_protocol import MessageProtocol
from tidelog.metadata.operations import Check, Create, Delete, Operation
from tidelog.store.client import WatchEvent
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import StoreError
from tidelog.store.tree import Tree, parent_of

if TYPE_CHECKING:
    from sim.store_history import StoreHistory
    from sim.trace import Trace
    from tidelog.ports.clock import Clock

PORT: Final = 2181
TICK_S: Final = 0.25
"""Between two looks for sessions that have timed out."""


class ServerSession:
    """One session: `event` is the callback of all its watches, so that each node has one at most."""

    def __init__(self, id: int, password: bytes, timeout_ms: int) -> None:
        self.id = id
        self.password = password
        self.timeout_ms = timeout_ms
        self.heard_ms = 0
        """When something last came from it, or when the server began to wait."""
        self.connection: _Connection | None = None
        self._unsent: list[WatchEvent] = []

    def event(self, event: WatchEvent) -> None:
        if self.connection is None:
            self._unsent.append(event)
        else:
            self.connection.send("event", event)

    def attach(self, connection: _Connection) -> None:
        """Speaks over another connection from now on."""
        if self.connection is not None:
            self.connection.session = None
            self.connection.abort()
        self.connection, connection.session = connection, self
        connection.send("session", self.id, self.password, self.timeout_ms)
        unsent, self._unsent = self._unsent, []
        for event in unsent:
            connection.send("event", event)


class StoreService:
    """See the module."""

    def __init__(self, store: EmbeddedStore, clock: Clock, history: StoreHistory, trace: Trace) -> None:
        """`store` is started."""
        self.store = store
        self._clock = clock
        self._history = history
        self._trace = trace
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[int, ServerSession] = {}
        self._ticked_ms = clock.monotonic_ms()
        for id, record in store.tree.sessions.items():
            self._sessions[id] = ServerSession(id, record.password, record.timeout_ms)
            self._sessions[id].heard_ms = self._ticked_ms
        self._loop.call_later(TICK_S, self._tick)

    def connection(self) -> _Connection:
        """A broker connects."""
        return _Connection(self)

    def end_session(self, session_id: int) -> None:
        """Expires a session, whether it is in time or not."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self._trace.record("session_ends", f"{session_id:#x}")
        if session.connection is not None:
            session.connection.session = None
            session.connection.abort()
        self._close_session(session_id)

    def _close_session(self, session_id: int) -> asyncio.Future[None]:
        owned = self._history.owned_by(session_id)
        zxid = self.store.tree.zxid
        outcome = self.store.close_session(session_id)
        if self.store.tree.zxid > zxid:
            self._history.applied(self.store.tree, owned)
        return outcome

    def delete(self, path: str) -> None:
        """Deletes an ephemeral node, as an operator's shell may."""
        stat = self._history.now(path).stat
        if stat is not None:
            self._trace.record("deleted_by_hand", path)
            # The tree does not ask who deletes: the owner's own session is as good as the shell's.
            self._transact(stat.ephemeral_owner, "transact_one", (Delete(path),))

    def _tick(self) -> None:
        self._loop.call_later(TICK_S, self._tick)
        now_ms = self._clock.monotonic_ms()
        late_ms = now_ms - self._ticked_ms - int(2000 * TICK_S)
        self._ticked_ms = now_ms
        for session in list(self._sessions.values()):
            if late_ms > 0:
                session.heard_ms += late_ms  # This machine stood still: it did not listen either.
            if now_ms - session.heard_ms > session.timeout_ms:
                self.end_session(session.id)

    # What connections bring.

    async def open(self, connection: _Connection, timeout_ms: int) -> None:
        try:
            id, record = await self.store.open_session(timeout_ms, local=False)
        except StoreError:
            connection.abort()
            return
        session = self._sessions[id] = ServerSession(id, record.password, record.timeout_ms)
        session.heard_ms = self._clock.monotonic_ms()
        self._trace.record("session_begins", f"{id:#x}")
        session.attach(connection)

    def attach(self, connection: _Connection, id: int, password: bytes) -> None:
        session = self._sessions.get(id)
        if session is None or session.password != password:
            connection.send("expired")
            return
        session.heard_ms = self._clock.monotonic_ms()
        session.attach(connection)

    def request(self, session: ServerSession, connection: _Connection, message: Any) -> None:
        xid, method, arguments, watched = message
        session.heard_ms = self._clock.monotonic_ms()
        if method == "ping":
            connection.send("result", xid, None)
            return
        outcome = self._carry_out(session, method, arguments, watched)
        outcome.add_done_callback(lambda done: self._answer(connection, xid, done))

    def _carry_out(
        self, session: ServerSession, method: str, arguments: tuple[Any, ...], watched: bool
    ) -> asyncio.Future[Any]:
        if method == "close_session":
            self._sessions.pop(session.id, None)
            return self._close_session(session.id)
        if method in ("get", "exists", "children"):
            watch = session.event if watched else None
            outcome: asyncio.Future[Any] = getattr(self.store, method)(session.id, *arguments, watch)
            return outcome
        return self._transact(session.id, method, arguments)

    def _transact(self, session_id: int, method: str, arguments: tuple[Any, ...]) -> asyncio.Future[Any]:
        operations: Sequence[Operation] = arguments[0] if method == "transact" else [arguments[0]]
        tree = self.store.tree
        zxid = tree.zxid
        paths = _touched(tree, operations)
        outcome: asyncio.Future[Any] = getattr(self.store, method)(session_id, *arguments)
        if tree.zxid > zxid:
            self._history.written_by(session_id, paths)
            self._history.applied(tree, paths)
        return outcome

    def _answer(self, connection: _Connection, xid: int, done: asyncio.Future[Any]) -> None:
        error = done.exception()
        if isinstance(error, StoreError):
            connection.send("error", xid, type(error), error.path, error.index)
        elif error is not None:
            raise error
        else:
            connection.send("result", xid, done.result())


def _touched(tree: Tree, operations: Sequence[Operation]) -> list[str]:
    """The paths that a transaction will change, the numbers of sequential nodes filled in."""
    numbers: Counter[str] = Counter()
    paths = []
    for operation in operations:
        if isinstance(operation, Create) and operation.sequential:
            parent = parent_of(operation.path)
            stat = tree.exists(parent)
            # A node's cversion counts its children's creations and deletions.
            created = 0 if stat is None else (stat.cversion + stat.num_children) // 2
            paths.append(f"{operation.path}{created + numbers[parent]:010d}")
            numbers[parent] += 1
        elif not isinstance(operation, Check):
            paths.append(operation.path)
    return paths


class _Connection(MessageProtocol):
    def __init__(self, service: StoreService) -> None:
        super().__init__()
        self._service = service
        self.session: ServerSession | None = None

    def received(self, message: Any) -> None:
        if message[0] == "open":
            asyncio.get_running_loop().create_task(self._service.open(self, message[1]))
        elif message[0] == "attach":
            self._service.attach(self, message[1], message[2])
        elif self.session is not None:
            self._service.request(self.session, self, message)

    def lost(self) -> None:
        if self.session is not None:
            self.session.connection = None
            self.session = None
