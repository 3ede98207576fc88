"""The compiled and the general way handle a read of one request alike.

The client gets the same bytes and the dispatcher the same calls; connection and server end in the same state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.amount import examples
from tests.unit.broker.harness import ManualClock, ManualShell

from tidelog.broker.connections import server as server_module
from tidelog.broker.connections.connection import WRITE_BUFFER_HIGH, Connection
from tidelog.broker.connections.server import Server
from tidelog.broker.connections.single_requests import SingleRequests
from tidelog.broker.deferred import Deferred
from tidelog.broker.peer import CloseConnection
from tidelog.config.broker_config import BrokerConfig
from tidelog.ports.disk import FileRange

pytestmark = pytest.mark.skipif(
    SingleRequests.__module__ == "tidelog.broker.connections.single_requests",
    reason="the compiled way was not built (it needs a C compiler): there is nothing to compare",
)

PRODUCE, ECHO, SEVERAL, WAITS, SILENT, CLOSES, RANGE = 0, 3, 4, 1, 5, 6, 7


class ByReceived(Connection):
    """Every read goes the general way."""

    __slots__ = ()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.received(nbytes)


class Transport:
    """What one client was sent, write by write."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = self.paused = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 40_000) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return WRITE_BUFFER_HIGH

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed = True

    abort = close


class File:
    """What answers have ranges of; reads do not wait for the device unless `is_cold`."""

    path = "/logs/t-0/0.log"

    def __init__(self) -> None:
        self.is_cold = False

    def fileno(self) -> None:
        return None

    def pread(self, size: int, position: int) -> bytes:
        return bytes(size)

    def probe(self, size: int, position: int) -> bytes | None:
        return None if self.is_cold else bytes(size)


class Echo:
    """A dispatcher that echoes a request.

    Its key and the first byte of its text choose the form of the answer; `take` handles Produce requests whose text
    begins with o, s, l or c.
    """

    def __init__(self, connection_of: Callable[[], Connection]) -> None:
        self.seen: list[bytes] = []
        self.waiting: list[tuple[bytes, Deferred[Any]]] = []
        self.has_ordinary = True
        self.file = File()
        self._connection = connection_of

    def connection_closed(self, peer: Any) -> None:
        """It keeps nothing of a connection."""

    def ordinary(self, received_ms: int) -> Any:
        return self if self.has_ordinary else None

    def take(
        self, peer: Any, view: memoryview, position: int, end: int, count_max: int, size_max: int, outgoing: list[Any]
    ) -> tuple[int, int, Deferred[Any] | None]:
        count = 0
        while end - position > 4 and count < count_max:
            (size,) = struct.unpack_from(">i", view, position)
            body = bytes(view[position + 4 : position + 4 + size])
            if not 10 < size <= min(size_max, end - position - 4) or body[:2] != b"\0\0" or body[10:11] not in b"oslc":
                break
            count, position = count + 1, position + 4 + size
            self.seen.append(b"ordinary" + body)
            if body[10:11] == b"c":
                raise CloseConnection("a fault")
            if body[10:11] == b"l":
                return position, count, self._later(body)
            if body[10:11] == b"o":
                outgoing.append(body)
        return position, count, None

    def request(self, peer: Any, view: memoryview, position: int, end: int, received_ms: int) -> Any:
        body = bytes(view[position:end])
        self.seen.append(b"%d %s" % (received_ms, body))
        (key,) = struct.unpack_from(">h", body)
        if body[10:11] == b"m":
            self._connection()._mute(50)
        if key == CLOSES:
            raise CloseConnection("it must")
        if key == SILENT:
            return None
        if key == SEVERAL:
            return [body, b"and more"]
        if key == RANGE:
            return [body, FileRange(self.file, 0, 9)]
        if key == WAITS or body[10:11] == b"l":
            return self._later(body)
        return body

    def _later(self, body: bytes) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        if body[11:12] == b"!":
            answer.complete(body)
        else:
            self.waiting.append((body, answer))
        return answer


