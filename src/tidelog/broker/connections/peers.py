"""The way to the other brokers: requests of Kafka's own protocol, pipelined, a connection for each broker and purpose.

    ask --> encoded at once --> written, in the order of the calls --> answers, paired by correlation id --> Deferred
                 |
                 +-- not connected: kept until the connection stands, or the attempt fails

Brokers of one cluster speak fixed versions, as Kafka's brokers of ZooKeeper days do: there is no ApiVersions before the
first request, so a connection costs one round trip. A connection is made by the first request that needs it, and again
by the next one after it broke, after a small back-off that grows. Whatever goes wrong with a connection fails all that
waits on it: what was asked may have been carried out or not, and the caller decides whether to ask again.

Answers are read into one buffer that all connections share, and copied out of it, a frame each; a frame that is larger
than what came is received in place. So each answer's bytes are its own, and the records in it stay valid.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import TYPE_CHECKING, Any, Final, cast

from tidelog.broker.deferred import Deferred
from tidelog.broker.shell import Purpose
from tidelog.protocol import framing
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.errors import ProtocolError
from tidelog.security.mechanisms import SaslError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

    from tidelog.ports.clock import Clock
    from tidelog.ports.network import Network
    from tidelog.security.sasl_client import SaslClient

logger: Final = logging.getLogger(__name__)

RECEIVE_BUFFER_SIZE: Final = 64 << 10
"""Bytes that one read takes at most, outside of large frames."""
FRAME_SIZE_MAX: Final = 256 << 20
"""Bytes of an answer. A Fetch response has at most replica.fetch.response.max.bytes and one batch: more is no Kafka."""
_SPARE_SIZE_MAX: Final = 4 << 20
"""Bytes of an answer whose buffer is kept for the next one, for as long as those that come do not fit into a read."""
CONNECT_MS_MAX: Final = 10_000
"""socket.connection.setup.timeout.ms: how long one attempt to connect may take."""
BACKOFF_MS_MIN: Final = 20
"""Before the next attempt after one that failed; doubled by each further one."""
BACKOFF_MS_MAX: Final = 500

SASL_VERSION: Final = 1
"""Of SaslHandshake and SaslAuthenticate between brokers: Kafka's since 2.2 tell a session's lifetime in it."""
RENEWAL_SHARE: Final = 0.85
"""Of a session's lifetime, after which it is renewed: Kafka's clients choose 85 to 95 %."""

_INT: Final = struct.Struct(">i")


def _ignore(broker_id: int) -> None:
    pass


class _Asked:
    """A request that waits for its answer."""

    __slots__ = ("answer", "data", "key", "timer", "version")

    def __init__(self, key: ApiKey, version: int, data: bytes | None, timer: asyncio.TimerHandle) -> None:
        self.key = key
        self.version = version
        self.data = data
        """The request, until it was written."""
        self.timer = timer
        self.answer: Deferred[Any] = Deferred()


class Peers:
    """One broker's connections to the others. All methods are called on the loop's thread."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        address_of: Callable[[int], tuple[str, int] | None],
        *,
        client_id: str = "broker",
        log_in: Callable[[], SaslClient] | None = None,
        tls: ssl.SSLContext | None = None,
        on_reached: Callable[[int], object] = _ignore,
        on_broke: Callable[[int], object] = _ignore,
    ) -> None:
        """`address_of(broker_id)` is where the other brokers reach one, host and port; None while it is not known.

        `log_in` begins the authentication that each connection has to pass; None where their listener has none.
        `tls` is what they are encrypted with.
        `on_reached` is called for each connection that is open, `on_broke` for each that its other end has closed.
        """
        self.network = network
        self.clock = clock
        self.client_id = client_id
        self.log_in = log_in
        self.tls = tls
        self.view = memoryview(bytearray(RECEIVE_BUFFER_SIZE))
        """What all connections read into: a read and what follows from it are never interleaved with another's."""
        self.on_reached = on_reached
        self.on_broke = on_broke
        self._address_of = address_of
        self._links: dict[tuple[int, Purpose], _Link] = {}
        self._closed = False

    def ask(self, broker_id: int, purpose: Purpose, message: Any, version: int, timeout_ms: int) -> Deferred[Any]:
        """Sends a request to another broker; the message of its answer.

        Fails with ConnectionError where the broker is unknown, refuses, or the connection breaks, with TimeoutError
        when there is no answer after `timeout_ms`; either way everything that waits on that connection fails.
        """
        address = None if self._closed else self._address_of(broker_id)
        if address is None:
            reason = "this broker stops" if self._closed else "it is not known to be live"
            unreachable: Deferred[Any] = Deferred()
            unreachable.fail(ConnectionRefusedError(f"broker {broker_id} cannot be reached: {reason}"))
            return unreachable
        place = (broker_id, purpose)
        link = self._links.get(place)
        if link is None:
            link = self._links[place] = _Link(self, broker_id, purpose, address)
        elif link.address != address:
            link.moved(address)
        return link.ask(message, version, timeout_ms)

    def retain(self, broker_ids: Iterable[int]) -> None:
        """Closes the connections to all other brokers: they are gone from the cluster."""
        staying = frozenset(broker_ids)
        for place in [place for place in self._links if place[0] not in staying]:
            self._links.pop(place).close(f"broker {place[0]} is gone from the cluster")

    def close_purpose(self, purpose: Purpose, *, but: int) -> None:
        """Closes the connections for a purpose to all brokers but one: they are asked for it no more."""
        for place in [place for place in self._links if place[1] is purpose and place[0] != but]:
            self._links.pop(place).close(f"broker {place[0]} is not asked any more")

    def close(self) -> None:
        """Closes all connections and fails what waits; nothing can be asked any more. Idempotent."""
        self._closed = True
        links, self._links = self._links, {}
        for link in links.values():
            link.close("this broker stops")


