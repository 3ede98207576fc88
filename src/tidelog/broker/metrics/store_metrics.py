"""Metrics of the metadata store as this broker sees it: how long it takes, and what became of sessions."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tidelog.metadata.operations import ANY_VERSION, Operation
from tidelog.metrics.histogram import Histogram
from tidelog.store.client import Created, OperationResult, SessionState, Stat, StoreClient, Watch

if TYPE_CHECKING:
    from tidelog.metrics.page import Page

T = TypeVar("T")

_LISTENER: Final = "kafka_server_sessionexpirelistener_zookeeper"


class StoreTimes:
    """What is counted of all of a broker's sessions."""

    def __init__(self) -> None:
        self.latency = Histogram()
        self.states = dict.fromkeys(SessionState, 0)
        """How often a session came into each state."""

    def session(self, store: StoreClient) -> MeasuredStore:
        """The session, measured."""
        self.states[SessionState.CONNECTED] += 1
        store.add_listener(self._changed)
        return MeasuredStore(store, self.latency)

    def _changed(self, state: SessionState) -> None:
        self.states[state] += 1


class _Timed(Generic[T]):
    """An awaitable that notes how long it took, from the question to when its result is taken."""

    __slots__ = ("_awaited", "_began_ns", "_latency")

    def __init__(self, awaited: Awaitable[T], latency: Histogram) -> None:
        self._awaited = awaited
        self._latency = latency
        self._began_ns = time.monotonic_ns()

    def __await__(self) -> Generator[Any, None, T]:
        try:
            return (yield from self._awaited.__await__())
        finally:
            self._latency.observe((time.monotonic_ns() - self._began_ns) // 1000)


class MeasuredStore:
    """A session with the store, whose questions are timed; otherwise the session that it was given."""

    def __init__(self, store: StoreClient, latency: Histogram) -> None:
        self._store = store
        self._latency = latency

    @property
    def session_id(self) -> int:
        return self._store.session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._store.session_timeout_ms

    @property
    def state(self) -> SessionState:
        return self._store.state

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._store.add_listener(listener)

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[tuple[bytes | None, Stat]]:
        return _Timed(self._store.get(path, watch), self._latency)

    def exists(self, path: str, watch: Watch | None = None) -> Awaitable[Stat | None]:
        return _Timed(self._store.exists(path, watch), self._latency)

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[tuple[Sequence[str], Stat]]:
        return _Timed(self._store.children(path, watch), self._latency)

    def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> Awaitable[Created]:
        return _Timed(self._store.create(path, data, ephemeral=ephemeral, sequential=sequential), self._latency)

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Awaitable[Stat]:
        return _Timed(self._store.set(path, data, version), self._latency)

    def delete(self, path: str, version: int = ANY_VERSION) -> Awaitable[None]:
        return _Timed(self._store.delete(path, version), self._latency)

    def multi(self, operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
        return _Timed(self._store.multi(operations), self._latency)

    def sync(self) -> Awaitable[None]:
        return _Timed(self._store.sync(), self._latency)

    def close(self) -> Awaitable[None]:
        return self._store.close()


def collect_store(page: Page, times: StoreTimes) -> Iterator[None]:
    """By the names of Kafka with ZooKeeper, which Kafka 4 has no more."""
    latency = page.family(
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
        "summary",
        "Milliseconds that the metadata store took to answer.",
    )
    latency.add_summary(times.latency)
    for name, state, help in (
        ("syncconnects", SessionState.CONNECTED, "Times that a session with the metadata store was connected."),
        ("disconnects", SessionState.SUSPENDED, "Times that the connection to the metadata store was lost."),
        ("expires", SessionState.EXPIRED, "Sessions with the metadata store that have expired."),
    ):
        page.meter(f"{_LISTENER}{name}", help).add(times.states[state])
    yield
