"""Ports that tests name before a server listens there are nobody else's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests import ports

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_port_is_given_once() -> None:
    """Not twice by this process, nor by another one that asks meanwhile."""
    mine = [ports.free_port() for _ in range(3)]
    program = "from tests.ports import free_port; print(*(free_port() for _ in range(3)))"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=180, check=True)
    theirs = [int(port) for port in done.stdout.split()]
    assert len({*mine, *theirs}) == 6


def test_ports_in_a_row_are_given_together() -> None:
    first = ports.free_ports(3)
    assert {first, first + 1, first + 2}.isdisjoint({ports.free_port() for _ in range(3)})


def test_a_port_at_which_a_server_listens_is_not_given() -> None:
    """Be it of a program that knows nothing of the locks."""
    with socket.create_server(("127.0.0.1", ports.free_port())) as server:
        port = server.getsockname()[1]
        os.close(ports._locked.pop(port))
        assert not ports._lock(port)


def test_connections_are_given_none_of_them() -> None:
    """What the system gives to a connection begins above them."""
    assert int(EPHEMERAL.read_text().split()[0] if EPHEMERAL.exists() else 32_768) > ports.LAST
