"""A SASL listener of a broker that is still starting: it is bound before the broker has read who may enter."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

from tests.unit.broker.several import run
from tests.unit.broker.test_sasl_listeners import LISTENERS, SECURED
from tests.unit.broker.test_server import frame
from tests.waiting import eventually

from tidelog.broker.runtime import Runtime
from tidelog.config.broker_config import BrokerConfig
from tidelog.ports.real import SystemClock, SystemDisk, SystemNetwork, SystemRandom
from tidelog.store.client import StoreClient
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.local import LocalStore
from tidelog.store.persistence import MemoryPersistence


def test_who_comes_while_the_broker_starts_has_to_authenticate_too(tmp_path: Path) -> None:
    """A Metadata request without SASL, by a connection that was there before the store could be asked."""

    async def check() -> None:
        clock, random = SystemClock(), SystemRandom()
        store = EmbeddedStore(MemoryPersistence(), clock, random)
        store.start()
        is_reachable = asyncio.Event()

        async def connect() -> StoreClient:
            await is_reachable.wait()
            return await LocalStore.connect(store)

        config = BrokerConfig.from_mapping({**SECURED, **LISTENERS, "broker.id": 0, "log.dirs": str(tmp_path)})
        runtime = Runtime(config, connect, clock=clock, random=random, disk=SystemDisk(), network=SystemNetwork())
        starting = asyncio.ensure_future(runtime.start())
        await eventually(lambda: runtime.addresses)
        host, port = runtime.addresses[0].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await eventually(lambda: runtime._server._connection_ids)
        is_reachable.set()
        await starting
        writer.write(frame(body=struct.pack(">i", 0)))
        assert await reader.read(100) == b""
        writer.close()
        await runtime.stop()
        await store.close()

    run(check())
