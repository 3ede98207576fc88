"""How a connection is told of its reads: compiled where a read is one whole request (`_single_requests.pyx`).

Where that was not built, every read goes to `Connection.received`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol


class _Reader(Protocol):
    def buffer(self) -> memoryview: ...
    def received(self, nbytes: int) -> None: ...


class SingleRequests:
    """What asyncio calls of a connection that reads."""

    __slots__ = ()

    def get_buffer(self: _Reader, sizehint: int) -> memoryview:
        """Where the next read goes; `sizehint` is not asked for."""
        return self.buffer()

    def buffer_updated(self: _Reader, nbytes: int) -> None:
        """So many bytes have come in."""
        self.received(nbytes)


if not TYPE_CHECKING:
    with contextlib.suppress(ImportError):
        from tidelog.broker.connections._single_requests import SingleRequests  # noqa: F401 - in the place of the class above