class _Link:
    """The requests to one broker for one purpose, over whatever connection stands at the moment."""

    def __init__(self, peers: Peers, broker_id: int, purpose: Purpose, address: tuple[str, int]) -> None:
        self.peers = peers
        self.address = address
        self._broker_id = broker_id
        self._name = f"broker {broker_id} ({purpose.value})"
        self._client_id = f"{peers.client_id}-{purpose.value}"
        self._waiting: dict[int, _Asked] = {}
        """By correlation id, in the order of the calls."""
        self._last_id = 0
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        """The attempt to connect, or to authenticate anew: what is asked meanwhile is sent when it is through."""
        self._authenticating: tuple[_Connection, asyncio.Future[Any]] | None = None
        """The connection that authenticates, and the answer that it waits for."""
        self._renewal: asyncio.TimerHandle | None = None
        self._failures = 0
        """Attempts to connect that failed in a row."""
        self._next_attempt_ms = 0

    def ask(self, message: Any, version: int, timeout_ms: int) -> Deferred[Any]:
        key: ApiKey = message.API_KEY
        correlation_id = self._last_id = (self._last_id + 1) & 0x7FFFFFFF
        data = framing.encode_request(key, version, correlation_id, self._client_id, message)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(timeout_ms / 1000, self._timed_out, correlation_id, timeout_ms)
        connection = self._connection
        asked = self._waiting[correlation_id] = _Asked(key, version, None if connection else data, timer)
        if connection is not None:
            connection.transport.write(data)
        elif self._connecting is None:
            self._connecting = loop.create_task(self._connect())
        return asked.answer

    def moved(self, address: tuple[str, int]) -> None:
        """The broker is elsewhere now: what was asked of its former place has failed."""
        self.address = address
        self._failures = 0
        self._next_attempt_ms = 0
        self._break(ConnectionResetError(f"{self._name} moved to {address[0]}:{address[1]}"))

    def close(self, reason: str) -> None:
        self._break(ConnectionResetError(f"the connection to {self._name} was closed: {reason}"))

    # The connection.

    async def _connect(self) -> None:
        delay_ms = self._next_attempt_ms - self.peers.clock.monotonic_ms()
        if delay_ms > 0:
            await asyncio.sleep(delay_ms / 1000)
        connection = _Connection(self)
        host, port = self.address
        try:
            async with asyncio.timeout(CONNECT_MS_MAX / 1000):
                await self.peers.network.connect(lambda: connection, host, port, self.peers.tls)
                lifetime_ms = await self._authenticate(connection)
        except asyncio.CancelledError:
            connection.abort()
            raise
        except (OSError, ValueError, OverflowError) as error:
            # A TimeoutError is an OSError too; the others are addresses that cannot be: a broken registration.
            connection.abort()
            self._connecting = None
            self._failures += 1
            backoff_ms = min(BACKOFF_MS_MIN << min(self._failures - 1, 10), BACKOFF_MS_MAX)
            self._next_attempt_ms = self.peers.clock.monotonic_ms() + backoff_ms
            reason = getattr(error, "strerror", None) or str(error) or f"no connection after {CONNECT_MS_MAX} ms"
            self._fail_all(ConnectionRefusedError(f"cannot connect to {self._name} at {host}:{port}: {reason}"))
            return
        self._connecting = None
        if connection.closed:
            # It broke as soon as it stood.
            self._next_attempt_ms = self.peers.clock.monotonic_ms() + BACKOFF_MS_MIN
            self._fail_all(ConnectionResetError(f"the connection to {self._name} at {host}:{port} broke at once"))
            return
        self._failures = 0
        self.peers.on_reached(self._broker_id)
        self._stands(connection, lifetime_ms)

    def _stands(self, connection: _Connection, lifetime_ms: int) -> None:
        """Requests may go out by `connection`: those that have waited for it do."""
        self._connection = connection
        if lifetime_ms:
            loop = asyncio.get_running_loop()
            self._renewal = loop.call_later(lifetime_ms * RENEWAL_SHARE / 1000, self._renew, connection)
        unsent = []
        for asked in self._waiting.values():
            if asked.data is not None:
                unsent.append(asked.data)
                asked.data = None
        connection.transport.write(b"".join(unsent))

    # Authentication.

    async def _authenticate(self, connection: _Connection) -> int:
        """Passes the other broker's SASL, if there is any; how long that holds, milliseconds, 0: for ever. OSError."""
        if self.peers.log_in is None:
            return 0
        client = self.peers.log_in()
        message: Any = client.first()
        try:
            while message is not None:
                message = client.answered(await self._ask_by(connection, message))
        except SaslError as error:
            raise ConnectionRefusedError(f"authentication failed: {error}") from error
        finally:
            self._authenticating = None
        return client.session_lifetime_ms

    async def _ask_by(self, connection: _Connection, message: Any) -> Any:
        """The answer to one request of SASL, which goes out before all others."""
        loop = asyncio.get_running_loop()
        correlation_id = self._last_id = (self._last_id + 1) & 0x7FFFFFFF
        data = framing.encode_request(message.API_KEY, SASL_VERSION, correlation_id, self._client_id, message)
        timer = loop.call_later(CONNECT_MS_MAX / 1000, self._timed_out, correlation_id, CONNECT_MS_MAX)
        asked = self._waiting[correlation_id] = _Asked(message.API_KEY, SASL_VERSION, None, timer)
        answer: asyncio.Future[Any] = loop.create_future()
        self._authenticating = (connection, answer)
        if connection.closed:
            raise ConnectionResetError("it broke as soon as it stood")

        def settle(settled: Deferred[Any]) -> None:
            if answer.done():
                return
            try:
                answer.set_result(settled.result())
            except Exception as error:
                answer.set_exception(error)

        asked.answer.on_complete(settle)
        connection.transport.write(data)
        try:
            return await answer
        finally:
            # Where the answer does not come any more, nothing else waits for it.
            timer.cancel()
            self._waiting.pop(correlation_id, None)

    def _renew(self, connection: _Connection) -> None:
        """The session is about to end: authenticates anew, while new requests wait (connections.max.reauth.ms)."""
        if connection is self._connection and self._connecting is None:
            self._connection = None
            self._connecting = asyncio.get_running_loop().create_task(self._authenticate_anew(connection))

    async def _authenticate_anew(self, connection: _Connection) -> None:
        try:
            lifetime_ms = await self._authenticate(connection)
        except asyncio.CancelledError:
            connection.abort()
            raise
        except (OSError, ValueError) as error:
            self._connecting = None
            connection.abort()
            self._fail_all(ConnectionResetError(f"the connection to {self._name} broke: {error}"))
            return
        self._connecting = None
        self._stands(connection, lifetime_ms)

    def lost(self, connection: _Connection, error: Exception | None) -> None:
        """asyncio, or what was received, says that a connection is over."""
        if self._authenticating is not None and connection is self._authenticating[0]:
            answer = self._authenticating[1]
            if not answer.done():
                answer.set_exception(ConnectionResetError("it was closed while this broker authenticated"))
            return
        if connection is not self._connection:
            return
        self.peers.on_broke(self._broker_id)
        reason = "it was closed by that broker" if error is None else str(error)
        self._break(ConnectionResetError(f"the connection to {self._name} broke: {reason}"))

    def _timed_out(self, correlation_id: int, timeout_ms: int) -> None:
        asked = self._waiting.pop(correlation_id, None)
        if asked is None:
            return
        # Answers come in order: requests behind this one would wait in vain too.
        self._break(ConnectionResetError(f"the connection to {self._name} was given up: it does not answer"))
        self._settle(asked, TimeoutError(f"{self._name} did not answer within {timeout_ms} ms"))

    def _break(self, error: OSError) -> None:
        """Ends the connection, or the attempt, and fails all that waits."""
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        self._fail_all(error)

    def _fail_all(self, error: OSError) -> None:
        waiting, self._waiting = self._waiting, {}
        for asked in waiting.values():
            self._settle(asked, error)

    # Answers.

    def answered(self, frame: bytes | memoryview) -> None:
        """One whole answer, without its size; its bytes are its own."""
        (correlation_id,) = _INT.unpack_from(frame)
        asked = self._waiting.pop(correlation_id, None)
        if asked is None:
            raise ProtocolError(f"an answer to request {correlation_id}, which was not asked")
        try:
            _, message = framing.decode_response(asked.key, asked.version, frame)
        except ProtocolError as error:
            what = f"{asked.key.name} version {asked.version}: {error}"
            self._settle(asked, ConnectionResetError(f"the answer of {self._name} is malformed: {what}"))
            raise
        self._settle(asked, message)

    def _settle(self, asked: _Asked, outcome: Any) -> None:
        asked.timer.cancel()
        try:
            if isinstance(outcome, Exception):
                asked.answer.fail(outcome)
            else:
                asked.answer.complete(outcome)
        except Exception:
            # The caller that waited made a mistake; the connection and the other requests on it must not pay for it.
            logger.exception("response callback failed: broker=%s api=%s", self._name, asked.key.name)


