"""Ports that are held for a broker, whether it runs or not."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from tidelog.broker.failure import BrokerFailed
from tidelog.launcher.ports import ReservedPort
from tidelog.ports.real import SystemNetwork

HOST = "127.0.0.1"


def test_a_broker_may_listen_where_a_port_is_held() -> None:
    """Again and again, with connections that its former life left behind."""

    async def listen_twice(port: int) -> None:
        for _ in range(2):
            listener = await SystemNetwork().listen(asyncio.Protocol, HOST, port)
            assert listener.address == (HOST, port)
            _, writer = await asyncio.open_connection(HOST, port)
            listener.close()
            writer.close()
            await writer.wait_closed()

    held = ReservedPort(HOST, 0, "")
    try:
        uvloop.run(listen_twice(held.number))
    finally:
        held.close()


def test_nobody_else_gets_a_held_port() -> None:
    """Neither who asks for it, nor a client whose connection the system gives a port."""
    held = ReservedPort(HOST, 0, "")
    try:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((HOST, held.number))
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect((HOST, held.number))
    finally:
        held.close()
    with socket.socket() as other:
        other.bind((HOST, held.number))


@pytest.mark.parametrize("port", [65536, -1])
def test_a_number_that_is_no_port(port: int) -> None:
    """Is refused in words."""
    with pytest.raises(BrokerFailed, match=f"{port} is no port"):
        ReservedPort(HOST, port, "--port")


def test_a_taken_port_is_told_with_what_to_do() -> None:
    """The address, and which option chooses another."""
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(BrokerFailed, match=rf"{HOST}:{port} is in use: .* \(--port\)"):
            ReservedPort(HOST, port, "--port")
