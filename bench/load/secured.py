"""Clients of a SASL_SSL listener, each a process: what `bench/secure.py` measures with. Standard library and ssl alone.

    python secured.py produce REQUEST POFF PARTITIONS IN_FLIGHT SECONDS    keeps so many requests in flight
    python secured.py probe REQUEST POFF SECONDS EVERY_MS                  one request at a time; prints each latency
    python secured.py storm CONNECTIONS AT_ONCE                            new connections, held until the last one

The environment says where and as whom: ADDRESS (host:port), CA, SASL_USER, SASL_PASSWORD (by PLAIN). REQUEST is a file
of `mkreq.py`. Output is JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import struct
import sys
import time
from collections import deque
from pathlib import Path

HOST, _, PORT = os.environ["ADDRESS"].rpartition(":")
PLAIN = b"PLAIN"


def context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=os.environ["CA"])


def log_in() -> list[bytes]:
    """SaslHandshake v1, SaslAuthenticate v1."""
    token = f"\0{os.environ['SASL_USER']}\0{os.environ['SASL_PASSWORD']}".encode()
    bodies = [
        struct.pack(">hhih", 17, 1, 1, -1) + struct.pack(">h", len(PLAIN)) + PLAIN,
        struct.pack(">hhih", 36, 1, 2, -1) + struct.pack(">i", len(token)) + token,
    ]
    return [struct.pack(">i", len(body)) + body for body in bodies]


def check(answer: bytes) -> None:
    """Of a login."""
    (error,) = struct.unpack_from(">h", answer, 4)
    if error:
        raise SystemExit(f"the broker refuses the login: error {error}")


class Connection:
    """One that has logged in."""

    def __init__(self) -> None:
        plain = socket.create_connection((HOST, int(PORT)))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context().wrap_socket(plain, server_hostname=HOST)
        self._buffer = bytearray()
        for request in log_in():
            self.send(request)
            check(self.answer())

    def send(self, request: bytes | bytearray) -> None:
        self._socket.sendall(request)

    def answer(self) -> bytes:
        while len(self._buffer) < 4 or len(self._buffer) < 4 + int.from_bytes(self._buffer[:4], "big"):
            data = self._socket.recv(65_536)
            if not data:
                raise SystemExit("the broker has ended the connection")
            self._buffer += data
        end = 4 + int.from_bytes(self._buffer[:4], "big")
        found = bytes(self._buffer[4:end])
        del self._buffer[:end]
        return found


def percentile(sorted_values: list[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))] if sorted_values else 0.0


def produce(path: str, place: int, partitions: int, in_flight: int, seconds: float) -> dict[str, float]:
    connection, request = Connection(), bytearray(Path(path).read_bytes())
    begun: deque[float] = deque()
    latencies: list[float] = []
    sent = 0

    def send() -> None:
        nonlocal sent
        struct.pack_into(">i", request, place, sent % partitions)
        begun.append(time.perf_counter())
        connection.send(request)
        sent += 1

    start = time.perf_counter()
    for _ in range(in_flight):
        send()
    while time.perf_counter() < start + seconds:
        connection.answer()
        latencies.append(time.perf_counter() - begun.popleft())
        send()
    took = time.perf_counter() - start
    while begun:
        connection.answer()
        begun.popleft()
    latencies.sort()
    return {
        "requests": len(latencies),
        "seconds": took,
        "p50_ms": percentile(latencies, 0.5) * 1e3,
        "p99_ms": percentile(latencies, 0.99) * 1e3,
    }


def probe(path: str, place: int, seconds: float, every_ms: float) -> list[tuple[float, float]]:
    """(wall time at its start, seconds until its answer) of each request."""
    connection, request = Connection(), bytearray(Path(path).read_bytes())
    struct.pack_into(">i", request, place, 0)
    found = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        wall, begun = time.time(), time.perf_counter()
        connection.send(request)
        connection.answer()
        found.append((wall, time.perf_counter() - begun))
        time.sleep(every_ms / 1000)  # The pace is what is asked for.
    return found


async def storm(connections: int, at_once: int) -> dict[str, float]:
    tls, room = context(), asyncio.Semaphore(at_once)
    held: list[asyncio.StreamWriter] = []

    async def enter() -> None:
        async with room:
            reader, writer = await asyncio.open_connection(HOST, int(PORT), ssl=tls, server_hostname=HOST)
            for request in log_in():
                writer.write(request)
                size = int.from_bytes(await reader.readexactly(4), "big")
                check(await reader.readexactly(size))
            held.append(writer)

    begun, start = time.time(), time.perf_counter()
    await asyncio.gather(*(enter() for _ in range(connections)))
    took = time.perf_counter() - start
    for writer in held:
        writer.transport.abort()
    return {"begun": begun, "seconds": took, "connections": len(held)}


def main() -> None:
    mode, *arguments = sys.argv[1:]
    match mode:
        case "produce":
            path, place, partitions, in_flight, seconds = arguments
            found: object = produce(path, int(place), int(partitions), int(in_flight), float(seconds))
        case "probe":
            path, place, seconds, every_ms = arguments
            found = probe(path, int(place), float(seconds), float(every_ms))
        case "storm":
            found = asyncio.run(storm(int(arguments[0]), int(arguments[1])))
        case _:
            raise SystemExit(__doc__)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
