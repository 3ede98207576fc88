"""What the controller knows of replicas that have lost records, and of brokers whose last stop was unclean.

The controller elects no marked replica: it elects an unmarked member of the ISR, or waits for one. Exceptions: the only
replica of a partition, and unclean elections. `tidelog.metadata.replica_marks` says what is marked, and by which part.
An unclean stop only puts a broker behind others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.metadata.operations import ANY_VERSION, UNKNOWN_ZXID, Create, SetData
from tidelog.metadata.replica_marks import (
    ReplicaDamage,
    ReplicaMark,
    decode_replica_mark,
    encode_heeded,
    heeded_path,
    mark_name,
    parse_booted_name,
    parse_heeded_name,
    parse_mark_name,
)
from tidelog.model.identifiers import ZERO_TOPIC_ID, BrokerId, TopicId, TopicPartition


class Marks:
    """The nodes below /tidelog_marks, as they were read or written last."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        """The nodes that are known."""
        self.unclean_stops: dict[BrokerId, None] = {}
        self.booted_anew: dict[BrokerId, None] = {}
        """Brokers whose machines were booted anew after an unclean stop: their logs may lack what was not flushed."""
        self._replicas: dict[TopicPartition, dict[BrokerId, ReplicaMark]] = {}
        self._created: dict[str, int] = {}
        """[name of a replica's mark] -> the transaction that created it."""
        self._versions: dict[str, int] = {}
        """[name of a replica's mark] -> version of its node, to remove that one alone."""
        self._heeded: dict[str, bytes | None] = {}
        """[name of a replica's mark] -> content of the node that says which one a controller has read."""

    def put(self, name: str, data: bytes | None, version: int, czxid: int) -> None:
        """A node was found, or written."""
        self.names[name] = None
        if (heeded := parse_heeded_name(name)) is not None:
            self._heeded[mark_name(*heeded)] = data
        if (booted := parse_booted_name(name)) is not None:
            self.booted_anew[booted] = None
        match parse_mark_name(name):
            case broker_id, None:
                self.unclean_stops[broker_id] = None
            case broker_id, TopicPartition() as topic_partition:
                self._replicas.setdefault(topic_partition, {})[broker_id] = decode_replica_mark(data)
                self._created[name], self._versions[name] = czxid, version

    def remove(self, name: str) -> None:
        """A node is gone."""
        self.names.pop(name, None)
        if (heeded := parse_heeded_name(name)) is not None:
            self._heeded.pop(mark_name(*heeded), None)
        if (booted := parse_booted_name(name)) is not None:
            self.booted_anew.pop(booted, None)
        match parse_mark_name(name):
            case broker_id, None:
                self.unclean_stops.pop(broker_id, None)
            case broker_id, TopicPartition() as topic_partition:
                self._created.pop(name, None)
                self._versions.pop(name, None)
                marks = self._replicas.get(topic_partition, {})
                marks.pop(broker_id, None)
                if not marks:
                    self._replicas.pop(topic_partition, None)

    def of(self, topic_partition: TopicPartition, topic_id: TopicId) -> Mapping[BrokerId, ReplicaDamage]:
        """The damaged replicas of a partition; marks of another topic of that name are left out."""
        marks = self._replicas.get(topic_partition)
        if not marks:
            return {}
        return {
            broker_id: mark.damage
            for broker_id, mark in marks.items()
            if ZERO_TOPIC_ID in (mark.topic_id, topic_id) or mark.topic_id == topic_id
        }

    def version(self, broker_id: BrokerId, topic_partition: TopicPartition) -> int:
        """Of the node with a replica's mark; any where it is not known."""
        return self._versions.get(mark_name(broker_id, topic_partition), ANY_VERSION)

    def answers(self) -> Iterator[Create | SetData]:
        """What tells brokers that their marks of holes have been read, where no controller has told them yet."""
        for topic_partition, marks in self._replicas.items():
            for broker_id, mark in marks.items():
                name = mark_name(broker_id, topic_partition)
                czxid = self._created[name]
                if not mark.damage.has_hole or czxid == UNKNOWN_ZXID:
                    continue
                path, content = heeded_path(broker_id, topic_partition), encode_heeded(czxid)
                if name not in self._heeded:
                    yield Create(path, content)
                elif self._heeded[name] != content:
                    yield SetData(path, content)

    def partitions(self) -> Iterator[TopicPartition]:
        """All partitions with marks, those of a deleted topic of the same name included."""
        return iter(list(self._replicas))
