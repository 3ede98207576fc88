"""Apache Kafka's own command line tools against tidelog."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import java
from tests.waiting import until
from tidelog.testing import Cluster

TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    # Small segments, so that there are several; the topics tool itself would refuse them for a topic.
    with Cluster({"log.segment.bytes": 100_000, "log.index.interval.bytes": 1000}) as cluster:
        yield cluster


def run(tool: str, *arguments: str, input: str | None = None, fails: bool = False) -> str:
    """Runs one of Kafka's tools by class; all that it printed."""
    jars = os.environ["TIDELOG_KAFKA_JARS"]
    done = java.run(jars, tool, *arguments, input=input, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = [line for line in done.stdout.splitlines() if not line.startswith(("SLF4J", "log4j", "WARN StatusLogger"))]
    text = "\n".join(lines)
    assert (done.returncode != 0) == fails, text
    return text


def topics(broker: Cluster, *arguments: str, fails: bool = False) -> str:
    return run(f"{TOOLS}.TopicCommand", "--bootstrap-server", broker.bootstrap, *arguments, fails=fails)


def configs(broker: Cluster, *arguments: str, fails: bool = False) -> str:
    return run("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, *arguments, fails=fails)


@pytest.mark.row("R05")
@pytest.mark.row("R06")
@pytest.mark.row("R08")
@pytest.mark.row("R09")
def test_topics(broker: Cluster) -> None:
    """kafka-topics: create, list, describe, alter, delete, and its refusals."""
    create = ("--create", "--topic", "topicone", "--partitions", "2")
    text = topics(broker, *create, "--replication-factor", "1", "--config", "flush.messages=1")
    assert "Created topic topicone." in text
    assert "already exists" in topics(broker, *create, fails=True)
    text = topics(broker, "--create", "--topic", "three", "--replication-factor", "3", fails=True)
    assert "target replication factor of 3 cannot be reached because only 1 broker(s) are registered" in text
    assert "topicone" in topics(broker, "--list").splitlines()
    described = topics(broker, "--describe", "--topic", "topicone").splitlines()
    assert re.search(r"PartitionCount: 2\s+ReplicationFactor: 1\s+Configs: .*flush.messages=1", described[0]), described
    assert re.search(r"Topic: topicone\s+Partition: 0\s+Leader: 0\s+Replicas: 0\s+Isr: 0", described[1]), described
    topics(broker, "--alter", "--topic", "topicone", "--partitions", "4")
    assert len(topics(broker, "--describe", "--topic", "topicone").splitlines()) == 5
    text = topics(broker, "--alter", "--topic", "topicone", "--partitions", "3", fails=True)
    assert "currently has 4 partition(s); 3 would not be an increase" in text
    topics(broker, "--delete", "--topic", "topicone")
    assert "topicone" not in topics(broker, "--list").splitlines()


@pytest.mark.row("R07")
def test_configs(broker: Cluster) -> None:
    """kafka-configs: of a topic, of a broker, of all brokers."""
    topics(broker, "--create", "--topic", "settings")
    topic = ("--entity-type", "topics", "--entity-name", "settings")
    text = configs(broker, "--alter", *topic, "--add-config", "flush.messages=1,cleanup.policy=[delete,compact]")
    assert "Completed updating config for topic settings." in text
    described = configs(broker, "--describe", *topic)
    assert "flush.messages=1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:flush.messages=1, " in described
    assert "cleanup.policy=delete,compact" in described
    configs(broker, "--alter", *topic, "--delete-config", "flush.messages")
    assert "flush.messages" not in configs(broker, "--describe", *topic)
    text = configs(broker, "--alter", *topic, "--add-config", "nonsense=1", fails=True)
    assert "Unknown topic config name: nonsense" in text
    everyone = ("--entity-type", "brokers", "--entity-default")
    configs(broker, "--alter", *everyone, "--add-config", "log.retention.ms=1000000")
    assert "log.retention.ms=1000000" in configs(broker, "--describe", *everyone)
    text = configs(broker, "--describe", "--all", *topic)
    assert (
        "retention.ms=1000000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=1000000" in text
    )
    configs(broker, "--alter", *everyone, "--delete-config", "log.retention.ms")
    one = ("--entity-type", "brokers", "--entity-name", "0")
    configs(broker, "--alter", *one, "--add-config", "message.max.bytes=2000000")
    assert "message.max.bytes=2000000" in configs(broker, "--describe", *one)
    text = configs(broker, "--alter", *one, "--add-config", "log.dirs=/x", fails=True)
    assert "Cannot update these configs dynamically" in text
    configs(broker, "--alter", *one, "--delete-config", "message.max.bytes")


@pytest.mark.row("R36")
@pytest.mark.parametrize("acks", ["0", "1", "-1"])
def test_producers(broker: Cluster, acks: str) -> None:
    """The verifiable producer, and what the console consumer reads of it."""
    topic = f"verifiable{acks}"
    topics(broker, "--create", "--topic", topic)
    text = run(
        f"{TOOLS}.VerifiableProducer",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic,
        "--max-messages",
        "1000",
        "--acks",
        acks,
    )
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert events[-1]["sent"] == 1000 or any(event.get("acked") == 1000 for event in events), events[-2:]
    text = run(
        f"{TOOLS}.consumer.ConsoleConsumer",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic,
        "--partition",
        "0",
        "--offset",
        "earliest",
        "--max-messages",
        "1000",
    )
    assert [line for line in text.splitlines() if line.isdecimal()] == [str(number) for number in range(1000)]


@pytest.mark.row("R37")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(broker: Cluster, codec: str) -> None:
    """The Java producer's codecs through the performance tool, offsets by the offsets tool."""
    topic = f"perf-{codec}"
    topics(broker, "--create", "--topic", topic, "--partitions", "2")
    text = run(
        f"{TOOLS}.ProducerPerformance",
        "--topic",
        topic,
        "--num-records",
        "5000",
        "--record-size",
        "100",
        "--throughput",
        "-1",
        "--producer-props",
        f"bootstrap.servers={broker.bootstrap}",
        f"compression.type={codec}",
    )
    assert "5000 records sent" in text
    offsets = run(f"{TOOLS}.GetOffsetShell", "--bootstrap-server", broker.bootstrap, "--topic", topic).splitlines()
    found = [line.split(":") for line in offsets if line.startswith(topic)]
    assert [int(partition) for _, partition, _ in found] == [0, 1]
    assert sum(int(offset) for _, _, offset in found) == 5000


@pytest.mark.row("R34")
def test_records_are_deleted(broker: Cluster, tmp_path: Path) -> None:
    """kafka-delete-records, and the offsets tool afterwards."""
    topics(broker, "--create", "--topic", "emptied")
    run(
        f"{TOOLS}.VerifiableProducer",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        "emptied",
        "--max-messages",
        "100",
    )
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": "emptied", "partition": 0, "offset": 40}]}))
    command = ("--bootstrap-server", broker.bootstrap, "--offset-json-file", str(wanted))
    text = run(f"{TOOLS}.DeleteRecordsCommand", *command)
    assert "partition: emptied-0\tlow_watermark: 40" in text
    offsets = run(
        f"{TOOLS}.GetOffsetShell", "--bootstrap-server", broker.bootstrap, "--topic", "emptied", "--time", "-2"
    )
    assert "emptied:0:40" in offsets


@pytest.mark.row("R03")
def test_log_directories(broker: Cluster) -> None:
    """kafka-log-dirs."""
    topics(broker, "--create", "--topic", "somewhere")
    text = run(
        f"{TOOLS}.LogDirsCommand", "--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", "somewhere"
    )
    described = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    (found,) = described["brokers"]
    (directory,) = found["logDirs"]
    assert (found["broker"], directory["error"], directory["logDir"]) == (0, None, f"{broker.data}/broker-0")
    assert [partition["partition"] for partition in directory["partitions"]] == ["somewhere-0"]


@pytest.mark.row("R31")
def test_the_dump_tool_reads_our_files(broker: Cluster) -> None:
    """DumpLogSegments of our segments, indexes and checkpoints prints what `tidelog dump` prints."""
    topics(broker, "--create", "--topic", "dumped")
    run(
        f"{TOOLS}.ProducerPerformance",
        "--topic", "dumped", "--num-records", "3000", "--record-size", "100", "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={broker.bootstrap}", "batch.size=2000", "compression.type=lz4",
    )  # fmt: skip
    broker.restart()
    folder = Path(broker.data) / "broker-0" / "dumped-0"
    logs = sorted(folder.glob("*.log"))
    indexes = sorted([*folder.glob("*.index"), *folder.glob("*.timeindex"), *folder.glob("*.snapshot")])
    assert len(logs) >= 2
    assert indexes
    for file in [*logs, *indexes]:
        kafkas = run(f"{TOOLS}.DumpLogSegments", "--files", str(file), "--print-data-log", "--deep-iteration")
        ours = subprocess.run(
            ["tidelog", "dump", "-o", "kafka", str(file)], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        assert _comparable(ours) == _comparable(kafkas), file


def _comparable(text: str) -> list[str]:
    """Lines, without Kafka's complaint about every file that does not begin at offset 0."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return [line for line in lines if not re.match(r"Non-consecutive offsets in|\s+-1 is followed by", line)]


def test_committed_offsets_are_kafkas_records(broker: Cluster) -> None:
    """The dump tool decodes our `__consumer_offsets`."""
    from confluent_kafka import Consumer, TopicPartition

    topics(broker, "--create", "--topic", "read")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("read", 0, 7, "a note")], asynchronous=False)
    consumer.close()
    found = ""
    for file in Path(broker.data).glob("broker-0/__consumer_offsets-*/*.log"):
        if file.stat().st_size:
            found += run(f"{TOOLS}.DumpLogSegments", "--files", str(file), "--offsets-decoder")
    record = re.search(r"key: (\{.*\}) payload: (\{.*\})", found)
    assert record, found
    assert json.loads(record[1]) == {"type": "1", "data": {"group": "readers", "topic": "read", "partition": 0}}
    payload = json.loads(record[2])
    # This client counts the zero byte at the end of its text.
    assert (payload["version"], payload["data"]["offset"]) == ("4", 7)
    assert payload["data"]["metadata"].rstrip("\0") == "a note"


def test_the_dump_tool_decodes_coordinators_logs(broker: Cluster) -> None:
    """Members and assignments of both group protocols, and the course of a transaction, are Kafka's records."""
    from confluent_kafka import Consumer, Producer

    topics(broker, "--create", "--topic", "joined")
    for protocol in ("classic", "consumer"):
        group = {"bootstrap.servers": broker.bootstrap, "group.id": f"{protocol}-group", "group.protocol": protocol}
        consumer = Consumer(group)
        consumer.subscribe(["joined"])
        until(lambda consumer=consumer: consumer.poll(0.1) or consumer.assignment(), "it has partitions")
        consumer.close()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "dumped"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("joined", b"a record")
    producer.commit_transaction(30)

    def keys(topic: str, decoder: str) -> set[tuple[str, str]]:
        """Type and group or transactional id of every record's key."""
        found = set()
        for file in sorted(Path(broker.data).glob(f"broker-0/{topic}-*/*.log")):
            if file.stat().st_size:
                text = run(f"{TOOLS}.DumpLogSegments", "--files", str(file), decoder)
                for key in re.findall(r"key: (\{.*?\}) payload: ", text):
                    content = json.loads(key)
                    data = content["data"]
                    found.add((content["type"], data.get("group") or data.get("groupId") or data["transactionalId"]))
        return found

    groups = keys("__consumer_offsets", "--offsets-decoder")
    assert ("2", "classic-group") in groups
    # A group's epoch, a member, the target's epoch, a member's target, and what it holds now (KIP-848).
    assert {kind for kind, group in groups if group == "consumer-group"} >= {"3", "5", "6", "7", "8"}

    def is_complete() -> bool:
        return ("0", "dumped") in keys("__transaction_state", "--transaction-log-decoder")

    until(is_complete, "the transaction is in the log")


def test_groups_show_their_lag(broker: Cluster) -> None:
    """kafka-consumer-groups lists and describes a group that assigns by itself."""
    from confluent_kafka import Consumer, TopicPartition

    topics(broker, "--create", "--topic", "lagging")
    run(
        f"{TOOLS}.VerifiableProducer",
        *("--bootstrap-server", broker.bootstrap, "--topic", "lagging", "--max-messages", "10"),
    )
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "laggards"})
    consumer.commit(offsets=[TopicPartition("lagging", 0, 4)], asynchronous=False)
    consumer.close()
    tool = (f"{TOOLS}.consumer.group.ConsumerGroupCommand", "--bootstrap-server", broker.bootstrap)
    assert "laggards" in run(*tool, "--list").splitlines()
    described = run(*tool, "--describe", "--group", "laggards")
    assert re.search(r"laggards\s+lagging\s+0\s+4\s+10\s+6\s+-", described), described


@pytest.mark.row("R29")
def test_leaders_are_elected() -> None:
    """kafka-leader-election on three brokers, of which one was away: by partition, of all, unclean; its refusals."""
    with Cluster({"auto.leader.rebalance.enable": False}, brokers=3, processes=True) as cluster:
        topics(cluster, "--create", "--topic", "led", "--replica-assignment", "0:1:2,1:2:0")
        cluster.stop(1)
        of_one = ("--topic", "led", "--partition", "1")
        text = elect(cluster, "preferred", *of_one, fails=True)
        assert "Error completing leader election (PREFERRED) for partition: led-1: " in text
        assert "PreferredLeaderNotAvailableException" in text
        cluster.restart(1)
        deadline = time.monotonic() + 60
        while "Isr: 2,0,1" not in (described := topics(cluster, "--describe", "--topic", "led")):
            assert time.monotonic() < deadline, described
        assert re.search(r"Partition: 1\s+Leader: 2\s+Replicas: 1,2,0", described), described
        text = elect(cluster, "preferred", "--all-topic-partitions")
        assert "Successfully completed leader election (PREFERRED) for partitions led-1" in text
        assert "Valid replica already elected for partitions led-1" in elect(cluster, "preferred", *of_one)
        assert "Valid replica already elected for partitions led-1" in elect(cluster, "unclean", *of_one)
        text = elect(cluster, "preferred", "--topic", "led", "--partition", "7", fails=True)
        assert "UnknownTopicOrPartitionException" in text


def elect(cluster: Cluster, kind: str, *arguments: str, fails: bool = False) -> str:
    command = f"{TOOLS}.LeaderElectionCommand"
    return run(command, "--bootstrap-server", cluster.bootstrap, "--election-type", kind, *arguments, fails=fails)


@pytest.mark.nightly
def test_features_and_the_quorum(broker: Cluster) -> None:
    """kafka-features shows what is in force, and stays so; kafka-metadata-quorum has the controller as leader."""
    server = ("--bootstrap-server", broker.bootstrap)
    features = run(f"{TOOLS}.FeatureCommand", *server, "describe")
    for name, level in (("group.version", 1), ("share.version", 1), ("transaction.version", 2)):
        assert re.search(rf"Feature: {re.escape(name)}\s.*FinalizedVersionLevel: {level}\s", features)
    assert re.search(r"Feature: metadata\.version\s.*FinalizedVersionLevel: 4\.3-IV0\s", features)
    run(f"{TOOLS}.FeatureCommand", *server, "upgrade", "--feature", "transaction.version=2")
    refused = run(f"{TOOLS}.FeatureCommand", *server, "downgrade", "--feature", "transaction.version=0", fails=True)
    assert "Level 2 is in force" in refused
    status = run(f"{TOOLS}.MetadataQuorumCommand", *server, "describe", "--status")
    for line in (r"LeaderId:\s+0\s", r"LeaderEpoch:\s+\d+\s", r"MaxFollowerLag:\s+0\s", r"CurrentVoters:\s+\[.*0.*\]"):
        assert re.search(line, status), status
    replication = run(f"{TOOLS}.MetadataQuorumCommand", *server, "describe", "--replication")
    assert re.search(r"^0\s.*Leader", replication, re.MULTILINE)
