"""How a client secures its connections, by the names of Kafka's client properties.

    security.protocol      PLAINTEXT or SASL_PLAINTEXT
    sasl.mechanism         PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (librdkafka's sasl.mechanisms is the same)
    sasl.jaas.config       Java's way to name user and password
    sasl.username          librdkafka's way
    sasl.password

Settings of other matters are let pass, so that a client's whole file can be given; what asks for security that is not
there is an error.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidelog.client.errors import UnsupportedSecurity
from tidelog.config import jaas
from tidelog.config.properties import ConfigError, parse
from tidelog.security.sasl_client import SUPPORTED, Credentials, SaslClient

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SASL_PLAINTEXT")
_NONCE_BYTES: Final = 18


class ClientSecurity:
    """The protocol of a client's connections, and what it logs in with."""

    def __init__(self, protocol: str = PLAINTEXT, credentials: Credentials | None = None) -> None:
        """UnsupportedSecurity where the protocol is not spoken yet, or credentials are missing."""
        self.protocol = protocol.upper()
        if self.protocol not in PROTOCOLS:
            raise UnsupportedSecurity(
                f"security.protocol {protocol} is not supported by this client yet; use a listener of "
                f"{' or '.join(PROTOCOLS)}"
            )
        if self.protocol.startswith("SASL") and credentials is None:
            raise UnsupportedSecurity(
                f"security.protocol {self.protocol} needs sasl.mechanism, sasl.username and sasl.password, or "
                "sasl.jaas.config"
            )
        self._credentials = credentials if self.protocol.startswith("SASL") else None

    def __repr__(self) -> str:
        return f"ClientSecurity({self.protocol!r}, {self._credentials!r})"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ClientSecurity:
        """From a client's settings; UnsupportedSecurity says what cannot be done. No error shows a password."""
        protocol = properties.get("security.protocol", PLAINTEXT).strip()
        return cls(protocol, _credentials(properties) if protocol.upper().startswith("SASL") else None)

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

    def log_in(self) -> SaslClient | None:
        """Begins the authentication of one connection; None where there is none."""
        return None if self._credentials is None else self._credentials.begin(secrets.token_urlsafe(_NONCE_BYTES))


def _credentials(properties: Mapping[str, str]) -> Credentials:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"
    if mechanism not in SUPPORTED:
        raise UnsupportedSecurity(
            f"sasl.mechanism {mechanism} is not supported by this client: use one of {', '.join(SUPPORTED)}"
        )
    user, password = properties.get("sasl.username"), properties.get("sasl.password")
    if "sasl.jaas.config" in properties:
        try:
            options = jaas.parse(properties["sasl.jaas.config"]).options
        except jaas.InvalidJaas as error:
            raise UnsupportedSecurity(f"sasl.jaas.config cannot be read: {error}") from error
        user, password = options.get("username", user), options.get("password", password)
    if not user or not password:
        raise UnsupportedSecurity(
            "user and password are missing: set sasl.username and sasl.password, or sasl.jaas.config"
        )
    return Credentials(mechanism, user, password)
