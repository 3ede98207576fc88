"""From outside: partitions move to a new broker and away from an old one, under load, over deaths, up and down."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.waiting import until, until_equal

from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.metadata.znodes import REASSIGN_PARTITIONS, encode_reassignment
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition as Partition
from tidelog.testing import Cluster

DEADLINE_S = 180.0
BROKERS = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Four processes; each test has topics of its own, and leaves all brokers running."""
    settings = {
        "auto.create.topics.enable": False,
        "auto.leader.rebalance.enable": False,
        # Leadership that was lost by a pause of the machine would not come back.
        "zookeeper.session.timeout.ms": 6000,
        "log.segment.delete.delay.ms": 0,
    }
    with Cluster(settings, brokers=BROKERS, processes=True) as cluster:
        yield cluster


def create(cluster: Cluster, topic: str, assignment: Sequence[Sequence[int]], **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(topic, len(assignment), replica_assignment=[list(each) for each in assignment], config=settings)
    client.create_topics([new])[topic].result(DEADLINE_S)


class Admin:
    """What an operator asks and sees."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def reassign(
        self, topic: str, targets: Mapping[int, Sequence[int] | None], **options: bool
    ) -> dict[int, KafkaError | None]:
        wanted = {Partition(topic, index): replicas for index, replicas in targets.items()}
        with BlockingCluster(self._cluster.bootstrap) as client:
            outcomes = client.run(admin.alter_reassignments(client.routing, wanted, **options))
        return {each.partition: error for each, error in outcomes.items()}

    def under_way(self) -> dict[Partition, admin.Reassignment]:
        with BlockingCluster(self._cluster.bootstrap) as client:
            return client.run(admin.reassignments(client.routing))

    def replicas(self, topic: str) -> list[tuple[int, ...]]:
        partitions = self._topic(topic)
        return [tuple(partitions[index].replicas) for index in sorted(partitions)]

    def in_sync(self, topic: str) -> list[tuple[int, ...]]:
        partitions = self._topic(topic)
        return [tuple(sorted(partitions[index].isr)) for index in sorted(partitions)]

    def leaders(self, topic: str) -> list[int]:
        partitions = self._topic(topic)
        return [partitions[index].leader for index in sorted(partitions)]

    def controller(self) -> int:
        with BlockingCluster(self._cluster.bootstrap) as client:
            return int(client.run(admin.describe_cluster(client.routing)).controller_id)

    def _topic(self, topic: str) -> Any:
        with BlockingCluster(self._cluster.bootstrap) as client:
            view = client.run(admin.describe_topics(client.routing, [topic]))[topic]
        assert not isinstance(view, KafkaError)
        return view.partitions


class Traffic:
    """A producer and a consumer that go on all the while: numbers, in order, in each partition."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int, **producer: object) -> None:
        self._topic, self._partitions = topic, partitions
        self.sent = [0] * partitions
        self.read: list[list[int]] = [[] for _ in range(partitions)]
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._complete = threading.Event()
        settings = {"bootstrap.servers": cluster.bootstrap, "topic.metadata.refresh.interval.ms": 500}
        self._producer = Producer(
            {**settings, "acks": "all", "enable.idempotence": True, "linger.ms": 2, "retry.backoff.ms": 20, **producer}
        )
        self._consumer = Consumer({**settings, "group.id": f"{topic}-reader", "enable.auto.commit": False})
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * DEADLINE_S)
        self._consumer.close()

    def _produce(self) -> None:
        while not self._stop.wait(0.005):
            for partition in range(self._partitions):
                for _ in range(10):
                    value = str(self.sent[partition]).encode()
                    self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
                    self.sent[partition] += 1
            self._producer.poll(0)
        if self._producer.flush(DEADLINE_S):
            self.errors.append("not all was acknowledged")
        self._complete.set()

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self.errors.append(str(error))

    def _consume(self) -> None:
        self._consumer.assign([TopicPartition(self._topic, index, 0) for index in range(self._partitions)])
        deadline = time.monotonic() + 3 * DEADLINE_S
        while time.monotonic() < deadline:
            for message in self._consumer.consume(1_000, 0.2):
                partition, value = message.partition(), message.value()
                if message.error() is None and partition is not None and value is not None:
                    self.read[partition].append(int(value))
            counts = zip(self.read, self.sent, strict=True)
            if self._complete.is_set() and all(len(values) >= count for values, count in counts):
                return

    def check(self) -> None:
        """Nothing was lost or repeated, and the order was kept."""
        assert self.errors == []
        assert all(count > 0 for count in self.sent)
        for partition, (values, count) in enumerate(zip(self.read, self.sent, strict=True)):
            wrong = next((at for at, value in enumerate(values) if value != at), None)
            around = values[max(0, (wrong or 0) - 3) : (wrong or 0) + 5]
            assert (wrong, len(values)) == (None, count), f"partition {partition}: {around}"


def folders(cluster: Cluster, broker_id: int, topic: str) -> list[str]:
    """A broker's partitions of a topic, without those on their way out."""
    root = cluster.data_of(broker_id)
    found = [name for _, names, _ in os.walk(root) for name in names]
    return sorted(name for name in found if name.startswith(f"{topic}-") and "." not in name)


