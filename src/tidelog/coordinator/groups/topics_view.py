"""The cluster's topics as groups see them: ids, numbers of partitions, the racks of their replicas. Immutable.

The shell makes a view of its image of the cluster, and another one when that changed; groups compare views by identity
to know that they must look again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog.assignors.assignor import TopicLayout
from tidelog.coordinator.patterns import Matcher
from tidelog.metadata.image import ClusterImage, TopicImage
from tidelog.model.identifiers import ZERO_TOPIC_ID, BrokerId, TopicId

NO_TOPICS_HASH: Final = 0
_MATCHES_KEPT_MAX: Final = 256
"""Results of patterns that a view keeps; members of a group mostly have the same one."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic. Topics without an id, made by old tools, are not among those that can be assigned by brokers."""

    name: str
    topic_id: TopicId
    layout: TopicLayout
    hash: bytes = field(init=False, compare=False)
    """Of all the rest: groups tell by it that a topic changed."""

    def __post_init__(self) -> None:
        racks = self.layout.replica_racks
        told = (self.topic_id.hex(), self.name, self.layout.partitions, racks and [sorted(each) for each in racks])
        object.__setattr__(self, "hash", hashlib.blake2b(repr(told).encode("utf-8", "surrogatepass")).digest()[:8])


class TopicRights(NamedTuple):
    """What the one that asks may describe: a pattern stands for no other topics (KIP-848)."""

    version: int
    """Of the ACLs."""
    may_describe: Callable[[str], bool]


NO_RIGHTS: Final = -1


def version_of(rights: TopicRights | None) -> int:
    """Of the ACLs; NO_RIGHTS where there are none, and every topic may be described."""
    return NO_RIGHTS if rights is None else rights.version


class TopicsView:
    """All topics, by name and by id."""

    def __init__(self, topics: Iterable[TopicView] = (), version: int = 0) -> None:
        self.topics: Mapping[str, TopicView] = MappingProxyType({topic.name: topic for topic in topics})
        self.names: Mapping[TopicId, str] = MappingProxyType({topic.topic_id: topic.name for topic in topics})
        self.version = version
        """Counts the views of one broker."""
        self._matches: dict[str, frozenset[str]] = {}

    def matching(self, text: str, matcher: Matcher) -> frozenset[str]:
        """The topics whose whole name the pattern `text`, compiled as `matcher`, matches."""
        found = self._matches.get(text)
        if found is None:
            if len(self._matches) >= _MATCHES_KEPT_MAX:
                self._matches.clear()
            found = self._matches[text] = frozenset(name for name in self.topics if matcher(name))
        return found

    def hash_of(self, names: Iterable[str]) -> int:
        """64 bits, signed, over those of `names` that exist; 0 where none does."""
        known = sorted(name for name in names if name in self.topics)
        if not known:
            return NO_TOPICS_HASH
        digest = hashlib.blake2b(digest_size=8)
        for name in known:
            digest.update(self.topics[name].hash)
        return int.from_bytes(digest.digest(), "big", signed=True)


def topics_view(image: ClusterImage, previous: TopicsView | None = None) -> TopicsView:
    """The view of `image`; `previous` itself when nothing changed that groups care for, such as a leader."""
    racks = {id: broker.rack for id, broker in image.brokers.items() if broker.rack is not None}
    known = {} if previous is None else previous.topics
    topics = []
    for name, topic in image.topics.items():
        if topic.topic_id == ZERO_TOPIC_ID or not topic.partitions:
            continue
        layout = _layout(topic, racks)
        before = known.get(name)
        if before is not None and before.topic_id == topic.topic_id and before.layout == layout:
            topics.append(before)
        else:
            topics.append(TopicView(name, topic.topic_id, layout))
    if previous is not None and len(topics) == len(known) and all(known.get(topic.name) is topic for topic in topics):
        return previous
    return TopicsView(topics, 1 if previous is None else previous.version + 1)


def _layout(topic: TopicImage, racks: Mapping[BrokerId, str]) -> TopicLayout:
    partitions = len(topic.partitions)
    if not racks:
        return TopicLayout(partitions)
    return TopicLayout(
        partitions,
        tuple(
            frozenset(racks[broker] for broker in topic.partitions[index].replicas if broker in racks)
            if index in topic.partitions
            else frozenset()
            for index in range(partitions)
        ),
    )