class _Connection(asyncio.BufferedProtocol):
    """asyncio's side of one connection: cuts what is received into frames."""

    transport: asyncio.Transport

    def __init__(self, link: _Link) -> None:
        self.closed = False
        self._link = link
        self._connected = False
        self._view = link.peers.view
        self._tail = b""
        """Less than a size, kept until the rest comes."""
        self._frame: memoryview | None = None
        """A frame of which only the beginning has come."""
        self._filled = 0
        self._spare: bytearray | None = None
        """The buffer of the last large frame, for the next one."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, though they have their methods.
        self.transport = cast(asyncio.Transport, transport)
        self._connected = True
        if self.closed:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._link.lost(self, exc)

    def eof_received(self) -> bool:
        return False

    def abort(self) -> None:
        """Closes at once; what is unsent is lost."""
        self.closed = True
        if self._connected:
            self.transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return self._frame[self._filled :]
        size = len(self._tail)
        if size:
            self._view[:size] = self._tail
        return self._view[size:]

    def buffer_updated(self, nbytes: int) -> None:
        if self.closed:
            return
        try:
            if self._frame is None:
                self._take(len(self._tail) + nbytes)
                return
            self._filled += nbytes
            if self._filled == len(self._frame):
                frame, self._frame = self._frame, None
                self._link.answered(frame)
        except ProtocolError as error:
            self._link.lost(self, error)

    def _take(self, end: int) -> None:
        """Hands on the frames in the first `end` bytes of the buffer, and keeps the rest."""
        view, position = self._view, 0
        self._tail = b""
        while end - position >= 4:
            (size,) = _INT.unpack_from(view, position)
            if not 4 <= size <= FRAME_SIZE_MAX:
                raise ProtocolError(f"a frame of {size} bytes is no answer of a Kafka broker")
            position += 4
            if position + size > end:
                self._filled = end - position
                self._frame = self._buffer(size)
                self._frame[: self._filled] = view[position:end]
                return
            # The next large one may be long in coming.
            self._spare = None
            self._link.answered(bytes(view[position : position + size]))
            if self.closed:
                return
            position += size
        self._tail = bytes(view[position:end])

    def _buffer(self, size: int) -> memoryview:
        """Room for a large frame: that of the one before it, once nothing of that is read any more.

        Followers get a megabyte at a time: to take that anew, and to fill it with zeros, is a tenth of their work.
        """
        if size > _SPARE_SIZE_MAX:
            return memoryview(bytearray(size))
        spare = self._spare
        if spare is None or len(spare) < size or not _is_unread(spare):
            spare = self._spare = bytearray(1 << (size - 1).bit_length())
        return memoryview(spare)[:size]


def _is_unread(buffer: bytearray) -> bool:
    """Whether no view of it is left: its size cannot be changed as long as there is one."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
