"""One broker in this process, with its embedded store: what `tidelog start` and `tidelog broker` run.

    run(config, store_directory, on_ready)     a loop of its own, signals, until told to stop
    serve(...)                                 the same in a loop that is there already, for tests in a thread

Imports are kept few: from the command to the first answered Metadata takes less than half a second, most of it
Python's.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import uvloop

from tidelog.broker.runtime import BrokerFailed, Runtime
from tidelog.ports.real import SystemClock, SystemDisk, SystemNetwork, SystemRandom
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.local import LocalStore
from tidelog.store.sqlite import SqlitePersistence

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.store.client import StoreClient

__all__ = ["BrokerFailed", "run", "serve"]

logger: Final = logging.getLogger(__name__)

STORE_FOLDER: Final = "store"
"""Name of the embedded store's directory, beside the brokers' own."""


async def serve(
    config: BrokerConfig,
    store_directory: str,
    on_ready: Callable[[Runtime], object],
    stopping: asyncio.Event,
) -> None:
    """Runs a broker until `stopping` is set; calls `on_ready` when clients can connect.

    BrokerFailed when it cannot start, or cannot go on.
    """
    disk, clock, random = SystemDisk(), SystemClock(), SystemRandom()
    store_failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    store = EmbeddedStore(
        SqlitePersistence(store_directory, disk),
        clock,
        random,
        lambda failure: store_failed.set_result(f"the metadata store failed: {failure}"),
    )

    async def connect_store() -> StoreClient:
        # Opened by the first session: a broker looks for its ports before it touches a disk.
        if not store.started:
            store.start()
        return await LocalStore.connect(store)

    runtime = Runtime(config, connect_store, clock=clock, random=random, disk=disk, network=SystemNetwork())
    try:
        await runtime.start()
        broker_failed = asyncio.ensure_future(runtime.failed())
        stopped = asyncio.ensure_future(stopping.wait())
        try:
            on_ready(runtime)
            awaited: set[asyncio.Future[Any]] = {broker_failed, store_failed, stopped}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            broker_failed.cancel()
            await runtime.stop()
    finally:
        await store.close()
    for failed in (store_failed, broker_failed):
        if failed.done() and not failed.cancelled():
            raise BrokerFailed(failed.result())


def run(config: BrokerConfig, store_directory: str, on_ready: Callable[[Runtime], object]) -> None:
    """Runs a broker in this process until SIGINT or SIGTERM. BrokerFailed when it cannot start, or cannot go on."""
    for sentence in config.warnings():
        logger.warning("%s", sentence)

    def ready(runtime: Runtime) -> None:
        # What start-up has made stays: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        on_ready(runtime)

    async def main() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopping.set)
        await serve(config, store_directory, ready, stopping)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def log_to_stderr(level: str) -> None:
    """Log lines as operators read them: time, level, where, what."""
    handler: Any = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
