"""Certificates for a cluster's brokers: an authority that signs for nothing else, and what it signs.

Keys are of the curve P-256, which every client's TLS knows. A certificate names its host, and this machine by its
loopback names, so that the same files serve a cluster that is tried on one machine first.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BROKER_NAME: Final = "tidelog broker"
"""The common name of every broker's certificate; who holds one is a broker."""
AUTHORITY_NAME: Final = "tidelog cluster CA"
DAYS: Final = 3650
SKEW: Final = datetime.timedelta(days=1)
"""How far behind this machine's clock another one's may be."""
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_HOST_LENGTH_MAX: Final = 253


class Issued(NamedTuple):
    """A private key and its certificate, both PEM."""

    key: str
    certificate: str

    def __repr__(self) -> str:
        return "Issued(...)"


def check_host(host: str) -> str:
    """The host as certificates and settings name it: an address, or a name in lower case. ValueError."""
    try:
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        pass
    labels = host.split(".")
    looks_like_an_address = labels[-1].isdecimal()
    if len(host) > _HOST_LENGTH_MAX or looks_like_an_address or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f"{host!r} is neither an address nor the name of a host")
    return host.lower()


def make_authority(cluster: str, now: datetime.datetime) -> Issued:
    """A new CA, which signs itself; `cluster` tells it from those of other clusters."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{AUTHORITY_NAME} {cluster}")
    builder = (
        _builder(name, name, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return _issued(key, builder.sign(key, hashes.SHA256()))


def issue(authority: Issued, host: str, now: datetime.datetime) -> Issued:
    """A broker's key and certificate, for `host` (`check_host`) and this machine."""
    signing_key = serialization.load_pem_private_key(authority.key.encode(), None)
    assert isinstance(signing_key, ec.EllipticCurvePrivateKey)
    signer = x509.load_pem_x509_certificate(authority.certificate.encode())
    key = ec.generate_private_key(ec.SECP256R1())
    names = dict.fromkeys((host, *LOOPBACK))
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _builder(_name(BROKER_NAME), signer.subject, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    return _issued(key, builder.sign(signing_key, hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _issued(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Issued:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Issued(private.decode(), certificate.public_bytes(pem).decode())
