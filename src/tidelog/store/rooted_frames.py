"""The frames of one connection to a ZooKeeper server, moved below a node (a chroot) and back.

A client that knows no chroot is served below one: what it asks for at /brokers is asked of the server at
/tidelog/brokers, and what the server says of /tidelog/brokers is said of /brokers. Everything else in a frame stays as
it is, byte for byte: ids, versions, data, stats. Answers name no request type, so the types of those requests whose
answers hold paths are remembered, in order, until they are answered.

Raises MalformedRecord for frames that are none; the connection is of no more use then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final

from tidelog.store.jute import MalformedRecord, OpCode, Reader, buffer, string

EVENT_XID: Final = -1
"""Of an event; pings, authentication and watches set anew have others below 0, and no paths in their answers."""

_PATH_FIRST: Final = frozenset(
    {
        OpCode.CREATE,
        OpCode.DELETE,
        OpCode.EXISTS,
        OpCode.GET_DATA,
        OpCode.SET_DATA,
        OpCode.GET_ACL,
        OpCode.SET_ACL,
        OpCode.GET_CHILDREN,
        OpCode.SYNC,
        OpCode.GET_CHILDREN2,
        OpCode.CHECK,
        OpCode.CREATE2,
        OpCode.CHECK_WATCHES,
        OpCode.REMOVE_WATCHES,
        OpCode.CREATE_CONTAINER,
        OpCode.CREATE_TTL,
        OpCode.GET_EPHEMERALS,
        OpCode.GET_ALL_CHILDREN_NUMBER,
        OpCode.ADD_WATCH,
    }
)
"""Requests that begin with a path, and have no other."""
_PATH_IN_ANSWER: Final = frozenset(
    {OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL, OpCode.SYNC}
)
"""Answers that begin with a path."""
_REMEMBERED: Final = _PATH_IN_ANSWER | {OpCode.MULTI, OpCode.GET_EPHEMERALS}

_REQUEST: Final = Struct(">ii")
_ANSWER: Final = Struct(">iqi")
_EVENT: Final = Struct(">ii")
_MULTI_HEADER: Final = Struct(">ibi")
_INT: Final = Struct(">i")
_STAT_SIZE: Final = 68


class RootedFrames:
    """Translates the frames of one connection, both ways; frames are without their length."""

    def __init__(self, root: str) -> None:
        """`root` is the chroot, such as /tidelog."""
        self._root = root
        self._asked: deque[tuple[int, int]] = deque()
        """(xid, type) of requests whose answers hold paths."""

    def request(self, frame: bytes) -> bytes:
        """A request of the client, as the server is to get it."""
        reader = _Copier(frame)
        xid, opcode = reader.take(_REQUEST)
        if opcode in _REMEMBERED:
            self._asked.append((xid, opcode))
        if opcode in _PATH_FIRST:
            self._lower(reader)
        elif opcode in (OpCode.MULTI, OpCode.MULTI_READ):
            self._operations(reader)
        elif opcode in (OpCode.SET_WATCHES, OpCode.SET_WATCHES2):
            reader.copy(8)
            while reader.remaining:
                self._paths(reader, self._lowered)
        return reader.finish()

    def answer(self, frame: bytes) -> bytes:
        """What the server says, as the client is to get it."""
        reader = _Copier(frame)
        xid, _, error = reader.take(_ANSWER)
        if xid == EVENT_XID:
            reader.take(_EVENT)
            self._raise(reader)
            return reader.finish()
        if not self._asked or self._asked[0][0] != xid:
            return frame
        _, opcode = self._asked.popleft()
        if error or not reader.remaining:
            return frame
        if opcode == OpCode.MULTI:
            self._results(reader)
        elif opcode == OpCode.GET_EPHEMERALS:
            self._paths(reader, self._raised)
        else:
            self._raise(reader)
        return reader.finish()

    # Paths.

    def _lowered(self, path: str) -> str:
        # What is no path is the server's to refuse.
        if path == "/":
            return self._root
        return self._root + path if path.startswith("/") else path

    def _raised(self, path: str) -> str:
        if path == self._root:
            return "/"
        return path[len(self._root) :] if path.startswith(f"{self._root}/") else path

    def _lower(self, reader: _Copier) -> None:
        reader.put(string(self._lowered(reader.path())))

    def _raise(self, reader: _Copier) -> None:
        path = reader.optional_path()
        reader.put(buffer(None) if path is None else string(self._raised(path)))

    def _paths(self, reader: _Copier, translated: Callable[[str], str]) -> None:
        """A vector of paths."""
        count = reader.take(_INT)[0]
        for _ in range(max(0, count)):
            reader.put(string(translated(reader.path())))

    # Multis.

    def _operations(self, reader: _Copier) -> None:
        while True:
            opcode, done, _ = reader.take(_MULTI_HEADER)
            if done:
                return
            self._lower(reader)
            match opcode:
                case OpCode.CREATE | OpCode.CREATE2 | OpCode.CREATE_CONTAINER | OpCode.CREATE_TTL:
                    reader.copy_buffer()
                    for _ in range(max(0, reader.take(_INT)[0])):
                        reader.copy(4)
                        reader.copy_buffer()
                        reader.copy_buffer()
                    reader.copy(12 if opcode == OpCode.CREATE_TTL else 4)
                case OpCode.SET_DATA:
                    reader.copy_buffer()
                    reader.copy(4)
                case OpCode.DELETE | OpCode.CHECK:
                    reader.copy(4)
                case OpCode.GET_DATA | OpCode.GET_CHILDREN:
                    reader.copy(1)
                case _:
                    raise MalformedRecord(f"a multi has no operations of type {opcode}")

    def _results(self, reader: _Copier) -> None:
        while True:
            opcode, done, _ = reader.take(_MULTI_HEADER)
            if done:
                return
            match opcode:
                case -1:
                    reader.copy(4)
                case OpCode.CREATE:
                    self._raise(reader)
                case OpCode.CREATE2 | OpCode.CREATE_CONTAINER | OpCode.CREATE_TTL:
                    self._raise(reader)
                    reader.copy(_STAT_SIZE)
                case OpCode.SET_DATA:
                    reader.copy(_STAT_SIZE)
                case OpCode.DELETE | OpCode.CHECK:
                    pass
                case _:
                    raise MalformedRecord(f"a multi has no results of type {opcode}")


class _Copier:
    """Reads a frame front to back, and writes another one of what was read and of what takes its place."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._position = 0
        self._copied = 0
        """Up to where the frame is in `_parts`."""
        self._parts: list[bytes] = []

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return len(self._frame) - self._position

    def take(self, layout: Struct) -> tuple[int, ...]:
        """Numbers, which are copied."""
        position = self._position
        self.copy(layout.size)
        return layout.unpack_from(self._frame, position)

    def copy(self, size: int) -> None:
        if size > self.remaining:
            raise MalformedRecord(f"{size} bytes expected, {self.remaining} there")
        self._position += size

    def copy_buffer(self) -> None:
        """A length and so many bytes; -1: null."""
        size = self.take(_INT)[0]
        if size < -1:
            raise MalformedRecord(f"a buffer of {size} bytes")
        self.copy(max(0, size))

    def path(self) -> str:
        """A string that is not copied: something else is put in its place."""
        found = self.optional_path()
        if found is None:
            raise MalformedRecord("a path is null")
        return found

    def optional_path(self) -> str | None:
        self._parts.append(self._frame[self._copied : self._position])
        reader = Reader(self._frame, self._position)
        found = reader.string()
        self._position = self._copied = len(self._frame) - reader.remaining
        return found

    def put(self, data: bytes) -> None:
        self._parts.append(data)

    def finish(self) -> bytes:
        """The new frame; what was not read is in it as it was."""
        return b"".join([*self._parts, self._frame[self._copied :]])
