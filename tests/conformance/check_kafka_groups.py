"""Kafka's own tools for groups and transactions, its perf tools and its verifiable clients, of 3.9 and 4.3."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import java
from tests.conformance.clients import scenarios
from tests.conformance.clients.judge import Place
from tests.conformance.clients.scenarios import PARTITIONS, Site, fill, name_of
from tests.waiting import until

TOOLS = "org.apache.kafka.tools"
JARS = {"3.9": "TIDELOG_KAFKA_ZOOKEEPER_JARS", "4.3": "TIDELOG_KAFKA_JARS"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with scenarios.site(tmp_path_factory.mktemp("workers")) as site:
        yield site


@pytest.fixture(params=["3.9", "4.3"])
def release(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


def run(release: str, tool: str, *arguments: str, fails: bool = False) -> str:
    """Runs one of Kafka's tools by class; all that it printed, but for its logger's complaints."""
    jars = os.environ[JARS[release]]
    done = java.run(jars, f"{TOOLS}.{tool}", *arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    noise = ("SLF4J", "log4j", "WARN StatusLogger")
    text = "\n".join(line.rstrip() for line in done.stdout.splitlines() if not line.startswith(noise))
    assert (done.returncode != 0) == fails, text
    return text


def groups(site: Site, release: str, *arguments: str) -> str:
    return run(release, "consumer.group.ConsumerGroupCommand", "--bootstrap-server", site.bootstrap, *arguments)


def transactions(site: Site, release: str, *arguments: str) -> str:
    return run(release, "TransactionsCommand", "--bootstrap-server", site.bootstrap, *arguments)


def table(text: str) -> list[dict[str, str]]:
    """A tool's table: rows by their headings; other lines do not belong to it."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    begin = next(index for index, line in enumerate(lines) if line[0].isupper() or line[0].endswith("Id"))
    heading = lines[begin]
    return [dict(zip(heading, line, strict=False)) for line in lines[begin + 1 :] if len(line) >= len(heading) - 1]


