"""TLS by the standard library: contexts of servers and clients from PEM texts, as Kafka's settings name them.

A context is made once; what is loaded into it again counts for connections that come later (`load`).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""Those that are sound; older ones are refused."""
CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class InvalidTls(ValueError):
    """Material that cannot be used; the text says which and why, and shows none of it."""


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """What one side has to show, and whom it trusts. Texts are PEM; the `repr` shows none of them."""

    chain: str | None = field(default=None, repr=False)
    """Its certificate and those that lead to its CA."""
    key: str | None = field(default=None, repr=False)
    """The private key."""
    password: str | None = field(default=None, repr=False)
    """Of the key, where that is encrypted."""
    trusted: str | None = field(default=None, repr=False)
    """CAs; None: a client trusts the system's, a server nobody."""


def server_context(
    material: TlsMaterial,
    *,
    client_auth: str,
    versions: tuple[str, ...],
    ciphers: tuple[str, ...] = (),
    on_failure: Callable[[str], None] = lambda reason: None,
) -> ssl.SSLContext:
    """What a listener accepts connections with; `on_failure` hears why a handshake has failed. InvalidTls."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, versions, ciphers)
    context.verify_mode = CLIENT_AUTH[client_auth]
    if not material.chain or not material.key:
        raise InvalidTls("there is no certificate or no private key")
    load(context, material)
    context.sslobject_class = _reporting(on_failure)
    return context


def client_context(
    material: TlsMaterial, *, check_host: bool, versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
) -> ssl.SSLContext:
    """What a client connects with: certificates are always verified, host names unless `check_host` is false."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, versions, ())
    context.check_hostname = check_host
    if material.trusted is None:
        context.load_default_certs()
    load(context, material)
    return context


def load(context: ssl.SSLContext, material: TlsMaterial) -> None:
    """Loads certificates and key into a context; later connections have them. InvalidTls, the context is as before."""
    try:
        if material.chain and material.key:
            # The library reads files only: one in memory, which no other process sees.
            whole = material.chain if material.key == material.chain else f"{material.key.rstrip()}\n{material.chain}"
            with _MemoryFile(whole) as path:
                context.load_cert_chain(path, password=material.password or (lambda: ""))
    except (ssl.SSLError, ValueError) as error:
        raise InvalidTls(f"the certificate chain or the private key cannot be used: {_reason(error)}") from None
    try:
        if material.trusted:
            context.load_verify_locations(cadata=material.trusted)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidTls(f"the trusted certificates cannot be used: {_reason(error)}") from None


def peer_certificate(transport_object: Any) -> bytes | None:
    """The DER of the certificate that the other side of a connection has shown and that was verified; None: none."""
    return None if transport_object is None else transport_object.getpeercert(binary_form=True)


def _restrict(context: ssl.SSLContext, versions: tuple[str, ...], ciphers: tuple[str, ...]) -> None:
    chosen = [VERSIONS[version] for version in versions if version in VERSIONS]
    if not chosen:
        raise InvalidTls(f"no TLS version is left of {', '.join(versions)}: {' and '.join(VERSIONS)} are there")
    context.minimum_version, context.maximum_version = min(chosen), max(chosen)
    if ciphers:
        try:
            context.set_ciphers(":".join(ciphers))
        except ssl.SSLError as error:
            raise InvalidTls(f"the cipher suites cannot be used: {_reason(error)}; use OpenSSL's names") from None


def _reporting(on_failure: Callable[[str], None]) -> type[ssl.SSLObject]:
    class Reporting(ssl.SSLObject):
        """Tells why a handshake fails: neither event loop does."""

        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                on_failure(_reason(error))
                raise

    return Reporting


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)


class _MemoryFile:
    def __init__(self, text: str) -> None:
        self._descriptor = os.memfd_create("tls")
        os.write(self._descriptor, text.encode())

    def __enter__(self) -> str:
        return f"/proc/self/fd/{self._descriptor}"

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
