"""`tidelog topics` and `log-dirs` against a real broker, in each form of output."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.unit.cli.conftest import Tidelog

from tidelog.client import admin
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import parse_topic_id


@pytest.mark.row("R05")
def test_creates_and_says_so(tidelog: Tidelog, topic: str) -> None:
    """In Kafka's words; a second time it is an error, unless that is fine."""
    created = tidelog("topics", "create", topic, "--partitions", "3", "--replication-factor", "1")
    assert created == (0, f"Created topic {topic}.\n", "")
    again = tidelog("topics", "create", topic)
    assert again == (1, "", f"tidelog: Topic '{topic}' already exists.\n")
    assert tidelog("topics", "create", topic, "--if-not-exists") == (0, "", "")
    as_kafka = tidelog("topics", "create", topic, "-o", "kafka")
    assert as_kafka == (1, f"Error while executing topic command : Topic '{topic}' already exists.\n", "")


@pytest.mark.row("R05")
def test_a_replication_factor_above_the_brokers_is_refused_with_kafkas_reason(tidelog: Tidelog, topic: str) -> None:
    """The line names what is possible."""
    refused = tidelog("topics", "create", topic, "-r", "3")
    assert refused.code == 1
    assert refused.err.startswith("tidelog: Unable to replicate the partition 3 time(s)")
    assert refused.err.count("\n") == 1


def test_creation_as_json_and_dry_runs(tidelog: Tidelog, topic: str) -> None:
    """A dry run creates nothing; JSON tells id and counts."""
    assert tidelog("topics", "create", topic, "--dry-run").out == f"Topic {topic} could be created.\n"
    (created,) = tidelog("topics", "create", topic, "-p", "2", "-o", "json").json
    assert created["topic"] == topic
    assert created["partitionCount"] == 2
    assert parse_topic_id(created["topicId"])


def test_names_that_collide_are_warned_of(tidelog: Tidelog) -> None:
    """On stderr for people, on stdout where Kafka's tool has it."""
    assert tidelog("topics", "create", "warn.ed").err.startswith("WARNING: Due to limitations in metric names")
    collided = tidelog("topics", "create", "warn_ed", "-o", "kafka")
    assert collided.code == 1
    assert collided.lines[0].startswith("WARNING: Due to limitations in metric names")
    assert collided.lines[1].startswith("Error while executing topic command : ")
    assert "collide" in collided.lines[1]


@pytest.mark.row("R06")
def test_lists_in_each_form(tidelog: Tidelog, topic: str) -> None:
    """A name a line for scripts, objects for programs, a table for people."""
    tidelog("topics", "create", topic, "-p", "2")
    assert topic in tidelog("topics", "list", "-o", "kafka").lines
    (listed,) = [entry for entry in tidelog("topics", "list", "-o", "json").json if entry["topic"] == topic]
    assert (listed["partitionCount"], listed["replicationFactor"], listed["internal"]) == (2, 1, False)
    assert re.search(rf"{re.escape(topic)} +2 +1 ", tidelog("topics", "list").out)


@pytest.mark.row("R06")
def test_describes_as_kafka_topics_prints_it(tidelog: Tidelog, topic: str) -> None:
    """Tabs and words are those of Kafka 4.3's tool, to the byte."""
    tidelog(
        "topics", "create", topic, "-p", "2", "-c", "segment.bytes=2000000", "-c", "cleanup.policy=[compact,delete]"
    )
    header, *partitions = tidelog("topics", "describe", topic, "-o", "kafka").lines
    pattern = rf"Topic: {topic}\tTopicId: \S{{22}}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: (\S*)"
    match = re.fullmatch(pattern, header)
    assert match
    assert {"segment.bytes=2000000", "cleanup.policy=compact"} <= set(match[1].split(","))
    assert partitions == [
        f"\tTopic: {topic}\tPartition: {p}\tLeader: 0\tReplicas: 0\tIsr: 0\tElr: \tLastKnownElr: " for p in (0, 1)
    ]


