"""How a client secures its connections, by the names of Kafka's client properties.

    security.protocol      PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
    sasl.mechanism         PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER (librdkafka's sasl.mechanisms is the same)
    sasl.jaas.config       Java's way to name user and password
    sasl.username          librdkafka's way
    sasl.password
    sasl.oauthbearer.*     where bearer tokens come from: `client/bearer_tokens.py`
    ssl.truststore.*, ssl.keystore.*       PEM, by location or as text, or PKCS12 by location and password
    ssl.ca.location, ssl.ca.pem, ssl.certificate.location, ssl.key.location, ssl.key.password    librdkafka's way
    ssl.endpoint.identification.algorithm  empty (librdkafka: none): host names are not checked

Settings of other matters are let pass, so that a client's whole file can be given; what asks for security that is not
there is an error.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeVar, runtime_checkable

from tidelog.client.bearer_tokens import token_source
from tidelog.client.errors import AuthenticationError, UnsupportedSecurity
from tidelog.config import jaas
from tidelog.config.properties import ConfigError, parse
from tidelog.ports.key_stores import CONVERSION, PEM, PKCS12, KeyStoreFiles
from tidelog.ports.tls import InvalidTls, TlsMaterial, client_context
from tidelog.security.oauthbearer import MECHANISM as OAUTHBEARER
from tidelog.security.sasl_client import SUPPORTED, Credentials, Login, SaslClient

T = TypeVar("T")

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NONCE_BYTES: Final = 18


@runtime_checkable
class Preparing(Login, Protocol):
    """A `Login` that asks another service now and then, which blocks."""

    @property
    def is_ready(self) -> bool:
        """Whether `begin` will not block."""
        ...

    def prepare(self) -> None:
        """Asks. OSError, ValueError."""
        ...


class ClientSecurity:
    """The protocol of a client's connections, and what it logs in with."""

    def __init__(
        self,
        protocol: str = PLAINTEXT,
        credentials: Login | None = None,
        tls: TlsMaterial | None = None,
        *,
        check_host: bool = True,
    ) -> None:
        """`credentials`: `Credentials`, or a `TokenSource` for OAUTHBEARER with tokens that the caller gets itself.

        `tls` is what is trusted and shown; None: the system's CAs are trusted. UnsupportedSecurity where the
        protocol is not known, or what it needs is missing or cannot be used."""
        self.protocol = protocol.upper()
        if self.protocol not in PROTOCOLS:
            raise UnsupportedSecurity(
                f"security.protocol {protocol} is not supported: use one of {', '.join(PROTOCOLS)}"
            )
        if self.protocol.startswith("SASL") and credentials is None:
            raise UnsupportedSecurity(
                f"security.protocol {self.protocol} needs sasl.mechanism, sasl.username and sasl.password, or "
                "sasl.jaas.config"
            )
        self._credentials = credentials if self.protocol.startswith("SASL") else None
        self.tls: ssl.SSLContext | None = None
        """What connections are encrypted with; None: they are not."""
        if self.protocol.endswith("SSL"):
            try:
                self.tls = client_context(tls or TlsMaterial(), check_host=check_host)
            except InvalidTls as error:
                raise UnsupportedSecurity(f"TLS: {error}") from error

    def __repr__(self) -> str:
        return f"ClientSecurity({self.protocol!r}, {self._credentials!r})"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ClientSecurity:
        """From a client's settings; UnsupportedSecurity says what cannot be done. No error shows a password."""
        protocol = properties.get("security.protocol", PLAINTEXT).strip()
        credentials = _credentials(properties) if protocol.upper().startswith("SASL") else None
        if not protocol.upper().endswith("SSL"):
            return cls(protocol, credentials)
        check = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
        return cls(protocol, credentials, _material(properties), check_host=check not in ("", "none"))

    @classmethod
    def from_file(cls, path: str) -> ClientSecurity:
        """From a properties file, as Kafka's tools take with --command-config. OSError, UnsupportedSecurity."""
        try:
            entries = parse(Path(path).read_text(), path)
            return cls.from_properties({entry.name: entry.value for entry in entries})
        except (ConfigError, UnicodeDecodeError) as error:
            raise UnsupportedSecurity(f"{path} is no properties file: {error}") from error
        except UnsupportedSecurity as error:
            raise UnsupportedSecurity(f"{path}: {error}") from error

    def preparation(self) -> Callable[[], None] | None:
        """What `log_in` would block for, to be called on a thread before it: a token is to be fetched; None: nothing.

        AuthenticationError where there is no token to be had.
        """
        credentials = self._credentials
        if not isinstance(credentials, Preparing) or credentials.is_ready:
            return None

        def prepare() -> None:
            try:
                credentials.prepare()
            except Exception as error:  # As of `log_in`.
                raise _no_token(error) from error

        return prepare

    def log_in(self) -> SaslClient | None:
        """Begins the authentication of one connection; None where there is none. AuthenticationError."""
        if self._credentials is None:
            return None
        try:
            return self._credentials.begin(secrets.token_urlsafe(_NONCE_BYTES))
        except Exception as error:  # A user's own source of tokens raises what its library has.
            raise _no_token(error) from error


