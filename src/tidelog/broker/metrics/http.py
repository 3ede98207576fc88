"""The listener of metrics and health: as little of HTTP/1.1 as Prometheus, probes and curl need, within bounds.

    GET or HEAD of a path --> Responder --> Deferred[Response]         one request of a connection at a time

A scraper that hangs costs a connection until its deadline, one that sends nonsense is told so and closed, and beyond
`CONNECTIONS_MAX` there is no answer at all: whatever comes here, the broker's own clients do not notice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from tidelog.broker.deferred import Deferred

if TYPE_CHECKING:
    from tidelog.broker.shell import Shell, Timer

logger: Final = logging.getLogger(__name__)

HEAD_BYTES_MAX: Final = 16 << 10
"""Bytes of a request's line and headers: Prometheus sends some hundred."""
CONNECTIONS_MAX: Final = 128
IDLE_MS_MAX: Final = 120_000
"""Between two requests of a connection: two scrapes of the usual interval."""
HEAD_MS_MAX: Final = 10_000
"""From the first byte of a request to the end of its headers, and from the connection to its first request."""
WRITTEN_AT_ONCE: Final = 1 << 20
"""Bytes of an answer that go to a connection in one turn of the loop: to copy them takes less than a millisecond."""
ANSWER_MS_MAX: Final = 15_000
"""For making an answer and for its reader to take it: what is not read by then keeps memory no longer."""

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


@dataclass(frozen=True, slots=True)
class Request:
    """What a responder needs of a request."""

    path: str
    """Without its query."""
    query: str = ""
    accepts_gzip: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """Status and body; a body may be shared by several responses."""

    status: int
    body: Sequence[bytes]
    content_type: str = "text/plain; charset=utf-8"
    is_gzip: bool = False
    headers: tuple[tuple[str, str], ...] = field(default=())

    @staticmethod
    def text(status: int, text: str) -> Response:
        """A line or some of text."""
        return Response(status, [text.encode()])


