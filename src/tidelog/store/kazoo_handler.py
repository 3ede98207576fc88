"""What kazoo asks of its surroundings (an `IHandler`), on one thread and in few system calls.

kazoo's own handler has a thread for the connection, one for results and one for watches; between the latter two the
order in which things happened is lost. Here everything goes from the connection's thread to the event loop through one
queue, in the order in which it came over the wire.

    event loop                                   connection's thread (kazoo's loop)
    call --> kazoo's queue, Waker -------------> select -> send, gathered
    futures, watches, states <-- one queue <---- recv, many answers at once -> decoded

Between two threads of one interpreter a system call is dear: it gives the interpreter away, and a busy loop is slow to
give it back. So the socket that kazoo is given reads and writes in large pieces (`Wire`), and a wake-up costs a system
call only if the other side sleeps (`Waker`). Nothing here ever makes the event loop wait.

A server that hangs keeps its connections. kazoo finds out by a ping that is not answered, but it pings only if there is
nothing else to send: a client that goes on asking waits for ever. Here a connection is given up when nothing at all has
come for two thirds of the session timeout, as in ZooKeeper's own client, which leaves a third to find another server.

The thread keeps the session alive on its own, but not for a loop that hangs: a broker that does nothing must not keep
its place. When the loop has not turned for a whole session timeout, the thread ends the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

from kazoo.exceptions import ConnectionDropped, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import Callback

READ_SIZE: Final = 1 << 16
"""Bytes asked of the socket at once."""
WRITE_SIZE: Final = 1 << 16
"""Bytes gathered before they are written, if nothing else makes us write."""
SENDS_BETWEEN_READS: Final = 32
"""Requests taken from the queue before the socket is looked at again."""
CLOSE_FRAME: Final = Struct(">iii").pack(8, 0, -11)
"""A request that ends the session."""
SILENT_SHARE_MAX: Final = 2 / 3
"""Of the session timeout, without a byte from the server: kazoo's pings come every third."""
_CONNECTED: Final = Struct(">iii")
"""Length, protocol version, timeout: how the answer to a connect begins."""


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Belongs to one client, and to the event loop on which it is made."""

    name = "tidelog_loop_handler"

    def __init__(self, session_timeout_ms: int, connect_timeout_ms: int) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        """Where everything is delivered."""
        self._ready: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._connect_timeout_s = connect_timeout_ms / 1000
        self.hosts = 1
        """How many servers there are to be tried."""
        self.session_timeout_ms = session_timeout_ms
        """As agreed with the server, once connected."""
        self.turned_at = time.monotonic()
        """When the event loop was last seen to turn."""
        self.before_send: Callable[[], None] = lambda: None
        """Called on the connection's thread whenever it is about to take a request from its queue."""
        self.tls: Callable[[], ssl.SSLContext] | None = None
        """What each connection is encrypted with; None: none is."""
        self.tls_problem = ""
        """Why the last connection could not be encrypted."""
        self.over = False
        """No connection is to be made any more: the session was ended, or is known to have ended."""

    # Towards the event loop.

    def deliver(self, action: Callable[[], None]) -> None:
        """Has `action` called on the event loop, behind everything delivered before. From any thread."""
        self._ready.append(action)
        if not self._scheduled:
            self._scheduled = True
            # On a loop that is closed no caller is left to be told.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._scheduled = False
        self.turned_at = time.monotonic()
        while self._ready:
            self._ready.popleft()()

    def dispatch_callback(self, callback: Callback) -> None:
        """A watch fired. On the connection's thread; the watch itself sees to it that the loop is told."""
        callback.func(*callback.args)

    # Threads.

    def start(self) -> None:
        """There are no worker threads."""
        self._running = True

    def stop(self) -> None:
        self._running = False

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> threading.Thread:
        def run() -> None:
            # What kazoo's retries raise when the client was stopped meanwhile.
            with contextlib.suppress(InterruptedError):
                func(*args, **kwargs)

        thread = threading.Thread(target=run, name="tidelog-zookeeper", daemon=True)
        thread.start()
        return thread

    # The wire.

    def create_socket_pair(self) -> tuple[Waker, Waker]:
        waker = Waker()
        return waker, waker

    def create_connection(self, *args: Any, **kwargs: Any) -> Wire:
        if self.over:
            raise SessionExpiredError
        # An address that swallows everything must leave time for the others, while the session lives.
        kwargs["timeout"] = min(kwargs["timeout"] / self.hosts, self._connect_timeout_s)
        plain: socket.socket = super().create_connection(*args, **kwargs)
        return Wire(plain if self.tls is None else self._encrypted(plain, self.tls, kwargs["hostname"]), self)

    def _encrypted(self, plain: socket.socket, tls: Callable[[], ssl.SSLContext], host: str) -> ssl.SSLSocket:
        """Shakes hands, in the time that there is to connect. OSError."""
        # With OpenSSL, which a broker without TLS does not load.
        from tidelog.ports.tls import InvalidTls

        try:
            encrypted = tls().wrap_socket(plain, server_hostname=host)
        except (InvalidTls, OSError) as error:
            plain.close()
            self.tls_problem = str(error)
            raise ConnectionAbortedError(str(error)) from error
        self.tls_problem = ""
        return encrypted

    def select(
        self,
        rlist: Sequence[Wire | Waker],
        wlist: Sequence[Wire],
        xlist: Sequence[Any],
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As select.select, for what `create_connection` and `create_socket_pair` made. ConnectionDropped."""
        if wlist:
            return [], wlist[0].wait_writable(timeout), []
        wire = rlist[0]
        assert isinstance(wire, Wire)
        waker = rlist[1] if len(rlist) > 1 else None
        assert not isinstance(waker, Wire)
        self._watch_the_loop(wire)
        if not wire.greeted:
            # Nothing is agreed yet; kazoo knows how long it waits.
            return wire.wait_readable(waker, timeout), [], []
        silent_left_s = wire.heard_at + SILENT_SHARE_MAX * self.session_timeout_ms / 1000 - time.monotonic()
        ready = wire.wait_readable(waker, max(0.0, silent_left_s if timeout is None else min(timeout, silent_left_s)))
        if silent_left_s <= 0 and wire not in ready and not wire.has_input():
            raise ConnectionDropped("the server is silent")
        if waker in ready:
            self.before_send()
        return ready, [], []

    def _watch_the_loop(self, wire: Wire) -> None:
        if (time.monotonic() - self.turned_at) * 1000 > self.session_timeout_ms:
            self.over = True
            wire.send(CLOSE_FRAME)
            wire.flush()
            raise ConnectionDropped(f"the event loop has not turned for {self.session_timeout_ms} ms")


class Waker:
    """Both ends of what kazoo takes for a pair of sockets: one byte for each request in its queue."""

    def __init__(self) -> None:
        self._tokens: deque[None] = deque()
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._asleep = False

    def fileno(self) -> int:
        return self._descriptor

    @property
    def ready(self) -> bool:
        """Whether there is something to take."""
        return bool(self._tokens)

    def send(self, data: bytes) -> int:
        """On the event loop: one more request waits."""
        if self._descriptor < 0:
            raise OSError("closed")
        self._tokens.append(None)
        if self._asleep:
            os.eventfd_write(self._descriptor, 1)
        return len(data)

    def recv(self, size: int) -> bytes:
        """On the connection's thread: one request less."""
        if not self._tokens:
            raise BlockingIOError
        self._tokens.popleft()
        return b"\0"

    def sleep(self) -> bool:
        """From now on a `send` wakes the thread that polls the descriptor; False if there was one just before."""
        self._asleep = True
        return not self._tokens

    def wake(self) -> None:
        """Sends cost nothing again."""
        self._asleep = False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class Wire:
    """A connected socket that reads and writes in large pieces. Used by the connection's thread alone."""

    def __init__(self, sock: socket.socket, handler: LoopHandler) -> None:
        self._socket = sock
        self._tls = sock if isinstance(sock, ssl.SSLSocket) else None
        self._handler = handler
        self._input = b""
        self._position = 0
        self._output = bytearray()
        self._greeting = b""
        """How the server's first answer begins, as far as it has come."""
        self.greeted = False
        """The server has answered: there is a session."""
        self._sent_since_read = 0
        self.heard_at = time.monotonic()
        """When the server was last heard of."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        self._socket.setblocking(flag)

    def getpeername(self) -> Any:
        return self._socket.getpeername()

    def close(self) -> None:
        self._socket.close()

    def pending(self) -> int:
        """Bytes that can be had without waiting for the socket; kazoo knows this from TLS."""
        rest = len(self._input) - self._position
        return rest if rest or self._tls is None else self._tls.pending()

    def has_input(self) -> bool:
        """Whether something can be had at once: after a pause of this process, its silence was not the server's."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(self.pending() or poll.poll(0))

    def recv(self, size: int) -> bytes:
        if self._position == len(self._input):
            try:
                self._input = self._socket.recv(READ_SIZE)
            except ssl.SSLWantReadError:
                raise
            except ssl.SSLError as error:
                # In TLS 1.3 a server's refusal of a certificate comes now.
                self._handler.tls_problem = str(error)
                raise
            self._position = 0
            self.heard_at = time.monotonic()
            if not self.greeted:
                self._greeting += self._input[: _CONNECTED.size - len(self._greeting)]
                self.greeted = len(self._greeting) == _CONNECTED.size
                if self.greeted:
                    # kazoo keeps to itself what was agreed; 0 says that the session is over.
                    _, _, agreed_ms = _CONNECTED.unpack(self._greeting)
                    self._handler.session_timeout_ms = agreed_ms or self._handler.session_timeout_ms
        data = self._input[self._position : self._position + size]
        self._position += len(data)
        return data

    def send(self, data: bytes | memoryview) -> int:
        self._output += data
        self._sent_since_read += 1
        return len(data)

    def flush(self) -> None:
        """Writes as much as the socket takes. OSError."""
        if self._output:
            with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                del self._output[: self._socket.send(self._output)]

    def wait_writable(self, timeout: float | None) -> list[Wire]:
        """Itself, when more can be sent; nothing after the timeout."""
        if len(self._output) >= WRITE_SIZE:
            self.flush()
        if len(self._output) >= WRITE_SIZE:
            poll = select.poll()
            poll.register(self._socket, select.POLLOUT)
            if not poll.poll(None if timeout is None else timeout * 1000):
                return []
            self.flush()
        return [self]

    def wait_readable(self, waker: Waker | None, timeout: float | None) -> list[Wire | Waker]:
        """Itself, the waker, or both, when there is something to take; nothing after the timeout."""
        ready: list[Wire | Waker] = [self] if self.pending() else []
        if waker is not None and waker.ready:
            ready.append(waker)
        if ready and (self in ready or self._sent_since_read < SENDS_BETWEEN_READS):
            if waker not in ready:
                # Nothing more to gather; what was asked need not wait for all that was answered.
                self.flush()
            return ready
        self._sent_since_read = 0
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self.flush()
            poll = select.poll()
            try:
                poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._output else 0))
            except ValueError:
                # Another thread has closed the socket: the read that follows says so.
                return [self]
            if waker is not None:
                poll.register(waker, select.POLLIN)
            asleep = waker is None or waker.sleep()
            wait_ms = 0.0 if not asleep else None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            events = dict(poll.poll(wait_ms))
            if waker is not None:
                waker.wake()
            if events.get(self.fileno(), 0) & ~select.POLLOUT:
                ready.append(self)
            if waker is not None and waker.ready and waker not in ready:
                ready.append(waker)
            if ready or (deadline is not None and time.monotonic() >= deadline):
                return ready
