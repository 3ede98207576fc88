"""A client of the simulated broker: requests by the project's own codec, over a simulated connection."""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from tidelog.protocol import framing
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.ports.network import Network
    from tidelog.protocol.messages import Message

VERSIONS: Final = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 9,
    ApiKey.METADATA: 12,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.DELETE_RECORDS: 2,
}
"""Spoken by the simulator; topics go by name."""
_SIZE: Final = Struct(">i")


class Client(asyncio.Protocol):
    """One connection; what it is asked while it has none fails with ConnectionError."""

    def __init__(self, network: Network, name: str, address: tuple[str, int]) -> None:
        self._network = network
        self._name = name
        self._address = address
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: dict[int, tuple[ApiKey, asyncio.Future[Any]]] = {}
        self._correlation_id = 0

    async def connect(self) -> None:
        """OSError when nobody listens."""
        transport, _ = await self._network.connect(lambda: self, *self._address)
        assert isinstance(transport, asyncio.Transport)
        if not transport.is_closing():
            self._transport = transport

    @property
    def is_connected(self) -> bool:
        return self._transport is not None

    def send(self, key: ApiKey, message: Message) -> asyncio.Future[Any]:
        """Sends a request, behind those before it; its response comes, or ConnectionError."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._transport is None:
            future.set_exception(ConnectionResetError("not connected"))
            return future
        self._correlation_id += 1
        self._waiting[self._correlation_id] = key, future
        self._transport.write(framing.encode_request(key, VERSIONS[key], self._correlation_id, self._name, message))
        return future

    async def request(self, key: ApiKey, message: Message, timeout_s: float = 10.0) -> Any:
        """A request and its response; connects first if need be. OSError, or TimeoutError after `timeout_s`."""
        if self._transport is None:
            await self.connect()
        return await asyncio.wait_for(self.send(key, message), timeout_s)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._lost(None)

    # asyncio's side.

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (size,) = _SIZE.unpack_from(self._received)
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            (correlation_id,) = _SIZE.unpack_from(frame)
            key, future = self._waiting.pop(correlation_id)
            _, response = framing.decode_response(key, VERSIONS[key], frame)
            if not future.done():
                future.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(exc)

    def _lost(self, error: Exception | None) -> None:
        self._transport = None
        self._received.clear()
        waiting, self._waiting = self._waiting, {}
        for _, future in waiting.values():
            if not future.done():
                future.set_exception(error or ConnectionResetError("closed"))
                future.exception()  # Whoever waits is told; whoever gave up needs no warning.
