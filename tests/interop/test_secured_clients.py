"""Unchanged clients on a secured cluster: SASL_SSL with PLAIN and both SCRAMs, and mutual TLS."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.certificates import Authority
from tidelog.testing import Cluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # It warns about itself as it is imported.
    from kafka import KafkaProducer

pytestmark = [
    # Clients leave sockets behind where a broker refuses them.
    pytest.mark.usefixtures("left_sockets_collected"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PASSWORDS = {"PLAIN": "plain-secret", "SCRAM-SHA-256": "scram-secret", "SCRAM-SHA-512": "scram-secret"}
MECHANISMS = list(PASSWORDS)


@pytest.fixture(scope="module")
def cluster(authority: Authority) -> Iterator[Cluster]:
    """Listeners SASL_SSL and SSL (with client certificates); user alice by PLAIN and by SCRAM."""
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker", "/CN=broker")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user_alice="{PASSWORDS["PLAIN"]}";',
    }
    with Cluster(settings) as started:
        admin = AdminClient({"bootstrap.servers": started.runtime.addresses[2]})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            added = UserScramCredentialUpsertion("alice", info, PASSWORDS["SCRAM-SHA-256"].encode())
            admin.alter_user_scram_credentials([added])["alice"].result(180)
        yield started


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(cluster: Cluster, authority: Authority, mechanism: str) -> None:
    """A record is acknowledged."""
    errors: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.runtime.addresses[0],
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.certificate),
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": PASSWORDS[mechanism],
        }
    )
    producer.produce("librdkafka", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(180) == 0
    assert errors == [None]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(cluster: Cluster, authority: Authority, mechanism: str) -> None:
    """A record is acknowledged."""
    client = KafkaProducer(
        bootstrap_servers=cluster.runtime.addresses[0],
        security_protocol="SASL_SSL",
        ssl_cafile=str(authority.certificate),
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORDS[mechanism],
    )
    assert client.send("kafka-python", b"x").get(180).offset >= 0
    client.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(cluster: Cluster, authority: Authority, mechanism: str) -> None:
    """A record is acknowledged."""

    async def send() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.runtime.addresses[0],
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=str(authority.certificate)),
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=PASSWORDS[mechanism],
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait("aiokafka", b"x")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(send()) >= 0


def test_certificates_instead_of_passwords(cluster: Cluster, authority: Authority, tmp_path: Path) -> None:
    """Mutual TLS with kafka-python and librdkafka."""
    pem = str(authority.issue("client", "/CN=client"))
    client = KafkaProducer(
        bootstrap_servers=cluster.runtime.addresses[1],
        security_protocol="SSL",
        ssl_cafile=str(authority.certificate),
        ssl_certfile=pem,
        ssl_keyfile=pem,
    )
    assert client.send("mutual", b"x").get(180).offset >= 0
    client.close()
    errors: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.runtime.addresses[1],
            "security.protocol": "SSL",
            "ssl.ca.location": str(authority.certificate),
            "ssl.certificate.location": pem,
            "ssl.key.location": pem,
        }
    )
    producer.produce("mutual", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(180) == 0
    assert errors == [None]
