"""Connections: frames however they are cut, answers in order, bounds on what one client may take."""

import contextlib
import logging
import socket
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.amount import examples
from tests.unit.broker.harness import Broker, ManualClock, ManualShell, make_batch, produce_request

from tidelog.broker.connections import connection as connection_module
from tidelog.broker.connections import server as server_module
from tidelog.broker.connections.authentication import Gate
from tidelog.broker.connections.connection import AUTHENTICATION_MS_MAX, Connection
from tidelog.broker.connections.large_frame import FRAME_MS_MAX, STALL_MS_MAX
from tidelog.broker.connections.server import FRAMES_PER_TURN, RECEIVE_BUFFER_SIZE, Server
from tidelog.broker.deferred import Deferred
from tidelog.broker.peer import CloseConnection
from tidelog.config.broker_config import BrokerConfig
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

PRODUCE, METADATA = 0, 3


class FakeTransport:
    """Remembers what was written, and whether it is closed or paused."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.written: list[bytes] = []
        self.closed = self.aborted = self.paused = False
        self.unread = 0
        self.address = address

    def get_extra_info(self, name: str) -> Any:
        return (self.address, 40_000) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class EchoDispatcher:
    """Answers a request with its own bytes; `waiting` keys get a deferred instead."""

    def ordinary(self, received_ms: int) -> None:
        """Every request comes by `request`."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.waiting: set[int] = set()
        self.deferred: list[tuple[bytes, Deferred[bytes]]] = []

    def connection_closed(self, peer: Any) -> None:
        """Nothing here belongs to a connection."""

    def request(self, peer: Any, view: memoryview, position: int, end: int, received_ms: int) -> Any:
        body = bytes(view[position:end])
        self.requests.append(body)
        (key,) = struct.unpack_from(">h", body)
        if key == -1:
            raise CloseConnection("key -1")
        if key == -2:
            return None
        if key in self.waiting:
            answer: Deferred[bytes] = Deferred()
            self.deferred.append((body, answer))
            return answer
        return body


class World:
    """A server whose dispatcher echoes."""

    def __init__(self, **settings: object) -> None:
        self.clock = ManualClock()
        self.shell = ManualShell(self.clock)
        self.config = BrokerConfig.from_mapping({name.replace("_", "."): value for name, value in settings.items()})
        self.server = Server(self.config, self.clock, self.shell)
        self.dispatcher = EchoDispatcher()
        self.server.start(self.dispatcher)  # type: ignore[arg-type]

    def connect(self, address: str = "127.0.0.1", listener: str = "PLAINTEXT") -> tuple[Connection, FakeTransport]:
        connection = self.server.connection(listener)
        transport = FakeTransport(address)
        connection.connection_made(transport)  # type: ignore[arg-type]
        return connection, transport


def frame(key: int = METADATA, body: bytes = b"") -> bytes:
    content = struct.pack(">hhih", key, 0, 0, -1) + body
    return struct.pack(">i", len(content)) + content