def _no_token(error: Exception) -> AuthenticationError:
    return AuthenticationError(f"there is no bearer token to log in with: {error}")


def _material(properties: Mapping[str, str]) -> TlsMaterial:
    def text(*names: str) -> str | None:
        """The first that is set; of a location its file's content."""
        for name in names:
            value = properties.get(name)
            if value and name.endswith(".location"):
                try:
                    return Path(value).read_text()
                except (OSError, UnicodeDecodeError) as error:
                    raise UnsupportedSecurity(f"{name}: {value} cannot be read: {error}") from error
            if value:
                return value
        return None

    chain = text("ssl.keystore.certificate.chain", "ssl.certificate.location")
    key = text("ssl.keystore.key", "ssl.key.location")
    trusted = text("ssl.truststore.certificates", "ssl.ca.location", "ssl.ca.pem")
    files = KeyStoreFiles()
    if properties.get("ssl.keystore.location"):
        chain, key = _from_store(properties, "keystore", files.key_store)
    if properties.get("ssl.truststore.location"):
        trusted = _from_store(properties, "truststore", files.trust_store)
    return TlsMaterial(chain, key, properties.get("ssl.key.password"), trusted)


def _from_store(properties: Mapping[str, str], store: str, read: Callable[[str, str, str | None], T]) -> T:
    """What the file of `ssl.keystore.location` or `ssl.truststore.location` has."""
    name = f"ssl.{store}.location"
    kind = properties.get(f"ssl.{store}.type", "JKS")
    if kind != PEM and kind.upper() != PKCS12:
        raise UnsupportedSecurity(
            f"{name} needs ssl.{store}.type={PEM} or {PKCS12}, and it is {kind}: convert the file ({CONVERSION}), if "
            "no keytool of Java 9 or later has made it"
        )
    try:
        return read(properties[name], kind, properties.get(f"ssl.{store}.password"))
    except (OSError, InvalidTls) as error:
        raise UnsupportedSecurity(f"{name} cannot be read: {error}") from error


def _credentials(properties: Mapping[str, str]) -> Login:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"
    if mechanism == OAUTHBEARER:
        return token_source(properties)
    if mechanism not in SUPPORTED:
        raise UnsupportedSecurity(
            f"sasl.mechanism {mechanism} is not supported by this client: use one of {', '.join(SUPPORTED)}, "
            f"{OAUTHBEARER}"
        )
    user, password = properties.get("sasl.username"), properties.get("sasl.password")
    by_token = False
    if "sasl.jaas.config" in properties:
        try:
            options = jaas.parse(properties["sasl.jaas.config"]).options
        except jaas.InvalidJaas as error:
            raise UnsupportedSecurity(f"sasl.jaas.config cannot be read: {error}") from error
        user, password = options.get("username", user), options.get("password", password)
        by_token = options.get("tokenauth", "").lower() == "true"
    if not user or not password:
        raise UnsupportedSecurity(
            "user and password are missing: set sasl.username and sasl.password, or sasl.jaas.config"
        )
    return Credentials(mechanism, user, password, by_token=by_token)


def tls_error(address: object, error: ssl.SSLError) -> AuthenticationError:
    """The error of a handshake that failed: a retry is of no use."""
    reason = getattr(error, "verify_message", None) or error.reason or str(error)
    return AuthenticationError(f"the TLS handshake with {address} failed: {reason}")


def refused_by_alert(address: object, error: BaseException | None) -> AuthenticationError | None:
    """What an alert of the broker's comes to, which in TLS 1.3 follows a handshake that seemed to be done; None: none.

    The broker wants a certificate, or does not trust the one that it was shown.
    """
    if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        return tls_error(address, error)
    return None
