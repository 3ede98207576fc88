"""Ports that are held for a broker for as long as its cluster lives, whether it runs or not.

A broker that comes back must find its port free, and a client that calls a dead broker must not be answered by itself:
where no process listens on a port of the ephemeral range, the kernel may give that very port to the connecting socket.
A socket that is bound and does not listen prevents both, and with SO_REUSEADDR the broker may listen there
nevertheless.
"""

from __future__ import annotations

import errno
import socket

from tidelog.broker.failure import BrokerFailed


class ReservedPort:
    """One port of a loopback address; `close` gives it back."""

    def __init__(self, host: str, port: int, advice: str) -> None:
        """`port` 0: any that is free. BrokerFailed when it is taken, with `advice` on how to choose another."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            if error.errno == errno.EADDRINUSE:
                raise BrokerFailed(
                    f"{host}:{port} is in use: stop what listens there, or choose another port ({advice})"
                ) from error
            raise BrokerFailed(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        except OverflowError as error:
            self._socket.close()
            raise BrokerFailed(f"{port} is no port: choose one from 0 to 65535 ({advice})") from error
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()
