"""Sockets that were full, and are waited for until they take more bytes.

All of them are watched by one epoll(7) instance, which the event loop in turn watches: to wait for one is a single call
of the kernel. By the loop's own `add_writer` it would be ten for each answer that is larger than a socket's buffer.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Final

_FAILURE_ONCE: Final = select.EPOLLONESHOT  # Failures are told in any case.
_ROOM_ONCE: Final = select.EPOLLOUT | select.EPOLLONESHOT


class WritableSockets:
    """The sockets of one event loop that may be full. A descriptor is taken while there are any."""

    __slots__ = ("_awaited", "_epoll", "_loop", "_sockets")

    def __init__(self) -> None:
        self._sockets: set[int] = set()
        """Their descriptors."""
        self._awaited: dict[int, Callable[[], object]] = {}
        """[descriptor] -> what is called when it takes more."""
        self._epoll: select.epoll | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, descriptor: int) -> None:
        """A socket that is to be forgotten before it is closed. OSError where the system has no descriptor left."""
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._epoll.fileno(), self._call_back)
        self._epoll.register(descriptor, _FAILURE_ONCE)
        self._sockets.add(descriptor)

    def await_room(self, descriptor: int, callback: Callable[[], object]) -> None:
        """Calls `callback`, once, in a later turn of the loop in which the socket takes bytes, or has failed."""
        assert self._epoll is not None
        self._epoll.modify(descriptor, _ROOM_ONCE)
        self._awaited[descriptor] = callback

    def forget(self, descriptor: int) -> None:
        """Waits for a socket no more."""
        epoll, loop = self._epoll, self._loop
        assert epoll is not None
        assert loop is not None
        self._awaited.pop(descriptor, None)
        epoll.unregister(descriptor)
        self._sockets.discard(descriptor)
        if not self._sockets:
            loop.remove_reader(epoll.fileno())
            epoll.close()
            self._epoll = self._loop = None

    def _call_back(self) -> None:
        epoll, loop = self._epoll, self._loop
        if epoll is None or loop is None:
            return
        for descriptor, _ in epoll.poll(0):
            callback = self._awaited.pop(descriptor, None)
            if callback is not None:
                try:
                    callback()
                except Exception as error:
                    # The sockets behind it are told of only this once.
                    loop.call_exception_handler({"message": "A socket that takes bytes again", "exception": error})
