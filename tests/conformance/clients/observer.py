"""Who stands outside: makes topics, fills them, and looks at logs and groups without being a member (librdkafka)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.clients.judge import Place
from tests.waiting import until

CALL_S: Final = 30.0
REPLICAS: Final = 3
LOOK_S: Final = 0.1


class Record(NamedTuple):
    place: Place
    offset: int
    key: str | None
    value: str


class Observer:
    """Of one cluster, whichever of its brokers live."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._quick = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 0}
        self._admin = AdminClient(self._quick)
        self._consumers: dict[str, Consumer] = {}
        self._producer = Producer({**self._quick, "linger.ms": 1, "enable.idempotence": True})

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
        failed: list[KafkaError] = []
        for number in range(count):
            self._producer.produce(
                topic,
                f"value {number}",
                partition=number % partitions,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            self._producer.poll(0)
        assert self._producer.flush(CALL_S) == 0
        assert failed == []

    def ends(self, topic: str, partitions: int) -> dict[Place, int]:
        """Log ends, as a reader of committed records sees them."""
        consumer = self._consumer("observer")
        found = {}
        for partition in range(partitions):
            _, found[Place(topic, partition)] = consumer.get_watermark_offsets(TopicPartition(topic, partition), CALL_S)
        return found

    def committed(self, group: str, topic: str, partitions: int) -> dict[Place, int]:
        """A group's offsets; no entry where there is none."""
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        found = self._consumer(group).committed(asked, CALL_S)
        return {Place(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def until_committed(self, group: str, ends: Mapping[Place, int], limit_s: float = 60.0) -> None:
        """Until the group's offsets are the ends of the logs."""
        (topic,) = {place.topic for place in ends}
        found: dict[Place, int] = {}

        def reached() -> bool:
            nonlocal found
            try:
                found = self.committed(group, topic, len(ends))
            except KafkaException:  # The coordinator moves.
                return False
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
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
            return sorted(self._records(consumer, partitions))
        finally:
            consumer.close()

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def _records(self, consumer: Consumer, partitions: int) -> Iterator[Record]:
        at_end: set[int] = set()
        deadline = time.monotonic() + CALL_S
        while len(at_end) < partitions:
            assert time.monotonic() < deadline, f"the end of {partitions - len(at_end)} partitions was not reached"
            for message in consumer.consume(500, 0.2):
                partition: Any = message.partition()
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        at_end.add(partition)
                    continue
                key, value = message.key(), message.value()
                assert value is not None
                place = Place(str(message.topic()), partition)
                yield Record(place, message.offset() or 0, None if key is None else key.decode(), value.decode())

    def _consumer(self, group: str) -> Consumer:
        if group not in self._consumers:
            self._consumers[group] = Consumer({**self._quick, "group.id": group, "enable.auto.commit": False})
        return self._consumers[group]
