"""ACLs on a cluster of two brokers, from outside: made by the API on one, in force on both, kept over a restart."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.unit.broker.test_sasl_listeners import LISTENERS, PLAIN_USERS, SECURED, settings
from tests.waiting import until

from tidelog.testing import Cluster

AUTHORIZED = {
    **SECURED,
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS[:-1] + ' user_bob="bob-secret";',
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:broker",
}


def acl(name: str, operation: AclOperation, pattern: ResourcePatternType = ResourcePatternType.LITERAL) -> AclBinding:
    """Allows bob something on a topic."""
    return AclBinding(ResourceType.TOPIC, name, pattern, "User:bob", "*", operation, AclPermissionType.ALLOW)


EVERYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(AUTHORIZED, brokers=2, of_broker={0: LISTENERS, 1: LISTENERS}) as started:
        yield started


def admin_of(cluster: Cluster, broker_id: int, user: str) -> AdminClient:
    return AdminClient(settings(cluster.address(broker_id), "PLAIN", user, f"{user}-secret"))


def test_acls_are_made_on_one_broker_and_hold_on_both(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Denied before, with a line in the log; allowed after; denied again once the ACL is deleted."""
    broker = admin_of(cluster, 0, "broker")
    broker.create_topics([NewTopic("orders-1", 2, 2), NewTopic("secret", 1, 1)])["orders-1"].result(180)
    bobs = [admin_of(cluster, broker_id, "bob") for broker_id in (0, 1)]
    with caplog.at_level(logging.INFO):
        assert [set(bob.list_topics(timeout=180).topics) for bob in bobs] == [set(), set()]
        metadata = bobs[0].list_topics("orders-1", timeout=180)
    assert metadata.topics["orders-1"].error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert "access_denied: principal=User:bob host=127.0.0.1 operation=DESCRIBE resource=TOPIC:LITERAL:orders-1" in (
        caplog.text
    )
    allowed = acl("orders-", AclOperation.WRITE, ResourcePatternType.PREFIXED)
    broker.create_acls([allowed])[allowed].result(180)
    for bob in bobs:
        until(lambda bob=bob: set(bob.list_topics(timeout=180).topics) == {"orders-1"})
    errors: list[KafkaError] = []
    producer = Producer(settings(cluster.bootstrap, "PLAIN", "bob", "bob-secret", acks="all"))
    for partition in (0, 1):
        producer.produce("orders-1", b"x", partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(180) == 0
    assert errors == [None, None]
    assert broker.describe_acls(EVERYTHING).result(180) == [allowed]
    deleted = broker.delete_acls([EVERYTHING])[EVERYTHING].result(180)
    assert deleted == [allowed]
    for bob in bobs:
        until(lambda bob=bob: set(bob.list_topics(timeout=180).topics) == set())


def test_admin_requests_are_judged_in_their_clients_name_wherever_the_controller_is(cluster: Cluster) -> None:
    """A forwarded request carries its principal: the broker that forwards it lends it no right."""
    for broker_id in (0, 1):
        bob = admin_of(cluster, broker_id, "bob")
        with pytest.raises(KafkaException) as denied:
            bob.create_topics([NewTopic("mine", 1, 1)])["mine"].result(180)
        assert denied.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        wanted = acl("secret", AclOperation.ALL)
        with pytest.raises(KafkaException) as refused:
            bob.create_acls([wanted])[wanted].result(180)
        assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_acls_outlive_the_cluster_and_are_those_of_the_store() -> None:
    """In Kafka 3.9's nodes; what cannot be read there is open to super users alone."""
    with Cluster({**AUTHORIZED, **LISTENERS}) as cluster:
        broker = admin_of(cluster, 0, "broker")
        broker.create_topics([NewTopic("t", 1, 1), NewTopic("u", 1, 1)])["t"].result(180)
        wanted = [acl("t", AclOperation.READ), acl("u", AclOperation.READ)]
        for future in broker.create_acls(wanted).values():
            future.result(180)

        async def nodes() -> tuple[dict[str, object], list[str]]:
            store = cluster.runtime._driver.store  # type: ignore[union-attr]
            data, _ = await store.get("/kafka-acl/Topic/t")
            await store.set("/kafka-acl/Topic/u", b"{")
            return json.loads(data or b""), list((await store.children("/kafka-acl-changes"))[0])

        content, changes = cluster._wait(nodes())
        entry = {"principal": "User:bob", "permissionType": "Allow", "host": "*", "operation": "Read"}
        assert content == {"acls": [entry], "version": 1}
        assert changes == ["acl_changes_0000000000", "acl_changes_0000000001"]
        cluster.restart()
        bob = admin_of(cluster, 0, "bob")
        until(lambda: set(bob.list_topics(timeout=180).topics) == {"t"})
        again = admin_of(cluster, 0, "broker")
        until(lambda: set(again.list_topics(timeout=180).topics) >= {"t", "u"})
