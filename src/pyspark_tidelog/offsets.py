"""Arithmetic on offsets: what a stream's position is, how much of the backlog a batch takes, and how tasks share it.

Pure. A stream's position travels as JSON in Spark's checkpoint. It has the official connector's form,
`{"topic": {"0": 5, "1": 7}}`, and three marks of ours under names that no topic can have:

    "@topicIds"  {"topic": "<id>"}   Which incarnation of each topic the offsets belong to (KIP-516), so that a topic
                                     that was deleted and created again is noticed.
    "@initial"   true                This is the answer to `initialOffset()`.
    "@from"      {...}               In the first batch's end only: where that batch starts.

The last two exist because Spark asks for the initial offset twice in a fresh query, and again on a restart whose first
batch failed, and writes none of the answers down. Had "latest" moved in between, the records in between would be
lost. It does write down where the first batch ends: so that end carries the start which it was planned from, and
`batch_start` prefers it to whatever `initialOffset()` says now.
"""

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from tidelog.model.identifiers import TopicPartition

_TOPIC_IDS: Final = "@topicIds"
_INITIAL: Final = "@initial"
_FROM: Final = "@from"


@dataclass(frozen=True, slots=True)
class Position:
    """How far a stream has come."""

    offsets: Mapping[TopicPartition, int]
    """The next offset to read."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Topic name -> id in Kafka's 22 characters; absent where the broker is too old to tell."""
    initial: bool = False
    since: "Position | None" = None
    """In the end of a stream's first batch: that batch's start."""

    def to_json(self) -> dict[str, Any]:
        """Equal positions give equal JSON, keys in order: Spark compares the text."""
        document: dict[str, Any] = {}
        if self.initial:
            document[_INITIAL] = True
        if self.since is not None:
            document[_FROM] = replace(self.since, initial=False, since=None).to_json()
        if self.topic_ids:
            document[_TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        for partition, offset in sorted(self.offsets.items()):
            document.setdefault(partition.topic, {})[str(partition.partition)] = offset
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Position":
        """The inverse of `to_json`; also reads what the official connector wrote."""
        since = document.get(_FROM)
        return cls(
            offsets={
                TopicPartition(topic, int(partition)): int(offset)
                for topic, partitions in document.items()
                if not topic.startswith("@")
                for partition, offset in partitions.items()
            },
            topic_ids=dict(document.get(_TOPIC_IDS, {})),
            initial=bool(document.get(_INITIAL, False)),
            since=None if since is None else cls.from_json(since),
        )

    def without(self, topics: Collection[str]) -> "Position":
        """The same without these topics."""
        return replace(
            self,
            offsets={each: offset for each, offset in self.offsets.items() if each.topic not in topics},
            topic_ids={topic: topic_id for topic, topic_id in self.topic_ids.items() if topic not in topics},
        )


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition that one task reads: `start` inclusive, `end` exclusive, never empty."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""
    """In Kafka's 22 characters; empty where it is not known."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        """Offsets, not records: compaction and transactions leave gaps."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def batch_start(start: Position, end: Position) -> Position:
    """Where the batch that ends at `end` starts: what its plan says, if it is the first (see the module's
    docstring)."""
    if start.initial and end.since is not None:
        return end.since
    return start


def recreated_topics(start: Position, end: Position) -> list[str]:
    """Topics whose id differs between the two: deleted and created again in between."""
    return sorted(
        topic for topic, topic_id in end.topic_ids.items() if start.topic_ids.get(topic, topic_id) != topic_id
    )


def ranges_between(start: Position, end: Position) -> list[OffsetRange]:
    """What lies between two positions, a range a partition.

    Partitions that `start` does not know, and those of recreated topics, begin at 0: all that was ever in them is new.
    """
    recreated = set(recreated_topics(start, end))
    ranges = []
    for partition, until in sorted(end.offsets.items()):
        known = partition in start.offsets and partition.topic not in recreated
        begin = start.offsets[partition] if known else 0
        if begin < until:
            topic_id = end.topic_ids.get(partition.topic, "")
            ranges.append(OffsetRange(partition.topic, partition.partition, begin, until, topic_id))
    return ranges


def limit_offsets(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], count_max: int
) -> dict[TopicPartition, int]:
    """Ends that take at most `count_max` offsets: one of each partition that has any, so that a small one beside a
    large one is not starved, and the rest in proportion to each partition's backlog.

    Where there are more such partitions than `count_max`, those that get none by proportion take turns.
    """
    backlog = {partition: max(0, end - starts.get(partition, end)) for partition, end in ends.items()}
    total = sum(backlog.values())
    if total <= count_max:
        return dict(ends)
    least = 1 if sum(count > 0 for count in backlog.values()) <= count_max else 0
    rest = {partition: max(0, count - least) for partition, count in backlog.items()}
    to_share, total_rest = count_max - (total - sum(rest.values())), sum(rest.values())
    share = {
        partition: min(backlog[partition], least) + count * to_share // total_rest for partition, count in rest.items()
    }
    left = count_max - sum(share.values())
    # Then the largest fractions, as in apportionment; drawn or by name, so that a plan can be repeated.
    turn = sum(starts.values())
    order = sorted(
        backlog,
        key=lambda each: (
            (1, -(rest[each] * to_share % total_rest), each) if share[each] else (0, _drawn(each, turn), each)
        ),
    )
    for partition in order:
        if left == 0:
            break
        if share[partition] < backlog[partition]:
            share[partition] += 1
            left -= 1
    return {partition: starts.get(partition, end) + share[partition] for partition, end in ends.items()}


def _drawn(partition: TopicPartition, turn: int) -> int:
    """A number that is another one in each turn, and the same whenever it is drawn."""
    return zlib.crc32(f"{partition} {turn}".encode())


def split_ranges(
    ranges: Sequence[OffsetRange], *, partitions_min: int | None, records_max: int | None
) -> list[OffsetRange]:
    """Ranges cut so that none has more than `records_max` offsets and there are at least `partitions_min`, if they
    can be.

    Without either, a task reads one partition. As many pieces go to a range as its share of all offsets.
    """
    pieces: list[OffsetRange] = []
    for each in ranges:
        pieces.extend(_cut(each, -(-each.count // records_max) if records_max else 1))
    if partitions_min is None or len(pieces) >= partitions_min:
        return pieces
    total = sum(piece.count for piece in pieces)
    cut: list[OffsetRange] = []
    for piece in pieces:
        # Rounding up keeps the promise of a minimum.
        cut.extend(_cut(piece, min(piece.count, max(1, -(-piece.count * partitions_min // total)))))
    return cut


def cut_at(
    ranges: Iterable[OffsetRange], earliest: Mapping[TopicPartition, int]
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """The parts of `ranges` before the first offset that their partition has, and the parts from there on."""
    gone: list[OffsetRange] = []
    there: list[OffsetRange] = []
    for each in ranges:
        first = min(max(each.start, earliest.get(each.topic_partition, each.start)), each.end)
        if each.start < first:
            gone.append(replace(each, end=first))
        if first < each.end:
            there.append(replace(each, start=first))
    return gone, there


def _cut(whole: OffsetRange, pieces: int) -> Iterable[OffsetRange]:
    """`pieces` ranges of nearly equal counts that follow each other."""
    bounds = [whole.start + whole.count * index // pieces for index in range(pieces + 1)]
    return [replace(whole, start=start, end=end) for start, end in pairwise(bounds) if start < end]
