"""The methods by which asyncio gives a connection its reads.

The compiled ones handle a read of one whole request (`_single_requests.pyx`). Where they were not built, every read
goes to `Connection.received`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol


class _Reader(Protocol):
    def buffer(self) -> memoryview: ...
    def received(self, nbytes: int) -> None: ...


class SingleRequests:
    """See the module."""

    __slots__ = ()

    def get_buffer(self: _Reader, sizehint: int) -> memoryview:
        """Where the next read goes; `sizehint` is ignored."""
        return self.buffer()

    def buffer_updated(self: _Reader, nbytes: int) -> None:
        """`nbytes` bytes were read into the buffer."""
        self.received(nbytes)


if not TYPE_CHECKING:
    with contextlib.suppress(ImportError):
        from tidelog.broker.connections._single_requests import SingleRequests  # noqa: F401 - replaces the class above
