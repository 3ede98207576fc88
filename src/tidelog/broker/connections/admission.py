"""Which connections may stay when there is no room for all.

    room left                    -> it stays
    none, another one is idle    -> it takes the place of one that asked nothing within its first second, else of
                                    the one idle longest, for five seconds at least
    none, by the brokers' door   -> it stays if its first request is a broker's; there are a few places for that
    none                         -> it is closed

Room is what `max.connections` allows and what the process has descriptors for. Kafka stops accepting when
`max.connections` is reached, but for its listener between brokers, where it closes the connection that was used least
recently (KIP-402). Here clients and brokers may share one listener, so each connection is accepted at once and then
served or closed; a client that is closed while it is idle connects again when it has something to ask.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.broker.descriptors import Descriptors
    from tidelog.broker.peer import Peer
    from tidelog.config.broker_config import BrokerConfig

logger: Final = logging.getLogger(__name__)

SILENT_MS_MIN: Final = 1_000
"""A connection that has not asked anything for so long after it came may have to go: it had time for its first request,
even from far away."""
IDLE_MS_MIN: Final = 5_000
"""One that did ask may have to go when it has been idle for so long. Were it less, more clients than there is room for
would push each other out all the time; so they are refused instead, and those that are served are served."""
LOOK_INTERVAL_MS: Final = 100
"""Between two looks at all connections for idle ones: each costs a millisecond for ten thousand of them."""
TOLD_INTERVAL_MS: Final = 60_000
"""Between two lines in the log about what was closed and refused."""
BROKER_CLIENT_ID: Final = b"broker-"
"""How the client id of a request between brokers begins: `peers.Peers`, and Kafka's own fetchers."""
_CLIENT_ID_OFFSET: Final = 14
"""Of its bytes in a frame: size, key, version, correlation id and the length of the client id come before it."""


def _is_address(host: str) -> bool:
    """Whether it is written as an address, and not as a host's name."""
    return ":" in host or host.replace(".", "").isdecimal()


class Admissible(Protocol):
    """What is counted, and may have to go."""

    peer: Peer
    active_ms: int
    """When the last bytes came in or went out, monotonic."""
    has_asked: bool
    provisional: bool
    """Whether it is in one of the brokers' places, and has not shown that it is a broker's."""

    @property
    def is_idle(self) -> bool: ...

    def make_way(self) -> None:
        """Closes for another one, and is dismissed."""
        ...


C = TypeVar("C", bound=Admissible)


