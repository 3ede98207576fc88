"""Produce requests of clients that have logged in: they take the compiled way, as far as their session lasts."""

from __future__ import annotations

import logging
import struct
from typing import Any

import pytest
from tests.unit.broker.harness import Broker, CountingRandom, make_batch, produce_request
from tests.unit.storage.support import FaultyMemoryDisk

from tidelog.broker.connections.authentication import Authentication
from tidelog.broker.connections.server import Server
from tidelog.broker.handlers._ordinary import ProduceFrames
from tidelog.broker.requests.dispatch import Dispatcher
from tidelog.config.broker_config import BrokerConfig
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

pytestmark = pytest.mark.skipif(ProduceFrames is None, reason="the compiled way was not built (it needs a C compiler)")

SESSION_MS = 10_000
CLIENT = "client"


class Counted:
    """The compiled way, and how many requests it has taken."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.count = 0

    def take(self, *arguments: Any) -> Any:
        position, count, late = self._inner.take(*arguments)
        self.count += count
        return position, count, late


class Transport:
    """What the client was sent."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 40_000) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close


class Client:
    """One connection by a SASL listener."""

    def __init__(self, max_reauth_ms: int) -> None:
        self.broker = Broker("/logs", {}, disk=FaultyMemoryDisk())
        self.broker.lead("t", 1)
        dispatcher = Dispatcher(self.broker.node, self.broker.node.handlers)
        self.ordinary = dispatcher._ordinary = Counted(dispatcher._ordinary)
        config = BrokerConfig.from_mapping(
            {
                "listeners": "PLAINTEXT://127.0.0.1:1,SASL_PLAINTEXT://127.0.0.1:2",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                    'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
                ),
                "connections.max.reauth.ms": max_reauth_ms,
            }
        )
        server = Server(config, self.broker.clock, self.broker.shell)
        server.authentication = Authentication(config, CountingRandom(), lambda mechanism, user: None)
        server.start(dispatcher)
        self.transport = Transport()
        self.connection = server.connection("SASL_PLAINTEXT")
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def send(self, *frames: bytes) -> list[bytes]:
        """In one read; the answers behind their sizes."""
        data = b"".join(frames)
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))
        self.broker.shell.run_turns()
        answers = []
        while self.transport.written:
            end = 4 + struct.unpack_from(">i", self.transport.written)[0]
            answers.append(bytes(self.transport.written[4:end]))
            del self.transport.written[:end]
        return answers

    def produce(self) -> bytes:
        request = produce_request("t", make_batch([b"x"], timestamp=self.broker.clock.wall_ms()), 0, 1, 9)
        return self.broker.frame(ApiKey.PRODUCE, 9, request, CLIENT)

    def handshake(self) -> bytes:
        request = messages.SaslHandshakeRequest(mechanism="PLAIN")
        return self.broker.frame(ApiKey.SASL_HANDSHAKE, 1, request, CLIENT)

    def token(self) -> bytes:
        request = messages.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
        return self.broker.frame(ApiKey.SASL_AUTHENTICATE, 2, request, CLIENT)

    def log_in(self) -> None:
        assert len(self.send(self.handshake(), self.token())) == 2

    @property
    def records(self) -> int:
        return int(self.broker.replica("t").log.log_end_offset)


@pytest.mark.parametrize("max_reauth_ms", [0, SESSION_MS])
def test_the_compiled_way_is_open_to_clients_that_have_logged_in(max_reauth_ms: int) -> None:
    """Not before, also where the login and requests come in one read."""
    client = Client(max_reauth_ms)
    assert len(client.send(client.handshake(), client.token(), client.produce())) == 3
    assert (client.records, client.ordinary.count) == (1, 0)
    assert len(client.send(client.produce(), client.produce())) == 2
    assert (client.records, client.ordinary.count) == (3, 2)


def test_nothing_is_appended_without_a_login() -> None:
    """Neither before one, nor behind the first half of one."""
    for frames in (("produce",), ("handshake", "produce")):
        client = Client(0)
        client.send(*(getattr(client, frame)() for frame in frames))
        assert (client.records, client.ordinary.count) == (0, 0)


def test_what_follows_the_beginning_of_another_login_belongs_to_it() -> None:
    """A produce request between handshake and token is refused, as Kafka does, and appends nothing."""
    client = Client(SESSION_MS)
    client.log_in()
    client.send(client.produce())
    handshake, refused = (*client.send(client.produce(), client.handshake(), client.produce())[1:], None)[:2]
    assert handshake is not None
    assert refused is None, "its answer comes when the connection ends"
    assert client.records == 2
    client.broker.shell.advance(1_000)
    (answer,) = client.send()
    assert struct.pack(">h", ErrorCode.ILLEGAL_SASL_STATE) in answer


def test_a_session_that_has_ended_takes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """connections.max.reauth.ms holds for the compiled way, too; a new login in time keeps the session."""
    client = Client(SESSION_MS)
    client.log_in()
    client.send(client.produce())
    client.broker.shell.advance(SESSION_MS - 1_000)
    client.log_in()
    client.broker.shell.advance(2_000)
    assert len(client.send(client.produce())) == 1
    client.broker.shell.advance(SESSION_MS)
    count = client.ordinary.count
    with caplog.at_level(logging.WARNING):
        assert client.send(client.produce()) == []
    assert (client.records, client.ordinary.count) == (2, count)
    assert client.transport.closed
    assert "its SASL session has ended" in caplog.text
