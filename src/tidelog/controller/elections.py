"""Elections: who leads a partition that has no leader, or should have another one.

A leader comes from the live members of the ISR, in the order of the assigned replicas; only where unclean election is
allowed may it be any live replica, and then the ISR is that leader alone (KIP-106: what others had more is lost).
Unclean elections are counted and logged, here and nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.controller.events import ElectionOutcome, ElectionType, ElectLeaders, PreferredElectionRequested
from tidelog.controller.turn import Turn
from tidelog.metadata.image import PartitionImage
from tidelog.metadata.operations import Create, Delete
from tidelog.metadata.znodes import PREFERRED_ELECTION, partition_path, partitions_path
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_LEADER, BrokerId, TopicPartition

UNCLEAN_SETTING: Final = "unclean.leader.election.enable"

log = logging.getLogger(__name__)


def choose_leader(replicas: Sequence[BrokerId], isr: Sequence[BrokerId], online: Iterable[BrokerId]) -> BrokerId | None:
    """The first assigned replica that is online and in the ISR; None when there is none.

    >>> choose_leader([3, 1, 2], [2, 1], {1, 2})
    1
    """
    eligible = set(isr).intersection(online)
    return next((replica for replica in replicas if replica in eligible), None)


def choose_unclean_leader(turn: Turn, topic_partition: TopicPartition, online: Sequence[BrokerId]) -> BrokerId | None:
    """The first replica that is online, in sync or not; counted and logged, for it may cost acknowledged records.

    One that a reassignment is adding, and that may have next to nothing yet, comes after those that were there before.
    """
    image = turn.state.image.partition(topic_partition)
    adding = () if image is None else image.adding
    online = sorted(online, key=lambda replica: replica in adding)
    if not online:
        return None
    turn.state.unclean_elections += 1
    log.warning(
        "unclean election: broker %d becomes leader of %s-%d without having been in sync; records that only its ISR "
        "had are lost; it is number %d since this controller began",
        online[0],
        *topic_partition,
        turn.state.unclean_elections,
    )
    return online[0]


def unclean_allowed(turn: Turn, topic: str) -> bool:
    """The topic's own setting, else the broker's."""
    value = turn.state.image.topic_config(topic).get(UNCLEAN_SETTING)
    return turn.settings.unclean_leader_election_enable if value is None else value.lower() == "true"


def online_replicas(turn: Turn, topic_partition: TopicPartition, image: PartitionImage) -> list[BrokerId]:
    """The replicas that could lead, in the order in which they are assigned, each once."""
    return list(dict.fromkeys(id for id in image.replicas if turn.state.is_online(id, topic_partition)))


def create_partitions(turn: Turn, partitions: Sequence[TopicPartition]) -> None:
    """Makes the nodes and the first states of partitions that are assigned but were never led.

    For the whole batch first all `partitions` nodes, then all partition nodes, then all states, as Kafka does. A
    partition none of whose replicas is live stays without a state until one is; one whose state is there and cannot be
    read is left alone.
    """
    bare, topics = turn.state.bare_nodes, turn.state.image.topics
    partitions = [each for each in partitions if not turn.state.has_unreadable_state(each)]
    for topic in dict.fromkeys(partition.topic for partition in partitions):
        has_states = any(
            image.has_state or turn.state.has_unreadable_state(TopicPartition(topic, index))
            for index, image in topics[topic].partitions.items()
        )
        if not has_states and partitions_path(topic) not in bare:
            turn.write(Create(partitions_path(topic)))
    for topic_partition in partitions:
        if partition_path(*topic_partition) not in bare:
            turn.write(Create(partition_path(*topic_partition)))
    for topic_partition in partitions:
        image = topics[topic_partition.topic].partitions[topic_partition.partition]
        online = online_replicas(turn, topic_partition, image)
        if online:
            turn.write_state(topic_partition, online[0], online)
            turn.tell.partition(topic_partition, is_new=True)


def elect_offline(turn: Turn, partitions: Iterable[tuple[TopicPartition, PartitionImage]]) -> None:
    """Gives a leader to each of these partitions that has none and could have one; makes missing states."""
    new = []
    for topic_partition, image in list(partitions):
        name = topic_partition.topic
        if name in turn.state.deleting:
            continue
        if not image.has_state:
            new.append(topic_partition)
        elif image.leader == NO_LEADER:
            elect(turn, topic_partition, image, unclean=unclean_allowed(turn, name))
    create_partitions(turn, new)


def elect_offline_of(turn: Turn, topic: str) -> None:
    """The same for one topic: who allows unclean elections wants its leaderless partitions back now."""
    image = turn.state.image.topics.get(topic)
    if image is not None:
        elect_offline(turn, [(TopicPartition(topic, index), each) for index, each in image.partitions.items()])


def elect(turn: Turn, topic_partition: TopicPartition, image: PartitionImage, *, unclean: bool) -> bool:
    """Elects a leader for a partition without one; whether there was anybody to elect."""
    online = online_replicas(turn, topic_partition, image)
    leader = choose_leader(image.replicas, image.isr, online)
    isr = [id for id in image.isr if id in online]
    if leader is None and unclean:
        leader = choose_unclean_leader(turn, topic_partition, online)
        isr = isr if leader is None else [leader]
    if leader is None:
        return False
    turn.write_state(topic_partition, leader, isr)
    turn.tell.partition(topic_partition)
    return True


def elect_leaders(turn: Turn, request: ElectLeaders) -> list[ElectionOutcome]:
    """Preferred or unclean elections by hand (KIP-460), each partition once."""
    if request.partitions is not None:
        return [_elect_by_hand(turn, request.type, each) for each in dict.fromkeys(request.partitions)]
    everywhere = [_elect_by_hand(turn, request.type, each) for each, _ in list(turn.state.image.partitions())]
    return [outcome for outcome in everywhere if outcome.error is not ErrorCode.ELECTION_NOT_NEEDED]


def elect_preferred_of_node(turn: Turn, event: PreferredElectionRequested) -> None:
    """What an old tool asked for in the store. The node goes in any case: the tool is refused while it is there."""
    for topic_partition in dict.fromkeys(event.partitions):
        _elect_by_hand(turn, ElectionType.PREFERRED, topic_partition)
    turn.write(Delete(PREFERRED_ELECTION))


def can_prefer(turn: Turn, topic_partition: TopicPartition, image: PartitionImage) -> bool:
    """Whether the first assigned replica could lead now: live, and in sync."""
    preferred = image.replicas[0] if image.replicas else NO_LEADER
    return preferred in image.isr and turn.state.is_online(preferred, topic_partition)


def prefer(turn: Turn, topic_partition: TopicPartition, image: PartitionImage) -> None:
    """Makes the first assigned replica the leader; the ISR stays."""
    turn.write_state(topic_partition, image.replicas[0], image.isr)
    turn.tell.partition(topic_partition)


def _elect_by_hand(turn: Turn, type: ElectionType, topic_partition: TopicPartition) -> ElectionOutcome:
    image = turn.state.image.partition(topic_partition)
    if image is None or not image.has_state:
        return ElectionOutcome(topic_partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if topic_partition.topic in turn.state.deleting:
        return ElectionOutcome(topic_partition, ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
    not_needed = ElectionOutcome(
        topic_partition, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    )
    subject = f"Failed to elect leader for partition {topic_partition.topic}-{topic_partition.partition}"
    if type is ElectionType.UNCLEAN:
        if image.leader != NO_LEADER:
            return not_needed
        if elect(turn, topic_partition, image, unclean=True):
            return ElectionOutcome(topic_partition)
        return ElectionOutcome(
            topic_partition, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"{subject}: no replica is live."
        )
    if image.replicas and image.leader == image.replicas[0]:
        return not_needed
    if not can_prefer(turn, topic_partition, image):
        return ElectionOutcome(
            topic_partition,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"{subject}: the preferred leader {', '.join(map(str, image.replicas[:1]))} is not live or not in sync.",
        )
    prefer(turn, topic_partition, image)
    return ElectionOutcome(topic_partition)
