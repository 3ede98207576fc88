"""Answers with file ranges on real sockets: every byte, in order, by whichever way."""

import asyncio
import errno
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tidelog.broker.connections.outbox import BYTES_PER_TURN, Outbox
from tidelog.broker.connections.writable_sockets import WritableSockets
from tidelog.broker.deferred import Deferred
from tidelog.ports.disk import Chunk, FileRange
from tidelog.ports.real import SystemDisk

LOOPS = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
CONTENT = random.Random(1).randbytes(5_000_000)


class LoopShell:
    """Timers and turns of the running loop; the pool's work is done at once, and delivered in the next turn."""

    def __init__(self) -> None:
        self.pooled = 0

    def after(self, delay_ms: int, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback, *arguments)

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        asyncio.get_running_loop().call_soon(callback, *arguments)

    def in_pool(self, work: Callable[[], Any]) -> Deferred[Any]:
        self.pooled += 1
        outcome: Deferred[Any] = Deferred()
        self.soon(lambda: outcome.complete(work()))
        return outcome


class Owner:
    """Counts the references to a file."""

    def __init__(self) -> None:
        self.references = 0

    def retain(self) -> None:
        self.references += 1

    def release(self) -> None:
        self.references -= 1


class Sender(asyncio.Protocol):
    """The sending side: an outbox on a transport, as a connection has it."""

    SEND_BUFFER_BYTES = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.shell = LoopShell()
        self.failures: list[Exception] = []
        self.drained = 0
        self.outbox = Outbox(
            transport,  # type: ignore[arg-type]
            self.shell,  # type: ignore[arg-type]
            WritableSockets(),
            self.on_drained,
            self.failures.append,
            send_buffer_bytes=self.SEND_BUFFER_BYTES,
        )
        transport.set_write_buffer_limits(high=64 << 10)  # type: ignore[attr-defined]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Gives the loop turns until `condition` holds."""
        for _ in range(100_000):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("It does not come about.")

    def on_drained(self) -> None:
        self.drained += 1

    def pause_writing(self) -> None:
        self.outbox.transport_paused = True

    def resume_writing(self) -> None:
        self.outbox.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.outbox.close()


@pytest.fixture
def file(tmp_path: Path) -> Any:
    path = tmp_path / "data"
    path.write_bytes(CONTENT)
    opened = SystemDisk().open(str(path), read_only=True)
    yield opened
    opened.close()


def chunks_of(file: Any, owner: Owner, shape: list[int]) -> tuple[list[Chunk], bytes]:
    """Chunks by `shape`: a positive number is a range of so many bytes, a negative one so many bytes in memory."""
    chunks: list[Chunk] = []
    expected = []
    position = 0
    for size in shape:
        if size > 0:
            chunks.append(FileRange(file, position, size, owner))
            expected.append(CONTENT[position : position + size])
        else:
            chunks.append(bytes([65 + len(chunks) % 26]) * -size)
            expected.append(chunks[-1])
        position = (position + 100_000) % 2_000_000
    return chunks, b"".join(expected)


SHAPES = {
    "small": [-20, 1000, -5],
    "large": [-20, 3_000_000, -5],
    "mixed": [-20, 1000, -7, 200_000, -9, 64 << 10, -11, 100, -1, 2_500_000, 2_000_000, -3],
    "bytes": [-20, -3_000_000, -5],
    "many": [-3, 70_000] * 40,
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("cold", "send_buffer"), [(False, 0), (True, 0), (False, 5_000)])
def test_every_byte_arrives_in_order(
    file: Any, monkeypatch: pytest.MonkeyPatch, loop: str, shape: str, cold: bool, send_buffer: int
) -> None:
    """Small and large ranges, warm and cold, between bytes: all comes as it was queued, even piece by piece."""
    owner = Owner()
    monkeypatch.setattr(Sender, "SEND_BUFFER_BYTES", send_buffer)
    if cold:
        monkeypatch.setattr(type(file), "probe", lambda self, size, offset: None)

    async def main() -> tuple[bytes, bytes, Sender]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        _, sender = await asyncio.get_running_loop().create_connection(Sender, sock=ours)
        expected = b""
        for _ in range(2):
            chunks, more = chunks_of(file, owner, SHAPES[shape])
            expected += more
            sender.outbox.send(chunks)
        reader, writer = await asyncio.open_connection(sock=theirs)
        received = await reader.readexactly(len(expected))
        await sender.until(lambda: not sender.outbox.busy)
        sender.transport.close()
        writer.close()
        await writer.wait_closed()
        return received, expected, sender

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        received, expected, sender = runner.run(main())
    assert received == expected
    assert sender.failures == []
    assert sender.drained >= 1
    assert owner.references == 0
    assert bool(sender.shell.pooled) == (cold and shape != "bytes")


