"""Clusters whose metadata is in ZooKeeper: one server and three, which die, hang, lose their quorum and come back."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from tests.conformance.zookeeper import DEADLINE_S, Ensemble, ensemble
from tests.ports import free_port
from tests.waiting import until
from tidelog.store.zookeeper import ZooKeeperStore
from tidelog.testing import Cluster

SESSION_TIMEOUT_MS = 3000
SETTINGS = {"zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS, "auto.create.topics.enable": False}
QUIET = {"log_level": 0}
"""librdkafka says on standard error that brokers are not there; we know."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with ensemble(tmp_path_factory.mktemp("three")) as servers:
        yield servers


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with ensemble(tmp_path_factory.mktemp("one"), 1) as servers:
        yield servers


@pytest.fixture
def chroot(request: pytest.FixtureRequest) -> str:
    """A path that nobody else's test has."""
    return "/" + str(request.node.name).replace("[", "-").replace("]", "")


def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})


def create(cluster: Cluster, name: str, partitions: int = 3, replicas: int = 1, seconds: float = DEADLINE_S) -> None:
    """KafkaException when it is refused."""
    client = admin(cluster)
    topics = [NewTopic(name, partitions, replicas)]
    client.create_topics(topics, operation_timeout=seconds, request_timeout=seconds + 10)[name].result()


def send(cluster: Cluster, topic: str, count: int, **settings: object) -> None:
    """`count` records, each acknowledged by all replicas in sync."""
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **QUIET, **settings})
    for number in range(count):
        producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(DEADLINE_S) == 0
    assert failed == []


