"""A whole broker: start, stop, restart, what keeps it from starting, and what survives a kill."""

import logging
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from tests.waiting import until_equal

from tidelog.broker.failure import BrokerFailed
from tidelog.testing import Cluster, ProcessBroker

COUNT = 500


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        yield started


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(180)
    return admin


def send(bootstrap: str, topic: str, values: list[bytes], **settings: object) -> list[object]:
    """Sends values to partition 0; the errors."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, **settings})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: error and errors.append(error))
    assert producer.flush(180) == 0
    return errors


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
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


def test_librdkafka_creates_produces_and_consumes(cluster: Cluster) -> None:
    """The whole way with an unchanged client, large values by sendfile among them."""
    create(cluster.bootstrap, "t")
    values = [str(index).encode() * (index % 300) for index in range(COUNT)] + [os.urandom(900_000)]
    assert send(cluster.bootstrap, "t", values) == []
    assert read(cluster.bootstrap, "t", COUNT + 1) == values


def test_a_restart_keeps_everything() -> None:
    """After a clean stop and start all is there: topics, their settings, records."""
    with Cluster() as cluster:
        create(cluster.bootstrap, "t", retention_ms="86400000")
        send(cluster.bootstrap, "t", [b"before"])
        cluster.restart()
        assert read(cluster.bootstrap, "t", 1) == [b"before"]
        send(cluster.bootstrap, "t", [b"after"])
        assert read(cluster.bootstrap, "t", 2) == [b"before", b"after"]
        (log,) = [
            log for log in cluster.call(lambda: list(cluster.runtime.node.logs.logs())) if log.topic_partition[0] == "t"
        ]
        assert log.config.retention_ms == 86_400_000


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    """SIGKILL at any time: every acknowledged record is there after the restart, in order, once."""
    with ProcessBroker(data=str(tmp_path)) as broker:
        create(broker.bootstrap, "t")
        values = [str(index).encode() for index in range(COUNT)]
        assert send(broker.bootstrap, "t", values, **{"enable.idempotence": True}) == []
        broker.restart()
        assert read(broker.bootstrap, "t", COUNT) == values
        assert send(broker.bootstrap, "t", [b"more"]) == []
        assert read(broker.bootstrap, "t", COUNT + 1) == [*values, b"more"]


def test_clients_see_no_failure_while_a_broker_stops_and_comes_back() -> None:
    """Leaderships are handed over first: producers with acks=all go on, and nothing they sent is missing or doubled."""
    settings = {"default.replication.factor": "3", "min.insync.replicas": "2"}
    with Cluster(settings, brokers=3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(180)
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
        sent = 0

        def send_some() -> None:
            nonlocal sent
            for _ in range(100):
                producer.produce("t", str(sent).encode(), partition=0, on_delivery=note)
                sent += 1
            assert producer.flush(180) == 0

        def note(error: object, _: object) -> None:
            if error is not None:
                errors.append(error)

        for broker_id in range(3):
            send_some()
            stopping = threading.Thread(target=cluster.stop, args=(broker_id,))
            stopping.start()
            while stopping.is_alive():
                send_some()
            stopping.join()
            cluster.start(broker_id)
        assert errors == []
        assert read(cluster.bootstrap, "t", sent) == [str(index).encode() for index in range(sent)]


def test_a_port_in_use_is_a_clear_error(cluster: Cluster) -> None:
    """The second broker on a port says which, and what to do; the first goes on."""
    port = int(cluster.bootstrap.rpartition(":")[2])
    with pytest.raises(BrokerFailed, match=rf"127\.0\.0\.1:{port} is in use"):
        Cluster(port=port).start()
    create(cluster.bootstrap, "t")


def test_a_data_directory_in_use_is_a_clear_error(cluster: Cluster) -> None:
    """The second broker on a folder is refused before it touches anything."""
    with pytest.raises(BrokerFailed, match="another running process"):
        Cluster(data=cluster.data).start()
    create(cluster.bootstrap, "t")


def test_the_data_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """Log directories that belong to another cluster are not served: the message names both."""
    with Cluster(data=str(tmp_path / "one")):
        pass
    with Cluster(data=str(tmp_path / "two")):
        pass
    one, two = (str(tmp_path / name / "broker-0") for name in ("one", "two"))
    with pytest.raises(BrokerFailed, match="cluster"):
        Cluster({"log.dirs": one}, data=str(tmp_path / "two")).start()
    assert two != one


def test_settings_are_changed_while_running(cluster: Cluster) -> None:
    """An altered setting holds as soon as the admin client has its answer."""
    admin = create(cluster.bootstrap, "t")
    entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(180)
    errors = send(cluster.bootstrap, "t", [os.urandom(5_000)])
    assert len(errors) == 1


def test_hostile_connections_leave_the_broker_in_order(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Garbage, negative, oversized and cut frames on many connections: closed, and clients go on."""
    host, _, port = cluster.bootstrap.rpartition(":")
    attacks = [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", -5),
        struct.pack(">i", 2**31 - 1),
        b"\0\0\1",
        os.urandom(500),
    ]
    with caplog.at_level(logging.ERROR):
        for attack in attacks * 10:
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(attack)
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(180)
                while connection.recv(1 << 16):
                    pass
    create(cluster.bootstrap, "t")
    assert not [record for record in caplog.records if record.name.startswith("tidelog")]


