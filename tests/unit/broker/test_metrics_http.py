"""The listener of metrics: requests in every form that comes, and none that harms the broker."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.broker.harness import ManualClock, ManualShell

from tidelog.broker.deferred import Deferred
from tidelog.broker.metrics.http import (
    ANSWER_MS_MAX,
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    HEAD_MS_MAX,
    IDLE_MS_MAX,
    WRITTEN_AT_ONCE,
    HttpConnection,
    HttpServer,
    Request,
    Response,
)


class FakeTransport(asyncio.Transport):
    """Keeps what is written; `stall` makes it hold everything back."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: HttpConnection | None = None
        self.written = b""
        self.closed = self.aborted = False
        self.stall = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0

    def write(self, data: Any) -> None:
        self.written += data
        if self.stall and self.protocol is not None:
            self.protocol.pause_writing()

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True
        if self.protocol is not None:
            self.protocol.connection_lost(None)


class Listener:
    """The server with a manual shell; remembers requests."""

    def __init__(self) -> None:
        self.shell = ManualShell(ManualClock())
        self.requests: list[Request] = []
        self.answers: list[Deferred[Response]] = []
        self.waits = False
        self.server = HttpServer(self.shell, self.respond)

    def respond(self, request: Request) -> Deferred[Response]:
        self.requests.append(request)
        if request.path == "/fails":
            raise ZeroDivisionError
        if self.waits:
            answer: Deferred[Response] = Deferred()
            self.answers.append(answer)
            return answer
        return Deferred.of(Response.text(200, f"{request.path}\n"))

    def connect(self) -> tuple[HttpConnection, FakeTransport]:
        transport = FakeTransport()
        connection = self.server.connection()
        transport.protocol = connection
        connection.connection_made(transport)
        return connection, transport

    def ask(self, *parts: bytes) -> FakeTransport:
        connection, transport = self.connect()
        for part in parts:
            if not transport.closed:
                connection.data_received(part)
        self.shell.run_turns()
        return transport


@pytest.fixture
def listener() -> Listener:
    return Listener()


def status(transport: FakeTransport) -> int:
    return int(transport.written.split(b" ")[1])


def test_a_request_in_one_piece_and_in_many(listener: Listener) -> None:
    """However TCP cuts it, the answer is the same, and the connection stays."""
    request = b"GET /metrics?name[]=a HTTP/1.1\r\nHost: x\r\nAccept-Encoding: deflate, gzip;q=0.5\r\n\r\n"
    whole = listener.ask(request)
    pieces = listener.ask(*(request[index : index + 1] for index in range(len(request))))
    assert whole.written == pieces.written
    assert whole.written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert whole.written.endswith(b"\r\n\r\n/metrics\n")
    assert not whole.closed
    assert listener.requests[0] == Request("/metrics", "name[]=a", accepts_gzip=True)


def test_requests_that_come_together_are_answered_in_order(listener: Listener) -> None:
    """The next one is begun when the one before has left."""
    transport = listener.ask(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\nGET /c HTTP/1.0\r\n\r\n")
    assert [request.path for request in listener.requests] == ["/a", "/b", "/c"]
    assert transport.written.index(b"/a\n") < transport.written.index(b"/b\n") < transport.written.index(b"/c\n")
    assert transport.closed


def test_head_has_no_body(listener: Listener) -> None:
    """Its length is told all the same."""
    transport = listener.ask(b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert b"Content-Length: 9\r\n" in transport.written
    assert transport.written.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET  HTTP/1.1\r\n\r\n", 400),
        (b"GET /a b HTTP/1.1\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x00\x00\x00\x1a\x00\x12\x00\x04\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: x\nB: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"GET /" + b"a" * HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n", 431),
        (b"X" * (HEAD_BYTES_MAX + 1), 431),
        (b"GET /fails HTTP/1.1\r\n\r\n", 500),
    ],
)
def test_what_is_refused(listener: Listener, request_bytes: bytes, expected: int) -> None:
    """Each with its status, and nothing of it is believed afterwards."""
    transport = listener.ask(request_bytes)
    assert status(transport) == expected
    assert transport.closed or expected == 405


def test_hostile_paths_are_paths(listener: Listener) -> None:
    """They name no file: what is served is compared with a few words."""
    for path in (b"/../../etc/passwd", b"/%2e%2e/", b"//", b"/metrics/../x", b"/\xff\xfe", b"/a%00b"):
        assert status(listener.ask(b"GET " + path + b" HTTP/1.1\r\n\r\n")) == 200
    assert listener.requests[0].path == "/../../etc/passwd"
    assert status(listener.ask(b"GET http://host:1/metrics HTTP/1.1\r\n\r\n")) == 200
    assert listener.requests[-1].path == "/metrics"


