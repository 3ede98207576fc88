"""SASL on listeners, from outside: unchanged clients, brokers among themselves, users that come and go."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.waiting import until

from tidelog.broker.metrics.request_metrics import ConnectionRates, collect_connections
from tidelog.client import admin
from tidelog.client.cluster import Cluster as ClientCluster
from tidelog.client.consumer import AutoOffsetReset, ConsumerSettings
from tidelog.client.consumer import Consumer as OwnConsumer
from tidelog.client.producer import Producer as OwnProducer
from tidelog.client.producer import ProducerSettings
from tidelog.client.security import ClientSecurity
from tidelog.metrics.page import Page, joined
from tidelog.testing import Cluster

PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="broker-secret" user_broker="broker-secret" user_alice="alice-secret";'
)
SECURED = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    "connection.failed.authentication.delay.ms": "20",
}
LISTENERS = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}


def settings(bootstrap: str, mechanism: str, user: str, password: str, **more: object) -> dict[str, object]:
    """librdkafka's, for one user."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        **more,
    }


def alice(cluster: Cluster, **more: object) -> dict[str, object]:
    return settings(cluster.bootstrap, "PLAIN", "alice", "alice-secret", **more)


def send(client: dict[str, object], topic: str, value: bytes) -> None:
    """Returns when the record is acknowledged; fails where it is refused."""
    errors: list[KafkaError] = []
    producer = Producer({**client, "message.timeout.ms": 180_000})
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(180) == 0
    assert errors == []


def authentication_error(client: dict[str, object]) -> KafkaError:
    """The first error that librdkafka tells of."""
    errors: list[KafkaError] = []
    admin = AdminClient({**client, "error_cb": errors.append})
    until(lambda: admin.poll(0.05) is not None and bool(errors))
    return errors[0]


def authentications(cluster: Cluster, outcome: str) -> int:
    """How many there were by the brokers' metrics."""
    found = 0
    for runtime in cluster.runtimes.values():
        page = Page()
        for _ in collect_connections(page, runtime._server, ConnectionRates(runtime._server)):
            pass
        text = joined(list(page.chunks())).decode()
        labels = r'\{listener="SASL_PLAINTEXT",networkProcessor="0",networkprocessor="0"\}'
        name = f"kafka_server_socket_server_metrics_{outcome}_authentication_total"
        found += sum(map(int, re.findall(rf"^{name}{labels} (\d+)$", text, re.MULTILINE)))
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two brokers, which authenticate to each other too."""
    with Cluster(SECURED, brokers=2, of_broker={0: LISTENERS, 1: LISTENERS}) as started:
        yield started


def test_plain_users_produce_and_consume_over_replicas(cluster: Cluster) -> None:
    """acks=all: the follower has fetched as a user that may."""
    admin = AdminClient(alice(cluster))
    admin.create_topics([NewTopic("t", 1, 2)])["t"].result(180)
    send(alice(cluster, acks="all"), "t", b"one")
    consumer = Consumer(alice(cluster, **{"group.id": "g", "enable.auto.commit": False}))
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        (message,) = consumer.consume(1, 180)
        assert message.value() == b"one"
    finally:
        consumer.close()


def test_wrong_passwords_and_unknown_users_are_told_at_once(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The client's usual error; the log says who and why, and never the password."""
    with caplog.at_level(logging.WARNING):
        for user, password in (("alice", "hunter2"), ("mallory", "hunter2")):
            error = authentication_error(settings(cluster.bootstrap, "PLAIN", user, password))
            assert error.code() == KafkaError._AUTHENTICATION
            assert "Invalid username or password" in error.str()
        error = authentication_error(settings(cluster.bootstrap, "SCRAM-SHA-256", "mallory", "hunter2"))
        assert "invalid credentials" in error.str()
    assert "authentication_failed: peer=127.0.0.1" in caplog.text
    assert "user 'mallory' has no SCRAM-SHA-256 credential" in caplog.text
    assert "hunter2" not in caplog.text
    assert authentications(cluster, "failed") >= 3
    assert authentications(cluster, "successful") > 0, "of the brokers themselves"


