"""What a stream's position and the cluster as it is now say about each other: which records are gone. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark_tidelog.offsets import Position, recreated_topics
from tidelog.model.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that a position promised and the cluster no longer has."""

    subject: str
    """The same for as long as it is the same loss, whatever comes meanwhile."""
    what: str
    instead: str
    """What the query does if it may go on."""


def partitions_behind(position: Position, latest: Position) -> list[TopicPartition]:
    """Partitions that now end before `position`, though their topic is the same."""
    recreated = set(recreated_topics(position, latest))
    return sorted(
        each
        for each, offset in position.offsets.items()
        if each.topic not in recreated and latest.offsets.get(each, offset) < offset
    )


def partitions_gone(position: Position, latest: Position) -> list[TopicPartition]:
    """Partitions of `position` that are no longer there, or have another topic under their name."""
    return sorted(set(position.offsets).difference(latest.offsets))


def losses_between(position: Position, latest: Position, behind: list[TopicPartition]) -> Iterator[Loss]:
    """What was lost since `position`; `behind` are the partitions whose end is known to be cut."""
    recreated = recreated_topics(position, latest)
    for topic in recreated:
        yield Loss(
            f"{topic} {latest.topic_ids[topic]}",
            f"topic {topic} was deleted and created again since this query read it (its id was"
            f" {position.topic_ids[topic]}, it is {latest.topic_ids[topic]}).",
            "the query then reads the new topic from its beginning; or start it with a new checkpoint",
        )
    if gone := [str(each) for each in partitions_gone(position, latest) if each.topic not in recreated]:
        names = ", ".join(gone)
        yield Loss(
            names, f"{names} no longer exist, or are not subscribed to any more.", "the query then reads the others"
        )
    for each in behind:
        yield Loss(
            f"{each} {position.offsets[each]}",
            f"{each} had records up to offset {position.offsets[each]}, and now ends at {latest.offsets[each]}: its"
            " end was lost.",
            "the query then waits until records with higher offsets come",
        )


def with_places_of_gone(position: Position, latest: Position) -> Position:
    """`latest`, where partitions that are gone keep their place, so that they are not taken for new ones if they come
    back."""
    recreated = recreated_topics(position, latest)
    gone = [each for each in partitions_gone(position, latest) if each.topic not in recreated]
    kept = {each: position.offsets[each] for each in gone}
    ids = {topic: position.topic_ids[topic] for topic in {each.topic for each in kept} & position.topic_ids.keys()}
    return Position({**kept, **latest.offsets}, {**ids, **latest.topic_ids})


def nearer_target(target: Position, latest: Position) -> Position:
    """Where an availableNow run ends whose `target` may be partly gone: at the end of a log that was cut, or of the
    topic that took another's name."""
    recreated = set(recreated_topics(target, latest))
    ends = {
        each: latest.offsets[each] if each.topic in recreated else min(end, latest.offsets.get(each, end))
        for each, end in target.offsets.items()
        if each in latest.offsets
    }
    topics = {each.topic for each in ends}
    return Position(ends, {topic: each for topic, each in latest.topic_ids.items() if topic in topics})
