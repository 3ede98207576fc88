"""The embedded store: the znode tree in one process, made durable, with its sessions.

    session A --+                         +--> Persistence (its own thread, one fsync for all that waits)
    session B --+--> Tree, in memory -----+
    session C --+                         +--> results and watch events, in order, once durable

A transaction changes the tree at once and joins the group that waits for the disk; while one group is being committed,
the next one gathers. Nothing that is not durable is ever seen from outside: results, reads and watch events queue
behind the commit of what they show. So a crash can forget only what no client was told.

A commit that fails is not retried: the tree is ahead of the disk, so the store fails as a whole, and requests that wait
get ConnectionLoss, as from a server that vanished.

A commit that finds no room is tried again until there is some, as if the disk were slow. Meanwhile writes wait, pings
are answered and sessions live, so that brokers serve what they lead; nodes that no waiting write touches are read; new
sessions are refused. A store that has not committed anything yet fails instead: then its start says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from tidelog.metadata.operations import Operation
from tidelog.ports.clock import Clock
from tidelog.ports.random import Random
from tidelog.store.client import OperationResult, Stat, Watch, WatchEvent
from tidelog.store.errors import ConnectionLoss, NoWatcher, SessionExpired, StoreClosed, StoreError
from tidelog.store.persistence import NoRoom, Persistence, PersistenceFailed
from tidelog.store.tree import NO_SESSION, Applied, Changes, LostWatches, SessionRecord, Tree, merge

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")

PASSWORD_SIZE: Final = 16
"""Bytes of a session's password."""
RETRY_S: Final = 1.0
"""Between two attempts to commit where there is no room."""
END_S_MAX: Final = 5.0
"""For how long a supervisor waits until the end of a dead process's session is durable."""
TURNS_TO_READ: Final = 4
"""Of the event loop, in which it reads what has arrived."""
_NO_PATH: Final = ""
"""Of what is read of no node."""


class Watcher(NamedTuple):
    """What is told of an event: a callback, as long as its session lives."""

    session_id: int
    callback: Watch


