"""Topics made and made larger: Kafka's order of writes, Kafka's refusals."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import Cluster, broker

from tidelog.controller import topics
from tidelog.controller.events import Submitted, TopicNode, TopicsChanged
from tidelog.controller.requests import (
    ControlledShutdown,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    TopicReference,
)
from tidelog.controller.settings import ControllerSettings, Placement
from tidelog.metadata.image import ConfigChanged, ConfigResource, ConfigResourceType
from tidelog.metadata.operations import Create, Delete, SetData
from tidelog.metadata.znodes import TopicAssignment, encode_topic
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ZERO_TOPIC_ID, BrokerId, format_topic_id


def create(cluster: Cluster, topic: NewTopic) -> CreatedTopic:
    [outcome] = cluster.ask(CreateTopics([topic]))
    return outcome


@pytest.mark.row("R05")
@pytest.mark.row("R23")
@pytest.mark.row("R30")
def test_a_topic_is_written_in_kafkas_order() -> None:
    """As captured from 2.8.2's CreateTopics: settings, topic with its id, then partitions and states, fenced."""
    cluster = Cluster(broker(0), broker(1), broker(2))
    cluster.told()
    outcome = create(
        cluster, NewTopic("api", assignment=[(0, [0, 1]), (1, [2, 0])], configs=[("retention.ms", "1000")])
    )
    assert (outcome.error, outcome.partitions, outcome.replication_factor) == (ErrorCode.NONE, 2, 2)
    id = format_topic_id(outcome.topic_id)
    assert cluster.told() == [
        'create /config/topics/api {"version":1,"config":{"retention.ms":"1000"}}',
        f'create /brokers/topics/api {{"partitions":{{"0":[0,1],"1":[2,0]}},"topic_id":"{id}",'
        '"adding_replicas":{},"removing_replicas":{},"version":3}',
        "* create /brokers/topics/api/partitions",
        "* create /brokers/topics/api/partitions/0",
        "* create /brokers/topics/api/partitions/1",
        "* create /brokers/topics/api/partitions/0/state "
        '{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0,1]}',
        "* create /brokers/topics/api/partitions/1/state "
        '{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,0]}',
    ]


@pytest.mark.row("R24")
def test_brokers_are_told_once_whatever_the_number_of_partitions() -> None:
    """One UpdateMetadata to every live broker, one LeaderAndIsr to each replica's, with their partitions only."""
    cluster = Cluster(broker(0), broker(1), broker(2))
    cluster.ask(CreateTopics([NewTopic("t", assignment=[(0, [1]), (1, [2]), (2, [1])]), NewTopic("u", 100, 1)]))
    metadata = cluster.sent("UpdateMetadataRequest")
    assert sorted(metadata) == [0, 1, 2]
    assert [len(topic.partition_states) for topic in metadata[0].topic_states] == [3, 100]
    assert [live.id for live in metadata[0].live_brokers] == [0, 1, 2]
    orders = cluster.sent("LeaderAndIsrRequest")
    [topic, *_] = [topic for topic in orders[1].topic_states if topic.topic_name == "t"]
    assert [(state.partition_index, state.leader, state.is_new) for state in topic.partition_states] == [
        (0, 1, True),
        (2, 1, True),
    ]
    assert orders[1].broker_epoch == 101
    assert "t" not in [topic.topic_name for topic in orders[0].topic_states]


@pytest.mark.row("R05")
def test_defaults_come_from_the_settings() -> None:
    """num.partitions and default.replication.factor for -1."""
    settings = ControllerSettings(default_partitions=5, default_replication_factor=2)
    cluster = Cluster(broker(0), broker(1), settings=settings)
    outcome = create(cluster, NewTopic("t"))
    assert (outcome.partitions, outcome.replication_factor) == (5, 2)


def test_validating_writes_nothing() -> None:
    """The answer is that of the creation, but for the id."""
    cluster = Cluster(broker(0))
    cluster.told()
    [outcome] = cluster.ask(
        CreateTopics([NewTopic("t", 3, 1, configs=[("cleanup.policy", "compact")])], validate_only=True)
    )
    assert outcome == CreatedTopic("t", ErrorCode.NONE, None, ZERO_TOPIC_ID, 3, 1, {"cleanup.policy": "compact"})
    assert cluster.told() == []
    assert cluster.last.sends == []
    assert cluster.controller.image.topics == {}


