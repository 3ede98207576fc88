"""The admin and offset APIs in every version that is served: old clients speak old ones, and each is answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.support import topic_name
from tests.waiting import until
from tidelog.client.addresses import Address
from tidelog.client.blocking import BlockingConnection
from tidelog.config.group_config import SESSION_TIMEOUT
from tidelog.metadata.image import ConfigResourceType
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.testing import Cluster

NAME = "versions"


@pytest.fixture(scope="module")
def connection(broker: Cluster) -> Iterator[BlockingConnection]:
    host, _, port = broker.bootstrap.rpartition(":")
    client = BlockingConnection(Address(host, int(port)))
    yield client
    client.close()


def create(connection: BlockingConnection, version: int = 7, **changes: Any) -> Any:
    """Asks for a topic with settings; the answer."""
    request = messages.CreateTopicsRequest
    topic = request.CreatableTopic(
        name=topic_name(NAME),
        num_partitions=2,
        replication_factor=1,
        configs=[request.CreatableTopicConfig(name="retention.ms", value="1000")],
    )
    for name, value in changes.items():
        setattr(topic, name, value)
    (result,) = connection.request(request(topics=[topic], timeout_ms=10_000), version).topics
    return result


def created(connection: BlockingConnection) -> tuple[str, TopicId]:
    result = create(connection)
    assert result.error_code == ErrorCode.NONE, result
    return result.name, result.topic_id


def until_coordinated(connection: BlockingConnection, group: str) -> None:
    """The first request has the groups' topic made, and is told to come again where that takes long."""
    request = messages.FindCoordinatorRequest(key=group)
    until(lambda: connection.request(request, 3).error_code == ErrorCode.NONE, f"{group} has a coordinator")


@pytest.mark.row("R05")
@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics(connection: BlockingConnection, version: int) -> None:
    """v5 tells partitions, replicas and settings; v7 the id."""
    result = create(connection, version)
    assert result.error_code == ErrorCode.NONE, result
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (2, 1)
        retention = next(config for config in result.configs if config.name == "retention.ms")
        assert (retention.value, retention.config_source) == ("1000", 1)
    assert (result.topic_id != bytes(16)) == (version >= 7)


@pytest.mark.row("R05")
@pytest.mark.parametrize("version", range(2, 8))
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"name": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 9}, ErrorCode.INVALID_REPLICATION_FACTOR),
        (
            {
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [
                    messages.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[7])
                ],
            },
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_create_topics_refused(
    connection: BlockingConnection, version: int, changes: dict[str, Any], error: ErrorCode
) -> None:
    """With its reason, in every version."""
    result = create(connection, version, **changes)
    assert ErrorCode(result.error_code) is error
    assert result.error_message


def test_a_topic_named_twice_is_refused(connection: BlockingConnection) -> None:
    """Neither of the two is created."""
    topic = messages.CreateTopicsRequest.CreatableTopic(name=topic_name(NAME), num_partitions=1, replication_factor=1)
    (result,) = connection.request(messages.CreateTopicsRequest(topics=[topic, topic], timeout_ms=1000), 7).topics
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")


@pytest.mark.row("R08")
@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics(connection: BlockingConnection, version: int) -> None:
    """By name, and from v6 on by id."""
    name, topic_id = created(connection)
    request = messages.DeleteTopicsRequest
    if version < 6:
        message = request(topic_names=[name, "nobody"], timeout_ms=10_000)
    else:
        topics = [request.DeleteTopicState(topic_id=topic_id), request.DeleteTopicState(name="nobody")]
        message = request(topics=topics, timeout_ms=10_000)
    gone, unknown = connection.request(message, version).responses
    assert (gone.name, gone.error_code) == (name, ErrorCode.NONE)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_delete_topics_by_an_unknown_id_or_by_nothing(connection: BlockingConnection) -> None:
    """Each has an error of its own."""
    state = messages.DeleteTopicsRequest.DeleteTopicState
    topics = [state(topic_id=bytes(range(16))), state(), state(name="x", topic_id=bytes(range(16)))]
    answers = connection.request(messages.DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6).responses
    assert [answer.error_code for answer in answers] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]