class Side:
    """A server with one connection."""

    def __init__(self, kind: type[Connection], monkeypatch: pytest.MonkeyPatch, request_bytes_max: int) -> None:
        self.clock = ManualClock()
        self.shell = ManualShell(self.clock)
        self.server = Server(
            BrokerConfig.from_mapping({"socket.request.max.bytes": request_bytes_max}), self.clock, self.shell
        )
        with monkeypatch.context() as patched:
            patched.setattr(server_module, "Connection", kind)
            self.connection = self.server.connection("PLAINTEXT")
        self.echo = Echo(lambda: self.connection)
        self.transport = Transport()
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        self.unread = bytearray()

    def step(self, step: Any) -> None:
        getattr(self, f"_{step[0]}")(*step[1:])

    def _start(self) -> None:
        if not self.server.serving:
            self.server.start(self.echo)  # type: ignore[arg-type]

    def _send(self, frames: list[bytes], cut: int) -> None:
        self.unread += b"".join(frames)
        while self.unread and not self.transport.paused and not self.transport.closed:
            view = self.connection.get_buffer(-1)
            size = min(len(view), len(self.unread), cut or len(self.unread))
            view[:size] = self.unread[:size]
            del self.unread[:size]
            self.connection.buffer_updated(size)

    def _read(self, data: bytes) -> None:
        """A read that was under way when reading was paused: uvloop hands it over."""
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def _turn(self, milliseconds: int) -> None:
        self.shell.advance(milliseconds)
        self.shell.run_turns()

    def _answer(self, index: int) -> None:
        if self.echo.waiting:
            body, answer = self.echo.waiting.pop(index % len(self.echo.waiting))
            answer.complete(body)

    def _unread(self, is_unread: bool) -> None:
        self.connection.pause_writing() if is_unread else self.connection.resume_writing()

    def _ordinary(self, is_there: bool) -> None:
        self.echo.has_ordinary = is_there

    def _cold(self, is_cold: bool) -> None:
        self.echo.file.is_cold = self.shell.pool_waits = is_cold
        self.shell.run_pool()

    def _crowd(self) -> None:
        self.server.budget._large.reserve(self.server.budget._large.capacity, lambda: None)
        self.server.budget._large.reserve(1, lambda: None)

    def _another(self, request: bytes) -> None:
        """Overwrites the shared buffer, as another connection's read does."""
        self.server.view[: len(request)] = request

    def _lose(self) -> None:
        self.connection.connection_lost(None)

    def state(self) -> dict[str, Any]:
        connection, server = self.connection, self.server
        return {
            "written": self.transport.written,
            "transport": (self.transport.closed, self.transport.paused, len(self.unread)),
            "seen": self.echo.seen,
            "connection": (connection.active_ms, connection.has_asked, connection._closed, connection._tail),
            "backlog": connection._backlog and bytes(connection._backlog),
            "answers": (len(connection._answers.slots), connection._answers.outgoing),
            "server": (server._frames, server._turn_started_ms, self.shell.waiting_timers),
            "buffer": len(connection.get_buffer(-1)),
        }


def frame(key: int, text: bytes) -> bytes:
    body = struct.pack(">hhih", key, 0, 0, -1) + text
    return struct.pack(">i", len(body)) + body


FRAMES = st.one_of(
    st.builds(
        frame,
        st.sampled_from([PRODUCE] * 4 + [ECHO, ECHO, SEVERAL, WAITS, SILENT, RANGE]),
        st.sampled_from([b"o", b"o", b"o", b"s", b"l", b"l!", b"general", b"m", b""]),
    ),
    st.builds(frame, st.sampled_from([CLOSES, PRODUCE]), st.just(b"c")),
    st.builds(lambda size: frame(ECHO, bytes(size)), st.sampled_from([20_000, 131_000, 140_000])),
    st.sampled_from([b"\0\0\0\x01x", b"\xff\xff\xff\xff", struct.pack(">i", 300_001)]),
)
STEPS = st.one_of(
    *[st.tuples(st.just("send"), st.lists(FRAMES, min_size=1, max_size=1), st.just(0))] * 5,
    st.tuples(st.just("send"), st.lists(FRAMES, min_size=1, max_size=4), st.sampled_from([0, 0, 5, 13, 40_000])),
    st.tuples(st.just("turn"), st.sampled_from([0, 0, 1, 60])),
    st.tuples(st.just("answer"), st.integers(0, 3)),
    st.tuples(st.just("unread"), st.booleans()),
    st.tuples(st.just("ordinary"), st.booleans()),
    st.tuples(st.just("cold"), st.booleans()),
    *[st.just(("start",))] * 2,
    st.just(("crowd",)),
    st.just(("lose",)),
)


def same(steps: list[Any], request_bytes_max: int = 300_000) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        compiled, general = (Side(kind, monkeypatch, request_bytes_max) for kind in (Connection, ByReceived))
    for step in steps:
        compiled.step(step)
        general.step(step)
        assert compiled.state() == general.state(), step