def count(cluster: Cluster, topic: str) -> int:
    """Records in all partitions of a topic."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", **QUIET})
    try:
        partitions = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=DEADLINE_S) for each in partitions]
        return sum(high - low for low, high in ends)
    finally:
        consumer.close()


def tree(hosts: str, chroot: str) -> KazooClient:
    client = KazooClient(hosts + chroot)
    client.start(DEADLINE_S)
    return client


def registered(hosts: str, chroot: str) -> list[str]:
    client = tree(hosts, chroot)
    try:
        return sorted(client.get_children("/brokers/ids"))
    finally:
        client.stop()
        client.close()


def works(cluster: Cluster, topic: str, replicas: int) -> None:
    """A topic is made, altered, written, read, deleted."""
    client = admin(cluster)
    create(cluster, topic, replicas=replicas)
    send(cluster, topic, 100)
    assert count(cluster, topic) == 100
    entry = ConfigEntry("retention.ms", "1234567", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    described = client.describe_configs([resource])[resource].result(DEADLINE_S)
    assert described["retention.ms"].value == "1234567"
    client.delete_topics([topic])[topic].result(DEADLINE_S)
    assert topic not in client.list_topics(timeout=DEADLINE_S).topics


@pytest.mark.row("R23")
@pytest.mark.parametrize("servers", ["one", "three"])
@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_a_cluster(brokers: int, servers: str, processes: bool, chroot: str, request: pytest.FixtureRequest) -> None:
    """Brokers in one process and in several, on one server and on three, in a chroot that was not there."""
    hosts = request.getfixturevalue(servers).hosts
    with Cluster(SETTINGS, brokers=brokers, processes=processes, zookeeper=f"{hosts}{chroot}/deep") as cluster:
        assert cluster.store == f"{hosts}{chroot}/deep"
        works(cluster, "t", brokers)
        create(cluster, "kept", replicas=brokers)
        send(cluster, "kept", 10)
        cluster.restart()
        assert count(cluster, "kept") == 10
        works(cluster, "t", brokers)
    assert registered(hosts, f"{chroot}/deep") == [], "who stops ends its session"


@pytest.mark.row("R24")
def test_servers_die_and_come_back(three: Ensemble, chroot: str) -> None:
    """One dead server of three is nothing; without a quorum brokers serve on, and what cannot be done is said."""
    with Cluster(SETTINGS, brokers=3, processes=True, zookeeper=three.hosts + chroot) as cluster:
        create(cluster, "t", 6, 3)
        for number in range(3):
            three.kill(number)
            create(cluster, f"while-{number}-is-dead", 6, 3)
            send(cluster, "t", 100)
            three.restart(number)
        leader = three.leader
        rest = [number for number in range(3) if number != leader]
        three.kill(leader)
        three.kill(rest[0])
        send(cluster, "t", 100)
        assert count(cluster, "t") == 400
        with pytest.raises(KafkaException, match="no connection to the metadata store") as refused:
            create(cluster, "late", 6, 3, seconds=4)
        assert refused.value.args[0].name() == "REQUEST_TIMED_OUT"
        send(cluster, "t", 100)
        three.restart(leader, wait=False)
        three.restart(rest[0])
        three.await_serving(leader)
        create(cluster, "afterwards", 6, 3)
        # Its outcome was open when the connection broke; it was read back, and done.
        until(lambda: "late" in admin(cluster).list_topics(timeout=DEADLINE_S).topics)
        works(cluster, "again", 3)
        assert count(cluster, "t") == 500
        for broker in range(3):
            log = Path(cluster.log_path(broker)).read_text()
            losses = log.count("the connection to the metadata store is lost")
            assert 1 <= losses <= 12, "each break is one line, whatever is tried meanwhile"


@pytest.mark.row("R24")
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_server_hangs(role: str, three: Ensemble, chroot: str) -> None:
    """Its connections stay, and nothing comes: sessions move to the servers that go on, and writes with them.

    A follower that wakes is behind the others for a moment: nothing is decided by what it shows then.
    """
    with Cluster(SETTINGS, brokers=3, zookeeper=three.hosts + chroot) as cluster:
        create(cluster, "t", 6, 3)
        victim = three.leader if role == "leader" else (three.leader + 1) % 3
        three.pause(victim)
        try:
            for number in range(4):
                create(cluster, f"t{number}", 6, 3)
                send(cluster, "t", 20)
        finally:
            three.resume(victim)
        create(cluster, "woken", 6, 3)
        send(cluster, "t", 20)
        three.await_serving(victim)
        works(cluster, "again", 3)
        assert count(cluster, "t") == 100


@pytest.mark.row("R24")
def test_topics_made_while_servers_die(three: Ensemble, chroot: str) -> None:
    """What is answered is true: made is there, and nothing that was made is answered with a refusal."""
    with Cluster(SETTINGS, brokers=3, zookeeper=three.hosts + chroot) as cluster:
        answers: dict[str, BaseException | None] = {}
        over = threading.Event()

        def make() -> None:
            client = admin(cluster)
            while not over.is_set():
                name = f"t{len(answers)}"
                topics = [NewTopic(name, 20, 3)]
                answers[name] = client.create_topics(topics, operation_timeout=DEADLINE_S)[name].exception()

        maker = threading.Thread(target=make)
        maker.start()
        try:
            for _ in range(4):
                made = len(answers)
                until(lambda made=made: len(answers) >= made + 3)  # type: ignore[misc]
                leader = three.leader
                three.kill(leader)
                three.restart(leader)
        finally:
            over.set()
            maker.join()
        assert {name: error for name, error in answers.items() if error is not None} == {}
        assert set(answers) <= set(admin(cluster).list_topics(timeout=DEADLINE_S).topics)


@pytest.mark.row("R24")
def test_a_session_ends_while_topics_are_made(one: Ensemble, chroot: str) -> None:
    """Another broker controls; each request has its true answer, or the word that nobody knows."""
    with Cluster(SETTINGS, brokers=3, zookeeper=one.hosts + chroot) as cluster:
        store = tree(one.hosts, chroot)
        controllers = set()
        for number in range(5):
            names = [f"t{number}-{each}" for each in range(30)]
            client = admin(cluster)
            # Two replicas: there may be two brokers only, until the one whose session ended has registered anew.
            made = client.create_topics([NewTopic(name, 5, 2) for name in names], operation_timeout=DEADLINE_S)
            data, stat = store.get("/controller")
            controllers.add(json.loads(data)["brokerid"])
            victim = json.loads(data)["brokerid"]
            driver = cluster.runtimes[victim]._driver
            assert driver is not None
            session = driver._store
            assert isinstance(session, ZooKeeperStore)
            assert session.session_id == stat.ephemeralOwner
            thief = KazooClient(one.hosts, client_id=session.key)
            thief.start(DEADLINE_S)
            thief.stop()
            thief.close()
            errors = {name: future.exception() for name, future in made.items()}
            there = set(admin(cluster).list_topics(timeout=DEADLINE_S).topics)
            for name, error in errors.items():
                if error is None:
                    assert name in there
                else:
                    assert error.args[0].name() in ("REQUEST_TIMED_OUT", "TOPIC_ALREADY_EXISTS"), error
            until(lambda: len(store.get_children("/brokers/ids")) == 3)
        assert len(controllers) > 1
        store.stop()
        store.close()
        works(cluster, "again", 3)


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tidelog", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def said(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and stderr of a command that ends by itself."""
    _, error = process.communicate(timeout=DEADLINE_S)
    return process.returncode, error


def own_words(error: str) -> list[str]:
    return [line for line in error.splitlines() if line.startswith("tidelog: ")]


