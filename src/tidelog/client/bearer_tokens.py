"""Where a client's bearer tokens come from (OAUTHBEARER), by the names of Kafka's client properties.

    sasl.oauthbearer.token.endpoint.url      https://...: an issuer's endpoint (RFC 6749, grant client_credentials);
                                             file://...: a file with a token, read for each connection
    sasl.oauthbearer.client.credentials.client.id, .client.secret, sasl.oauthbearer.scope     as which client (KIP-1139)
    sasl.jaas.config                         the older names: options clientId, clientSecret, scope
    sasl.oauthbearer.client.id, .secret      librdkafka's names; its https.ca.location: what the endpoint is trusted by
    sasl.oauthbearer.header.urlencode        true: id and secret are URL-encoded in the header, as RFC 6749 has it
    sasl.login.connect.timeout.ms, sasl.login.read.timeout.ms, sasl.login.retry.backoff.ms, .retry.backoff.max.ms

Without a URL the options `unsecuredLogin...` of the login module make a token without a signature.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from tidelog.client.errors import UnsupportedSecurity
from tidelog.config import jaas
from tidelog.security.oauthbearer import unsecured_login
from tidelog.security.sasl_client import TokenSource

if TYPE_CHECKING:
    from tidelog.client.token_endpoint import Endpoint, IssuedTokens

logger: Final = logging.getLogger(__name__)

URL: Final = "sasl.oauthbearer.token.endpoint.url"
TIMEOUT_MS: Final = 10_000
BACKOFF_MS: Final = 100
BACKOFF_MS_MAX: Final = 10_000
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def token_source(properties: Mapping[str, str]) -> TokenSource | IssuedTokens:
    """Where the tokens of a client with these properties come from. UnsupportedSecurity."""
    options = _options(properties)
    retriever = properties.get("sasl.oauthbearer.jwt.retriever.class", "").rpartition(".")[2]
    if retriever not in ("", "DefaultJwtRetriever", "FileJwtRetriever", "ClientCredentialsJwtRetriever"):
        raise UnsupportedSecurity(
            f"sasl.oauthbearer.jwt.retriever.class: {retriever} is not there: use ClientCredentialsJwtRetriever or "
            "FileJwtRetriever, or give ClientSecurity a TokenSource"
        )
    url = properties.get(URL, "").strip()
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UnsupportedSecurity(f"{URL}: {url}: {error}") from error
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        return TokenSource(lambda: path.read_text().strip())
    if parts.scheme in ("http", "https"):
        from tidelog.client.token_endpoint import IssuedTokens  # HTTP takes a while to be loaded.

        return IssuedTokens(_endpoint(url, properties, options))
    if url:
        raise UnsupportedSecurity(f"{URL}: an https:// URL of an issuer, or a file:// URL of a file with a token")
    words = dict(word.partition("=")[::2] for word in properties.get("sasl.oauthbearer.config", "").split())
    if "principal" in words:
        options["unsecuredLoginStringClaim_sub"] = words["principal"]
        if "lifeSeconds" in words:
            options["unsecuredLoginLifetimeSeconds"] = words["lifeSeconds"]
    if not any(option.startswith("unsecuredLoginStringClaim_") for option in options):
        raise UnsupportedSecurity(f"there is no bearer token: set {URL}, or give ClientSecurity a TokenSource")
    return TokenSource(lambda: unsecured_login(options, int(time.time())))


def _options(properties: Mapping[str, str]) -> dict[str, str]:
    """Of the login module."""
    if "sasl.jaas.config" not in properties:
        return {}
    try:
        return dict(jaas.parse(properties["sasl.jaas.config"]).options)
    except jaas.InvalidJaas as error:
        raise UnsupportedSecurity(f"sasl.jaas.config cannot be read: {error}") from error


def _endpoint(url: str, properties: Mapping[str, str], options: Mapping[str, str]) -> Endpoint:
    from tidelog.client.token_endpoint import Endpoint

    def first(*values: str | None) -> str:
        return next((value for value in values if value), "")

    kafkas, librdkafkas = "sasl.oauthbearer.client.credentials.client", "sasl.oauthbearer.client"
    client_id = first(properties.get(f"{kafkas}.id"), options.get("clientId"), properties.get(f"{librdkafkas}.id"))
    secret = first(
        properties.get(f"{kafkas}.secret"), options.get("clientSecret"), properties.get(f"{librdkafkas}.secret")
    )
    if not client_id or not secret:
        raise UnsupportedSecurity(f"{URL} {url} needs {kafkas}.id and {kafkas}.secret")
    if urlsplit(url).scheme == "http" and urlsplit(url).hostname not in _LOOPBACK:
        logger.warning("token_endpoint_unencrypted: url=%s", url)
    connect_ms = _milliseconds(properties, "sasl.login.connect.timeout.ms", TIMEOUT_MS)
    read_ms = _milliseconds(properties, "sasl.login.read.timeout.ms", TIMEOUT_MS)
    return Endpoint(
        url,
        client_id,
        secret,
        first(properties.get("sasl.oauthbearer.scope"), options.get("scope")) or None,
        encodes_header=properties.get("sasl.oauthbearer.header.urlencode", "").strip().lower() == "true",
        timeout_s=max(connect_ms, read_ms) / 1000,
        backoff_s=_milliseconds(properties, "sasl.login.retry.backoff.ms", BACKOFF_MS) / 1000,
        tries_s_max=_milliseconds(properties, "sasl.login.retry.backoff.max.ms", BACKOFF_MS_MAX) / 1000,
        trusted=_trusted(first(properties.get("https.ca.location"), options.get("ssl.truststore.location"))),
    )


def _milliseconds(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or not int(text):
        raise UnsupportedSecurity(f"{name}: {text!r} is no number of milliseconds")
    return int(text)


def _trusted(path: str) -> str | None:
    if not path:
        return None
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UnsupportedSecurity(f"the token endpoint's CA: {path} cannot be read: {error}") from error
