"""The metadata store over the wire: what a broker's session costs, and what a controller can ask at a failover.

    python bench/store.py [--zookeeper]

The embedded store, on disk, served by a process of its own; our client in this one, and kazoo by itself beside it. With
--zookeeper the same on Debian's ZooKeeper (package zookeeper, a JDK), in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import uvloop

READS = 4000
WRITES = 2000
MULTIS = 8
MULTI_SIZE = 500
ROUNDS = 3
SERVER = """
import asyncio, sys
import uvloop
from tidelog.ports.real import SystemClock, SystemDisk, SystemNetwork, SystemRandom
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.server import StoreServer
from tidelog.store.sqlite import SqlitePersistence

async def main():
    store = EmbeddedStore(SqlitePersistence(sys.argv[1], SystemDisk()), SystemClock(), SystemRandom())
    store.start()
    host, port = await StoreServer(store, SystemClock()).start(SystemNetwork(), "127.0.0.1", 0)
    print(f"{host}:{port}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

uvloop.run(main())
"""


@contextlib.contextmanager
def embedded() -> Iterator[str]:
    """The embedded store in a process of its own; its address."""
    folder = tempfile.mkdtemp(prefix="tidelog-bench-")
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(folder)


@contextlib.contextmanager
def zookeeper() -> Iterator[str]:
    """Debian's ZooKeeper; its address."""
    from tests.conformance.zookeeper import server

    folder = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    try:
        with server(folder) as hosts:
            yield hosts
    finally:
        shutil.rmtree(folder)


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


async def rate(count: int, calls: Callable[[], list[Awaitable[object]]]) -> str:
    """Operations a second of pipelined calls, and this process's CPU for each: the best of some rounds."""
    found = []
    for _ in range(ROUNDS):
        begin, cpu = time.perf_counter(), time.process_time()
        for call in calls():
            await call
        found.append((count / (time.perf_counter() - begin), (time.process_time() - cpu) / count * 1e6))
    best = max(found)
    return f"{best[0]:>9,.0f}/s {best[1]:>6.1f} µs CPU"


async def ours(hosts: str) -> None:
    begin, before = time.perf_counter(), resident_mib()
    from tidelog.metadata.operations import Create
    from tidelog.store.zookeeper import ZooKeeperStore

    imported = time.perf_counter()
    store = await ZooKeeperStore.connect(f"{hosts}/bench", session_timeout_ms=6000, connection_timeout_ms=10_000)
    print(
        f"  import {(imported - begin) * 1e3:.0f} ms, {resident_mib() - before:.1f} MiB with the first session;",
        end=" ",
    )
    print(f"connected in {(time.perf_counter() - imported) * 1e3:.0f} ms")
    await store.create("/node", bytes(200))
    numbers = iter(range(1_000_000))

    def multis() -> list[Awaitable[object]]:
        return [
            store.multi([Create(f"/n{next(numbers)}", bytes(100)) for _ in range(MULTI_SIZE)]) for _ in range(MULTIS)
        ]

    print(f"  {READS:,} pipelined gets        {await rate(READS, lambda: [store.get('/node') for _ in range(READS)])}")
    writes = await rate(WRITES, lambda: [store.set("/node", bytes(200)) for _ in range(WRITES)])
    print(f"  {WRITES:,} pipelined sets        {writes}")
    print(f"  {MULTIS} multis of {MULTI_SIZE} creates   {await rate(MULTIS * MULTI_SIZE, multis)}")
    for name, call in (("get", lambda: store.get("/node")), ("set", lambda: store.set("/node", b""))):
        times = []
        for _ in range(200):
            begin = time.perf_counter()
            await call()
            times.append(time.perf_counter() - begin)
        print(f"  one {name} at a time: median {statistics.median(times) * 1e3:.2f} ms")
    await store.close()


async def kazoo_alone(hosts: str) -> None:
    from kazoo.client import KazooClient

    client = KazooClient(f"{hosts}/bench")
    client.start()
    client.ensure_path("/kazoo")

    def gets() -> list[Awaitable[object]]:
        for pending in [client.get_async("/kazoo") for _ in range(READS)]:
            pending.get()
        return []

    print(f"  the same gets by kazoo alone {await rate(READS, gets)}")
    client.stop()
    client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="The metadata store over the wire.")
    parser.add_argument("--zookeeper", action="store_true", help="measure Debian's ZooKeeper too")
    arguments = parser.parse_args()
    servers = [("embedded store", embedded)]
    if arguments.zookeeper:
        sys.path.insert(0, str(Path(__file__).parent.parent))
        servers.append(("ZooKeeper", zookeeper))
    for name, serve in servers:
        print(name)
        with serve() as hosts:
            uvloop.run(ours(hosts))
            asyncio.run(kazoo_alone(hosts))


if __name__ == "__main__":
    main()
