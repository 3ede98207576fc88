"""Who stands outside: makes topics, fills them, and looks at logs and groups without being a member.

librdkafka writes and reads; what is asked of brokers that die meanwhile is asked with a client of our own, which looks
for the next leader at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import KafkaError as ClientsError
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.clients.judge import Place
from tests.waiting import DEADLINE_S, until
from tidelog.client.blocking import BlockingCluster
from tidelog.client.fetching import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import LATEST_TIMESTAMP, TopicPartition

logger = logging.getLogger(__name__)

CALL_S: Final = 180.0
PATIENCE_S: Final = 60.0
"""Of one producer: longer than any election and any pause of librdkafka's take, also on a machine that is busy."""
PURGED: Final = (ClientsError._PURGE_QUEUE, ClientsError._PURGE_INFLIGHT)
REPLICAS: Final = 3
LOOK_S: Final = 0.1


class Record(NamedTuple):
    place: Place
    offset: int
    key: str | None
    value: str


class Member(NamedTuple):
    """Of a group, as it is described."""

    client: str
    host: str
    places: set[Place]


class Described(NamedTuple):
    state: str
    assignor: str
    kind: str
    members: list[Member]


class Observer:
    """Of one cluster, whichever of its brokers live."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._quick = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 0}
        self._admin = AdminClient(self._quick)
        self._cluster = BlockingCluster(bootstrap)
        self._producer = self._make_producer()

    def _make_producer(self) -> Producer:
        return Producer({**self._quick, "linger.ms": 1, "enable.idempotence": True})

    def create(self, topic: str, partitions: int, **config: str) -> None:
        """With as many replicas as there are brokers, three at most; when everybody knows it."""
        replicas = min(REPLICAS, len(self._admin.list_topics(timeout=CALL_S).brokers))
        (made,) = self._admin.create_topics([NewTopic(topic, partitions, replicas, config=config)]).values()
        made.result(CALL_S)

        def known() -> bool:
            found = self._admin.list_topics(timeout=CALL_S).topics.get(topic)
            return found is not None and len(found.partitions) == partitions

        until(known, f"{topic} is known")

    def fill(self, topic: str, partitions: int, count: int) -> None:
        """So many records, their values' numbers in turn over the partitions; acknowledged by all replicas in sync."""
        left = self._send(topic, partitions, range(count), PATIENCE_S)
        if left:
            # Seen twice: the leader changed twice within a tenth of a second, all brokers live, and librdkafka (2.16)
            # sends the partition's batch to none, for minutes; the log does not have it. Another producer of the same
            # kind tells this from a broker that takes no records.
            where = sorted({number % partitions for number in left})
            text = f"librdkafka sends {len(left)} records of {topic} {where} to no broker: {self._partitions_of(topic)}"
            logger.warning(text)
            self._producer.purge()
            self._producer.flush(1)
            self._producer = self._make_producer()
            left = self._send(topic, partitions, left, CALL_S)
        assert left == [], f"{len(left)} records are not acknowledged: {self._partitions_of(topic)}"

    def _send(self, topic: str, partitions: int, numbers: Iterable[int], timeout_s: float) -> list[int]:
        """Sends records with these numbers; those that are not acknowledged by then."""
        left: dict[int, None] = dict.fromkeys(numbers)
        failed: list[ClientsError] = []

        def told(number: int, error: ClientsError | None) -> None:
            if error is None:
                left.pop(number, None)
            elif error.code() not in PURGED:
                failed.append(error)

        for number in list(left):
            self._producer.produce(
                topic,
                f"value {number}",
                partition=number % partitions,
                on_delivery=lambda error, _, number=number: told(number, error),
            )
            self._producer.poll(0)
        self._producer.flush(timeout_s)
        assert failed == []
        return list(left)

    def write(self, topic: str, values: Iterable[str]) -> None:
        """Records with these values, spread by librdkafka; acknowledged by all replicas in sync."""
        for value in values:
            self._producer.produce(topic, value)
            self._producer.poll(0)
        assert self._producer.flush(CALL_S) == 0

    def ends(self, topic: str, partitions: int) -> dict[Place, int]:
        """Log ends, as a reader of committed records sees them."""
        asked = dict.fromkeys(self._partitions(topic, partitions), LATEST_TIMESTAMP)
        found = self._cluster.offsets(asked, isolation=READ_COMMITTED)
        return {Place(each.topic, each.partition): at.offset for each, at in found.items()}

    def until_settled(self, topic: str, partitions: int) -> None:
        """Until no transaction is open in a topic: an end is acknowledged before its markers are written."""
        asked = dict.fromkeys(self._partitions(topic, partitions), LATEST_TIMESTAMP)

        def settled() -> bool:
            ends = [
                {each: at.offset for each, at in self._cluster.offsets(asked, isolation=isolation).items()}
                for isolation in (READ_COMMITTED, READ_UNCOMMITTED)
            ]
            return ends[0] == ends[1]

        until(settled, f"{topic} has an open transaction", every_s=LOOK_S)

    def committed(self, group: str, topic: str, partitions: int) -> dict[Place, int]:
        """A group's offsets; no entry where there is none."""
        found = self._cluster.committed_offsets(group, self._partitions(topic, partitions))
        return {Place(each.topic, each.partition): at.offset for each, at in found.items()}

    def commit(self, group: str, topic: str, partitions: int, offset: int) -> None:
        """The same offset for all partitions, for a group without members."""
        self._cluster.commit_offsets(group, dict.fromkeys(self._partitions(topic, partitions), offset))

    def lag(self, group: str, topic: str, partitions: int) -> dict[Place, int]:
        """Of each partition: how far the log's end is from what is committed."""
        ends, committed = self.ends(topic, partitions), self.committed(group, topic, partitions)
        return {place: end - committed.get(place, 0) for place, end in ends.items()}

    def describe(self, group: str) -> Described:
        """A group by librdkafka's admin client."""
        (asked,) = self._admin.describe_consumer_groups([group], request_timeout=CALL_S).values()
        found = asked.result()
        members = [
            Member(
                each.client_id,
                each.host,
                {Place(place.topic, place.partition) for place in each.assignment.topic_partitions},
            )
            for each in found.members
        ]
        return Described(found.state.name, found.partition_assignor, found.type.name, members)

    def delete_group(self, group: str) -> None:
        (asked,) = self._admin.delete_consumer_groups([group], request_timeout=CALL_S).values()
        asked.result()

    def _partitions_of(self, topic: str) -> list[str]:
        found = self._admin.list_topics(topic, CALL_S).topics[topic].partitions
        return [f"{index}: leader={each.leader} isr={each.isrs}" for index, each in sorted(found.items())]

    def leader(self, topic: str, partition: int) -> int:
        """The broker that leads a partition."""
        leader: int = self._admin.list_topics(topic, CALL_S).topics[topic].partitions[partition].leader
        return leader

    def coordinator(self, key: str, kind: int = 0) -> str:
        """host:port of who coordinates a group, or with kind 1 a transactional id."""
        routing = self._cluster.routing

        def found() -> str | None:
            routing.forget_coordinator(key, kind)
            address = self._cluster.run(routing.find_coordinator(key, kind, routing.deadline(CALL_S)))
            return None if isinstance(address, KafkaError) else f"{address.host}:{address.port}"

        return until(found, f"somebody coordinates {key}", every_s=LOOK_S) or ""

    def until_committed(self, group: str, ends: Mapping[Place, int], limit_s: float = DEADLINE_S) -> None:
        """Until the group's offsets are the ends of the logs."""
        (topic,) = {place.topic for place in ends}
        found: dict[Place, int] = {}

        def reached() -> bool:
            nonlocal found
            found = self.committed(group, topic, len(ends))
            return all(found.get(place, 0) >= end for place, end in ends.items())

        until(reached, lambda: f"{group} has committed {found}, not {dict(ends)}", limit_s=limit_s, every_s=LOOK_S)

    def read(self, topic: str, partitions: int, *, isolation: str = "read_committed") -> list[Record]:
        """Every record up to the end, by partition and offset."""
        consumer = Consumer(
            {
                **self._quick,
                "group.id": "reader",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        try:
            consumer.assign(
                [confluent_kafka.TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)]
            )
            return sorted(self._records(consumer, partitions))
        finally:
            consumer.close()

    def close(self) -> None:
        self._cluster.close()

    def _records(self, consumer: Consumer, partitions: int) -> Iterator[Record]:
        at_end: set[int] = set()
        deadline = time.monotonic() + CALL_S
        while len(at_end) < partitions:
            assert time.monotonic() < deadline, f"the end of {partitions - len(at_end)} partitions was not reached"
            for message in consumer.consume(500, 0.2):
                partition: Any = message.partition()
                error = message.error()
                if error is not None:
                    if error.code() == ClientsError._PARTITION_EOF:
                        at_end.add(partition)
                    continue
                key, value = message.key(), message.value()
                assert value is not None
                place = Place(str(message.topic()), partition)
                yield Record(place, message.offset() or 0, None if key is None else key.decode(), value.decode())

    def _partitions(self, topic: str, partitions: int) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for partition in range(partitions)]
