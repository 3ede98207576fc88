"""A listener's TLS without sockets: whom it trusts after files or settings have changed, and what it cannot read."""

from __future__ import annotations

import logging
import ssl
import subprocess
from pathlib import Path

import pytest
from tests.certificates import Authority

from tidelog.broker.connections.tls import ListenerTls
from tidelog.broker.failure import BrokerFailed
from tidelog.config.broker_config import BrokerConfig


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> list[Authority]:
    return [Authority(tmp_path_factory.mktemp(name), f"{name} CA") for name in ("former", "new")]


def listener(key_store: Path, trust_store: Path, client_auth: str = "required") -> tuple[BrokerConfig, ListenerTls]:
    """A listener SSL with those PEM files."""
    config = BrokerConfig.from_mapping(
        {
            "listeners": "SSL://127.0.0.1:1",
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(key_store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trust_store),
            "ssl.client.auth": client_auth,
        }
    )
    return config, ListenerTls(config, "SSL", "SSL")


def pkcs12_store(pem: Path, password: str) -> Path:
    """A key store of PKCS#12 with what is in a PEM file."""
    store = pem.with_suffix(".p12")
    command = ["openssl", "pkcs12", "-export", "-in", str(pem), "-out", str(store), "-passout", f"pass:{password}"]
    subprocess.run(command, check=True, capture_output=True)
    return store


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """A handshake in memory; ssl.SSLError where one of the two refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_side=False, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = sides
    for _ in range(10):
        unfinished = []
        for side in waiting:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                unfinished.append(side)
        waiting = unfinished
        if not waiting:
            return
    # The server goes on with a handshake that it has refused, so that its alert is sent.
    sides[0].read(1)
    raise AssertionError("the handshake does not end")


def client_of(authority: Authority, *trusted: Authority) -> ssl.SSLContext:
    """A client with a certificate of one CA, which trusts others."""
    context = ssl.create_default_context(cadata="".join(each.certificate.read_text() for each in trusted))
    context.load_cert_chain(authority.issue("client", "/CN=client"))
    return context


def test_a_ca_that_was_taken_out_of_the_trust_store_is_trusted_no_more(
    authorities: list[Authority], tmp_path: Path
) -> None:
    """By new connections, in and out: loading another file into the same context would only add to what is trusted."""
    former, new = authorities
    trust_store = tmp_path / "trusted.pem"
    trust_store.write_text(former.certificate.read_text() + new.certificate.read_text())
    _, tls = listener(new.issue("server", "/CN=server"), trust_store)
    _, of_former = listener(former.issue("server", "/CN=server"), trust_store, "none")
    shake_hands(tls.server, client_of(former, new))
    shake_hands(of_former.server, tls.client)
    trust_store.write_text(new.certificate.read_text())
    tls.look()
    shake_hands(tls.server, client_of(new, new))
    with pytest.raises(ssl.SSLError, match="ALERT_UNKNOWN_CA"):
        shake_hands(tls.server, client_of(former, new))
    with pytest.raises(ssl.SSLError, match=r"self.signed|unable to get local issuer"):
        shake_hands(of_former.server, tls.client)


def test_certificates_that_are_asked_for_from_now_on_are_asked_for(
    authorities: list[Authority], tmp_path: Path
) -> None:
    """ssl.client.auth can be altered while the broker runs: DescribeConfigs must not tell what is not so."""
    authority = authorities[0]
    config, tls = listener(authority.issue("server", "/CN=server"), authority.certificate, "none")
    without = ssl.create_default_context(cadata=authority.certificate.read_text())
    without.maximum_version = ssl.TLSVersion.TLSv1_2
    shake_hands(tls.server, without)
    config.set_dynamic({}, {"ssl.client.auth": "required"})
    tls.look()
    with pytest.raises(ssl.SSLError, match="ALERT_HANDSHAKE_FAILURE"):
        shake_hands(tls.server, without)


def test_a_key_store_that_is_no_text_is_told_of(
    authorities: list[Authority], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """PKCS#12 by the name of PEM: the start says so; later it is logged, and the looks go on."""
    authority = authorities[0]
    key_store = tmp_path / "server.pem"
    key_store.write_bytes(b"\x30\x82\xff\xfe")
    with pytest.raises(BrokerFailed, match=r"server\.pem is no PEM"):
        listener(key_store, authority.certificate)
    key_store.write_text(authority.issue("server", "/CN=server").read_text())
    _, tls = listener(key_store, authority.certificate)
    key_store.write_bytes(b"\x30\x82\xff\xfe")
    with caplog.at_level(logging.ERROR):
        tls.look()
    assert "tls_not_reloaded: listener=SSL" in caplog.text
    shake_hands(tls.server, client_of(authority, authority))


