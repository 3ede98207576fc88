"""The connections of one broker: what they share, and which of them may stay. `connection` is about one of them.

All connections read into one buffer, since a read and its `buffer_updated` are never interleaved with another's.

**Bounds.** Bytes of large frames are reserved first (`budget`). A turn of the loop handles at most `FRAMES_PER_TURN`
requests of a connection, and few once it has become long. A connection is closed that is idle too long, that takes too
long to authenticate, that leaves the most answers unread when memory for them is used up, or that sends a large
frame slowly, or has it wait behind an earlier request, while other frames wait for memory.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Final, cast

from tidelog.broker.client_quotas import client_quotas
from tidelog.broker.connections.admission import Admission
from tidelog.broker.connections.budget import ByteBudget
from tidelog.broker.connections.connection import AUTHENTICATION_MS_MAX, Connection
from tidelog.broker.connections.connection_rates import ConnectionRates
from tidelog.broker.connections.writable_sockets import WritableSockets
from tidelog.config.listener_security import SASL_PROTOCOLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.broker.connections.authentication import Authentication, Gate
    from tidelog.broker.connections.tls import ListenerTls
    from tidelog.broker.descriptors import Descriptors
    from tidelog.broker.requests.dispatch import Dispatcher
    from tidelog.broker.shell import Shell, Timer
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.ports.clock import Clock
    from tidelog.security.authorizer import Authorizer

RECEIVE_BUFFER_SIZE: Final = 128 << 10
"""Bytes that one read takes at most, outside of large frames."""
FRAMES_PER_TURN: Final = 64
"""Requests of one connection handled before the others have their turn: about 2 ms."""
FRAMES_OF_ALL: Final = 256
"""Requests of all connections in one turn of the loop, about 6 ms, beyond which each further one gets little."""
TURN_MS: Final = 5
"""Time of one turn of the loop after which the same holds, since some requests take longer than others."""
FRAMES_WHEN_BUSY: Final = 1
UNREAD_BYTES_MAX: Final = 64 << 20
"""Bytes of unread answers in all stalled transports together; beyond it the largest is closed."""
HELD_MAX: Final = 1_000
"""Connections over a rate that wait to be reset; further ones are reset at once."""
_OVER_ITS_RATE: Final = "its address or its listener is over the rate of new connections"

logger: Final = logging.getLogger(__name__)


def _addresses_of(hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """[host] -> its addresses, of those that can be looked up. It may take seconds."""
    found = {}
    for host in hosts:
        try:
            entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            logger.warning(
                "host not looked up: setting=max.connections.per.ip.overrides host=%s reason=%s", host, error
            )
        else:
            found[host] = tuple(dict.fromkeys(str(address[0]) for *_, address in entries))
    return found


class Server:
    """What the connections of one broker share."""

    __slots__ = (
        "_config",
        "_connection_ids",
        "_frames",
        "_held",
        "_sasl_listeners",
        "_stall_check",
        "_sweep",
        "_turn_started_ms",
        "_unread",
        "accepted",
        "admission",
        "authentication",
        "authorizer",
        "budget",
        "buffer",
        "connections",
        "dispatcher",
        "idle_ms_max",
        "listeners",
        "monotonic_ms",
        "quotas",
        "rates",
        "request_bytes_max",
        "send_buffer_bytes",
        "serving",
        "shell",
        "sockets",
        "stopping",
        "tls",
        "view",
    )

    dispatcher: Dispatcher

    def __init__(
        self, config: BrokerConfig, clock: Clock, shell: Shell, descriptors: Descriptors | None = None
    ) -> None:
        """`descriptors` bounds the connections; None: only the settings do."""
        self._config = config
        self.shell = shell
        self.monotonic_ms = clock.monotonic_ms
        self.request_bytes_max = config.socket_request_max_bytes
        self.send_buffer_bytes = config.socket_send_buffer_bytes
        self.admission: Admission[Connection] = Admission(config, clock.monotonic_ms, descriptors)
        self.sockets = WritableSockets()
        self.quotas = client_quotas(config)
        """Client quotas of the cluster: of requests, and of new connections."""
        self.rates = ConnectionRates(config, self.quotas)
        self._held: set[Connection] = set()
        """Connections that are about to be reset."""
        self.connections = self.admission.connections
        self.serving = False
        self.configure()
        self.budget = ByteBudget(self.request_bytes_max, cast(int, config.get("queued.max.request.bytes")), shell.soon)
        self.buffer = bytearray(RECEIVE_BUFFER_SIZE)
        self.view = memoryview(self.buffer)
        self._connection_ids = 0
        self._unread: dict[Connection, int] = {}
        self._frames = 0
        """Requests handled in this turn of the loop, all connections together."""
        self._turn_started_ms = 0
        self.listeners = tuple(listener.name for listener in config.listeners)
        self.accepted = dict.fromkeys(self.listeners, 0)
        """[listener] -> connections that came, ever."""
        self.authentication: Authentication | None = None
        """For connections by SASL listeners; None where there are none."""
        self._sasl_listeners = frozenset(
            listener.name for listener in config.listeners if listener.security_protocol in SASL_PROTOCOLS
        )
        self.authorizer: Authorizer | None = None
        self.tls: Mapping[str, ListenerTls] = {}
        """[listener] -> its TLS, of those that have it."""
        self._sweep: Timer | None = None
        self._stall_check: Timer | None = None
        self.stopping = False

    def configure(self) -> None:
        """Takes over what settings say now."""
        self.idle_ms_max = self._config.connections_max_idle_ms
        self.admission.configure()
        self.rates.configure()
        if self.serving:
            self._look_up_hosts()

    def _look_up_hosts(self) -> None:
        """Has an I/O thread look up the hosts that settings name instead of addresses: each once, as in Kafka."""
        hosts = self.admission.hosts_to_look_up()
        if hosts:
            self.shell.in_pool(lambda: _addresses_of(hosts)).on_complete(
                lambda found: self.admission.hosts_looked_up(found.result())
            )

    def start(self, dispatcher: Dispatcher) -> None:
        """Begins to serve, first the clients that have connected already."""
        self.dispatcher = dispatcher
        self.serving = True
        self._look_up_hosts()
        for connection in self.connections:
            connection.begin()
        self._sweep_later()

    def _sweep_later(self) -> None:
        """Looks for idle connections twice in the time that they may be idle, at most once a second.

        By SASL listeners also, and oftener, for those that take too long to authenticate.
        """
        intervals = []
        if self.idle_ms_max > 0:
            intervals.append(min(max(self.idle_ms_max // 2, 1_000), 60_000))
        if self._sasl_listeners:
            intervals.append(AUTHENTICATION_MS_MAX // 6)
        if intervals:
            self._sweep = self.shell.after(min(intervals), self._close_idle)

    def stop(self) -> None:
        """Closes every connection after what it has already been given to send."""
        self.stopping = True
        for timer in (self._sweep, self._stall_check):
            if timer is not None:
                timer.cancel()
        for connection in list(self.connections):
            connection.close("the broker stops")

    def connection(self, listener: str) -> Connection:
        """A protocol for a connection that came in by `listener`."""
        self._connection_ids += 1
        self.accepted[listener] = self.accepted.get(listener, 0) + 1
        return Connection(self, listener, self._connection_ids)

    def gate(self, connection: Connection) -> Gate | None:
        """What a new connection has to pass before its requests are handled; None by a listener without SASL.

        RuntimeError where there is no authentication.
        """
        if connection.peer.listener not in self._sasl_listeners:
            return None
        if self.authentication is None:
            raise RuntimeError("A SASL listener is bound without an authentication gate.")
        return self.authentication.gate(
            connection.peer,
            lambda: self.dispatcher,
            self.shell.after,
            lambda: connection.close("authentication failed", quiet=True),
        )

    def admit(self, connection: Connection, address: str) -> str | None:
        """Counts a new connection; the reason when it may not stay."""
        if self.stopping:
            return "the broker stops"
        return self.admission.admit(connection, address)

    def hold(self, connection: Connection, milliseconds: int) -> None:
        """Resets a connection that is too many for a rate, after its throttle; at once where many are held."""
        if len(self._held) >= HELD_MAX:
            connection.reset(_OVER_ITS_RATE)
            return

        def release() -> None:
            self._held.discard(connection)
            connection.reset(_OVER_ITS_RATE)

        self._held.add(connection)
        self.shell.after(milliseconds, release)

    def dismiss(self, connection: Connection, address: str) -> None:
        """A connection that was admitted is gone."""
        self.admission.dismiss(connection, address)
        self._unread.pop(connection, None)

    def frames_now(self) -> int:
        """How many requests a connection may have handled now; few, once the loop's turn has become long."""
        if not self._frames:
            self._turn_started_ms = self.monotonic_ms()
            return FRAMES_PER_TURN
        late = self._frames >= FRAMES_OF_ALL or self.monotonic_ms() - self._turn_started_ms >= TURN_MS
        return FRAMES_WHEN_BUSY if late else FRAMES_PER_TURN

    def frames_handled(self, count: int) -> None:
        """Counts requests; the loop's next turn begins at zero."""
        if not self._frames:
            self.shell.soon(self._next_turn)
        self._frames += count or 1

    def _next_turn(self) -> None:
        self._frames = 0

    def unread(self, connection: Connection, size: int) -> None:
        """A connection's client leaves `size` bytes of answers unread; 0: it has caught up."""
        if not size:
            self._unread.pop(connection, None)
            return
        self._unread[connection] = size
        while sum(self._unread.values()) > UNREAD_BYTES_MAX:
            largest = max(self._unread, key=self._unread.__getitem__)
            del self._unread[largest]
            largest.close("it does not read its answers, and memory for them is used up", abort=True)

    def schedule_stall_check(self) -> None:
        """A connection waits for memory: those that hold some are watched once a second, as long as that lasts."""
        if self._stall_check is None:
            self._stall_check = self.shell.after(1_000, self._close_stalled)

    def _close_stalled(self) -> None:
        self._stall_check = None
        if not self.budget.crowded:
            return
        now_ms = self.monotonic_ms()
        for connection in list(self.connections):
            reason = connection.stalled(now_ms)
            if reason is not None:
                connection.close(reason, abort=True)
        self.schedule_stall_check()

    def _close_idle(self) -> None:
        now_ms = self.monotonic_ms()
        self.budget.trim()
        for connection in list(self.connections):
            if connection.is_overdue(now_ms):
                connection.close(f"not authenticated after {AUTHENTICATION_MS_MAX} ms", abort=True)
            if 0 < self.idle_ms_max <= now_ms - connection.active_ms:
                connection.close(f"idle for connections.max.idle.ms={self.idle_ms_max}", quiet=True, abort=True)
        self._sweep_later()
