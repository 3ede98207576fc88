"""TLS of a broker's listeners: certificates from settings and files, loaded again when they change.

New connections have what was loaded last; those that stand are left alone. Material that cannot be used stops the
start; later it is logged, and what was loaded before stays in use.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from tidelog.broker.failure import BrokerFailed
from tidelog.config.listener_security import setting_names
from tidelog.ports.key_stores import KeyStoreFiles, names_of
from tidelog.ports.tls import (
    NOT_TLS,
    InvalidTls,
    TlsMaterial,
    client_context,
    peer_certificate,
    renewable,
    server_context,
)
from tidelog.security.access import ANONYMOUS, Principal, UnknownPrincipal
from tidelog.security.distinguished_names import MalformedCertificate, subject
from tidelog.security.principals import InvalidRule, NoMatchingRule, PrincipalMapper

if TYPE_CHECKING:
    import asyncio
    import ssl

    from tidelog.config.broker_config import BrokerConfig
    from tidelog.config.setting import Value

logger: Final = logging.getLogger(__name__)

_NAMES: Final = (
    *(f"ssl.keystore.{each}" for each in ("type", "location", "password", "certificate.chain", "key")),
    *(f"ssl.truststore.{each}" for each in ("type", "location", "password", "certificates")),
    *("ssl.key.password", "ssl.enabled.protocols", "ssl.cipher.suites", "ssl.endpoint.identification.algorithm"),
)
"""Settings that a context is made of, beside ssl.client.auth."""


class _Wanted(NamedTuple):
    """What settings and files say: other contexts are made when it changes."""

    material: TlsMaterial
    client_auth: str
    versions: tuple[str, ...]
    ciphers: tuple[str, ...]
    check_host: bool


class _Settings:
    """One listener's settings of TLS, in one state of a broker's configuration."""

    def __init__(self, config: BrokerConfig, listener: str, protocol: str) -> None:
        self._config = config
        self._listener = listener
        self._protocol = protocol

    def of(self, name: str) -> Value:
        return self._config.of_listener(self._listener, name)

    def text(self, name: str) -> str | None:
        return cast("str | None", self.of(name)) or None

    def named(self) -> tuple[object, ...]:
        """All that is read of them: another one where they have changed."""
        return (self._client_auth(), *map(self.of, _NAMES))

    def read(self, files: KeyStoreFiles) -> _Wanted:
        """InvalidTls, OSError."""
        chain, key = self.text("ssl.keystore.certificate.chain"), self.text("ssl.keystore.key")
        location = self.text("ssl.keystore.location")
        if location is not None:
            kind = cast(str, self.of("ssl.keystore.type"))
            chain, key = files.key_store(location, kind, self.text("ssl.keystore.password"))
        trusted = self.text("ssl.truststore.certificates")
        location = self.text("ssl.truststore.location")
        if location is not None:
            kind = cast(str, self.of("ssl.truststore.type"))
            trusted = files.trust_store(location, kind, self.text("ssl.truststore.password"))
        return _Wanted(
            TlsMaterial(chain, key, self.text("ssl.key.password"), trusted),
            self._client_auth(),
            cast("tuple[str, ...]", self.of("ssl.enabled.protocols")),
            cast("tuple[str, ...]", self.of("ssl.cipher.suites")),
            bool(self.of("ssl.endpoint.identification.algorithm")),
        )

    def _client_auth(self) -> str:
        name = "ssl.client.auth"
        if self._protocol == "SASL_SSL" and not self._config.is_set(setting_names(self._listener, name)[0]):
            # As in Kafka: SASL authenticates the client, unless the listener's own setting wants certificates too.
            return "none"
        return cast(str, self.of(name))


class ListenerTls:
    """One listener's TLS."""

    def __init__(self, config: BrokerConfig, listener: str, protocol: str) -> None:
        """BrokerFailed where the settings or their files cannot be used."""
        self._listener = listener
        self._protocol = protocol
        self._settings = _Settings(config, listener, protocol)
        self.failed_handshakes = 0
        """Since the broker's start; for metrics."""
        self._files = KeyStoreFiles()
        try:
            self._wanted = self._settings.read(self._files)
            server, client = self._contexts(self._wanted)
            self._mapper = PrincipalMapper(cast(str, config.of_listener(listener, "ssl.principal.mapping.rules")))
        except (InvalidTls, InvalidRule, OSError) as error:
            raise BrokerFailed(f"TLS of listener {listener}: {error}") from error
        self.server = renewable(server)
        self.client = renewable(client)
        """What this broker connects to another one's listener of that name with."""

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
            wanted = self._settings.read(self._files)
            if wanted == self._wanted:
                return
            # Both are made before either is in use: what is wrong must not replace half of what is there.
            self.server.current, self.client.current = self._contexts(wanted)
        except (InvalidTls, OSError) as error:
            logger.error("tls_not_reloaded: listener=%s reason=%s", self._listener, error)
            return
        self._wanted = wanted
        logger.info("tls_reloaded: listener=%s", self._listener)

    def refusal(self, config: BrokerConfig) -> str | None:
        """Why the listener could not do with what `config` says of it, in Kafka's words where it has some; None: it
        could, or nothing of it would change."""
        settings = _Settings(config, self._listener, self._protocol)
        if settings.named() == self._settings.named():
            return None
        try:
            wanted = settings.read(self._files)
            self._contexts(wanted)
        except (InvalidTls, OSError) as error:
            return f"listener {self._listener}: {error}"
        assert wanted.material.chain is not None
        assert self._wanted.material.chain is not None
        before, after = names_of(self._wanted.material.chain), names_of(wanted.material.chain)
        if before.subject != after.subject and not config.get("ssl.allow.dn.changes"):
            return f"Keystore DistinguishedName does not match: existing={before.subject}, new={after.subject}"
        if before.alternatives != after.alternatives and not config.get("ssl.allow.san.changes"):
            shown = ", ".join(sorted(before.alternatives)), ", ".join(sorted(after.alternatives))
            return f"Keystore SubjectAltNames do not match: existing=[{shown[0]}], new=[{shown[1]}]"
        return None

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


def _guess(reason: str) -> str:
    if reason in NOT_TLS:
        return " (it does not speak TLS: a client of a plaintext protocol?)"
    return ""
