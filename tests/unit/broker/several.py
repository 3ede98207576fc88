"""Several brokers in one loop, over loopback, around one embedded store in memory whose sessions a test can end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from tidelog.broker.runtime import Runtime
from tidelog.client.addresses import Address
from tidelog.client.connection import Connection
from tidelog.config.broker_config import BrokerConfig
from tidelog.metadata.operations import Operation
from tidelog.ports.real import SystemClock, SystemDisk, SystemNetwork, SystemRandom
from tidelog.protocol import messages
from tidelog.store.client import SessionState, Watch, WatchEvent
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import ConnectionLoss, SessionExpired, StoreError
from tidelog.store.local import LocalStore
from tidelog.store.persistence import MemoryPersistence

DEADLINE_S = 180.0


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, DEADLINE_S))


class FragileSession(LocalStore):
    """A session that a test suspends, resumes and expires, and whose answers it loses."""

    _missed: list[tuple[Watch, WatchEvent]]
    """What watches would have told without the break."""
    lost_answers = 0
    """How many of the next writes happen, but are answered with ConnectionLoss."""
    calls_left: int | None = None
    """The session is ended by the store after so many calls."""
    calls = 0

    def suspend(self) -> None:
        """The connection is gone: nothing arrives."""
        self._missed = []
        self._become(SessionState.SUSPENDED)

    def resume(self) -> None:
        """The connection is back; what watches have missed is told."""
        self._become(SessionState.CONNECTED)
        for watch, event in self._missed:
            watch(event)

    async def expire(self) -> None:
        """The store ends the session: its ephemeral nodes go, and whoever watches them is told."""
        self.suspend()
        await self._store.close_session(self.session_id)
        self._become(SessionState.EXPIRED)

    def _become(self, state: SessionState) -> None:
        self._state = state
        for listener in self._listeners:
            listener(state)

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[Any]:
        return self._guarded(lambda: super(FragileSession, self).get(path, self._fragile(watch)))

    def exists(self, path: str, watch: Watch | None = None) -> Awaitable[Any]:
        return self._guarded(lambda: super(FragileSession, self).exists(path, self._fragile(watch)))

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[Any]:
        return self._guarded(lambda: super(FragileSession, self).children(path, self._fragile(watch)))

    def multi(self, operations: Sequence[Operation]) -> Awaitable[Any]:
        return self._guarded(lambda: super(FragileSession, self).multi(operations), writes=True)

    def _write(self, operation: Operation) -> Awaitable[Any]:
        return self._guarded(lambda: super(FragileSession, self)._write(operation), writes=True)

    def _fragile(self, watch: Watch | None) -> Watch | None:
        def tell(event: WatchEvent) -> None:
            assert watch is not None
            if self._state is SessionState.CONNECTED:
                watch(event)
            elif self._state is SessionState.SUSPENDED:
                self._missed.append((watch, event))

        return None if watch is None else tell

    def _guarded(self, call: Callable[[], Awaitable[Any]], *, writes: bool = False) -> Awaitable[Any]:
        if self._state is SessionState.SUSPENDED:
            return _refused(ConnectionLoss())
        if self._state is SessionState.EXPIRED:
            return _refused(SessionExpired())
        if self.calls == self.calls_left:
            self._store.close_session(self.session_id)
            self._become(SessionState.EXPIRED)
            return _refused(SessionExpired())
        self.calls += 1
        outcome = call()
        if writes and self.lost_answers:
            self.lost_answers -= 1
            return asyncio.ensure_future(_lost(outcome))
        return outcome


async def _lost(outcome: Awaitable[Any]) -> None:
    await outcome
    raise ConnectionLoss


def _refused(error: StoreError) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


class Brokers:
    """`async with Brokers(folder) as brokers`: `await brokers.start(0)` and so on."""

    def __init__(self, folder: str, settings: Mapping[str, object] | None = None) -> None:
        self.folder = folder
        self.settings = dict(settings or {})
        self.clock = SystemClock()
        self.store = EmbeddedStore(MemoryPersistence(), self.clock, SystemRandom())
        self.running: dict[int, Runtime] = {}
        self.sessions: dict[int, FragileSession] = {}
        """The session that each broker opened last."""
        self.connections: list[Connection] = []
        self.store_away: asyncio.Event | None = None
        """No new session is opened before it is set."""
        self.lost_answers = 0
        """Of the first writes of the session that is opened next."""
        self.calls_left: int | None = None
        """Of the session that is opened next; it ends after them."""

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

        async def connect() -> FragileSession:
            if self.store_away is not None:
                await self.store_away.wait()
            session = await FragileSession.connect(self.store, 1_000)
            assert isinstance(session, FragileSession)
            session.lost_answers, self.lost_answers = self.lost_answers, 0
            session.calls_left, self.calls_left = self.calls_left, None
            self.sessions[number] = session
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

    async def stop(self, number: int, *, hand_over: bool = True) -> None:
        await self.running.pop(number).stop(hand_over=hand_over)

    async def kill_all(self) -> None:
        """As SIGKILL of every broker at once: none hears of another's end, nothing is handed over or closed."""
        for session in self.sessions.values():
            session.suspend()
        for number in list(self.running):
            await self.running.pop(number)._stop_parts(clean=False)

    async def connect(self, number: int) -> Connection:
        host, _, port = self.running[number].addresses[0].rpartition(":")
        connection = await Connection.connect(Address(host, int(port)))
        self.connections.append(connection)
        return connection

    @property
    def controller(self) -> int:
        """The broker that controls the cluster; -1 while none does."""
        controlling = [number for number, runtime in self.running.items() if runtime.node.controller.is_here]
        assert len(controlling) <= 1
        return controlling[0] if controlling else -1

    def leaders(self, seen_by: int, topic: str) -> list[int]:
        """[partition] -> leader, as a broker tells its clients."""
        known = self.running[seen_by].node.metadata.image.topics.get(topic)
        return [] if known is None else [image.leader for _, image in sorted(known.partitions.items())]

    async def create(
        self, asked: int, topic: str, replicas: Sequence[Sequence[int]], *, timeout_ms: int = 10_000
    ) -> Any:
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
                timeout_ms=timeout_ms,
            )
        )
        (result,) = response.topics
        return result


@contextlib.asynccontextmanager
async def brokers_of(folder: str, count: int, **settings: object) -> AsyncIterator[Brokers]:
    async with Brokers(folder, {name.replace("_", "."): value for name, value in settings.items()}) as brokers:
        await brokers.start(*range(count))
        yield brokers