@pytest.mark.row("R09")
@pytest.mark.parametrize("version", range(4))
def test_create_partitions(connection: BlockingConnection, version: int) -> None:
    """Upwards only."""
    name, _ = created(connection)
    topic = messages.CreatePartitionsRequest.CreatePartitionsTopic
    for count, error in ((4, ErrorCode.NONE), (3, ErrorCode.INVALID_PARTITIONS)):
        message = messages.CreatePartitionsRequest(
            topics=[topic(name=name, count=count, assignments=None)], timeout_ms=10_000
        )
        (result,) = connection.request(message, version).results
        assert (result.name, result.error_code) == (name, error)


@pytest.mark.row("R29")
@pytest.mark.parametrize("version", range(3))
def test_elect_leaders(connection: BlockingConnection, version: int) -> None:
    """An error for each partition, each once; of all partitions those that need no election are left out."""
    name, _ = created(connection)
    request = messages.ElectLeadersRequest
    wanted = [request.TopicPartitions(topic=name, partitions=[1, 9, 1])]
    response = connection.request(request(topic_partitions=wanted, timeout_ms=10_000), version)
    (topic,) = response.replica_election_results
    assert topic.topic == name
    assert [(result.partition_id, result.error_code) for result in topic.partition_result] == [
        (1, ErrorCode.ELECTION_NOT_NEEDED),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    everything = connection.request(request(topic_partitions=None, timeout_ms=10_000), version)
    assert everything.replica_election_results == []


@pytest.mark.parametrize("version", [1, 2])
def test_elect_leaders_unclean(connection: BlockingConnection, version: int) -> None:
    """From v1 on; not needed where somebody leads, and other types than two are refused as a whole."""
    name, _ = created(connection)
    request = messages.ElectLeadersRequest
    wanted = [request.TopicPartitions(topic=name, partitions=[0])]
    response = connection.request(request(election_type=1, topic_partitions=wanted, timeout_ms=10_000), version)
    [topic] = response.replica_election_results
    assert topic.partition_result[0].error_code == ErrorCode.ELECTION_NOT_NEEDED
    refused = connection.request(request(election_type=7, topic_partitions=wanted, timeout_ms=10_000), version)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.replica_election_results[0].partition_result[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.row("R12")
@pytest.mark.parametrize("version", range(2))
def test_alter_partition_reassignments(connection: BlockingConnection, version: int) -> None:
    """Each partition has its own error, in Kafka's words; one that is where it should be is begun and done."""
    name, _ = created(connection)
    request = messages.AlterPartitionReassignmentsRequest
    wishes = [([0], 0), ([0, 0], 1), ([], 2), ([-1], 0), ([7], 0), (None, 0), ([0], 99)]
    outcomes = []
    for replicas, index in wishes:
        wish = request.ReassignablePartition(partition_index=index, replicas=replicas)
        topics = [request.ReassignableTopic(name=name, partitions=[wish])]
        response = connection.request(request(topics=topics, timeout_ms=10_000), version)
        assert (response.error_code, response.responses[0].name) == (0, name)
        [outcome] = response.responses[0].partitions
        assert outcome.partition_index == index
        outcomes.append((ErrorCode(outcome.error_code), outcome.error_message))
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert outcomes == [
        (ErrorCode.NONE, None),
        (refused, "Duplicate replica ids in partition reassignment replica list: [0, 0]"),
        (refused, "Empty replica list specified in partition reassignment."),
        (refused, "Invalid broker id in replica list: [-1]"),
        (refused, "Replica assignment has brokers that are not alive. Replica list: [7], live broker list: [0]"),
        (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."),
    ]


@pytest.mark.row("R12")
def test_list_partition_reassignments(connection: BlockingConnection) -> None:
    """Nothing is under way on one broker; what is asked about and is not there is left out."""
    name, _ = created(connection)
    request = messages.ListPartitionReassignmentsRequest
    wanted = [request.ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 99])]
    for topics in (None, wanted):
        response = connection.request(request(topics=topics, timeout_ms=10_000), 0)
        assert (response.error_code, response.topics) == (0, [])


@pytest.mark.row("R34")
@pytest.mark.parametrize("version", range(3))
def test_delete_records(connection: BlockingConnection, version: int) -> None:
    """An error for each partition."""
    name, _ = created(connection)
    request = messages.DeleteRecordsRequest
    partitions = [
        request.DeleteRecordsPartition(partition_index=index, offset=offset)
        for index, offset in ((0, -1), (1, 5), (9, 0))
    ]
    message = request(topics=[request.DeleteRecordsTopic(name=name, partitions=partitions)], timeout_ms=1000)
    (topic,) = connection.request(message, version).topics
    assert [(found.low_watermark, found.error_code) for found in topic.partitions] == [
        (0, ErrorCode.NONE),
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def describe(
    connection: BlockingConnection, kind: int, name: str, version: int = 4, keys: list[str] | None = None
) -> Any:
    request = messages.DescribeConfigsRequest
    message = request(
        resources=[request.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)],
        include_synonyms=True,
        include_documentation=version >= 3,
    )
    (result,) = connection.request(message, version).results
    return result


@pytest.mark.row("R07")
@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs(connection: BlockingConnection, version: int) -> None:
    """Synonyms and sources; types and documentation from v3 on; a broker as well."""
    name, _ = created(connection)
    result = describe(connection, ConfigResourceType.TOPIC, name, version, ["retention.ms"])
    (entry,) = result.configs
    assert (entry.value, entry.config_source, entry.read_only) == ("1000", 1, False)
    assert [synonym.name for synonym in entry.synonyms] == ["retention.ms", "log.retention.hours"]
    if version >= 3:
        assert entry.config_type == 5
        assert "largest timestamp" in entry.documentation
    broker = describe(connection, ConfigResourceType.BROKER, "0", version)
    entries = {entry.name: entry for entry in broker.configs}
    assert entries["broker.id"].read_only
    assert entries["broker.id"].config_source == 4
    assert entries["log.retention.hours"].config_source == 5
    assert entries["ssl.key.password"].is_sensitive
    assert entries["ssl.key.password"].value is None


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (ConfigResourceType.TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ConfigResourceType.TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ConfigResourceType.BROKER, "9", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER, "x", ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER_LOGGER, "0", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_describe_configs_refused(connection: BlockingConnection, kind: int, name: str, error: ErrorCode) -> None:
    """What does not exist, or is somebody else's."""
    assert describe(connection, kind, name).error_code == error


def value_of(connection: BlockingConnection, topic: str, name: str) -> str:
    (entry,) = describe(connection, ConfigResourceType.TOPIC, topic, 4, [name]).configs
    value: str = entry.value
    return value


@pytest.mark.row("R07")
@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all(connection: BlockingConnection, version: int) -> None:
    """What is not named goes back to its default."""
    name, _ = created(connection)
    request = messages.AlterConfigsRequest
    resource = request.AlterConfigsResource(
        resource_type=ConfigResourceType.TOPIC,
        resource_name=name,
        configs=[request.AlterableConfig(name="segment.bytes", value="5000")],
    )
    for validate_only, segment_bytes, retention in ((True, "1073741824", "1000"), (False, "5000", "604800000")):
        (result,) = connection.request(request(resources=[resource], validate_only=validate_only), version).responses
        assert (result.error_code, result.resource_name) == (ErrorCode.NONE, name)
        assert value_of(connection, name, "segment.bytes") == segment_bytes
        assert value_of(connection, name, "retention.ms") == retention


def change(
    connection: BlockingConnection, kind: int, name: str, *configs: tuple[str, int, str | None], version: int = 1
) -> Any:
    request = messages.IncrementalAlterConfigsRequest
    resource = request.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            request.AlterableConfig(name=setting, config_operation=operation, value=value)
            for setting, operation, value in configs
        ],
    )
    (result,) = connection.request(request(resources=[resource]), version).responses
    return result


