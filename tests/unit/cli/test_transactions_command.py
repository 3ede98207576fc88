"""`tidelog transactions`: what it shows, in three forms, and the end of a transaction that hangs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.keeping import KEEPING
from tests.unit.cli.conftest import Tidelog

from tidelog.client.addresses import parse_bootstrap
from tidelog.client.blocking import BlockingConnection
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.records.batch import Record, build_batch
from tidelog.testing import Cluster

PRODUCER = 4242
LONG_AGO_MS = 1_600_000_000_000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A cluster that lets everybody begin transactions, as Kafka did before KIP-890: so that some hang."""
    settings = {**KEEPING, "auto.create.topics.enable": "false", "transaction.partition.verification.enable": "false"}
    with Cluster(settings) as cluster:
        yield cluster.bootstrap


@pytest.fixture
def hanging(tidelog: Tidelog, topic: str, bootstrap: str) -> str:
    """A topic with a transaction that no coordinator knows: a plain record at 0, the transaction's at 1 and 2."""
    assert tidelog("topics", "create", topic, "-p", "2").code == 0
    _produce(bootstrap, topic, build_batch([Record(0, LONG_AGO_MS, None, b"before", ())]), None)
    records = [Record(index, LONG_AGO_MS, None, b"%d" % index, ()) for index in range(2)]
    batch = build_batch(records, producer_id=PRODUCER, producer_epoch=3, base_sequence=0, transactional=True)
    _produce(bootstrap, topic, batch, "nobody's")
    return topic


def _produce(bootstrap: str, topic: str, batch: bytes, transactional_id: str | None) -> None:
    kind = messages.ProduceRequest
    request = kind(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            kind.TopicProduceData(name=topic, partition_data=[kind.PartitionProduceData(index=0, records=batch)])
        ],
    )
    connection = BlockingConnection(parse_bootstrap(bootstrap)[0])
    try:
        answer = connection.request(request, 9)
    finally:
        connection.close()
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_producers_of_a_partition(tidelog: Tidelog, hanging: str) -> None:
    """As kafka-transactions prints them, and as JSON; of a partition without any, nothing."""
    command = ("transactions", "describe-producers", "--topic", hanging, "--partition")
    kafka = tidelog(*command, "0", "-o", "kafka")
    assert kafka.lines == [
        "ProducerId\tProducerEpoch\tLatestCoordinatorEpoch\tLastSequence\tLastTimestamp"
        "\tCurrentTransactionStartOffset\t",
        f"4242      \t3            \t-1                    \t1           \t{LONG_AGO_MS}\t1{' ' * 28}\t",
    ]
    (found,) = tidelog(*command, "0", "-o", "json").json
    assert (found["producerId"], found["currentTransactionStartOffset"]) == (PRODUCER, 1)
    assert tidelog(*command, "1", "-o", "json").json == []
    assert tidelog(*command, "0", "--broker-id", "0", "-o", "json").json == [found]
    missing = tidelog(*command, "9")
    assert missing.code == 1
    assert "no partition 9" in missing.err


def test_a_hanging_transaction_is_aborted(tidelog: Tidelog, hanging: str) -> None:
    """By where it begins; whoever reads committed records gets on, and does not see it."""
    abort = ("transactions", "abort", "--topic", hanging, "--partition", "0")
    assert tidelog(*abort, "--start-offset", "0").err == (
        f"tidelog: Could not find any open transactions starting at offset 0 on partition {hanging}-0\n"
    )
    assert tidelog(*abort, "--start-offset", "1", "-o", "kafka") == (0, "", "")
    (found,) = tidelog("transactions", "describe-producers", "-t", hanging, "-p", "0", "-o", "json").json
    assert found["currentTransactionStartOffset"] is None
    consume = ("consume", hanging, "--partition", "0")
    assert tidelog(*consume, "--read-committed").lines == ["before"]
    assert tidelog(*consume).lines == ["before", "0", "1"]


