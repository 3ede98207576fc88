"""With what a session with a ZooKeeper ensemble is secured: TLS, a login, and to whom what it creates belongs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, cast

from tidelog.config.zookeeper_security import SASL, TLS, SaslUser, sasl_user, store_type
from tidelog.model.values import value

if TYPE_CHECKING:
    import ssl

    from tidelog.config.broker_config import BrokerConfig


@value
class StoreSecurity:
    """Nothing by default: anybody may read and write the ensemble."""

    digest: str | None = field(default=None, repr=False)
    """The session's credentials, user:password, by the scheme digest."""
    sasl: SaslUser | None = None
    """What it logs in with by SASL DIGEST-MD5."""
    tls: Callable[[], ssl.SSLContext] | None = field(default=None, repr=False)
    """What a connection is encrypted with, made for each: a certificate may have been renewed. InvalidTls, OSError."""
    owned: bool = False
    """Whether nodes belong to the identity that creates them (zookeeper.set.acl)."""


OPEN: Final = StoreSecurity()


def security_of(config: BrokerConfig) -> StoreSecurity:
    """As a broker's settings say."""
    return StoreSecurity(
        config.zookeeper_digest,
        sasl_user(cast("str | None", config.get(SASL))),
        (lambda: _context(config)) if config.get(TLS) else None,
        config.zookeeper_set_acl,
    )


def _context(config: BrokerConfig) -> ssl.SSLContext:
    """InvalidTls, OSError."""
    # With OpenSSL, which a broker without TLS does not load.
    from tidelog.ports.key_stores import KeyStoreFiles
    from tidelog.ports.tls import TlsMaterial, client_context

    def setting(name: str) -> str | None:
        return cast("str | None", config.get(name))

    files = KeyStoreFiles()
    material = TlsMaterial()
    location = setting("zookeeper.ssl.keystore.location")
    if location is not None:
        password = setting("zookeeper.ssl.keystore.password")
        chain, key = files.key_store(location, store_type(location, setting("zookeeper.ssl.keystore.type")), password)
        material = TlsMaterial(chain, key, password)
    location = setting("zookeeper.ssl.truststore.location")
    if location is not None:
        password = setting("zookeeper.ssl.truststore.password")
        trusted = files.trust_store(location, store_type(location, setting("zookeeper.ssl.truststore.type")), password)
        material = replace(material, trusted=trusted)
    versions = cast("tuple[str, ...] | None", config.get("zookeeper.ssl.enabled.protocols"))
    return client_context(
        material,
        check_host=bool(config.get("zookeeper.ssl.endpoint.identification.algorithm")),
        versions=versions or (cast(str, config.get("zookeeper.ssl.protocol")),),
        ciphers=cast("tuple[str, ...] | None", config.get("zookeeper.ssl.cipher.suites")) or (),
    )