class NoDuplicates:
    """An `Admission` that has no descriptor left."""

    def take_duplicate(self) -> bool:
        return False

    def give_back_duplicate(self) -> None:
        raise AssertionError("None was taken.")


class Unheld:
    """A file without a descriptor of its own, as `UnheldFile`."""

    path = "unheld"

    def __init__(self, file: Any) -> None:
        self.pread, self.probe = file.pread, file.probe

    def fileno(self) -> None:
        return None


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("shape", ["large", "many"])
@pytest.mark.parametrize("lack", ["none is left for it", "EMFILE", "ENFILE", "a file is not held"])
def test_every_byte_arrives_without_descriptors(
    file: Any, monkeypatch: pytest.MonkeyPatch, loop: str, shape: str, lack: str
) -> None:
    """Without one for the duplicate, or for the file, ranges are read and written instead."""
    owner = Owner()
    if lack.endswith("FILE"):

        def refuse(descriptor: int) -> int:
            raise OSError(getattr(errno, lack), "Too many open files")

        monkeypatch.setattr("tidelog.broker.connections.outbox.os.dup", refuse)

    async def main() -> tuple[bytes, bytes, Sender]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        _, sender = await asyncio.get_running_loop().create_connection(Sender, sock=ours)
        if lack.startswith("none"):
            sender.outbox._admission = NoDuplicates()  # type: ignore[assignment]
        expected = b""
        for turn in range(2):
            # Held and unheld files by turns: the duplicate may be in use already.
            source = Unheld(file) if lack.startswith("a file") and turn % 2 else file
            chunks, more = chunks_of(source, owner, SHAPES[shape])
            expected += more
            sender.outbox.send(chunks)
        reader, writer = await asyncio.open_connection(sock=theirs)
        received = await reader.readexactly(len(expected))
        await sender.until(lambda: not sender.outbox.busy)
        sender.transport.close()
        writer.close()
        await writer.wait_closed()
        return received, expected, sender

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        received, expected, sender = runner.run(main())
    assert received == expected
    assert sender.failures == []
    assert owner.references == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_nothing_is_read_before_the_client_takes_it(file: Any, monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    """A client that doesn't read costs no memory: small ranges are left in their file until there is room."""
    owner = Owner()
    read: list[int] = []
    probe = type(file).probe

    def counted(self: Any, size: int, offset: int) -> bytes | None:
        read.append(size)
        return probe(self, size, offset)

    monkeypatch.setattr(type(file), "probe", counted)

    async def main() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        _, sender = await asyncio.get_running_loop().create_connection(Sender, sock=ours)
        chunks, _ = chunks_of(file, owner, [50_000] * 2_000)
        sender.outbox.send(chunks)
        for _ in range(20):
            await asyncio.sleep(0)
        assert sum(read) <= 3 * BYTES_PER_TURN
        sender.transport.abort()
        await asyncio.sleep(0.01)
        assert owner.references == 0
        theirs.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main())


