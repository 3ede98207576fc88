"""High watermarks of partitions that this broker leads, or others: what a share group's lag is counted from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.shell import Purpose
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages

if TYPE_CHECKING:
    from tidelog.broker.sharing.surroundings import Surroundings

_VERSION: Final = 9
_LATEST: Final = -1
_CONSUMER: Final = -1


class Place(NamedTuple):
    """A partition."""

    topic_id: TopicId
    partition: int


def high_watermarks(node: Surroundings, places: list[Place]) -> Deferred[dict[Place, int]]:
    """[partition] -> its high watermark; those whose leader cannot be asked are left out."""
    found: dict[Place, int] = {}
    elsewhere: dict[int, list[tuple[Place, TopicPartition]]] = {}
    for place in places:
        topic = node.metadata.topic_name(place.topic_id)
        if topic is None:
            continue
        topic_partition = TopicPartition(topic, place.partition)
        replica = node.replicas.get(topic_partition)
        if replica is not None and replica.leader is not None:
            found[place] = replica.high_watermark
            continue
        known = node.metadata.image.partition(topic_partition)
        if known is not None and node.metadata.image.is_live(known.leader):
            elsewhere.setdefault(known.leader, []).append((place, topic_partition))
    asked = [_ask(node, leader, wanted, found) for leader, wanted in elsewhere.items()]
    return gather(asked).then(lambda _: found)


def _ask(
    node: Surroundings, leader: int, wanted: list[tuple[Place, TopicPartition]], found: dict[Place, int]
) -> Deferred[None]:
    """Adds to `found` what the leader answers; never fails."""
    done: Deferred[None] = Deferred()
    request = messages.ListOffsetsRequest
    by_name = {(each.topic, each.partition): place for place, each in wanted}

    def settle(outcome: Deferred[Any]) -> None:
        try:
            response = outcome.result()
        except (KafkaError, OSError):
            response = messages.ListOffsetsResponse()
        for topic in response.topics:
            for partition in topic.partitions:
                place = by_name.get((topic.name, partition.partition_index))
                if place is not None and not partition.error_code:
                    found[place] = partition.offset
        done.complete(None)

    topics = [
        request.ListOffsetsTopic(
            name=each.topic,
            partitions=[request.ListOffsetsPartition(partition_index=each.partition, timestamp=_LATEST)],
        )
        for _, each in wanted
    ]
    message = request(replica_id=_CONSUMER, topics=topics)
    asked = node.shell.ask(leader, Purpose.SHARE_STATE, message, _VERSION, node.config.request_timeout_ms)
    asked.on_complete(settle)
    return done
