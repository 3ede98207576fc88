"""What the tools can besides: elections, settings, plans that are refused, throttled, rolled back or that wait."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.conformance.documents.commands import Command
from tests.conformance.documents.conftest import Open
from tests.conformance.documents.printing import REST, plan
from tests.conformance.documents.site import Site
from tests.conformance.documents.tools import run

CONFIGS_BY_STORE = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.\n"
    "Use --bootstrap-server instead to specify a broker to connect to.\n"
)
REASSIGN_BY_STORE = "Warning: --zookeeper is deprecated, and will be removed in a future version of Kafka.\n"

pytestmark = pytest.mark.timeout(600)
"""Dozens of commands, each a start of Java: a second on a quiet machine."""


@pytest.fixture(scope="module")
def site(open_site: Open) -> Iterator[Site]:
    with open_site({"auto.leader.rebalance.enable": False}, brokers=3) as site:
        yield site


def _configs(site: Site, arguments: str, prints: str) -> None:
    warning = CONFIGS_BY_STORE if site.way.name == "2.8.2-zk" else ""
    site.type_this(Command("", "kafka-configs", "--{server} " + arguments, warning + prints))


@pytest.mark.row("R07")
def test_settings_of_topics(site: Site) -> None:
    """Set, in effect at once, shown, taken back; a notification each."""
    site.create("set", [[0, 1]])
    topic = "--entity-type topics --entity-name set"
    changes = len(site.children("/config/changes"))
    add = "--add-config retention.ms=60000,cleanup.policy=[compact,delete]"
    done = {
        "2.2.1": "Completed Updating config for entity: topic 'set'.",
        "4.3.0": "Completed updating config for topic set.",
    }
    text = site.choose({**done, "2.8.2-api": done["4.3.0"]}, "Completed updating config for entity: topic 'set'.")
    _configs(site, f"--alter {topic} {add}", text)
    assert site.get("/config/topics/set")["config"] == {"cleanup.policy": "compact,delete", "retention.ms": "60000"}
    site.until(lambda: site.setting("set", "retention.ms") == ("60000", True))
    if site.way.by_store:
        _configs(
            site, f"--describe {topic}", "Configs for topic 'set' are cleanup.policy=compact,delete,retention.ms=60000"
        )
        assert len(site.children("/config/changes")) == changes + 1
    _configs(site, f"--alter {topic} --delete-config retention.ms", text)
    site.until(lambda: site.setting("set", "retention.ms") == ("604800000", False))


def test_settings_of_others(site: Site) -> None:
    """Of a broker that is not there yet, of users and of clients; for one that runs the old tools send elsewhere."""
    if not site.way.by_store:
        pytest.skip("quotas and users are not served by the protocol yet")
    verb = "Updating" if site.way.release == "2.2.1" else "updating"
    for arguments, entity, path, setting in (
        ("brokers --entity-name 7", "brokers '7'", "brokers/7", "log.cleaner.threads=2"),
        ("users --entity-name alice", "user-principal 'alice'", "users/alice", "producer_byte_rate=1048576"),
        ("clients --entity-name app", "client-id 'app'", "clients/app", "request_percentage=50"),
    ):
        line = f"--alter --entity-type {arguments} --add-config {setting}"
        _configs(site, line, f"Completed {verb} config for entity: {entity}.")
        name, value = setting.split("=")
        assert site.get(f"/config/{path}")["config"] == {name: value}
    printed = site.type_this(
        Command(
            "",
            "kafka-configs",
            "--{server} --alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2",
            REST,
            status=1,
            says="--bootstrap-server option must be specified to update broker configs",
        )
    )
    assert "Completed" not in printed.out


def test_the_last_release_with_zookeeper(site: Site) -> None:
    """kafka-configs of 3.9 still takes --zookeeper, for users and brokers only."""
    if site.way.name != "2.8.2-zk":
        pytest.skip("once is enough")
    command = ("--zookeeper", site.hosts, "--alter", "--entity-type")
    user = ("users", "--entity-name", "bob", "--add-config", "SCRAM-SHA-256=[iterations=4096,password=pw]")
    printed = run("3.9.1", "kafka-configs", *command, *user)
    assert "Completed updating config for entity: user-principal 'bob'." in printed.out, printed
    assert site.get("/config/users/bob")["config"]["SCRAM-SHA-256"].startswith("salt=")
    printed = run(
        "3.9.1", "kafka-configs", *command, "topics", "--entity-name", "t", "--add-config", "retention.ms=9998"
    )
    assert printed.status == 1
    assert "Invalid entity type topics" in printed.err


@pytest.mark.row("R06")
def test_our_own_command(site: Site) -> None:
    """`tidelog topics` prints, with -o kafka, what kafka-topics of 4.3 prints."""
    if site.way.release != "4.3.0":
        pytest.skip("it prints what today's release prints")
    site.create("shown", [[0, 1], [1, 2]], {"flush.messages": "7"})
    for theirs, ours, status in (
        ("--describe --topic shown", ["describe", "shown"], 0),
        ("--list", ["list"], 0),
        ("--alter --topic shown --partitions 1", ["alter", "shown", "--partitions", "1"], 1),
        ("--create --topic shown", ["create", "shown"], 1),
    ):
        printed = site.type_this(Command("", "kafka-topics", "--{server} " + theirs, REST, status=status)).out
        command = ["tidelog", "topics", *ours, "-o", "kafka", "--bootstrap-server", site.cluster.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == status, done.stderr
        kept = [line for line in printed.splitlines() if line.strip() and not line.startswith(("[", "org.", "\tat "))]
        assert [line.rstrip() for line in done.stdout.splitlines()] == [line.rstrip() for line in kept]


@pytest.mark.row("R29")
def test_every_preferred_leader(site: Site) -> None:
    """The election of all partitions, twice: the second finds nothing to do; the old tools' node is gone after each."""
    site.create("led", [[1, 0], [0, 1]])
    site.cluster.stop(1)
    site.cluster.start(1)
    site.settle("led")
    assert [each.leader for each in site.partitions("led")] == [0, 0]
    everything = Command(
        "",
        "kafka-preferred-replica-election",
        "--{server}",
        REST,
        instead={"api": ("kafka-leader-election", "--{server} --election-type preferred --all-topic-partitions")},
    )
    for _ in range(2):
        printed = site.type_this(everything)
        if site.way.by_store:
            assert "Successfully started preferred replica election for partitions" in printed.out
        site.until(lambda: [each.leader for each in site.metadata("led")] == [1, 0])
        site.until(lambda: site.get("/admin/preferred_replica_election") is None)


