"""Metadata, DescribeCluster, DescribeTopicPartitions, ApiVersions: what a client learns about the cluster."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.harness import Broker, topic_id_of

from tidelog.controller.requests import CreatedTopic, CreateTopics
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerId, TopicId
from tidelog.protocol import apis, messages
from tidelog.protocol.apis import ApiKey

AskedTopic = messages.MetadataRequest.MetadataRequestTopic


def metadata(broker: Broker, topics: list[str] | None, version: int = 12, **fields: Any) -> messages.MetadataResponse:
    asked = None if topics is None else [AskedTopic(name=name) for name in topics]
    return broker.ask(ApiKey.METADATA, version, messages.MetadataRequest(topics=asked, **fields))


@pytest.mark.parametrize("version", range(14))
def test_every_version_names_brokers_and_topics(broker: Broker, version: int) -> None:
    """All topics: asked for by an empty list in v0, by null from v1 on."""
    response = metadata(broker, [] if version == 0 else None, version)
    assert [(node.node_id, node.host, node.port) for node in response.brokers] == [(0, "127.0.0.1", 9092)]
    assert [topic.name for topic in response.topics] == ["t"]
    assert [(part.partition_index, part.leader_id) for part in response.topics[0].partitions] == [
        (0, 0),
        (1, 0),
        (2, 0),
    ]
    if version >= 1:
        assert response.controller_id == 0
    if version >= 2:
        assert response.cluster_id == "cluster"
    if version >= 10:
        assert bytes(response.topics[0].topic_id) == topic_id_of("t")


def test_an_empty_list_means_no_topics_from_version_1_on(broker: Broker) -> None:
    """A client that asks for no topics gets brokers only."""
    assert metadata(broker, [], 1).topics == []


def test_topics_can_be_asked_for_by_id(broker: Broker) -> None:
    """From v12 on an id will do; one that is unknown is UNKNOWN_TOPIC_ID."""
    request = messages.MetadataRequest(
        topics=[
            AskedTopic(name=None, topic_id=TopicId(topic_id_of("t"))),
            AskedTopic(name=None, topic_id=TopicId(bytes(range(16)))),
        ]
    )
    known, unknown = broker.ask(ApiKey.METADATA, 12, request).topics
    assert (known.name, known.error_code) == ("t", 0)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a/b"])
def test_invalid_names_are_refused(broker: Broker, name: str) -> None:
    """INVALID_TOPIC_EXCEPTION, and nobody tries to create such a topic."""
    assert metadata(broker, [name]).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert broker.controller.submitted == []


def test_an_unknown_topic_is_created_and_its_leader_told(broker: Broker) -> None:
    """auto.create.topics.enable: the answer waits for the controller and names the new partitions."""

    def create(event: Any) -> list[CreatedTopic]:
        assert isinstance(event, CreateTopics)
        (new,) = event.topics
        broker.lead(new.name, 2)
        return [CreatedTopic(new.name)]

    broker.controller.on_submit = create
    (topic,) = metadata(broker, ["fresh"]).topics
    assert (topic.name, topic.error_code, len(topic.partitions)) == ("fresh", 0, 2)


def test_without_a_controller_the_topic_is_unknown(broker: Broker) -> None:
    """When it cannot be created now, the client asks again later."""
    assert metadata(broker, ["fresh"]).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(broker.controller.submitted) == 1


def test_a_client_may_decline_creation(broker: Broker) -> None:
    """allow_auto_topic_creation=false, from v4 on."""
    response = metadata(broker, ["fresh"], allow_auto_topic_creation=False)
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.controller.submitted == []


def test_creation_can_be_turned_off(start_broker: Callable[..., Broker]) -> None:
    """auto.create.topics.enable=false."""
    broker = start_broker(auto_create_topics_enable=False)
    assert metadata(broker, ["fresh"]).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.controller.submitted == []


def test_internal_topics_are_not_created_by_asking(broker: Broker) -> None:
    """__consumer_offsets has settings of its own; its coordinator creates it."""
    assert metadata(broker, ["__consumer_offsets"]).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.controller.submitted == []


def test_a_partition_without_a_leader_says_so(broker: Broker) -> None:
    """LEADER_NOT_AVAILABLE, leader -1, and the replicas of dead brokers are offline."""
    broker.lead("t", 1, leader=-1, leader_epoch=1, isr=[3])
    partition = metadata(broker, ["t"]).topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert partition.offline_replicas == [3]


def test_the_listener_decides_the_address(broker: Broker) -> None:
    """A client of another listener is told that listener's addresses: here nobody has one."""
    broker.peer.listener = "EXTERNAL"
    response = metadata(broker, ["t"])
    assert response.brokers == []
    assert response.topics[0].partitions[0].error_code == ErrorCode.LISTENER_NOT_FOUND


def test_a_deleted_topic_is_gone(broker: Broker) -> None:
    """UpdateMetadata with leader -2 takes partitions away; without partitions the topic is unknown."""
    state = messages.UpdateMetadataRequest.UpdateMetadataPartitionState
    broker.tell_brokers(
        [
            messages.UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name="t",
                topic_id=TopicId(topic_id_of("t")),
                partition_states=[state(partition_index=index, leader=-2) for index in range(3)],
            )
        ]
    )
    assert metadata(broker, None).topics == []


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(broker: Broker, version: int) -> None:
    """Brokers, controller and cluster id; asking for controllers is the wrong question for a broker."""
    response = broker.ask(ApiKey.DESCRIBE_CLUSTER, version, messages.DescribeClusterRequest())
    assert (response.cluster_id, response.controller_id, len(response.brokers)) == ("cluster", 0, 1)
    if version:
        wrong = broker.ask(ApiKey.DESCRIBE_CLUSTER, version, messages.DescribeClusterRequest(endpoint_type=2))
        assert wrong.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