def head_of(response: Response, *, closes: bool) -> bytes:
    """The status line and the headers."""
    lines = [
        f"HTTP/1.1 {response.status} {_REASONS[response.status]}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {sum(map(len, response.body))}",
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    if response.is_gzip:
        lines.append("Content-Encoding: gzip")
    if closes:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class HttpServer:
    """What the connections of the listener share."""

    def __init__(self, shell: Shell, respond: Callable[[Request], Deferred[Response]]) -> None:
        """`respond` is called on the loop's thread; what it raises, or its deferred fails with, is answered by 500."""
        self.shell = shell
        self.respond = respond
        self.connections: dict[HttpConnection, None] = {}

    def connection(self) -> HttpConnection:
        """A protocol for a new connection."""
        return HttpConnection(self)

    def close(self) -> None:
        """Ends every connection at once."""
        for connection in list(self.connections):
            connection.abort()


class HttpConnection(asyncio.Protocol):
    """One scraper, probe or browser."""

    _transport: asyncio.Transport

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._received = bytearray()
        self._answering: Deferred[Response] | None = None
        self._parts: deque[bytes] = deque()
        """Of the answer that is being written: what the transport does not have yet."""
        self._writing = False
        """Whether the transport holds more than it likes to of an answer."""
        self._resting = False
        """Whether the rest of an answer waits for the loop's next turn."""
        self._closes = False
        self._timer: Timer | None = None
        self._closed = False

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, though they have their methods.
        self._transport = cast(asyncio.Transport, transport)
        if len(self._server.connections) >= CONNECTIONS_MAX:
            self._closed = True
            self._transport.abort()
            return
        self._server.connections[self] = None
        # Called back by `resume_writing` when an answer has left altogether.
        self._transport.set_write_buffer_limits(high=0)
        self._wait(HEAD_MS_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._server.connections.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._answering is not None:
            self._answering.abandon()
        self._received.clear()
        self._parts.clear()

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        if not self._received and not self._is_busy:
            self._wait(HEAD_MS_MAX)
        self._received += data
        self._next()

    def eof_received(self) -> bool:
        # One that has sent its request and closed its side may still read the answer.
        self._closes = True
        return self._is_busy

    def pause_writing(self) -> None:
        self._writing = True

    def resume_writing(self) -> None:
        self._writing = False
        self._write_parts()

    # Requests.

    @property
    def _is_busy(self) -> bool:
        return self._answering is not None or self._writing or bool(self._parts)

    def _next(self) -> None:
        """Begins the next request, if it is here and the one before is through."""
        if self._closed or self._is_busy:
            if len(self._received) > HEAD_BYTES_MAX:
                self.abort()
            return
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > HEAD_BYTES_MAX:
                self._refuse(431, "the request's headers are too large")
            return
        if end > HEAD_BYTES_MAX:
            self._refuse(431, "the request's headers are too large")
            return
        head = bytes(self._received[:end])
        del self._received[: end + 4]
        self._begin(head)

    def _begin(self, head: bytes) -> None:
        line, _, rest = head.partition(b"\r\n")
        parts = line.split(b" ")
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/"):
            self._refuse(400, "not a request of HTTP/1.1")
            return
        method, target, version = parts
        if version not in (b"HTTP/1.1", b"HTTP/1.0"):
            self._refuse(505, "HTTP/1.0 and HTTP/1.1 are served")
            return
        headers = _headers(rest)
        if headers is None:
            self._refuse(400, "a malformed header")
            return
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            self._refuse(413, "a request has no body here")
            return
        wants = headers.get(b"connection", b"").lower()
        self._closes = self._closes or b"close" in wants or (version == b"HTTP/1.0" and b"keep-alive" not in wants)
        if method not in (b"GET", b"HEAD"):
            refusal = Response(405, [b"GET and HEAD are served\n"], headers=(("Allow", "GET, HEAD"),))
            self._write(refusal, with_body=True)
            return
        request = _request(target, headers)
        if request is None:
            self._refuse(400, "not a path")
            return
        self._wait(ANSWER_MS_MAX)
        try:
            answering = self._answering = self._server.respond(request)
        except Exception:  # The scraper is answered 500, and the log has the traceback: clients do not notice.
            self._failed(request)
            return
        answering.on_complete(lambda settled: self._answered(request, settled, with_body=method == b"GET"))

    def _answered(self, request: Request, settled: Deferred[Response], *, with_body: bool) -> None:
        self._answering = None
        if self._closed:
            return
        try:
            response = settled.result()
        except Exception:  # The scraper is answered 500, and the log has the traceback: clients do not notice.
            self._failed(request)
            return
        self._write(response, with_body=with_body)

    def _failed(self, request: Request) -> None:
        logger.exception("metrics request failed: path=%r", request.path[:100])
        self._closes = True
        self._write(Response.text(500, "the broker's log says why\n"), with_body=True)

    def _refuse(self, status: int, reason: str) -> None:
        """Answers a request that cannot be understood; where the next one would begin is not known."""
        self._closes = True
        self._received.clear()
        self._write(Response.text(status, f"{reason}\n"), with_body=True)

    # Answers.

    def _write(self, response: Response, *, with_body: bool) -> None:
        self._wait(ANSWER_MS_MAX)
        self._parts.append(head_of(response, closes=self._closes))
        if with_body:
            self._parts.extend(response.body)
        self._write_parts()

    def _write_parts(self) -> None:
        """Gives the transport as much of the answer as it takes, and as one turn of the loop allows."""
        if self._resting:
            return
        written = 0
        while self._parts and not self._writing and not self._closed:
            if written >= WRITTEN_AT_ONCE:
                self._resting = True
                self._server.shell.soon(self._write_on)
                return
            part = self._parts.popleft()
            written += len(part)
            self._transport.write(part)
        self._written()

    def _write_on(self) -> None:
        self._resting = False
        self._write_parts()

    def _written(self) -> None:
        """The answer has left."""
        if self._closed or self._is_busy:
            return
        if self._closes:
            self._closed = True
            self._transport.close()
            return
        self._wait(HEAD_MS_MAX if self._received else IDLE_MS_MAX)
        if self._received:
            self._server.shell.soon(self._next)

    # Time.

    def _wait(self, timeout_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._server.shell.after(timeout_ms, self.abort)

    def abort(self) -> None:
        """Ends the connection at once."""
        self._closed = True
        self._transport.abort()


def _headers(text: bytes) -> dict[bytes, bytes] | None:
    """By lower-case name, the last of a name wins; None where a line is no header."""
    headers: dict[bytes, bytes] = {}
    for line in text.split(b"\r\n") if text else ():
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip() or b"\n" in line or b"\0" in line:
            return None
        headers[name.lower()] = value.strip()
    return headers


def _request(target: bytes, headers: dict[bytes, bytes]) -> Request | None:
    """None where the target is no path; proxies send `http://host/path`."""
    if target[:7].lower() == b"http://":
        _, slash, rest = target[7:].partition(b"/")
        target = slash + rest or b"/"
    if not target.startswith(b"/"):
        return None
    path, _, query = target.partition(b"?")
    return Request(
        path.decode("latin-1"),
        query.decode("latin-1"),
        accepts_gzip=_accepts_gzip(headers.get(b"accept-encoding", b"")),
    )


def _accepts_gzip(header: bytes) -> bool:
    for member in header.lower().split(b","):
        coding, _, quality = member.strip().partition(b";")
        if coding.strip() in (b"gzip", b"*"):
            return quality.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False
