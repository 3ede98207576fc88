"""Connections when there is no room for all: who stays, who goes, and what is said of it."""

import logging
import struct
from typing import Any

import pytest
from tests.unit.broker.harness import ManualClock, ManualShell
from tests.unit.broker.test_server import EchoDispatcher, FakeTransport, feed, frame

from tidelog.broker.connections.admission import IDLE_MS_MIN, SILENT_MS_MIN, TOLD_INTERVAL_MS
from tidelog.broker.connections.connection import Connection
from tidelog.broker.connections.server import Server
from tidelog.broker.descriptors import Descriptors
from tidelog.config.broker_config import BrokerConfig

CLIENTS_ONLY = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,OTHER://127.0.0.1:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
}
TWO_LISTENERS = {
    "listeners": "CLIENTS://127.0.0.1:9092,BROKERS://127.0.0.1:9093",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


class Dispatcher(EchoDispatcher):
    """Notes client ids as the broker's own does."""

    def request(self, peer: Any, view: memoryview, position: int, end: int, received_ms: int) -> Any:
        (size,) = struct.unpack_from(">h", view, position + 8)
        peer.raw_client_id = bytes(view[position + 10 : position + 10 + size])
        return super().request(peer, view, position, end, received_ms)


class World:
    """A server with room for three connections of clients and two of brokers."""

    def __init__(self, connections: int = 3, brokers: int = 2, **settings: object) -> None:
        self.clock = ManualClock()
        self.shell = ManualShell(self.clock)
        descriptors = Descriptors(100, 16, connections, brokers)
        config = BrokerConfig.from_mapping({name.replace("_", "."): value for name, value in settings.items()})
        self.server = Server(config, self.clock, self.shell, descriptors)
        self.dispatcher = Dispatcher()
        self.server.start(self.dispatcher)  # type: ignore[arg-type]

    def connect(self, listener: str = "PLAINTEXT", client_id: bytes | None = None) -> FakeTransport:
        """A new connection, which asks at once if it has a client id."""
        connection = self.server.connection(listener)
        transport = FakeTransport()
        transport.connection = connection  # type: ignore[attr-defined]
        connection.connection_made(transport)  # type: ignore[arg-type]
        if client_id is not None:
            ask(transport, client_id)
        return transport


def connection_of(transport: FakeTransport) -> Connection:
    return transport.connection  # type: ignore[attr-defined, no-any-return]


def ask(transport: FakeTransport, client_id: bytes = b"client") -> None:
    body = struct.pack(">hhih", 3, 0, 0, len(client_id)) + client_id
    connection = connection_of(transport)
    data = struct.pack(">i", len(body)) + body
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))
    if transport.aborted:
        connection.connection_lost(None)


def test_a_newcomer_takes_the_place_of_the_one_that_was_idle_longest() -> None:
    """Those that never asked anything go first; each that goes is counted no more, before its end is told."""
    world = World(inter_broker_listener_name="OTHER", **CLIENTS_ONLY)
    first, second, third = (world.connect(client_id=b"client") for _ in range(3))
    world.clock.now_ms += IDLE_MS_MIN
    ask(first)
    assert not world.connect().aborted
    assert [first.aborted, second.aborted, third.aborted] == [False, True, False]
    world.clock.now_ms += SILENT_MS_MIN
    assert not world.connect().aborted
    assert [first.aborted, third.aborted] == [False, False]
    assert len(world.server.connections) == 3
    connection_of(second).connection_lost(None)
    assert len(world.server.connections) == 3


def test_clients_that_work_are_not_pushed_out() -> None:
    """Whose connections are in use stay, however many others come: those are refused."""
    world = World(inter_broker_listener_name="OTHER", **CLIENTS_ONLY)
    served = [world.connect(client_id=b"client") for _ in range(3)]
    for _ in range(10):
        world.clock.now_ms += IDLE_MS_MIN - 1
        for transport in served:
            ask(transport)
        assert world.connect().aborted
    assert not any(transport.aborted for transport in served)


