"""Key stores in files: what is in them comes out, and what cannot be read is told with what to do."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    KeySerializationEncryption,
    NoEncryption,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate

from tidelog.launcher.certificates import Issued, issue, make_authority
from tidelog.ports.key_stores import PEM, PKCS12, KeyStoreFiles
from tidelog.ports.tls import InvalidTls, TlsMaterial, client_context, server_context

NOW = datetime.datetime.now(datetime.UTC)
PASSWORD = "store-secret"
ENCRYPTED = BestAvailableEncryption(PASSWORD.encode())


@pytest.fixture(scope="module")
def authority() -> Issued:
    return make_authority("test", NOW)


@pytest.fixture(scope="module")
def broker(authority: Issued) -> Issued:
    return issue(authority, "localhost", NOW)


def write(
    path: Path, key: Issued | None, *certificates: Issued, encryption: KeySerializationEncryption = ENCRYPTED
) -> str:
    """A PKCS#12 store with the key and certificate of `key`, and further certificates."""
    private = None if key is None else load_pem_private_key(key.key.encode(), None)
    own = None if key is None else load_pem_x509_certificate(key.certificate.encode())
    others = [load_pem_x509_certificate(each.certificate.encode()) for each in certificates]
    data = pkcs12.serialize_key_and_certificates(None, private, own, others, encryption)  # type: ignore[arg-type]
    path.write_bytes(data)
    return str(path)


def test_a_pkcs12_store_has_the_same_in_it_as_pem_files(tmp_path: Path, authority: Issued, broker: Issued) -> None:
    """The chain in the order in which TLS sends it, without what does not belong to it; TLS can be opened with it."""
    stranger = make_authority("another", NOW)
    location = write(tmp_path / "s.p12", broker, stranger, authority)
    files = KeyStoreFiles()
    store = files.key_store(location, PKCS12, PASSWORD)
    assert store.chain == broker.certificate + authority.certificate
    assert store.key == broker.key
    assert broker.key not in repr(store)
    trusted = files.trust_store(write(tmp_path / "t.p12", None, authority, stranger), "pkcs12", PASSWORD)
    assert trusted == authority.certificate + stranger.certificate
    material = TlsMaterial(store.chain, store.key, None, trusted)
    server_context(material, client_auth="required", versions=("TLSv1.3",))
    client_context(material, check_host=True)


def test_pem_files_are_given_as_they_are(tmp_path: Path, broker: Issued) -> None:
    """Key and chain of one file are one text."""
    file = tmp_path / "s.pem"
    file.write_text(broker.key + broker.certificate)
    store = KeyStoreFiles().key_store(str(file), PEM, "not asked for")
    assert store.chain is store.key
    assert store.chain == file.read_text() == KeyStoreFiles().trust_store(str(file), PEM, None)


def test_a_store_without_a_password_is_read(tmp_path: Path, broker: Issued) -> None:
    location = write(tmp_path / "s.p12", broker, encryption=NoEncryption())
    assert KeyStoreFiles().key_store(location, PKCS12, None).key == broker.key


def test_a_store_is_decrypted_again_only_when_it_has_changed(
    tmp_path: Path, authority: Issued, broker: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener looks at its files every few seconds; another password is not let in by what is known."""
    loads: list[bytes] = []
    load = pkcs12.load_pkcs12

    def counted(data: bytes, password: bytes | None) -> pkcs12.PKCS12KeyAndCertificates:
        loads.append(data)
        return load(data, password)

    monkeypatch.setattr(pkcs12, "load_pkcs12", counted)
    files = KeyStoreFiles()
    location = write(tmp_path / "s.p12", broker)
    assert files.key_store(location, PKCS12, PASSWORD) == files.key_store(location, PKCS12, PASSWORD)
    assert len(loads) == 1
    with pytest.raises(InvalidTls):
        files.key_store(location, PKCS12, "wrong")
    another = issue(authority, "localhost", NOW)
    write(tmp_path / "s.p12", another)
    assert files.key_store(location, PKCS12, PASSWORD).key == another.key


def as_key_store(location: str, kind: str = PKCS12, password: str | None = PASSWORD) -> object:
    return KeyStoreFiles().key_store(location, kind, password)


def as_trust_store(location: str, kind: str = PKCS12, password: str | None = PASSWORD) -> object:
    return KeyStoreFiles().trust_store(location, kind, password)


@pytest.mark.parametrize("read", [as_key_store, as_trust_store])
def test_what_is_no_such_store_is_refused(tmp_path: Path, read: Callable[..., object], broker: Issued) -> None:
    """With what to do about it, and never with what is in it."""
    file = tmp_path / "store"
    for content, kind, reason in (
        (b"\xfe\xed\xfe\xed\0\0\0\2", PKCS12, "JKS.*keytool -importkeystore"),
        (b"\xfe\xed\xfe\xed\0\0\0\2", PEM, "JKS.*keytool -importkeystore"),
        (broker.key.encode(), PKCS12, "is a PEM file"),
        (b"\x30\x82\xff\xfe", PEM, "no PEM file.*PKCS12"),
        (b"\x30\x82\xff\xfe", PKCS12, "its password is wrong, or it is damaged"),
        (b"", PKCS12, "damaged"),
        (b"", "JKS", "only PEM and PKCS12 are read"),
    ):
        file.write_bytes(content)
        with pytest.raises(InvalidTls, match=f"store .*{reason}") as caught:
            read(str(file), kind)
        assert PASSWORD not in str(caught.value)
    with pytest.raises(OSError, match="nowhere"):
        read(str(tmp_path / "nowhere"))


def test_a_wrong_password_is_told(tmp_path: Path, broker: Issued) -> None:
    location = write(tmp_path / "s.p12", broker)
    with pytest.raises(InvalidTls, match="its password is wrong") as caught:
        as_key_store(location, password="hunter2")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(InvalidTls, match="no password is set"):
        as_key_store(location, password=None)


def test_a_key_store_needs_a_key_and_a_trust_store_must_have_none(
    tmp_path: Path, authority: Issued, broker: Issued
) -> None:
    """Which of the certificates beside a key are trusted cannot be told: none of them is, in silence."""
    with pytest.raises(InvalidTls, match="no private key"):
        as_key_store(write(tmp_path / "t.p12", None, authority))
    with pytest.raises(InvalidTls, match="has a private key"):
        as_trust_store(write(tmp_path / "s.p12", broker, authority))


def test_remarks_between_certificates_may_be_in_any_language(tmp_path: Path, authority: Issued, broker: Issued) -> None:
    """As bundles of certificate authorities have them; the library takes ASCII alone."""
    file = tmp_path / "t.pem"
    file.write_text(f"# Főtanúsítvány\n{authority.certificate}# 認証局\n")
    trusted = KeyStoreFiles().trust_store(str(file), PEM, None)
    context = client_context(TlsMaterial(trusted=trusted), check_host=True)
    assert len(context.get_ca_certs()) == 1
    material = TlsMaterial(f"# Főtanúsítvány\n{broker.certificate}", broker.key, None, trusted)
    server_context(material, client_auth="required", versions=("TLSv1.3",))