class EmbeddedStore:
    """The owner of a tree. All methods are called on one event loop; `start` before any other."""

    def __init__(
        self,
        persistence: Persistence,
        clock: Clock,
        random: Random,
        on_failure: Callable[[PersistenceFailed], None] | None = None,
    ) -> None:
        """`on_failure` is told once, when a commit failed and the store is therefore of no more use."""
        self._persistence = persistence
        self._clock = clock
        self._random = random
        self._on_failure = on_failure
        self._tree = Tree()
        self._gathered: list[Changes] = []
        self._durable_zxid = 0
        self._waiting: deque[_Outcome] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._closed: StoreError | None = StoreClosed(message="the store was not started")
        self._session_listeners: list[Callable[[int], None]] = []
        self._followed: dict[str, Callable[[], None]] = {}
        self._started = False
        self._has_committed = False
        self._no_room: set[str] | None = None
        """Nodes that writes have changed which wait for room on the disk; None while there is room."""
        self._closing = asyncio.Event()

    def start(self) -> None:
        """Loads the tree; may block. Sessions of this process's last life end, with their ephemeral nodes.

        Raises StoreCorrupt, StoreLocked, OSError.
        """
        self._tree = Tree(self._persistence.load())
        self._durable_zxid = self._tree.zxid
        self._closed = None
        self._started = True
        for session_id in [id for id, session in self._tree.sessions.items() if session.local]:
            self.close_session(session_id)

    @property
    def started(self) -> bool:
        """Whether `start` has loaded the tree."""
        return self._started

    @property
    def tree(self) -> Tree:
        """The tree, for reading: it may be ahead of the disk."""
        return self._tree

    @property
    def durable_zxid(self) -> int:
        """The last transaction that is on the disk."""
        return self._durable_zxid

    def add_session_listener(self, listener: Callable[[int], None]) -> None:
        """Calls `listener` with the id of each session that ends, when its end is durable."""
        self._session_listeners.append(listener)

    def follow(self, path: str, listener: Callable[[], None]) -> None:
        """Calls `listener` after each change of the node at `path`, when it is durable, before the writer is told.

        For the store's owner, which has no session.
        """
        self._followed[path] = listener

    def open_session(self, timeout_ms: int, *, local: bool) -> asyncio.Future[tuple[int, SessionRecord]]:
        """Begins a session: its id and record. A `local` one lives in this process and never times out."""
        if self._closed is not None:
            return self._refuse(self._closed)
        if self._no_room is not None:
            return self._refuse(ConnectionLoss(message="the store's disk is full"))
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._tree.sessions:
            # 56 bits: positive as a Java long.
            session_id = int.from_bytes(self._random.token(7), "big")
        record = SessionRecord(timeout_ms, self._random.token(PASSWORD_SIZE), local)
        self._gather(self._tree.open_session(session_id, record))
        return self._answer((session_id, record))

    def close_session(self, session_id: int) -> asyncio.Future[None]:
        """Ends a session and deletes its ephemeral nodes. SessionExpired when it is over already."""

        def end() -> None:
            self._tree.drop_watchers(lambda watcher: cast(Watcher, watcher).session_id == session_id)
            self._adopt(self._tree.close_session(session_id, self._clock.wall_ms()))
            self._waiting.append(_SessionEnd(self._tree.zxid, session_id, self._session_listeners))

        return self._attempt(end)

    async def end_sessions_of(self, path: str) -> None:
        """Ends the session that owns the ephemeral node `path`; does nothing where there is no such node.

        For a supervisor that knows that the owner is dead, and need not wait for the session's timeout.
        """
        # What a process sent before it died is in our sockets by now. It is read first: it may be this very node.
        for _ in range(TURNS_TO_READ):
            await asyncio.sleep(0)
        found = self._tree.exists(path) if self._closed is None else None
        if found is not None and found.ephemeral_owner != NO_SESSION:
            # Where there is no room on the disk, it ends when there is some.
            with contextlib.suppress(SessionExpired, asyncio.TimeoutError):
                await asyncio.wait_for(self.close_session(found.ephemeral_owner), END_S_MAX)

    def attach(self, session_id: int) -> asyncio.Future[tuple[int, SessionRecord]]:
        """A session's id and record, for a client that comes back to it. SessionExpired."""

        def attach() -> tuple[int, SessionRecord]:
            self._require(session_id)
            return session_id, self._tree.sessions[session_id]

        # Its client was told of it, so it is durable; an end that waits for room on the disk is not.
        return self._read(_NO_PATH, attach, in_order=session_id not in self._tree.sessions)

    def refuse(self, error: StoreError) -> asyncio.Future[Any]:
        """Fails with `error`, in the order of all other answers: for what was asked in vain."""
        return self._refuse(self._closed) if self._closed is not None else self._answer(error=error)

    def sync(self) -> asyncio.Future[None]:
        """Answered behind everything asked before, once that is durable."""
        return self._attempt(lambda: None)

    def transact(self, session_id: int, operations: Sequence[Operation]) -> asyncio.Future[list[OperationResult]]:
        """Carries out all operations or none; answered when durable."""

        def transact() -> list[OperationResult]:
            applied = self._tree.transact(session_id, operations, self._clock.wall_ms())
            self._adopt(applied)
            return applied.results

        return self._attempt(transact)

    def transact_one(self, session_id: int, operation: Operation) -> asyncio.Future[Any]:
        """As `transact` of one operation, answered with its result alone."""

        def transact() -> OperationResult:
            applied = self._tree.transact(session_id, [operation], self._clock.wall_ms())
            self._adopt(applied)
            return applied.results[0]

        return self._attempt(transact)

    def get(
        self, session_id: int, path: str, watch: Watch | None, *, in_order: bool = False
    ) -> asyncio.Future[tuple[bytes | None, Stat]]:
        """`in_order`, here and below: behind everything asked before, where there is no room on the disk, too."""

        def get() -> tuple[bytes | None, Stat]:
            self._require(session_id)
            found = self._tree.get(path)
            if watch is not None:
                self._tree.watch_data(path, Watcher(session_id, watch))
            return found

        return self._read(path, get, in_order=in_order)

    def exists(
        self, session_id: int, path: str, watch: Watch | None, *, in_order: bool = False
    ) -> asyncio.Future[Stat | None]:
        def exists() -> Stat | None:
            self._require(session_id)
            if watch is not None:
                self._tree.watch_data(path, Watcher(session_id, watch))
            return self._tree.exists(path)

        return self._read(path, exists, in_order=in_order)

    def children(
        self, session_id: int, path: str, watch: Watch | None, *, in_order: bool = False
    ) -> asyncio.Future[tuple[list[str], Stat]]:
        def children() -> tuple[list[str], Stat]:
            self._require(session_id)
            found = self._tree.children(path)
            if watch is not None:
                self._tree.watch_children(path, Watcher(session_id, watch))
            return found

        return self._read(path, children, in_order=in_order)

    def rearm(self, session_id: int, watch: Watch, lost: LostWatches) -> asyncio.Future[None]:
        """Sets watches again; what has happened since they were lost is told at once."""

        def rearm() -> None:
            self._require(session_id)
            watcher = Watcher(session_id, watch)
            for event in self._tree.rearm(watcher, lost):
                self._tell(_Notice(self._tree.zxid, watcher, event, self))

        return self._attempt(rearm)

    def forget_watches(self, session_id: int, watch: Watch) -> None:
        """Drops every watch whose callback is `watch`: its owner is not there any more."""
        gone = Watcher(session_id, watch)
        self._tree.drop_watchers(lambda watcher: watcher == gone)

    def remove_watches(
        self, session_id: int, watch: Watch, path: str, *, data: bool, child: bool, keep: bool = False
    ) -> asyncio.Future[None]:
        """Drops the watches on one node; with `keep`, only says whether there are any. NoWatcher."""

        def remove() -> None:
            self._require(session_id)
            if not self._tree.unwatch(path, Watcher(session_id, watch), data=data, child=child, keep=keep):
                raise NoWatcher(path)

        return self._attempt(remove)

    async def close(self) -> None:
        """Commits what is gathered, ends the local sessions and closes the files. Idempotent."""
        if self._closed is None:
            for session_id in [id for id, session in self._tree.sessions.items() if session.local]:
                self.close_session(session_id)
            self._closed = StoreClosed(message="the store is closed")
        self._closing.set()
        if self._committer is not None:
            await self._committer
        await self._persistence.close()

    def _require(self, session_id: int) -> None:
        if session_id not in self._tree.sessions:
            raise SessionExpired

    def _attempt(self, action: Callable[[], T]) -> asyncio.Future[T]:
        """Carries out `action` on the tree now, and answers with its outcome when what it saw is durable."""
        if self._closed is not None:
            return self._refuse(self._closed)
        try:
            return self._answer(action())
        except StoreError as error:
            return self._answer(error=error)

    def _read(self, path: str, action: Callable[[], T], *, in_order: bool) -> asyncio.Future[T]:
        """As `_attempt`; at once where there is no room, and what waits for it has not changed the node."""
        if self._closed is not None or self._no_room is None or path in self._no_room or in_order:
            return self._attempt(action)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(action())
        except StoreError as error:
            future.set_exception(error)
        return future

    def _adopt(self, applied: Applied) -> None:
        self._gather(applied.changes)
        for watcher, event in applied.events:
            self._waiting.append(_Notice(self._tree.zxid, cast(Watcher, watcher), event, self))
        for path in self._followed:
            if path in applied.changes.nodes:
                self._waiting.append(_Followed(self._tree.zxid, self._followed[path]))

    def _gather(self, changes: Changes) -> None:
        self._gathered.append(changes)
        if self._no_room is not None:
            self._no_room.update(changes.nodes)
        if self._committer is None:
            self._committer = asyncio.get_running_loop().create_task(self._commit())

    def _answer(self, value: Any = None, error: StoreError | None = None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._tell(_Answer(self._tree.zxid, future, value, error))
        return future

    def _tell(self, outcome: _Outcome) -> None:
        if self._waiting or self._durable_zxid < self._tree.zxid:
            self._waiting.append(outcome)
        else:
            outcome.deliver()

    def _refuse(self, error: StoreError) -> asyncio.Future[Any]:
        """Answers at once: nothing will ever be durable again."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(error)
        return future

    async def _commit(self) -> None:
        """Commits group after group until nothing is left to commit."""
        while self._gathered:
            group, self._gathered = merge(self._gathered), []
            try:
                group = await self._commit_when_there_is_room(group)
            except PersistenceFailed as failure:
                self._fail(failure)
                return
            except Exception as error:
                # Not foreseen, but the same to callers that wait: what they were promised will never be durable.
                unforeseen = PersistenceFailed(f"a commit ended with {error!r}")
                unforeseen.__cause__ = error
                self._fail(unforeseen)
                return
            self._durable_zxid = group.zxid
            while self._waiting and self._waiting[0].zxid <= self._durable_zxid:
                self._waiting.popleft().deliver()
        self._committer = None

    async def _commit_when_there_is_room(self, group: Changes) -> Changes:
        """Commits `group` and what gathers while there is no room; what was committed. PersistenceFailed."""
        attempts = 0
        while True:
            try:
                await self._persistence.commit(group)
            except NoRoom as error:
                if not self._has_committed or self._closing.is_set():
                    raise PersistenceFailed(str(error)) from error
                attempts += 1
                if self._no_room is None:
                    logger.error("store_full: error=%s: writes wait until there is room; brokers serve on", error)
                    self._no_room = set(group.nodes)
                    for changes in self._gathered:
                        self._no_room.update(changes.nodes)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), RETRY_S)
                gathered, self._gathered = self._gathered, []
                group = merge([group, *gathered])
            else:
                self._has_committed = True
                if self._no_room is not None:
                    logger.warning("store_has_room: attempts=%d zxid=%d", attempts, group.zxid)
                    self._no_room = None
                return group

    def _fail(self, failure: PersistenceFailed) -> None:
        self._closed = ConnectionLoss(message=str(failure))
        self._gathered.clear()
        while self._waiting:
            self._waiting.popleft().abandon(self._closed)
        if self._on_failure is not None and not (self._closing.is_set() and self._no_room is not None):
            self._on_failure(failure)


class _Outcome(Protocol):
    """Something to be told once the transaction `zxid` is durable."""

    zxid: int

    def deliver(self) -> None: ...

    def abandon(self, error: StoreError) -> None: ...


@dataclass(slots=True)
class _Answer:
    zxid: int
    future: asyncio.Future[Any]
    value: Any
    error: StoreError | None

    def deliver(self) -> None:
        # A caller that was cancelled does not wait any more.
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.value)

    def abandon(self, error: StoreError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True)
class _Notice:
    zxid: int
    watcher: Watcher
    event: WatchEvent
    store: EmbeddedStore

    def deliver(self) -> None:
        if self.watcher.session_id in self.store.tree.sessions:
            # Through the loop, as awaited results arrive too: the order holds, and a callback that raises harms none.
            asyncio.get_running_loop().call_soon(self.watcher.callback, self.event)

    def abandon(self, error: StoreError) -> None:
        """The change never happened, as far as clients know."""


@dataclass(slots=True)
class _Followed:
    zxid: int
    listener: Callable[[], None]

    def deliver(self) -> None:
        asyncio.get_running_loop().call_soon(self.listener)

    def abandon(self, error: StoreError) -> None:
        """The change never happened, as far as clients know."""


@dataclass(slots=True)
class _SessionEnd:
    zxid: int
    session_id: int
    listeners: Sequence[Callable[[int], None]]

    def deliver(self) -> None:
        for listener in self.listeners:
            asyncio.get_running_loop().call_soon(listener, self.session_id)

    def abandon(self, error: StoreError) -> None:
        """Its end has been told to no client."""
