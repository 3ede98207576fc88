"""TLS of a broker's listeners: certificates from settings and PEM files, loaded again when they change.

New connections have what was loaded last; those that stand are left alone. Material that cannot be used stops the
start; later it is logged, and what was loaded before stays in use.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from tidelog.broker.failure import BrokerFailed
from tidelog.config.listener_security import TLS_PROTOCOLS, setting_names
from tidelog.ports.tls import (
    NOT_TLS,
    InvalidTls,
    TlsMaterial,
    client_context,
    peer_certificate,
    renewable,
    server_context,
)
from tidelog.security.access import ANONYMOUS, Principal
from tidelog.security.distinguished_names import MalformedCertificate, subject
from tidelog.security.principals import InvalidRule, NoMatchingRule, PrincipalMapper

if TYPE_CHECKING:
    import asyncio
    import ssl

    from tidelog.config.broker_config import BrokerConfig

logger: Final = logging.getLogger(__name__)

LOOK_MS: Final = 5_000
"""Between two looks whether certificates have changed."""


class UnknownPrincipal(Exception):
    """A certificate that names no principal here: the text is for the log."""


class _Wanted(NamedTuple):
    """What settings and files say: other contexts are made when it changes."""

    material: TlsMaterial
    client_auth: str
    versions: tuple[str, ...]
    ciphers: tuple[str, ...]
    check_host: bool


class ListenerTls:
    """One listener's TLS."""

    def __init__(self, config: BrokerConfig, listener: str, protocol: str) -> None:
        """BrokerFailed where the settings or their files cannot be used."""
        self._config = config
        self._listener = listener
        self._protocol = protocol
        self.failed_handshakes = 0
        """Since the broker's start; for metrics."""
        try:
            self._wanted = self._read()
            server, client = self._contexts(self._wanted)
            self._mapper = PrincipalMapper(cast(str, config.of_listener(listener, "ssl.principal.mapping.rules")))
        except (InvalidTls, InvalidRule, OSError) as error:
            raise BrokerFailed(f"TLS of listener {listener}: {error}") from error
        self.server = renewable(server)
        self.client = renewable(client)
        """What this broker connects to another one's listener of that name with."""

    def _client_auth(self) -> str:
        name = "ssl.client.auth"
        if self._protocol == "SASL_SSL" and not self._config.is_set(setting_names(self._listener, name)[0]):
            # As in Kafka: SASL authenticates the client, unless the listener's own setting wants certificates too.
            return "none"
        return cast(str, self._config.of_listener(self._listener, name))

    def _text(self, name: str) -> str | None:
        return cast("str | None", self._config.of_listener(self._listener, name)) or None

    def _read(self) -> _Wanted:
        """InvalidTls, OSError."""
        chain, key = self._text("ssl.keystore.certificate.chain"), self._text("ssl.keystore.key")
        location = self._text("ssl.keystore.location")
        if location is not None:
            # One file has both.
            chain = key = _content(location)
        trusted = self._text("ssl.truststore.certificates")
        location = self._text("ssl.truststore.location")
        if location is not None:
            trusted = _content(location)
        of_listener = self._config.of_listener
        return _Wanted(
            TlsMaterial(chain, key, self._text("ssl.key.password"), trusted),
            self._client_auth(),
            cast("tuple[str, ...]", of_listener(self._listener, "ssl.enabled.protocols")),
            cast("tuple[str, ...]", of_listener(self._listener, "ssl.cipher.suites")),
            bool(of_listener(self._listener, "ssl.endpoint.identification.algorithm")),
        )

    def _contexts(self, wanted: _Wanted) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """For connections that come, and for those to other brokers. InvalidTls."""
        server = server_context(
            wanted.material,
            client_auth=wanted.client_auth,
            versions=wanted.versions,
            ciphers=wanted.ciphers,
            on_failure=self._failed,
        )
        return server, client_context(wanted.material, check_host=wanted.check_host)

    def look(self) -> None:
        """Takes over what settings and files say now: for new connections, and nothing but that."""
        try:
            wanted = self._read()
            if wanted == self._wanted:
                return
            # Both are made before either is in use: what is wrong must not replace half of what is there.
            self.server.current, self.client.current = self._contexts(wanted)
        except (InvalidTls, OSError) as error:
            logger.error("tls_not_reloaded: listener=%s reason=%s", self._listener, error)
            return
        self._wanted = wanted
        logger.info("tls_reloaded: listener=%s", self._listener)

    def principal(self, transport: asyncio.BaseTransport) -> Principal:
        """The principal that a connection's certificate names; ANONYMOUS without one. UnknownPrincipal."""
        certificate = peer_certificate(transport.get_extra_info("ssl_object"))
        if certificate is None:
            return ANONYMOUS
        try:
            return Principal(self._mapper.name(subject(certificate)))
        except (MalformedCertificate, NoMatchingRule) as error:
            raise UnknownPrincipal(str(error)) from error

    def _failed(self, client: str, reason: str) -> None:
        self.failed_handshakes += 1
        logger.warning(
            "tls_handshake_failed: listener=%s peer=%s reason=%s%s", self._listener, client, reason, _guess(reason)
        )


def _content(location: str) -> str:
    """InvalidTls, OSError."""
    try:
        return Path(location).read_text()
    except UnicodeDecodeError:
        raise InvalidTls(f"{location} is no PEM file: it is not text") from None


def _guess(reason: str) -> str:
    if reason in NOT_TLS:
        return " (it does not speak TLS: a client of a plaintext protocol?)"
    return ""


def listeners_tls(config: BrokerConfig) -> dict[str, ListenerTls]:
    """[listener] -> its TLS, of those that have it. BrokerFailed."""
    return {
        listener.name: ListenerTls(config, listener.name, listener.security_protocol)
        for listener in config.listeners
        if listener.security_protocol in TLS_PROTOCOLS
    }
