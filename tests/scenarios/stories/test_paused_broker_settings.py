"""A broker that stands still past its session, while a topic's records are declared to be kept for ever.

Records here are years old: by the default of seven days they go with the next look of retention. In the past the
broker came back with that default, and what it led was gone.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.support import DEADLINE_S
from tests.scenarios.observing import alter, send, watermarks
from tests.waiting import until

from tidelog.testing import Cluster

pytestmark = pytest.mark.row("R07")

RECORDS = 20
SETTINGS = {
    "zookeeper.session.timeout.ms": 1_500,
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 200,
    "auto.leader.rebalance.enable": False,
}


def test_a_broker_that_was_paused_past_its_session_keeps_what_is_to_be_kept() -> None:
    with Cluster(SETTINGS, brokers=3, processes=True) as cluster:
        everyone = AdminClient({"bootstrap.servers": cluster.bootstrap})
        controller = everyone.describe_cluster().result(DEADLINE_S).controller.id
        victim = (controller + 1) % 3
        replicas = [victim, *(other for other in range(3) if other != victim)]
        for topic in ("kept", "gone"):
            [done] = everyone.create_topics([NewTopic(topic, 1, replica_assignment=[replicas])]).values()
            done.result(DEADLINE_S)
        others: Any = SimpleNamespace(bootstrap=cluster.address(controller))
        admin = AdminClient({"bootstrap.servers": others.bootstrap})

        def state(topic: str) -> Any:
            return admin.list_topics(topic, DEADLINE_S).topics[topic].partitions[0]

        cluster.pause(victim)
        until(lambda: victim not in (state("kept").leader, *state("kept").isrs), "the others go on")
        alter(others, "kept", retention_ms=-1)
        assert not send(others, "kept", [b"value"] * RECORDS, acks="all")
        cluster.resume(victim)
        until(lambda: victim in state("kept").isrs and victim in state("gone").isrs, "it is back in sync")
        partitions = [TopicPartition(topic, 0) for topic in ("kept", "gone")]

        def leads() -> bool:
            # On a busy machine it may lose the short session again, after it was elected.
            admin.elect_leaders(ElectionType.PREFERRED, partitions).result(DEADLINE_S)
            return {state("kept").leader, state("gone").leader} == {victim}

        until(leads, "it leads again")
        assert not send(cluster, "gone", [b"value"] * RECORDS, acks="all")
        until(lambda: watermarks(cluster, "gone")[0] == RECORDS, "retention has been at its logs")
        assert watermarks(cluster, "kept") == (0, RECORDS)
