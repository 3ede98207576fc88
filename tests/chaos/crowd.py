"""A crowd of idle connections, in a process of its own: `python -m tests.chaos.crowd HOST PORT COUNT`.

Every other one asks for ApiVersions and then nothing more. Those that the broker closes come again, some a second, as
clients do. It ends with its standard input.
"""

from __future__ import annotations

import resource
import selectors
import socket
import struct
import sys
import time
from typing import Final

PER_TURN: Final = 50
"""Connections begun before those that are there are looked at."""
TURN_S: Final = 0.1
API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def main() -> None:
    host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        begun, last = 0, 0.0
        while True:
            if time.monotonic() - last >= TURN_S:
                last = time.monotonic()
                for _ in range(min(PER_TURN, count - len(selector.get_map()) + 1)):
                    begun += 1
                    _begin(selector, host, port, asks=begun % 2 == 0)
            for key, _ in selector.select(TURN_S):
                if key.fileobj is sys.stdin:
                    return
                assert isinstance(key.fileobj, socket.socket)
                _serve(selector, key.fileobj, asks=key.data)


def _begin(selector: selectors.BaseSelector, host: str, port: int, *, asks: bool) -> None:
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex((host, port))
    selector.register(connection, selectors.EVENT_READ | (selectors.EVENT_WRITE if asks else 0), asks)


def _serve(selector: selectors.BaseSelector, connection: socket.socket, *, asks: bool) -> None:
    """Asks once the connection stands; lets go of one that was closed."""
    try:
        if asks:
            connection.send(API_VERSIONS)
            selector.modify(connection, selectors.EVENT_READ, False)
        elif connection.recv(65_536):
            return
        else:
            raise ConnectionResetError
    except BlockingIOError:
        return
    except OSError:
        selector.unregister(connection)
        connection.close()


if __name__ == "__main__":
    main()