def test_scram_users_come_by_the_api_and_go(cluster: Cluster) -> None:
    """As kafka-configs makes them: in force on every broker, described without keys, refused once deleted."""
    admin = AdminClient(alice(cluster))
    for name, mechanism in (
        ("SCRAM-SHA-256", ScramMechanism.SCRAM_SHA_256),
        ("SCRAM-SHA-512", ScramMechanism.SCRAM_SHA_512),
    ):
        added = UserScramCredentialUpsertion("bob,=", ScramCredentialInfo(mechanism, 4096), b"bob-secret")
        admin.alter_user_scram_credentials([added])["bob,="].result(180)
        for broker_id in (0, 1):
            bob = settings(cluster.address(broker_id), name, "bob,=", "bob-secret")
            asked = AdminClient(bob)
            metadata = asked.list_topics(timeout=180)
            assert len(metadata.brokers) == 2
    described = admin.describe_user_scram_credentials(["bob,="])["bob,="].result(180)
    assert sorted(info.iterations for info in described.scram_credential_infos) == [4096, 4096]
    gone = UserScramCredentialDeletion("bob,=", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([gone])["bob,="].result(180)
    error = authentication_error(settings(cluster.bootstrap, "SCRAM-SHA-256", "bob,=", "bob-secret"))
    assert error.code() == KafkaError._AUTHENTICATION
    with pytest.raises(KafkaException) as missing:
        admin.alter_user_scram_credentials([gone])["bob,="].result(180)
    assert missing.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND
    weak = UserScramCredentialUpsertion("carl", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4095), b"x")
    with pytest.raises(KafkaException, match="Too few iterations"):
        admin.alter_user_scram_credentials([weak])["carl"].result(180)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x00\xc8" + b"\0" * 60,
        struct.pack(">i", -1),
        struct.pack(">i", 524_289),
        struct.pack(">ihhih", 10, 3, 1, 1, 0),
        struct.pack(">ihhih", 10, 0, 9, 1, 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 0),
    ],
)
def test_what_does_not_authenticate_is_closed_without_an_answer(cluster: Cluster, sent: bytes) -> None:
    """Other protocols, frames too large, requests too soon."""
    host, _, port = cluster.address(0).rpartition(":")
    with socket.create_connection((host, int(port)), timeout=180) as connection:
        connection.sendall(sent)
        assert connection.recv(100) == b""


def test_a_session_ends_unless_it_is_renewed() -> None:
    """connections.max.reauth.ms: librdkafka authenticates anew, and so do brokers among themselves.

    librdkafka does so when nine tenths of a session are over: a short one leaves it no time on a busy machine.
    """
    session_ms = 10_000
    reauthenticating = {**SECURED, "connections.max.reauth.ms": str(session_ms)}
    with Cluster(reauthenticating, brokers=2, of_broker={0: LISTENERS, 1: LISTENERS}) as cluster:
        admin = AdminClient(alice(cluster))
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(180)
        errors: list[KafkaError] = []
        producer = Producer({**alice(cluster, acks="all"), "error_cb": errors.append})
        started_ms = cluster.runtime.node.clock.monotonic_ms()
        while cluster.runtime.node.clock.monotonic_ms() - started_ms < session_ms * 1.1:
            producer.produce("t", b"x", partition=0)
            assert producer.flush(180) == 0
            producer.poll(0.1)
        assert errors == []


def test_our_own_members_and_transactions_log_in_to_their_coordinators(cluster: Cluster) -> None:
    """Each of them has a connection of its own to the broker that coordinates it."""
    security = ClientSecurity.from_properties(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
        }
    )

    async def run() -> None:
        async with ClientCluster(cluster.bootstrap, security=security) as client:
            topic = [admin.NewTopic("own", 1, 1)]
            await client.run(admin.create_topics(client.routing, topic))
            transactional = ProducerSettings(transactional_id="own")
            async with OwnProducer(client, transactional) as producer, producer.transaction():
                await producer.send("own", value=b"x", partition=0)
            settings = ConsumerSettings(auto_offset_reset=AutoOffsetReset.EARLIEST)
            async with OwnConsumer(client, "own", settings) as consumer:
                consumer.subscribe(["own"])
                batch = await consumer.poll(180)
                assert batch is not None
                assert [record.value for record in batch] == [b"x"]

    asyncio.run(run())
