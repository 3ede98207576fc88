"""`make fuzz` on the server of the store: frames nearly right, cut anywhere; the tree must stay what it says."""

from __future__ import annotations

import asyncio
import logging
import struct
from random import Random
from typing import Any

from tests.property.fuzz_protocol import mutate
from tests.unit.store.serving import MemoryNetwork, RawClient, ServedInMemory

from tidelog.metadata.operations import Check, Create, Delete, Operation, SetData
from tidelog.store import jute
from tidelog.store.jute import OpCode
from tidelog.store.tree import LostWatches

PATHS = ("/", "/a", "/b", "/a/c", "/a/c/d", "/none/x", "", "a", "/a/../b", "/ä")
TURNS = 6
"""Of the loop, until the server has nothing left to do."""


class StoreServer:
    """Requests of a session, and first frames of none. Whatever they are, the server answers or closes."""

    def begin(self, draw: Random) -> None:
        logging.getLogger("tidelog.store").addHandler(logging.NullHandler())
        logging.getLogger("tidelog").propagate = False
        self._loop = asyncio.new_event_loop()
        self._found: list[dict[str, Any]] = []
        self._loop.set_exception_handler(lambda _, context: self._found.append(context))
        self._loop.run_until_complete(self._open())

    async def _open(self) -> None:
        self._served = await ServedInMemory().__aenter__()
        self._witness = self._dial()
        await self._witness.connect(300_000)
        self._client = self._dial()
        _, self._session, self._password = await self._client.connect(300_000)

    def _dial(self) -> RawClient:
        network = self._served.network
        assert isinstance(network, MemoryNetwork)
        return RawClient(network)

    def end(self) -> None:
        async def close() -> None:
            await self._served.__aexit__()

        self._loop.run_until_complete(close())
        self._loop.close()

    def attempt(self, draw: Random) -> bool:
        refused = self._loop.run_until_complete(self._attempt(draw))
        if self._found:
            context = self._found[0]
            raise context.get("exception") or AssertionError(context["message"])
        return refused

    async def _attempt(self, draw: Random) -> bool:
        client = self._client
        if draw.random() < 0.2:
            client = self._dial()
            frame = struct.pack(">iqiq", 0, 0, draw.choice((0, 6000, -1)), draw.choice((0, self._session, 7)))
            frame += jute.buffer(draw.choice((self._password, bytes(16), b"", None))) + b"\0"
        else:
            frame = struct.pack(">ii", draw.choice((1, -2, -4, -8)), 0)[:4] + self._request(draw)
        if draw.random() < 0.8:
            frame = mutate(frame, draw)
        data = struct.pack(">i", len(frame)) + frame
        if draw.random() < 0.1:
            data = mutate(data, draw)
        while data:
            piece = draw.choice((1 << 20, 1 << 20, 3, 30))
            client.send_raw(data[:piece])
            data = data[piece:]
        for _ in range(TURNS):
            await asyncio.sleep(0)
        client.transport.written.clear()
        refused = client.closed
        if client is not self._client:
            client.hang_up()
        if self._client.closed or self._session not in self._served.store.tree.sessions or draw.random() < 0.02:
            # What is left of a cut frame would be read as the next one's length.
            self._client.hang_up()
            self._client = self._dial()
            _, self._session, self._password = await self._client.connect(300_000)
        if draw.random() < 0.05:
            self._witness.send(struct.pack(">ii", -2, OpCode.PING))
            assert await self._witness.frames(), "another session is not answered any more"
            self._check_tree()
        return refused

    def _check_tree(self) -> None:
        """No change leaves half a tree: each node has its parent, each child its node, each owner its session."""
        tree = self._served.store.tree
        nodes = tree.snapshot().nodes
        for path, node in nodes.items():
            if path != "/":
                parent, _, name = path.rpartition("/")
                assert name in tree.children(parent or "/")[0], path
            assert not node.ephemeral_owner or node.ephemeral_owner in tree.sessions, path

    def _request(self, draw: Random) -> bytes:
        path = draw.choice(PATHS)
        version = struct.pack(">i", draw.choice((-1, 0, 1)))
        opcode = draw.choice(list(OpCode))
        match opcode:
            case OpCode.GET_DATA | OpCode.EXISTS | OpCode.GET_CHILDREN | OpCode.GET_CHILDREN2:
                body = jute.string(path) + bytes([draw.randrange(2)])
            case OpCode.CREATE | OpCode.CREATE2 | OpCode.CREATE_CONTAINER | OpCode.CREATE_TTL:
                flags = struct.pack(">i", draw.choice((0, 0, 1, 2, 3, 4, 9)))
                body = jute.string(path) + jute.buffer(draw.choice((None, b"", b"x"))) + jute.acl() + flags
            case OpCode.SET_DATA:
                body = jute.string(path) + jute.buffer(draw.randbytes(3)) + version
            case OpCode.MULTI:
                body = jute.multi([self._operation(draw) for _ in range(draw.randrange(5))])
            case OpCode.SET_WATCHES | OpCode.SET_WATCHES2:
                paths = [list(draw.choices(PATHS, k=draw.randrange(3))) for _ in range(3)]
                body = jute.set_watches(LostWatches(draw.randrange(100), *paths))
            case OpCode.AUTH:
                body = version + jute.string(draw.choice(("digest", "sasl"))) + jute.buffer(b"me:secret")
            case OpCode.SET_ACL:
                body = jute.string(path) + jute.acl() + version
            case _:
                body = jute.string(path) + version
        return struct.pack(">i", opcode) + body

    def _operation(self, draw: Random) -> Operation:
        path, version = draw.choice(PATHS), draw.choice((-1, 0, 1))
        return draw.choice(
            (
                Create(path, b"x", draw.random() < 0.3, draw.random() < 0.3),
                SetData(path, None, version),
                Delete(path, version),
                Check(path, version),
            )
        )
