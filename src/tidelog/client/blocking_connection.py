"""A connection that blocks: one socket to one broker, for tasks, scripts and tests.

It is not safe to share between threads; open one a thread.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any, Final

from tidelog.client.addresses import Address
from tidelog.client.errors import ConnectionFailed, RequestTimedOut
from tidelog.client.exchange import SESSION_SHARE, SIZE_PREFIX, Exchange
from tidelog.client.frame_buffers import FrameBuffers
from tidelog.client.security import ClientSecurity, refused_by_alert, tls_error
from tidelog.client.throttles import Throttles
from tidelog.ports.disk import Bytes

DEFAULT_CLIENT_ID: Final = "tidelog"
JOINED_BYTES_MAX: Final = 64 << 10
"""Below this a copy costs less than another call of the system."""


class BlockingConnection:
    """One socket to one broker. Requests may be sent before earlier ones are answered (pipelined).

    Every error closes it: after a lost or late answer nothing that follows could be trusted.
    """

    def __init__(
        self,
        address: Address,
        *,
        client_id: str = DEFAULT_CLIENT_ID,
        timeout_s: float = 30.0,
        throttles: Throttles | None = None,
        security: ClientSecurity | None = None,
        buffers: FrameBuffers | None = None,
    ) -> None:
        """Connects, negotiates versions and authenticates; ConnectionFailed, RequestTimedOut, InvalidResponse or
        AuthenticationError.

        `throttles` is told for how long the broker asks to be left alone; the owner of the connection keeps it.
        `buffers` are those of all connections of a client; None: this one's own.
        """
        self.address = address
        self._buffers = buffers or FrameBuffers()
        self._throttles = throttles
        self._exchange = Exchange(client_id, str(address), security.log_in() if security is not None else None)
        self._early: dict[int, Any] = {}
        self._prefix = bytearray(SIZE_PREFIX)
        deadline = time.monotonic() + timeout_s
        try:
            self._socket = socket.create_connection(address, timeout=max(timeout_s, 0.001))
        except TimeoutError as error:
            raise RequestTimedOut(f"{address} did not accept a connection within {timeout_s:g} s").about(
                broker=str(address)
            ) from error
        except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host can be so.
            reason = getattr(error, "strerror", None) or str(error)
            raise ConnectionFailed(f"cannot connect to {address}: {reason}").about(broker=str(address)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security is not None and security.tls is not None:
            self._socket = _encrypted(self._socket, address, security.tls)
        self.closed = False
        with self._closing_on_error():
            hello: bytes | None = self._exchange.hello()
            while hello is not None:
                self._send(hello, deadline)
                hello = self._exchange.hello_answered(self._receive_frame(deadline))
        lifetime_s = self._exchange.session_lifetime_ms / 1000
        self._renew_at_s = time.monotonic() + lifetime_s * SESSION_SHARE if lifetime_s else None

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """What the broker serves, [api key] -> (lowest, highest)."""
        return self._exchange.versions

    @property
    def is_expiring(self) -> bool:
        """Whether the broker will soon want another authentication, and no answer is due."""
        return self._renew_at_s is not None and time.monotonic() >= self._renew_at_s and not self._exchange.awaited

    @property
    def is_over(self) -> bool:
        """Whether no answer is due, and the broker has closed the connection, as one that was idle for long, or sent
        what no one asked for."""
        return not self.closed and not self._exchange.awaited and not self.is_quiet

    @property
    def is_quiet(self) -> bool:
        """Whether no answer is due, and the broker has neither closed the connection nor sent what no one asked for."""
        if self.closed or self._exchange.awaited:
            return False
        watch = select.poll()
        watch.register(self._socket, select.POLLIN)
        return not watch.poll(0)

    def request(self, message: Any, version: int | None = None, *, timeout_s: float = 30.0) -> Any:
        """Sends and waits; None for a request that has no answer (acks=0)."""
        deadline = time.monotonic() + timeout_s
        correlation_id = self.send(message, version, deadline=deadline)
        return None if correlation_id is None else self.receive(correlation_id, deadline=deadline)

    def send(self, message: Any, version: int | None = None, *, deadline: float) -> int | None:
        """Sends a request; its correlation id, to receive by, None where no answer comes. `deadline` is monotonic."""
        correlation_id, chunks, answered = self._exchange.encode_chunks(message, version)
        with self._closing_on_error():
            for data in _pieces(chunks):
                self._send(data, deadline)
        return correlation_id if answered else None

    def receive(self, correlation_id: int, *, deadline: float) -> Any:
        """The answer to one request; those to earlier ones are kept until they are asked for."""
        with self._closing_on_error():
            while correlation_id not in self._early:
                received_id, message = self._exchange.decode(self._receive_frame(deadline))
                self._early[received_id] = message
                if self._exchange.throttle_ms and self._throttles is not None:
                    self._throttles.told(self.address, self._exchange.throttle_ms)
        return self._early.pop(correlation_id)

    def close(self) -> None:
        """Closes the socket; answers not received yet are lost."""
        self.closed = True
        self._socket.close()

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        if self.closed:
            raise ConnectionFailed(f"the connection to {self.address} is closed").about(broker=str(self.address))
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise RequestTimedOut(f"{self.address} did not answer in time").about(broker=str(self.address)) from error
        except OSError as error:
            self.close()
            if refused := refused_by_alert(self.address, error):
                raise refused from error
            raise ConnectionFailed(f"the connection to {self.address} broke: {error.strerror or error}").about(
                broker=str(self.address)
            ) from error
        except BaseException:
            self.close()
            raise

    def _send(self, data: Bytes, deadline: float) -> None:
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(data)

    def _receive_frame(self, deadline: float) -> bytearray | memoryview:
        self._fill(memoryview(self._prefix), deadline)
        frame = self._buffers.take(self._exchange.frame_size(self._prefix))
        self._fill(memoryview(frame), deadline)
        return frame

    def _fill(self, view: memoryview, deadline: float) -> None:
        position, size = 0, len(view)
        while position < size:
            self._socket.settimeout(_left(deadline))
            received = self._socket.recv_into(view[position:])
            if not received:
                raise ConnectionFailed(f"{self.address} closed the connection").about(broker=str(self.address))
            position += received


def _pieces(chunks: list[Bytes]) -> list[Bytes]:
    """A request in as few pieces as need no copy of large ones: most are small, and brokers answer those at once that
    come whole."""
    if sum(map(len, chunks)) < JOINED_BYTES_MAX:
        return [b"".join(chunks)]
    pieces: list[Bytes] = []
    small: list[Bytes] = []
    for chunk in chunks:
        if len(chunk) < JOINED_BYTES_MAX:
            small.append(chunk)
            continue
        pieces += [b"".join(small), chunk]
        small = []
    return [*pieces, b"".join(small)]


def _encrypted(plain: socket.socket, address: Address, tls: ssl.SSLContext) -> ssl.SSLSocket:
    """The socket after its TLS handshake."""
    try:
        return tls.wrap_socket(plain, server_hostname=address.host)
    except TimeoutError as error:
        plain.close()
        raise RequestTimedOut(f"{address} did not finish the TLS handshake in time") from error
    except ssl.SSLError as error:
        plain.close()
        raise tls_error(address, error) from error
    except OSError as error:
        plain.close()
        raise ConnectionFailed(f"the connection to {address} broke in the TLS handshake: {error}") from error


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
