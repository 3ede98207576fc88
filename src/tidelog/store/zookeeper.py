"""A session with a ZooKeeper ensemble, or with the embedded store of another process: `StoreClient` over kazoo.

kazoo keeps the connection: hosts, reconnecting, pings, the queue of requests. What it lacks for the contract of
`StoreClient` is added here:

- Results, watch events and states arrive on the event loop in the order of the wire (`kazoo_handler`).
- kazoo forgets watches when a connection breaks. Here they are set again as the first request of the next connection,
  with the last transaction seen, so that the server tells what was missed meanwhile.
- The next connection may be to another server, which is a moment behind. It refuses a client that has seen more than
  it has, but what became of a request that was under way is nothing that was seen. So the second request is a sync:
  what is read back is what the ensemble has agreed upon.
- A server that hangs answers nothing, not even while requests are sent to it all the time (`kazoo_handler`).
- kazoo begins a new session when one expired. Here that is the end: a client that lost its ephemeral nodes must know.
- A multi may hold nodes without data, and tells the stats of those it creates: where the server does not (ZooKeeper's),
  all but their times, which are 0.

Calls made while there is no connection wait for the next one, as long as the session may live. A request that was under
way when the connection broke fails with ConnectionLoss: whether it was carried out, only reading tells. So does one
that was made before the event loop heard of the break, since it may build on what was lost; it is not carried out.

A new session, the first or the next, reads nothing older than its own beginning: that was a transaction of the
ensemble, and the server that tells of it has carried out all that were before it.

Importing this module loads kazoo; import it late where it may not be needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionClosedError, KazooException
from kazoo.exceptions import ConnectionLoss as KazooConnectionLoss
from kazoo.hosts import collect_hosts
from kazoo.protocol.serialization import Create2, Delete, Exists, GetChildren2, GetData, SetData, Sync
from kazoo.protocol.states import EventType as KazooEvent
from kazoo.protocol.states import WatchedEvent
from kazoo.retry import KazooRetry
from kazoo.security import ACL, Id

from tidelog.config.zookeeper_security import SaslUser
from tidelog.metadata.operations import ANY_VERSION, Create, Operation
from tidelog.store import errors, jute
from tidelog.store.access import access_list
from tidelog.store.client import (
    Created,
    EventType,
    OperationResult,
    SessionKey,
    SessionState,
    Stat,
    Watch,
    WatchEvent,
)
from tidelog.store.errors import (
    AuthFailed,
    BadArguments,
    ConnectionLoss,
    NodeExists,
    SessionExpired,
    StoreClosed,
    StoreError,
)
from tidelog.store.kazoo_handler import LoopHandler
from tidelog.store.kazoo_login import log_in
from tidelog.store.kazoo_requests import CHILD_WATCH, DATA_WATCH, ArmedWatch, Multi, Outcome, SetWatches
from tidelog.store.reachability import what_is_there
from tidelog.store.security import OPEN, StoreSecurity

logger: Final = logging.getLogger(__name__)

RECONNECT_DELAY_S: Final = 0.05
RECONNECT_DELAY_MAX_S: Final = 1.0
"""Between rounds of attempts; a session of some seconds has time for several."""
CLOSE_WAIT_S: Final = 5.0
"""For the server's answer that the session is over; without one, the session ends by its timeout."""
REQUEST_SIZE_MAX: Final = (1 << 20) - 1
"""Bytes: ZooKeeper's jute.maxbuffer, above which a server cuts the connection, at each further attempt too."""
OPERATION_OVERHEAD: Final = 256
"""Bytes of a request for each operation beside its path and data, at most: types, lengths, the access list."""
TURNS_PER_TIMEOUT: Final = 4
"""How often in a session timeout the event loop is asked for a sign of life."""

_EVENTS: Final = {
    KazooEvent.CREATED: EventType.NODE_CREATED,
    KazooEvent.DELETED: EventType.NODE_DELETED,
    KazooEvent.CHANGED: EventType.NODE_DATA_CHANGED,
    KazooEvent.CHILD: EventType.NODE_CHILDREN_CHANGED,
}
_ERRORS: Final[dict[int, type[StoreError]]] = {
    found.code: found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, StoreError)
}


