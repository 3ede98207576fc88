"""`tidelog.testing.Cluster` with several brokers, in this process and in processes of their own."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from tests.unit.launcher.processes import ended, free, runs
from tests.waiting import until

from tidelog.broker.failure import BrokerFailed
from tidelog.store.persistence import NoRoom, PersistenceFailed
from tidelog.store.sqlite import SqlitePersistence
from tidelog.store.tree import Changes
from tidelog.testing import Cluster

BROKERS = 3


@pytest.fixture(scope="module", params=[False, True], ids=["one process", "processes"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers; each test leaves all of them running."""
    with Cluster(brokers=BROKERS, processes=request.param) as started:
        yield started


@pytest.fixture(scope="module")
def processes() -> Iterator[Cluster]:
    """Three processes that may be killed; each test leaves all of them running."""
    with Cluster({"zookeeper.session.timeout.ms": 2000}, brokers=BROKERS, processes=True) as started:
        yield started


def check_commits(cluster: Cluster, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls `check` before each commit of this cluster's store, and of no other one in this process."""
    commit = SqlitePersistence.commit

    async def checked(self: SqlitePersistence, changes: Changes) -> None:
        if self._directory.startswith(f"{cluster.data}/"):
            check()
        await commit(self, changes)

    monkeypatch.setattr(SqlitePersistence, "commit", checked)


def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def create(cluster: Cluster, topic: str, partitions: int, replicas: int, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    client = admin(cluster)  # Kept until the answer has come.
    client.create_topics([NewTopic(topic, partitions, replicas, config=settings)])[topic].result(180)


def leaders(cluster: Cluster, topic: str) -> list[int]:
    described = admin(cluster).list_topics(topic, timeout=180).topics[topic].partitions
    return [described[index].leader for index in sorted(described)]


def in_sync(cluster: Cluster, topic: str) -> list[list[int]]:
    described = admin(cluster).list_topics(topic, timeout=180).topics[topic].partitions
    return [sorted(described[index].isrs) for index in sorted(described)]


def send(cluster: Cluster, topic: str, partition: int, values: list[bytes]) -> None:
    """All of them acknowledged by every replica in sync."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 1})
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: error and errors.append(error))
    assert producer.flush(180) == 0
    assert errors == []


def read(cluster: Cluster, topic: str, partition: int, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        values: list[bytes] = []
        while len(values) < count:
            messages = consumer.consume(count - len(values), 180)
            assert messages, f"{len(values)} of {count} values came"
            for message in messages:
                assert message.error() is None
                values.append(message.value())
        return values
    finally:
        consumer.close()


def registered(cluster: Cluster) -> list[str]:
    client = KazooClient(cluster.store)
    client.start(180)
    try:
        return sorted(client.get_children("/brokers/ids"))
    finally:
        client.stop()
        client.close()


def test_every_broker_names_all_and_serves_its_part(cluster: Cluster) -> None:
    """A partition on each broker takes and gives records; the store has the registrations."""
    for broker_id in range(BROKERS):
        named = AdminClient({"bootstrap.servers": cluster.address(broker_id)}).list_topics(timeout=180).brokers
        assert sorted(named) == list(range(BROKERS))
    create(cluster, "spread", BROKERS, 1)
    until(lambda: sorted(leaders(cluster, "spread")) == list(range(BROKERS)), "each broker leads a partition")
    for partition in range(BROKERS):
        send(cluster, "spread", partition, [b"%d" % partition])
        assert read(cluster, "spread", partition, 1) == [b"%d" % partition]
    assert registered(cluster) == ["0", "1", "2"]
    assert all(os.path.isdir(cluster.data_of(broker_id)) for broker_id in range(BROKERS))


def test_a_broker_that_is_stopped_and_started_has_its_port_and_data(cluster: Cluster) -> None:
    """Meanwhile the others serve its partitions, and what they took is on all of them afterwards."""
    create(cluster, "replicated", BROKERS, BROKERS)
    for partition in range(BROKERS):
        send(cluster, "replicated", partition, [b"before"])
    address = cluster.address(1)
    cluster.stop(1)
    assert registered(cluster) == ["0", "2"]
    until(lambda: 1 not in leaders(cluster, "replicated"), "others lead")
    for partition in range(BROKERS):
        send(cluster, "replicated", partition, [b"meanwhile"])
    cluster.start(1)
    assert cluster.address(1) == address
    until(lambda: in_sync(cluster, "replicated") == [[0, 1, 2]] * BROKERS, "it has caught up")
    for partition in range(BROKERS):
        assert read(cluster, "replicated", partition, 2) == [b"before", b"meanwhile"]


def test_groups_work_on_several_brokers(cluster: Cluster) -> None:
    """Internal topics have as many replicas as there are brokers, three at most, so that they can be made."""
    create(cluster, "committed", 1, BROKERS)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False})
    try:
        position = TopicPartition("committed", 0, 7)
        consumer.commit(offsets=[position], asynchronous=False)
        assert consumer.committed([TopicPartition("committed", 0)], timeout=180)[0].offset == 7
    finally:
        consumer.close()
    replicas = admin(cluster).list_topics("__consumer_offsets", timeout=180).topics["__consumer_offsets"].partitions
    assert {len(partition.replicas) for partition in replicas.values()} == {BROKERS}


def test_a_restart_of_the_whole_cluster_keeps_everything(cluster: Cluster) -> None:
    """Ports, topics and records."""
    create(cluster, "kept", BROKERS, BROKERS)
    for partition in range(BROKERS):
        send(cluster, "kept", partition, [b"kept"])
    bootstrap = cluster.bootstrap
    cluster.restart()
    assert cluster.bootstrap == bootstrap
    for partition in range(BROKERS):
        assert read(cluster, "kept", partition, 1) == [b"kept"]


def test_settings_of_single_brokers() -> None:
    """Win over those of all."""
    racks = {broker_id: {"broker.rack": f"rack-{broker_id}"} for broker_id in (0, 1)}
    with Cluster({"broker.rack": "somewhere"}, brokers=BROKERS, of_broker=racks) as cluster:
        found = [cluster.runtimes[broker_id].config.broker_rack for broker_id in range(BROKERS)]
    assert found == ["rack-0", "rack-1", "somewhere"]


def test_a_setting_that_cannot_be_ends_the_start() -> None:
    """With the words that the command line has, and no thread left behind."""
    before = set(threading.enumerate())
    for processes in (False, True):
        with pytest.raises(ValueError, match=r"broker\.id: each of the brokers has its own"):
            Cluster({"broker.id": 4}, brokers=2, processes=processes).start()
        with pytest.raises(ValueError, match=r"num\.partitions"):
            Cluster({"num.partitions": "many"}, brokers=2, processes=processes).start()
    # This module's cluster may begin threads for its directories meanwhile.
    begun = {thread.name for thread in set(threading.enumerate()) - before}
    assert not [name for name in begun if not name.startswith("tidelog-io ")]


def test_a_broker_that_is_none_is_refused(cluster: Cluster) -> None:
    """Whoever asks for it has miscounted."""
    for act in (cluster.start, cluster.stop):
        with pytest.raises(ValueError, match="no broker 3: its brokers are 0 to 2"):
            act(BROKERS)


def test_what_needs_processes_says_so() -> None:
    """A broker in this process cannot be killed."""
    with Cluster() as cluster:
        for act in (cluster.kill, cluster.pause, cluster.resume, cluster.pid, cluster.log_path):
            with pytest.raises(RuntimeError, match="processes=True"):
                act(0)


def test_a_killed_broker_loses_nothing_that_was_acknowledged(processes: Cluster) -> None:
    """SIGKILL for a leader: another leads at once, takes records, and the dead one gets them when it is back."""
    create(processes, "killed", 1, BROKERS, min_insync_replicas="2")
    send(processes, "killed", 0, [b"before"])
    (leader,) = leaders(processes, "killed")
    pid = processes.pid(leader)
    processes.kill(leader)
    assert not runs(pid)
    assert str(leader) not in registered(processes), "the session has ended, too"
    with pytest.raises(RuntimeError, match=f"broker {leader} does not run"):
        processes.pid(leader)
    send(processes, "killed", 0, [b"meanwhile"])
    processes.restart(leader)
    assert processes.pid(leader) != pid
    until(lambda: in_sync(processes, "killed") == [[0, 1, 2]], "it has caught up")
    assert read(processes, "killed", 0, 2) == [b"before", b"meanwhile"]
    assert Path(processes.log_path(leader)).stat().st_size > 0


def test_a_paused_broker_is_replaced_and_comes_back(processes: Cluster) -> None:
    """SIGSTOP: its session times out, others lead; after SIGCONT it registers anew and follows."""
    create(processes, "paused", 1, BROKERS)
    send(processes, "paused", 0, [b"before"])
    (leader,) = leaders(processes, "paused")
    processes.pause(leader)
    others = ",".join(processes.address(broker_id) for broker_id in range(BROKERS) if broker_id != leader)
    until(
        lambda: (
            AdminClient({"bootstrap.servers": others}).list_topics("paused").topics["paused"].partitions[0].leader
            != leader
        ),
        "another leads",
    )
    processes.resume(leader)
    until(lambda: in_sync(processes, "paused") == [[0, 1, 2]], "it is back")
    assert read(processes, "paused", 0, 1) == [b"before"]


def test_a_paused_broker_does_not_hinder_the_end() -> None:
    """Whoever stops the cluster need not remember whom he has paused."""
    cluster = Cluster(brokers=2, processes=True)
    cluster.start()
    pids = [cluster.pid(broker_id) for broker_id in (0, 1)]
    addresses = cluster.bootstrap.split(",")
    data = cluster.data
    cluster.pause(0)
    cluster.stop()
    assert not any(runs(pid) for pid in pids)
    assert all(free(address) for address in addresses)
    assert not os.path.exists(data)


def test_brokers_end_with_the_process_that_tests() -> None:
    """However it ends, and also those that are paused."""
    code = (
        "from tidelog.testing import Cluster\n"
        "c = Cluster(brokers=2, processes=True); c.start(); c.pause(1)\n"
        "print(c.pid(0), c.pid(1), c.data, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tests:
        assert tests.stdout is not None
        first, second, data = tests.stdout.readline().split()
        tests.send_signal(signal.SIGKILL)
        tests.wait()
        assert ended(int(first))
        assert ended(int(second))
    shutil.rmtree(data)


def test_a_broker_that_fails_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """As when it had a process of its own; alone, its end is the cluster's, and is told at the stop."""
    with Cluster(brokers=2) as cluster:

        def fail() -> None:
            for directory in cluster.runtimes[0].node.logs.directories:
                directory.failed(OSError(5, "Input/output error"), "testing")

        cluster.call(fail)
        until(lambda: sorted(cluster.runtimes) == [1], "broker 0 has stopped")
        until(lambda: registered(cluster) == ["1"], "its registration is gone")
    assert "broker 0: every log directory has failed" in caplog.text
    alone = Cluster()
    alone.start()
    alone.call(lambda: [d.failed(OSError(5, "EIO"), "testing") for d in alone.runtime.node.logs.directories])
    until(lambda: not alone.is_running, "the cluster has ended")
    with pytest.raises(BrokerFailed, match="every log directory has failed"):
        alone.stop()


@pytest.mark.parametrize("processes", [False, True])
def test_a_store_without_room_is_waited_for(processes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers serve what they lead; what needs the store waits, and happens when there is room; so does a stop."""
    full = threading.Event()

    def refuse_if_full() -> None:
        if full.is_set():
            raise NoRoom("database or disk is full")

    with Cluster({"zookeeper.session.timeout.ms": 2000}, brokers=2, processes=processes) as cluster:
        check_commits(cluster, refuse_if_full, monkeypatch)
        create(cluster, "t", 2, 2)
        full.set()
        client = admin(cluster)
        waiting = client.create_topics([NewTopic("late", 1, 2)], operation_timeout=180, request_timeout=240)["late"]
        for partition in range(2):
            send(cluster, "t", partition, [b"meanwhile"])
            assert read(cluster, "t", partition, 1) == [b"meanwhile"]
        assert not waiting.done()
        assert sorted(leaders(cluster, "t")) == [0, 1]
        full.clear()
        waiting.result(180)
        send(cluster, "late", 0, [b"then"])
        assert cluster.is_running


@pytest.mark.parametrize("processes", [False, True])
def test_a_store_that_fails_ends_the_cluster(processes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody can make durable is not promised: the stop says why the cluster ended, and nothing is left of it."""
    cluster = Cluster(brokers=2, processes=processes)
    cluster.start()
    addresses = cluster.bootstrap.split(",")

    def fail() -> None:
        raise PersistenceFailed("No space left on device")

    check_commits(cluster, fail, monkeypatch)
    client = admin(cluster)
    client.create_topics([NewTopic("t", 1, 1)])
    until(lambda: not cluster.is_running, "the cluster has ended")
    with pytest.raises(BrokerFailed, match="the metadata store failed: No space left on device"):
        cluster.stop()
    assert all(free(address) for address in addresses)


def test_a_store_that_fails_meanwhile_ends_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker would ask it again and again."""
    commit, commits = SqlitePersistence.commit, itertools.count()

    async def fail(persistence: SqlitePersistence, changes: Changes) -> None:
        if next(commits) == 2:
            raise PersistenceFailed("Input/output error")
        await commit(persistence, changes)

    monkeypatch.setattr(SqlitePersistence, "commit", fail)
    with pytest.raises(BrokerFailed, match="the metadata store failed: Input/output error"):
        Cluster().start()


def test_a_secured_cluster_keeps_its_users(tmp_path: Path) -> None:
    """Its folder is made at the first start; users that are not there are told of."""
    with Cluster(security=True, data=str(tmp_path)) as cluster:
        password = cluster.client()["sasl.password"]
        cluster.restart()
        assert cluster.client("admin")["sasl.password"] == password
        assert cluster.client()["bootstrap.servers"] == cluster.bootstrap
        assert "127.0.0.1" in cluster.bootstrap
        with pytest.raises(ValueError, match="without a user bob"):
            cluster.client("bob")


def test_an_open_cluster_has_no_users() -> None:
    """Its clients need to know where it is, and nothing else."""
    with Cluster() as cluster:
        assert cluster.client() == {"bootstrap.servers": cluster.bootstrap}
        with pytest.raises(ValueError, match="open to all"):
            cluster.client_properties()