@pytest.mark.row("R12")
@pytest.mark.row("R13")
def test_a_fourth_broker_comes_into_service_and_another_one_retires(cluster: Cluster) -> None:
    """Under load: nothing is lost or repeated, the order is kept; who retires has nothing left and may stop."""
    create(cluster, "moved", [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1]])
    operator = Admin(cluster)
    with Traffic(cluster, "moved", 4) as traffic:
        until(lambda: min(map(len, traffic.read)) > 100)
        targets = {0: [3, 1, 2], 1: [1, 2, 3], 2: [2, 3, 1], 3: [3, 2, 1]}
        assert operator.reassign("moved", targets) == dict.fromkeys(targets)
        until_equal(operator.under_way, {})
        until_equal(lambda: operator.replicas("moved"), [tuple(replicas) for replicas in targets.values()])
        until_equal(lambda: operator.leaders("moved"), [3, 1, 2, 3])
        until_equal(lambda: operator.in_sync("moved"), [(1, 2, 3)] * 4)
        seen = [len(each) for each in traffic.read]
        until_equal(lambda: folders(cluster, 0, "moved"), [])
        cluster.stop(0)
        until(lambda: all(len(each) > before + 100 for each, before in zip(traffic.read, seen, strict=True)))
    traffic.check()
    cluster.start(0)


@pytest.mark.row("R14")
def test_the_replication_factor_goes_up_and_down(cluster: Cluster) -> None:
    """Under load with min.insync.replicas=2, which nobody has to fulfil who has one replica."""
    create(cluster, "copies", [[0], [1]], min_insync_replicas="2")
    operator = Admin(cluster)
    with Traffic(
        cluster, "copies", 2, **{"message.timeout.ms": 60_000, "retries": 0, "enable.idempotence": False}
    ) as up:
        until(lambda: min(map(len, up.read)) > 100)
        assert operator.reassign("copies", {0: [0, 1, 2], 1: [1, 2, 3]}) == {0: None, 1: None}
        until_equal(operator.under_way, {})
        until_equal(lambda: operator.in_sync("copies"), [(0, 1, 2), (1, 2, 3)])
    up.check()
    [kept] = operator.reassign("copies", {0: [2]}, allow_replication_factor_change=False).values()
    assert kept is not None
    assert kept.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert operator.reassign("copies", {0: [2], 1: [1, 3]}) == {0: None, 1: None}
    until_equal(operator.under_way, {})
    until_equal(lambda: (operator.replicas("copies"), operator.leaders("copies")), ([(2,), (1, 3)], [2, 1]))
    until_equal(
        lambda: [folders(cluster, id, "copies") for id in range(4)], [[], ["copies-1"], ["copies-0"], ["copies-1"]]
    )
    after = Traffic(cluster, "copies", 2)
    after.sent = [len(each) for each in up.read]
    with after:
        until(lambda: min(len(each) for each in after.read) > min(map(len, up.read)))
    after.check()


@pytest.mark.row("R13")
def test_it_goes_on_when_the_target_and_the_controller_were_away(cluster: Cluster) -> None:
    """A target that stands still is waited for; the next controller knows of it; what was cancelled is gone."""
    create(cluster, "stuck", [[0, 1], [1, 0], [2, 0]])
    operator = Admin(cluster)
    with Traffic(cluster, "stuck", 3) as traffic:
        until(lambda: min(map(len, traffic.read)) > 100)
        first = operator.controller()
        target = next(id for id in (3, 2) if id != first)
        cluster.pause(target)
        try:
            wanted = [target, 1]
            assert operator.reassign("stuck", {0: wanted, 1: [0, target]}) == {0: None, 1: None}
            assert set(operator.under_way()) == {Partition("stuck", 0), Partition("stuck", 1)}
            cluster.kill(first)
            until(lambda: operator.controller() not in (first, -1))
            cluster.restart(first)
            until_equal(lambda: set(operator.under_way()), {Partition("stuck", 0), Partition("stuck", 1)})
            assert operator.reassign("stuck", {1: None}) == {1: None}
            assert set(operator.under_way()) == {Partition("stuck", 0)}
        finally:
            cluster.resume(target)
        until_equal(operator.under_way, {})
        until_equal(lambda: operator.replicas("stuck")[0], tuple(wanted))
        until_equal(lambda: set(operator.replicas("stuck")[1]), {0, 1})
        until_equal(lambda: operator.in_sync("stuck")[:2], [tuple(sorted(wanted)), (0, 1)])
    traffic.check()


@pytest.mark.row("R12")
def test_a_plan_in_the_store(cluster: Cluster) -> None:
    """As the old tools leave it: taken when it is made, gone when all is done; unknown topics are dropped."""
    create(cluster, "planned", [[0, 1], [1, 2]])
    operator = Admin(cluster)
    zookeeper = KazooClient(hosts=cluster.store)
    zookeeper.start()

    def content() -> bytes | None:
        try:
            return bytes(zookeeper.get(REASSIGN_PARTITIONS)[0])
        except NoNodeError:
            return None

    try:
        plan = {Partition("planned", 0): [3, 1], Partition("nope", 0): [1], Partition("planned", 1): [2, 1]}
        zookeeper.create(REASSIGN_PARTITIONS, encode_reassignment(plan))
        until_equal(content, None)
        until_equal(operator.under_way, {})
        until_equal(lambda: operator.replicas("planned"), [(3, 1), (2, 1)])
        zookeeper.create(REASSIGN_PARTITIONS, encode_reassignment({Partition("planned", 0): [77, 1]}))
        until_equal(lambda: set(operator.under_way()), {Partition("planned", 0)})
        refused = operator.reassign("planned", {0: [78]})[0]
        assert refused is not None
        assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert operator.reassign("planned", {0: None}) == {0: None}
        until_equal(content, None)
        until_equal(lambda: operator.leaders("planned"), [3, 1])
    finally:
        zookeeper.stop()
        zookeeper.close()