def test_a_store_without_quorum_is_named(three: Ensemble, tmp_path: Path) -> None:
    """The command ends with what was found at each address, once."""
    leader = three.leader
    dead = [leader, (leader + 1) % 3]
    for each in dead:
        three.kill(each)
    try:
        until(lambda: not three.servers[(leader + 2) % 3].mode)
        for brokers in ("1", "2"):
            arguments = ["--brokers", brokers, "--data", str(tmp_path / brokers), "--port", "0"]
            timeout = ["--set", "zookeeper.connection.timeout.ms=2000"]
            code, error = said(start("start", *arguments, *timeout, "--zookeeper", f"{three.hosts}/quorum"))
            assert code == 1
            (words,) = own_words(error)
            assert "serves nobody, for its ensemble has no quorum" in words
            assert "Connection refused" in words
            assert "zookeeper.connect" in words
    finally:
        for each in dead:
            three.restart(each, wait=False)
        for each in dead:
            three.await_serving(each)


def properties(folder: Path, hosts: str, **more: str) -> str:
    """A broker's file; underscores stand for dots."""
    folder.mkdir()
    settings = {
        "broker.id": "7",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder / "logs"),
        "zookeeper.connect": hosts,
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(file)


def ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("ready: "), process.communicate()
    return line.removeprefix("ready: ").strip()


def ended(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()
        process.communicate()


def test_an_id_registered_twice(one: Ensemble, chroot: str, tmp_path: Path) -> None:
    """The second broker waits for the first one's session to end, says so, and gives up; the first goes on."""
    hosts = one.hosts + chroot
    first = start("broker", properties(tmp_path / "a", hosts))
    second = None
    try:
        ready(first)
        second = start("broker", properties(tmp_path / "b", hosts))
        code, error = said(second)
        assert code == 1
        assert "waiting for it to end" in error
        (words,) = own_words(error)
        assert "/brokers/ids/7" in words
        assert "broker.id" in words
        assert registered(one.hosts, chroot) == ["7"]
        # The same place in its next life: the former session has not ended yet when it comes.
        ended([first])
        again = start("broker", properties(tmp_path / "c", hosts, log_dirs=str(tmp_path / "a" / "logs")))
        try:
            ready(again)
        finally:
            ended([again])
    finally:
        ended([first] + ([second] if second is not None else []))


def test_a_killed_broker_is_gone_at_once(one: Ensemble, chroot: str) -> None:
    """Its supervisor ends its session, and no other's: nobody waits for a timeout."""
    settings = SETTINGS | {"zookeeper.session.timeout.ms": 10_000}
    with Cluster(settings, brokers=3, processes=True, zookeeper=one.hosts + chroot) as cluster:
        create(cluster, "t", 6, 3)
        for victim in (2, 0, 1):
            cluster.kill(victim)
            others = sorted({"0", "1", "2"} - {str(victim)})
            assert registered(one.hosts, chroot) == others
            send(cluster, "t", 10)
            cluster.start(victim)
        assert count(cluster, "t") == 30


def test_nodes_that_belong_to_their_creator(one: Ensemble, chroot: str, tmp_path: Path) -> None:
    """zookeeper.set.acl: what the broker makes, others may read, but not what has passwords; and none may write."""
    hosts = one.hosts + chroot
    broker = start("broker", properties(tmp_path / "a", hosts, zookeeper_set_acl="true", zookeeper_digest="me:secret"))
    stranger = KazooClient(hosts)
    try:
        bootstrap = ready(broker)
        stranger.start(DEADLINE_S)
        client = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        client.create_topics([NewTopic("t", 2, 1)])["t"].result(DEADLINE_S)
        # To strangers ZooKeeper shows no hash.
        owner = "digest", "me:x"
        open_to_all = [(31, "world", "anyone")]
        owned = [(1, "world", "anyone"), (31, *owner)]

        def access(path: str) -> list[tuple[int, str, str]]:
            return sorted((each.perms, each.id.scheme, each.id.id) for each in stranger.get_acls(path)[0])

        for path in ("/brokers/topics/t", "/brokers/ids/7", "/controller", "/brokers/topics/t/partitions/1/state"):
            assert access(path) == owned, path
        assert access("/config/topics/t") == owned
        assert access("/consumers") == open_to_all
        for path in ("/config/users", "/config/brokers"):
            with pytest.raises(NoAuthError):
                stranger.get_children(path)
        second = start("broker", properties(tmp_path / "b", hosts, broker_id="8"))
        code, error = said(second)
        assert code == 1
        (words,) = own_words(error)
        assert "zookeeper.digest" in words
        assert "/config/users" in words
    finally:
        stranger.stop()
        stranger.close()
        ended([broker])


def test_an_address_where_nobody_is(tmp_path: Path) -> None:
    """It is named, with what the system says of it."""
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        hosts = f"127.0.0.1:{port},127.0.0.1:{deaf.getsockname()[1]}"
        file = properties(tmp_path / "a", hosts, zookeeper_connection_timeout_ms="1000")
        code, error = said(start("broker", file))
    assert code == 1
    (words,) = own_words(error)
    assert f"127.0.0.1:{port}: Connect" in words
    assert "does not answer" in words