@pytest.mark.parametrize("version", range(3))
def test_the_controller_is_the_leader_of_the_quorum(broker: Broker, version: int) -> None:
    """With the live brokers as voters, without offsets; other topics have no quorum; without a controller none has."""
    asked = messages.DescribeQuorumRequest.TopicData
    partition = messages.DescribeQuorumRequest.PartitionData
    request = messages.DescribeQuorumRequest(
        topics=[
            asked(topic_name="__cluster_metadata", partitions=[partition(partition_index=0)]),
            asked(topic_name="t", partitions=[partition(partition_index=1)]),
        ]
    )
    response = broker.ask(ApiKey.DESCRIBE_QUORUM, version, request)
    metadata_log, other = response.topics
    (found,) = metadata_log.partitions
    image = broker.node.metadata.image
    assert (found.error_code, found.leader_id, found.leader_epoch) == (0, 0, image.controller_epoch)
    assert found.high_watermark == -1
    assert [(voter.replica_id, voter.log_end_offset) for voter in found.current_voters] == [(0, -1)]
    assert found.observers == []
    assert other.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 2:
        (node,) = response.nodes
        assert [(node.node_id, each.host, each.port) for each in node.listeners] == [(0, "127.0.0.1", 9092)]
    image.controller_id = BrokerId(7)
    assert broker.ask(ApiKey.DESCRIBE_QUORUM, version, request).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", range(3))
def test_features_are_in_force_and_stay(broker: Broker, version: int) -> None:
    """An update to the levels that ApiVersions tells succeeds; any other one is refused, with all that came with it."""
    versions = broker.ask(
        ApiKey.API_VERSIONS,
        4,
        messages.ApiVersionsRequest(client_software_name="test", client_software_version="1"),
    )
    in_force = {each.name: each.max_version_level for each in versions.finalized_features}
    assert in_force["metadata.version"] == 30
    update = messages.UpdateFeaturesRequest.FeatureUpdateKey

    def ask(**levels: int) -> messages.UpdateFeaturesResponse:
        updates = [update(feature=name.replace("_", "."), max_version_level=level) for name, level in levels.items()]
        return broker.ask(ApiKey.UPDATE_FEATURES, version, messages.UpdateFeaturesRequest(feature_updates=updates))

    same = ask(**{name.replace(".", "_"): level for name, level in in_force.items()})
    assert (same.error_code, [each.error_code for each in same.results]) == (0, [0] * len(in_force) * (version < 2))
    for wrong in ({"metadata_version": 29}, {"group_version": 1, "streams_version": 1}, {"kraft_version": 0}):
        refused = ask(**wrong)
        codes = [each.error_code for each in refused.results] if version < 2 else [refused.error_code]
        assert codes[-1] == ErrorCode.INVALID_UPDATE_VERSION
        assert version < 2 or "Invalid update version" in refused.error_message


def test_describe_topic_partitions_in_pages(broker: Broker) -> None:
    """Partitions come in the order of names, a page at a time, and the cursor leads through all of them."""
    broker.lead("a", 2)
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        request = messages.DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
        response = broker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
        for topic in response.topics:
            seen += [(topic.name, partition.partition_index) for partition in topic.partitions]
        if response.next_cursor is None:
            break
        cursor = messages.DescribeTopicPartitionsRequest.Cursor(
            topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
        )
    assert seen == [("a", 0), ("a", 1), ("t", 0), ("t", 1), ("t", 2)]


def test_describe_topic_partitions_of_an_unknown_topic(broker: Broker) -> None:
    """A topic that was asked for and is unknown has its error."""
    asked = messages.DescribeTopicPartitionsRequest.TopicRequest
    request = messages.DescribeTopicPartitionsRequest(topics=[asked(name="nope"), asked(name="a b")])
    response = broker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a b", 17), ("nope", 3)]


@pytest.mark.parametrize("version", range(5))
def test_api_versions_advertises_kafkas_ranges(broker: Broker, version: int) -> None:
    """Every served API has the range of Apache Kafka 4.3, Produce from 0 on; the controller's own are not listed."""
    request = messages.ApiVersionsRequest(client_software_name="test-client", client_software_version="1.0")
    response = broker.ask(ApiKey.API_VERSIONS, version, request)
    ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert ranges[ApiKey.PRODUCE] == (0, 13)
    assert not {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA} & set(ranges)
    for key, served in ranges.items():
        advertised = apis.advertised(ApiKey(key))
        assert advertised is not None
        assert served == tuple(advertised), ApiKey(key).name


def test_api_versions_checks_the_clients_name(broker: Broker) -> None:
    """A software name that is none is INVALID_REQUEST (KIP-511)."""
    request = messages.ApiVersionsRequest(client_software_name="-bad name-", client_software_version="1.0")
    assert broker.ask(ApiKey.API_VERSIONS, 3, request).error_code == ErrorCode.INVALID_REQUEST
