"""Transactions as applications have them, with confluent-kafka: whole or not at all, one producer an id, and an end to
everything, whatever becomes of the producer, the coordinator and the leaders.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.support import topic_name
from tests.waiting import until, until_equal

from tidelog.client.addresses import Address
from tidelog.client.blocking import BlockingConnection
from tidelog.protocol import messages
from tidelog.testing import Cluster

WAIT_S = 180.0
PARTITIONS = 3


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50}
    with Cluster(settings) as cluster:
        yield cluster


@pytest.fixture
def three() -> Iterator[Cluster]:
    """Three brokers, a process each, and two replicas in sync for every record."""
    settings = {"min.insync.replicas": 2, "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    with Cluster(settings, brokers=3, processes=True) as cluster:
        yield cluster


def created(cluster: Cluster, name: str, replicas: int = 1) -> str:
    topic = topic_name(name)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])[topic].result(WAIT_S)
    return topic


def producer(cluster: Cluster, name: str, timeout_ms: int = 60_000) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "log_level": 0,
        }
    )
    made.init_transactions(WAIT_S)
    return made


def send(made: Producer, topic: str, value: str) -> None:
    """A record in each partition; they have arrived when it returns."""
    for partition in range(PARTITIONS):
        made.produce(topic, value.encode(), partition=partition)
    made.flush(WAIT_S)


def committed(cluster: Cluster, topic: str) -> dict[str, dict[int, int]]:
    """Of each value how often it stands in each partition, for readers of what is committed, up to the ends."""
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": topic_name("g"),
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: dict[str, dict[int, int]] = {}
    try:
        reader.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        ended: set[int] = set()

        def read() -> bool:
            message = reader.poll(1)
            if message is None:
                return False
            error = message.error()
            if error is None:
                counts = found.setdefault(message.value().decode(), {})
                counts[message.partition()] = counts.get(message.partition(), 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            return len(ended) == PARTITIONS

        until(read, "all partitions are read")
    finally:
        reader.close()
    return found


def until_committed(cluster: Cluster, topic: str, wanted: dict[str, dict[int, int]]) -> None:
    """A commit is acknowledged when it is decided: its markers come a moment later."""
    until_equal(lambda: committed(cluster, topic), wanted)


def once(*values: str) -> dict[str, dict[int, int]]:
    """Each value stands in every partition once."""
    return {value: dict.fromkeys(range(PARTITIONS), 1) for value in values}


def code_of(refused: pytest.ExceptionInfo[KafkaException]) -> int:
    return int(refused.value.args[0].code())


def test_committed_is_read_and_aborted_is_not(broker: Cluster) -> None:
    """In every partition, in transactions one after another; an open one is not read either."""
    topic, made = created(broker, "ends"), producer(broker, topic_name("id"))
    for number in range(6):
        made.begin_transaction()
        send(made, topic, f"{number}")
        if number % 2:
            made.abort_transaction(WAIT_S)
        else:
            made.commit_transaction(WAIT_S)
    made.begin_transaction()
    send(made, topic, "open")
    until_committed(broker, topic, once("0", "2", "4"))
    made.commit_transaction(WAIT_S)


def test_a_second_producer_of_an_id_fences_the_first(broker: Cluster) -> None:
    """What that one had begun is aborted, and it can never commit again."""
    topic, name = created(broker, "fenced"), topic_name("id")
    first = producer(broker, name)
    first.begin_transaction()
    send(first, topic, "first")
    second = producer(broker, name)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(WAIT_S)
    assert code_of(refused) == KafkaError._FENCED
    second.begin_transaction()
    send(second, topic, "second")
    second.commit_transaction(WAIT_S)
    until_committed(broker, topic, once("second"))


def test_a_transaction_that_takes_too_long_is_aborted(broker: Cluster) -> None:
    """Readers go on past it; its producer is fenced, and the next one of its id is not."""
    topic, name = created(broker, "late"), topic_name("id")
    late, other = producer(broker, name, timeout_ms=1_000), producer(broker, topic_name("other"))
    late.begin_transaction()
    send(late, topic, "late")
    other.begin_transaction()
    send(other, topic, "other")
    other.commit_transaction(WAIT_S)
    until_committed(broker, topic, once("other"))
    with pytest.raises(KafkaException):
        late.commit_transaction(WAIT_S)
    again = producer(broker, name)
    again.begin_transaction()
    send(again, topic, "again")
    again.commit_transaction(WAIT_S)
    until_committed(broker, topic, once("again", "other"))


def test_a_restart_keeps_what_was_begun(broker: Cluster) -> None:
    """An open transaction goes on after the broker has come again, and its end holds."""
    topic, made = created(broker, "restart"), producer(broker, topic_name("id"))
    made.begin_transaction()
    send(made, topic, "before")
    broker.restart()
    send(made, topic, "after")
    made.commit_transaction(WAIT_S)
    until_committed(broker, topic, once("before", "after"))


@pytest.mark.parametrize("victim", ["coordinator", "leader"])
def test_whole_or_not_at_all_over_kills(three: Cluster, victim: str) -> None:
    """A broker is killed in the middle of transactions, and comes again: what was acknowledged is there, once in every
    partition, what was aborted is nowhere, and the producer goes on.
    """
    topic = created(three, "kills", replicas=3)
    name = topic_name("id")
    made = producer(three, name)
    killed = -1
    expected = []
    for number in range(30):
        made.begin_transaction()
        send(made, topic, f"{number:02}")
        if number == 10:
            killed = coordinator_of(three, name) if victim == "coordinator" else leader_of(three, topic)
            three.kill(killed)
        if number == 20:
            three.start(killed)
        if number % 3 == 2:
            made.abort_transaction(WAIT_S)
        else:
            made.commit_transaction(WAIT_S)
            expected.append(f"{number:02}")
    until_committed(three, topic, once(*expected))


def coordinator_of(cluster: Cluster, name: str) -> int:
    host, _, port = cluster.bootstrap.split(",")[0].rpartition(":")
    connection = BlockingConnection(Address(host, int(port)))
    try:
        answer = connection.request(messages.FindCoordinatorRequest(key=name, key_type=1), 3)
    finally:
        connection.close()
    assert answer.error_code == 0
    return int(answer.node_id)


def leader_of(cluster: Cluster, topic: str) -> int:
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic, WAIT_S)
    return int(metadata.topics[topic].partitions[0].leader)
