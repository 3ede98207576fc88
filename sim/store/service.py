"""The store machine's server: sessions of brokers on other machines, upon the product's own `EmbeddedStore`.

A session lives as long as it is heard of within its timeout, over whatever connection. Its watches go with a
connection; the client brings them to the next one, with how much it has seen, and is told what it missed. The run's
`StoreHistory` is told of every change as it is applied.

Where the store is an ensemble, this is what its quorum agrees on, and brokers are connected with the `ensemble`'s
servers, which read and watch for them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from sim.store.ensemble import READS, EnsembleServer, Entry
from sim.store.protocol import AnsweringConnection
from tidelog.metadata.operations import Check, Create, Delete, Operation, SetData
from tidelog.store.client import WatchEvent
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import StoreError
from tidelog.store.tree import Applied, LostWatches, SessionRecord, Tree, parent_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.store.history import StoreHistory
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.ports.clock import Clock

PORT: Final = 2181
TICK_S: Final = 0.25
"""Between two looks for sessions that have timed out."""
WRITES: Final = frozenset({"transact", "transact_one"})
NO_WATCHES: Final = LostWatches(0, (), (), ())


class ServerSession:
    """One session: `event` is the callback of all its watches, so that each node has one at most."""

    def __init__(self, id: int, password: bytes, timeout_ms: int) -> None:
        self.id = id
        self.password = password
        self.timeout_ms = timeout_ms
        self.heard_ms = 0
        """When something last came from it, or when the server began to wait."""
        self.connection: StoreConnection | None = None

    def event(self, event: WatchEvent) -> None:
        if self.connection is not None:
            self.connection.send("event", event)

    def attach(self, connection: StoreConnection) -> None:
        """Speaks over another connection from now on."""
        if self.connection is not None:
            self.connection.part()
        self.connection, connection.session = connection, self
        connection.send("session", self.id, self.password, self.timeout_ms)


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
        self.servers: list[EnsembleServer] = []
        """None where brokers are connected with this one."""
        self.has_quorum = True
        """Without it no client is served, and no session ends."""
        self._until_break = 0
        """Writes up to the one in the middle of which its connection breaks; 0: none."""
        self._break_after = False
        """Whether that one is carried out."""
        for id, record in store.tree.sessions.items():
            self._sessions[id] = ServerSession(id, record.password, record.timeout_ms)
            self._sessions[id].heard_ms = self._ticked_ms
        self._loop.call_later(TICK_S, self._tick)

    def add_server(self, name: str, random: SeededRandom) -> EnsembleServer:
        """One more server of the ensemble, which begins with what is there."""
        server = EnsembleServer(name, self.store.tree.snapshot(), random)
        self.servers.append(server)
        return server

    def connection(self, server: EnsembleServer | None = None) -> StoreConnection:
        """A broker connects."""
        return StoreConnection(self, server)

    # Faults.

    def break_write(self, skip: int, *, carried_out: bool) -> None:
        """Breaks a connection in the middle of a write: the next one but `skip`."""
        self._until_break = 1 + skip
        self._break_after = carried_out

    def lose_quorum(self) -> None:
        """Serves no client, until `regain_quorum`: connections break, what was under way may have been carried out."""
        self.has_quorum = False
        for session in self._sessions.values():
            if session.connection is not None:
                session.connection.abort()

    def regain_quorum(self) -> None:
        """A new leader gives every session its whole timeout."""
        self.has_quorum = True
        for session in self._sessions.values():
            session.heard_ms = self._clock.monotonic_ms()

    def prolong_session(self, session_id: int) -> None:
        """A session has its whole timeout from now on, as if something had just come from it."""
        if session_id in self._sessions:
            self._sessions[session_id].heard_ms = self._clock.monotonic_ms()

    def end_session(self, session_id: int) -> None:
        """Expires a session, whether it is in time or not."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self._trace.record("session_ends", f"{session_id:#x}")
        if session.connection is not None:
            session.connection.part()
        self._close_session(session_id)

    def _close_session(self, session_id: int) -> asyncio.Future[None]:
        owned = self._history.owned_by(session_id)
        zxid, now_ms = self.store.tree.zxid, self._clock.wall_ms()
        outcome = self.store.close_session(session_id)
        if self.store.tree.zxid > zxid:
            self._history.applied(self.store.tree, owned)
            self._replicate(outcome, lambda tree: tree.close_session(session_id, now_ms))
        return outcome

    def _replicate(self, outcome: asyncio.Future[Any], apply: Callable[[Tree], Applied | None]) -> None:
        """Has the servers carry out what was just carried out here, once it is durable."""
        if not self.servers:
            return
        entry = Entry(self.store.tree.zxid, apply)

        def durable(done: asyncio.Future[Any]) -> None:
            if done.exception() is None:
                for server in self.servers:
                    server.learn(entry)

        outcome.add_done_callback(durable)

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
            if self.has_quorum and now_ms - session.heard_ms > session.timeout_ms:
                self.end_session(session.id)

    # What connections bring.

    async def open(self, connection: StoreConnection, timeout_ms: int) -> None:
        before = self.store.tree.zxid
        opening = self.store.open_session(timeout_ms, local=False)
        zxid = self.store.tree.zxid
        if zxid > before:
            id, record = list(self.store.tree.sessions.items())[-1]
            self._replicate(opening, lambda tree: _open(tree, id, record))
        try:
            id, record = await opening
        except StoreError:
            connection.abort()
            return
        session = self._sessions[id] = ServerSession(id, record.password, record.timeout_ms)
        session.heard_ms = self._clock.monotonic_ms()
        self._trace.record("session_begins", f"{id:#x}")
        if connection.server is None:
            self._attach(session, connection, NO_WATCHES)
        else:
            connection.server.after(zxid, lambda: self._attach(session, connection, NO_WATCHES))

    def attach(self, connection: StoreConnection, id: int, password: bytes, lost: LostWatches) -> None:
        session = self._sessions.get(id)
        if session is None or session.password != password:
            connection.send("expired")
            return
        if connection.server is not None and connection.server.zxid < lost.zxid:
            connection.abort()  # The client has seen what this server has not: it tries another one.
            return
        session.heard_ms = self._clock.monotonic_ms()
        self._attach(session, connection, lost)

    def _attach(self, session: ServerSession, connection: StoreConnection, lost: LostWatches) -> None:
        session.attach(connection)
        if connection.server is not None:
            connection.server.attached(connection, lost)
        else:
            self.store.rearm(session.id, session.event, lost)

    def request(self, session: ServerSession, connection: StoreConnection, message: Any) -> None:
        xid, method, arguments, watched = message
        session.heard_ms = self._clock.monotonic_ms()
        if method == "ping":
            connection.send("result", xid, None, 0)  # It says nothing of the tree.
        elif method in WRITES and self._breaks_now():
            self._trace.record("write_breaks", f"{session.id:#x}", self._break_after)
            if self._break_after:
                self.carry_out(session, method, arguments, watched).add_done_callback(asyncio.Future.exception)
            connection.abort()
        elif connection.server is not None:
            self._ask_server(connection.server, session, connection, message)
        else:
            outcome = self.carry_out(session, method, arguments, watched)
            zxid = self.store.tree.zxid
            outcome.add_done_callback(lambda done: connection.answer(xid, done, zxid))

    def _breaks_now(self) -> bool:
        if self._until_break == 0:
            return False
        self._until_break -= 1
        return self._until_break == 0

    def _ask_server(
        self, server: EnsembleServer, session: ServerSession, connection: StoreConnection, message: Any
    ) -> None:
        """Asks the server with which the connection is: writes are carried out here, and known to it later."""
        _, method, arguments, watched = message
        outcome = None if method in READS else self.carry_out(session, method, arguments, watched)
        server.request(connection, message, outcome, self.store.tree.zxid)

    def carry_out(
        self, session: ServerSession, method: str, arguments: tuple[Any, ...], watched: bool
    ) -> asyncio.Future[Any]:
        """What a session asks for, done upon the store."""
        if method == "sync":
            return self.store.sync()
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
        zxid, now_ms = tree.zxid, self._clock.wall_ms()
        paths = _touched(tree, operations)
        outcome: asyncio.Future[Any] = getattr(self.store, method)(session_id, *arguments)
        if tree.zxid > zxid:
            self._history.written_by(session_id, paths)
            writes = [operation for operation in operations if not isinstance(operation, Check)]
            data = {index: each.data for index, each in enumerate(writes) if isinstance(each, SetData)}
            self._history.applied(tree, paths, data)
            self._replicate(outcome, lambda tree: tree.transact(session_id, operations, now_ms))
        return outcome


def _open(tree: Tree, session_id: int, record: SessionRecord) -> None:
    tree.open_session(session_id, record)


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


class StoreConnection(AnsweringConnection):
    """A broker's connection, with the server of an ensemble or with the one there is."""

    def __init__(self, service: StoreService, server: EnsembleServer | None) -> None:
        super().__init__()
        self._service = service
        self.server = server
        self.session: ServerSession | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._service.has_quorum or not (self.server is None or self.server.is_open):
            self.abort()

    def received(self, message: Any) -> None:
        if message[0] == "open":
            asyncio.get_running_loop().create_task(self._service.open(self, message[1]))
        elif message[0] == "attach":
            self._service.attach(self, *message[1:])
        elif self.session is not None:
            self._service.request(self.session, self, message)

    def part(self) -> None:
        """The session goes on elsewhere, or nowhere."""
        self._left()
        self.abort()

    def lost(self) -> None:
        self._left()

    def _left(self) -> None:
        if self.session is not None:
            self._service.store.forget_watches(self.session.id, self.session.event)
            self.session.connection = None
            self.session = None
        if self.server is not None:
            self.server.left(self)
