"""A member that subscribes with a pattern (KIP-848) hears of no topic that it may not describe."""

from __future__ import annotations

from tests.waiting import until

from tidelog.client import admin
from tidelog.client.addresses import parse_bootstrap
from tidelog.client.blocking import BlockingCluster, BlockingConnection
from tidelog.client.security import ClientSecurity
from tidelog.client.throttles import Throttles
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.security.access import Operation, ResourceType
from tidelog.security.acls import AclBinding, AclEntry, Permission, ResourcePattern
from tidelog.testing import Cluster

MEMBER = "m" * 22


def test_denied_topics_are_left_out() -> None:
    """Neither their ids nor their partitions; topics that the pattern stands for and that are allowed are there."""
    allowed = [
        AclBinding(ResourcePattern(kind, name), AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW))
        for kind, name in ((ResourceType.TOPIC, "mine"), (ResourceType.GROUP, "g"))
    ]
    with Cluster(security=["admin", "alice"]) as cluster:
        [address] = parse_bootstrap(cluster.bootstrap)
        with BlockingCluster(
            cluster.bootstrap, security=ClientSecurity.from_file(cluster.client_properties())
        ) as client:
            made = client.run(
                admin.create_topics(client.routing, [admin.NewTopic("mine", 1), admin.NewTopic("minerals", 1)])
            )
            client.run(admin.create_acls(client.routing, allowed))
        ids = {name: topic.topic_id for name, topic in made.items() if isinstance(topic, admin.CreatedTopic)}
        connection = BlockingConnection(
            address,
            client_id="alice",
            timeout_s=20,
            throttles=Throttles(lambda: 0.0),
            security=ClientSecurity.from_file(cluster.client_properties("alice")),
        )
        told: list[set[bytes]] = []
        epoch = 0

        def beat() -> bool:
            nonlocal epoch
            # Makes the topic that groups are kept in.
            connection.request(messages.FindCoordinatorRequest(coordinator_keys=["g"]))
            joining = epoch == 0
            answer = connection.request(
                messages.ConsumerGroupHeartbeatRequest(
                    group_id="g",
                    member_id=MEMBER,
                    member_epoch=epoch,
                    rebalance_timeout_ms=30_000,
                    subscribed_topic_regex="min.*" if joining else None,
                    subscribed_topic_names=None,
                    topic_partitions=[] if joining else None,
                )
            )
            if answer.error_code == ErrorCode.NONE:
                epoch = answer.member_epoch
                if answer.assignment is not None:
                    told.append({bytes(each.topic_id) for each in answer.assignment.topic_partitions})
            return any(told)

        try:
            until(beat)
        finally:
            connection.close()
    assert told[-1] == {bytes(ids["mine"])}
    assert not any(bytes(ids["minerals"]) in each for each in told)
