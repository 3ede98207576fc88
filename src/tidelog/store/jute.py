"""ZooKeeper's wire: the records of its protocol, as bytes ("jute").

Every message is a frame: a length of 4 bytes, then so many bytes. Numbers are big-endian; a string or a buffer is its
length and its bytes, length -1 for null; a vector is its count and its elements.

    connect     client: protocol version, last zxid seen, timeout, session id, password, read only
                server: protocol version, timeout, session id, password, read only
    request     xid, type, body                     xid -2: ping, -4: auth, -8: watches set anew
    answer      xid, zxid, error, body if error = 0
    event       xid -1, zxid -1, error 0, type, state, path

Whatever a peer says about lengths is believed only as far as there are bytes: `Reader` raises `MalformedRecord`, never
anything else, and allocates nothing before it has looked. Source: zookeeper.jute of ZooKeeper 3.8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from tidelog.metadata.operations import Check, Create, Delete, Operation, SetData
from tidelog.store.access import access_list
from tidelog.store.client import Created, OperationResult, Stat, WatchEvent
from tidelog.store.errors import BadArguments, InvalidAcl, StoreError, Unimplemented
from tidelog.store.tree import LostWatches

T = TypeVar("T")

WATCH_XID: Final = -1

PASSWORD_SIZE: Final = 16
NULL_PASSWORD: Final = bytes(PASSWORD_SIZE)
CONNECTED_STATE: Final = 3
"""KeeperState.SyncConnected, in events."""
RUNTIME_INCONSISTENCY: Final = -2
"""What a failed multi says of the operations behind the one that failed."""
OPEN_ACL: Final = (31, "world", "anyone")
"""Permissions (all five), scheme, id: all clients may do everything."""

SET_WATCHES_SIZE: Final = 128 << 10
"""Bytes of paths in one SetWatches; as ZooKeeper's own client."""

_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
_STAT: Final = Struct(">qqqqiiiqiiq")
_ANSWER: Final = Struct(">iiqi")
_REQUEST: Final = Struct(">ii")
_EVENT: Final = Struct(">iqiii")
_MULTI_HEADER: Final = Struct(">ibi")
_CONNECT: Final = Struct(">iqiq")
_CONNECTED: Final = Struct(">iiq")
_MULTI_END: Final = _MULTI_HEADER.pack(-1, 1, -1)


class OpCode(IntEnum):
    """Types of requests; ZooKeeper's numbers."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    CLOSE = -11
    AUTH = 100
    SET_WATCHES = 101
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107


class WatcherType(IntEnum):
    """Which watches CheckWatches and RemoveWatches mean."""

    CHILDREN = 1
    DATA = 2
    ANY = 3


class MalformedRecord(Exception):
    """Bytes that are not what they should be. The connection they came by is of no more use."""


class Reader:
    """Reads a record front to back; each method raises MalformedRecord where the bytes don't suffice."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self._position = position

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return len(self._data) - self._position

    def int32(self) -> int:
        position = self._advance(4)
        value: int = _INT.unpack_from(self._data, position)[0]
        return value

    def int64(self) -> int:
        position = self._advance(8)
        value: int = _LONG.unpack_from(self._data, position)[0]
        return value

    def boolean(self) -> bool:
        return self._data[self._advance(1)] != 0

    def buffer(self) -> bytes | None:
        size = self.int32()
        if size == -1:
            return None
        position = self._advance(size)
        return bytes(self._data[position : position + size])

    def string(self) -> str | None:
        data = self.buffer()
        if data is None:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise MalformedRecord(f"a string is no UTF-8: {error.reason}") from error

    def path(self) -> str:
        """A string that is not null."""
        found = self.string()
        if found is None:
            raise MalformedRecord("a path is null")
        return found

    def vector(self, element: Callable[[], T], size_min: int) -> list[T]:
        """As many elements as the count says, none of them shorter than `size_min` bytes; null is empty."""
        count = self.int32()
        if count == -1:
            return []
        if count < 0 or count * size_min > self.remaining:
            raise MalformedRecord(f"{count} elements can't be in {self.remaining} bytes")
        return [element() for _ in range(count)]

    def stat(self) -> Stat:
        return Stat._make(_STAT.unpack_from(self._data, self._advance(_STAT.size)))

    def _advance(self, size: int) -> int:
        position = self._position
        if size < 0 or size > len(self._data) - position:
            raise MalformedRecord(f"{size} bytes expected, {len(self._data) - position} there")
        self._position = position + size
        return position


# What a client asks.


class ConnectRequest(NamedTuple):
    """A client's first frame."""

    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    """0: a new session is wanted."""
    password: bytes
    read_only: bool | None
    """None: a client from before ZooKeeper 3.4, which expects no such byte in the answer."""