def feed(connection: Connection, data: bytes) -> int:
    """Hands over bytes as a transport does, until all are taken or reading is paused; returns how many were taken."""
    taken = 0
    while taken < len(data) and not connection._transport.paused and not connection._transport.closed:  # type: ignore[attr-defined]
        view = connection.get_buffer(-1)
        assert len(view) > 0
        size = min(len(view), len(data) - taken)
        view[:size] = data[taken : taken + size]
        connection.buffer_updated(size)
        taken += size
    return taken


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 11, 1000])
def test_frames_may_be_cut_anywhere(step: int) -> None:
    """However the bytes are cut into reads, each request is seen once, whole, in order."""
    world = World()
    connection, transport = world.connect()
    bodies = [bytes([index]) * (index * 7) for index in range(20)]
    stream = b"".join(frame(METADATA, body) for body in bodies)
    for position in range(0, len(stream), step):
        feed(connection, stream[position : position + step])
    assert [request[10:] for request in world.dispatcher.requests] == bodies
    assert b"".join(transport.written) == b"".join(world.dispatcher.requests)


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(st.integers(1, 70_000), min_size=1, max_size=6), st.lists(st.integers(1, 60_000), min_size=1))
def test_large_and_small_frames_in_any_cuts(sizes: list[int], cuts: list[int]) -> None:
    """Frames above and below every buffer size come through unharmed, whatever the reads."""
    world = World()
    connection, _ = world.connect()
    bodies = [bytes([index % 251]) * (size * 3) for index, size in enumerate(sizes)]
    stream = b"".join(frame(METADATA, body) for body in bodies)
    position = turn = 0
    while position < len(stream):
        cut = cuts[turn % len(cuts)]
        turn += 1
        position += feed(connection, stream[position : position + cut])
        world.shell.run_turns()
    assert [request[10:] for request in world.dispatcher.requests] == bodies


def test_the_answers_of_one_read_are_one_write() -> None:
    """Pipelined requests are handled in one go, and their answers joined."""
    world = World()
    connection, transport = world.connect()
    feed(connection, frame() * 10)
    assert len(world.dispatcher.requests) == 10
    assert len(transport.written) == 1


def test_a_read_ends_exactly_at_the_end_of_a_large_frame() -> None:
    """The rest of a large frame is read into its own buffer, and not a byte of the next."""
    world = World()
    connection, _ = world.connect()
    large = frame(METADATA, bytes(1_000_000))
    feed(connection, large[:RECEIVE_BUFFER_SIZE])
    assert len(connection.get_buffer(-1)) == len(large) - RECEIVE_BUFFER_SIZE


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 9, 104_857_601, 2**31 - 1])
def test_impossible_sizes_close_the_connection(size: int, caplog: pytest.LogCaptureFixture) -> None:
    """Negative, too small, larger than socket.request.max.bytes: closed, with a line that says why."""
    world = World()
    connection, transport = world.connect()
    with caplog.at_level(logging.WARNING):
        feed(connection, struct.pack(">i", size) + b"rest")
    assert transport.closed
    assert "connection closed" in caplog.text
    assert str(size) in caplog.text
    assert world.dispatcher.requests == []


def test_what_came_before_a_bad_frame_is_answered() -> None:
    """Answers that are ready go out before the connection is closed."""
    world = World()
    connection, transport = world.connect()
    feed(connection, frame() + frame(-1) + frame())
    assert len(world.dispatcher.requests) == 2
    assert b"".join(transport.written) == frame()[4:]
    assert transport.closed
    assert not transport.aborted


def test_answers_keep_the_order_of_requests() -> None:
    """A request is not begun while an earlier one waits for its answer, as with Kafka's muted channels."""
    world = World()
    world.dispatcher.waiting = {1}
    connection, transport = world.connect()
    feed(connection, frame(METADATA, b"a") + frame(1, b"b") + frame(METADATA, b"c"))
    assert [request[10:] for request in world.dispatcher.requests] == [b"a", b"b"]
    assert transport.paused
    body, answer = world.dispatcher.deferred[0]
    answer.complete(body)
    world.shell.run_turns()
    assert [request[10:] for request in world.dispatcher.requests] == [b"a", b"b", b"c"]
    assert b"".join(transport.written) == b"".join(world.dispatcher.requests)
    assert not transport.paused


def test_a_request_that_waits_for_news_is_answered_when_the_next_one_comes() -> None:
    """What can be hurried gives its answer, in order, and the next request is begun; half a request hurries nobody."""
    world = World()
    world.dispatcher.waiting = {1}
    connection, transport = world.connect()
    feed(connection, frame(1, b"a"))
    body, answer = world.dispatcher.deferred[0]
    answer.on_hurried = lambda: answer.complete(body)
    following = frame(1, b"b") + frame(METADATA, b"c")
    feed(connection, following[:10])
    assert not transport.written
    feed(connection, following[10:])
    assert [request[10:] for request in world.dispatcher.requests] == [b"a", b"b"]
    assert b"".join(transport.written) == frame(1, b"a")[4:]
    assert transport.paused, "The second one cannot be hurried: the third waits."


