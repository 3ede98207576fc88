"""Waiting for full sockets to take more bytes."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from tidelog.broker.connections.writable_sockets import WritableSockets

LOOPS = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


class Sockets:
    """Some socket pairs, each of which has a full side that `watched` knows."""

    def __init__(self, count: int) -> None:
        self.watched = WritableSockets()
        self.called: list[int] = []
        """The numbers of those that were called for, in order."""
        self.ours: list[socket.socket] = []
        self.theirs: list[socket.socket] = []
        for _ in range(count):
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            self.ours.append(ours)
            self.theirs.append(theirs)
            self.fill(ours)
            self.watched.add(ours.fileno())

    @staticmethod
    def fill(ours: socket.socket) -> None:
        with suppress(BlockingIOError):
            while True:
                ours.send(bytes(1 << 16))

    def await_room(self, number: int) -> None:
        self.watched.await_room(self.ours[number].fileno(), lambda: self.called.append(number))

    def drain(self, number: int) -> None:
        self.theirs[number].setblocking(False)
        with suppress(BlockingIOError):
            while self.theirs[number].recv(1 << 20):
                pass

    def close(self, number: int) -> None:
        self.watched.forget(self.ours[number].fileno())
        self.ours[number].close()

    async def turns(self) -> None:
        """What the kernel has told by now has been passed on."""
        for _ in range(10):
            await asyncio.sleep(0)

    def end(self) -> None:
        for ours, theirs in zip(self.ours, self.theirs, strict=True):
            ours.close()
            theirs.close()


def run(loop: str, count: int, scenario: Callable[[Sockets], Awaitable[None]]) -> Sockets:
    async def main() -> Sockets:
        sockets = Sockets(count)
        try:
            await scenario(sockets)
        finally:
            sockets.end()
        return sockets

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(main())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_socket_is_called_for_once_when_it_has_room(loop: str) -> None:
    """Not before, not a second time, and again when it is waited for again."""

    async def scenario(sockets: Sockets) -> None:
        sockets.await_room(0)
        sockets.await_room(1)
        await sockets.turns()
        assert sockets.called == []
        sockets.drain(1)
        await sockets.turns()
        assert sockets.called == [1]
        await sockets.turns()
        sockets.await_room(1)
        await sockets.turns()
        assert sockets.called == [1, 1]
        sockets.drain(0)
        await sockets.turns()
        assert sockets.called == [1, 1, 0]

    run(loop, 2, scenario)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("awaited", [False, True])
def test_a_failed_socket_is_called_for_only_if_it_is_waited_for(loop: str, awaited: bool) -> None:
    async def scenario(sockets: Sockets) -> None:
        if awaited:
            sockets.await_room(0)
        sockets.theirs[0].close()
        await sockets.turns()
        assert sockets.called == [0] * awaited

    run(loop, 1, scenario)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_socket_that_was_forgotten_is_not_called_for(loop: str) -> None:
    """By the callback of another one that got room in the same turn, too."""

    async def scenario(sockets: Sockets) -> None:
        for number in range(2):
            other = 1 - number
            sockets.watched.await_room(sockets.ours[number].fileno(), lambda other=other: sockets.close(other))
        sockets.drain(0)
        sockets.drain(1)
        await sockets.turns()
        assert sum(ours.fileno() < 0 for ours in sockets.ours) == 1

    run(loop, 2, scenario)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_callback_that_raises_keeps_no_other_from_its_call(loop: str) -> None:
    told: list[dict[str, Any]] = []

    def fail() -> None:
        raise ValueError("of a test")

    async def scenario(sockets: Sockets) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        for number in range(3):
            sockets.await_room(number)
        sockets.watched.await_room(sockets.ours[1].fileno(), fail)
        for number in range(3):
            sockets.drain(number)
        await sockets.turns()
        assert sorted(sockets.called) == [0, 2]

    run(loop, 3, scenario)
    assert [str(context["exception"]) for context in told] == ["of a test"]


@pytest.mark.parametrize("loop", LOOPS)
def test_no_descriptor_is_taken_while_there_is_no_socket(loop: str) -> None:
    async def scenario(sockets: Sockets) -> None:
        before = len(os.listdir("/proc/self/fd"))
        sockets.close(0)
        sockets.close(1)
        assert len(os.listdir("/proc/self/fd")) == before - 3

    run(loop, 2, scenario)