@settings(max_examples=examples(300))
@given(is_serving=st.sampled_from([True] * 9 + [False]), steps=st.lists(STEPS, min_size=1, max_size=14))
def test_both_ways_do_the_same(is_serving: bool, steps: list[Any]) -> None:
    """However requests are cut into reads, and whatever the connection waits for."""
    same([("start",)] * is_serving + steps)


SINGLE = (
    *(frame(PRODUCE, text) for text in (b"o", b"s", b"l", b"l!", b"general", b"m", b"c", b"")),
    *(frame(key, b"") for key in (ECHO, SEVERAL, WAITS, SILENT, RANGE, CLOSES, -1)),
    frame(ECHO, b"m"),
    frame(ECHO, bytes(131_000)),
    b"\0\0\0\x01x",
    b"\0\0\0\x0112345678901234",
)
ASKED, SENT = frame(ECHO, b"asked"), frame(PRODUCE, b"o")
SITUATIONS: dict[str, list[Any]] = {
    "plain": [],
    "a Produce request waits": [("send", [frame(PRODUCE, b"l")], 0)],
    "another request waits": [("send", [frame(WAITS, b"")], 0)],
    "answers are unread": [("unread", True)],
    "an answer has come in this turn": [("send", [frame(PRODUCE, b"l")], 0), ("answer", 0)],
    "a range was sent": [("send", [frame(RANGE, b"")], 0)],
    "a range waits for its device": [("cold", True), ("send", [frame(RANGE, b"")], 0)],
    "throttled": [("send", [frame(ECHO, b"m")], 0), ("read", frame(ECHO, b"meanwhile"))],
    "memory is short": [("crowd",)],
    "nothing is compiled": [("ordinary", False)],
    "closed": [("send", [frame(CLOSES, b"")], 0)],
    "lost": [("lose",)],
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_request_in_each_situation(situation: str) -> None:
    """The request is sent, then an ordinary one, then the same again; at last all outstanding answers come."""
    before = SITUATIONS[situation]
    for sent in SINGLE:
        steps = [("start",), *before, ("send", [sent], 0), ("send", [SENT], 0), ("turn", 0), ("send", [sent], 0)]
        after = [("answer", 0), ("answer", 0), ("unread", False), ("cold", False), ("turn", 60)]
        same([*steps, *after, ("send", [ASKED], 0)])


@pytest.mark.parametrize("sent", SINGLE)
def test_each_request_before_the_start(sent: bytes) -> None:
    same([("read", sent[:131_072]), ("start",), ("turn", 0), ("send", [ASKED], 0)])


def test_a_turn_begins_with_its_first_request() -> None:
    """What is pipelined behind it is not held for late."""
    same([("start",), ("turn", 60), ("send", [frame(SILENT, b"")], 0), ("send", [ASKED, ASKED], 0), ("turn", 0)])


def test_a_request_that_is_too_large() -> None:
    same([("start",), ("send", [frame(ECHO, bytes(1_000))], 0)], request_bytes_max=1_000)
    same([("start",), ("send", [frame(ECHO, bytes(300_001))], 0)])


def test_a_read_of_a_frames_length_that_is_no_frame() -> None:
    """The buffer begins with what was kept of the read before, or still has an other request in it."""
    same([("start",), ("send", [ASKED + SENT[:5]], 0), ("send", [SENT[5:] + ASKED[:5]], 0), ("send", [ASKED[5:]], 0)])
    large = frame(ECHO, bytes(140_000))
    begun = [("start",), ("send", [large[:131_072]], 0), ("send", [large[131_072 : -len(ASKED)]], 0)]
    same([*begun, ("another", ASKED), ("send", [large[-len(ASKED) :]], 0)])


@pytest.mark.parametrize("before", [(), (frame(RANGE, b""),)])
@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        (frame(PRODUCE, b"o"), b"ordinary"),
        (frame(PRODUCE, b"l"), b"ordinary"),
        (frame(PRODUCE, b"general"), b"1000 "),
        (frame(ECHO, b"o"), b"1000 "),
        (frame(WAITS, b""), b"1000 "),
    ],
)
def test_a_read_of_one_request_is_not_handed_on(
    before: tuple[bytes, ...], sent: bytes, seen: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it were, the tests above would compare the general way with itself. Nor is it after an answer from a file."""
    side = Side(Connection, monkeypatch, 300_000)
    side.step(("start",))
    for each in before:
        side.step(("send", [each], 0))
    side.echo.seen.clear()
    monkeypatch.setattr(Connection, "received", None)
    side.step(("send", [sent], 0))
    assert side.echo.seen == [side.echo.seen[0]]
    assert side.echo.seen[0].startswith(seen)