def test_an_answer_that_waits_keeps_its_connection() -> None:
    """A long poll or a produce request under way is not idle, however long it takes."""
    world = World(inter_broker_listener_name="OTHER", **CLIENTS_ONLY)
    world.dispatcher.waiting = {3}
    waiting = [world.connect(client_id=b"client") for _ in range(3)]
    world.clock.now_ms += 10 * IDLE_MS_MIN
    assert world.connect().aborted
    assert not any(transport.aborted for transport in waiting)
    world.dispatcher.deferred[1][1].complete(b"")
    world.clock.now_ms += IDLE_MS_MIN
    assert not world.connect().aborted
    assert [transport.aborted for transport in waiting] == [False, True, False]


def test_half_a_request_does_not_keep_a_place() -> None:
    """A client that sends one byte and stops is as idle as one that sends none."""
    world = World(inter_broker_listener_name="OTHER", **CLIENTS_ONLY)
    stalled = world.connect()
    feed(connection_of(stalled), frame()[:5])
    world.connect(client_id=b"client")
    world.clock.now_ms += IDLE_MS_MIN - 1
    world.connect(client_id=b"client")
    world.clock.now_ms += 1
    assert not world.connect().aborted
    assert stalled.aborted


def test_a_broker_gets_in_by_the_listener_of_all() -> None:
    """With one listener a newcomer may be a broker: it stays if its first request says so, and then for good."""
    world = World()
    clients = [world.connect(client_id=b"client") for _ in range(3)]
    broker = world.connect(client_id=b"broker-2")
    assert not broker.aborted
    assert broker.written
    client = world.connect(client_id=b"client")
    assert client.aborted
    assert not client.written
    world.clock.now_ms += IDLE_MS_MIN - 1
    for transport in clients:
        ask(transport)
    world.clock.now_ms += IDLE_MS_MIN
    for _ in range(3):
        world.connect(client_id=b"client")
    assert not broker.aborted, "a broker's connection is not closed for a client's"
    ask(broker, b"broker-2")
    assert len(broker.written) == 2


def test_silent_newcomers_cannot_fill_the_brokers_places() -> None:
    """Each that comes takes the place of the one before, unless that has shown that it is a broker's."""
    world = World()
    for _ in range(3):
        world.connect(client_id=b"client")
    first, second = world.connect(), world.connect()
    silent = [world.connect() for _ in range(20)]
    assert first.aborted
    assert second.aborted
    assert sum(not transport.aborted for transport in silent) == 2
    brokers = [world.connect(client_id=b"broker-1") for _ in range(2)]
    assert not any(broker.aborted for broker in brokers)
    assert world.connect(client_id=b"broker-1").aborted, "the brokers' places are bounded, too"
    assert len(world.server.connections) == 5


def test_a_listener_between_brokers_needs_no_proof() -> None:
    """What comes by it is a broker's, whatever it says; clients find no place there for lack of another listener."""
    world = World(**{name.replace(".", "_"): value for name, value in TWO_LISTENERS.items()})
    for _ in range(3):
        world.connect("CLIENTS", b"client")
    assert world.connect("CLIENTS").aborted
    assert not world.connect("BROKERS", b"4").aborted


def test_max_connections_of_one_address_stays_what_it_is() -> None:
    """It refuses whatever room there is."""
    world = World(connections=10, max_connections_per_ip=2)
    assert [world.connect().aborted for _ in range(4)] == [False, False, True, True]
    assert len(world.server.connections) == 2


def test_a_socket_that_is_open_twice_counts_twice() -> None:
    """Files are sent through a duplicate of the socket: no more of them than there are descriptors."""
    world = World()
    admission = world.server.admission
    world.connect(client_id=b"client")
    assert admission.take_duplicate()
    world.connect(client_id=b"client")
    assert not admission.take_duplicate()
    assert world.connect(client_id=b"client").aborted
    admission.give_back_duplicate()
    assert not world.connect(client_id=b"client").aborted


def test_the_log_is_not_filled(caplog: pytest.LogCaptureFixture) -> None:
    """One line when it begins, one a minute with what was closed and refused meanwhile."""
    caplog.set_level(logging.INFO)
    world = World()
    for _ in range(3):
        world.connect(client_id=b"client")
    for _ in range(50):
        world.connect(client_id=b"client")
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "connections_full: open=4 max=3 closed_idle=0 refused=1 reason='descriptors are there for 3 connections'"
    ]
    world.clock.now_ms += TOLD_INTERVAL_MS
    world.connect()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "closed_idle=1 refused=49" in lines[1]
