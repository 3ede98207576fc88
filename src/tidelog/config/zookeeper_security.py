"""How brokers secure their sessions with ZooKeeper: Kafka's settings `zookeeper.ssl.*`, and two of tidelog's own.

    zookeeper.digest             user:password for ZooKeeper's scheme digest
    zookeeper.sasl.jaas.config   user and password for SASL DIGEST-MD5, as in Kafka's JAAS file (section Client)

What asks for something that is not there is a problem that stops the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from tidelog.config import jaas
from tidelog.config.listener_security import CONVERSION, PEM, PKCS12, STORE_TYPES

if TYPE_CHECKING:
    from tidelog.config.setting import Value

DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
TLS: Final = "zookeeper.ssl.client.enable"
SASL: Final = "zookeeper.sasl.jaas.config"
_BY_SUFFIX: Final = {".pem": PEM, ".p12": PKCS12}


class SaslUser(NamedTuple):
    """What brokers log in to ZooKeeper with."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"SaslUser(user={self.user!r})"


def sasl_user(text: str | None) -> SaslUser | None:
    """What `zookeeper.sasl.jaas.config` says; None where it is not set. ValueError, which shows nothing of it."""
    if text is None:
        return None
    module = jaas.parse(text)
    if module.name != DIGEST_MODULE:
        raise ValueError(f"it names {module.name}, and {DIGEST_MODULE} is the only one that is known")
    user, password = module.options.get("username"), module.options.get("password")
    if not (user and password):
        raise ValueError("it has no username or no password")
    return SaslUser(user, password)


def check_zookeeper_security(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """Yields (setting to blame, what is wrong and what to do)."""
    digest = cast("str | None", values["zookeeper.digest"])
    if digest is not None and not all(digest.partition(":")):
        yield "zookeeper.digest", "zookeeper.digest must be user:password"
    sasl = cast("str | None", values[SASL])
    try:
        sasl_user(sasl)
    except ValueError as error:
        yield SASL, f'{SASL} cannot be used: {error}; write {DIGEST_MODULE} required username="..." password="...";'
    if values["zookeeper.set.acl"] and not ((digest or sasl) and values["zookeeper.connect"]):
        yield (
            "zookeeper.set.acl",
            "zookeeper.set.acl=true gives what brokers create to their credentials: set zookeeper.digest=user:password "
            f"or {SASL} (a JAAS file is not read), the same for all brokers, and zookeeper.connect",
        )
    if values[TLS]:
        yield from _check_tls(values)


def _check_tls(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    for name, type_name in (
        ("zookeeper.ssl.keystore.location", "zookeeper.ssl.keystore.type"),
        ("zookeeper.ssl.truststore.location", "zookeeper.ssl.truststore.type"),
    ):
        location = cast("str | None", values[name])
        kind = None if location is None else store_type(location, cast("str | None", values[type_name]))
        if kind not in (None, *STORE_TYPES):
            yield (
                name,
                f"{name} is a key store of the type {kind}, and only {' and '.join(STORE_TYPES)} are read: convert it "
                f"({CONVERSION}) and set {type_name}=PKCS12",
            )
    for name in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if values[name]:
            yield name, f"{name}=true: whether a certificate is revoked is not looked up here: remove it"


def store_type(location: str, named: str | None) -> str:
    """The format of a key store: as it is named, or as ZooKeeper's clients guess it from the file's name."""
    if named:
        return named.upper()
    return next((kind for suffix, kind in _BY_SUFFIX.items() if location.endswith(suffix)), "JKS")
