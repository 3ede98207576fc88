"""Settings altered, whole and step by step."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import SESSION, Cluster, broker

from tidelog.controller.events import ConfigsChanged
from tidelog.controller.requests import (
    AlterConfigs,
    AlterOperation,
    ChangeConfigs,
    ConfigChange,
    ConfigOutcome,
    CreateTopics,
    NewTopic,
    ReplaceConfigs,
)
from tidelog.controller.state import NodeRead
from tidelog.metadata.image import CLUSTER_DEFAULT, ConfigResource, ConfigResourceType
from tidelog.metadata.operations import Create, Delete, SetData
from tidelog.metadata.znodes import config_path, decode_config, encode_config
from tidelog.model.errors import ErrorCode
from tidelog.store.errors import BadVersion

T = ConfigResource(ConfigResourceType.TOPIC, "t")
BROKER_1 = ConfigResource(ConfigResourceType.BROKER, "1")
G = ConfigResource(ConfigResourceType.GROUP, "a/group")
M = ConfigResource(ConfigResourceType.CLIENT_METRICS, "m")
SET, DELETE, APPEND, SUBTRACT = AlterOperation


@pytest.fixture
def cluster() -> Cluster:
    """Two brokers and a topic with a setting."""
    cluster = Cluster(broker(0), broker(1))
    cluster.ask(CreateTopics([NewTopic("t", 1, 1, configs=[("retention.ms", "1000")])]))
    cluster.told()
    return cluster


def change(cluster: Cluster, resource: ConfigResource, *changes: ConfigChange) -> ConfigOutcome:
    [outcome] = cluster.ask(AlterConfigs([ChangeConfigs(resource, changes)]))
    return outcome


@pytest.mark.row("R07")
def test_a_topics_settings_are_written_in_kafkas_order(cluster: Cluster) -> None:
    """As captured: the whole map, then the notification; here under the fence."""
    outcome = change(cluster, T, ConfigChange("flush.messages", SET, "7"))
    assert outcome.error is ErrorCode.NONE
    assert cluster.told() == [
        '* set /config/topics/t {"version":1,"config":{"retention.ms":"1000","flush.messages":"7"}}',
        '* create /config/changes/config_change_ {"version":2,"entity_path":"topics/t"}',
    ]


@pytest.mark.row("R07")
def test_settings_of_brokers(cluster: Cluster) -> None:
    """One broker's and the default of all: created at first, set afterwards."""
    change(cluster, BROKER_1, ConfigChange("log.cleaner.threads", SET, "2"))
    change(cluster, CLUSTER_DEFAULT, ConfigChange("log.cleaner.threads", SET, "3"))
    change(cluster, BROKER_1, ConfigChange("log.cleaner.threads", DELETE))
    assert cluster.told() == [
        '* create /config/brokers/1 {"version":1,"config":{"log.cleaner.threads":"2"}}',
        '* create /config/changes/config_change_ {"version":2,"entity_path":"brokers/1"}',
        '* create /config/brokers/<default> {"version":1,"config":{"log.cleaner.threads":"3"}}',
        '* create /config/changes/config_change_ {"version":2,"entity_path":"brokers/<default>"}',
        '* set /config/brokers/1 {"version":1,"config":{}}',
        '* create /config/changes/config_change_ {"version":2,"entity_path":"brokers/1"}',
    ]


@pytest.mark.parametrize("name", ["01", "٠", "9" * 5000])
def test_a_brokers_id_has_one_spelling(cluster: Cluster, name: str) -> None:
    """No broker reads the node of another one, and the change would be answered as if one had."""
    outcome = change(cluster, ConfigResource(ConfigResourceType.BROKER, name), ConfigChange("flush.ms", DELETE))
    assert outcome.error is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert cluster.told() == []


def test_settings_of_groups(cluster: Cluster) -> None:
    """Their container is made with the first; a name has its characters encoded; the group need not be there."""
    change(cluster, G, ConfigChange("consumer.session.timeout.ms", SET, "50000"))
    change(cluster, G._replace(name="g"), ConfigChange("consumer.heartbeat.interval.ms", SET, "6000"))
    change(cluster, G, ConfigChange("consumer.session.timeout.ms", DELETE))
    change(cluster, M, ConfigChange("metrics", SET, "*"))
    assert cluster.told() == [
        "* create /config/groups",
        '* create /config/groups/a%2Fgroup {"version":1,"config":{"consumer.session.timeout.ms":"50000"}}',
        '* create /config/changes/config_change_ {"version":2,"entity_path":"groups/a%2Fgroup"}',
        '* create /config/groups/g {"version":1,"config":{"consumer.heartbeat.interval.ms":"6000"}}',
        '* create /config/changes/config_change_ {"version":2,"entity_path":"groups/g"}',
        '* set /config/groups/a%2Fgroup {"version":1,"config":{}}',
        '* create /config/changes/config_change_ {"version":2,"entity_path":"groups/a%2Fgroup"}',
        "* create /config/client-metrics",
        '* create /config/client-metrics/m {"version":1,"config":{"metrics":"*"}}',
        '* create /config/changes/config_change_ {"version":2,"entity_path":"client-metrics/m"}',
    ]


