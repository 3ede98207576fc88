"""Several brokers in one loop, over loopback, around one embedded store in memory whose sessions a test can end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any

from tidelog.broker.runtime import Runtime
from tidelog.client.addresses import Address
from tidelog.client.connection import Connection
from tidelog.config.broker_config import BrokerConfig
from tidelog.ports.real import SystemClock, SystemDisk, SystemNetwork, SystemRandom
from tidelog.protocol import messages
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.local import LocalStore
from tidelog.store.persistence import MemoryPersistence

DEADLINE_S = 30


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, DEADLINE_S))


async def until(condition: Callable[[], object], what: str = "it") -> None:
    """Waits for a condition of this process, with a deadline."""
    try:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"{what} did not come to be") from None


class Brokers:
    """`async with Brokers(folder) as brokers`: `await brokers.start(0)` and so on."""

    def __init__(self, folder: str, settings: Mapping[str, object] | None = None) -> None:
        self.folder = folder
        self.settings = dict(settings or {})
        self.clock = SystemClock()
        self.store = EmbeddedStore(MemoryPersistence(), self.clock, SystemRandom())
        self.running: dict[int, Runtime] = {}
        self.sessions: dict[int, LocalStore] = {}
        """The session that each broker opened last."""
        self.connections: list[Connection] = []

    async def __aenter__(self) -> Brokers:
        self.store.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self.connections:
            connection.close()
        for number in list(self.running):
            await self.stop(number, hand_over=False)
        await self.store.close()

    async def start(self, *numbers: int, **settings: object) -> None:
        for number in numbers:
            await self._start(number, settings)

    async def _start(self, number: int, settings: Mapping[str, object]) -> None:
        values = {
            "broker.id": number,
            "log.dirs": f"{self.folder}/{number}",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **self.settings,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

        async def connect() -> LocalStore:
            session = self.sessions[number] = await self.session(number)
            return session

        runtime = Runtime(
            BrokerConfig.from_mapping(values),
            connect,
            clock=self.clock,
            random=SystemRandom(),
            disk=SystemDisk(),
            network=SystemNetwork(),
        )
        await runtime.start()
        self.running[number] = runtime

    async def session(self, number: int) -> LocalStore:
        return await LocalStore.connect(self.store)

    async def stop(self, number: int, *, hand_over: bool = True) -> None:
        await self.running.pop(number).stop(hand_over=hand_over)

    async def connect(self, number: int) -> Connection:
        host, _, port = self.running[number].addresses[0].rpartition(":")
        connection = await Connection.connect(Address(host, int(port)))
        self.connections.append(connection)
        return connection

    @property
    def controller(self) -> int:
        (number,) = [number for number, runtime in self.running.items() if runtime._driver.is_controller]
        return number

    async def create(self, asked: int, topic: str, replicas: Sequence[Sequence[int]]) -> Any:
        """CreateTopics with an assignment, asked of a broker."""
        request = messages.CreateTopicsRequest
        connection = await self.connect(asked)
        response = await connection.request(
            request(
                topics=[
                    request.CreatableTopic(
                        name=topic,
                        num_partitions=-1,
                        replication_factor=-1,
                        assignments=[
                            request.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
                            for index, ids in enumerate(replicas)
                        ],
                    )
                ],
                timeout_ms=10_000,
            )
        )
        (result,) = response.topics
        return result


@contextlib.asynccontextmanager
async def brokers_of(folder: str, count: int, **settings: object) -> AsyncIterator[Brokers]:
    async with Brokers(folder, {name.replace("_", "."): value for name, value in settings.items()}) as brokers:
        await brokers.start(*range(count))
        yield brokers