def test_produce_requests_may_overlap() -> None:
    """Produce requests that wait don't hold up the next ones, and are answered in order nevertheless."""
    world = World()
    world.dispatcher.waiting = {PRODUCE}
    connection, transport = world.connect()
    feed(connection, b"".join(frame(PRODUCE, bytes([index])) for index in range(3)) + frame(METADATA))
    assert len(world.dispatcher.requests) == 3
    for position in (2, 0, 1):
        body, answer = world.dispatcher.deferred[position]
        answer.complete(body)
    world.shell.run_turns()
    assert b"".join(transport.written) == b"".join(world.dispatcher.requests)
    assert len(world.dispatcher.requests) == 4


def test_an_answer_that_comes_while_others_are_handled_keeps_its_place() -> None:
    """A later request of the same read may complete an earlier one: the earlier answer still goes first."""
    world = World()
    world.dispatcher.waiting = {PRODUCE}
    connection, transport = world.connect()
    original = world.dispatcher.request

    def request(peer: Any, view: memoryview, position: int, end: int, received_ms: int) -> Any:
        if bytes(view[position + 10 : end]) == b"last":
            world.dispatcher.waiting = set()
            body, answer = world.dispatcher.deferred[0]
            answer.complete(body)
        return original(peer, view, position, end, received_ms)

    world.dispatcher.request = request  # type: ignore[method-assign]
    feed(connection, frame(METADATA, b"0") + frame(PRODUCE, b"1") + frame(PRODUCE, b"last"))
    assert (
        b"".join(transport.written)
        == frame(METADATA, b"0")[4:] + frame(PRODUCE, b"1")[4:] + frame(PRODUCE, b"last")[4:]
    )


def test_no_answer_is_due_for_some_requests() -> None:
    """acks=0: nothing is written, and what follows is answered."""
    world = World()
    connection, transport = world.connect()
    feed(connection, frame(-2) + frame(METADATA, b"x"))
    assert b"".join(transport.written) == frame(METADATA, b"x")[4:]


def test_a_turn_is_bounded() -> None:
    """One connection with many requests lets the others have their turn."""
    world = World()
    connection, transport = world.connect()
    feed(connection, frame() * (2 * FRAMES_PER_TURN + 1))
    assert len(world.dispatcher.requests) == FRAMES_PER_TURN
    assert transport.paused
    world.shell.run_turn()
    assert len(world.dispatcher.requests) == 2 * FRAMES_PER_TURN
    world.shell.run_turns()
    assert len(world.dispatcher.requests) == 2 * FRAMES_PER_TURN + 1
    assert not transport.paused