def test_a_container_that_a_tool_made_is_known(cluster: Cluster) -> None:
    """By the settings in it, or by itself: a controller that begins reads it."""
    cluster.tree.transact(SESSION, [Create("/config/groups"), Create("/config/client-metrics")], 0)
    cluster.controller.state.replay(NodeRead("/config/groups", None, 0))
    cluster.tree.transact(SESSION, [Create("/config/client-metrics/m", encode_config({"metrics": "*"}))], 0)
    cluster.run(ConfigsChanged(M, {"metrics": "*"}))
    change(cluster, G, ConfigChange("consumer.session.timeout.ms", SET, "50000"))
    change(cluster, M, ConfigChange("interval.ms", SET, "1000"))
    assert [line.split()[2] for line in cluster.told()] == [
        "/config/groups/a%2Fgroup",
        "/config/changes/config_change_",
        "/config/client-metrics/m",
        "/config/changes/config_change_",
    ]


def test_what_a_tool_has_set_meanwhile_stays(cluster: Cluster) -> None:
    """Before this controller has read it the write is refused, upon which everything is loaded anew; afterwards both
    settings are there. One that is written again as it was has another version, too."""
    by_tool = {"retention.ms": "1000", "retention.bytes": "5"}
    for _ in range(2):
        cluster.tree.transact(SESSION, [SetData(config_path(T), encode_config(by_tool))], 0)
    with pytest.raises(BadVersion):
        change(cluster, T, ConfigChange("flush.messages", SET, "7"))
    cluster.term(1)
    change(cluster, T, ConfigChange("flush.messages", SET, "7"))
    assert stored(cluster) == {**by_tool, "flush.messages": "7"}

    for values in ({**by_tool, "flush.messages": "8"}, {}):
        cluster.tree.transact(SESSION, [SetData(config_path(T), encode_config(values))], 0)
        _, stat = cluster.tree.get(config_path(T))
        cluster.run(ConfigsChanged(T, values, stat.version))
        change(cluster, T, ConfigChange("flush.ms", SET, "9"))
        assert stored(cluster) == {**values, "flush.ms": "9"}


def test_settings_whose_node_a_tool_has_removed_are_made_again(cluster: Cluster) -> None:
    cluster.tree.transact(SESSION, [Delete(config_path(T))], 0)
    cluster.run(ConfigsChanged(T, None))
    change(cluster, T, ConfigChange("flush.ms", SET, "9"))
    assert stored(cluster) == {"flush.ms": "9"}


def stored(cluster: Cluster) -> dict[str, str]:
    """The topic's settings in the store."""
    data, _ = cluster.tree.get(config_path(T))
    return decode_config(config_path(T), data)


@pytest.mark.row("R07")
def test_the_whole_map_is_replaced(cluster: Cluster) -> None:
    """AlterConfigs: what is not named goes back to its default."""
    cluster.ask(AlterConfigs([ReplaceConfigs(T, [("cleanup.policy", "compact")])]))
    assert cluster.controller.image.topic_config("t") == {"cleanup.policy": "compact"}


def test_settings_that_nobody_can_read_are_not_lost_by_changing_one(cluster: Cluster) -> None:
    """What was set besides is not known: it would be gone, and records with it. All of them may be replaced."""
    path = config_path(T)
    broken = b'{"version":1,"config":{"retention.ms":-1}}'
    cluster.tree.transact(SESSION, [SetData(path, broken)], 0)
    cluster.term(2)
    outcome = change(cluster, T, ConfigChange("flush.messages", SET, "7"))
    assert outcome.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert path in (outcome.message or "")
    assert cluster.tree.get(path)[0] == broken
    [outcome] = cluster.ask(AlterConfigs([ReplaceConfigs(T, [("retention.ms", "-1")])]))
    assert outcome.error is ErrorCode.NONE
    assert change(cluster, T, ConfigChange("flush.messages", SET, "7")).error is ErrorCode.NONE
    assert decode_config(path, cluster.tree.get(path)[0]) == {"retention.ms": "-1", "flush.messages": "7"}


