"""A session with an embedded store in the same process: `StoreClient` without a network.

The session cannot be lost while the process lives, so its timeout is never looked at; it ends with `close`, with the
process, or with the store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from tidelog.metadata.operations import Operation
from tidelog.store.client import OperationResult, SessionState, Stat, Watch
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import StoreError
from tidelog.store.session import StoreSession

CLOSE_S_MAX: Final = 5.0
"""How long the end of a session waits to be durable."""
DEFAULT_SESSION_TIMEOUT_MS = 18_000
"""zookeeper.session.timeout.ms."""


class LocalStore(StoreSession):
    """A `StoreClient`; made by `LocalStore.connect`."""

    def __init__(self, store: EmbeddedStore, session_id: int, session_timeout_ms: int) -> None:
        super().__init__(session_id, session_timeout_ms, SessionState.CONNECTED)
        self._store = store

    @classmethod
    async def connect(cls, store: EmbeddedStore, session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS) -> LocalStore:
        """Opens a session with a started store."""
        session_id, record = await store.open_session(session_timeout_ms, local=True)
        return cls(store, session_id, record.timeout_ms)

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[tuple[bytes | None, Stat]]:
        return self._store.get(self._session_id, path, watch)

    def exists(self, path: str, watch: Watch | None = None) -> Awaitable[Stat | None]:
        return self._store.exists(self._session_id, path, watch)

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[tuple[Sequence[str], Stat]]:
        return self._store.children(self._session_id, path, watch)

    def multi(self, operations: Sequence[Operation]) -> Awaitable[Sequence[OperationResult]]:
        return self._store.transact(self._session_id, operations)

    async def close(self) -> None:
        if self._state is SessionState.CLOSED:
            return
        self._state = SessionState.CLOSED
        # It is over already when the store was closed first, or failed. While there is no room on the disk it ends with
        # the process.
        with contextlib.suppress(StoreError, asyncio.TimeoutError):
            await asyncio.wait_for(self._store.close_session(self._session_id), CLOSE_S_MAX)
        self._enter(SessionState.CLOSED)

    def _write(self, operation: Operation) -> Awaitable[Any]:
        return self._store.transact_one(self._session_id, operation)