def read_connect(frame: bytes) -> ConnectRequest:
    """Of the first frame of a connection."""
    reader = Reader(frame)
    reader.int32()  # The protocol's version; there is only 0.
    last_zxid_seen, timeout_ms, session_id = reader.int64(), reader.int32(), reader.int64()
    password = reader.buffer() or NULL_PASSWORD
    return ConnectRequest(
        last_zxid_seen, timeout_ms, session_id, password, reader.boolean() if reader.remaining else None
    )


def read_create(reader: Reader, opcode: int) -> Create:
    """Unimplemented for containers and nodes with a time to live, InvalidAcl where not all may do everything."""
    path, data = reader.path(), reader.buffer()
    acl = read_acl(reader)
    flags = reader.int32()
    if opcode in (OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL) or flags in (4, 5, 6):
        raise Unimplemented(path, "this store has no container nodes and none with a time to live")
    if not 0 <= flags <= 3:
        raise BadArguments(path, f"{flags} is no kind of node")
    require_open_acl(path, acl)
    return Create(path, data, ephemeral=bool(flags & 1), sequential=bool(flags & 2))


def read_acl(reader: Reader) -> list[tuple[int, str | None, str | None]]:
    """Permissions, scheme and id of each entry."""
    return reader.vector(lambda: (reader.int32(), reader.string(), reader.string()), 12)


def require_open_acl(path: str, acl: Sequence[tuple[int, str | None, str | None]]) -> None:
    """InvalidAcl unless the list says world:anyone with all permissions, alone."""
    if list(acl) != [OPEN_ACL]:
        raise InvalidAcl(path, "this store has no access control: only world:anyone with all permissions is accepted")


def read_operations(reader: Reader) -> list[tuple[int, Operation]]:
    """The operations of a multi with their types. Raises the StoreError of one that is refused, with its index."""
    operations: list[tuple[int, Operation]] = []
    refused: StoreError | None = None
    while True:
        opcode, done = reader.int32(), reader.boolean()
        reader.int32()
        if done:
            break
        try:
            operations.append((opcode, read_operation(reader, opcode)))
        except StoreError as error:
            if error.code == Unimplemented.code and opcode not in (OpCode.CREATE, OpCode.CREATE2):
                raise  # The body's length is unknown.
            error.index = len(operations)
            refused = refused or error
            operations.append((opcode, Check("", 0)))
    if refused is not None:
        raise MultiRefused(refused, len(operations))
    return operations


class MultiRefused(Exception):
    """An operation of a multi that no store could carry out."""

    def __init__(self, error: StoreError, count: int) -> None:
        super().__init__(str(error))
        self.error = error
        """With its `index`."""
        self.count = count
        """Operations in the multi."""


def read_operation(reader: Reader, opcode: int) -> Operation:
    """The body of a request that changes the tree, or of a check."""
    match opcode:
        case OpCode.CREATE | OpCode.CREATE2:
            return read_create(reader, opcode)
        case OpCode.DELETE:
            return Delete(reader.path(), reader.int32())
        case OpCode.SET_DATA:
            return SetData(reader.path(), reader.buffer(), reader.int32())
        case OpCode.CHECK:
            return Check(reader.path(), reader.int32())
    raise Unimplemented(message=f"there is no operation of type {opcode}")


def read_set_watches(reader: Reader) -> LostWatches:
    """The lists of lasting watches behind it in SetWatches2 are empty: this store has none."""
    return LostWatches(
        reader.int64(), reader.vector(reader.path, 4), reader.vector(reader.path, 4), reader.vector(reader.path, 4)
    )


# What a server answers.


def connected(timeout_ms: int, session_id: int, password: bytes, *, with_read_only: bool) -> bytes:
    """The answer to a connect, as a frame. A timeout of 0 says that the session is over."""
    body = _CONNECTED.pack(0, timeout_ms, session_id) + buffer(password)
    return framed(body + b"\0" if with_read_only else body)


def answer(xid: int, zxid: int, error: int = 0, body: bytes = b"") -> bytes:
    """An answer, as a frame."""
    return _ANSWER.pack(16 + len(body), xid, zxid, error) + body


def event(happened: WatchEvent) -> bytes:
    """A watch event, as a frame."""
    return framed(_EVENT.pack(WATCH_XID, -1, 0, happened.type, CONNECTED_STATE) + string(happened.path))


def framed(body: bytes) -> bytes:
    return _INT.pack(len(body)) + body