def test_who_may_not_ask_the_cluster_for_moves_is_shown_topics(
    tidelog: Tidelog, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Kafka's tool: to describe a topic is enough, whatever is being moved in the cluster."""
    tidelog("topics", "create", topic)

    def refused(routing: Any, **options: Any) -> Any:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
        yield

    monkeypatch.setattr(admin, "reassignments", refused)
    described = tidelog("topics", "describe", topic, "-o", "json")
    assert (described.code, described.err) == (0, "")
    assert [each["topic"] for each in described.json] == [topic]


def test_describes_as_json_and_tables(tidelog: Tidelog, topic: str) -> None:
    """The same facts for programs and people."""
    tidelog("topics", "create", topic, "-p", "2", "-c", "retention.ms=1234")
    (described,) = tidelog("topics", "describe", topic, "-o", "json").json
    assert described["configs"]["retention.ms"] == "1234"
    assert described["partitions"][1] == {
        "partition": 1,
        "leader": 0,
        "leaderEpoch": 0,
        "replicas": [0],
        "isr": [0],
        "offlineReplicas": [],
        "elr": [],
        "lastKnownElr": [],
    }
    table = tidelog("topics", "describe", topic).out
    assert f"{topic}  id {described['topicId']}, 2 partitions, replication factor 1\n" in table
    assert "  retention.ms=1234\n" in table


def test_describes_only_what_is_asked_for(tidelog: Tidelog, topic: str) -> None:
    """A healthy topic has nothing under-replicated or unavailable; all of it is at its minimum of one."""
    tidelog("topics", "create", topic, "-p", "2")
    for option in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert tidelog("topics", "describe", topic, option, "-o", "kafka") == (0, "", "")
    assert len(tidelog("topics", "describe", topic, "--at-min-isr-partitions", "-o", "kafka").lines) == 2
    both = tidelog("topics", "describe", topic, "--at-min-isr-partitions", "--unavailable-partitions")
    assert both.code == 2


@pytest.mark.row("R09")
def test_partitions_only_grow_and_keys_are_warned_of(tidelog: Tidelog, topic: str) -> None:
    """The warning is on stderr, so that scripts read what Kafka's tool prints."""
    tidelog("topics", "create", topic, "-p", "2")
    grown = tidelog("topics", "alter", topic, "-p", "4")
    assert grown.code == 0
    assert grown.out == f"Topic {topic} has 4 partitions.\n"
    assert "partition logic or ordering of the messages will be affected" in grown.err
    shrunk = tidelog("topics", "alter", topic, "-p", "3", "-o", "kafka")
    assert shrunk.code == 1
    assert shrunk.out == (
        "Error while executing topic command : "
        f"The topic {topic} currently has 4 partition(s); 3 would not be an increase.\n"
    )
    (described,) = tidelog("topics", "describe", topic, "-o", "json").json
    assert described["partitionCount"] == 4


@pytest.mark.row("R08")
def test_deletes(tidelog: Tidelog, topic: str) -> None:
    """What is gone is an error, unless that is fine."""
    tidelog("topics", "create", topic)
    assert tidelog("topics", "delete", topic) == (0, f"Deleted topic {topic}.\n", "")
    assert tidelog("topics", "delete", topic) == (1, "", f"tidelog: Topic '{topic}' does not exist as expected\n")
    assert tidelog("topics", "delete", topic, "--if-exists").code == 0
    missing = tidelog("topics", "describe", topic, "-o", "kafka")
    assert missing.out == f"Error while executing topic command : Topic '{topic}' does not exist as expected\n"


def test_what_is_done_is_told_beside_what_is_refused(tidelog: Tidelog, topic: str) -> None:
    """One missing topic of two: the other is described, and the code says that something failed."""
    tidelog("topics", "create", topic)
    both = tidelog("topics", "describe", topic, "nope", "-o", "json")
    assert both.code == 1
    assert [entry["topic"] for entry in both.json] == [topic]
    assert both.err == "tidelog: Topic 'nope' does not exist as expected\n"


def test_log_dirs_as_kafkas_line_and_as_json(tidelog: Tidelog, topic: str) -> None:
    """Keys in Kafka's order, so that the line compares as text."""
    tidelog("topics", "create", topic)
    tidelog("produce", topic, "-m", "hello")
    first, second, line = tidelog("log-dirs", "-t", topic, "--broker", "0", "-o", "kafka").lines
    assert first == "Querying brokers for log directories information"
    assert second == "Received log directory information from brokers 0"
    (directory,) = json.loads(line)["brokers"][0]["logDirs"]
    size = directory["partitions"][0]["size"]
    assert size > 60
    path = json.dumps(directory["logDir"])
    assert line == (
        f'{{"brokers":[{{"broker":0,"logDirs":[{{"partitions":[{{"partition":"{topic}-0","size":{size},'
        f'"offsetLag":0,"isFuture":false}}],"error":null,"logDir":{path}}}]}}],"version":1}}'
    )
    ((found,),) = [broker["logDirs"] for broker in tidelog("log-dirs", "-t", topic, "-o", "json").json]
    assert found["partitions"] == [{"topic": topic, "partition": 0, "size": size, "offsetLag": 0, "isFuture": False}]
    assert found["totalBytes"] > found["usableBytes"] > 0
    assert topic in tidelog("log-dirs").out
    missing = tidelog("log-dirs", "--broker", "7")
    assert missing == (1, "", "tidelog: The given brokers do not exist: 7. Current existent brokers: 0\n")
