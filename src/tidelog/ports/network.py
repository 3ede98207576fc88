"""Connections, through asyncio's own protocol classes so that one code serves sockets and the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    import ssl


class Listener(Protocol):
    """A bound, listening address."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port as bound (the real port where 0 was asked for)."""
        ...

    def close(self) -> None:
        """Stops accepting; established connections stay."""
        ...


class SecuredProtocol(Protocol):
    """One connection of a TLS listener: an asyncio protocol that hears of its client before the handshake."""

    def handshake_begins(self, transport: asyncio.Transport) -> int:
        """A client has connected; returns for how many milliseconds its handshake has to wait.

        Of `transport` only `get_extra_info` ("peername", "socket"), `abort` and `close` are of use. `connection_made`
        follows with the transport to use, or `connection_lost`.
        """
        ...

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...


class Network(Protocol):
    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        """Listens on an address; OSError (EADDRINUSE) when it is taken."""
        ...

    async def listen_tls(
        self, factory: Callable[[], SecuredProtocol], host: str, port: int, tls: ssl.SSLContext
    ) -> Listener:
        """The same for clients that speak TLS."""
        ...

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connects; OSError when refused or unreachable, or with `tls` where the handshake fails."""
        ...
