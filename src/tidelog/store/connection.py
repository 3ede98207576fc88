"""One client's connection to the store's server.

    bytes -> frames -> requests -> EmbeddedStore -> futures -> answers, in the order of the requests

A request is carried out on the tree when it is read, and answered when the store's future is done, which is when what
it shows is durable. The store resolves futures in the order of the calls and tells watchers in between, so answers and
events leave in the right order without a queue here; pings alone are answered at once, since they show nothing.

The zxid in an answer is that of the tree when the request was carried out, never a later one: a client that reconnects
gives the last it has seen, and is told what it missed since then. A read that passes writes which wait for room on the
disk has not seen them: its answer has the zxid of what is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from tidelog.store import jute
from tidelog.store.client import Created, OperationResult, Stat, Watch, WatchEvent
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import (
    AuthFailed,
    ConnectionLoss,
    NoNode,
    SessionExpired,
    StoreClosed,
    StoreError,
    Unimplemented,
)
from tidelog.store.jute import MalformedRecord, OpCode, Reader, WatcherType
from tidelog.store.tree import NODE_SIZE_MAX

if TYPE_CHECKING:
    from tidelog.store.tree import SessionRecord

logger: Final = logging.getLogger(__name__)

FRAME_SIZE_MAX: Final = 4 * (NODE_SIZE_MAX + 1)
"""Bytes of a request: a node as large as can be, or a multi of some thousand small operations."""
CONNECT_SIZE_MAX: Final = 1024
"""Bytes of a first frame, whose sender has not shown yet that it is a client."""
OUTSTANDING_MAX: Final = 1000
"""Requests of one session under way; more are not read meanwhile. ZooKeeper's globalOutstandingLimit."""
OUTSTANDING_RESUME: Final = 500
UNREAD_PAUSE: Final = 1 << 20
"""Bytes of answers not taken by the client at which no more of its requests are read."""
UNREAD_MAX: Final = 64 << 20
"""Bytes of answers and events at which a client that doesn't read is cut off; its watches alone can fill them."""

_LENGTH: Final = Struct(">i")

Answer = Callable[[Any], bytes]
"""The body of an answer, from what the store's future came to."""


class SessionHost(Protocol):
    """What a connection asks of the server that has accepted it, which owns the sessions."""

    def admit(self, connection: StoreConnection) -> bool: ...

    def establish(
        self, connection: StoreConnection, request: jute.ConnectRequest
    ) -> asyncio.Future[tuple[int, SessionRecord]]: ...

    def established(self, connection: StoreConnection, session_id: int) -> None: ...

    def keep(self, session_id: int, timeout_ms: int) -> None: ...

    def heard_from(self, session_id: int) -> None: ...

    def lost(self, connection: StoreConnection, session_id: int | None) -> None: ...

    def report(self, word: bytes) -> str: ...


