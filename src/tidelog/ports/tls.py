"""TLS by the standard library: contexts of servers and clients from PEM texts, as Kafka's settings name them.

A listener is opened with a context once. Where certificates change, others are made, since what is trusted can only be
added to in one that is there: `RenewableContext` hands each new connection to the newest.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""Those that are sound; older ones are refused."""
CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
"""Reasons of OpenSSL's for a handshake whose first bytes are none of TLS."""


class Client:
    """Whose handshake is begun in a context: the event loops do not tell."""

    __slots__ = ("_handshaking", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        """host:port."""
        self._handshaking: _Handshaking | None = None

    def begins(self, handshaking: _Handshaking) -> None:
        """This is its TLS from now on."""
        self._handshaking = handshaking

    def gave_up(self) -> None:
        """Its connection ended in the handshake: tells so, if it had begun to speak, and nothing was told yet."""
        if self._handshaking is not None:
            self._handshaking.ended_by_client()


CLIENT: ContextVar[Client | None] = ContextVar("CLIENT", default=None)


ENDED_BY_CLIENT: Final = "the client ended the connection in its handshake: it may not trust the broker's certificate"


class InvalidTls(ValueError):
    """Material that cannot be used; the text says which and why, and shows none of it."""


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """What one side has to show, and what it trusts. Texts are PEM; the `repr` shows none of them."""

    chain: str | None = field(default=None, repr=False)
    """Its certificate and those that lead to its CA."""
    key: str | None = field(default=None, repr=False)
    """The private key."""
    password: str | None = field(default=None, repr=False)
    """Of the key, where that is encrypted."""
    trusted: str | None = field(default=None, repr=False)
    """CAs; None: a client trusts the system's, a server none."""


class RenewableContext(ssl.SSLContext):
    """What a listener, or a connection's attempts, are given once: each connection begins with `current`."""

    current: ssl.SSLContext

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        made = self.current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        if isinstance(made, _Handshaking):
            made.incoming = incoming
            client = CLIENT.get()
            if client is not None:
                made.client = client.name
                client.begins(made)
        return made


def renewable(current: ssl.SSLContext) -> RenewableContext:
    """A context that begins with `current`. By itself it shows no certificate and trusts none."""
    made = RenewableContext(current.protocol)
    made.current = current
    return made


def server_context(
    material: TlsMaterial,
    *,
    client_auth: str,
    versions: tuple[str, ...],
    ciphers: tuple[str, ...] = (),
    on_failure: Callable[[str, str], None] = lambda client, reason: None,
) -> ssl.SSLContext:
    """What a listener accepts connections with; `on_failure(client, reason)` hears why a handshake has failed, the
    client as host:port. InvalidTls."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, versions, ciphers)
    context.verify_mode = CLIENT_AUTH[client_auth]
    if not material.chain or not material.key:
        raise InvalidTls("there is no certificate or no private key")
    _load(context, material)
    context.sslobject_class = _reporting(on_failure)
    return context


def client_context(
    material: TlsMaterial,
    *,
    check_host: bool,
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3"),
    ciphers: tuple[str, ...] = (),
) -> ssl.SSLContext:
    """What a client connects with: certificates are always verified, host names unless `check_host` is false."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, versions, ciphers)
    context.check_hostname = check_host
    if material.trusted is None:
        context.load_default_certs()
    _load(context, material)
    return context


def _load(context: ssl.SSLContext, material: TlsMaterial) -> None:
    """Loads certificates and key into a new context. InvalidTls."""
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
            # Remarks may stand between certificates. The library refuses texts that are not ASCII, certificates are.
            context.load_verify_locations(cadata=material.trusted.encode("ascii", "replace").decode())
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


class _Handshaking(ssl.SSLObject):
    """One connection's TLS, by a listener, that tells why a handshake fails: to the log, and to the client.

    The event loops drop what is still to be sent where a handshake fails. In TLS 1.3 a client believes itself in when
    its own part is done, so without the alert it would see a broken connection, and try again. So the handshake goes
    on here, though it cannot succeed: the alert is sent, what the client says is not looked at, and the client ends
    the connection, or the loop does when handshakes have to be over.
    """

    on_failure: Callable[[str, str], None]
    incoming: ssl.MemoryBIO
    """What the client has sent."""
    client = ""
    """host:port, where it is known."""
    _has_failed = _has_spoken = False

    def ended_by_client(self) -> None:
        """Without an alert, as those end it that use Python's or Node's TLS and do not trust the certificate."""
        if self._has_spoken and not self._has_failed:
            type(self).on_failure(self.client, ENDED_BY_CLIENT)

    def do_handshake(self) -> None:
        if not self._has_failed:
            self._has_spoken = self._has_spoken or self.incoming.pending > 0
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                reason = _reason(error)
                type(self).on_failure(self.client, reason)
                if reason in NOT_TLS:
                    # An alert would be read as an answer of another protocol.
                    raise
                self._has_failed = True
            else:
                return
        self.incoming.read()
        raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "the handshake has failed")


def _reporting(on_failure: Callable[[str, str], None]) -> type[ssl.SSLObject]:
    return type("Handshaking", (_Handshaking,), {"on_failure": staticmethod(on_failure)})


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
