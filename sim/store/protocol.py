"""How a simulated broker speaks with the simulated store machine: pickled tuples in frames, over simulated connections.

    client: ("open", timeout_ms) | ("attach", session_id, password, LostWatches)      once, first of all
            (xid, method of EmbeddedStore or "ping", arguments, watched)
    server: ("session", session_id, password, timeout_ms) | ("expired",)              the answer to the first
            ("result", xid, value, zxid) | ("error", xid, type, path, index, zxid) | ("event", WatchEvent)

Each answer says how far the server had come (zxid), and follows all events up to there; 0 says nothing.

ZooKeeper's own protocol has tests of its own; what is simulated here are its promises and its failures.
"""

from __future__ import annotations

import asyncio
import pickle
from abc import ABC, abstractmethod
from struct import Struct
from typing import Any, Final

from tidelog.store.errors import StoreError

_SIZE: Final = Struct(">i")


class MessageProtocol(asyncio.Protocol, ABC):
    """One end of a connection; subclasses take messages and hear of its end."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, *message: Any) -> None:
        """Writes a message; nothing happens where there is no connection any more."""
        if self.transport is not None:
            data = pickle.dumps(message, protocol=5)
            self.transport.write(_SIZE.pack(len(data)) + data)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (size,) = _SIZE.unpack_from(self._received)
            if len(self._received) < 4 + size:
                return
            message = pickle.loads(memoryview(self._received)[4 : 4 + size])
            del self._received[: 4 + size]
            self.received(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.lost()

    @abstractmethod
    def received(self, message: Any) -> None:
        """A whole message came."""

    @abstractmethod
    def lost(self) -> None:
        """The connection is over."""

    def abort(self) -> None:
        """Breaks the connection."""
        if self.transport is not None:
            self.transport.abort()


class AnsweringConnection(MessageProtocol):
    """A server's end."""

    def answer(self, xid: int, done: asyncio.Future[Any], zxid: int) -> None:
        """Sends the outcome of a request; `zxid` is how far its server had come with it."""
        error = done.exception()
        if isinstance(error, StoreError):
            self.send("error", xid, type(error), error.path, error.index, zxid)
        elif error is not None:
            raise error
        else:
            self.send("result", xid, done.result(), zxid)