class StoreConnection(asyncio.Protocol):
    """From accepted to lost; at most one session."""

    def __init__(self, server: SessionHost, store: EmbeddedStore) -> None:
        self._server = server
        self._store = store
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._session_id: int | None = None
        self._establishing = False
        self._closing = False
        self._outstanding = 0
        self._paused = False
        self._writable = True
        self._output: list[bytes] = []
        self.received = 0
        self.sent = 0

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNREAD_PAUSE)
        if not self._server.admit(self):
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._closing = True
        if self._session_id is not None:
            self._store.forget_watches(self._session_id, self._tell)
        self._server.lost(self, self._session_id)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._session_id is not None:
            self._server.heard_from(self._session_id)
        self._buffer += data
        self._take()

    def pause_writing(self) -> None:
        self._writable = False
        self._pace()

    def resume_writing(self) -> None:
        self._writable = True
        self._pace()
        self._take()

    # What the server tells.

    @property
    def peer(self) -> str:
        """Address of the client."""
        address = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{address[0]}:{address[1]}" if address else "?"

    @property
    def session_id(self) -> int | None:
        return self._session_id

    @property
    def outstanding(self) -> int:
        """Requests not answered yet."""
        return self._outstanding

    def session_ended(self) -> None:
        """The session is over. If that is the client's own wish, the answer to it closes the connection."""
        if not self._closing:
            self.cut_off()

    def close(self) -> None:
        """Sends what is to be sent and closes."""
        self._closing = True
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def cut_off(self) -> None:
        """Closes, and waits for no client to read what it has not read yet: it may never do so."""
        self.close()
        if self._transport is not None and self._transport.get_write_buffer_size():
            self._transport.abort()

    # Frames.

    def _take(self) -> None:
        position = 0
        buffer = self._buffer
        try:
            while not self._closing and self._may_read():
                if len(buffer) - position < 4:
                    break
                if self._session_id is None and not position and buffer[:4].isalpha():
                    self._command(bytes(buffer[:4]))
                    break
                (size,) = _LENGTH.unpack_from(buffer, position)
                size_max = CONNECT_SIZE_MAX if self._session_id is None else FRAME_SIZE_MAX
                if not 0 <= size <= size_max:
                    raise MalformedRecord(f"a request of {size} bytes; at most {size_max} are taken")
                if len(buffer) - position - 4 < size:
                    break
                frame = bytes(buffer[position + 4 : position + 4 + size])
                position += 4 + size
                self._frame(frame)
        except MalformedRecord as error:
            logger.warning("connection closed, malformed request: peer=%s reason=%s", self.peer, error)
            self.close()
        del buffer[:position]

    def _may_read(self) -> bool:
        return self._writable and not self._establishing and self._outstanding < OUTSTANDING_MAX

    def _pace(self) -> None:
        """Reads from the client as long as it takes its answers."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not self._paused and not self._may_read():
            self._paused = True
            transport.pause_reading()
        elif self._paused and self._may_read() and self._outstanding <= OUTSTANDING_RESUME:
            self._paused = False
            transport.resume_reading()

    def _frame(self, frame: bytes) -> None:
        if self._session_id is None:
            self._connect(jute.read_connect(frame))
            return
        self.received += 1
        reader = Reader(frame)
        xid, opcode = reader.int32(), reader.int32()
        if opcode == OpCode.PING:
            self._send(jute.answer(xid, self._store.durable_zxid))
            return
        try:
            future, body = self._begin(self._session_id, opcode, reader)
        except StoreError as error:
            future, body = self._store.refuse(error), _no_body
        self._outstanding += 1
        zxid = self._store.durable_zxid if future.done() else self._store.tree.zxid
        future.add_done_callback(partial(self._answer, xid, opcode, zxid, body))
        self._pace()

    def _command(self, word: bytes) -> None:
        """One of ZooKeeper's four-letter words, asked by people and tools without a session."""
        self._closing = True
        if self._transport is not None:
            self._transport.write(self._server.report(word).encode())
            self._transport.close()

    # Sessions.

    def _connect(self, request: jute.ConnectRequest) -> None:
        self._establishing = True
        self._pace()
        future = self._server.establish(self, request)
        future.add_done_callback(partial(self._established, request))

    def _established(self, request: jute.ConnectRequest, future: asyncio.Future[tuple[int, Any]]) -> None:
        self._establishing = False
        self._pace()
        with_read_only = request.read_only is not None
        error = future.exception()
        if self._transport is None:
            if error is None:
                # The client left before it was told; the session goes when its time is over.
                session_id, record = future.result()
                self._server.keep(session_id, record.timeout_ms)
        elif isinstance(error, SessionExpired):
            self._send(jute.connected(0, 0, jute.NULL_PASSWORD, with_read_only=with_read_only))
            self.close()
        elif error is not None:
            self._transport.abort()
        else:
            session_id, record = future.result()
            self._session_id = session_id
            self._server.keep(session_id, record.timeout_ms)
            self._server.established(self, session_id)
            self._send(jute.connected(record.timeout_ms, session_id, record.password, with_read_only=with_read_only))
            self._take()

    # Requests.

    def _begin(self, session: int, opcode: int, reader: Reader) -> tuple[asyncio.Future[Any], Answer]:
        """Carries a request out; its future, and what makes an answer of its result. StoreError: refused."""
        store = self._store
        # A client takes its answers in the order in which it asked.
        in_order = self._outstanding > 0
        match opcode:
            case OpCode.GET_DATA:
                return store.get(session, reader.path(), self._watch(reader), in_order=in_order), _data
            case OpCode.EXISTS:
                return store.exists(session, reader.path(), self._watch(reader), in_order=in_order), _existing
            case OpCode.GET_CHILDREN:
                return store.children(session, reader.path(), self._watch(reader), in_order=in_order), _names
            case OpCode.GET_CHILDREN2:
                found = store.children(session, reader.path(), self._watch(reader), in_order=in_order)
                return found, _names_and_stat
            case OpCode.CREATE | OpCode.CREATE2 | OpCode.CREATE_CONTAINER | OpCode.CREATE_TTL:
                operation = jute.read_create(reader, opcode)
                return store.transact_one(session, operation), _path if opcode == OpCode.CREATE else _created
            case OpCode.DELETE | OpCode.SET_DATA:
                return store.transact_one(session, jute.read_operation(reader, opcode)), _result
            case OpCode.MULTI:
                return self._multi(session, reader)
            case OpCode.SYNC:
                path = reader.path()
                return store.sync(), lambda _: jute.string(path)
            case OpCode.GET_ACL:
                read = store.get(session, reader.path(), None, in_order=in_order)
                return read, lambda found: jute.acl() + jute.stat(found[1])
            case OpCode.SET_ACL:
                path = reader.path()
                jute.require_open_acl(path, jute.read_acl(reader))
                return store.get(session, path, None, in_order=in_order), lambda found: jute.stat(found[1])
            case OpCode.SET_WATCHES | OpCode.SET_WATCHES2:
                return store.rearm(session, self._tell, jute.read_set_watches(reader)), _no_body
            case OpCode.REMOVE_WATCHES | OpCode.CHECK_WATCHES:
                path, kind = reader.path(), reader.int32()
                return store.remove_watches(
                    session,
                    self._tell,
                    path,
                    data=kind in (WatcherType.DATA, WatcherType.ANY),
                    child=kind in (WatcherType.CHILDREN, WatcherType.ANY),
                    keep=opcode == OpCode.CHECK_WATCHES,
                ), _no_body
            case OpCode.GET_EPHEMERALS:
                prefix = reader.path()
                owned = [path for path in store.tree.ephemerals(session) if path.startswith(prefix)]
                return store.sync(), lambda _: jute.strings(owned)
            case OpCode.GET_ALL_CHILDREN_NUMBER:
                count = store.tree.descendants(reader.path())
                return store.sync(), lambda _: _LENGTH.pack(count)
            case OpCode.WHO_AM_I:
                return store.sync(), lambda _: jute.identities([("ip", self.peer.rpartition(":")[0])])
            case OpCode.AUTH:
                reader.int32()
                if reader.string() != "digest":
                    raise AuthFailed(message="only the scheme digest is known, and it gives no rights")
                return store.sync(), _no_body
            case OpCode.CLOSE:
                self._closing = True
                return store.close_session(session), _no_body
        raise Unimplemented(message=f"there is no request of type {opcode}")

    def _watch(self, reader: Reader) -> Watch | None:
        return self._tell if reader.boolean() else None

    def _multi(self, session: int, reader: Reader) -> tuple[asyncio.Future[Any], Answer]:
        try:
            read = jute.read_operations(reader)
        except jute.MultiRefused as refused:
            body = jute.multi_errors(refused.count, refused.error.index or 0, refused.error.code)
            return self._store.sync(), lambda _: body
        opcodes = [opcode for opcode, _ in read]
        return self._store.transact(session, [operation for _, operation in read]), _Multi(opcodes)

    def _answer(self, xid: int, opcode: int, zxid: int, body: Answer, future: asyncio.Future[Any]) -> None:
        self._outstanding -= 1
        if self._transport is None:
            if not future.cancelled():
                future.exception()  # The client is gone: it cannot be told.
            return
        try:
            self._send(jute.answer(xid, zxid, 0, body(future.result())))
        except (ConnectionLoss, StoreClosed):
            # Whether it was carried out is not known; a connection that breaks says just that.
            self._transport.abort()
            return
        except StoreError as error:
            if isinstance(body, _Multi) and error.index is not None:
                self._send(jute.answer(xid, zxid, 0, jute.multi_errors(len(body.opcodes), error.index, error.code)))
            else:
                self._send(jute.answer(xid, zxid, error.code))
            if isinstance(error, SessionExpired | AuthFailed):
                self.close()
        if opcode == OpCode.CLOSE:
            self.close()
        elif self._outstanding <= OUTSTANDING_RESUME and self._paused:
            self._pace()
            self._take()

    # Output.

    def _tell(self, happened: WatchEvent) -> None:
        if self._transport is not None:
            self._send(jute.event(happened))

    def _send(self, frame: bytes) -> None:
        """Everything of one turn of the loop leaves in one write."""
        self.sent += 1
        self._output.append(frame)
        if len(self._output) == 1:
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        if self._transport is None or not self._output:
            self._output.clear()
            return
        self._transport.write(b"".join(self._output))
        self._output.clear()
        if self._transport.get_write_buffer_size() > UNREAD_MAX:
            logger.warning("connection closed, its client does not read: peer=%s bytes=%d", self.peer, UNREAD_MAX)
            self._transport.abort()


class _Multi:
    """The answer to a multi that was carried out."""

    __slots__ = ("opcodes",)

    def __init__(self, opcodes: list[int]) -> None:
        self.opcodes = opcodes

    def __call__(self, results: list[OperationResult]) -> bytes:
        return jute.multi_results(self.opcodes, results)


def _no_body(_: Any) -> bytes:
    return b""


def _data(found: tuple[bytes | None, Stat]) -> bytes:
    return jute.buffer(found[0]) + jute.stat(found[1])


def _existing(found: Stat | None) -> bytes:
    if found is None:
        raise NoNode
    return jute.stat(found)


def _names(found: tuple[list[str], Stat]) -> bytes:
    return jute.strings(found[0])


def _names_and_stat(found: tuple[list[str], Stat]) -> bytes:
    return jute.strings(found[0]) + jute.stat(found[1])


def _path(created: Created) -> bytes:
    return jute.string(created.path)


def _created(created: Created) -> bytes:
    return jute.string(created.path) + jute.stat(created.stat)


def _result(result: Stat | None) -> bytes:
    return b"" if result is None else jute.stat(result)
