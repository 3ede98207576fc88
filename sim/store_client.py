"""A broker's session with the store machine: `StoreClient` over simulated connections that break.

What was on its way when a connection broke fails with ConnectionLoss: it may have been carried out or not. What is
asked while there is no connection waits for the next one, in its order. Only the server says that a session is over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from sim.store_protocol import MessageProtocol
from sim.store_service import PORT
from tidelog.metadata.operations import ANY_VERSION, Create, Delete, Operation, SetData
from tidelog.store.client import Created, EventType, OperationResult, SessionState, Stat, Watch, WatchEvent
from tidelog.store.errors import ConnectionLoss, SessionExpired, StoreClosed, StoreError

if TYPE_CHECKING:
    from sim.randomness import SeededRandom
    from sim.store_history import StoreHistory
    from tidelog.ports.network import Network

CONNECT_S_MAX: Final = 20.0
"""zookeeper.connection.timeout.ms: how long the first connection may take."""
RETRY_S: Final = (0.05, 0.5)
"""Between two tries to connect."""
CLOSE_S_MAX: Final = 2.0
"""How long a client that ends its session waits for the answer."""


class _Request:
    """Something asked, until it is answered."""

    __slots__ = ("arguments", "future", "method", "on_result", "since", "watched")

    def __init__(
        self,
        method: str,
        arguments: tuple[Any, ...],
        future: asyncio.Future[Any],
        since: int,
        *,
        watched: bool = False,
        on_result: Callable[[Any], object] | None = None,
    ) -> None:
        self.method = method
        self.arguments = arguments
        self.future = future
        self.since = since
        self.watched = watched
        self.on_result = on_result


class SimulatedStore:
    """`tidelog.store.client.StoreClient`; made by `connect`."""

    def __init__(
        self, network: Network, host: str, session_timeout_ms: int, random: SeededRandom, history: StoreHistory
    ) -> None:
        self._network = network
        self._host = host
        self._timeout_ms = session_timeout_ms
        self._random = random
        self._history = history
        self._session_id = 0
        self._password = b""
        self._state = SessionState.SUSPENDED
        self._listeners: list[Callable[[SessionState], None]] = []
        self._connection: _Connection | None = None
        self._queue: list[_Request] = []
        """Asked while there was no connection."""
        self._pending: dict[int, _Request] = {}
        self._last_xid = 0
        self._data_watches: dict[str, dict[Watch, None]] = {}
        self._child_watches: dict[str, dict[Watch, None]] = {}
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls, network: Network, host: str, session_timeout_ms: int, random: SeededRandom, history: StoreHistory
    ) -> SimulatedStore:
        """Opens a session; ConnectionLoss when the store cannot be reached for `CONNECT_S_MAX`."""
        client = cls(network, host, session_timeout_ms, random, history)
        client._task = client._loop.create_task(client._keep_connected())
        try:
            await asyncio.wait_for(asyncio.shield(client._opened), CONNECT_S_MAX)
        except TimeoutError:
            client._end(SessionState.CLOSED)
            raise ConnectionLoss(message="the store does not answer") from None
        return client

    # StoreClient.

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._timeout_ms

    @property
    def state(self) -> SessionState:
        return self._state

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[tuple[bytes | None, Stat]]:
        since = self._history.acknowledged_zxid

        def check(result: tuple[bytes | None, Stat]) -> None:
            self._history.check_read(path, since, *result, has_data=True)
            if watch is not None:
                self._data_watches.setdefault(path, {})[watch] = None

        return self._ask("get", path, watched=watch is not None, on_result=check)

    def exists(self, path: str, watch: Watch | None = None) -> Awaitable[Stat | None]:
        since = self._history.acknowledged_zxid

        def check(stat: Stat | None) -> None:
            self._history.check_read(path, since, None, stat, has_data=False)
            if watch is not None:
                self._data_watches.setdefault(path, {})[watch] = None

        return self._ask("exists", path, watched=watch is not None, on_result=check)

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[tuple[Sequence[str], Stat]]:
        since = self._history.acknowledged_zxid

        def check(result: tuple[Sequence[str], Stat]) -> None:
            self._history.check_read(path, since, None, result[1], has_data=False)
            if watch is not None:
                self._child_watches.setdefault(path, {})[watch] = None

        return self._ask("children", path, watched=watch is not None, on_result=check)

    def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> Awaitable[Created]:
        return self._write_one(Create(path, data, ephemeral, sequential))

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Awaitable[Stat]:
        return self._write_one(SetData(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> Awaitable[None]:
        return self._write_one(Delete(path, version))

    def multi(self, operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
        operations = list(operations)
        return self._ask("transact", operations, on_result=lambda results: self._check_written(operations, results))

    async def sync(self) -> None:
        """The store machine is one: it never shows anything older than it did before."""

    async def close(self) -> None:
        if self._state is SessionState.CLOSED:
            return
        if self._state is SessionState.CONNECTED:
            with contextlib.suppress(StoreError, TimeoutError):
                await asyncio.wait_for(self._ask("close_session"), CLOSE_S_MAX)
        self._end(SessionState.CLOSED)

    def _write_one(self, operation: Operation) -> Awaitable[Any]:
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
        request = _Request(
            method, arguments, future, self._history.acknowledged_zxid, watched=watched, on_result=on_result
        )
        if self._state in (SessionState.EXPIRED, SessionState.CLOSED):
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
            case ("result", xid, value):
                request = self._pending.pop(xid)
                if request.on_result is not None:
                    request.on_result(value)
                if not request.future.done():
                    request.future.set_result(value)
            case ("error", xid, type, path, index):
                request = self._pending.pop(xid)
                if not request.future.done():
                    request.future.set_exception(type(path, index=index))

    def _attached(self, connection: _Connection, session_id: int, password: bytes, timeout_ms: int) -> None:
        if self._state is SessionState.CLOSED:
            connection.abort()
            return
        self._session_id, self._password, self._timeout_ms = session_id, password, timeout_ms
        self._connection = connection
        if not self._opened.done():
            self._opened.set_result(None)
        self._change_state(SessionState.CONNECTED)
        waiting, self._queue = self._queue, []
        for request in waiting:
            self._send(connection, request)

    def lost(self, connection: _Connection) -> None:
        """A connection is over."""
        if connection is not self._connection:
            return
        self._connection = None
        if self._state is SessionState.CONNECTED:
            self._change_state(SessionState.SUSPENDED)
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
            told |= self._data_watches.pop(event.path, {})
        if event.type in (EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED):
            told |= self._child_watches.pop(event.path, {})
        for watch in told:
            self._loop.call_soon(watch, event)

    def _change_state(self, state: SessionState) -> None:
        self._state = state
        for listener in self._listeners:
            self._loop.call_soon(listener, state)

    def _end(self, state: SessionState) -> None:
        if self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            self._state = state
            return
        if self._task is not None:
            self._task.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        self._data_watches.clear()
        self._child_watches.clear()
        self._change_state(state)
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
                    self._network.connect(lambda: _Connection(self), self._host, PORT), self._timeout_ms / 2000
                )
            except (OSError, TimeoutError):
                await asyncio.sleep(self._random.between(*RETRY_S))
                continue
            assert isinstance(protocol, _Connection)
            if self._session_id:
                protocol.send("attach", self._session_id, self._password)
            else:
                protocol.send("open", self._timeout_ms)
            await self._watch_over(protocol)
            await asyncio.sleep(self._random.between(*RETRY_S))

    async def _watch_over(self, connection: _Connection) -> None:
        """Until the connection is over, or has been silent for two thirds of the timeout."""
        while connection.transport is not None:
            await asyncio.sleep(self._timeout_ms / 3000)
            if connection is self._connection:
                self._ask("ping")
            if self._loop.time() - connection.heard_at > self._timeout_ms / 1500:
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