@pytest.mark.row("R07")
@pytest.mark.parametrize("version", range(2))
def test_incremental_alter_configs(connection: BlockingConnection, version: int) -> None:
    """Set, delete, append, subtract."""
    name, _ = created(connection)
    topic = ConfigResourceType.TOPIC
    assert (
        change(
            connection, topic, name, ("segment.bytes", 0, "5000"), ("retention.ms", 1, None), version=version
        ).error_code
        == 0
    )
    assert (value_of(connection, name, "segment.bytes"), value_of(connection, name, "retention.ms")) == (
        "5000",
        "604800000",
    )
    assert change(connection, topic, name, ("cleanup.policy", 2, "compact"), version=version).error_code == 0
    assert change(connection, topic, name, ("cleanup.policy", 3, "delete"), version=version).error_code == 0
    assert value_of(connection, name, "cleanup.policy") == "compact"


@pytest.mark.row("R07")
def test_a_default_for_all_brokers(connection: BlockingConnection) -> None:
    """The empty broker name; one broker's own goes before it, a topic's own before both."""
    name, _ = created(connection)
    broker = ConfigResourceType.BROKER
    assert change(connection, broker, "", ("log.segment.bytes", 0, "5000")).error_code == 0
    assert value_of(connection, name, "segment.bytes") == "5000"
    (entry,) = describe(connection, broker, "").configs
    assert (entry.name, entry.value, entry.config_source) == ("log.segment.bytes", "5000", 3)
    assert change(connection, broker, "0", ("log.segment.bytes", 0, "6000")).error_code == 0
    (entry,) = describe(connection, ConfigResourceType.TOPIC, name, 4, ["segment.bytes"]).configs
    assert [(synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("6000", 2),
        ("5000", 3),
        ("1073741824", 5),
    ]
    assert change(connection, broker, "0", ("log.segment.bytes", 1, None)).error_code == 0
    assert change(connection, broker, "", ("log.segment.bytes", 1, None)).error_code == 0
    assert value_of(connection, name, "segment.bytes") == "1073741824"


@pytest.mark.row("R07")
@pytest.mark.parametrize(
    ("kind", "name", "configs", "error"),
    [
        (ConfigResourceType.TOPIC, "nobody", [("retention.ms", 0, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ConfigResourceType.BROKER, "", [("listeners", 0, "PLAINTEXT://:1")], ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER, "0", [("log.dirs", 0, "/x")], ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER, "0", [("log.retention.ms", 0, "x")], ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER, "x", [("log.retention.ms", 0, "1")], ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER, "9", [("log.retention.ms", 0, "1")], ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER, "0", [("a", 0, "1"), ("a", 1, None)], ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER, "0", [("log.retention.ms", 0, None)], ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER, "0", [("log.retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER_LOGGER, "0", [("root", 0, "INFO")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_changes_refused(
    connection: BlockingConnection, kind: int, name: str, configs: list[tuple[str, int, str | None]], error: ErrorCode
) -> None:
    """Each with its reason; INVALID_CONFIG is as good as INVALID_REQUEST to every client."""
    result = change(connection, kind, name, *configs)
    told = ErrorCode(result.error_code)
    assert told is error or (error, told) == (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)


@pytest.mark.row("R03")
@pytest.mark.parametrize("version", range(1, 6))
def test_describe_log_dirs(connection: BlockingConnection, version: int) -> None:
    """v4 tells the space of the file system."""
    name, _ = created(connection)
    topics = [messages.DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=[1])]
    (directory,) = connection.request(messages.DescribeLogDirsRequest(topics=topics), version).results
    assert directory.error_code == ErrorCode.NONE
    (topic,) = directory.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index, partition.offset_lag, partition.is_future_key) == (name, 1, 0, False)
    assert (directory.total_bytes > 0) == (version >= 4)
    (everything,) = connection.request(messages.DescribeLogDirsRequest(topics=None), version).results
    assert name in {topic.name for topic in everything.topics}


@pytest.mark.row("R13")
@pytest.mark.parametrize("version", range(1, 3))
def test_alter_replica_log_dirs(connection: BlockingConnection, version: int) -> None:
    """To where the replica is already; of a partition that the topic has not; to a directory that there is none of."""
    name, _ = created(connection)
    described = connection.request(messages.DescribeLogDirsRequest(topics=None), 4)
    kind = messages.AlterReplicaLogDirsRequest
    wanted = [(described.results[0].log_dir, [0, 99]), ("/nowhere", [1])]
    dirs = [
        kind.AlterReplicaLogDir(path=path, topics=[kind.AlterReplicaLogDirTopic(name=name, partitions=partitions)])
        for path, partitions in wanted
    ]
    (topic,) = connection.request(kind(dirs=dirs), version).results
    assert [(found.partition_index, found.error_code) for found in topic.partitions] == [
        (0, ErrorCode.NONE),
        (99, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (1, ErrorCode.LOG_DIR_NOT_FOUND),
    ]


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id(connection: BlockingConnection, version: int) -> None:
    """Always a new id with epoch 0."""
    first = connection.request(messages.InitProducerIdRequest(transactional_id=None), version)
    second = connection.request(messages.InitProducerIdRequest(transactional_id=None), version)
    assert (first.error_code, first.producer_epoch, second.producer_epoch) == (ErrorCode.NONE, 0, 0)
    assert second.producer_id == first.producer_id + 1
    if version >= 3:
        message = messages.InitProducerIdRequest(transactional_id=None, producer_id=first.producer_id, producer_epoch=3)
        assert connection.request(message, version).producer_epoch == 0
        odd = messages.InitProducerIdRequest(transactional_id=None, producer_id=5)
        assert connection.request(odd, version).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(connection: BlockingConnection, version: int) -> None:
    """This broker, for every group; from v4 on several at once, and transactional ids (v1 has them, too)."""
    if version < 4:
        until_coordinated(connection, "g")
        answer = connection.request(messages.FindCoordinatorRequest(key="g"), version)
        assert (answer.error_code, answer.node_id, answer.host) == (ErrorCode.NONE, 0, "127.0.0.1")
        return
    until_coordinated(connection, "g")
    message = messages.FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=0)
    found = connection.request(message, version).coordinators
    assert [(coordinator.key, coordinator.node_id) for coordinator in found] == [("g", 0), ("h", 0)]
    message = messages.FindCoordinatorRequest(coordinator_keys=["t", ""], key_type=1)

    def have_coordinators() -> bool:
        # The first request has the transactions' topic made, and is told to come again where that takes long.
        found = connection.request(message, version).coordinators
        assert [coordinator.key for coordinator in found] == ["t", ""]
        assert {coordinator.error_code for coordinator in found} <= {
            ErrorCode.NONE,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        }
        return [coordinator.node_id for coordinator in found] == [0, 0]

    until(have_coordinators, "both ids have this broker for their coordinator")
    message = messages.FindCoordinatorRequest(coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0", "g"], key_type=2)
    shared, refused = connection.request(message, version).coordinators
    assert shared.error_code == (ErrorCode.NONE if version >= 6 else ErrorCode.INVALID_REQUEST)
    assert refused.error_code == ErrorCode.INVALID_REQUEST


def commit(
    connection: BlockingConnection, version: int, group: str, topic: tuple[str, TopicId], **changes: Any
) -> list[int]:
    """Commits offset 5 of partition 0, 6 of partition 1 and 7 of partition 9, which is not there; the errors."""
    request = messages.OffsetCommitRequest
    partitions = [
        request.OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=0 if version >= 6 else -1,
            committed_metadata="note",
        )
        for index, offset in ((0, 5), (1, 6), (9, 7))
    ]
    name, topic_id = topic
    wanted = request.OffsetCommitRequestTopic(partitions=partitions)
    if version >= 10:
        wanted.topic_id = topic_id
    else:
        wanted.name = name
    message = request(group_id=group, topics=[wanted], **changes)

    def answered() -> list[int] | None:
        (answer,) = connection.request(message, version).topics
        errors = [partition.error_code for partition in answer.partitions]
        return None if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in errors else errors

    return until(answered, "the coordinator is loaded")


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_commit_and_fetch(connection: BlockingConnection, version: int) -> None:
    """What one version commits, each version fetches."""
    topic = created(connection)
    group = topic_name("g")
    until_coordinated(connection, group)
    assert commit(connection, version, group, topic) == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    for fetch_version in range(1, 11):
        assert fetch(connection, fetch_version, group, topic, [0, 1, 9]) == [(5, "note"), (6, "note"), (-1, "")]
        if fetch_version >= 2:
            assert fetch(connection, fetch_version, group, topic, None) == [(5, "note"), (6, "note")]


def fetch(
    connection: BlockingConnection, version: int, group: str, topic: tuple[str, TopicId], indexes: list[int] | None
) -> list[tuple[int, str]]:
    """Committed offsets and metadata of the topic's partitions; None: of whatever the group has."""
    request = messages.OffsetFetchRequest
    name, topic_id = topic
    if version < 8:
        topics = None if indexes is None else [request.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)]
        answer = connection.request(request(group_id=group, topics=topics), version)
        assert answer.error_code == ErrorCode.NONE
        (found,) = answer.topics
    else:
        wanted = None
        if indexes is not None:
            wanted = [request.OffsetFetchRequestTopics(partition_indexes=indexes)]
            if version >= 10:
                wanted[0].topic_id = topic_id
            else:
                wanted[0].name = name
        groups = [request.OffsetFetchRequestGroup(group_id=group, topics=wanted)]
        (answer,) = connection.request(request(groups=groups), version).groups
        assert (answer.group_id, answer.error_code) == (group, ErrorCode.NONE)
        (found,) = answer.topics
        assert found.topic_id == topic_id if version >= 10 else found.name == name
    assert all(partition.error_code == ErrorCode.NONE for partition in found.partitions)
    assert all(partition.committed_leader_epoch in (-1, 0) for partition in found.partitions)
    return [(partition.committed_offset, partition.metadata) for partition in found.partitions]


def test_offset_delete(connection: BlockingConnection) -> None:
    """Of known partitions, whether something was committed for them or not."""
    topic, _ = known = created(connection)
    group = topic_name("g")
    until_coordinated(connection, group)
    request = messages.OffsetDeleteRequest
    partitions = [request.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
    message = request(group_id=group, topics=[request.OffsetDeleteRequestTopic(name=topic, partitions=partitions)])

    def refused() -> int | None:
        error: int = connection.request(message, 0).error_code
        return None if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error

    assert until(refused, "the coordinator is loaded") == ErrorCode.GROUP_ID_NOT_FOUND
    commit(connection, 9, group, known)
    answer = connection.request(message, 0)
    errors = [partition.error_code for partition in answer.topics[0].partitions]
    assert (answer.error_code, errors) == (0, [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    assert fetch(connection, 8, group, known, [0, 1]) == [(-1, ""), (6, "note")]


@pytest.mark.parametrize("version", range(3))
def test_delete_groups(connection: BlockingConnection, version: int) -> None:
    """With all that they committed."""
    topic = created(connection)
    group = topic_name("g")
    until_coordinated(connection, group)
    commit(connection, 9, group, topic)

    def answered() -> list[tuple[str, int]] | None:
        results = connection.request(messages.DeleteGroupsRequest(groups_names=["nobody", group]), version).results
        loading = any(result.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for result in results)
        return None if loading else [(result.group_id, result.error_code) for result in results]

    assert until(answered, "the coordinators are loaded") == [("nobody", ErrorCode.GROUP_ID_NOT_FOUND), (group, 0)]
    assert fetch(connection, 8, group, topic, [0]) == [(-1, "")]


@pytest.mark.parametrize("version", range(6))
def test_txn_offset_commit_of_nobody(connection: BlockingConnection, version: int) -> None:
    """A transactional id that nobody began is refused, and so are unknown partitions; nothing is committed."""
    topic, _ = known = created(connection)
    group = topic_name("g")
    until_coordinated(connection, group)
    commit(connection, 9, group, known)
    request = messages.TxnOffsetCommitRequest
    partitions = [
        request.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=8) for index in (0, 9)
    ]
    message = request(
        transactional_id=topic_name("nobody"),
        group_id=group,
        producer_id=1 << 40,
        producer_epoch=0,
        topics=[request.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )
    (answer,) = connection.request(message, version).topics
    errors = [partition.error_code for partition in answer.partitions]
    assert errors[0] != ErrorCode.NONE
    assert errors[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(connection, 8, group, known, [0]) == [(5, "note")]


def test_commits_refused(connection: BlockingConnection) -> None:
    """Members that are not; unknown topics and ids are told; nothing is committed."""
    topic = created(connection)
    group = topic_name("g")
    errors = commit(connection, 9, group, topic, generation_id_or_member_epoch=3, member_id="m")
    assert errors == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    errors = commit(connection, 8, group, topic, generation_id_or_member_epoch=3, member_id="m")
    assert errors[0] == ErrorCode.ILLEGAL_GENERATION
    assert commit(connection, 9, group, ("nobody", TopicId(bytes(16)))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    assert commit(connection, 10, group, ("", TopicId(bytes(range(16))))) == [ErrorCode.UNKNOWN_TOPIC_ID] * 3
    assert fetch(connection, 8, group, topic, [0]) == [(-1, "")]


@pytest.mark.parametrize("version", range(2))
def test_list_config_resources(connection: BlockingConnection, version: int) -> None:
    """v0 asks for client metrics resources only."""
    name, _ = created(connection)
    alter = messages.IncrementalAlterConfigsRequest
    for kind, setting in ((ConfigResourceType.CLIENT_METRICS, "metrics"), (ConfigResourceType.GROUP, SESSION_TIMEOUT)):
        value = alter.AlterableConfig(name=setting, value="50000")
        one = alter.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[value])
        assert connection.request(alter(resources=[one]), 1).responses[0].error_code == ErrorCode.NONE
    answer = connection.request(messages.ListConfigResourcesRequest(), version)
    assert answer.error_code == ErrorCode.NONE
    listed = {(resource.resource_type, resource.resource_name) for resource in answer.config_resources}
    expected = {(ConfigResourceType.CLIENT_METRICS, name)}
    if version == 0:
        assert {kind for kind, _ in listed} == {ConfigResourceType.CLIENT_METRICS}
    else:
        expected |= {(kind, name) for kind in (ConfigResourceType.TOPIC, ConfigResourceType.GROUP)}
        expected.add((ConfigResourceType.BROKER, "0"))
    assert expected <= listed


@pytest.mark.parametrize("version", range(6))
def test_list_groups(connection: BlockingConnection, version: int) -> None:
    """A group is its offsets; filters by state from v4, by type from v5."""
    group = topic_name("listed")
    until_coordinated(connection, group)
    commit(connection, 9, group, created(connection))

    def listed(**filters: Any) -> list[Any]:
        answer = connection.request(messages.ListGroupsRequest(**filters), version)
        assert answer.error_code == ErrorCode.NONE
        return [found for found in answer.groups if found.group_id == group]

    (found,) = listed()
    assert found.protocol_type == ""
    if version >= 4:
        assert (found.group_state, len(listed(states_filter=["empty"]))) == ("Empty", 1)
        assert listed(states_filter=["Stable"]) == []
    if version >= 5:
        assert (found.group_type, len(listed(types_filter=["Classic"]))) == ("classic", 1)
        assert listed(types_filter=["consumer"]) == []


@pytest.mark.parametrize("version", range(7))
def test_describe_groups(connection: BlockingConnection, version: int) -> None:
    """Empty, or Dead; from v6 on an unknown group is an error."""
    group = topic_name("described")
    until_coordinated(connection, group)
    commit(connection, 9, group, created(connection))
    message = messages.DescribeGroupsRequest(groups=[group, "nobody"], include_authorized_operations=version >= 3)

    def answered() -> list[Any] | None:
        groups = connection.request(message, version).groups
        loading = any(found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for found in groups)
        return None if loading else groups

    known, unknown = until(answered, "the coordinators are loaded")
    assert (known.group_state, known.members, known.error_code) == ("Empty", [], ErrorCode.NONE)
    assert (unknown.group_state, unknown.error_code) == (
        "Dead",
        ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE,
    )
    assert (known.authorized_operations > 0) == (version >= 3)


@pytest.mark.parametrize("version", range(2))
def test_consumer_group_heartbeat(connection: BlockingConnection, version: int) -> None:
    """A member joins, is assigned everything, lives and leaves; v0 is given its id, v1 brings one, or is refused."""
    name, topic_id = created(connection)
    group = topic_name("consumers")
    until_coordinated(connection, group)
    joining: dict[str, Any] = {
        "group_id": group,
        "member_id": "mine" if version else "",
        "rebalance_timeout_ms": 60_000,
        "topic_partitions": [],
    }
    if version:
        joining["subscribed_topic_regex"] = f"{name}|another"
    else:
        joining["subscribed_topic_names"] = [name]

    def heartbeat(**fields: Any) -> messages.ConsumerGroupHeartbeatResponse:
        def answered() -> messages.ConsumerGroupHeartbeatResponse | None:
            answer = connection.request(messages.ConsumerGroupHeartbeatRequest(**fields), version)
            return None if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else answer

        return until(answered, "the coordinator is loaded")

    joined = heartbeat(**joining)
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (ErrorCode.NONE, 1, 5000)
    assert joined.member_id == "mine" if version else joined.member_id
    assert joined.assignment is not None
    (assigned,) = joined.assignment.topic_partitions
    assert (bytes(assigned.topic_id), assigned.partitions) == (bytes(topic_id), [0, 1])
    living = heartbeat(group_id=group, member_id=joined.member_id, member_epoch=1)
    assert (living.error_code, living.member_epoch, living.assignment) == (ErrorCode.NONE, 1, None)
    ahead = heartbeat(group_id=group, member_id=joined.member_id, member_epoch=2)
    assert ahead.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    left = heartbeat(group_id=group, member_id=joined.member_id, member_epoch=-1)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)
    refused = heartbeat(group_id=group, member_id="", member_epoch=0 if version else 3)
    assert refused.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(2))
def test_consumer_group_describe(connection: BlockingConnection, version: int) -> None:
    """A group of one; what is no consumer group is not found."""
    name, _ = created(connection)
    group, simple = topic_name("consumers"), topic_name("simple")
    until_coordinated(connection, group)
    commit(connection, 9, simple, created(connection))
    joining = messages.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="mine",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[name, "another"],
        topic_partitions=[],
    )
    until(lambda: connection.request(joining, 1).error_code == ErrorCode.NONE, "the coordinator is loaded")
    message = messages.ConsumerGroupDescribeRequest(
        group_ids=[group, simple, "nobody"], include_authorized_operations=True
    )

    def answered() -> list[Any] | None:
        groups = connection.request(message, version).groups
        loading = any(found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for found in groups)
        return None if loading else groups

    known, classic, unknown = until(answered, "the coordinators are loaded")
    assert (known.error_code, known.group_state, known.assignor_name) == (ErrorCode.NONE, "Stable", "uniform")
    assert (known.group_epoch, known.assignment_epoch, known.authorized_operations > 0) == (1, 1, True)
    (member,) = known.members
    assert (member.member_id, member.member_epoch, member.subscribed_topic_names) == ("mine", 1, ["another", name])
    assert member.assignment == member.target_assignment
    assert [(topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions] == [(name, [0, 1])]
    if version >= 1:
        assert member.member_type == 1
    assert {classic.error_code, unknown.error_code} == {ErrorCode.GROUP_ID_NOT_FOUND}


@pytest.mark.parametrize("version", range(1, 3))
def test_write_txn_markers(connection: BlockingConnection, version: int) -> None:
    """A marker without a transaction ends nothing; of a partition that is not there UNKNOWN_TOPIC_OR_PARTITION."""
    name, _ = created(connection)
    kind = messages.WriteTxnMarkersRequest
    marker = kind.WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=False,
        topics=[kind.WritableTxnMarkerTopic(name=name, partition_indexes=[0, 99])],
        coordinator_epoch=0,
        transaction_version=2 if version >= 2 else 0,
    )
    (answer,) = connection.request(kind(markers=[marker]), version).markers
    (topic,) = answer.topics
    assert (answer.producer_id, topic.name) == (7, name)
    assert [(found.partition_index, found.error_code) for found in topic.partitions] == [
        (0, ErrorCode.NONE),
        (99, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_describe_producers(connection: BlockingConnection) -> None:
    """None have written; of a partition that is not there UNKNOWN_TOPIC_OR_PARTITION."""
    name, _ = created(connection)
    kind = messages.DescribeProducersRequest
    request = kind(topics=[kind.TopicRequest(name=name, partition_indexes=[0, 99])])
    (topic,) = connection.request(request, 0).topics
    assert [(found.partition_index, found.error_code, found.active_producers) for found in topic.partitions] == [
        (0, ErrorCode.NONE, []),
        (99, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    ]


@pytest.mark.parametrize("version", range(2))
def test_client_quotas(connection: BlockingConnection, version: int) -> None:
    """Set, described, refused with its reason, and removed."""
    alter, describe = messages.AlterClientQuotasRequest, messages.DescribeClientQuotasRequest
    user = alter.EntityData(entity_type="user", entity_name=f"quotas-{version}")

    def ask(value: float, *, remove: bool = False) -> Any:
        op = alter.OpData(key="producer_byte_rate", value=value, remove=remove)
        request = alter(entries=[alter.EntryData(entity=[user], ops=[op])])
        (result,) = connection.request(request, version).entries
        return result.error_code, result.error_message

    def described() -> Any:
        component = describe.ComponentData(entity_type="user", match_type=0, match=user.entity_name)
        return [
            {value.key: value.value for value in entry.values}
            for entry in connection.request(describe(components=[component], strict=True), version).entries
        ]

    assert ask(10_000) == (ErrorCode.NONE, None)
    assert described() == [{"producer_byte_rate": 10_000}]
    assert ask(1.5) == (ErrorCode.INVALID_REQUEST, "producer_byte_rate cannot be a fractional value.")
    assert ask(0, remove=True) == (ErrorCode.NONE, None)
    assert described() == []
