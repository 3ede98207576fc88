"""Ports for servers that a test names before it starts them.

They lie below the ports that the system gives to connections and to whoever binds port 0, so neither takes such a port
before its server listens. A lock on a file keeps it from all other tests while this process lives.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import Final

FIRST: Final = 10_000
LAST: Final = 19_999
"""From 20,000 on are those of `bench`."""
_FOLDER: Final = Path(tempfile.gettempdir()) / "tidelog-ports"
_locked: dict[int, int] = {}
"""[port] -> the descriptor that holds its lock."""


def free_port() -> int:
    """A port that is free, and remains so for this process."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of as many free ports in a row. RuntimeError where there are none."""
    _FOLDER.mkdir(exist_ok=True)
    for first in range(FIRST, LAST + 2 - count, count):
        ports = range(first, first + count)
        if all(_lock(port) for port in ports):
            return first
    raise RuntimeError(f"no {count} ports in a row are free between {FIRST} and {LAST}")


def _lock(port: int) -> bool:
    """Takes a port unless this process or another one has it, or a server listens there."""
    if port in _locked:
        return False
    # Not a file object, which would complain that it is still open when the process ends.
    descriptor = os.open(_FOLDER / str(port), os.O_CREAT | os.O_WRONLY, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        os.close(descriptor)
        return False
    _locked[port] = descriptor
    return True
