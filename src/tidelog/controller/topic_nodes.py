"""What /brokers/topics/T is to hold, and how much the store lets it hold."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidelog.metadata.image import PartitionImage, TopicImage
from tidelog.metadata.znodes import TopicAssignment
from tidelog.model.identifiers import BrokerId
from tidelog.model.values import value

TOPIC_NODE_SIZE_MAX: Final = 1_000_000
"""Bytes of a topic's node. ZooKeeper cuts the connection over a request above 1 MiB (jute.maxbuffer), path, fence and
all included, and would at each further attempt. With three replicas it is reached at 40,000 to 60,000 partitions; while
all of them move to other brokers, which is written as 12 ids instead of 3, at less than half of that."""

KEY_SIZE: Final = 10
"""Bytes of a partition's index in one of the node's three lists, about."""


@value
class Move:
    """A partition's assignment as it stands in its topic's node."""

    replicas: tuple[BrokerId, ...]
    """The target's, then those that are removed."""
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def target(self) -> tuple[BrokerId, ...]:
        return tuple(id for id in self.replicas if id not in self.removing)

    @property
    def size(self) -> int:
        """About how many bytes of the node it takes: two of one partition can be compared."""
        lists = (self.replicas, self.adding, self.removing)
        return sum(KEY_SIZE + sum(len(str(id)) + 1 for id in ids) for ids in lists if ids)


def move_of(image: PartitionImage) -> Move:
    """What a partition is about."""
    return Move(image.replicas, image.adding, image.removing)


def content_of(topic: TopicImage, changed: Mapping[int, Move] = MappingProxyType({})) -> TopicAssignment:
    """A topic as it is known, with some of its partitions changed."""
    moves = {index: changed.get(index) or move_of(image) for index, image in topic.partitions.items()}
    return TopicAssignment(
        {index: move.replicas for index, move in moves.items()},
        topic.topic_id,
        {index: move.adding for index, move in moves.items() if move.adding},
        {index: move.removing for index, move in moves.items() if move.removing},
    )