@pytest.mark.parametrize("loop", LOOPS)
def test_the_client_is_not_woken_for_the_head_of_an_answer(
    file: Any, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    """Once ranges go by sendfile, what precedes one says that more follows, and a small answer is one call."""
    owner = Owner()
    calls: list[tuple[int, int]] = []
    sendmsg = socket.socket.sendmsg

    def recorded(self: socket.socket, buffers: Any, ancillary: Any, flags: int) -> int:
        calls.append((sum(map(len, buffers)), flags))
        return sendmsg(self, buffers, ancillary, flags)

    async def main() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        _, sender = await asyncio.get_running_loop().create_connection(Sender, sock=ours)
        reader, writer = await asyncio.open_connection(sock=theirs)
        for shape in ([-20, 100_000, -5], [-20, 100_000, -5], [-20, 1000, -7, 3000, -5]):
            chunks, expected = chunks_of(file, owner, shape)
            sender.outbox.send(chunks)
            assert await reader.readexactly(len(expected)) == expected
            monkeypatch.setattr(socket.socket, "sendmsg", recorded)  # After the first, which leaves the transport.
        sender.transport.close()
        writer.close()
        await writer.wait_closed()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main())
    assert calls == [(20, socket.MSG_MORE), (5, 0), (4032, 0)]
    assert owner.references == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_a_socket_that_took_less_is_not_asked_again_before_it_has_room(
    file: Any, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    """A large answer takes many calls already; none of them is to be told that the socket is full."""
    owner = Owner()
    counts: list[int] = []
    sendfile = os.sendfile

    def recorded(*arguments: Any) -> int:
        counts.append(0)
        counts[-1] = sendfile(*arguments)
        return counts[-1]

    async def main() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        _, sender = await asyncio.get_running_loop().create_connection(Sender, sock=ours)
        reader, writer = await asyncio.open_connection(sock=theirs)
        chunks, expected = chunks_of(file, owner, [-20, 900_000, -5])
        sender.outbox.send(chunks)
        assert await reader.readexactly(len(expected)) == expected
        sender.transport.close()
        writer.close()
        await writer.wait_closed()

    monkeypatch.setattr(os, "sendfile", recorded)
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main())
    assert len(counts) > 1
    assert 0 not in counts
    assert owner.references == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_a_range_past_the_end_of_its_file_is_a_failure(file: Any, loop: str) -> None:
    """A truncated file is noticed: the connection is told, not left waiting."""
    owner = Owner()

    async def main() -> Sender:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        _, sender = await asyncio.get_running_loop().create_connection(Sender, sock=ours)
        sender.outbox.send([b"header", FileRange(file, len(CONTENT) - 10, 100_000, owner)])
        await sender.until(lambda: bool(sender.failures))
        sender.transport.abort()
        await asyncio.sleep(0.01)
        theirs.close()
        return sender

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        sender = runner.run(main())
    assert isinstance(sender.failures[0], OSError)
    assert owner.references == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_a_small_answer_after_ranges_is_one_send(file: Any, monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    """Where nothing is before it; what the socket does not take of it, and all behind that, comes in order."""
    owner = Owner()
    gathered: list[int] = []
    sendmsg = socket.socket.sendmsg

    def recorded(self: socket.socket, buffers: Any, ancillary: Any, flags: int) -> int:
        gathered.append(len(buffers))
        return sendmsg(self, buffers, ancillary, flags)

    async def main() -> tuple[bytes, bytes, Sender]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        _, sender = await asyncio.get_running_loop().create_connection(Sender, sock=ours)
        chunks, expected = chunks_of(file, owner, [-20, 100_000, -5])
        sender.outbox.send(chunks)
        reader, writer = await asyncio.open_connection(sock=theirs)
        assert await reader.readexactly(len(expected)) == expected
        monkeypatch.setattr(socket.socket, "sendmsg", recorded)
        sender.outbox.send([b"a" * 50])
        assert await reader.readexactly(50) == b"a" * 50
        assert (gathered, sender.outbox.busy) == ([], False)
        # Nobody reads in between: the first fills the socket, the others have to wait behind it.
        rest = [b"b" * 3_000_000, b"c" * 20, b"d" * 100_000]
        for each in rest:
            sender.outbox.send([each])
        assert sender.outbox.busy
        received = await reader.readexactly(sum(map(len, rest)))
        await sender.until(lambda: not sender.outbox.busy)
        sender.transport.close()
        writer.close()
        await writer.wait_closed()
        return received, b"".join(rest), sender

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        received, expected, sender = runner.run(main())
    assert received == expected
    assert sender.failures == []


@pytest.mark.parametrize("loop", LOOPS)
def test_a_broken_socket_is_told_of_a_small_answer_too(file: Any, loop: str) -> None:
    owner = Owner()

    async def main() -> Sender:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        _, sender = await asyncio.get_running_loop().create_connection(Sender, sock=ours)
        chunks, expected = chunks_of(file, owner, [100_000])
        sender.outbox.send(chunks)
        received = b""
        while len(received) < len(expected):
            received += theirs.recv(100_000)
            await asyncio.sleep(0)
        theirs.close()
        sender.outbox.send([b"too late"])
        sender.transport.abort()
        await asyncio.sleep(0)
        return sender

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        sender = runner.run(main())
    assert [type(failure) for failure in sender.failures] == [BrokenPipeError]
