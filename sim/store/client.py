"""A broker's session with the store machine: `StoreClient` over simulated connections that break.

What was on its way when a connection broke fails with ConnectionLoss: it may have been carried out or not. What is
asked while there is no connection waits for the next one, in its order. Only the server says that a session is over.

The store may be an ensemble: then the session goes on with any of its servers that has come as far as it has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from sim.invariants import require
from sim.store.protocol import MessageProtocol
from sim.store.service import PORT
from tidelog.metadata.operations import Create, Delete, Operation
from tidelog.store.client import Created, EventType, OperationResult, SessionState, Stat, Watch, WatchEvent
from tidelog.store.errors import ConnectionLoss, SessionExpired, StoreClosed, StoreError
from tidelog.store.session import OVER, StoreSession
from tidelog.store.tree import LostWatches

if TYPE_CHECKING:
    from sim.store.history import StoreHistory
    from sim.world.randomness import SeededRandom
    from tidelog.ports.network import Network

CONNECT_S_MAX: Final = 20.0
"""zookeeper.connection.timeout.ms: how long the first connection may take."""
RETRY_S: Final = (0.05, 0.5)
"""Between two tries to connect."""
CLOSE_S_MAX: Final = 2.0
"""How long a client that ends its session waits for the answer."""


class _Request:
    """Something asked, until it is answered."""

    __slots__ = ("arguments", "future", "method", "on_result", "watched")

    def __init__(
        self,
        method: str,
        arguments: tuple[Any, ...],
        future: asyncio.Future[Any],
        *,
        watched: bool = False,
        on_result: Callable[[Any], object] | None = None,
    ) -> None:
        self.method = method
        self.arguments = arguments
        self.future = future
        self.watched = watched
        self.on_result = on_result


class SimulatedStore(StoreSession):
    """`tidelog.store.client.StoreClient`; made by `connect`."""

    def __init__(
        self,
        network: Network,
        hosts: Sequence[str],
        session_timeout_ms: int,
        random: SeededRandom,
        history: StoreHistory,
    ) -> None:
        super().__init__(0, session_timeout_ms, SessionState.SUSPENDED)
        self._network = network
        self._hosts = hosts
        self._random = random
        self._history = history
        self._password = b""
        self._seen_zxid = 0
        """How far the store had come, as this session was told: it never goes back."""
        self._connection: _Connection | None = None
        self._queue: list[_Request] = []
        """Asked while there was no connection."""
        self._pending: dict[int, _Request] = {}
        self._last_xid = 0
        self._data_watches: dict[str, dict[Watch, None]] = {}
        self._child_watches: dict[str, dict[Watch, None]] = {}
        self._absent: dict[str, None] = {}
        """Those of `_data_watches` that wait for a node."""
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls,
        network: Network,
        hosts: Sequence[str],
        session_timeout_ms: int,
        random: SeededRandom,
        history: StoreHistory,
    ) -> SimulatedStore:
        """Opens a session; ConnectionLoss when the store cannot be reached for `CONNECT_S_MAX`."""
        client = cls(network, hosts, session_timeout_ms, random, history)
        client._task = client._loop.create_task(client._keep_connected())
        try:
            await asyncio.wait_for(asyncio.shield(client._opened), CONNECT_S_MAX)
        except TimeoutError:
            client._end(SessionState.CLOSED)
            raise ConnectionLoss(message="the store does not answer") from None
        return client

    # StoreClient.

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[tuple[bytes | None, Stat]]:
        since = self._known_zxid

        def check(result: tuple[bytes | None, Stat]) -> None:
            self._history.check_read(path, since, *result, has_data=True)
            if watch is not None:
                self._watch_data(path, watch, result[1])

        return self._ask("get", path, watched=watch is not None, on_result=check)

    def exists(self, path: str, watch: Watch | None = None) -> Awaitable[Stat | None]:
        since = self._known_zxid

        def check(stat: Stat | None) -> None:
            self._history.check_read(path, since, None, stat, has_data=False)
            if watch is not None:
                self._watch_data(path, watch, stat)

        return self._ask("exists", path, watched=watch is not None, on_result=check)

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[tuple[Sequence[str], Stat]]:
        since = self._known_zxid

        def check(result: tuple[Sequence[str], Stat]) -> None:
            self._history.check_read(path, since, None, result[1], has_data=False)
            if watch is not None:
                self._child_watches.setdefault(path, {})[watch] = None

        return self._ask("children", path, watched=watch is not None, on_result=check)

    @property
    def _known_zxid(self) -> int:
        """What a read that begins now must show: an ensemble's, what this session has seen; a single server's,
        whatever clients were told.
        """
        return self._seen_zxid if len(self._hosts) > 1 else self._history.acknowledged_zxid

    def _watch_data(self, path: str, watch: Watch, stat: Stat | None) -> None:
        self._data_watches.setdefault(path, {})[watch] = None
        if stat is None:
            self._absent[path] = None
        else:
            self._absent.pop(path, None)

    def sync(self) -> Awaitable[None]:
        return self._ask("sync")

    def multi(self, operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
        operations = list(operations)
        return self._ask("transact", operations, on_result=lambda results: self._check_written(operations, results))

    async def close(self) -> None:
        if self._state is SessionState.CLOSED:
            return
        if self._state is SessionState.CONNECTED:
            with contextlib.suppress(StoreError, TimeoutError):
                await asyncio.wait_for(self._ask("close_session"), CLOSE_S_MAX)
        self._end(SessionState.CLOSED)

    def _write(self, operation: Operation) -> Awaitable[Any]:
        return self._ask("transact_one", operation, on_result=lambda result: self._check_written([operation], [result]))

    def _check_written(self, operations: Sequence[Operation], results: Sequence[OperationResult]) -> None:
        touched: dict[str, Stat] = {}
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Created):
                touched[result.path] = result.stat
            elif isinstance(result, Stat):
                touched[operation.path] = result
        gone = {operation.path for operation in operations if isinstance(operation, Delete)}
        for path, stat in touched.items():
            if path not in gone and not any(isinstance(each, Create) and each.sequential for each in operations):
                self._history.check_written(path, stat)

    # Requests and answers.

    def _ask(
        self, method: str, *arguments: Any, watched: bool = False, on_result: Callable[[Any], object] | None = None
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        request = _Request(method, arguments, future, watched=watched, on_result=on_result)
        if self._state in OVER:
            future.set_exception(SessionExpired() if self._state is SessionState.EXPIRED else StoreClosed())
        elif self._connection is None:
            self._queue.append(request)
        else:
            self._send(self._connection, request)
        return future

    def _send(self, connection: _Connection, request: _Request) -> None:
        self._last_xid += 1
        self._pending[self._last_xid] = request
        connection.send(self._last_xid, request.method, request.arguments, request.watched)

    def received(self, connection: _Connection, message: Any) -> None:
        """Something came from the server."""
        if connection is not self._connection and message[0] not in ("session", "expired"):
            return
        match message:
            case ("session", session_id, password, timeout_ms):
                self._attached(connection, session_id, password, timeout_ms)
            case ("expired",):
                self._end(SessionState.EXPIRED)
            case ("event", event):
                self._fire(event)
            case ("result", xid, value, zxid):
                self._saw(zxid)
                request = self._pending.pop(xid)
                if request.on_result is not None:
                    request.on_result(value)
                if not request.future.done():
                    request.future.set_result(value)
            case ("error", xid, type, path, index, zxid):
                self._saw(zxid)
                request = self._pending.pop(xid)
                if not request.future.done():
                    request.future.set_exception(type(path, index=index))

    def _saw(self, zxid: int) -> None:
        """A server says how far it has come; 0: it does not."""
        require(16, zxid == 0 or zxid >= self._seen_zxid, f"a session that saw {self._seen_zxid} is shown {zxid}")
        self._seen_zxid = max(zxid, self._seen_zxid)

    def _attached(self, connection: _Connection, session_id: int, password: bytes, timeout_ms: int) -> None:
        if self._state is SessionState.CLOSED:
            connection.abort()
            return
        self._session_id, self._password, self._session_timeout_ms = session_id, password, timeout_ms
        self._connection = connection
        if not self._opened.done():
            self._opened.set_result(None)
        self._enter(SessionState.CONNECTED)
        if len(self._hosts) > 1:
            # This server may not know yet what became of requests that were lost with the connection to another.
            self._ask("sync")
        waiting, self._queue = self._queue, []
        for request in waiting:
            self._send(connection, request)

    def lost(self, connection: _Connection) -> None:
        """A connection is over."""
        if connection is not self._connection:
            return
        self._connection = None
        if self._state is SessionState.CONNECTED:
            self._enter(SessionState.SUSPENDED)
        self._fail(self._pending, ConnectionLoss)

    def _fail(self, requests: dict[int, _Request], error: type[StoreError]) -> None:
        failed = list(requests.values())
        requests.clear()
        for request in failed:
            if not request.future.done():
                request.future.set_exception(error())
                request.future.exception()  # Who waits is told; who was cancelled needs no warning.

    def _fire(self, event: WatchEvent) -> None:
        """Calls watches behind the results that came before the event."""
        told: dict[Watch, None] = {}
        if event.type is not EventType.NODE_CHILDREN_CHANGED:
            self._absent.pop(event.path, None)
            told |= self._data_watches.pop(event.path, {})
        if event.type in (EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED):
            told |= self._child_watches.pop(event.path, {})
        for watch in told:
            self._loop.call_soon(watch, event)

    def _end(self, state: SessionState) -> None:
        if self._state in OVER:
            self._state = state
            return
        if self._task is not None:
            self._task.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        self._data_watches.clear()
        self._child_watches.clear()
        self._enter(state)
        error = SessionExpired if state is SessionState.EXPIRED else StoreClosed
        self._fail(self._pending, error)
        queue, self._queue = self._queue, []
        self._fail(dict(enumerate(queue)), error)

    # The connection.

    async def _keep_connected(self) -> None:
        """Connects, sends pings, notices silence, and connects again, until the session is over."""
        while True:
            try:
                _, protocol = await asyncio.wait_for(
                    self._network.connect(lambda: _Connection(self), self._host(), PORT),
                    self._session_timeout_ms / 2000,
                )
            except (OSError, TimeoutError):
                await asyncio.sleep(self._random.between(*RETRY_S))
                continue
            assert isinstance(protocol, _Connection)
            if self._session_id:
                protocol.send("attach", self._session_id, self._password, self._watches())
            else:
                protocol.send("open", self._session_timeout_ms)
            await self._watch_over(protocol)
            await asyncio.sleep(self._random.between(*RETRY_S))

    def _host(self) -> str:
        return self._hosts[self._random.below(len(self._hosts))] if len(self._hosts) > 1 else self._hosts[0]

    def _watches(self) -> LostWatches:
        """For the server of another connection, which knows nothing of them."""
        present = [path for path in self._data_watches if path not in self._absent]
        return LostWatches(self._seen_zxid, present, list(self._absent), list(self._child_watches))

    async def _watch_over(self, connection: _Connection) -> None:
        """Until the connection is over, or has been silent for two thirds of the timeout."""
        while connection.transport is not None:
            await asyncio.sleep(self._session_timeout_ms / 3000)
            if connection is self._connection:
                self._ask("ping")
            if self._loop.time() - connection.heard_at > self._session_timeout_ms / 1500:
                connection.abort()
                break


class _Connection(MessageProtocol):
    def __init__(self, client: SimulatedStore) -> None:
        super().__init__()
        self._client = client
        self.heard_at = asyncio.get_running_loop().time()

    def received(self, message: Any) -> None:
        self.heard_at = asyncio.get_running_loop().time()
        self._client.received(self, message)

    def lost(self) -> None:
        self._client.lost(self)
