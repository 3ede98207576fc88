"""KIP-392 with librdkafka: a consumer reads from the follower in its rack."""

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.support import DEADLINE_S
from tests.waiting import until
from tidelog.testing import Cluster

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
COUNT = 200


def test_a_consumer_reads_from_the_follower_in_its_rack() -> None:
    """It asks the leader first, is sent to broker 1, and waits there; it gets every record, in order."""
    racks = {0: {"broker.rack": "a"}, 1: {"broker.rack": "b"}}
    with Cluster({"replica.selector.class": SELECTOR}, brokers=2, of_broker=racks) as cluster:
        servers = {"bootstrap.servers": cluster.bootstrap}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("t", 1, replica_assignment=[[0, 1]])])["t"].result(DEADLINE_S)
        producer = Producer({**servers, "acks": "all"})
        for number in range(COUNT):
            producer.produce("t", str(number).encode())
        assert not producer.flush(DEADLINE_S)
        consumer = Consumer({**servers, "group.id": "g", "client.rack": "b", "fetch.wait.max.ms": 5000})
        consumer.assign([TopicPartition("t", 0, 0)])
        values: list[bytes | None] = []

        def read(limit: int) -> bool:
            values.extend(message.value() for message in consumer.consume(limit, 0.2) if message.error() is None)
            return len(values) >= limit

        until(lambda: read(COUNT), "every record")

        def waiting_at() -> list[int]:
            return [id for id, one in cluster.runtimes.items() if len(one.node.purgatory)]

        until(lambda: cluster.call(waiting_at) == [1], "a long poll at the follower, and none at the leader")
        producer.produce("t", b"later")
        assert not producer.flush(DEADLINE_S)
        until(lambda: read(COUNT + 1), "a record that comes while the consumer waits at the follower")
        consumer.close()
        assert values == [*(str(number).encode() for number in range(COUNT)), b"later"]