def test_a_large_answer_is_written_in_parts(listener: Listener) -> None:
    """No turn of the loop copies more than so much; the next request is begun when all of it has left."""
    chunk = b"x" * (WRITTEN_AT_ONCE // 4)
    listener.waits = True
    connection, transport = listener.connect()
    connection.data_received(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n")
    listener.answers[0].complete(Response(200, [chunk] * 40))
    assert 0 < len(transport.written) <= WRITTEN_AT_ONCE + len(chunk)
    before = 0
    while len(transport.written) > before:
        assert len(transport.written) - before <= WRITTEN_AT_ONCE + len(chunk)
        before = len(transport.written)
        assert len(listener.requests) == 1
        listener.shell.run_turn()
    assert transport.written.endswith(b"\r\n\r\n" + chunk * 40)
    listener.shell.run_turns()
    assert [request.path for request in listener.requests] == ["/a", "/b"]


def test_a_reader_that_is_slow_is_waited_for(listener: Listener) -> None:
    """What it has not taken stays here, and nothing is written beside it; one that has gone leaves nothing behind."""
    chunk = b"y" * 1000
    listener.waits = True
    connection, transport = listener.connect()
    transport.stall = True
    connection.data_received(b"GET /a HTTP/1.1\r\n\r\n")
    listener.answers[0].complete(Response(200, [chunk] * 3))
    assert chunk not in transport.written
    for count in (1, 2, 3):
        connection.resume_writing()
        listener.shell.run_turns()
        assert transport.written.count(chunk) == count
    gone, transport = listener.connect()
    transport.stall = True
    gone.data_received(b"GET /a HTTP/1.1\r\n\r\n")
    listener.answers[1].complete(Response(200, [chunk] * 3))
    transport.abort()
    listener.shell.run_turns()
    assert chunk not in transport.written


def test_a_scraper_that_hangs_is_let_go(listener: Listener) -> None:
    """Before its request, in the midst of it, without reading its answer, and between two requests."""
    listener.connect()
    slow, _ = listener.connect()
    slow.data_received(b"GET / HT")
    listener.shell.advance(HEAD_MS_MAX)
    assert not listener.server.connections
    deaf, transport = listener.connect()
    transport.stall = True
    deaf.data_received(b"GET / HTTP/1.1\r\n\r\n")
    listener.shell.advance(ANSWER_MS_MAX)
    assert transport.aborted
    listener.ask(b"GET / HTTP/1.1\r\n\r\n")
    assert len(listener.server.connections) == 1
    listener.shell.advance(IDLE_MS_MAX)
    assert not listener.server.connections
    assert listener.shell.waiting_timers == 0


def test_a_drip_of_bytes_gets_no_more_time(listener: Listener) -> None:
    """A request has its time from the first byte on, however often another one comes."""
    connection, transport = listener.connect()
    for byte in b"GET /":
        connection.data_received(bytes([byte]))
        listener.shell.advance(HEAD_MS_MAX // 4)
        if transport.aborted:
            break
    assert transport.aborted


def test_connections_are_bounded(listener: Listener) -> None:
    """One more than the bound is closed without a word; when one goes there is room again."""
    transports = [listener.connect()[1] for _ in range(CONNECTIONS_MAX + 1)]
    assert [transport.aborted for transport in transports].count(True) == 1
    transports[0].abort()
    assert not listener.connect()[1].aborted


def test_what_is_sent_while_an_answer_waits_is_bounded(listener: Listener) -> None:
    """A flood behind a request ends the connection; an answer that comes later is dropped."""
    listener.waits = True
    connection, transport = listener.connect()
    connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
    connection.data_received(b"x" * (HEAD_BYTES_MAX + 1))
    assert transport.aborted
    listener.answers[0].complete(Response.text(200, "late"))
    assert transport.written == b""


def test_one_that_closes_its_side_still_gets_its_answer(listener: Listener) -> None:
    """As `printf ... | nc` does."""
    listener.waits = True
    connection, transport = listener.connect()
    connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
    assert connection.eof_received() is True
    listener.answers[0].complete(Response.text(200, "ok\n"))
    assert transport.written.endswith(b"ok\n")
    assert transport.closed


def test_a_fault_behind_a_late_answer_is_told(listener: Listener, caplog: pytest.LogCaptureFixture) -> None:
    """500, and a traceback in the log."""
    listener.waits = True
    connection, transport = listener.connect()
    connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
    listener.answers[0].fail(ZeroDivisionError("in a collector"))
    assert status(transport) == 500
    assert "in a collector" in caplog.text


def test_gzip_is_named(listener: Listener) -> None:
    """A compressed body says so."""
    body: Sequence[bytes] = [gzip.compress(b"a 1\n")]
    listener.waits = True
    connection, transport = listener.connect()
    connection.data_received(b"GET / HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n")
    listener.answers[0].complete(Response(200, body, is_gzip=True))
    head, _, rest = transport.written.partition(b"\r\n\r\n")
    assert b"Content-Encoding: gzip" in head
    assert gzip.decompress(rest) == b"a 1\n"
