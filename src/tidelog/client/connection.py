"""A connection to one broker on asyncio: requests pipelined, answers paired with them, deadlines kept.

Bytes are received in place: into a small buffer for the size of each frame, then into one that the frame fills
exactly (`frame_buffers`), so that record batches are never copied on the way in. Writing waits while the transport has
more than its high-water mark unsent, and at most `IN_FLIGHT_MAX` requests await their answers: both ways are bounded.

Where the broker ends sessions (connections.max.reauth.ms), the first request after most of one has passed begins
another authentication on the same connection (KIP-368), and is sent after it: a group's coordinator and a share
session are known by their connection.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any, Final, cast

from tidelog.client.addresses import Address
from tidelog.client.errors import AuthenticationError, ClientError, ConnectionFailed, InvalidResponse, RequestTimedOut
from tidelog.client.exchange import SASL_HANDSHAKE_VERSION, SESSION_SHARE, SIZE_PREFIX, Exchange
from tidelog.client.frame_buffers import FrameBuffers
from tidelog.client.security import ClientSecurity, refused_by_alert, tls_error
from tidelog.client.throttles import Throttles
from tidelog.security.mechanisms import SaslError

IN_FLIGHT_MAX: Final = 128
"""Requests without an answer a connection; brokers answer in order, so more would only wait there."""
RENEWAL_S: Final = 30.0
"""How long another authentication may take, with the answers that it waits behind."""


class Connection(asyncio.BufferedProtocol):
    """One connection; `connect` makes it. Every error closes it, and fails all that still waits."""

    def __init__(
        self,
        address: Address,
        client_id: str,
        throttles: Throttles,
        security: ClientSecurity | None = None,
        buffers: FrameBuffers | None = None,
    ) -> None:
        self.address = address
        self._buffers = buffers or FrameBuffers()
        self._throttles = throttles
        self.closed = False
        self._exchange = Exchange(client_id, str(address), security.log_in() if security is not None else None)
        self._security = security
        self._renew_at_s: float | None = None
        """From when on the next request begins another authentication, in monotonic seconds; None: never."""
        self._renewal: asyncio.Task[None] | None = None
        """The authentication that is under way: the broker takes no other request meanwhile."""
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._hello: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._writable = asyncio.Event()
        self._writable.set()
        self._prefix = bytearray(SIZE_PREFIX)
        self._frame: bytearray | memoryview | None = None
        self._view = memoryview(self._prefix)
        self._filled = 0
        self._large: tuple[asyncio.Timeout, float] | None = None
        """The limit of the request whose answer may be large, and the seconds that it has from each byte on."""
        self._error: ClientError | None = None

    @classmethod
    async def connect(
        cls,
        address: Address,
        *,
        client_id: str = "tidelog",
        timeout_s: float = 30.0,
        throttles: Throttles | None = None,
        security: ClientSecurity | None = None,
        buffers: FrameBuffers | None = None,
    ) -> Connection:
        """Connects, negotiates versions and authenticates; ConnectionFailed, RequestTimedOut, InvalidResponse or
        AuthenticationError.

        `throttles` and `buffers` are those of all connections of a client; None: this one's own.
        """
        loop = asyncio.get_running_loop()
        prepare = None if security is None else security.preparation()
        if prepare is not None:
            await asyncio.to_thread(prepare)
        connection = cls(address, client_id, throttles or Throttles(time.monotonic), security, buffers)
        try:
            async with asyncio.timeout(timeout_s):
                tls = None if security is None else security.tls
                await loop.create_connection(lambda: connection, address.host, address.port, ssl=tls)
                await connection._hello
        except TimeoutError as error:
            raise connection._fail(RequestTimedOut(f"{address} did not answer within {timeout_s:g} s")) from error
        except ssl.SSLError as error:
            raise connection._fail(tls_error(address, error)) from error
        except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host can be so.
            reason = getattr(error, "strerror", None) or str(error)
            raise connection._fail(ConnectionFailed(f"cannot connect to {address}: {reason}")) from error
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """What the broker serves, [api key] -> (lowest, highest)."""
        return self._exchange.versions

    @property
    def features(self) -> dict[str, int]:
        """What the cluster has agreed on, [feature] -> level."""
        return self._exchange.features

    async def request(
        self,
        message: Any,
        version: int | None = None,
        *,
        timeout_s: float = 30.0,
        is_large: bool = False,
        closes: bool = True,
    ) -> Any:
        """Sends a request and waits for its answer; None for one that has none (acks=0).

        A broker that has asked for a pause gets none before it is over; `timeout_s` begins after that, and anew with
        each part that arrives of an answer that `is_large`: how long that takes is up to the way. There is one such
        request at a time.
        RequestTimedOut closes the connection, unless `closes` is False: whether the request was carried out is then
        unknown, and an answer that comes late must not be waited for by others. Cancelling leaves the connection as it
        is.
        """
        if (pause_s := self._throttles.left_s(self.address)) > 0:
            await asyncio.sleep(pause_s)
        try:
            async with asyncio.timeout(timeout_s) as limit, self._slots:
                await self._ready()
                future = self._send(message, version)
                if is_large:
                    self._large = limit, timeout_s
                return None if future is None else await future
        except TimeoutError as error:
            late = RequestTimedOut(f"{self.address} did not answer within {timeout_s:g} s").about(
                broker=str(self.address)
            )
            raise (self._fail(late) if closes else late) from error
        finally:
            if is_large:
                self._large = None

    async def _ready(self) -> None:
        """Waits until the transport takes more, and the session has time left; at once where the connection ended."""
        while True:
            await self._writable.wait()
            due = self._renew_at_s is not None and time.monotonic() >= self._renew_at_s
            if self._renewal is None and due and not self.closed:
                self._renewal = asyncio.create_task(self._renew())
            if self._renewal is None:
                return
            # The request that began it may be cancelled: others wait for it, too.
            await asyncio.shield(self._renewal)

    async def _renew(self) -> None:
        """Authenticates anew. Where that fails the connection ends: what waits can be asked by another one."""
        assert self._security is not None
        try:
            async with asyncio.timeout(RENEWAL_S):
                prepare = self._security.preparation()
                if prepare is not None:
                    await asyncio.to_thread(prepare)
                log_in = self._security.log_in()
                assert log_in is not None
                request: Any = log_in.first()
                version: int | None = SASL_HANDSHAKE_VERSION
                while request is not None:
                    answer = self._send(request, version)
                    assert answer is not None
                    request, version = log_in.answered(await answer), None
                self._stands(log_in.session_lifetime_ms)
        except TimeoutError:
            self._fail(RequestTimedOut(f"{self.address} did not authenticate this client anew within {RENEWAL_S:g} s"))
        except SaslError as error:
            self._fail(AuthenticationError(f"{self.address}: {error}"))
        except ClientError as error:
            self._fail(error)
        finally:
            self._renewal = None

    def _stands(self, lifetime_ms: int) -> None:
        """The client has authenticated, for so long; 0: for ever."""
        self._renew_at_s = time.monotonic() + lifetime_ms * SESSION_SHARE / 1000 if lifetime_ms else None

    def _send(self, message: Any, version: int | None) -> asyncio.Future[Any] | None:
        if self._error is not None or self._transport is None or self.closed:
            raise ConnectionFailed(f"the connection to {self.address} is closed: {self._error or 'by us'}").about(
                broker=str(self.address)
            )
        correlation_id, data, answered = self._exchange.encode(message, version)
        self._transport.write(data)
        if not answered:
            return None
        future = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        return future

    def close(self) -> None:
        """Closes the connection; what still waits fails with ConnectionFailed."""
        self._fail(ConnectionFailed(f"the connection to {self.address} was closed"))

    def _fail(self, error: ClientError) -> ClientError:
        """Ends the connection for a reason: the first one is what the others waiting get."""
        error.about(broker=str(self.address))
        if self._error is None:
            self._error = error
        self.closed = True
        self._writable.set()
        if self._transport is not None:
            self._transport.abort()
        for future in (self._hello, *self._waiting.values()):
            if not future.done():
                # The others' requests may have been carried out or not, whatever the reason was.
                future.set_exception(
                    self._error
                    if isinstance(self._error, InvalidResponse | AuthenticationError)
                    else ConnectionFailed(f"the connection to {self.address} ended: {self._error}").about(
                        broker=str(self.address)
                    )
                )
                future.exception()  # Marks it as seen: the caller may be waiting no more.
        self._waiting.clear()
        return error

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's by behaviour, not by class.
        self._transport = cast(asyncio.Transport, transport)
        if self.closed:
            self._transport.abort()
            return
        self._transport.write(self._exchange.hello())

    def connection_lost(self, exc: Exception | None) -> None:
        reason = str(exc) if exc is not None else "closed by the broker"
        broken = ConnectionFailed(f"the connection to {self.address} broke: {reason}")
        self._fail(refused_by_alert(self.address, exc) or broken)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._large is not None and not self._large[0].expired():
            limit, timeout_s = self._large
            limit.reschedule(asyncio.get_running_loop().time() + timeout_s)
        if self._filled < len(self._view):
            return
        self._filled = 0
        try:
            if self._frame is None:
                self._frame = self._buffers.take(self._exchange.frame_size(self._prefix))
                self._view = memoryview(self._frame)
            else:
                frame, self._frame = self._frame, None
                self._view = memoryview(self._prefix)
                self._take(frame)
        except ClientError as error:
            self._fail(error)

    def _take(self, frame: bytearray | memoryview) -> None:
        if not self._hello.done():
            again = self._exchange.hello_answered(frame)
            if again is None:
                self._stands(self._exchange.session_lifetime_ms)
                self._hello.set_result(None)
            elif self._transport is not None:
                self._transport.write(again)
            return
        correlation_id, message = self._exchange.decode(frame)
        if self._exchange.throttle_ms:
            self._throttles.told(self.address, self._exchange.throttle_ms)
        future = self._waiting.pop(correlation_id, None)
        if future is not None and not future.done():
            future.set_result(message)
