"""A listener's TLS without sockets: whom it trusts after files or settings have changed, and what it cannot read."""

from __future__ import annotations

import logging
import ssl
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