def buffer(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else _INT.pack(len(data)) + data


def string(text: str) -> bytes:
    return buffer(text.encode())


def strings(texts: Sequence[str]) -> bytes:
    return b"".join([_INT.pack(len(texts)), *map(string, texts)])


def stat(value: Stat) -> bytes:
    return _STAT.pack(*value)


def identities(known: Sequence[tuple[str, str]]) -> bytes:
    """Schemes and users as whom a client is known, in the answer to WhoAmI."""
    return _INT.pack(len(known)) + b"".join(string(scheme) + string(user) for scheme, user in known)


def acl(entries: Sequence[tuple[int, str, str]] = (OPEN_ACL,)) -> bytes:
    """An access list: permissions, scheme and id of each entry. The default is what every node of ours has."""
    parts = [_INT.pack(permissions) + string(scheme) + string(id) for permissions, scheme, id in entries]
    return _INT.pack(len(entries)) + b"".join(parts)


def multi_results(opcodes: Sequence[int], results: Sequence[OperationResult]) -> bytes:
    """What a multi did that was carried out."""
    parts = []
    for opcode, result in zip(opcodes, results, strict=True):
        parts.append(_MULTI_HEADER.pack(opcode, 0, 0))
        if isinstance(result, Created):
            parts.append(string(result.path))
            if opcode != OpCode.CREATE:
                parts.append(stat(result.stat))
        elif result is not None:
            parts.append(stat(result))
    parts.append(_MULTI_END)
    return b"".join(parts)


def multi_errors(count: int, failed: int, code: int) -> bytes:
    """What a multi of `count` operations did not do, because the one at `failed` failed with `code`."""
    codes = [0] * failed + [code] + [RUNTIME_INCONSISTENCY] * (count - failed - 1)
    return b"".join([_MULTI_HEADER.pack(-1, 0, code) + _INT.pack(code) for code in codes] + [_MULTI_END])


# What a client of ours asks, where kazoo has no words for it.


def lost_watches(zxid: int, data: Sequence[str], exist: Sequence[str], child: Sequence[str]) -> list[LostWatches]:
    """The watches in as many requests as it takes: a server closes the connection of one that is too large."""
    found: list[tuple[list[str], list[str], list[str]]] = []
    room = 0
    for kind, paths in enumerate((data, exist, child)):
        for path in paths:
            size = 4 + len(path.encode())
            if size > room:
                found.append(([], [], []))
                room = SET_WATCHES_SIZE
            room -= size
            found[-1][kind].append(path)
    return [LostWatches(zxid, *lists) for lists in found]


def set_watches(lost: LostWatches) -> bytes:
    return _LONG.pack(lost.zxid) + strings(lost.data) + strings(lost.exist) + strings(lost.child)


def multi(operations: Sequence[Operation], root: str = "", *, owned: bool = False) -> bytes:
    """Operations with paths below `root` (a chroot); creations as Create2, so that the answer tells their stats.

    `owned`: nodes belong to the client that creates them (`store.access`).
    """
    parts = []
    for operation in operations:
        opcode = OPCODES[type(operation)]
        path = root + operation.path if operation.path != "/" else root or "/"
        parts += [_MULTI_HEADER.pack(opcode, 0, -1), string(path)]
        match operation:
            case Create(_, data, ephemeral, sequential):
                access = acl(access_list(operation.path, owned=owned))
                parts += [buffer(data), access, _INT.pack(ephemeral | sequential << 1)]
            case SetData(_, data, version):
                parts += [buffer(data), _INT.pack(version)]
            case Delete(_, version) | Check(_, version):
                parts.append(_INT.pack(version))
    parts.append(_MULTI_END)
    return b"".join(parts)


OPCODES: Final[dict[type[Operation], OpCode]] = {
    Create: OpCode.CREATE2,
    SetData: OpCode.SET_DATA,
    Delete: OpCode.DELETE,
    Check: OpCode.CHECK,
}


def read_multi_results(reader: Reader) -> list[OperationResult | str | int]:
    """The results of a multi; or if it failed, an error code for each operation (`failed_operation`).

    A path alone is what ZooKeeper's server tells of a node that was created in a multi, also by Create2.
    """
    results: list[OperationResult | str | int] = []
    while True:
        opcode, done = reader.int32(), reader.boolean()
        reader.int32()
        if done:
            return results
        match opcode:
            case -1:
                results.append(reader.int32())
            case OpCode.CREATE:
                results.append(reader.path())
            case OpCode.CREATE2:
                results.append(Created(reader.path(), reader.stat()))
            case OpCode.SET_DATA:
                results.append(reader.stat())
            case OpCode.DELETE | OpCode.CHECK:
                results.append(None)
            case _:
                raise MalformedRecord(f"a multi has no results of type {opcode}")


def failed_operation(results: Sequence[OperationResult | str | int]) -> tuple[int, int] | None:
    """Index and error code of the operation that made a multi fail; None if it did not."""
    for index, result in enumerate(results):
        if isinstance(result, int) and result not in (0, RUNTIME_INCONSISTENCY):
            return index, result
    return None
