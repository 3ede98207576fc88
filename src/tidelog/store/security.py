"""With what a session with a ZooKeeper ensemble is secured: TLS, a login, and to whom what it creates belongs."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from tidelog.config.zookeeper_security import SASL, TLS, SaslUser, sasl_user
from tidelog.ports.tls import TlsMaterial, client_context

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig


@dataclass(frozen=True, slots=True)
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

    def content(name: str) -> str | None:
        location = cast("str | None", config.get(name))
        return None if location is None else Path(location).read_text()

    key_store = content("zookeeper.ssl.keystore.location")
    password = cast("str | None", config.get("zookeeper.ssl.keystore.password"))
    versions = cast("tuple[str, ...] | None", config.get("zookeeper.ssl.enabled.protocols"))
    return client_context(
        TlsMaterial(key_store, key_store, password, content("zookeeper.ssl.truststore.location")),
        check_host=bool(config.get("zookeeper.ssl.endpoint.identification.algorithm")),
        versions=versions or (cast(str, config.get("zookeeper.ssl.protocol")),),
        ciphers=cast("tuple[str, ...] | None", config.get("zookeeper.ssl.cipher.suites")) or (),
    )
