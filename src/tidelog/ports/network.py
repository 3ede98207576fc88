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


class Network(Protocol):
    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> Listener:
        """Listens on an address; OSError (EADDRINUSE) when it is taken. With `tls`, protocols hear of a connection when
        its handshake is done."""
        ...

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connects; OSError when refused or unreachable, or with `tls` where the handshake fails."""
        ...