def _reassign(site: Site, arguments: str, prints: str, status: int = 0, file: str = "plan.json") -> str:
    warning = REASSIGN_BY_STORE if site.way.name == "2.8.2-zk" else ""
    line = f"--{{server}} --reassignment-json-file {site.folder}/{file} {arguments}"
    command = Command("", "kafka-reassign-partitions", line, warning + prints, status=status)
    return site.type_this(command).out


@pytest.mark.row("R13")
def test_plans_that_are_refused(site: Site) -> None:
    """Partitions and brokers that are not there; nothing is begun."""
    site.create("planned", [[0]])
    error = "Error: " if site.way.release != "2.2.1" else "Partitions reassignment failed due to "
    status = 0 if site.way.release == "2.2.1" else 1
    site.write("plan.json", plan("nope", [[0]]))
    _reassign(site, "--execute", REST, status)
    site.write("plan.json", plan("planned", [[9]]))
    printed = _reassign(site, "--execute", REST, status)
    reason = (
        "The proposed assignment contains non-existent brokerIDs: 9" if site.way.by_store else "Unknown broker id 9"
    )
    assert f"{error}{reason}" in printed
    assert site.get("/admin/reassign_partitions") is None
    site.settle("planned")


@pytest.mark.row("R13")
def test_throttled_and_rolled_back(site: Site) -> None:
    """Throttles are set before the plan runs and cleared by verify; the plan that execute printed undoes it."""
    topic = "rolled"
    site.create(topic, [[0, 1], [1, 2]])
    site.produce(topic)
    site.write("plan.json", plan(topic, [[1, 2], [2, 0]]))
    printed = _reassign(site, "--execute --throttle 1000000", REST)
    assert "The inter-broker throttle limit was set to 1000000 B/s" in printed
    assert site.get("/config/brokers/1")["config"]["leader.replication.throttled.rate"] == "1000000"
    throttled = "leader.replication.throttled.replicas"
    assert sorted(site.get(f"/config/topics/{topic}")["config"][throttled].split(",")) == ["0:0", "0:1", "1:1", "1:2"]
    site.until(lambda: site.assignment(topic) == {0: [1, 2], 1: [2, 0]})
    site.settle(topic)
    site.until(lambda: site.get("/admin/reassign_partitions") is None)
    _reassign(site, "--verify", REST)
    assert not site.get(f"/config/topics/{topic}")["config"]
    assert not any(site.get(f"/config/brokers/{number}")["config"] for number in range(3))
    rollback = next(line for line in printed.splitlines() if line.startswith('{"version"'))
    site.write("plan.json", rollback)
    _reassign(site, "--execute", REST)
    site.until(lambda: site.assignment(topic) == {0: [0, 1], 1: [1, 2]})
    site.settle(topic)
    site.check_replicas(topic)


@pytest.mark.row("R14")
def test_the_factor_lowered(site: Site) -> None:
    """From three replicas to one; the others' files go."""
    topic = "lowered"
    site.create(topic, [[0, 1, 2], [1, 2, 0]])
    site.produce(topic)
    site.write("plan.json", plan(topic, [[2], [1]]))
    _reassign(site, "--execute", REST)
    site.until(lambda: site.assignment(topic) == {0: [2], 1: [1]})
    site.settle(topic)
    assert site.folders(topic) == {(2, f"{topic}-0"), (1, f"{topic}-1")}
    site.check_replicas(topic)


def test_a_plan_for_a_dead_broker_waits(site: Site) -> None:
    """It is pending while the broker is away: verify says so, the old tools refuse another; done when it is back."""
    if not site.way.by_store:
        pytest.skip("the tools that ask brokers take no plan for one that is away")
    topic = "waiting"
    site.create(topic, [[0]])
    site.write("plan.json", plan(topic, [[2]]))
    site.cluster.stop(2)
    site.write_node("/admin/reassign_partitions", plan(topic, [[2]], directory=None))
    site.until(lambda: site.topic(topic).get("adding_replicas") == {"0": [2]})
    site.write("second.json", plan(topic, [[1]]))
    printed = _reassign(site, "--execute", REST, 0 if site.way.release == "2.2.1" else 1, "second.json")
    assert ("existing" if site.way.release == "2.2.1" else "there is an existing partition assignment") in printed
    printed = _reassign(site, "--verify", REST)
    assert f"Reassignment of partition {topic}-0 is still in progress" in printed
    site.cluster.start(2)
    site.until(lambda: site.assignment(topic) == {0: [2]})
    site.settle(topic)