@pytest.mark.row("R15")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members(site: Site, release: str, protocol: str) -> None:
    """Listed, its state, its members, what they own and their lag, as the tool of that release prints them."""
    topic = name_of("described")
    site.observer.create(topic, PARTITIONS)
    with site.group(topic, protocol=protocol) as group:
        members = [group.join("confluent") for _ in range(2)]
        group.until_stable(members)
        fill(site, topic)
        site.observer.until_committed(group.group, site.observer.ends(topic, PARTITIONS))
        assert group.group in groups(site, release, "--list").splitlines()
        states = table(groups(site, release, "--list", "--state", "stable"))
        assert group.group in [row["GROUP"] for row in states]
        rows = table(groups(site, release, "--describe", "--group", group.group))
        assert {Place(row["TOPIC"], int(row["PARTITION"])) for row in rows} == group.places
        for row in rows:
            assert (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == ("100", "100", "0")
            (owner,) = [each for each in members if Place(topic, int(row["PARTITION"])) in each.owned]
            assert row["CLIENT-ID"] == owner.name
            assert row["HOST"] == "/127.0.0.1"
        rows = table(groups(site, release, "--describe", "--group", group.group, "--members"))
        assert {(row["CLIENT-ID"], row["#PARTITIONS"]) for row in rows} == {(each.name, "3") for each in members}
        (row,) = table(groups(site, release, "--describe", "--group", group.group, "--state").replace(" (0)", "(0)"))
        assert (row["STATE"], row["#MEMBERS"]) == ("Stable", "2")
        text = groups(site, release, "--delete", "--group", group.group)
        assert "GroupNotEmptyException" in text or "not empty" in text
        text = groups(
            site, release, "--reset-offsets", "--to-earliest", "--execute", "--group", group.group, "--topic", topic
        )
        assert "current state is Stable" in text.replace("STABLE", "Stable")


@pytest.mark.row("R15")
def test_an_empty_group(site: Site, release: str, tmp_path: Path) -> None:
    """Offsets reset in each way, dry and for good, exported and taken in again; offsets deleted, then the group."""
    topic, group = name_of("emptied"), name_of("former")
    site.observer.create(topic, PARTITIONS)
    fill(site, topic)
    # 3.9's tool resets nothing of a group that is not there yet.
    site.observer.commit(group, topic, PARTITIONS, 5)
    of = ("--group", group, "--topic", topic)
    text = groups(site, release, "--reset-offsets", *of, "--to-offset", "40", "--dry-run")
    # 3.9's tool prints its rows without the ends of the lines.
    assert re.findall(rf"{group}\s+{topic}\s+\d\s+(\d+)", text) == ["40"] * PARTITIONS
    assert set(site.observer.committed(group, topic, PARTITIONS).values()) == {5}
    for how, expected in (
        (("--to-offset", "40"), 40),
        (("--shift-by", "-15"), 25),
        (("--to-latest",), 100),
        (("--to-earliest",), 0),
        (("--to-datetime", "2000-01-01T00:00:00.000"), 0),
        (("--to-offset", "70"), 70),
        (("--to-current",), 70),
    ):
        groups(site, release, "--reset-offsets", *of, *how, "--execute")
        assert set(site.observer.committed(group, topic, PARTITIONS).values()) == {expected}, how
    exported = groups(site, release, "--reset-offsets", *of, "--to-current", "--dry-run", "--export")
    plan = tmp_path / "offsets.csv"
    rows = [row for row in csv.reader(exported.splitlines()) if topic in row]
    plan.write_text("".join(",".join([*row[:-1], "33"]) + "\n" for row in rows))
    groups(site, release, "--reset-offsets", *of[:2], "--from-file", str(plan), "--execute")
    assert set(site.observer.committed(group, topic, PARTITIONS).values()) == {33}
    text = groups(site, release, "--describe", "--group", group)
    assert f"Consumer group '{group}' has no active members." in text
    assert {(row["CURRENT-OFFSET"], row["LAG"]) for row in table(text.partition("members.")[2])} == {("33", "67")}
    groups(site, release, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert sorted(site.observer.committed(group, topic, PARTITIONS)) == [Place(topic, index) for index in range(1, 6)]
    assert "was successful" in groups(site, release, "--delete", "--group", group)
    assert group not in groups(site, release, "--list").splitlines()


def test_transactions_are_listed_and_described(site: Site, release: str) -> None:
    """An open one with what it has written to; a finished one; the producers of a partition."""
    from confluent_kafka import Producer

    topic, transactional_id = name_of("watched"), name_of("watched-id")
    site.observer.create(topic, 1)
    producer = Producer({"bootstrap.servers": site.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(30) == 0
    described = transactions(site, release, "describe", "--transactional-id", transactional_id)
    (row,) = table(described)
    assert (row["TransactionalId"], row["TransactionState"]) == (transactional_id, "Ongoing")
    assert row["TopicPartitions"] == f"{topic}-0"
    producers = table(transactions(site, release, "describe-producers", "--topic", topic, "--partition", "0"))
    assert [each["ProducerId"] for each in producers] == [row["ProducerId"]]
    assert producers[0]["CurrentTransactionStartOffset"] == "0"
    hanging = transactions(site, release, "find-hanging", "--topic", topic, "--partition", "0")
    assert transactional_id not in hanging
    producer.commit_transaction(30)
    (row,) = [
        each for each in table(transactions(site, release, "list")) if each["TransactionalId"] == transactional_id
    ]
    assert row["TransactionState"] in ("PrepareCommit", "CompleteCommit")
    producers = table(transactions(site, release, "describe-producers", "--topic", topic, "--partition", "0"))
    assert producers[0]["CurrentTransactionStartOffset"] == "None"


def test_a_transaction_is_aborted_by_its_start_offset(site: Site, release: str) -> None:
    """What is open is ended by tool; readers of committed records go on, and the producer is told."""
    from confluent_kafka import Producer

    topic = name_of("aborted")
    site.observer.create(topic, 1)
    producer = Producer({"bootstrap.servers": site.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(30) == 0
    site.observer.fill(topic, 1, 5)
    assert site.observer.read(topic, 1) == []
    transactions(site, release, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    until(lambda: len(site.observer.read(topic, 1)) == 5, "the records after it are readable")


def test_a_transaction_of_the_performance_tool(site: Site) -> None:
    """ProducerPerformance in transactions of a duration, and what ConsumerPerformance reads in a group."""
    topic = name_of("perf")
    site.observer.create(topic, PARTITIONS)
    text = run(
        "4.3",
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", topic, "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={site.bootstrap}"),
    )
    assert "20000 records sent" in text
    assert len(site.observer.read(topic, PARTITIONS)) == 20000
    ends = site.observer.ends(topic, PARTITIONS)
    assert sum(ends.values()) > 20000  # The markers are there too.
    text = run(
        "4.3",
        "ConsumerPerformance",
        *("--bootstrap-server", site.bootstrap, "--topic", topic, "--group", topic, "--timeout", "20000"),
        *("--num-records", "20000"),
    )
    figures = text.splitlines()[-1].split(", ")
    assert int(figures[4]) == 20000


@pytest.mark.row("R15")
def test_the_verifiable_clients(site: Site, release: str) -> None:
    """What the producer has sent the consumers of a group have consumed and committed."""
    topic = name_of("verified")
    site.observer.create(topic, PARTITIONS)
    text = run(
        release,
        "VerifiableProducer",
        *("--bootstrap-server", site.bootstrap, "--topic", topic, "--max-messages", "1000", "--repeating-keys", "50"),
    )
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert sum(event["name"] == "producer_send_success" for event in events) == 1000
    with site.group(topic) as group:
        members = [group.join(f"verifiable-{release}") for _ in range(2)]
        group.until_stable(members)
        scenarios.finish(site, group)


def test_the_console_consumer_in_a_group(site: Site, release: str) -> None:
    """Reads what is there from the beginning, and commits it when it leaves."""
    topic = name_of("console")
    site.observer.create(topic, PARTITIONS)
    fill(site, topic)
    text = run(
        release,
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", site.bootstrap, "--topic", topic, "--group", topic, "--from-beginning"),
        *("--max-messages", "600"),
    )
    assert len(re.findall(r"^value \d+$", text, re.MULTILINE)) == 600
    assert set(site.observer.committed(topic, topic, PARTITIONS).values()) == {100}
