"""Key stores and trust stores in files, as PEM texts for `tls`: PEM itself, and PKCS#12 by the library cryptography.

What Kafka's settings name by `ssl.keystore.type` and `ssl.truststore.type`. Java's own format (JKS) is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.ports.tls import InvalidTls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

PEM: Final = "PEM"
PKCS12: Final = "PKCS12"
CONVERSION: Final = "keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12"
"""The command that makes a PKCS#12 store of one in Java's own format."""
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_PEM_BEGIN: Final = b"-----BEGIN "


class KeyStore(NamedTuple):
    """A private key and its certificate chain, both PEM; one text where a file has both."""

    chain: str
    key: str

    def __repr__(self) -> str:
        return "KeyStore(...)"


class Names(NamedTuple):
    """Which name a certificate has."""

    subject: str
    """Its distinguished name, RFC 4514."""
    alternatives: frozenset[str]
    """Hosts and addresses."""


class KeyStoreFiles:
    """Reads stores. To decrypt one of PKCS#12 takes some ten milliseconds: one that has not changed is kept."""

    def __init__(self) -> None:
        self._opened: dict[tuple[str, str | None], tuple[bytes, PKCS12KeyAndCertificates]] = {}
        """[location, password] -> the file's bytes, and what they were."""

    def key_store(self, location: str, kind: str, password: str | None) -> KeyStore:
        """What one side shows. `password` is a PKCS#12 store's; a PEM file's key has its own. InvalidTls, OSError."""
        if not _is_pkcs12(kind):
            text = _pem(location, kind)
            return KeyStore(text, text)
        store = self._open(location, password)
        if store.key is None or store.cert is None:
            raise InvalidTls(f"{location} has no private key with its certificate")
        chain = _chain(store.cert.certificate, [each.certificate for each in store.additional_certs])
        # Not above: most brokers and clients read PEM, and the library takes a while to load.
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return KeyStore(_texts(chain), key.decode())

    def trust_store(self, location: str, kind: str, password: str | None) -> str:
        """The certificates that one side trusts, PEM. InvalidTls, OSError."""
        if not _is_pkcs12(kind):
            return _pem(location, kind)
        store = self._open(location, password)
        if store.key is not None:
            # What leads from its certificate to a CA is not trusted by that, and cannot be told from what is.
            raise InvalidTls(f"{location} has a private key: as a trust store it must have certificates only")
        if not store.additional_certs:
            raise InvalidTls(f"{location} has no certificates")
        return _texts(each.certificate for each in store.additional_certs)

    def _open(self, location: str, password: str | None) -> PKCS12KeyAndCertificates:
        data = _content(location)
        known = self._opened.get((location, password))
        if known is not None and known[0] == data:
            return known[1]
        if data.startswith(_JKS_MAGIC):
            raise InvalidTls(f"{location} is a key store in Java's own format (JKS): convert it ({CONVERSION})")
        if _PEM_BEGIN in data:
            raise InvalidTls(f"{location} is a PEM file, and no PKCS#12 store: say so by the store's type, PEM")
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

        try:
            store = load_pkcs12(data, None if password is None else password.encode())
        except UnsupportedAlgorithm as error:
            raise InvalidTls(f"{location} is encrypted in a way that is not known: {error}") from None
        except (ValueError, TypeError):
            reason = "no password is set" if password is None else "its password is wrong, or it is damaged"
            raise InvalidTls(f"{location} cannot be opened: {reason}") from None
        self._opened[location, password] = data, store
        return store


def _content(location: str) -> bytes:
    with open(location, "rb") as file:
        return file.read()


def _is_pkcs12(kind: str) -> bool:
    return kind.upper() == PKCS12


def _pem(location: str, kind: str) -> str:
    if kind != PEM:
        raise InvalidTls(f"{location} is of the type {kind}, and only {PEM} and {PKCS12} are read")
    data = _content(location)
    if data.startswith(_JKS_MAGIC):
        raise InvalidTls(f"{location} is no PEM file: it is in Java's own format (JKS): convert it ({CONVERSION})")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidTls(
            f"{location} is no PEM file: it is not text; if it is a PKCS#12 store, set the store's type to {PKCS12}"
        ) from None


def _chain(first: Certificate, others: list[Certificate]) -> list[Certificate]:
    """Each certificate before that of its issuer, as TLS sends them; what does not belong to the chain is left out."""
    chain = [first]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in others if each.subject == chain[-1].issuer and each not in chain), None)
        if issuer is None:
            break
        chain.append(issuer)
    return chain


def _texts(certificates: Iterable[Certificate]) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


def names_of(chain: str) -> Names:
    """The names of a chain's first certificate. InvalidTls."""
    from cryptography import x509

    try:
        first = x509.load_pem_x509_certificates(chain.encode())[0]
        found = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        found = x509.SubjectAlternativeName([])
    except ValueError as error:
        raise InvalidTls(f"the certificate cannot be read: {error}") from None
    return Names(first.subject.rfc4514_string(), frozenset(str(name.value) for name in found))