def test_a_failed_directory_loses_its_leaderships(tmp_path: Path) -> None:
    """Its partitions have no leader and an offline replica, as in Kafka; the others go on; a restart brings it back."""
    log_dirs = f"{tmp_path}/a,{tmp_path}/b"
    with Cluster({"log.dirs": log_dirs}, data=str(tmp_path)) as cluster:
        admin = create(cluster.bootstrap, "t", partitions=2)

        def fail_directory_of(partition: int) -> None:
            logs = cluster.runtime.node.logs
            (directory,) = [one for one in logs.directories if ("t", partition) in one.logs]
            directory.failed(OSError(5, "Input/output error"), "testing")

        def leaders() -> list[int]:
            topic = admin.list_topics("t", timeout=180).topics["t"]
            return [topic.partitions[index].leader for index in sorted(topic.partitions)]

        assert leaders() == [0, 0]
        cluster.call(fail_directory_of, 1)
        until_equal(leaders, [0, -1])
        assert send(cluster.bootstrap, "t", [b"goes on"]) == []
        cluster.restart()
        until_equal(leaders, [0, 0])


def test_timers_of_a_broker_that_has_stopped_do_nothing() -> None:
    """Another one may have its logs by then, in the same process: the end of a member's session must not be written."""
    with Cluster(brokers=2) as cluster:
        stopped, other = cluster.runtimes[1], cluster.runtimes[0]
        fired: list[str] = []
        stop = threading.Event()
        cluster.call(stopped._shell.after, 1, fired.append, "while it runs")
        until_equal(lambda: fired, ["while it runs"])
        cluster.stop(1)
        cluster.call(stopped._shell.after, 1, fired.append, "after its stop")
        cluster.call(other._shell.after, 2, stop.set)
        assert stop.wait(180)
        assert fired == ["while it runs"]


def test_nothing_stays_behind() -> None:
    """After the stop the threads of the broker end, its folder is gone, and its port is free."""
    before = set(threading.enumerate())
    cluster = Cluster()
    cluster.start()
    create(cluster.bootstrap, "t")
    data, port = cluster.data, int(cluster.bootstrap.rpartition(":")[2])
    # Not those that another cluster in this process may begin meanwhile for its directories.
    names = ("tidelog-cluster", "tidelog-store", f"tidelog-io {data}")
    own = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith(names)]
    assert {name for name in names if any(thread.name.startswith(name) for thread in own)} == {*names}
    cluster.stop()
    assert not os.path.exists(data)
    for thread in own:
        thread.join(180)  # It has been told to end, and may be about to.
    assert not [thread for thread in own if thread.is_alive()]
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_replication_factor_above_the_brokers_is_refused(cluster: Cluster) -> None:
    """The controller's own words reach the client."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        admin.create_topics([NewTopic("t", 1, 3)])["t"].result(180)
