"""The part that sessions with a store inside this process have alike: `LocalStore`, and the simulator's.

Their properties, the listeners to their states, and single writes. A session over the network has none of it from here:
`ZooKeeperStore` takes its states from kazoo, and sends single writes as such.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tidelog.metadata.operations import ANY_VERSION, Create, Delete, Operation, SetData
from tidelog.store.client import Created, SessionState, Stat

OVER: Final = frozenset({SessionState.EXPIRED, SessionState.CLOSED})
"""States from which a session does not come back."""


class StoreSession(ABC):
    """Made to be derived from; nothing of it talks to a store."""

    def __init__(self, session_id: int, session_timeout_ms: int, state: SessionState) -> None:
        self._session_id = session_id
        self._session_timeout_ms = session_timeout_ms
        self._state = state
        self._listeners: list[Callable[[SessionState], None]] = []

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._session_timeout_ms

    @property
    def state(self) -> SessionState:
        return self._state

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> Awaitable[Created]:
        return self._write(Create(path, data, ephemeral, sequential))

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Awaitable[Stat]:
        return self._write(SetData(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> Awaitable[None]:
        return self._write(Delete(path, version))

    def sync(self) -> Awaitable[None]:
        """Nothing to be done where there is one server, which never shows anything older than it did before."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    @abstractmethod
    def _write(self, operation: Operation) -> Awaitable[Any]:
        """Carries out one operation; its result alone."""

    def _enter(self, state: SessionState) -> None:
        """Changes the state and tells the listeners."""
        self._state = state
        for listener in self._listeners:
            listener(state)
