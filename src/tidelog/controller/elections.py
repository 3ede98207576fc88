"""Elections: the leader of a partition that has none, or should have another one.

A leader comes from the live members of the ISR that have all their records, in the order of the assigned replicas. A
member that is known to have lost records (`marks`) is not elected: the partition waits for another one, as it waits for
the last member of an ISR. The only replica of a partition leads nevertheless, with a WARNING. Of members that came back
together, those that had stopped cleanly are first. Where the machines of all of them were booted anew, logs are
compared (`tidelog.controller.lost_tails`).

Only where unclean election is allowed may the leader be any live replica, and then the ISR is that leader alone
(KIP-106: what others had more is lost). It is the one whose log has most (`tidelog.controller.log_ends`). Unclean
elections are counted and logged, here and nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from tidelog.controller import log_ends
from tidelog.controller.events import LogEndsLearned, LogEndsWanted, PreferredElectionRequested
from tidelog.controller.lost_tails import (
    awaits_members,
    choose_by_log,
    complete_members,
    may_lack_tail,
    members_to_compare,
)
from tidelog.controller.requests import ElectionOutcome, ElectionType, ElectLeaders
from tidelog.controller.turn import ControllerTurn
from tidelog.metadata.image import ConfigResource, ConfigResourceType, PartitionImage
from tidelog.metadata.operations import Create, Delete
from tidelog.metadata.replica_marks import replica_mark_path
from tidelog.metadata.znodes import PREFERRED_ELECTION, config_path, partition_path, partitions_path
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import NO_LEADER, BrokerId, TopicPartition

UNCLEAN_SETTING: Final = "unclean.leader.election.enable"

logger = logging.getLogger(__name__)


def choose_leader(
    replicas: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    online: Iterable[BrokerId],
    *,
    last: Collection[BrokerId] = (),
) -> BrokerId | None:
    """The first assigned replica that is online and in the ISR, those in `last` after the others; None without any.

    >>> choose_leader([3, 1, 2], [2, 1], {1, 2})
    1
    >>> choose_leader([3, 1, 2], [2, 1], {1, 2}, last=[1])
    2
    """
    eligible = set(isr).intersection(online)
    return min((id for id in replicas if id in eligible), key=lambda replica: replica in last, default=None)


def choose_unclean_leader(
    turn: ControllerTurn, topic_partition: TopicPartition, online: Sequence[BrokerId], *, may_ask: bool = True
) -> BrokerId | None:
    """The replica online, in sync or not, that has most; counted and logged, for it may cost acknowledged records.

    None where the brokers of several are to say first where their logs end (`may_ask`). Of equal logs, and where
    nothing is known of any, one that a reassignment is adding comes after those that were there before.
    """
    image = turn.state.image.partition(topic_partition)
    if image is None or not online:
        return None
    if may_ask and log_ends.are_awaited(turn, topic_partition, online):
        return None
    ends = log_ends.known_ends(turn, topic_partition, image, online)
    leader = max(online, key=lambda each: (ends[each], each not in image.adding))
    turn.state.unclean_elections += 1
    logger.warning(
        "unclean election: broker %d becomes leader of %s-%d without having been in sync; records that only its ISR "
        "had are lost; it is number %d since this controller began",
        leader,
        *topic_partition,
        turn.state.unclean_elections,
    )
    return leader


def learn_log_ends(turn: ControllerTurn, event: LogEndsLearned) -> None:
    """A broker has said where its logs end; elections that have waited for the last answer go on."""
    state = turn.state
    if event.broker_id not in state.image.brokers:
        return
    for topic_partition, end in event.ends.items():
        image = state.image.partition(topic_partition)
        if image is None or not image.has_state or image.leader != NO_LEADER:
            continue
        is_awaited = topic_partition in state.awaiting_log_ends
        if end == log_ends.NOT_SAID:
            if is_awaited:
                turn.set_timer(log_ends.ASK_AGAIN_MS, LogEndsWanted(event.broker_id))
            continue
        state.log_ends.setdefault(topic_partition, {})[event.broker_id] = end
        if is_awaited:
            elect_offline(turn, [(topic_partition, image)])


def ask_for_log_ends_again(turn: ControllerTurn, broker_id: BrokerId) -> None:
    """Asks a broker for the log ends that elections still wait for and that it could not say before."""
    for topic_partition in turn.state.awaiting_log_ends:
        image = turn.state.image.partition(topic_partition)
        if image is not None and image.leader == NO_LEADER and broker_id in image.replicas:
            log_ends.ask(turn, topic_partition, [broker_id])


def log_ends_due(turn: ControllerTurn, due_ms: int) -> None:
    """Elections that have waited for answers until `due_ms` go by what is known; one that began since does not."""
    over = [each for each, until_ms in turn.state.awaiting_log_ends.items() if until_ms <= due_ms]
    for topic_partition in over:
        del turn.state.awaiting_log_ends[topic_partition]
    _try_again(turn, over, may_ask=False)


def members_due(turn: ControllerTurn, due_ms: int) -> None:
    """Elections that have waited for members of the ISR until `due_ms` go on without them."""
    over = [each for each, until_ms in turn.state.members_due.items() if until_ms <= due_ms]
    for topic_partition in over:
        turn.state.members_due[topic_partition] = min(due_ms, turn.now_ms)
    _try_again(turn, over)


def _try_again(turn: ControllerTurn, partitions: Iterable[TopicPartition], *, may_ask: bool = True) -> None:
    for topic_partition in partitions:
        image = turn.state.image.partition(topic_partition)
        if image is not None:
            elect_offline(turn, [(topic_partition, image)], may_ask=may_ask)


def unclean_allowed(turn: ControllerTurn, topic: str) -> bool:
    """The topic's own setting, else the broker's; not where its own cannot be read, for it may say that it is not."""
    if config_path(ConfigResource(ConfigResourceType.TOPIC, topic)) in turn.state.malformed:
        return False
    value = turn.state.image.topic_config(topic).get(UNCLEAN_SETTING)
    return turn.settings.unclean_leader_election_enable if value is None else value.lower() == "true"


def online_replicas(turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage) -> list[BrokerId]:
    """The replicas that could lead, in the order in which they are assigned, each once."""
    return list(dict.fromkeys(id for id in image.replicas if turn.state.is_online(id, topic_partition)))


def create_partitions(turn: ControllerTurn, partitions: Sequence[TopicPartition]) -> None:
    """Makes the nodes and the first states of partitions that are assigned but were never led.

    For the whole batch first all `partitions` nodes, then all partition nodes, then all states, as Kafka does. A
    partition none of whose replicas is live stays without a state until one is; one whose state is there and cannot be
    read is left alone. One that its topic had before goes on from the state that is left of it.
    """
    bare, topics = turn.state.bare_nodes, turn.state.image.topics
    partitions = [each for each in partitions if not turn.state.has_unreadable_state(each)]
    for topic in dict.fromkeys(partition.topic for partition in partitions):
        has_states = any(
            image.has_state or turn.state.has_unreadable_state(TopicPartition(topic, index))
            for index, image in topics[topic].partitions.items()
        ) or any(path.startswith(f"{partitions_path(topic)}/") for path in turn.state.orphans)
        if not has_states and partitions_path(topic) not in bare:
            turn.write(Create(partitions_path(topic)))
    for topic_partition in partitions:
        image = topics[topic_partition.topic].partitions[topic_partition.partition]
        if not image.has_state and partition_path(*topic_partition) not in bare:
            turn.write(Create(partition_path(*topic_partition)))
    for topic_partition in partitions:
        image = topics[topic_partition.topic].partitions[topic_partition.partition]
        online = online_replicas(turn, topic_partition, image)
        if online:
            turn.write_state(topic_partition, online[0], online)
            turn.tell.partition(topic_partition, is_new=True)


def elect_offline(
    turn: ControllerTurn, partitions: Iterable[tuple[TopicPartition, PartitionImage]], *, may_ask: bool = True
) -> None:
    """Gives a leader to each of these partitions that has none and could have one; makes missing states."""
    new = []
    for topic_partition, image in list(partitions):
        name = topic_partition.topic
        if name in turn.state.deleting:
            continue
        if not image.has_state:
            new.append(topic_partition)
        elif image.leader == NO_LEADER:
            elect(turn, topic_partition, image, unclean=unclean_allowed(turn, name), may_ask=may_ask)
    create_partitions(turn, new)


def elect_offline_of(turn: ControllerTurn, topic: str) -> None:
    """The same for one topic: unclean elections were allowed to have its leaderless partitions back now."""
    image = turn.state.image.topics.get(topic)
    if image is not None:
        elect_offline(turn, [(TopicPartition(topic, index), each) for index, each in image.partitions.items()])


def elect(
    turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage, *, unclean: bool, may_ask: bool = True
) -> bool:
    """Elects a leader for a partition without one; whether there was any to elect. `may_ask`: brokers, for log ends."""
    if topic_partition in turn.state.in_doubt and not unclean:
        return False
    online = online_replicas(turn, topic_partition, image)
    isr = complete_members(turn, topic_partition, [id for id in image.isr if id in online])
    leader = choose_leader(image.replicas, isr, online, last=_came_back_uncleanly(turn))
    if leader is None:
        if not unclean and awaits_members(turn, topic_partition, image, online):
            return False
        comparable = members_to_compare(turn, topic_partition, image, online)
        # A broker that is back may have thousands of replicas to make before it answers.
        patience_ms = 0 if unclean else turn.settings.isr_return_wait_ms
        wait_ms = max(log_ends.LOG_ENDS_WAIT_MS, patience_ms)
        if may_ask and log_ends.are_awaited(turn, topic_partition, comparable, wait_ms=wait_ms):
            return False
        if comparable:
            leader, isr = choose_by_log(turn, topic_partition, image, comparable)
    if leader is None and _has_one_replica(image):
        leader = choose_leader(image.replicas, image.isr, online)
        if leader is not None:
            _warn_of_damage(turn, topic_partition, leader)
    if leader is None and unclean:
        leader = choose_unclean_leader(turn, topic_partition, online, may_ask=may_ask)
    if leader is None:
        _wait(turn, topic_partition, image, online)
        return False
    turn.write_state(topic_partition, leader, isr if leader in isr else [leader])
    turn.tell.partition(topic_partition)
    leads_from_now_on(turn, topic_partition, leader)
    return True


def leads_from_now_on(turn: ControllerTurn, topic_partition: TopicPartition, leader: BrokerId) -> None:
    """Forgets what was known while there was no leader. The log of this one is what the partition holds from now on."""
    turn.state.leader_elections += 1
    turn.state.forget_election(topic_partition)
    remove_mark(turn, topic_partition, leader)


def remove_mark(turn: ControllerTurn, topic_partition: TopicPartition, broker_id: BrokerId) -> None:
    """A replica is whole again, or leads: nothing is missing in it that its partition has.

    The mark of a hole stays: that it is mended only the broker can say. It may have found one since: the mark that was
    read goes, and no other.
    """
    damage = turn.state.damaged_replicas(topic_partition).get(broker_id)
    if damage is not None and not damage.has_hole:
        version = turn.state.marks.version(broker_id, topic_partition)
        turn.write(Delete(replica_mark_path(broker_id, topic_partition), version))


def isr_to_wait_for(turn: ControllerTurn, topic_partition: TopicPartition, isr: Sequence[BrokerId]) -> list[BrokerId]:
    """Of an ISR none of which can lead: its members that have all records, or all of them where none has.

    Those that lack the tail only stay: the others may turn out to have lost more.
    """
    whole = turn.state.whole_replicas(topic_partition, isr)
    if not whole:
        return list(isr)
    return [id for id in isr if id in whole or id in may_lack_tail(turn, topic_partition, isr)]


def _came_back_uncleanly(turn: ControllerTurn) -> list[BrokerId]:
    """Live brokers whose last stop was unclean, and that no controller has decided upon for long."""
    return [id for id in turn.state.marks.unclean_stops if id in turn.state.image.brokers]


def _has_one_replica(image: PartitionImage) -> bool:
    """Whether there never was another replica than one; those that a reassignment is adding do not count."""
    return len([id for id in image.replicas if id not in image.adding]) == 1


def _warn_of_damage(turn: ControllerTurn, topic_partition: TopicPartition, leader: BrokerId) -> None:
    damage = turn.state.damaged_replicas(topic_partition).get(leader)
    if damage is None:
        # Its machine was booted anew while it was in doubt which members live: what its log lacks is known of no other.
        return
    logger.warning(
        "damaged replica leads: partition=%s broker=%d log_end=%d lost_end=%d: it is the only replica, and the records "
        "that it has lost are gone",
        topic_partition,
        leader,
        damage.log_end,
        damage.lost_end,
    )


def _wait(
    turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage, online: Sequence[BrokerId]
) -> None:
    """Leaves the partition without a leader: members that have lost records leave the ISR while another one has not.

    So controllers of versions that know no marks wait for the right ones too.
    """
    isr = isr_to_wait_for(turn, topic_partition, image.isr)
    if len(isr) < len(image.isr):
        turn.write_state(topic_partition, NO_LEADER, isr)
        turn.tell.partition(topic_partition)
    log_ends.ask(turn, topic_partition, online)
    damaged = turn.state.damaged_replicas(topic_partition)
    if not damaged:
        return
    waits_for = [id for id in isr if id not in damaged]
    reason = (tuple(waits_for), tuple(damaged))
    if turn.state.waits.get(topic_partition) == reason:
        return
    turn.state.waits[topic_partition] = reason
    logger.warning(
        "partition waits for a leader: partition=%s waits_for=%s damaged=%s live=%s: %s",
        topic_partition,
        waits_for,
        {id: f"log_end={damage.log_end} lost_end={damage.lost_end}" for id, damage in damaged.items()},
        list(online),
        "the damaged replicas have lost records that the replica waited for has: start its broker"
        if waits_for
        else "every replica that was in sync has lost records. To give up what none of them has: "
        f"tidelog leaders elect --election-type unclean --topic {topic_partition.topic} "
        f"--partition {topic_partition.partition}",
    )


def elect_leaders(turn: ControllerTurn, request: ElectLeaders) -> list[ElectionOutcome]:
    """Preferred or unclean elections by hand (KIP-460), each partition once."""
    if request.partitions is not None:
        return [_elect_by_hand(turn, request.type, each) for each in dict.fromkeys(request.partitions)]
    everywhere = [_elect_by_hand(turn, request.type, each) for each, _ in list(turn.state.image.partitions())]
    return [outcome for outcome in everywhere if outcome.error is not ErrorCode.ELECTION_NOT_NEEDED]


def elect_preferred_of_node(turn: ControllerTurn, event: PreferredElectionRequested) -> None:
    """What an old tool asked for in the store. The node goes in any case: the tool is refused while it is there."""
    for topic_partition in dict.fromkeys(event.partitions):
        _elect_by_hand(turn, ElectionType.PREFERRED, topic_partition)
    turn.write(Delete(PREFERRED_ELECTION, czxid=event.czxid))


def can_prefer(turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage) -> bool:
    """Whether the first assigned replica could lead now: live, in sync, and not known to have lost records.

    A partition without a leader waits for another member of its ISR, or for the ends of logs (`elect`). In a doubt the
    ISR has members that were away; a leader that lives leads on.
    """
    if image.leader == NO_LEADER or topic_partition in turn.state.in_doubt:
        return False
    preferred = image.replicas[0] if image.replicas else NO_LEADER
    if preferred not in image.isr or not turn.state.is_online(preferred, topic_partition):
        return False
    return preferred in turn.state.whole_replicas(topic_partition, image.isr)


def prefer(turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage) -> None:
    """Makes the first assigned replica the leader; the ISR stays."""
    turn.write_state(topic_partition, image.replicas[0], image.isr)
    turn.tell.partition(topic_partition)


def _elect_by_hand(turn: ControllerTurn, type: ElectionType, topic_partition: TopicPartition) -> ElectionOutcome:
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
        if elect(turn, topic_partition, image, unclean=True, may_ask=False):
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