def test_lists_grow_and_shrink(cluster: Cluster) -> None:
    """From the default where nothing is set; a member that is there is not added again."""
    change(cluster, T, ConfigChange("cleanup.policy", APPEND, "compact"))
    assert cluster.controller.image.topic_config("t")["cleanup.policy"] == "delete,compact"
    change(cluster, T, ConfigChange("cleanup.policy", APPEND, "compact,delete"))
    assert cluster.controller.image.topic_config("t")["cleanup.policy"] == "delete,compact"
    change(cluster, T, ConfigChange("cleanup.policy", SUBTRACT, "delete"))
    assert cluster.controller.image.topic_config("t")["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("resource", "step", "error", "message"),
    [
        (T, ConfigChange("nonsense", SET, "1"), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nonsense"),
        (
            T,
            ConfigChange("retention.ms", SET),
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            T,
            ConfigChange("retention.ms", APPEND, "1"),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            ConfigResource(ConfigResourceType.TOPIC, "x"),
            ConfigChange("retention.ms", SET, "1"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'x' does not exist.",
        ),
        (
            ConfigResource(ConfigResourceType.BROKER, "9"),
            ConfigChange("log.cleaner.threads", SET, "1"),
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "No broker with id 9 found.",
        ),
        (
            ConfigResource(ConfigResourceType.BROKER, "one"),
            ConfigChange("log.cleaner.threads", SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "Node id must be an integer, but it is: one",
        ),
        (
            ConfigResource(ConfigResourceType.BROKER_LOGGER, "1"),
            ConfigChange("x", SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "Unexpected resource type BROKER_LOGGER.",
        ),
        (G, ConfigChange("x", SET, "1"), ErrorCode.INVALID_CONFIG, "Unknown group config name: x"),
        (
            G,
            ConfigChange("consumer.session.timeout.ms", SET, "1"),
            ErrorCode.INVALID_CONFIG,
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            G,
            ConfigChange("consumer.session.timeout.ms", APPEND, "1"),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key consumer.session.timeout.ms because its type is not LIST.",
        ),
        (
            G._replace(name=""),
            ConfigChange("consumer.session.timeout.ms", SET, "50000"),
            ErrorCode.INVALID_REQUEST,
            "Default group resources are not allowed.",
        ),
        (M, ConfigChange("x", SET, "1"), ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: x"),
        (
            M,
            ConfigChange("interval.ms", SET, "99"),
            ErrorCode.INVALID_REQUEST,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            M,
            ConfigChange("match", SET, "foo=a"),
            ErrorCode.INVALID_CONFIG,
            "Illegal client matching pattern: foo=a",
        ),
        (
            M,
            ConfigChange("metrics", APPEND, "a"),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key metrics because its type is not LIST.",
        ),
        (
            M._replace(name=""),
            ConfigChange("interval.ms", SET, "1000"),
            ErrorCode.INVALID_REQUEST,
            "Subscription name can't be empty",
        ),
        (
            BROKER_1,
            ConfigChange("log.dirs", SET, "/x"),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: Set(log.dirs)",
        ),
    ],
)
def test_refusals(
    cluster: Cluster, resource: ConfigResource, step: ConfigChange, error: ErrorCode, message: str
) -> None:
    """Kafka's codes and words, and nothing is written."""
    outcome = change(cluster, resource, step)
    assert (outcome.error, outcome.message) == (error, message)
    assert cluster.told() == []


def test_one_bad_setting_spoils_its_resource_only(cluster: Cluster) -> None:
    """The resource beside it is altered; of the bad one nothing is."""
    bad = ChangeConfigs(T, [ConfigChange("flush.ms", SET, "1"), ConfigChange("retention.ms", SET, "soon")])
    good = ChangeConfigs(BROKER_1, [ConfigChange("log.cleaner.threads", SET, "2")])
    outcomes = cluster.ask(AlterConfigs([bad, good]))
    assert [outcome.error for outcome in outcomes] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert cluster.controller.image.topic_config("t") == {"retention.ms": "1000"}


def test_repetitions_are_refused(cluster: Cluster) -> None:
    """A resource twice in a request, a name twice in a resource."""
    twice = ChangeConfigs(T, [ConfigChange("flush.ms", SET, "1")])
    outcomes = cluster.ask(AlterConfigs([twice, twice]))
    assert {(outcome.error, outcome.message) for outcome in outcomes} == {
        (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    }
    outcome = change(cluster, T, ConfigChange("flush.ms", SET, "1"), ConfigChange("flush.ms", SET, "2"))
    assert (outcome.error, outcome.message) == (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def test_validating_writes_nothing(cluster: Cluster) -> None:
    """The refusals are the same."""
    wanted = ReplaceConfigs(T, [("flush.ms", "1")])
    [outcome] = cluster.ask(AlterConfigs([wanted], validate_only=True))
    assert outcome.error is ErrorCode.NONE
    assert cluster.told() == []


@pytest.mark.row("R11")
def test_allowing_unclean_election_elects_at_once(cluster: Cluster) -> None:
    """As captured: the state is written right after the settings, isr = the new leader, epoch + 1."""
    cluster.ask(CreateTopics([NewTopic("un", assignment=[(0, [1, 0])])]))
    cluster.live(broker(0))
    cluster.live()
    cluster.live(broker(1, 201))
    assert cluster.partition("un").leader == -1
    assert cluster.partition("un").isr == (0,)
    cluster.told()
    resource = ConfigResource(ConfigResourceType.TOPIC, "un")
    change(cluster, resource, ConfigChange("unclean.leader.election.enable", SET, "true"))
    assert cluster.told()[2:] == [
        "* set /brokers/topics/un/partitions/0/state "
        '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":3,"isr":[1]}'
    ]
