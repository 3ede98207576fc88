"""The embedded store's server: ZooKeeper's protocol on an `EmbeddedStore`.

Broker processes reach the store of their cluster with it, by the same client that talks to a real ensemble; and so can
ZooKeeper's shell, kazoo's recipes and Kafka's old tools. There is one server, so what an ensemble would do among its
members is missing here: sync has nothing to wait for, and no client is read-only.

It owns the timeouts of sessions that came over the network. A session survives its connection until nothing was heard
from it for its timeout, and survives a restart of the server with a fresh one.

A store can be moved to another place while its cluster runs (`moving`). While the mover's node is there, everybody else
is cut off and time stands still for their sessions; it goes with the mover's connection. Once the store says that it
was moved, it is served no more: the address relays to the new place (`relay`), in this life and in all later ones.

What a server of ZooKeeper does and this one refuses: container nodes and nodes with a time to live, lasting watches
(addWatch), access lists other than world:anyone, quotas, reconfiguration.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from typing import TYPE_CHECKING, Final

from tidelog.ports.clock import Clock
from tidelog.ports.network import Listener, Network
from tidelog.store.connection import StoreConnection
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.errors import ConnectionLoss, SessionExpired, StoreError
from tidelog.store.jute import ConnectRequest
from tidelog.store.moving import MOVED, MOVING, moved_elsewhere, parse_servers
from tidelog.store.session_deadlines import SessionDeadlines
from tidelog.store.tree import NO_SESSION, SessionRecord

if TYPE_CHECKING:
    from tidelog.store.relay import Relay

logger: Final = logging.getLogger(__name__)

SESSION_TIMEOUT_MIN_MS: Final = 500
"""A shorter one would end by a pause of the client's interpreter."""
SESSION_TIMEOUT_MAX_MS: Final = 300_000
CONNECTIONS_MAX: Final = 1000
"""Where descriptors are not short."""
CONNECT_WAIT_MS: Final = 10_000
"""A connection that asks for no session meanwhile is closed."""
REFUSED_INTERVAL_MS: Final = 60_000
"""Between two lines in the log about connections that were refused."""
SILENT_MS_MIN: Final = 1_000
"""Such a connection may have to go earlier, after so long, where another one needs its place."""
VERSION: Final = "3.8.0"
"""Of ZooKeeper, whose protocol is served; tools ask for it."""