class Admission(Generic[C]):
    """The connections of one broker, counted; oldest first."""

    def __init__(
        self, config: BrokerConfig, monotonic_ms: Callable[[], int], descriptors: Descriptors | None = None
    ) -> None:
        """`descriptors`: what this broker may take; None bounds nothing but what the settings say."""
        self._config = config
        self._monotonic_ms = monotonic_ms
        self._descriptors = descriptors
        self.connections: dict[C, None] = {}
        """A set's order would differ from run to run, and a simulation could not be replayed."""
        self._by_address: dict[str, int] = {}
        self._duplicates = 0
        """Sockets that are open twice, so that files can be sent: each takes a descriptor more."""
        self._provisional: dict[C, None] = {}
        """Those in the brokers' places that have not shown yet that they are a broker's."""
        self._idle: deque[tuple[C, int]] = deque()
        """Connections that were idle at the last look, with when they were last active; idle longest first."""
        self._looked_ms = -LOOK_INTERVAL_MS
        self._told_ms: int | None = None
        self._closed = 0
        self._refused = 0
        self._addresses: dict[str, tuple[str, ...]] = {}
        """[host] -> its addresses, of those hosts of `max.connections.per.ip.overrides` that were looked up."""
        self.configure()

    def configure(self) -> None:
        """Takes over what settings say now."""
        config = self._config
        descriptors = self._descriptors
        self.connections_max = config.max_connections
        if descriptors is not None:
            self.connections_max = min(self.connections_max, descriptors.connections)
        self.connections_per_ip_max = config.max_connections_per_ip
        self._counts_by_host = config.max_connections_per_ip_overrides
        self._count_by_address()
        self._broker_listener = config.inter_broker_listener_name
        self._one_listener = len(config.listeners) == 1

    def hosts_to_look_up(self) -> list[str]:
        """Hosts with limits of their own whose addresses are not known. Connections know of addresses only."""
        return [host for host in self._counts_by_host if host not in self._addresses and not _is_address(host)]

    def hosts_looked_up(self, found: Mapping[str, tuple[str, ...]]) -> None:
        """The addresses of hosts are known from now on."""
        self._addresses.update(found)
        self._count_by_address()

    def _count_by_address(self) -> None:
        self._per_ip_overrides = {
            address: count
            for host, count in self._counts_by_host.items()
            for address in self._addresses.get(host, (host,))
        }

    @property
    def taken(self) -> int:
        """Descriptors of connections."""
        return len(self.connections) + self._duplicates

    # Coming and going.

    def admit(self, connection: C, address: str) -> str | None:
        """Counts a new connection; the reason when it may not stay."""
        count = self._by_address.get(address, 0)
        count_max = self._per_ip_overrides.get(address, self.connections_per_ip_max)
        if count >= count_max:
            return self._refuse(f"max.connections.per.ip={count_max} is reached by {address}")
        if self.taken >= self.connections_max and not self._make_room(connection):
            return self._refuse(self._limit)
        self._by_address[address] = self._by_address.get(address, 0) + 1
        self.connections[connection] = None
        return None

    def dismiss(self, connection: C, address: str) -> None:
        """A connection that was admitted is gone."""
        self.connections.pop(connection, None)
        self._provisional.pop(connection, None)
        count = self._by_address.get(address, 0) - 1
        if count > 0:
            self._by_address[address] = count
        else:
            self._by_address.pop(address, None)

    def take_duplicate(self) -> bool:
        """Counts a second descriptor for a connection's socket; false when there is none left for that."""
        if self.taken >= self.connections_max and self._descriptors is not None:
            return False
        self._duplicates += 1
        return True

    def give_back_duplicate(self) -> None:
        """A second descriptor was closed."""
        self._duplicates -= 1

    # When there is no room.

    def _make_room(self, newcomer: C) -> bool:
        """Whether `newcomer` may stay: in the place of one that is idle, or in one of the brokers' places."""
        victim = self._longest_idle()
        if victim is None and newcomer.peer.listener == self._broker_listener and self._descriptors is not None:
            if self.taken >= self.connections_max + self._descriptors.brokers:
                # One that came before and has not asked anything yet. Were none closed, silent ones could fill the
                # brokers' places; a broker's asks at once.
                victim = next(iter(self._provisional), None)
                if victim is None:
                    return False
            self._provisional[newcomer] = None
            newcomer.provisional = True
        elif victim is None:
            return False
        if victim is not None:
            victim.make_way()
            self._closed += 1
            self._tell(self._limit)
        return True

    def _longest_idle(self) -> C | None:
        now_ms = self._monotonic_ms()
        if now_ms - self._looked_ms >= LOOK_INTERVAL_MS:
            self._looked_ms = now_ms
            self._idle = deque(self._look(now_ms))
        while self._idle:
            connection, active_ms = self._idle.popleft()
            if connection in self.connections and connection.active_ms == active_ms and connection.is_idle:
                return connection
        return None

    def _look(self, now_ms: int) -> list[tuple[C, int]]:
        found = [
            (connection, connection.active_ms)
            for connection in self.connections
            if connection.is_idle
            and now_ms - connection.active_ms >= (IDLE_MS_MIN if connection.has_asked else SILENT_MS_MIN)
            and not self._is_between_brokers(connection)
        ]
        # Those that never asked anything before those that did: nothing says that a client is behind them.
        return sorted(found, key=lambda each: (each[0].has_asked, each[1]))

    def _is_between_brokers(self, connection: C) -> bool:
        if connection.peer.listener != self._broker_listener:
            return False
        return not self._one_listener or connection.peer.raw_client_id.startswith(BROKER_CLIENT_ID)

    def prove(self, connection: C, first: memoryview) -> bool:
        """Whether the first bytes of a connection in the brokers' places are a broker's: then it may stay."""
        client_id = bytes(first[_CLIENT_ID_OFFSET : _CLIENT_ID_OFFSET + len(BROKER_CLIENT_ID)])
        if self._one_listener and client_id != BROKER_CLIENT_ID:
            self._refuse(self._limit)
            return False
        self._provisional.pop(connection, None)
        return True

    @property
    def _limit(self) -> str:
        if self.connections_max == self._config.max_connections:
            return f"max.connections={self.connections_max} is reached"
        return f"descriptors are there for {self.connections_max} connections"

    def _refuse(self, reason: str) -> str:
        self._refused += 1
        self._tell(reason)
        return reason

    def _tell(self, reason: str) -> None:
        """Says that connections had to be closed or refused: at once, and then once in a while how many."""
        now_ms = self._monotonic_ms()
        if self._told_ms is not None and now_ms - self._told_ms < TOLD_INTERVAL_MS:
            return
        self._told_ms = now_ms
        logger.warning(
            "connections_full: open=%d max=%d closed_idle=%d refused=%d reason=%r",
            len(self.connections),
            self.connections_max,
            self._closed,
            self._refused,
            reason,
        )
        self._closed = self._refused = 0
