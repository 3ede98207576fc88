"""How fast new connections are taken: by address (KIP-612), by listener, and in all.

    over an address's connection_creation_rate     it is not read, and closed after the throttle, a second at most
    over max.connection.creation.rate              it is served once the rate allows it; those behind it wait too
    ... and its turn would be long in coming       it is not counted, and closed after a second

Kafka does not accept a connection that the listener's rate does not allow yet; here it is accepted and not read, which
is the same to its client. With TLS, its handshake waits too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from tidelog.quotas.client_quotas import ClientQuotas
from tidelog.quotas.rates import MS, SampledRate

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig

logger: Final = logging.getLogger(__name__)

_RATE: Final = "max.connection.creation.rate"
UNLIMITED: Final = (1 << 31) - 1
"""The setting's default."""
WAIT_MS_MAX: Final = 5_000
"""A connection whose turn would come later is closed instead. Its client would have given up by then (brokers give up
after ten seconds) and connected anew, and the turns of the connections that it gave up would delay all that wait."""
ADDRESSES_MAX: Final = 10_000
"""Addresses whose connections are counted; then those that are quiet make room."""
TOLD_INTERVAL_MS: Final = 60_000
"""Between two lines in the log about connections over a rate."""


class Held(NamedTuple):
    """What becomes of a new connection."""

    milliseconds: int
    """For which nothing is read from it."""
    is_refused: bool
    """Whether it is closed then."""


FREE: Final = Held(0, False)


class ConnectionRates:
    """The rates of one broker."""

    def __init__(self, config: BrokerConfig, quotas: ClientQuotas) -> None:
        self._config = config
        self._quotas = quotas
        self._by_address: dict[str, SampledRate] = {}
        self._by_listener: dict[str, SampledRate] = {}
        self._in_all: SampledRate | None = None
        self._next_ms: dict[str, int] = {}
        """[listener] -> when the next connection may be served."""
        self._told_ms: int | None = None
        self.configure()

    def configure(self) -> None:
        """Takes over what settings say now."""
        config = self._config
        names = [listener.name for listener in config.listeners]
        own = {name: cast(int, config.of_listener(name, _RATE)) for name in names}
        self._bound_in_all = cast(int, config.get(_RATE))
        self._bounds = {name: bound for name, bound in own.items() if bound < UNLIMITED and bound != self._bound_in_all}
        # Other brokers are not kept waiting by clients, as long as they have a listener of their own.
        self._free_listener = config.inter_broker_listener_name if len(names) > 1 else None

    def came(self, listener: str, address: str, now_ms: int) -> Held:
        """Counts a new connection."""
        # Before the listener: what is refused here takes no turn of others.
        refused_ms = self._refused_ms(address, now_ms) if self._quotas.limits_addresses else 0
        if refused_ms:
            return Held(refused_ms, True)
        if not self._bounds and self._bound_in_all >= UNLIMITED:
            return FREE
        if self._next_ms.get(listener, 0) - now_ms >= WAIT_MS_MAX:
            self._tell(now_ms, "connections_throttled: listener=%s wait_ms_max=%d", listener, WAIT_MS_MAX)
            return Held(self._quotas.window.sample_ms, True)
        wait_ms = self._wait_ms(listener, now_ms)
        return Held(wait_ms, False) if wait_ms else FREE

    def _refused_ms(self, address: str, now_ms: int) -> int:
        bound = self._quotas.connections_per_s(address)
        if bound is None:
            return 0
        rate = self._by_address.get(address)
        if rate is None:
            if len(self._by_address) >= ADDRESSES_MAX:
                self._forget(now_ms)
            rate = self._by_address[address] = SampledRate(self._quotas.window, now_ms)
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(bound, now_ms)
        if not throttle_ms:
            return 0
        rate.record(-1, now_ms)
        self._tell(now_ms, "connections_throttled: address=%s connection_creation_rate=%g", address, bound)
        return min(throttle_ms, self._quotas.window.sample_ms)

    def _tell(self, now_ms: int, line: str, *arguments: object) -> None:
        """Logs that connections are refused, now and then."""
        if self._told_ms is None or now_ms - self._told_ms >= TOLD_INTERVAL_MS:
            self._told_ms = now_ms
            logger.warning(line, *arguments)

    def _wait_ms(self, listener: str, now_ms: int) -> int:
        """Connections of a listener are taken one after the other, each when the rates allow it."""
        window = self._quotas.window
        at_ms = max(now_ms, self._next_ms.get(listener, 0))
        throttle_ms = 0
        if self._bound_in_all < UNLIMITED and listener != self._free_listener:
            if self._in_all is None:
                self._in_all = SampledRate(window, now_ms)
            throttle_ms = _throttle_ms(self._in_all, self._bound_in_all, at_ms)
        bound = self._bounds.get(listener)
        if bound is not None:
            rate = self._by_listener.setdefault(listener, SampledRate(window, now_ms))
            throttle_ms = max(throttle_ms, _throttle_ms(rate, bound, at_ms))
        self._next_ms[listener] = at_ms + min(throttle_ms, window.sample_ms)
        return self._next_ms[listener] - now_ms

    def _forget(self, now_ms: int) -> None:
        """Forgets addresses that a whole window knows nothing of; if there is none, the one that was quiet longest."""
        window = self._quotas.window
        quiet_ms = now_ms - window.samples * window.sample_ms
        kept = {address: rate for address, rate in self._by_address.items() if rate.last_ms > quiet_ms}
        if len(kept) >= ADDRESSES_MAX:
            del kept[min(kept, key=lambda address: kept[address].last_ms)]
        self._by_address = kept


def _throttle_ms(rate: SampledRate, bound: float, now_ms: int) -> int:
    """Of a rate that may be zero: then each connection waits as long as one may."""
    rate.record(1, now_ms)
    return rate.throttle_ms(bound, now_ms) if bound else MS
