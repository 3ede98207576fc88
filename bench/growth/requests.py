"""Requests as bytes, and a client that sends them over some connections as fast as they are answered."""

from __future__ import annotations

import contextlib
import itertools
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from bench.coordinator import frame
from bench.started import Started

from tidelog.model.errors import ErrorCode
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey

LEAST_S: Final = 1.0
"""So that what happens once in a while weighs what it should."""


class Lane:
    """A connection that sends its requests in turn, with some of them in flight."""

    def __init__(self, port: int, frames: Sequence[bytes]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 600)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frames = itertools.cycle(frames)
        self.first: bytes | None = None
        """The first answer, without its size."""
        self._received = bytearray()

    def send(self, count: int) -> None:
        self.socket.sendall(b"".join(itertools.islice(self.frames, count)))

    def take(self) -> int:
        """How many answers have come whole with what can be read now."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise SystemExit("the broker closed a connection")
        self._received += data
        at = answers = 0
        while len(self._received) - at >= 4:
            (size,) = struct.unpack_from(">i", self._received, at)
            if len(self._received) - at - 4 < size:
                break
            if self.first is None:
                self.first = bytes(self._received[at + 4 : at + 4 + size])
            at += 4 + size
            answers += 1
        del self._received[:at]
        return answers


def drive(
    port: int,
    lanes: Sequence[Sequence[bytes]],
    *,
    in_flight: int = 4,
    seconds: float = LEAST_S,
    count: int | None = None,
) -> tuple[int, list[bytes]]:
    """Sends each lane's requests again and again; how many were answered, and the first answer of each lane.

    For `seconds`, or until `count` in all are answered.
    """
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        opened = [Lane(port, frames) for frames in lanes]
        for lane in opened:
            stack.callback(lane.socket.close)
            selector.register(lane.socket, selectors.EVENT_READ, lane)
        sent = answered = 0

        def more(lane: Lane, wanted: int) -> None:
            nonlocal sent
            wanted = wanted if count is None else min(wanted, count - sent)
            if wanted > 0:
                lane.send(wanted)
                sent += wanted

        for lane in opened:
            more(lane, in_flight)
        deadline = time.monotonic() + seconds
        while answered < sent:
            for key, _ in selector.select(600):
                lane = key.data
                came = lane.take()
                answered += came
                if count is not None or time.monotonic() < deadline:
                    more(lane, came)
        return answered, [lane.first or b"" for lane in opened]


def cpu_us(broker: Started, lanes: Sequence[Sequence[bytes]], **options: Any) -> float:
    """CPU microseconds of the broker for one of these requests."""
    before = broker.cpu_s()
    answers, _ = drive(broker.port, lanes, **options)
    return (broker.cpu_s() - before) / max(answers, 1) * 1e6


@contextlib.contextmanager
def asking(broker: Started) -> Iterator[Callable[..., Any]]:
    """A function that asks the broker and waits long."""
    connection = broker.connect()
    try:
        yield lambda message, version=None: connection.request(message, version, timeout_s=600)
    finally:
        connection.close()


def create(broker: Started, sizes: dict[str, int], configs: dict[str, str] | None = None, factor: int = 1) -> None:
    """Topics of so many partitions each, a thousand topics or ten thousand partitions in a request. SystemExit."""
    kind = messages.CreateTopicsRequest
    made = [
        kind.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        for name, partitions in sizes.items()
    ]
    while made:
        batch, made = made[:1000], made[1000:]
        while sum(topic.num_partitions for topic in batch) > 10_000 and len(batch) > 1:
            made.insert(0, batch.pop())
        with asking(broker) as ask:
            controller = ask(messages.MetadataRequest(topics=[])).controller_id
        connection = broker.connect(controller)
        try:
            answer = connection.request(kind(topics=batch, timeout_ms=600_000), timeout_s=600)
        finally:
            connection.close()
        refused = [topic for topic in answer.topics if topic.error_code]
        if refused:
            code = ErrorCode(refused[0].error_code)
            raise SystemExit(f"{refused[0].name} was not created: {code.name}: {refused[0].error_message}")


def metadata(topics: Sequence[str] | None) -> bytes:
    """Asks for these topics, or all."""
    kind = messages.MetadataRequest
    wanted = None if topics is None else [kind.MetadataRequestTopic(name=name) for name in topics]
    return frame(ApiKey.METADATA, 9, kind(topics=wanted))


def decoded(key: ApiKey, version: int, answer: bytes) -> Any:
    """An answer to one of these requests."""
    return framing.decode_response(key, version, answer)[1]