@pytest.mark.row("R05")
@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        (
            NewTopic("t", 1, 3),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
            "only 2 broker(s) are registered.",
        ),
        (
            NewTopic("t", 1, 0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            NewTopic("t", 0, 1),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (NewTopic("t", 10_001, 1), ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."),
        (NewTopic("there", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'there' already exists."),
        (
            NewTopic("a_b", 1, 1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic 'a_b' collides with existing topic: a.b",
        ),
        (
            NewTopic("no/name", 1, 1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'no/name' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'",
        ),
        (
            NewTopic("", 1, 1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (
            NewTopic("t", 2, -1, [(0, [0])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("t", -1, 1, [(0, [0])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic("t", assignment=[(0, [0]), (2, [0])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("t", assignment=[(0, [0]), (0, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("t", assignment=[(0, [])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            NewTopic("t", assignment=[(0, [1, 1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            NewTopic("t", assignment=[(0, [9])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            NewTopic("t", assignment=[(0, [0, 1]), (1, [0])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with "
            "previous partitions, which have 2 replica(s).",
        ),
        (
            NewTopic("__cluster_metadata", 1, 1),
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (
            NewTopic("t", 1, 1, configs=[("no.such.setting", "1")]),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: no.such.setting",
        ),
        (
            NewTopic("t", 1, 1, configs=[("retention.ms", None)]),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
    ],
)
def test_refusals(topic: NewTopic, error: ErrorCode, message: str) -> None:
    """Kafka's codes and words; nothing is written, and the topic beside it in the request is made."""
    cluster = Cluster(broker(0), broker(1))
    cluster.ask(CreateTopics([NewTopic("there", 1, 1), NewTopic("a.b", 1, 1)]))
    refused, made = cluster.ask(CreateTopics([topic, NewTopic("other", 1, 1)]))
    assert (refused.name, refused.error, refused.message) == (topic.name, error, message)
    assert made.error is ErrorCode.NONE
    assert sorted(cluster.controller.image.topics) == ["a.b", "other", "there"]


def test_a_name_twice_in_a_request_is_refused_twice() -> None:
    """And so is a name that collides with another one of the same request."""
    cluster = Cluster(broker(0))
    outcomes = cluster.ask(
        CreateTopics([NewTopic("t", 1, 1), NewTopic("t", 2, 1), NewTopic("a.b", 1, 1), NewTopic("a_b", 1, 1)])
    )
    assert [outcome.error for outcome in outcomes] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert outcomes[0].message == "Duplicate topic name."


def test_of_a_setting_that_is_given_twice_the_last_one_holds() -> None:
    """As in Kafka; what it was before is not looked at."""
    configs: list[tuple[str, str | None]] = [("retention.ms", "x"), ("flush.ms", "1"), ("retention.ms", "2")]
    outcome = create(Cluster(broker(0)), NewTopic("t", 1, 1, configs=configs))
    assert (outcome.error, outcome.configs) == (ErrorCode.NONE, {"retention.ms": "2", "flush.ms": "1"})


@pytest.mark.row("R02")
def test_racks_on_some_brokers_only_are_refused() -> None:
    """With the reason."""
    outcome = create(Cluster(broker(0, rack="a"), broker(1)), NewTopic("t", 1, 1))
    assert outcome.error is ErrorCode.INVALID_REQUEST
    assert outcome.message == "Not all brokers have rack information for replica rack aware assignment."


def test_the_striped_placement_by_setting() -> None:
    """Kafka 4.x's, for who wants it."""
    cluster = Cluster(
        broker(0, rack="a"), broker(1, rack="b"), settings=ControllerSettings(placement=Placement.STRIPED)
    )
    create(cluster, NewTopic("t", 2, 2))
    assert [cluster.partition("t", index).replicas for index in (0, 1)] == [(0, 1), (1, 0)]


@pytest.mark.row("R09")
def test_partitions_are_added_in_kafkas_order() -> None:
    """The topic's node, then the new partitions' nodes and states; what is there stays."""
    cluster = Cluster(broker(0), broker(1), broker(2))
    create(cluster, NewTopic("t", assignment=[(0, [1]), (1, [2])]))
    cluster.told()
    [outcome] = cluster.ask(CreatePartitions([MorePartitions("t", 3)]))
    assert outcome.error is ErrorCode.NONE
    topic, *rest = cluster.told()
    assert topic.startswith('* set /brokers/topics/t {"partitions":{"0":[1],"1":[2],"2":[0]},"topic_id":"')
    assert rest == [
        "* create /brokers/topics/t/partitions/2",
        "* create /brokers/topics/t/partitions/2/state "
        '{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}',
    ]
    [told] = cluster.sent("UpdateMetadataRequest")[1].topic_states
    assert [state.partition_index for state in told.partition_states] == [2]


@pytest.mark.row("R10")
@pytest.mark.parametrize("registered", [(1, 0, 2), (2, 1, 0), (0, 1, 2)])
def test_an_expansion_uses_the_unused_broker(registered: tuple[int, ...]) -> None:
    """Two partitions, then a third: in whatever order the brokers came, each holds one."""
    cluster = Cluster(*map(broker, registered), draws=(1, 0))
    create(cluster, NewTopic("t", 2, 1))
    cluster.ask(CreatePartitions([MorePartitions("t", 3)]))
    assert sorted(cluster.partition("t", index).replicas[0] for index in range(3)) == [0, 1, 2]


@pytest.mark.row("R09")
@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (MorePartitions("t", 3), ErrorCode.INVALID_PARTITIONS, "Topic already has 3 partition(s)."),
        (
            MorePartitions("t", 2),
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 3 partition(s); 2 would not be an increase.",
        ),
        (
            MorePartitions("x", 2),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
        (
            MorePartitions("t", 5, [[0]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            MorePartitions("t", 4, [[0, 1]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with "
            "previous partitions, which have 1 replica(s).",
        ),
        (
            MorePartitions("t", 20_000),
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
    ],
)
def test_expansions_that_are_refused(more: MorePartitions, error: ErrorCode, message: str) -> None:
    """Only upwards, and with as many assignments as partitions."""
    cluster = Cluster(broker(0), broker(1))
    create(cluster, NewTopic("t", 3, 1))
    cluster.told()
    [outcome] = cluster.ask(CreatePartitions([more]))
    assert (outcome.error, outcome.message) == (error, message)
    assert cluster.told() == []


def test_an_expansion_with_chosen_replicas() -> None:
    """They are taken as given."""
    cluster = Cluster(broker(0), broker(1))
    create(cluster, NewTopic("t", 1, 1))
    cluster.ask(CreatePartitions([MorePartitions("t", 3, [[1], [1]])]))
    assert [cluster.partition("t", index).replicas for index in (1, 2)] == [(1,), (1,)]


@pytest.mark.row("R05")
def test_a_topic_that_an_old_tool_made_gets_an_id_and_leaders() -> None:
    """As captured: set T with a new id, then partitions and states."""
    cluster = Cluster(broker(0), broker(1), broker(2))
    cluster.told()
    data = b'{"partitions":{"0":[1],"1":[2]},"adding_replicas":{},"removing_replicas":{},"version":3}'
    cluster.tree.transact(1, [Create("/brokers/topics/topicone", data)], 0)
    cluster.run(TopicsChanged([TopicNode("topicone", data)]))
    first, *rest = cluster.told()
    assert first.startswith('* set /brokers/topics/topicone {"partitions":{"0":[1],"1":[2]},"topic_id":"')
    assert rest[:3] == [
        "* create /brokers/topics/topicone/partitions",
        "* create /brokers/topics/topicone/partitions/0",
        "* create /brokers/topics/topicone/partitions/1",
    ]
    assert cluster.partition("topicone", 1).leader == 2


def test_a_creation_that_was_cut_short_is_finished_by_the_next_controller() -> None:
    """Crashed after the first partition node: the rest follows, what is there is left alone."""
    cluster = Cluster(broker(0))
    create(cluster, NewTopic("t", 2, 1))
    paths = ["partitions/0/state", "partitions/1/state", "partitions/1"]
    cluster.tree.transact(1, [Delete(f"/brokers/topics/t/{path}") for path in paths], 0)
    cluster.told()
    cluster.term(2)
    assert [line.partition(" {")[0] for line in cluster.told()] == [
        "* create /brokers/topics/t/partitions/1",
        "* create /brokers/topics/t/partitions/0/state",
        "* create /brokers/topics/t/partitions/1/state",
    ]


def test_a_name_that_is_being_deleted_is_taken() -> None:
    """Until the last replica is gone."""
    cluster = Cluster(broker(0), broker(1))
    create(cluster, NewTopic("t", 1, 1))
    cluster.run(Submitted(1, DeleteTopics([TopicReference("t")])))
    outcome = create(cluster, NewTopic("t", 1, 1))
    assert (outcome.error, outcome.message) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' is marked for deletion.")


def test_a_topic_with_gaps_does_not_grow() -> None:
    """A tool numbered its partitions 0 and 2: the next one would be 2 again."""
    cluster = Cluster(broker(0))
    cluster.make("t", [0])
    topic_id = cluster.controller.image.topics["t"].topic_id
    data = encode_topic(TopicAssignment({0: [0], 2: [0]}, topic_id))
    cluster.tree.transact(1, [SetData("/brokers/topics/t", data)], 0)
    cluster.run(TopicsChanged([TopicNode("t", data)]))
    cluster.told()
    [outcome] = cluster.ask(CreatePartitions([MorePartitions("t", 3)]))
    assert outcome.error is ErrorCode.INVALID_PARTITIONS
    assert outcome.message is not None
    assert "/brokers/topics/t" in outcome.message
    assert cluster.told() == []


def test_a_topic_that_the_store_could_not_keep_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node above what ZooKeeper takes is never sent: the creation and the growth are refused with the node's path."""
    monkeypatch.setattr(topics, "TOPIC_NODE_SIZE_MAX", 200)
    cluster = Cluster(broker(1000), broker(1001), broker(1002))
    outcome = create(cluster, NewTopic("large", partitions=20, replication_factor=3))
    assert outcome.error is ErrorCode.INVALID_PARTITIONS
    assert outcome.message is not None
    assert "/brokers/topics/large in the metadata store would hold" in outcome.message
    assert create(cluster, NewTopic("small", partitions=2, replication_factor=3)).error is ErrorCode.NONE
    cluster.told()
    [refused] = cluster.ask(CreatePartitions([MorePartitions("small", 30)]))
    assert refused.error is ErrorCode.INVALID_PARTITIONS
    assert cluster.told() == []


def test_cordoned_brokers_get_no_replica_by_placement() -> None:
    """Neither of new topics nor of new partitions, by our setting or by Kafka's; those chosen by hand may be there."""
    cluster = Cluster(broker(0), broker(1), broker(2), broker(3))
    for name, settings in (("1", {"broker.cordoned": "true"}), ("2", {"cordoned.log.dirs": "*"})):
        resource = ConfigResource(ConfigResourceType.BROKER, name)
        cluster.controller.state.image.apply(ConfigChanged(resource, settings))
    assert create(cluster, NewTopic("t", 6, 2)).error is ErrorCode.NONE
    cluster.ask(CreatePartitions([MorePartitions("t", 9)]))
    image = cluster.controller.state.image.topics["t"]
    assert len(image.partitions) == 9
    assert {id for each in image.partitions.values() for id in each.replicas} == {0, 3}
    refused = create(cluster, NewTopic("u", 1, 3))
    assert refused.error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused.message is not None
    assert refused.message.endswith("because only 4 broker(s) are registered, and 2 of them cordoned.")
    assert create(cluster, NewTopic("v", assignment=[(0, [1, 2])])).error is ErrorCode.NONE


@pytest.mark.parametrize("placement", list(Placement))
def test_a_broker_that_is_about_to_leave_gets_replicas_only_where_the_others_are_too_few(placement: Placement) -> None:
    """A partition that had its only replica there would have no leader, and clients would count one partition less."""
    cluster = Cluster(broker(0), broker(1), broker(2), settings=ControllerSettings(placement=placement))
    cluster.ask(ControlledShutdown(BrokerId(2), cluster.brokers[BrokerId(2)].epoch))
    assert create(cluster, NewTopic("t", 4, 1)).error is ErrorCode.NONE
    cluster.ask(CreatePartitions([MorePartitions("t", 6)]))
    partitions = cluster.controller.image.topics["t"].partitions
    assert len(partitions) == 6
    assert {image.leader for image in partitions.values()} == {0, 1}
    assert create(cluster, NewTopic("u", 3, 3)).error is ErrorCode.NONE
    assert {image.isr for image in cluster.controller.image.topics["u"].partitions.values()} == {(0, 1), (1, 0)}


def test_a_broker_that_is_cordoned_no_more_gets_replicas_again() -> None:
    """Its own setting wins over that of all brokers; a directory alone cordons no broker."""
    cluster = Cluster(broker(0), broker(1))
    image = cluster.controller.state.image
    image.apply(ConfigChanged(ConfigResource(ConfigResourceType.BROKER, ""), {"broker.cordoned": "true"}))
    image.apply(ConfigChanged(ConfigResource(ConfigResourceType.BROKER, "1"), {"broker.cordoned": "false"}))
    image.apply(ConfigChanged(ConfigResource(ConfigResourceType.BROKER, "0"), {"cordoned.log.dirs": "/a"}))
    assert create(cluster, NewTopic("t", 2, 1)).error is ErrorCode.NONE
    assert {each.replicas for each in image.topics["t"].partitions.values()} == {(1,)}
