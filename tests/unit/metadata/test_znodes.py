"""The JSON in the metadata store, as Kafka 2.8.2 writes it and as 2.2 to 3.9 may have written it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from tidelog.metadata import znodes
from tidelog.metadata.image import BrokerRegistration, ConfigResource, ConfigResourceType, Endpoint
from tidelog.metadata.znodes import MalformedZnode, PartitionState, StoredProducerIdBlock, TopicAssignment
from tidelog.model.identifiers import (
    ZERO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicPartition,
    parse_topic_id,
)

BROKER_0 = BrokerRegistration(
    BrokerId(0),
    BrokerEpoch(21),
    (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092),),
    timestamp_ms=1795243446749,
)


@pytest.mark.row("R23")
def test_a_brokers_node() -> None:
    """Written as 2.8 does, and read back."""
    text = (
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"endpoints":["PLAINTEXT://127.0.0.1:9092"],"jmx_port":-1,"port":9092,"host":"127.0.0.1","version":5,'
        b'"timestamp":"1795243446749"}'
    )
    assert znodes.encode_broker(BROKER_0) == text
    assert znodes.decode_broker(0, text, 21) == BROKER_0


def test_a_brokers_node_with_a_rack_of_version_4() -> None:
    """Protocols below 2.7 write no features; the rack stands between endpoints and jmx_port."""
    text = (
        b'{"listener_security_protocol_map":{"IN":"SSL","OUT":"SASL_SSL"},"endpoints":["IN://[::1]:9093","OUT://h:1"],'
        b'"rack":"r1","jmx_port":-1,"port":9092,"host":"127.0.0.1","version":4,"timestamp":"1795244114407"}'
    )
    broker = znodes.decode_broker(3, text, 5)
    assert broker.rack == "r1"
    assert broker.endpoints == (Endpoint("IN", "SSL", "::1", 9093), Endpoint("OUT", "SASL_SSL", "h", 1))
    assert b'["IN://[::1]:9093","OUT://h:1"],"rack":"r1","jmx_port":-1' in znodes.encode_broker(broker)


def test_a_brokers_node_of_version_1() -> None:
    """The oldest has a host and a port only."""
    broker = znodes.decode_broker(1, b'{"jmx_port":-1,"host":"h","version":1,"port":7,"timestamp":"3"}', 9)
    assert broker.endpoints == (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 7),)


@pytest.mark.row("R05")
@pytest.mark.row("R23")
def test_a_topics_node() -> None:
    """Version 3 with an id, with a reassignment under way."""
    text = (
        b'{"partitions":{"0":[0,2,1],"1":[1,0,2],"2":[1,3,0,2]},"topic_id":"gm1tDXsnTTCSqUbcAEakwg",'
        b'"adding_replicas":{"2":[3]},"removing_replicas":{"2":[2]},"version":3}'
    )
    content = TopicAssignment(
        {0: (0, 2, 1), 1: (1, 0, 2), 2: (1, 3, 0, 2)}, parse_topic_id("gm1tDXsnTTCSqUbcAEakwg"), {2: (3,)}, {2: (2,)}
    )
    assert znodes.encode_topic(content) == text
    assert znodes.decode_topic("t", text) == content


@pytest.mark.row("R05")
def test_a_topics_node_of_the_documents_release() -> None:
    """2.2.1 writes version 1, without an id and in any order; partitions are sorted by number on reading."""
    content = znodes.decode_topic("topicone", b'{"version":1,"partitions":{"1":[0],"0":[2],"10":[1]}}')
    assert list(content.partitions.items()) == [(0, (2,)), (1, (0,)), (10, (1,))]
    assert content.topic_id == ZERO_TOPIC_ID


@pytest.mark.row("R23")
def test_a_partitions_state() -> None:
    """Key for key as captured."""
    text = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,0,2]}'
    state = PartitionState(BrokerId(1), LeaderEpoch(0), (BrokerId(1), BrokerId(0), BrokerId(2)), ControllerEpoch(1))
    assert znodes.encode_state(state) == text
    assert znodes.decode_state("t", 0, text) == state


def test_the_other_nodes() -> None:
    """Controller, features, cluster id, settings, notifications, producer ids, plans: as captured."""
    pairs: list[tuple[bytes, str]] = [
        (znodes.encode_controller(0, 1795243446847), '{"version":1,"brokerid":0,"timestamp":"1795243446847"}'),
        (znodes.encode_controller_epoch(1), "1"),
        (znodes.encode_feature(), '{"features":{},"version":1,"status":1}'),
        (znodes.encode_cluster_id("T1I1AlegS1yG7LmkApY8MA"), '{"version":"1","id":"T1I1AlegS1yG7LmkApY8MA"}'),
        (znodes.encode_config({"flush.messages": "1"}), '{"version":1,"config":{"flush.messages":"1"}}'),
        (znodes.encode_config_change("brokers/<default>"), '{"version":2,"entity_path":"brokers/<default>"}'),
        (
            znodes.encode_producer_id_block(StoredProducerIdBlock(BrokerId(0), 0, 999)),
            '{"version":1,"broker":0,"block_start":"0","block_end":"999"}',
        ),
        (
            znodes.encode_reassignment({TopicPartition("T", 0): [3, 1, 2]}),
            '{"version":1,"partitions":[{"topic":"T","partition":0,"replicas":[3,1,2]}]}',
        ),
        (
            znodes.encode_partitions([TopicPartition("T", 0)]),
            '{"version":1,"partitions":[{"topic":"T","partition":0}]}',
        ),
        (znodes.encode_log_directory_event(2), '{"version":1,"broker":2,"event":1}'),
    ]
    for written, captured in pairs:
        assert written.decode() == captured


def test_a_controller_of_3_9_is_read() -> None:
    """Version 2 has one key more."""
    data = b'{"version":2,"brokerid":4,"timestamp":"1795244577474","kraftControllerEpoch":-1}'
    assert znodes.decode_controller(data) == 4


def test_both_versions_of_a_config_change() -> None:
    """Version 1 names type and entity apart."""
    assert znodes.decode_config_change("/p", b'{"version":2,"entity_path":"users/u/clients/c"}') == "users/u/clients/c"
    assert znodes.decode_config_change("/p", b'{"version":1,"entity_type":"topics","entity_name":"T"}') == "topics/T"


@pytest.mark.parametrize(
    ("entity", "resource"),
    [
        ("topics/T", ConfigResource(ConfigResourceType.TOPIC, "T")),
        ("brokers/7", ConfigResource(ConfigResourceType.BROKER, "7")),
        ("brokers/<default>", ConfigResource(ConfigResourceType.BROKER, "")),
        ("groups/g", ConfigResource(ConfigResourceType.GROUP, "g")),
        ("groups/a%2Fb%20%C3%A9", ConfigResource(ConfigResourceType.GROUP, "a/b é")),
        ("groups/%3Cdefault%3E", ConfigResource(ConfigResourceType.GROUP, "<default>")),
        ("groups/%2E%2E", ConfigResource(ConfigResourceType.GROUP, "..")),
        ("groups/50%25", ConfigResource(ConfigResourceType.GROUP, "50%")),
        ("client-metrics/m.1~x_*", None),
        ("client-metrics/m.1~x_%2A", ConfigResource(ConfigResourceType.CLIENT_METRICS, "m.1~x_*")),
        ("groups/<default>", None),
        ("groups/%2f", None),
        ("groups/50%", None),
        ("groups/%FF", None),
        ("groups/..", None),
        ("users/u", None),
        ("topics/", None),
        ("groups/", None),
        ("topics/a/b", None),
    ],
)
def test_entities_and_resources(entity: str, resource: ConfigResource | None) -> None:
    """Topics, brokers, groups and client metrics are resources of AlterConfigs; one node for each."""
    assert znodes.resource_of(entity) == resource
    if resource is not None:
        assert znodes.entity_path(resource) == entity


DECODERS: list[Callable[[bytes | None], object]] = [
    lambda data: znodes.decode_broker(0, data, 1),
    znodes.decode_controller,
    znodes.decode_controller_epoch,
    znodes.decode_cluster_id,
    lambda data: znodes.decode_topic("t", data),
    lambda data: znodes.decode_state("t", 0, data),
    lambda data: znodes.decode_config("/config/topics/t", data),
    lambda data: znodes.decode_config_change("/config/changes/x", data),
    znodes.decode_producer_id_block,
    znodes.decode_reassignment,
    lambda data: znodes.decode_partitions("/admin/preferred_replica_election", data),
    lambda data: znodes.decode_log_directory_event("/log_dir_event_notification/x", data),
]

KEYS = st.sampled_from(["partitions", "isr", "leader", "leader_epoch", "controller_epoch", "config", "version"]) | (
    st.sampled_from(["endpoints", "host", "port", "topic_id", "adding_replicas", "topic", "partition", "replicas"])
    | st.sampled_from(["broker", "block_start", "block_end", "id", "entity_path"])
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=6),
    max_leaves=8,
)


@settings(max_examples=examples(2000))
@given(data=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()) | st.none())
def test_broken_nodes_are_malformed_and_nothing_else(data: bytes | None) -> None:
    """Whatever stands in a node, a reader gets a value or MalformedZnode."""
    for decode in DECODERS:
        with contextlib.suppress(MalformedZnode):
            decode(data)


@pytest.mark.parametrize("half", [b"\\ud800", b"\\uDC00", b"\xed\xa0\x80"])
def test_half_a_character_is_malformed(half: bytes) -> None:
    """JSON can name one; what was read could not be written again. A whole one may be named by its halves."""
    with pytest.raises(MalformedZnode, match="no text has"):
        znodes.decode_config("/config/topics/t", b'{"version":1,"config":{"a":"' + half + b'"}}')
    whole = b'{"version":1,"config":{"a":"\\ud83d\\ude00 \xed\x95\x9c"}}'
    assert znodes.decode_config("/config/topics/t", whole) == {"a": "\U0001f600 \ud55c"}


def test_a_malformed_node_is_named() -> None:
    """The message says which node, so that an operator can mend it."""
    with pytest.raises(MalformedZnode, match=r"^/brokers/topics/t in the metadata store is malformed: not JSON"):
        znodes.decode_topic("t", b"{")