class ZooKeeperStore:
    """A `StoreClient`; made by `ZooKeeperStore.connect`."""

    def __init__(self, client: KazooClient, handler: LoopHandler, *, owned: bool = False) -> None:
        self._client = client
        self._handler = handler
        self._owned = owned
        """Whether nodes belong to the client that creates them."""
        self._root: str = client.chroot
        self._key = SessionKey(0, b"")
        self._state = SessionState.SUSPENDED
        self._listeners: list[Callable[[SessionState], None]] = []
        self._outstanding: dict[Outcome, None] = {}
        self._lost_watches: list[ArmedWatch] = []
        """Watches whose connection broke; touched on the connection's thread alone."""
        self._breaks = 0
        """How often the connection broke; as its thread knows."""
        self._breaks_told = 0
        """How often, as the event loop knows."""
        self._event: WatchedEvent | None = None
        self._told: set[Watch] = set()
        """The watches that were told of `_event`; these too."""
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._beat: asyncio.TimerHandle | None = None
        self._stopping = False
        self._refused = ""
        """Why the server did not let this client in, where it did not."""

    @classmethod
    async def connect(
        cls,
        hosts: str,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        security: StoreSecurity = OPEN,
        key: SessionKey | None = None,
    ) -> ZooKeeperStore:
        """Opens a session. `hosts` as in zookeeper.connect: host:port, ..., and a chroot, made where it is missing.

        `key` is that of a session to go on with; where it has ended, another one is opened.

        ConnectionLoss when no server answers in time, AuthFailed and NoAuth, ValueError when `hosts` cannot be read.
        """
        handler = LoopHandler(session_timeout_ms, connection_timeout_ms)
        kazoo_logger = logging.getLogger("tidelog.store.kazoo")
        if kazoo_logger.level == logging.NOTSET:
            kazoo_logger.setLevel(logging.ERROR)  # What it warns of is said here once, as a change of state.
        client = KazooClient(
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            handler=handler,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=RECONNECT_DELAY_S,
                max_delay=RECONNECT_DELAY_MAX_S,
                sleep_func=handler.sleep_func,
            ),
            logger=kazoo_logger,
            client_id=key,
            auth_data=None if security.digest is None else [("digest", security.digest)],
        )
        handler.hosts = len(client.hosts)
        handler.tls = security.tls
        store = cls(client, handler, owned=security.owned)
        if security.sasl is not None:
            store._log_in_with(security.sasl)
        client.add_listener(store._changed)
        handler.before_send = store._drop_what_builds_on_lost_requests
        store._keep_turning()
        client.start_async()
        try:
            async with asyncio.timeout(connection_timeout_ms / 1000):
                await store._connected
                await store._make_root()
        except TimeoutError:
            await store.close()
            found = (
                f"TLS: {handler.tls_problem}" if handler.tls_problem else await what_is_there(collect_hosts(hosts)[0])
            )
            raise ConnectionLoss(
                message=f"no metadata store answers at {hosts} within {connection_timeout_ms} ms "
                f"({found}); see whether it runs, and zookeeper.connect and zookeeper.connection.timeout.ms"
            ) from None
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def session_id(self) -> int:
        return self._key.id

    @property
    def key(self) -> SessionKey:
        """With which another process can end this session."""
        return self._key

    @property
    def session_timeout_ms(self) -> int:
        return self._handler.session_timeout_ms

    @property
    def state(self) -> SessionState:
        return self._state

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[tuple[bytes | None, Stat]]:
        return self._ask(GetData(self._absolute(path), self._armed(DATA_WATCH, path, watch)), _data, path)

    def exists(self, path: str, watch: Watch | None = None) -> Awaitable[Stat | None]:
        armed = self._armed(DATA_WATCH, path, watch)
        return self._ask(Exists(self._absolute(path), armed), _stat, path, armed)

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[tuple[Sequence[str], Stat]]:
        return self._ask(GetChildren2(self._absolute(path), self._armed(CHILD_WATCH, path, watch)), _children, path)

    def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> Awaitable[Created]:
        flags = ephemeral | sequential << 1
        access = [ACL(permissions, Id(scheme, id)) for permissions, scheme, id in self._access_list(path)]
        request = Create2(self._absolute(path), data, access, flags)
        return self._ask(request, self._created, path, size=_size(path, data))

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Awaitable[Stat]:
        return self._ask(SetData(self._absolute(path), data, version), _stat, path, size=_size(path, data))

    def delete(self, path: str, version: int = ANY_VERSION) -> Awaitable[None]:
        return self._ask(Delete(self._absolute(path), version), _nothing, path)

    def multi(self, operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
        operations = list(operations)
        # kazoo remembers the zxid of the answer that it is decoding: that of the multi's own transaction.
        request = Multi(operations, self._root, self._client, owned=self._owned)
        sizes = [_size(operation.path, getattr(operation, "data", None)) for operation in operations]
        # Any of them may fail, and tells its own path; only one that is never sent has none.
        path = operations[sizes.index(max(sizes))].path if sum(sizes) > REQUEST_SIZE_MAX else ""
        return self._ask(request, partial(self._multi_results, operations), path, size=sum(sizes))

    def sync(self) -> Awaitable[None]:
        return self._ask(Sync("/"), _nothing, "")

    async def close(self) -> None:
        if self._state is SessionState.CLOSED:
            return
        self._enter(SessionState.CLOSED)
        self._stop_kazoo()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WAIT_S):
                await self._ended.wait()

    # Calls.

    def _ask(
        self,
        request: Any,
        convert: Callable[[Any], Any],
        path: str,
        watch: ArmedWatch | None = None,
        *,
        size: int = 0,
    ) -> asyncio.Future[Any]:
        """`size`: bytes of the request, where it writes."""
        outcome = Outcome(self._handler, self._settle, self._breaks_told, path, convert, watch)
        refusal = self._refusal()
        if refusal is None and size > REQUEST_SIZE_MAX:
            reason = f"a request of {size} bytes: ZooKeeper takes {REQUEST_SIZE_MAX} (jute.maxbuffer)"
            refusal = BadArguments(path[:200], reason)
        if refusal is not None:
            outcome.future.set_exception(refusal)
        else:
            self._outstanding[outcome] = None
            self._client._call(request, outcome)
        return outcome.future

    def _refusal(self) -> StoreError | None:
        """Why nothing can be asked any more."""
        match self._state:
            case SessionState.EXPIRED if self._refused:
                return AuthFailed(message=f"login to the metadata store failed: {self._refused}")
            case SessionState.EXPIRED:
                return SessionExpired()
            case SessionState.CLOSED:
                return StoreClosed(message="this client of the store was closed")
        return None

    def _access_list(self, path: str) -> Sequence[tuple[int, str, str]]:
        return access_list(path, owned=self._owned)

    def _absolute(self, path: str) -> str:
        return path if not self._root else self._root if path == "/" else self._root + path

    def _relative(self, path: str) -> str:
        return path[len(self._root) :] or "/"

    def _armed(self, table: str, path: str, watch: Watch | None) -> ArmedWatch | None:
        return None if watch is None else ArmedWatch(self._fired, table, self._absolute(path), watch)

    def _created(self, found: tuple[str, Any]) -> Created:
        return Created(self._relative(found[0]), Stat._make(found[1]))

    def _multi_results(
        self, operations: Sequence[Operation], found: tuple[int, list[OperationResult | str | int]]
    ) -> list[OperationResult]:
        zxid, results = found
        failed = jute.failed_operation(results)
        if failed is not None:
            index, code = failed
            raise _refused(code, operations[index].path, index)
        return [self._of_operation(*each, zxid) for each in zip(operations, results, strict=True)]

    def _of_operation(self, operation: Operation, result: OperationResult | str | int, zxid: int) -> OperationResult:
        match result:
            case int():
                raise StoreError(operation.path, "the multi failed and did not")
            case str():
                assert isinstance(operation, Create)
                owner = self._key.id if operation.ephemeral else 0
                # Everything about a node just created is known, but for the server's clock.
                return Created(
                    self._relative(result), Stat(zxid, zxid, 0, 0, 0, 0, 0, owner, len(operation.data or b""), 0, zxid)
                )
            case Created(path, stat):
                return Created(self._relative(path), stat)
        return result

    def _settle(self, outcome: Outcome, value: Any, error: BaseException | None) -> None:
        """On the event loop: the outcome of a request."""
        self._outstanding.pop(outcome, None)
        future = outcome.future
        if future.done():
            return
        if error is not None:
            future.set_exception(self._translate(error, outcome.path))
            return
        try:
            future.set_result(outcome.convert(value))
        except StoreError as refused:
            future.set_exception(refused)

    def _translate(self, error: BaseException, path: str) -> BaseException:
        if isinstance(error, ConnectionClosedError):
            return self._refusal() or ConnectionLoss(path)
        if isinstance(error, KazooException):
            return _refused(getattr(error, "code", StoreError.code), path)
        return error

    # Watches.

    def _fired(self, watch: ArmedWatch, event: WatchedEvent) -> None:
        """On the connection's thread: kazoo lets go of a watch, with an event or because the connection broke."""
        type = _EVENTS.get(event.type)
        if type is None:
            self._lost_watches.append(watch)
            return
        if event is not self._event:
            self._event, self._told = event, set()
        # The end of a node is one event for its data and for its children.
        if watch.callback not in self._told:
            self._told.add(watch.callback)
            told = WatchEvent(type, event.path)
            self._handler.deliver(lambda: self._tell(watch.callback, told))

    def _tell(self, watch: Watch, event: WatchEvent) -> None:
        if self._refusal() is None:
            # Through the loop, as awaited results arrive: so the order holds.
            self._handler.loop.call_soon(watch, event)

    def _set_watches_again(self) -> None:
        """On the connection's thread, as the first thing on a new connection of the same session."""
        lost, self._lost_watches = self._lost_watches, []
        client = self._client
        if self._breaks:
            self._send_first(Sync("/"))
        for watch in lost:
            table = client._child_watchers if watch.table == CHILD_WATCH else client._data_watchers
            table[watch.path].add(watch)
        lists = (
            sorted({watch.path for watch in lost if watch.table == DATA_WATCH and not watch.absent}),
            sorted({watch.path for watch in lost if watch.absent}),
            sorted({watch.path for watch in lost if watch.table == CHILD_WATCH}),
        )
        # Before what was asked meanwhile: a read must not show a change whose event has not been told.
        for again in jute.lost_watches(client.last_zxid, *lists):
            self._send_first(SetWatches(again))

    def _send_first(self, request: Any) -> None:
        """On the connection's thread: before whatever waits to be sent."""
        self._client._queue.appendleft((request, None))
        self._client._connection._write_sock.send(b"\0")

    def _drop_what_builds_on_lost_requests(self) -> None:
        """On the connection's thread, before a request leaves the queue."""
        queue = self._client._queue
        while queue and queue[0][1] is not None and queue[0][1].breaks_told != self._breaks:
            _, outcome = queue.popleft()
            outcome.set_exception(KazooConnectionLoss())

    # The session.

    def _log_in_with(self, user: SaslUser) -> None:
        """Has kazoo log in on each new connection, before anything else is asked."""

        def refused(reason: str) -> None:
            self._refused = reason

        connection = self._client._connection
        connection.sasl_options = {}
        connection._authenticate_with_sasl = lambda host, timeout_s: log_in(connection, user, refused, timeout_s)

    def _changed(self, state: str) -> None:
        """On the connection's thread: kazoo's state."""
        if state == KazooState.CONNECTED:
            self._set_watches_again()
            # kazoo knows it only as long as there is a connection.
            key = SessionKey(*self._client.client_id)
            self._handler.deliver(lambda: self._established(key))
        elif state == KazooState.SUSPENDED:
            self._breaks += 1
            breaks = self._breaks
            self._handler.deliver(lambda: self._suspended(breaks))
        else:
            self._handler.over = True
            self._handler.deliver(self._lost)

    def _suspended(self, breaks: int) -> None:
        self._breaks_told = breaks
        self._enter(SessionState.SUSPENDED)

    def _established(self, key: SessionKey) -> None:
        self._key = key
        if not self._connected.done():
            self._connected.set_result(None)
        self._enter(SessionState.CONNECTED)

    def _lost(self) -> None:
        if not self._connected.done():
            self._connected.set_exception(AuthFailed(message="the metadata store refuses zookeeper.digest"))
        if self._state is not SessionState.CLOSED:
            self._enter(SessionState.EXPIRED)
            self._stop_kazoo()

    def _enter(self, state: SessionState) -> None:
        if self._state in (state, SessionState.CLOSED):
            return
        if self._state is SessionState.EXPIRED and state is not SessionState.CLOSED:
            return
        self._state = state
        # What it means, and what becomes of it, is decided by the listener.
        logger.info("store session: state=%s session=%#x", state.value, self._key.id)
        refusal = self._refusal()
        if refusal is not None:
            for outcome in list(self._outstanding):
                self._settle(outcome, None, refusal)
            if self._beat is not None:
                self._beat.cancel()
        for listener in self._listeners:
            listener(state)

    def _keep_turning(self) -> None:
        """The sign of life that the connection's thread wants to see."""
        self._handler.turned_at = time.monotonic()
        wait_s = self._handler.session_timeout_ms / 1000 / TURNS_PER_TIMEOUT
        self._beat = asyncio.get_running_loop().call_later(wait_s, self._keep_turning)

    def _stop_kazoo(self) -> None:
        """Ends kazoo's thread, with the session if there is a connection. It waits, so a thread does it."""
        if self._stopping:
            return
        self._stopping = True

        def stop() -> None:
            with contextlib.suppress(Exception):
                self._client.stop()
                self._client.close()
            self._handler.deliver(self._ended.set)

        threading.Thread(target=stop, name="tidelog-zookeeper-stop", daemon=True).start()

    async def _make_root(self) -> None:
        """Creates the chroot where it is missing, as Kafka's brokers do."""
        root, self._root = self._root, ""
        parts = root.split("/")[1:]
        paths = ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]
        try:
            while paths:
                try:
                    # Looked at first: above a chroot that an operator made for us, we may not be allowed to create.
                    if await self.exists(root) is not None:
                        return
                    for path in paths:
                        with contextlib.suppress(NodeExists):
                            await self.create(path)
                    logger.warning("the chroot %s of the metadata store was missing: it is created, empty", root)
                    return
                except ConnectionLoss:
                    # Until the time to connect is over.
                    await asyncio.sleep(RECONNECT_DELAY_S)
        finally:
            self._root = root


