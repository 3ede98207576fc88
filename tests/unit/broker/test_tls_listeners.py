"""TLS on listeners, from outside: who gets in, as whom, between brokers too, and what the log says of the others."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from tests.certificates import Authority
from tests.waiting import until

from tidelog.broker.failure import BrokerFailed
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import AuthenticationError
from tidelog.client.security import ClientSecurity
from tidelog.testing import Cluster

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def server_pem(authority: Authority) -> Path:
    return authority.issue("broker", "/O=Tide/CN=broker")


def secured(authority: Authority, server_pem: Path) -> dict[str, str]:
    """Brokers that show certificates to each other, clients by certificate or by SASL."""
    return {
        "listener.security.protocol.map": "SSL:SSL,SASL_SSL:SASL_SSL",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server_pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": r"RULE:^CN=([^,]+).*$/$1/L",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user_alice="alice-secret";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker;User:alice",
    }


LISTENERS = {"listeners": "SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0"}


@pytest.fixture(scope="module")
def cluster(authority: Authority, server_pem: Path) -> Iterator[Cluster]:
    with Cluster(secured(authority, server_pem), brokers=2, of_broker={0: LISTENERS, 1: LISTENERS}) as started:
        yield started


def sasl_ssl(cluster: Cluster, authority: Authority, **more: object) -> dict[str, object]:
    """librdkafka's settings for alice."""
    return {
        "bootstrap.servers": cluster.runtime.addresses[1],
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
        "ssl.ca.location": str(authority.certificate),
        **more,
    }


def mutual(cluster: Cluster, authority: Authority, pem: Path) -> dict[str, object]:
    """librdkafka's settings for a client with a certificate."""
    return {
        "bootstrap.servers": cluster.runtime.addresses[0],
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.certificate),
        "ssl.certificate.location": str(pem),
        "ssl.key.location": str(pem),
    }