def test_large_answers_end_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are small with answers that are large: no more are begun than the transport may hold."""
    world = World()
    connection, transport = world.connect()
    monkeypatch.setattr(
        world.dispatcher, "request", lambda *_: (world.dispatcher.requests.append(b""), [bytes(100_000)])[1]
    )
    feed(connection, frame() * 50)
    assert len(world.dispatcher.requests) == 3
    world.shell.run_turns()
    assert len(world.dispatcher.requests) == 50
    assert sum(map(len, transport.written)) == 50 * 100_000


def test_the_turn_of_all_connections_is_bounded() -> None:
    """When many connections have many requests, those later in the loop's turn get one each, until the next turn."""
    world = World()
    connections = [world.connect()[0] for _ in range(20)]
    for connection in connections:
        feed(connection, frame() * 100)
    handled = server_module.FRAMES_OF_ALL
    assert (
        len(world.dispatcher.requests) == handled + (20 - handled // FRAMES_PER_TURN) * server_module.FRAMES_WHEN_BUSY
    )
    world.shell.run_turns()
    assert len(world.dispatcher.requests) == 2_000


def test_slow_requests_end_the_turn_of_all_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the loop's turn has lasted `TURN_MS`, those later in it get one request each, however few were handled."""
    world = World()
    connections = [world.connect()[0] for _ in range(3)]

    def slow(*_: object) -> bytes:
        world.dispatcher.requests.append(b"")
        world.clock.now_ms += 1
        return b"answer"

    monkeypatch.setattr(world.dispatcher, "request", slow)
    for connection in connections:
        feed(connection, frame() * 10)
    assert len(world.dispatcher.requests) == 10 + 2 * server_module.FRAMES_WHEN_BUSY
    world.shell.run_turns()
    assert len(world.dispatcher.requests) == 30


def test_a_client_that_does_not_read_gets_no_further_requests_begun() -> None:
    """While the transport holds unread answers, requests wait, and reading stops."""
    world = World()
    connection, transport = world.connect()
    connection.pause_writing()
    feed(connection, frame() * 3)
    assert world.dispatcher.requests == []
    assert transport.paused
    connection.resume_writing()
    world.shell.run_turns()
    assert len(world.dispatcher.requests) == 3
    assert not transport.paused


def test_unread_answers_of_all_are_bounded() -> None:
    """When unread answers fill the memory set aside for them, whoever holds most of it is closed."""
    world = World()
    stalled = [world.connect() for _ in range(10)]
    for size, (connection, transport) in enumerate(stalled):
        transport.unread = (size + 1) << 20
        connection.pause_writing()
    assert not any(transport.closed for _, transport in stalled)
    connection, transport = world.connect()
    transport.unread = server_module.UNREAD_BYTES_MAX
    connection.pause_writing()
    assert [world_transport.aborted for _, world_transport in stalled] == [False] * 10
    assert transport.aborted


def hundred_megabytes() -> bytes:
    return struct.pack(">i", 100_000_000) + struct.pack(">hhih", METADATA, 0, 0, -1) + bytes(1000)


def test_large_frames_wait_for_their_memory_in_order() -> None:
    """The second 100 MB request isn't read before the first is done; then it is, and after it the third."""
    world = World()
    connections = [world.connect() for _ in range(3)]
    for connection, _ in connections:
        feed(connection, hundred_megabytes())
    assert [transport.paused for _, transport in connections] == [False, True, True]
    connections[0][0].connection_lost(None)
    world.shell.run_turns()  # Its pages go back to the kernel a slice in each turn; only then the memory is free.
    assert [transport.paused for _, transport in connections] == [False, False, True]
    # Who leaves the queue gives up its place.
    connections[2][0].connection_lost(None)
    connections[1][0].connection_lost(None)
    world.shell.run_turns()
    assert not world.server.budget.crowded


def test_ordinary_requests_do_not_wait_behind_large_ones() -> None:
    """While 100 MB requests queue for memory, a request of 1 MB has its own, and small ones need none."""
    world = World()
    for _ in range(3):
        feed(world.connect()[0], hundred_megabytes())
    connection, _ = world.connect()
    feed(connection, frame(METADATA, bytes(1_000_000)) + frame())
    assert len(world.dispatcher.requests) == 2


def test_who_stalls_while_others_wait_is_closed() -> None:
    """A sender that holds memory and sends nothing is closed after a while, and the next one gets the memory."""
    world = World()
    (first, first_transport), (second, second_transport) = world.connect(), world.connect()
    feed(first, hundred_megabytes())
    feed(second, hundred_megabytes())
    world.shell.advance(STALL_MS_MAX + 1_000)
    assert first_transport.aborted
    first.connection_lost(None)
    world.shell.run_turns()
    assert not second_transport.paused
    world.shell.advance(STALL_MS_MAX * 3)
    assert not second_transport.closed, "Nobody waits, so it may take its time."


def test_a_request_that_waits_behind_another_does_not_keep_its_memory_from_others() -> None:
    """A client that has a request answered late, and sent a large one behind it, could hold up all others for ever."""
    world = World()
    world.dispatcher.waiting.add(METADATA)
    (first, first_transport), (second, second_transport) = world.connect(), world.connect()
    feed(first, frame(METADATA))
    feed(first, frame(PRODUCE, bytes(99_000_000)))
    assert len(world.dispatcher.requests) == 1
    feed(second, hundred_megabytes())
    assert second_transport.paused
    world.shell.advance(FRAME_MS_MAX + 1_000)
    assert first_transport.aborted
    first.connection_lost(None)
    world.shell.run_turns()
    assert not second_transport.paused


def test_a_steady_sender_is_not_closed() -> None:
    """Who goes on sending keeps its memory, though others wait."""
    world = World()
    (first, transport), (second, _) = world.connect(), world.connect()
    feed(first, hundred_megabytes())
    feed(second, hundred_megabytes())
    for _ in range(20):
        world.shell.advance(1_000)
        feed(first, bytes(100))
    assert not transport.closed


def test_reads_are_small_while_memory_is_short() -> None:
    """While others wait for memory, a read takes little: what can't be handled has to be kept."""
    world = World()
    for _ in range(2):
        feed(world.connect()[0], hundred_megabytes())
    connection, _ = world.connect()
    assert len(connection.get_buffer(-1)) == connection_module.CROWDED_WINDOW


def test_idle_connections_are_closed() -> None:
    """connections.max.idle.ms without a byte, and the connection is closed."""
    world = World(connections_max_idle_ms=10_000)
    (idle, idle_transport), (busy, busy_transport) = world.connect(), world.connect()
    for _ in range(4):
        world.shell.advance(4_000)
        feed(busy, frame())
    assert idle_transport.closed
    assert not busy_transport.closed
    assert idle is not busy


SASL_LISTENER = {
    "listeners": "SASL://:1,PLAINTEXT://:2",
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}


class SilentAuthentication:
    """Nothing ever authenticates by it."""

    def gate(self, *arguments: Any) -> Gate:
        return Gate(self, *arguments)  # type: ignore[arg-type]

    def machine(self, listener: str) -> Any:
        return SimpleNamespace(user=None)


@pytest.mark.parametrize("idle_ms_max", [-1, 600_000])
def test_what_does_not_authenticate_is_closed_within_its_time(idle_ms_max: int) -> None:
    """Also where connections may be idle for ever; one that has authenticated, or need not, stays."""
    world = World(connections_max_idle_ms=idle_ms_max, **SASL_LISTENER)
    world.server.authentication = SilentAuthentication()  # type: ignore[assignment]
    _, silent = world.connect(listener="SASL")
    authenticated, inside = world.connect(listener="SASL")
    assert authenticated._gate is not None
    authenticated._gate._machine.user = "alice"
    _, without = world.connect()
    world.shell.advance(AUTHENTICATION_MS_MAX - 1)
    assert not silent.closed
    world.shell.advance(AUTHENTICATION_MS_MAX // 4)
    assert silent.closed
    assert not inside.closed
    assert not without.closed


def test_nothing_is_served_by_a_sasl_listener_that_cannot_authenticate() -> None:
    """Whatever goes wrong when a connection comes, a loop goes on to read from it: its requests must not be handled."""
    world = World(**SASL_LISTENER)
    connection, transport = world.server.connection("SASL"), FakeTransport()
    with contextlib.suppress(RuntimeError):
        connection.connection_made(transport)  # type: ignore[arg-type]
    data = frame()
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))
    assert transport.aborted
    assert transport.written == []


