"""A TLS listener of the operating system: connections are accepted here, and handshakes begun a few at a time.

    accept -> protocol.handshake_begins -> waiting for its turn -> handshake -> protocol.connection_made
                  |                                                   |
                  +-- aborts what has no room                         +-- fails -> protocol.connection_lost

The event loops' own servers begin a handshake before anything is known of the client. Here a listener hears of each
connection first, so that it is counted, and refused where there is no room, before a key is touched. A handshake costs
up to a millisecond: of many that come at once a few are begun in each turn of the loop, so that others' requests are
handled between them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from tidelog.ports.tls import CLIENT, Client

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from tidelog.ports.network import SecuredProtocol

logger: Final = logging.getLogger(__name__)

HANDSHAKE_S_MAX: Final = 20.0
"""How long a TLS handshake may take; then the connection is closed."""
HANDSHAKES_PER_TURN: Final = 4
"""Handshakes begun in one turn of the event loop."""
ACCEPTS_PER_TURN: Final = 64
"""Connections accepted in one turn: each costs some microseconds."""
BACKLOG: Final = 1024
"""Connections that the kernel keeps until they are accepted."""
NO_DESCRIPTORS_S: Final = 1.0
"""Until the next attempt to accept, where the process or the system has no descriptor left."""
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Handshake(asyncio.Transport):
    """A connection whose handshake is not done: it can be looked at and ended."""

    def __init__(
        self, connection: socket.socket, address: tuple[Any, ...], protocol: SecuredProtocol, tls: ssl.SSLContext
    ) -> None:
        super().__init__({"peername": address, "socket": connection})
        self._connection = connection
        self._client = f"{address[0]}:{address[1]}"
        self._protocol = protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._is_under_way = False
        """Whether the event loop owns the socket."""
        self._is_closed = False

    def is_closing(self) -> bool:
        return self._is_closed

    def abort(self) -> None:
        """Ends the connection; the protocol hears of it in the loop's next turn."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_under_way:
            assert self._task is not None
            self._task.cancel()
        elif self._task is None:
            self._loop.call_soon(self._lost, None)

    close = abort

    def begin(self) -> None:
        """Shakes hands, and then connects the protocol."""
        self._task = self._loop.create_task(self._shake_hands())

    async def _shake_hands(self) -> None:
        if self._is_closed:
            self._lost(None)
            return
        self._is_under_way = True
        client = Client(self._client)
        CLIENT.set(client)
        try:
            await self._loop.connect_accepted_socket(
                lambda: cast(asyncio.BaseProtocol, self._protocol),
                self._connection,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_S_MAX,
            )
        except OSError as error:
            if isinstance(error, ConnectionResetError) and not self.is_closing():
                client.gave_up()
            self._lost(error)
        except asyncio.CancelledError:
            if not self.is_closing():
                raise
            self._lost(None)

    def _lost(self, error: Exception | None) -> None:
        self._is_closed = True
        if not self._is_under_way:
            self._connection.close()
        self._protocol.connection_lost(error)


class TlsListener:
    """`tidelog.ports.network.Listener`; made by `open_tls_listener`."""

    def __init__(
        self, sockets: list[socket.socket], factory: Callable[[], SecuredProtocol], tls: ssl.SSLContext
    ) -> None:
        self._sockets = sockets
        self._factory = factory
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Handshake] = deque()
        """Handshakes that are not begun. Their number is bounded by what the protocols admit."""
        host, port = sockets[0].getsockname()[:2]
        self._address = (host, port)
        for each in sockets:
            self._loop.add_reader(each, self._accept, each)

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None:
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            self._loop.remove_reader(each)
            each.close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if listening not in self._sockets:
                return
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                logger.error("connection_not_accepted: listener=%s:%d reason=%s", *self._address, error.strerror)
                self._loop.remove_reader(listening)
                self._loop.call_later(NO_DESCRIPTORS_S, self._accept_again, listening)
                return
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            protocol = self._factory()
            handshake = Handshake(connection, address, protocol, self._tls)
            delay_ms = protocol.handshake_begins(handshake)
            if delay_ms:
                self._loop.call_later(delay_ms / 1000, self._queue, handshake)
            else:
                self._queue(handshake)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _queue(self, handshake: Handshake) -> None:
        if handshake.is_closing():
            return
        self._waiting.append(handshake)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        begun = 0
        while self._waiting and begun < HANDSHAKES_PER_TURN:
            handshake = self._waiting.popleft()
            if not handshake.is_closing():
                handshake.begin()
                begun += 1
        if self._waiting:
            self._loop.call_soon(self._begin)


async def open_tls_listener(
    factory: Callable[[], SecuredProtocol], host: str, port: int, tls: ssl.SSLContext
) -> TlsListener:
    """Listens at each address of `host`, at all of this machine where it is empty. OSError (EADDRINUSE)."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            if sockets and not port:
                # One port at all addresses, the one that was free at the first.
                address = (address[0], sockets[0].getsockname()[1], *address[2:])
            opened = _bound(family, address)
            if opened is not None:
                sockets.append(opened)
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, f"{host or 'this machine'} has no address to listen at")
        for each in sockets:
            each.listen(BACKLOG)
        return TlsListener(sockets, factory, tls)
    except BaseException:
        for each in sockets:
            each.close()
        raise


def _bound(family: int, address: Any) -> socket.socket | None:
    """A socket bound to an address; None where the kernel does not have the family (IPv6)."""
    try:
        opened = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # IPv4 has a socket of its own.
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
    except BaseException:
        opened.close()
        raise
    return opened