def test_records_go_encrypted_to_followers_and_to_clients(cluster: Cluster, authority: Authority) -> None:
    """SASL_SSL for the client, certificates between the brokers; large values, which plaintext sends by sendfile."""
    admin = AdminClient(sasl_ssl(cluster, authority))
    admin.create_topics([NewTopic("t", 1, 2)])["t"].result(180)
    producer = Producer(sasl_ssl(cluster, authority, acks="all"))
    values = [bytes([index]) * 300_000 for index in range(5)]
    errors: list[object] = []
    for value in values:
        producer.produce("t", value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(180) == 0
    assert errors == [None] * len(values)
    consumer = Consumer(sasl_ssl(cluster, authority, **{"group.id": "g", "enable.auto.commit": False}))
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        assert [message.value() for message in consumer.consume(len(values), 180)] == values
    finally:
        consumer.close()


def test_a_certificate_names_the_principal(cluster: Cluster, authority: Authority) -> None:
    """By ssl.principal.mapping.rules: bob may see nothing, the brokers' own name everything."""
    admin = AdminClient(sasl_ssl(cluster, authority))
    admin.create_topics([NewTopic("seen", 1, 2)])["seen"].result(180)
    for name, topics in (("Bob", set()), ("Broker", {"seen"})):
        client = AdminClient(mutual(cluster, authority, authority.issue(name.lower() + "-c", f"/O=Tide/CN={name}")))
        assert client.list_topics(timeout=180).topics.keys() & {"seen"} == topics


def test_who_is_not_trusted_stays_outside(
    cluster: Cluster, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A foreign CA on either side, no certificate, a wrong host name: an error at once, and a line in the log."""
    foreign = Authority(tmp_path / "foreign", "foreign CA")
    stranger = foreign.issue("stranger", "/CN=broker")
    host, port = cluster.runtime.addresses[0].rsplit(":", 1)
    ours = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)}
    with caplog.at_level(logging.WARNING):
        with pytest.raises(AuthenticationError, match=r"self.signed|unable to get local issuer"):
            ask(f"{host}:{port}", {**ours, "ssl.ca.location": str(foreign.certificate)})
        shown = {"ssl.certificate.location": str(stranger), "ssl.key.location": str(stranger)}
        for more in ({}, shown):
            # The alert says why, which TLS 1.3 sends when the client believes itself in; asking again is of no use.
            with pytest.raises(AuthenticationError, match=r"ALERT_(CERTIFICATE_REQUIRED|UNKNOWN_CA|BAD_CERTIFICATE)"):
                ask(f"{host}:{port}", {**ours, **more})
        with socket.create_connection((host, int(port)), timeout=180) as plain:
            plain.sendall(b"\0\0\0\x0a" + b"\0" * 10)
            assert plain.recv(100) == b""
        until(lambda: caplog.text.count("tls_handshake_failed: listener=SSL") >= 3)
        # Clients of asyncio send no alert where they do not trust the broker; one that says nothing is no such client.
        before = caplog.text.count("tls_handshake_failed")
        socket.create_connection((host, int(port)), timeout=180).close()
        trusting = ssl.create_default_context(cafile=foreign.certificate)
        with pytest.raises(ssl.SSLError):
            asyncio.run(asyncio.open_connection(host, int(port), ssl=trusting))  # type: ignore[arg-type]
        until(lambda: "ended the connection in its handshake" in caplog.text)
        assert caplog.text.count("tls_handshake_failed") == before + 1
    wrong = authority.issue("wrong", "/CN=broker", "DNS:elsewhere")
    with Cluster(
        {**secured(authority, wrong), "ssl.client.auth": "none", **LISTENERS, "super.users": "User:ANONYMOUS"}
    ) as other:
        with pytest.raises(AuthenticationError, match=r"mismatch|doesn.t match"):
            ask(other.runtime.addresses[0], ours)
        ask(other.runtime.addresses[0], {**ours, "ssl.endpoint.identification.algorithm": ""})


def ask(address: str, properties: dict[str, str]) -> None:
    """Our own client asks for the topics, twice by the same connection."""
    security = ClientSecurity.from_properties(properties)
    with BlockingCluster(address, security=security, fail_fast=True, operation_timeout_s=180) as cluster:
        cluster.topics()
        connections = dict(cluster._connections)
        cluster.topics()
        assert all(cluster._connections[broker] is known for broker, known in connections.items())


def test_certificates_are_loaded_again_when_the_file_changes(authority: Authority, tmp_path: Path) -> None:
    """New connections see the new one; what cannot be read leaves the former in use."""
    file = tmp_path / "server.pem"
    shutil.copy(authority.issue("first", "/CN=first"), file)
    settings = {**secured(authority, file), "ssl.client.auth": "none", **LISTENERS}
    with Cluster(settings) as cluster:
        tls = cluster.runtime._tls["SSL"]
        assert shown(cluster, authority) == "first"
        shutil.copy(authority.issue("second", "/CN=second"), file)
        cluster.call(tls.look)
        assert shown(cluster, authority) == "second"
        file.write_text("nonsense")
        cluster.call(tls.look)
        assert shown(cluster, authority) == "second"


def test_a_key_store_that_cannot_be_used_is_not_stored(authority: Authority, server_pem: Path, tmp_path: Path) -> None:
    """The broker that is asked looks at its own file before anything is altered, and librdkafka asks that one."""
    with Cluster(secured(authority, server_pem), of_broker={0: LISTENERS}) as cluster:
        client = AdminClient(sasl_ssl(cluster, authority))

        def alter(location: object) -> None:
            entry = ConfigEntry(
                "listener.name.ssl.ssl.keystore.location",
                str(location),
                incremental_operation=AlterConfigOpType.SET,
            )
            resource = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=[entry])
            client.incremental_alter_configs([resource])[resource].result(180)

        with pytest.raises(KafkaException, match=r"missing\.pem") as caught:
            alter(tmp_path / "missing.pem")
        assert caught.value.args[0].code() == KafkaError.INVALID_REQUEST
        assert not cluster.runtime.config.dynamic_broker
        shutil.copy(server_pem, tmp_path / "copied.pem")
        alter(tmp_path / "copied.pem")
        assert cluster.runtime.config.of_listener("SSL", "ssl.keystore.location") == str(tmp_path / "copied.pem")


def shown(cluster: Cluster, authority: Authority) -> str:
    """The common name of the certificate that a new connection is shown."""
    host, port = cluster.runtime.addresses[0].rsplit(":", 1)
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with (
        socket.create_connection((host, int(port)), timeout=180) as plain,
        context.wrap_socket(plain, server_hostname=host) as encrypted,
    ):
        certificate = encrypted.getpeercert()
        assert certificate is not None
        return dict(part[0] for part in certificate["subject"])["commonName"]


def test_what_cannot_be_used_stops_the_start(authority: Authority, server_pem: Path, tmp_path: Path) -> None:
    """A missing file, a key that is none, a rule that is none."""
    (tmp_path / "empty.pem").write_text("")
    for changed, reason in (
        ({"ssl.keystore.location": str(tmp_path / "missing.pem")}, "No such file"),
        ({"ssl.keystore.location": str(tmp_path / "empty.pem")}, "no certificate or no private key"),
        ({"ssl.keystore.location": str(authority.certificate)}, "cannot be used"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "Invalid rule"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "no TLS version is left"),
        ({"ssl.cipher.suites": "NONSENSE"}, "cipher suites cannot be used"),
    ):
        with pytest.raises(BrokerFailed, match=reason):
            Cluster({**secured(authority, server_pem), **LISTENERS, **changed}).start()


def test_librdkafka_tells_its_usual_error(cluster: Cluster, authority: Authority, tmp_path: Path) -> None:
    """Of a CA that it does not know."""
    foreign = Authority(tmp_path / "foreign", "foreign CA")
    errors: list[KafkaError] = []
    admin = AdminClient(sasl_ssl(cluster, foreign, error_cb=errors.append))
    until(lambda: admin.poll(0.05) is not None and bool(errors))
    assert "certificate verify failed" in errors[0].str()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_hears_why_and_is_not_listened_to(
    cluster: Cluster, authority: Authority, version: ssl.TLSVersion
) -> None:
    """The alert comes though the client goes on sending; the connection is open until the client ends it."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.minimum_version = context.maximum_version = version
    host, port = cluster.runtime.addresses[0].rsplit(":", 1)

    def try_to_enter() -> None:
        with (
            socket.create_connection((host, int(port)), timeout=180) as plain,
            # In TLS 1.2 this fails, in 1.3 the client believes itself in.
            context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as client,
        ):
            client.sendall(b"\0" * 300_000)
            client.recv(1)

    with pytest.raises(ssl.SSLError, match="ALERT"):
        try_to_enter()