class StoreServer:
    """One listening address. The store is started before and closed after it, by its owner."""

    def __init__(self, store: EmbeddedStore, clock: Clock, connections_max: int | None = None) -> None:
        """`connections_max`: at one time, a file descriptor each; None: CONNECTIONS_MAX."""
        self._store = store
        self._connections_max = connections_max
        self._clock = clock
        self._listener: Listener | None = None
        self._connections: dict[StoreConnection, asyncio.TimerHandle | None] = {}
        """With what closes those that have no session yet."""
        self._by_session: dict[int, StoreConnection] = {}
        self._deadlines = SessionDeadlines()
        self._timer: asyncio.TimerHandle | None = None
        self._wake_ms = 0
        """When the timer wakes us, monotonic."""
        self._closed = False
        self._refused = 0
        """Connections since that was last told."""
        self._refused_told_ms: int | None = None
        self._network: Network | None = None
        self._mover = NO_SESSION
        """The session for which all others are cut off."""
        self._relay: Relay | None = None
        """To where the store is now."""
        store.add_session_listener(self._session_ended)
        store.follow(MOVING, self._moving_changed)
        store.follow(MOVED, self._moved)

    async def start(self, network: Network, host: str, port: int) -> tuple[str, int]:
        """Listens; returns the bound address. OSError when it is taken."""
        self._network = network
        self._moved()
        self._listener = await network.listen(self._connection, host, port)
        now_ms = self._clock.monotonic_ms()
        for session_id, record in self._store.tree.sessions.items():
            if not record.local:
                self._deadlines.add(session_id, record.timeout_ms, now_ms)
        self._schedule()
        return self._listener.address

    async def close(self) -> None:
        """Stops listening and closes all connections; sessions stay in the store. Idempotent."""
        self._closed = True
        if self._listener is not None:
            self._listener.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._relay is not None:
            await self._relay.close()
        for connection in list(self._connections):
            connection.close()

    def _connection(self) -> asyncio.BaseProtocol:
        if self._relay is not None:
            return self._relay.connection(self.report)
        return StoreConnection(self, self._store)

    # What connections ask.

    def admit(self, connection: StoreConnection) -> bool:
        """Whether one more connection is served."""
        if self._closed:
            return False
        connections_max = CONNECTIONS_MAX if self._connections_max is None else self._connections_max
        if len(self._connections) >= connections_max and not self._make_room():
            self._refused += 1
            now_ms = self._clock.monotonic_ms()
            if self._refused_told_ms is None or now_ms - self._refused_told_ms >= REFUSED_INTERVAL_MS:
                logger.warning(
                    "connection refused: open=%d peer=%s refused=%d",
                    connections_max,
                    connection.peer,
                    self._refused,
                )
                self._refused_told_ms, self._refused = now_ms, 0
            return False
        loop = asyncio.get_running_loop()
        self._connections[connection] = loop.call_later(CONNECT_WAIT_MS / 1000, connection.close)
        return True

    def _make_room(self) -> bool:
        """Closes the oldest connection that has asked for no session: a broker's asks at once, and must get in."""
        now = asyncio.get_running_loop().time()
        for connection, timer in self._connections.items():
            if timer is not None:
                if timer.when() - now > (CONNECT_WAIT_MS - SILENT_MS_MIN) / 1000:
                    return False
                self.lost(connection, None)
                connection.close()
                return True
        return False

    def establish(
        self, connection: StoreConnection, request: ConnectRequest
    ) -> asyncio.Future[tuple[int, SessionRecord]]:
        """A session for a connection: a new one or, proven by its password, the client's own; else SessionExpired."""
        store = self._store
        if self._relay is not None or (self._mover != NO_SESSION and request.session_id != self._mover):
            return store.refuse(ConnectionLoss(message="the store is being moved"))
        if request.last_zxid_seen > store.durable_zxid:
            # The store was replaced by an older one. Nothing the client knows need be true: it has to begin anew.
            logger.warning(
                "session refused: peer=%s session=%#x seen=%d store=%d: its client has seen later changes than this "
                "store has, which may have been restored from an older copy",
                connection.peer,
                request.session_id,
                request.last_zxid_seen,
                store.durable_zxid,
            )
            return store.refuse(SessionExpired())
        if request.session_id == 0:
            timeout_ms = min(max(request.timeout_ms, SESSION_TIMEOUT_MIN_MS), SESSION_TIMEOUT_MAX_MS)
            return store.open_session(timeout_ms, local=False)
        record = store.tree.sessions.get(request.session_id)
        if record is None or record.local or not hmac.compare_digest(record.password, request.password):
            return store.refuse(SessionExpired())
        former = self._by_session.get(request.session_id)
        if former is not None:
            # The client gave that connection up, whether or not the network has told.
            former.cut_off()
        self._deadlines.heard_from(request.session_id, self._clock.monotonic_ms())
        return store.attach(request.session_id)

    def keep(self, session_id: int, timeout_ms: int) -> None:
        """Watches over a session from now on."""
        if session_id not in self._deadlines:
            self._deadlines.add(session_id, timeout_ms, self._clock.monotonic_ms())
            self._schedule()

    def established(self, connection: StoreConnection, session_id: int) -> None:
        """`connection` has its session."""
        timer = self._connections.get(connection)
        if timer is not None:
            timer.cancel()
            self._connections[connection] = None
        self._by_session[session_id] = connection

    def heard_from(self, session_id: int) -> None:
        """Any bytes from a session's client keep it alive."""
        self._deadlines.heard_from(session_id, self._clock.monotonic_ms())

    def lost(self, connection: StoreConnection, session_id: int | None) -> None:
        """A connection is gone; its session stays until its time is over."""
        timer = self._connections.pop(connection, None)
        if timer is not None:
            timer.cancel()
        if session_id is not None and self._by_session.get(session_id) is connection:
            del self._by_session[session_id]
            if session_id == self._mover and self._relay is None and not self._closed:
                # A mover that died is not waited for: without its session everything is as it was.
                self._store.close_session(session_id).add_done_callback(_note)

    def report(self, word: bytes) -> str:
        """The answer to a four-letter word."""
        match word:
            case b"ruok":
                return "imok"
            case b"isro":
                return "rw"
            case b"envi":
                return f"Environment:\nzookeeper.version={VERSION}-tidelog\n"
            case b"srvr" | b"stat":
                return self._statistics(clients=word == b"stat")
        return f"{word.decode('latin-1')} is not executed because it is not in the whitelist.\n"

    def _statistics(self, *, clients: bool) -> str:
        lines = [f"Zookeeper version: {VERSION}-tidelog"]
        moved = moved_elsewhere(self._store.tree)
        if self._relay is not None and moved is not None:
            lines += [
                f"Moved to: {moved.connect}",
                f"Moved by: {moved.import_id}",
                f"Relay: {'open' if self._relay.is_open else 'waiting for the new place'}",
                *(f"Relayed: {peer}" for peer in self._relay.clients),
            ]
        if clients:
            lines.append("Clients:")
            lines += [
                f" /{each.peer}[1](queued={each.outstanding},recved={each.received},sent={each.sent})"
                for each in self._connections
            ]
            lines.append("")
        lines += [
            f"Received: {sum(each.received for each in self._connections)}",
            f"Sent: {sum(each.sent for each in self._connections)}",
            f"Connections: {len(self._connections)}",
            f"Sessions: {len(self._store.tree.sessions)}",
            f"Local sessions: {sum(record.local for record in self._store.tree.sessions.values())}",
            f"Outstanding: {sum(each.outstanding for each in self._connections)}",
            f"Zxid: {self._store.durable_zxid:#x}",
            f"Mode: {self._mode}",
            f"Node count: {self._store.tree.descendants('/') + 1}",
        ]
        return "\n".join(lines) + "\n"

    # A store that moves.

    @property
    def _mode(self) -> str:
        return "relay" if self._relay is not None else "standalone" if self._mover == NO_SESSION else "held by a mover"

    def _moving_changed(self) -> None:
        """The mover's node came or went."""
        if self._relay is not None or self._closed:
            return
        found = self._store.tree.exists(MOVING)
        if found is None or not found.ephemeral_owner:
            # A node that would outlive its mover holds nothing.
            if self._mover != NO_SESSION:
                logger.warning("the store was not moved, and is served as before")
                self._mover = NO_SESSION
                now_ms = self._clock.monotonic_ms()
                for session_id in self._store.tree.sessions:
                    self._deadlines.heard_from(session_id, now_ms)
        elif any(record.local for record in self._store.tree.sessions.values()):
            # A part that uses the store without a connection cannot be cut off, nor sent elsewhere.
            self._store.close_session(found.ephemeral_owner).add_done_callback(_note)
        else:
            logger.warning("store is being moved, only the mover is served: mover=%#x", found.ephemeral_owner)
            self._mover = found.ephemeral_owner
            for connection in list(self._connections):
                if connection.session_id != self._mover:
                    connection.close()

    def _moved(self) -> None:
        """The store says where it is now, if it is not here any more: from now on this address leads there."""
        moved = moved_elsewhere(self._store.tree)
        if moved is None or self._relay is not None or self._closed or self._network is None:
            return
        # Not above: few stores move.
        from tidelog.store.relay import Relay
        from tidelog.store.transfer import open_for_brokers

        logger.warning("store has moved, relaying: to=%s", moved.connect)
        self._relay = Relay(parse_servers(moved.connect), self._network, lambda: open_for_brokers(moved))
        self._relay.start()

    # Sessions that end.

    def _session_ended(self, session_id: int) -> None:
        self._deadlines.remove(session_id)
        connection = self._by_session.pop(session_id, None)
        if connection is not None:
            connection.session_ended()

    def _schedule(self) -> None:
        """Wakes up when the next session may be due."""
        next_ms = self.next_expiry_ms
        if next_ms is None or self._closed or self._relay is not None:
            return
        if self._timer is not None and self._wake_ms <= next_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wake_ms = next_ms
        wait_ms = max(0, next_ms - self._clock.monotonic_ms())
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self.expire)

    @property
    def next_expiry_ms(self) -> int | None:
        """When a session may be due, monotonic; None: none may."""
        return self._deadlines.next_ms

    def expire(self) -> None:
        """Ends the sessions whose time is over; called by the server's own timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._relay is not None:
            return
        now_ms = self._clock.monotonic_ms()
        for session_id in self._deadlines.due(now_ms):
            if self._mover not in (NO_SESSION, session_id):
                # It is cut off, and can say nothing. Or its end is on its way to the disk.
                record = self._store.tree.sessions.get(session_id)
                if record is not None:
                    self._deadlines.add(session_id, record.timeout_ms, now_ms)
                continue
            logger.info("session expired: session=%#x", session_id)
            self._store.close_session(session_id).add_done_callback(_note)
        self._schedule()


def _note(ended: asyncio.Future[None]) -> None:
    """A session that ended another way meanwhile, or with the store, needs no more."""
    error = ended.exception()
    if error is not None and not isinstance(error, StoreError):
        raise error