def test_connections_are_counted() -> None:
    """max.connections and max.connections.per.ip; those that go make room."""
    world = World(max_connections=3, max_connections_per_ip=2)
    first, _ = world.connect("10.0.0.1")
    world.connect("10.0.0.1")
    assert world.connect("10.0.0.1")[1].aborted
    assert not world.connect("10.0.0.2")[1].closed
    assert world.connect("10.0.0.3")[1].aborted
    first.connection_lost(None)
    assert not world.connect("10.0.0.3")[1].closed


def test_hosts_with_limits_of_their_own_are_looked_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """max.connections.per.ip.overrides may name hosts, of which connections know the addresses only. One that cannot be
    looked up is named in the log, and looked up again with the next change of settings."""
    known: dict[str, list[str]] = {"a.example": ["10.0.0.1", "2001:db8::1"]}

    def look_up(host: str, *arguments: Any, **options: Any) -> list[Any]:
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(None, None, None, "", (address, 0)) for address in known[host]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    world = World(max_connections_per_ip=0, max_connections_per_ip_overrides="a.example:1,b.example:2,10.0.0.9:1")
    assert not world.connect("10.0.0.1")[1].aborted
    assert world.connect("10.0.0.1")[1].aborted
    assert not world.connect("2001:db8::1")[1].aborted
    assert not world.connect("10.0.0.9")[1].aborted
    assert world.connect("10.0.0.2")[1].aborted
    assert "host=b.example" in caplog.text
    known["b.example"] = ["10.0.0.2"]
    world.server.configure()
    assert not world.connect("10.0.0.2")[1].aborted
    assert world.connect("10.0.0.1")[1].aborted


