"""Where a broker listens: ports bound, certificates looked at again, and what clients are told to connect to."""

from __future__ import annotations

import errno
import functools
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.broker.failure import BrokerFailed
from tidelog.config.listener_security import TLS_PROTOCOLS
from tidelog.metadata.image import Endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.connections.server import Server
    from tidelog.broker.connections.tls import ListenerTls
    from tidelog.broker.shell import Shell, Timer
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.config.listeners import Listener as ConfiguredListener
    from tidelog.ports.network import Listener, Network

LOOK_MS: Final = 5_000
"""Between two looks whether certificates have changed."""
ANY_ADDRESS: Final = ("", "0.0.0.0", "::")
"""Hosts that mean "all addresses": to bind to, but not to be told to clients."""


def listeners_tls(config: BrokerConfig) -> dict[str, ListenerTls]:
    """[listener] -> its TLS, of those that have it. BrokerFailed."""
    with_tls = [each for each in config.listeners if each.security_protocol in TLS_PROTOCOLS]
    if not with_tls:
        return {}
    # With OpenSSL, which a broker without TLS does not load.
    from tidelog.broker.connections.tls import ListenerTls

    return {each.name: ListenerTls(config, each.name, each.security_protocol) for each in with_tls}


def refusal(tls: Mapping[str, ListenerTls], config: BrokerConfig) -> str | None:
    """Why the first listener that cannot do with what `config` says of its TLS could not; None: all of them could."""
    found = (each.refusal(config) for each in tls.values())
    return next((reason for reason in found if reason is not None), None)


class Listening:
    """The listeners of one broker."""

    def __init__(
        self, config: BrokerConfig, server: Server, tls: Mapping[str, ListenerTls], network: Network, shell: Shell
    ) -> None:
        """`tls`: [listener] -> its TLS, of those that have it."""
        self._config = config
        self._server = server
        self._tls = tls
        self._network = network
        self._shell = shell
        self._bound: list[tuple[ConfiguredListener, Listener]] = []
        self._look_timer: Timer | None = None

    @property
    def addresses(self) -> list[str]:
        """host:port of each, the first listener first."""
        return [f"{listener.address[0]}:{listener.address[1]}" for _, listener in self._bound]

    async def bind(self) -> None:
        """BrokerFailed where a port cannot be had."""
        for configured in self._config.listeners:
            try:
                self._bound.append((configured, await self._listen(configured)))
            except OSError as error:
                where = f"{configured.host or 'all addresses'}:{configured.port}"
                if error.errno == errno.EADDRINUSE:
                    raise BrokerFailed(
                        f"{where} is in use: stop what listens there, or choose another port "
                        f"(listeners={configured.name}://{configured.host}:PORT)"
                    ) from error
                raise BrokerFailed(f"cannot listen on {where}: {error.strerror or error}") from error
        if self._tls:
            self._look_at_certificates()

    async def _listen(self, configured: ConfiguredListener) -> Listener:
        tls = self._tls.get(configured.name)
        connection = functools.partial(self._server.connection, configured.name)
        if tls is None:
            return await self._network.listen(connection, configured.host, configured.port)
        return await self._network.listen_tls(connection, configured.host, configured.port, tls.server)

    def _look_at_certificates(self) -> None:
        for tls in self._tls.values():
            tls.look()
        self._look_timer = self._shell.after(LOOK_MS, self._look_at_certificates)

    def endpoints(self) -> Iterator[Endpoint]:
        """What clients are told: as advertised, with the port that was really bound, and a host that can be reached."""
        for (configured, bound), told in zip(self._bound, self._config.advertised_listeners, strict=True):
            host = told.host
            if host in ANY_ADDRESS:
                host = socket.gethostname()
            port = told.port or bound.address[1]
            yield Endpoint(configured.name, configured.security_protocol, host, port)

    def close(self) -> None:
        """Takes no further connections."""
        if self._look_timer is not None:
            self._look_timer.cancel()
        for _, listener in self._bound:
            listener.close()
        self._bound.clear()
