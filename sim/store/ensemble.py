"""Servers of an ensemble, as ZooKeeper's: each with a copy of the tree of its own, which may be behind.

    broker -- session --> EnsembleServer --writes--> StoreService (what a quorum has agreed on)
                              tree       <--entries--

Reads and watches are the server's own tree's, so they may show the past; but a session never goes back: its writes are
answered when its server has carried them out too, a read waits for the writes before it, and a server that has not seen
what a session was told lets it in nowhere. `sync` waits for all that was agreed on when it was asked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.store.client import WatchEvent
from tidelog.store.errors import StoreError
from tidelog.store.tree import Applied, LostWatches, Snapshot, Tree

if TYPE_CHECKING:
    from sim.store.protocol import AnsweringConnection
    from sim.world.randomness import SeededRandom

DELAY_S: Final = (0.0002, 0.01)
"""Until a server has carried out what was agreed on."""
READS: Final = frozenset({"get", "exists", "children"})


class Entry(NamedTuple):
    """A transaction that was agreed on."""

    zxid: int
    apply: Callable[[Tree], Applied | None]
    """Does the same to every copy of the tree; None where no client can have watched for it."""


class _Request(NamedTuple):
    """Asked over a connection, in its turn."""

    xid: int
    method: str
    arguments: tuple[Any, ...]
    watched: bool
    outcome: asyncio.Future[Any] | None
    """Of what the quorum decides; None for a read."""
    zxid: int
    """Up to which this server must have come before it answers."""


class EnsembleServer:
    """See the module."""

    def __init__(self, name: str, snapshot: Snapshot, random: SeededRandom) -> None:
        self.name = name
        self.is_open = True
        """Whether it takes connections."""
        self.is_held = False
        """Carries out nothing, and serves what it has."""
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._tree = Tree(snapshot)
        self._entries: deque[tuple[float, Entry]] = deque()
        """[(when they are due, agreed on and not yet carried out here)]"""
        self._requests: dict[AnsweringConnection, deque[_Request]] = {}
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        """[(zxid, what to do then)]"""

    @property
    def zxid(self) -> int:
        """How far it has come."""
        return self._tree.zxid

    # What was agreed on.

    def learn(self, entry: Entry) -> None:
        """Carries it out, a moment later."""
        due = self._loop.time() + self._random.between(*DELAY_S)
        if self._entries:
            due = max(due, self._entries[-1][0])
        self._entries.append((due, entry))
        self._loop.call_at(due, self._carry_on)

    def hold(self) -> None:
        """Falls behind, until `release`."""
        self.is_held = True

    def release(self) -> None:
        """Catches up."""
        self.is_held = False
        self._carry_on()

    def close(self) -> None:
        """Breaks its connections and takes no others, until `reopen`."""
        self.is_open = False
        for connection in list(self._requests):
            connection.abort()

    def reopen(self) -> None:
        self.is_open = True

    def after(self, zxid: int, action: Callable[[], None]) -> None:
        """Does something when it has come that far."""
        self._waiting.append((zxid, action))
        self._answer()

    def _carry_on(self) -> None:
        """Carries out what is due."""
        while not self.is_held and self._entries and self._entries[0][0] <= self._loop.time():
            _, entry = self._entries.popleft()
            applied = entry.apply(self._tree)
            assert self._tree.zxid == entry.zxid
            if applied is not None:
                for watcher, event in applied.events:
                    _tell(watcher, event)
            self._answer()

    # Connections.

    def attached(self, connection: AnsweringConnection, lost: LostWatches) -> None:
        """A session goes on here, with the watches that it had elsewhere."""
        self._requests[connection] = deque()
        for event in self._tree.rearm(connection, lost):
            _tell(connection, event)

    def left(self, connection: AnsweringConnection) -> None:
        """A connection is over, and its watches with it."""
        self._requests.pop(connection, None)
        self._tree.drop_watchers(lambda watcher: watcher is connection)

    def request(
        self, connection: AnsweringConnection, message: Any, outcome: asyncio.Future[Any] | None, agreed_zxid: int
    ) -> None:
        """Something is asked over a connection: the quorum's `outcome`, None for a read.

        `agreed_zxid` is how far the quorum has come with it.
        """
        xid, method, arguments, watched = message
        if outcome is not None:
            outcome.add_done_callback(lambda _: self._answer())
        zxid = 0 if outcome is None else agreed_zxid
        self._requests[connection].append(_Request(xid, method, arguments, watched, outcome, zxid))
        self._answer()

    def _answer(self) -> None:
        """Whatever can be answered now, each connection in its order."""
        while self._waiting and self._waiting[0][0] <= self._tree.zxid:
            self._waiting.popleft()[1]()
        for connection, requests in list(self._requests.items()):
            while requests:
                asked = requests[0]
                if asked.outcome is not None and not (asked.outcome.done() and asked.zxid <= self._tree.zxid):
                    break
                requests.popleft()
                if asked.outcome is not None:
                    connection.answer(asked.xid, asked.outcome, self._tree.zxid)
                else:
                    connection.answer(asked.xid, self._read(connection, asked), self._tree.zxid)

    def _read(self, connection: AnsweringConnection, asked: _Request) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = self._loop.create_future()
        (path,) = asked.arguments
        try:
            found: Any = getattr(self._tree, asked.method)(path)
        except StoreError as error:
            done.set_exception(error)
            return done
        if asked.watched:
            (self._tree.watch_children if asked.method == "children" else self._tree.watch_data)(path, connection)
        done.set_result(found)
        return done


def _tell(watcher: Any, event: WatchEvent) -> None:
    """`watcher` is a connection."""
    watcher.send("event", event)