def test_a_transaction_is_aborted_by_its_producer(tidelog: Tidelog, hanging: str) -> None:
    """With both epochs, as for brokers before 3.0; an older producer epoch is refused."""
    abort = ("transactions", "abort", "-t", hanging, "-p", "0", "--producer-id", str(PRODUCER))
    late = tidelog(*abort, "--producer-epoch", "2", "--coordinator-epoch", "0")
    assert (late.code, "has a later epoch" in late.err) == (1, True)
    done = tidelog(*abort, "--producer-epoch", "3", "--coordinator-epoch", "-1")
    assert done == (0, f"{hanging}-0: the transaction of producer {PRODUCER} is aborted\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("find-hanging",),
        ("find-hanging", "--broker-id", "0", "--partition", "1"),
        ("abort", "-t", "t", "-p", "0"),
        ("abort", "-t", "t", "-p", "0", "--producer-id", "1", "--producer-epoch", "0"),
    ],
)
def test_wrong_usage(tidelog: Tidelog, arguments: tuple[str, ...]) -> None:
    """Exit code 2, one line that says what to write."""
    outcome = tidelog("transactions", *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("tidelog: ")


def test_a_broker_that_is_not_there_has_no_hanging_transactions_to_find(tidelog: Tidelog) -> None:
    """An empty table would say that all is well."""
    outcome = tidelog("transactions", "find-hanging", "--broker-id", "7")
    assert outcome == (1, "", "tidelog: there is no live broker 7\n")


def test_hanging_transactions_are_found(tidelog: Tidelog, hanging: str) -> None:
    """Those whose producer no coordinator knows, by topic or by broker; a younger one may still be ended."""
    find = ("transactions", "find-hanging", "--topic", hanging)
    (found,) = tidelog(*find, "-o", "json").json
    assert (found["topic"], found["partition"], found["producerId"]) == (hanging, 0, PRODUCER)
    assert (found["coordinatorEpoch"], found["startOffset"], found["lastTimestamp"]) == (-1, 1, LONG_AGO_MS)
    assert tidelog(*find, "--partition", "1", "-o", "json").json == []
    everywhere = tidelog("transactions", "find-hanging", "--broker-id", "0", "-o", "json").json
    assert (hanging, 0) in [(each["topic"], each["partition"]) for each in everywhere]
    years = str(2 * found["durationMin"])
    assert tidelog(*find, "--max-transaction-timeout", years, "-o", "json").json == []
    assert tidelog("transactions", "abort", "-t", hanging, "-p", "0", "--start-offset", "1").code == 0
    assert tidelog(*find, "-o", "kafka").lines == [
        "Topic\tPartition\tProducerId\tProducerEpoch\tCoordinatorEpoch\tStartOffset\tLastTimestamp\tDuration(min)\t"
    ]


def test_transactional_ids(tidelog: Tidelog, topic: str, bootstrap: str) -> None:
    """Listed with their coordinators and states, described with the partitions of what is open."""
    import confluent_kafka

    assert tidelog("topics", "create", topic, "-p", "2").code == 0
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(180)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(180)
    pattern = f"{topic[:-1]}."
    (found,) = tidelog("transactions", "list", "--transactional-id-pattern", pattern, "-o", "json").json
    assert (found["transactionalId"], found["coordinator"], found["transactionState"]) == (topic, 0, "Ongoing")
    assert tidelog("transactions", "list", "--duration-filter", "3600000", "-o", "json").json == []
    (one,) = tidelog("transactions", "describe", "--transactional-id", topic, "-o", "json").json
    assert (one["producerId"], one["topicPartitions"]) == (found["producerId"], [f"{topic}-1"])
    assert one["transactionDurationMs"] >= 0
    assert tidelog("transactions", "find-hanging", "-t", topic, "--max-transaction-timeout", "0").code == 0
    kafka = tidelog("transactions", "describe", "--transactional-id", topic, "-o", "kafka")
    assert kafka.lines[0].startswith("CoordinatorId\tTransactionalId")
    producer.commit_transaction(180)
    (one,) = tidelog("transactions", "describe", "--transactional-id", topic, "-o", "json").json
    assert one["topicPartitions"] == []
    missing = tidelog("transactions", "describe", "--transactional-id", "nobody")
    assert (missing.code, missing.err) == (1, "tidelog: there is no transactional id 'nobody'\n")
