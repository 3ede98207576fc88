"""A bit turns over in a file of a partition's leader: an unchanged client reads every record as it was sent."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from tests.keeping import KEEPING
from tests.scenarios.observing import DEADLINE_S, create, send
from tests.scenarios.test_unreadable_batch import consumed
from tests.waiting import until_equal

from tidelog.records.batch import CRC_START, iterate_headers
from tidelog.testing import Cluster

VALUES = [b"balance=%d" % number for number in range(10)]


def consume(bootstrap: str) -> list[bytes]:
    """As many values as were sent, by librdkafka with its defaults; its errors fail the test."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    with closing(confluent_kafka.Consumer(settings)) as consumer:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        values: list[bytes] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(values) < len(VALUES) and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None
                values.append(message.value())
        return values


def flip(path: Path, batch: int) -> bytes:
    """Turns over a bit below the checksum of a batch; gives what the file held before."""
    content = path.read_bytes()
    at = [position for position, _ in iterate_headers(content)][batch] + CRC_START + 50
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, bytes((content[at] ^ 1,)), at)
    finally:
        os.close(descriptor)
    return content


def test_a_rotten_record_is_read_as_it_was_sent() -> None:
    """The leader refuses to hand it out, mends it with its follower's bytes, and answers; the client only waits."""
    with Cluster(KEEPING, brokers=2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(DEADLINE_S)
        assert not send(cluster, "t", VALUES, acks="all")
        leader = admin.list_topics("t").topics["t"].partitions[0].leader
        path = Path(cluster.data_of(leader)) / "t-0" / f"{0:020d}.log"
        written = flip(path, 3)
        assert consume(cluster.bootstrap) == VALUES
        until_equal(path.read_bytes, written)


def test_what_no_replica_has_is_named_and_what_follows_is_read() -> None:
    """With one replica `tidelog consume` says where the damage is; from a later offset it goes on."""
    with Cluster(KEEPING) as cluster:
        create(cluster, "t")
        assert not send(cluster, "t", VALUES)
        flip(Path(cluster.data_of(0)) / "t-0" / f"{0:020d}.log", 3)
        code, output, errors = consumed(cluster, "t")
        assert (code, output.split()) == (1, [value.decode() for value in VALUES[:3]])
        assert "t-0 cannot be read at offset 3" in errors
        assert consumed(cluster, "t", "--from", "4")[1].split() == [value.decode() for value in VALUES[4:]]