def test_a_pkcs12_key_store_is_taken_and_taken_again(
    authorities: list[Authority], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A renewed one counts for new connections; with another password it is told of, and the former one stays."""
    former, new = authorities
    settings = {
        "listeners": "SSL://127.0.0.1:1",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(tmp_path / "server.p12"),
        "ssl.keystore.password": "hunter2",
    }
    pkcs12_store(former.issue("server", "/CN=server"), "hunter2").rename(tmp_path / "server.p12")
    tls = ListenerTls(BrokerConfig.from_mapping(settings), "SSL", "SSL")
    shake_hands(tls.server, client_of(former, former))
    pkcs12_store(new.issue("server", "/CN=server"), "hunter2").rename(tmp_path / "server.p12")
    tls.look()
    shake_hands(tls.server, client_of(new, new))
    pkcs12_store(former.issue("server", "/CN=server"), "hunter3").rename(tmp_path / "server.p12")
    with caplog.at_level(logging.ERROR):
        tls.look()
    assert "tls_not_reloaded: listener=SSL" in caplog.text
    assert "its password is wrong" in caplog.text
    assert "hunter" not in caplog.text
    shake_hands(tls.server, client_of(new, new))
    with pytest.raises(BrokerFailed, match=r"server\.p12 cannot be opened: its password is wrong"):
        ListenerTls(BrokerConfig.from_mapping(settings), "SSL", "SSL")


def test_an_alteration_that_could_not_be_used_is_refused(authorities: list[Authority], tmp_path: Path) -> None:
    """As Kafka does: what cannot be read, and a certificate of another name, unless settings allow that."""
    authority = authorities[0]
    config, tls = listener(authority.issue("server", "/O=Tide/CN=server"), authority.certificate)
    location = "listener.name.ssl.ssl.keystore.location"

    def refused(key_store: object, **more: str) -> str | None:
        allowed = {f"ssl.allow.{name}.changes": value for name, value in more.items()}
        of_file = BrokerConfig.from_mapping({**config.static, **allowed})
        return tls.refusal(of_file.altered({location: str(key_store)}))

    renewed = authority.issue("renewed", "/O=Tide/CN=server")
    assert refused(renewed) is None
    assert "nothing.pem" in str(refused(tmp_path / "nothing.pem"))
    named = authority.issue("named", "/O=Tide/CN=other")
    assert refused(named) == (
        "Keystore DistinguishedName does not match: existing=CN=server,O=Tide, new=CN=other,O=Tide"
    )
    assert refused(named, dn="true") is None
    moved = authority.issue("moved", "/O=Tide/CN=server", "DNS:elsewhere")
    assert refused(moved) == ("Keystore SubjectAltNames do not match: existing=[127.0.0.1, localhost], new=[elsewhere]")
    assert refused(moved, san="true") is None
    assert refused(moved, dn="true") is not None
    Path(config.static["ssl.keystore.location"]).write_text("nonsense")
    assert tls.refusal(config.altered({"log.cleaner.threads": "2"})) is None, "nothing of it would change"
    assert config.dynamic_broker == {}
