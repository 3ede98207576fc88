"""One consumer of the demo's group, a process of its own: `python -m ...reader BOOTSTRAP GROUP TOPIC SESSION_MS`.

An unchanged confluent-kafka consumer: subscribes, reads, commits what it has read, again and again, until SIGTERM. It
says what happens to it in lines of JSON: {"owned": [partition]} and {"read": {partition: [first offset, next offset]}}.
"""

import json
import signal
import sys
from typing import Any, Final

_BATCH: Final = 2000
"""Records between two commits, at most."""


def main(bootstrap: str, group: str, topic: str, session_ms: str) -> None:
    """Reads until it is told to stop; a dead member keeps its partitions for `session_ms`."""
    from confluent_kafka import Consumer, KafkaException

    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": int(session_ms),
            "heartbeat.interval.ms": 500,
            # After a broker's death the next one is looked for at once and often.
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "log_level": 0,
        }
    )

    def assigned(_: Any, partitions: list[Any]) -> None:
        say(owned=sorted(each.partition for each in partitions))

    def revoked(*_: Any) -> None:
        say(owned=[])

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not stopping:
        read: dict[int, list[int]] = {}
        for message in consumer.consume(_BATCH, 0.1):
            if message.error() is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                read.setdefault(partition, [offset, offset])[1] = offset + 1
        if not read:
            continue
        # What happens to a record happens before it is committed: the member that takes over then misses none.
        say(read=read)
        try:
            consumer.commit(offsets=_offsets(topic, read), asynchronous=False)
        except KafkaException as failed:
            # Not a member any more, or no coordinator just now: these are read again, or committed with the next.
            print(failed, file=sys.stderr)
    consumer.close()


def _offsets(topic: str, read: dict[int, list[int]]) -> list[Any]:
    from confluent_kafka import TopicPartition

    return [TopicPartition(topic, partition, after) for partition, (_, after) in read.items()]


def say(**what: Any) -> None:
    """One line, at once."""
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:5])