def test_connections_before_the_start_wait_for_it() -> None:
    """Who connects before the broker is ready is not read from, and is served when it is."""
    clock = ManualClock()
    server = Server(BrokerConfig.from_mapping({}), clock, ManualShell(clock))
    connection = server.connection("PLAINTEXT")
    transport = FakeTransport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    assert transport.paused
    server.start(EchoDispatcher())  # type: ignore[arg-type]
    assert not transport.paused


@pytest.mark.parametrize("cut", [3, 21, 25])
def test_requests_before_the_start_wait_for_it(cut: int) -> None:
    """uvloop reads once after `connection_made`, though it was told there not to: the bytes are kept, not refused."""
    world = World()
    server = Server(world.config, world.clock, world.shell)
    connection = server.connection("PLAINTEXT")
    transport = FakeTransport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    transport.paused = False
    sent = frame(body=b"first") + frame(body=b"second")
    connection.get_buffer(-1)[:cut] = sent[:cut]
    connection.buffer_updated(cut)
    assert transport.paused
    assert transport.written == []
    server.start(world.dispatcher)  # type: ignore[arg-type]
    world.shell.run_turns()
    assert not transport.paused
    assert feed(connection, sent[cut:]) == len(sent) - cut
    assert world.dispatcher.requests == [frame(body=b"first")[4:], frame(body=b"second")[4:]]


def test_a_lost_connection_abandons_what_it_waited_for() -> None:
    """The deferred answer is told that nobody wants it; its late completion does no harm."""
    world = World()
    world.dispatcher.waiting = {1}
    connection, transport = world.connect()
    feed(connection, frame(1))
    body, answer = world.dispatcher.deferred[0]
    abandoned: list[bool] = []
    answer.on_abandoned = lambda: abandoned.append(True)
    connection.connection_lost(None)
    assert abandoned == [True]
    answer.complete(body)
    assert transport.written == []


