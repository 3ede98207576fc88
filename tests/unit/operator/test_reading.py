"""A cluster's state, read through the protocol: whole from ours, with what is missing from an old one."""

from __future__ import annotations

from typing import Any

from tests.unit.client.scripted_broker import ScriptedBroker

from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.operator.reading import read_state
from tidelog.placement.plan.state import ClusterState
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.testing import Cluster


def state_of(bootstrap: str) -> ClusterState:
    with BlockingCluster(bootstrap, operation_timeout_s=10) as client:
        return client.run(read_state(client.routing, taken_at_ms=5))


def test_a_cluster_of_ours_tells_everything() -> None:
    """Racks, directories with sizes, replicas with bytes, throttles of brokers and topics, nothing missing."""
    with Cluster(brokers=2, of_broker={0: {"broker.rack": "a"}, 1: {"broker.rack": "b"}}) as cluster:
        with BlockingCluster(cluster.bootstrap) as client:
            topic = admin.NewTopic("t", assignment={0: (1, 0), 1: (0, 1)}, configs={"min.insync.replicas": "1"})
            client.run(admin.create_topics(client.routing, [topic]))
            changes = {
                admin.ConfigResource(admin.ResourceType.BROKER, "1"): [
                    admin.ConfigChange("follower.replication.throttled.rate", "1000")
                ],
                admin.ConfigResource(admin.ResourceType.TOPIC, "t"): [
                    admin.ConfigChange("leader.replication.throttled.replicas", "0:1")
                ],
            }
            client.run(admin.alter_configs(client.routing, changes))
        state = state_of(cluster.bootstrap)
    assert state.missing == ()
    assert [broker.rack for broker in state.brokers.values()] == ["a", "b"]
    assert state.brokers[1].throttles == {"follower.replication.throttled.rate": "1000"}
    directory = state.brokers[0].directories[0]
    assert directory.total_bytes is not None
    assert directory.usable_bytes is not None
    assert 0 < directory.usable_bytes <= directory.total_bytes
    assert state.topics["t"].throttles == {"leader.replication.throttled.replicas": "0:1"}
    assert state.topics["t"].min_insync_replicas == 1
    partition = state.partitions[TopicPartition("t", 0)]
    assert (partition.replicas, partition.sizes) == ((1, 0), (0, 0))
    assert partition.directories[1] == directory.path
    assert (state.taken_at_ms, state.reassignments, state.directory_moves) == (5, {}, ())


def log_dirs(request: Any, version: int) -> Any:
    kind = messages.DescribeLogDirsResponse
    replica = kind.DescribeLogDirsPartition(partition_index=0, partition_size=77, offset_lag=0, is_future_key=False)
    copy = kind.DescribeLogDirsPartition(partition_index=0, partition_size=7, offset_lag=9, is_future_key=True)
    return kind(
        results=[
            kind.DescribeLogDirsResult(
                error_code=ErrorCode.NONE,
                log_dir=path,
                topics=[kind.DescribeLogDirsTopic(name="t", partitions=[found])],
            )
            for path, found in (("/a", replica), ("/b", copy))
        ]
    )


def no_settings(request: Any, version: int) -> Any:
    kind = messages.DescribeConfigsResponse
    return kind(
        results=[
            kind.DescribeConfigsResult(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                error_message="not for you",
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[],
            )
            for resource in request.resources
        ]
    )


def test_an_old_cluster_tells_what_it_can() -> None:
    """Kafka 2.4's version of DescribeLogDirs has no sizes of directories; a refusal is listed, and so is a lack."""
    handlers = {ApiKey.DESCRIBE_LOG_DIRS: log_dirs, ApiKey.DESCRIBE_CONFIGS: no_settings}
    versions = {ApiKey.DESCRIBE_LOG_DIRS: (0, 1), ApiKey.DESCRIBE_CONFIGS: (0, 2)}
    with ScriptedBroker(handlers, versions=versions, partitions=1) as broker:
        state = state_of(broker.bootstrap)
    [only] = state.brokers.values()
    assert [(each.path, each.total_bytes, each.usable_bytes) for each in only.directories] == [
        ("/a", None, None),
        ("/b", None, None),
    ]
    [partition] = state.partitions.values()
    assert (partition.directories, partition.sizes) == (("/a",), (77,))
    assert [(move.path, move.bytes_done) for move in state.directory_moves] == [("/b", 7)]
    assert any("sizes of log directories" in line for line in state.missing)
    assert any("not for you" in line for line in state.missing)