async def end_session(hosts: str, key: SessionKey, timeout_ms: int, security: StoreSecurity = OPEN) -> None:
    """Ends a session, and with it its ephemeral nodes; harmless if it has ended already. ConnectionLoss."""
    # Without the chroot, which would be made anew where it is missing.
    addresses = hosts.partition("/")[0]
    store = await ZooKeeperStore.connect(
        addresses, session_timeout_ms=timeout_ms, connection_timeout_ms=timeout_ms, security=security, key=key
    )
    await store.close()


def _refused(code: int, path: str, index: int | None = None) -> StoreError:
    """The error with that code of ZooKeeper's."""
    return _ERRORS.get(code, StoreError)(path, "" if code in _ERRORS else f"ZooKeeper's error {code}", index=index)


def _data(found: tuple[bytes | None, Any]) -> tuple[bytes | None, Stat]:
    return found[0], Stat._make(found[1])


def _children(found: tuple[list[str], Any]) -> tuple[list[str], Stat]:
    return sorted(found[0]), Stat._make(found[1])


def _stat(found: Any) -> Stat | None:
    return None if found is None else Stat._make(found)


def _nothing(_: Any) -> None:
    return None


def _size(path: str, data: bytes | None) -> int:
    """Bytes of a request for an operation, at most."""
    return OPERATION_OVERHEAD + len(path) + len(data or b"")