class TestWithTheRealDispatcher:
    """Hostile bytes against the real handlers."""

    @pytest.fixture
    def connect(self, broker: Broker) -> Callable[[], tuple[Connection, FakeTransport]]:
        server = Server(broker.config, broker.clock, broker.shell)
        server.start(broker.dispatcher)

        def connect() -> tuple[Connection, FakeTransport]:
            connection = server.connection("PLAINTEXT")
            transport = FakeTransport()
            connection.connection_made(transport)  # type: ignore[arg-type]
            return connection, transport

        return connect

    @settings(max_examples=examples(2000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_garbage_never_raises(self, connect: Any, broker: Broker, data: st.DataObject) -> None:
        """Arbitrary bodies under every key and version: an answer or a closed connection, never an exception."""
        connection, transport = connect()
        key = data.draw(st.sampled_from([*broker.node.handlers, 999]))
        handler = broker.node.handlers.get(key)
        version = data.draw(st.integers(-1, 20 if handler is None else handler.versions.highest + 1))
        body = data.draw(st.binary(max_size=200))
        content = struct.pack(">hhih", key, version, 1, -1) + body
        feed(connection, struct.pack(">i", len(content)) + content)
        broker.shell.run_turns()
        assert transport.closed or transport.written or connection._answers.slots or key == PRODUCE
        connection.connection_lost(None)

    @settings(max_examples=examples(500), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_damaged_requests_never_raise(self, connect: Any, broker: Broker, data: st.DataObject) -> None:
        """Real requests with some bytes changed."""
        connection, _ = connect()
        requests = [
            broker.frame(ApiKey.PRODUCE, 9, produce_request("t", make_batch([b"value"]))),
            broker.frame(ApiKey.PRODUCE, 8, produce_request("t", make_batch([b"value"]))),
            broker.frame(ApiKey.FETCH, 12, broker.fetch_request("t", session_epoch=0)),
            broker.frame(ApiKey.METADATA, 12, messages.MetadataRequest(topics=None)),
        ]
        sent = bytearray(data.draw(st.sampled_from(requests)))
        for _ in range(data.draw(st.integers(1, 4))):
            sent[data.draw(st.integers(4, len(sent) - 1))] = data.draw(st.integers(0, 255))
        feed(connection, bytes(sent))
        broker.shell.run_turns()
        connection.connection_lost(None)

    def test_an_unknown_api_closes(self, connect: Any) -> None:
        """An API key that nobody serves: closed, so that the client doesn't wait for ever."""
        connection, transport = connect()
        feed(connection, frame(999))
        assert transport.closed

    @pytest.mark.parametrize("version", [5, 100, 32767])
    def test_api_versions_too_new_is_answered_in_version_0(self, connect: Any, version: int) -> None:
        """Error 35 with the ranges, in the format of v0; if closed, librdkafka would never connect (KIP-511)."""
        connection, transport = connect()
        content = struct.pack(">hhih", 18, version, 77, -1) + b"\0whatever"
        feed(connection, struct.pack(">i", len(content)) + content)
        size, correlation_id, error, count = struct.unpack_from(">iihi", transport.written[0])
        assert (size, correlation_id, error) == (len(transport.written[0]) - 4, 77, 35)
        ranges = dict(struct.unpack_from(">hh", transport.written[0], 14 + 6 * index) for index in range(count))
        assert ranges[18] == 0
        assert not transport.closed

    def test_a_client_id_has_an_int16_length_in_flexible_headers_too(self, connect: Any) -> None:
        """KIP-482 left it as it was; and tagged fields of the header are skipped."""
        connection, transport = connect()
        header = struct.pack(">hhih", 3, 12, 5, 4) + b"name" + b"\1\7\3abc"
        content = header + b"\0\1\0\0\0"
        feed(connection, struct.pack(">i", len(content)) + content)
        assert struct.unpack_from(">ib", transport.written[0], 4) == (5, 0)


def test_a_connection_that_leaves_while_the_broker_starts_is_counted_no_more() -> None:
    """There is nothing yet that handles requests, and nothing that belongs to the connection."""
    clock = ManualClock()
    server = Server(BrokerConfig.from_mapping({}), clock, ManualShell(clock))
    connection = server.connection("PLAINTEXT")
    connection.connection_made(FakeTransport())  # type: ignore[arg-type]
    assert len(server.connections) == 1
    connection.connection_lost(None)
    assert len(server.connections) == 0
