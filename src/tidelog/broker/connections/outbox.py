"""Answers on their way out of one connection: bytes, and slices of files.

A connection that never fetched writes its bytes straight to its transport. The first answer with a `FileRange` gives it
an outbox, and from then on everything it sends goes through that, in order:

    pending chunks --+-- bytes ---------------------------> transport.write          until the first large range
                     +-- range, small, in the page cache -> read, transport.write
                     +-- bytes or large ranges -----------> sendmsg, sendfile on a duplicate of the socket
                     +-- range whose file is not kept open, or no descriptor for the duplicate -> read, as a small one
                     +-- range that is not in the cache --> an I/O thread reads it into the cache first

The duplicate, because uvloop offers no sendfile and owns its descriptor; once it is in use, the transport must not
write any more. Where there is no descriptor (a simulated disk or network), ranges are read and written as bytes.

Nothing is read from a file before the socket can take it, so a client that doesn't read costs no memory.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.shell import InDirectories
from tidelog.ports.disk import Chunk, FileRange

if TYPE_CHECKING:
    import asyncio

    from tidelog.broker.connections.admission import Admission
    from tidelog.broker.connections.writable_sockets import WritableSockets
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.shell import Shell
    from tidelog.ports.disk import Bytes

SENDFILE_MIN: Final = 64 << 10
"""Bytes of a range from which sendfile is cheaper than a read and a write."""
BYTES_PER_TURN: Final = 1 << 20
"""Bytes that one connection sends before the others have their turn."""
_SWITCH_RETRY_MS: Final = 5
"""Milliseconds between looks at a transport that still holds bytes written before its limit was lowered."""
_BUFFERS_MAX: Final = 256
"""Buffers handed to one sendmsg; the kernel takes 1024."""
_GATHERED_MAX: Final = 128 << 10
"""Bytes of small ranges read for one sendmsg: what a client that stops reading then costs in memory."""
_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)
"""The flag that says that more follows at once; Linux has it."""


class Outbox:
    """The queue of one connection. `on_drained` is called when everything has left, after `busy` was true."""

    __slots__ = (
        "_admission",
        "_cold",
        "_duplicate",
        "_lacks_descriptor",
        "_may_duplicate",
        "_on_drained",
        "_on_failure",
        "_pending",
        "_probed",
        "_scheduled",
        "_send_buffer_bytes",
        "_shell",
        "_sockets",
        "_switching",
        "_transport",
        "closed",
        "transport_paused",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        shell: Shell,
        sockets: WritableSockets,
        on_drained: Callable[[], None],
        on_failure: Callable[[Exception], None],
        *,
        send_buffer_bytes: int = 0,
        admission: Admission[Any] | None = None,
    ) -> None:
        """`sockets` tell when the duplicate takes more. `admission` counts it; with None there is always one to be had.

        `send_buffer_bytes`: SO_SNDBUF while ranges are sent by sendfile; 0 or less: the operating system sizes it.

        With a moderate one the kernel holds half a megabyte of an answer at most (Linux doubles what is asked for), and
        the client copies what it has while the rest is on its way. With a smaller one both are woken up more often,
        which is dear where they run on two cores. One that grows takes whole answers: the loop is then in one long call
        for each, which costs a third more CPU time and comes later to the client.
        """
        self._transport = transport
        self._shell = shell
        self._sockets = sockets
        self._send_buffer_bytes = send_buffer_bytes
        self._admission = admission
        self._may_duplicate = False
        """Whether a descriptor for the duplicate is counted as taken."""
        self._lacks_descriptor = False
        """Whether the system refused one: what is queued now goes through the transport."""
        self._on_drained = on_drained
        self._on_failure = on_failure
        self._pending: deque[Chunk] = deque()
        self._duplicate: socket.socket | None = None
        """The duplicate, once ranges are sent by sendfile."""
        self._switching = False
        """Whether the transport is being emptied, so that the duplicate can take over."""
        self._scheduled = False
        """Whether `_pump` will be called by itself: by the loop, by a writable socket, by the I/O pool."""
        self._cold: FileRange | None = None
        """The range that an I/O thread reads now; it must stay open until that is over, whatever happens here."""
        self._probed = 0
        """Bytes at the head of the queue known to be in the page cache."""
        self.transport_paused = False
        """Set by the connection's pause_writing and resume_writing."""
        self.closed = False

    @property
    def busy(self) -> bool:
        """Whether something still waits to be sent."""
        return bool(self._pending)

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Queues `chunks` and sends what can be sent now. Their ranges are released when sent, or at `close`."""
        if self.closed:
            for chunk in chunks:
                if isinstance(chunk, FileRange):
                    chunk.release()
            return
        duplicate = self._duplicate
        if duplicate is not None and len(chunks) == 1 and not self._pending and not self._scheduled:
            chunks = _send_at_once(duplicate, chunks[0])
            if not chunks:
                return
        self._pending.extend(chunks)
        if not self._scheduled:
            self._pump()

    def resume(self) -> None:
        """The transport's buffer is empty again."""
        self.transport_paused = False
        if not self._scheduled and self._pending:
            self._pump()

    def close(self) -> None:
        """Releases everything; the connection is gone."""
        self.closed = True
        for chunk in self._pending:
            if isinstance(chunk, FileRange) and chunk is not self._cold:
                chunk.release()
        self._pending.clear()
        if self._duplicate is not None:
            self._sockets.forget(self._duplicate.fileno())
            self._duplicate.close()
            self._duplicate = None
        self._give_back_duplicate()

    def _pump(self) -> None:
        self._scheduled = False
        if self.closed:
            return
        try:
            if self._duplicate is None:
                self._pump_transport()
            if self._duplicate is not None:
                self._pump_duplicate(self._duplicate)
        except OSError as error:
            self._on_failure(error)
            return
        if not self._pending and not self._scheduled and not self.closed:
            self._lacks_descriptor = False
            self._on_drained()

    # Through the transport.

    def _pump_transport(self) -> None:
        sent = 0
        gathered: list[Bytes] = []
        while self._pending and not self.transport_paused and not self._switching:
            chunk = self._pending[0]
            if isinstance(chunk, FileRange):
                if chunk.size >= SENDFILE_MIN and self._can_sendfile(chunk):
                    self._switching = True
                    break
                data = self._read(chunk)
                if data is None:
                    break
                gathered.append(data)
                sent += len(data)
            else:
                gathered.append(chunk)
                sent += len(chunk)
                self._pending.popleft()
            if sent >= BYTES_PER_TURN:
                break
        if self._switching:
            self._switch(gathered)
            return
        if gathered:
            self._transport.write(gathered[0] if len(gathered) == 1 else b"".join(gathered))
        if self._pending and not self._scheduled and not self.transport_paused:
            self._again()

    def _can_sendfile(self, chunk: FileRange) -> bool:
        if self._lacks_descriptor or chunk.file.fileno() is None or self._transport.get_extra_info("socket") is None:
            return False
        if self._transport.get_extra_info("ssl_object") is not None:
            # What goes past the transport would go out in clear text.
            return False
        if not self._may_duplicate:
            self._may_duplicate = self._admission is None or self._admission.take_duplicate()
        return self._may_duplicate

    def _give_back_duplicate(self) -> None:
        if self._may_duplicate and self._admission is not None:
            self._admission.give_back_duplicate()
        self._may_duplicate = False

    def _switch(self, gathered: list[Bytes]) -> None:
        """Hands over from the transport to the duplicate, once the transport's buffer is empty.

        Where the system has no descriptor for one, the ranges that wait are read into memory, a turn's worth at once.
        """
        if gathered:
            # With a high-water mark of 0 the transport writes at once, and says by resume_writing when all is out.
            self._transport.set_write_buffer_limits(high=0)
            self._transport.write(b"".join(gathered))
        if self._transport.get_write_buffer_size():
            if not self.transport_paused:
                self._scheduled = True
                self._shell.after(_SWITCH_RETRY_MS, self._pump)
            return
        self._switching = False
        try:
            duplicate = socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno()))
            try:
                self._sockets.add(duplicate.fileno())
            except OSError:
                duplicate.close()
                raise
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self._give_back_duplicate()
            self._lacks_descriptor = True
            self._pump_transport()
            return
        self._duplicate = duplicate
        duplicate.setblocking(False)
        if self._send_buffer_bytes > 0:
            duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)

    def _read(self, chunk: FileRange, size_max: int = BYTES_PER_TURN) -> bytes | None:
        """The next bytes of a range, at most a turn's worth; None while an I/O thread fetches them."""
        size = min(chunk.size, size_max)
        read = chunk.file.pread if self._probed >= size else chunk.file.probe
        data = read(size, chunk.position)
        if data is None:
            self._warm(chunk, size)
            return None
        if len(data) < size:
            raise OSError(f"{chunk.file.path} ends {size - len(data)} bytes before a range of it.")
        self._probed = 0
        self._advance(chunk, size)
        return data

    # Through the duplicate.

    def _pump_duplicate(self, duplicate: socket.socket) -> None:
        try:
            is_full = self._send_turn(duplicate)
        except BlockingIOError:
            is_full = True
        if is_full:
            self._scheduled = True
            self._sockets.await_room(duplicate.fileno(), self._pump)

    def _send_turn(self, duplicate: socket.socket) -> bool:
        """Sends what one connection may in a turn; true where the socket has taken less. BlockingIOError as well."""
        sent = 0
        while self._pending:
            # Bytes that follow a range go out with it: they are few, and the client needs them to go on.
            chunk = self._pending[0]
            if isinstance(chunk, FileRange):
                if sent >= BYTES_PER_TURN:
                    self._again()
                    return False
                descriptor = chunk.file.fileno() if chunk.size >= SENDFILE_MIN else None
                if descriptor is not None:
                    size = min(chunk.size, BYTES_PER_TURN)
                    if not self._is_warm(chunk, size):
                        self._warm(chunk, size)
                        return False
                    count = os.sendfile(duplicate.fileno(), descriptor, chunk.position, size)
                    if count == 0:
                        raise OSError(f"{chunk.file.path} ends before a range of it.")
                    self._advance(chunk, count)
                    self._probed = max(0, self._probed - count)
                    sent += count
                    if count < size:
                        return True
                    continue
            count = self._send_bytes(duplicate)
            if not count:
                return False
            sent += count
        return False

    def _send_bytes(self, duplicate: socket.socket) -> int:
        """Sends the bytes and small ranges at the head of the queue; gives how many bytes.

        0 when an I/O thread has to fetch the first of them. BlockingIOError when the socket takes none.
        """
        pending = self._pending
        buffers: list[Bytes] = []
        gathered = 0
        while pending and len(buffers) < _BUFFERS_MAX and gathered < _GATHERED_MAX:
            chunk = pending[0]
            if isinstance(chunk, FileRange):
                is_large = chunk.size >= SENDFILE_MIN
                if buffers and (is_large or not self._is_warm(chunk, chunk.size)):
                    break
                data = self._read(chunk, _GATHERED_MAX)
                if data is None:
                    break
                chunk = data
            else:
                pending.popleft()
            buffers.append(chunk)
            gathered += len(chunk)
        if not buffers:
            return 0
        written = 0
        try:
            # Were the head of an answer sent by itself, it would wake the client for a few bytes.
            written = duplicate.sendmsg(buffers, (), _MORE if pending else 0)
        finally:
            self._put_back(buffers, written)
        return written

    def _put_back(self, buffers: list[Bytes], written: int) -> None:
        """Queues again what the socket has not taken."""
        for index, buffer in enumerate(buffers):
            size = len(buffer)
            if written < size:
                self._pending.extendleft(reversed(buffers[index + 1 :]))
                self._pending.appendleft(memoryview(buffer)[written:])
                return
            written -= size

    # Both.

    def _advance(self, chunk: FileRange, count: int) -> None:
        chunk.position += count
        chunk.size -= count
        if not chunk.size:
            self._pending.popleft()
            chunk.release()

    def _is_warm(self, chunk: FileRange, size: int) -> bool:
        """Whether sendfile would not wait: the first and the last page are in the page cache."""
        if self._probed >= size:
            return True
        if chunk.file.probe(1, chunk.position) is None or chunk.file.probe(1, chunk.position + size - 1) is None:
            return False
        self._probed = size
        return True

    def _warm(self, chunk: FileRange, size: int) -> None:
        """Has an I/O thread read the next `size` bytes of a range, so that they are in the page cache."""
        self._scheduled = True
        self._cold = chunk
        position = chunk.position
        file = chunk.file

        def warmed(reading: Deferred[bytes]) -> None:
            self._cold = None
            if self.closed:
                chunk.release()
                return
            try:
                reading.result()
            except OSError as error:
                self._on_failure(error)
                return
            # Even if the kernel has dropped the pages again: asking a second time could go on for ever.
            self._probed = size
            self._pump()

        log_dir = file.path.rsplit("/", 2)[0]
        self._shell.in_pool(InDirectories((log_dir,), lambda: file.pread(size, position))).on_complete(warmed)

    def _again(self) -> None:
        self._scheduled = True
        self._shell.soon(self._pump)


def _send_at_once(duplicate: socket.socket, chunk: Chunk) -> list[Chunk]:
    """Sends the bytes of a small answer; gives what is left to be sent, or is a range."""
    if type(chunk) is not bytes:
        return [chunk]
    try:
        written = duplicate.send(chunk)
    except OSError:
        # The socket is full, or broken: the next attempt meets that again, and does what is to be done.
        written = 0
    return [] if written == len(chunk) else [memoryview(chunk)[written:]]
