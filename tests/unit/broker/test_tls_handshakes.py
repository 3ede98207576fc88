"""TLS connections before their handshake is done: counted, refused, made to wait, and told apart in the log."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest
from tests.certificates import Authority
from tests.waiting import until

from tidelog.broker.connections.connection import Connection
from tidelog.ports.tls_listener import Handshake
from tidelog.testing import Cluster


@pytest.fixture(scope="module")
def cluster(authority: Authority) -> Iterator[Cluster]:
    """Clients by SSL, the broker itself by a listener of its own; four connections from one address."""
    settings = {
        "listeners": "SSL://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker", "/CN=broker")),
        "max.connections.per.ip": "4",
    }
    with Cluster(settings) as started:
        yield started


def connect(cluster: Cluster) -> socket.socket:
    """A TCP connection to the TLS listener, on which nothing is said."""
    host, port = cluster.runtime.addresses[0].rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=180)


def connections(cluster: Cluster) -> list[Connection]:
    return cluster.call(lambda: list(cluster.runtime._server.connections))  # type: ignore[no-any-return]


def is_ended(connection: socket.socket) -> bool:
    """Whether the broker has closed or reset it; waits for that."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_connection_counts_before_its_handshake(cluster: Cluster) -> None:
    """Silent clients reach max.connections.per.ip; the next one is closed at once. Their end gives places back."""
    silent = [connect(cluster) for _ in range(4)]
    until(lambda: len(connections(cluster)) == 4)
    with connect(cluster) as one_more:
        assert is_ended(one_more)
    for each in silent:
        each.close()
    until(lambda: not connections(cluster))


def test_one_that_never_shakes_hands_makes_way(
    cluster: Cluster, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no room, a client that has said nothing is closed for one that has something to say."""
    admission = cluster.runtime._server.admission
    monkeypatch.setattr("tidelog.broker.connections.admission.SILENT_MS_MIN", 0)
    monkeypatch.setattr(admission, "connections_max", 1)
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with connect(cluster) as silent:
        until(lambda: len(connections(cluster)) == 1)
        with connect(cluster) as plain, context.wrap_socket(plain, server_hostname="localhost"):
            assert is_ended(silent)
            until(lambda: len(connections(cluster)) == 1)
    until(lambda: not connections(cluster))


def test_the_log_names_the_client(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """A handshake that fails is told with the client's address."""
    with connect(cluster) as plain:
        host, port = plain.getsockname()
        with caplog.at_level(logging.WARNING):
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert is_ended(plain)
    until(lambda: f"tls_handshake_failed: listener=SSL peer={host}:{port} reason=HTTP_REQUEST" in caplog.text)
    until(lambda: not connections(cluster))


def test_a_client_that_leaves_amid_its_handshake_is_forgotten(cluster: Cluster, authority: Authority) -> None:
    """After its first flight the client is gone: nothing of it stays."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    with connect(cluster) as plain:
        plain.sendall(outgoing.read())
        assert plain.recv(1)
    until(lambda: not connections(cluster))


def test_what_follows_the_handshake_at_once_is_read(cluster: Cluster, authority: Authority) -> None:
    """A client's first request may come in one packet with the end of its handshake."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    request = b"\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"  # ApiVersions 0.
    with connect(cluster) as plain:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(1 << 16))
        client.write(len(request).to_bytes(4, "big") + request)
        plain.sendall(outgoing.read())
        while True:
            incoming.write(plain.recv(1 << 16))
            try:
                assert client.read(8)[4:] == b"\x00\x00\x00\x07"
                break
            except ssl.SSLWantReadError:
                pass
    until(lambda: not connections(cluster))


def test_many_at_once_are_taken_in_turns(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn of the event loop begins more handshakes than it should."""
    monkeypatch.setattr("tidelog.ports.tls_listener.HANDSHAKES_PER_TURN", 1)
    monkeypatch.setattr(cluster.runtime._server.admission, "connections_per_ip_max", 100)
    begun: list[int] = []
    begin = Handshake.begin
    turn = [0]

    def counted(handshake: Handshake) -> None:
        begun.append(turn[0])
        begin(handshake)

    monkeypatch.setattr(Handshake, "begin", counted)
    together = threading.Barrier(2)
    held: list[socket.socket] = []

    def occupy() -> None:
        """Keeps the loop busy until all have connected, then counts its turns."""
        together.wait(180)
        together.wait(180)
        count()

    def count() -> None:
        turn[0] += 1
        if len(begun) < 10:
            cluster.runtime._shell.soon(count)

    task = threading.Thread(target=cluster.call, args=(occupy,))
    task.start()
    together.wait(180)
    held += [connect(cluster) for _ in range(10)]
    together.wait(180)
    task.join()
    until(lambda: len(begun) == 10)
    assert len(set(begun)) == 10
    for each in held:
        each.close()
    until(lambda: not connections(cluster))
