"""Who leads: elections, brokers that come and go, ISR changes, failed log directories.

A leader comes from the live members of the ISR, in the order of the assigned replicas; only where unclean election is
allowed may it be any live replica, and then the ISR is that leader alone (KIP-106: what others had more is lost).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tidelog.controller.events import (
    AlterPartition,
    BrokersChanged,
    ControlledShutdown,
    ElectionOutcome,
    ElectionType,
    ElectLeaders,
    IsrOutcome,
    IsrProposal,
    ReplicasFailed,
)
from tidelog.controller.turn import Turn
from tidelog.metadata.image import NO_BROKER_EPOCH, BrokerChanged, BrokerGone, PartitionImage
from tidelog.metadata.operations import Create
from tidelog.metadata.znodes import partition_path, partitions_path
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER, ZERO_TOPIC_ID, BrokerEpoch, BrokerId, TopicPartition

UNCLEAN_SETTING = "unclean.leader.election.enable"


def choose_leader(replicas: Sequence[BrokerId], isr: Sequence[BrokerId], online: Iterable[BrokerId]) -> BrokerId | None:
    """The first assigned replica that is online and in the ISR; None when there is none.

    >>> choose_leader([3, 1, 2], [2, 1], {1, 2})
    1
    """
    eligible = set(isr).intersection(online)
    return next((replica for replica in replicas if replica in eligible), None)


def create_partitions(turn: Turn, partitions: Sequence[TopicPartition]) -> None:
    """Makes the nodes and the first states of partitions that are assigned but were never led.

    For the whole batch first all `partitions` nodes, then all partition nodes, then all states, as Kafka does. A
    partition none of whose replicas is live stays without a state until one is.
    """
    bare, topics = turn.state.bare_nodes, turn.state.image.topics
    for topic in dict.fromkeys(partition.topic for partition in partitions):
        has_states = any(image.has_state for image in topics[topic].partitions.values())
        if not has_states and partitions_path(topic) not in bare:
            turn.write(Create(partitions_path(topic)))
    for topic_partition in partitions:
        if partition_path(*topic_partition) not in bare:
            turn.write(Create(partition_path(*topic_partition)))
    for topic_partition in partitions:
        image = topics[topic_partition.topic].partitions[topic_partition.partition]
        online = [id for id in image.replicas if turn.state.is_online(id, topic_partition)]
        if online:
            turn.write_state(topic_partition, online[0], online)
            turn.tell.partition(topic_partition, is_new=True)


def change_brokers(turn: Turn, event: BrokersChanged) -> list[BrokerId]:
    """Compares who is registered with who was; a higher epoch is a broker that came back before its end was seen.

    Returns the newcomers.
    """
    known = dict(turn.state.image.brokers)
    now = {registration.id: registration for registration in event.registrations}
    gone = [id for id in known if id not in now or now[id].epoch != known[id].epoch]
    come = [id for id in now if id not in known or now[id].epoch != known[id].epoch]
    moved = [id for id in now if id in known and now[id] != known[id] and id not in come]
    for id in gone:
        turn.state.replay(BrokerGone(id))
    if gone:
        remove_replicas(turn, lambda topic_partition, replica: replica in gone)
    for id in [*come, *moved]:
        turn.state.replay(BrokerChanged(now[id]))
    if gone or come or moved:
        turn.tell.brokers_changed()
    for id in come:
        turn.tell.everything_to(id)
    if come:
        elect_offline(turn)
    return come


def begin(turn: Turn) -> None:
    """What a new controller does first: brings the states in line with who is live, and tells everybody everything."""
    state = turn.state

    def is_gone(topic_partition: TopicPartition, broker_id: BrokerId) -> bool:
        return not state.is_online(broker_id, topic_partition)

    # Kafka's new controller writes a led partition twice: first without its leader, then with the next one.
    for topic_partition, image in list(state.image.partitions()):
        gone = {id for id in image.isr if is_gone(topic_partition, id)}
        if gone and image.has_state and topic_partition.topic not in state.deleting:
            isr = [id for id in image.isr if id not in gone] or image.isr[-1:]
            leader = NO_LEADER if image.leader in gone else image.leader
            if (leader, tuple(isr)) != (image.leader, image.isr):
                turn.write_state(topic_partition, leader, isr)
                turn.tell.partition(topic_partition)
    elect_offline(turn)
    for broker_id in state.image.brokers:
        turn.tell.everything_to(broker_id)


def remove_replicas(turn: Turn, is_gone: Callable[[TopicPartition, BrokerId], bool]) -> None:
    """Takes replicas that can serve no more out of leadership and ISR: one write a partition.

    First the partitions that get another leader, then the others. The last member of an ISR stays in it, without
    leading: it is the one whose return is waited for.
    """
    led, followed = [], []
    for topic_partition, image in list(turn.state.image.partitions()):
        if not image.has_state or topic_partition.topic in turn.state.deleting:
            continue
        gone = {id for id in image.replicas if is_gone(topic_partition, id)}
        if not gone:
            continue
        if gone.isdisjoint(image.isr):
            turn.tell.metadata_only(topic_partition)
            continue
        isr = [id for id in image.isr if id not in gone]
        if image.leader not in gone:
            if isr:
                followed.append((topic_partition, image.leader, isr))
            else:
                # Without a leader already, and the one waited for is away again.
                turn.tell.metadata_only(topic_partition)
            continue
        online = [id for id in image.replicas if turn.state.is_online(id, topic_partition)]
        leader = choose_leader(image.replicas, isr, online)
        if leader is None and unclean_allowed(turn, topic_partition.topic) and online:
            leader, isr = online[0], [online[0]]
        if leader is None:
            followed.append((topic_partition, NO_LEADER, isr or list(image.isr[-1:])))
        else:
            led.append((topic_partition, leader, isr))
    for topic_partition, leader, isr in [*led, *followed]:
        turn.write_state(topic_partition, leader, isr)
        turn.tell.partition(topic_partition)


def elect_offline(turn: Turn, topic: str | None = None) -> None:
    """Gives a leader to every partition (of one topic) that has none and could have one; makes missing states."""
    new = []
    for topic_partition, image in list(turn.state.image.partitions()):
        name = topic_partition.topic
        if name in turn.state.deleting or (topic is not None and name != topic):
            continue
        if not image.has_state:
            new.append(topic_partition)
        elif image.leader == NO_LEADER:
            elect(turn, topic_partition, image, unclean=unclean_allowed(turn, name))
    create_partitions(turn, new)


def elect(turn: Turn, topic_partition: TopicPartition, image: PartitionImage, *, unclean: bool) -> bool:
    """Elects a leader for a partition without one; whether there was anybody to elect."""
    online = [id for id in image.replicas if turn.state.is_online(id, topic_partition)]
    leader = choose_leader(image.replicas, image.isr, online)
    if leader is not None:
        turn.write_state(topic_partition, leader, [id for id in image.isr if id in online])
    elif unclean and online:
        turn.write_state(topic_partition, online[0], online[:1])
    else:
        return False
    turn.tell.partition(topic_partition)
    return True


def unclean_allowed(turn: Turn, topic: str) -> bool:
    """The topic's own setting, else the broker's."""
    value = turn.state.image.topic_config(topic).get(UNCLEAN_SETTING)
    return turn.settings.unclean_leader_election_enable if value is None else value.lower() == "true"


def fail_replicas(turn: Turn, event: ReplicasFailed) -> None:
    """A broker said that these replicas are on a failed log directory: to the rest of the cluster they are gone."""
    if event.broker_id not in turn.state.image.brokers:
        return
    failed = turn.state.failed_replicas.setdefault(event.broker_id, set())
    new = set(event.partitions) - failed
    failed |= new
    remove_replicas(turn, lambda topic_partition, replica: replica == event.broker_id and topic_partition in new)


def check_broker_epoch(turn: Turn, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
    """Refuses what a broker asked before it was registered anew."""
    registration = turn.state.image.brokers.get(broker_id)
    if registration is None or registration.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} with epoch {broker_epoch} is not registered"
            + ("" if registration is None else f", its epoch is {registration.epoch}"),
        )


def alter_partition(turn: Turn, request: AlterPartition) -> list[IsrOutcome]:
    """Accepts or refuses a leader's wishes for the ISRs of its partitions (KIP-497, KIP-841, KIP-903)."""
    check_broker_epoch(turn, request.broker_id, request.broker_epoch)
    return [_alter_isr(turn, request.broker_id, proposal) for proposal in request.proposals]


def _alter_isr(turn: Turn, broker_id: BrokerId, proposal: IsrProposal) -> IsrOutcome:
    topic_partition = proposal.topic_partition
    topic = turn.state.image.topics.get(topic_partition.topic)
    image = turn.state.image.partition(topic_partition)
    error = _proposal_error(turn, broker_id, proposal)
    if error is not ErrorCode.NONE or image is None or topic is None:
        return IsrOutcome(topic_partition, proposal.topic_id, error)
    wanted = tuple(member.broker_id for member in proposal.isr)
    if wanted != image.isr:
        turn.write_state(topic_partition, image.leader, wanted, same_epoch=True)
        turn.tell.metadata_only(topic_partition)
        image = topic.partitions[topic_partition.partition]
    return IsrOutcome(
        topic_partition,
        topic.topic_id,
        ErrorCode.NONE,
        image.leader,
        image.leader_epoch,
        image.isr,
        image.partition_epoch,
    )


def _proposal_error(turn: Turn, broker_id: BrokerId, proposal: IsrProposal) -> ErrorCode:
    topic_partition = proposal.topic_partition
    topic = turn.state.image.topics.get(topic_partition.topic)
    image = turn.state.image.partition(topic_partition)
    if topic is None or image is None or not image.has_state or topic.name in turn.state.deleting:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if proposal.topic_id not in (ZERO_TOPIC_ID, topic.topic_id):
        return ErrorCode.UNKNOWN_TOPIC_ID
    if proposal.leader_epoch < image.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if proposal.leader_epoch > image.leader_epoch or proposal.partition_epoch > image.partition_epoch:
        # The leader knows more than this controller: another one is in charge.
        return ErrorCode.NOT_CONTROLLER
    if proposal.partition_epoch < image.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [member.broker_id for member in proposal.isr]
    if (
        image.leader != broker_id
        or image.leader not in members
        or len(set(members)) != len(members)
        or not set(members).issubset(image.replicas)
    ):
        return ErrorCode.INVALID_REQUEST
    brokers = turn.state.image.brokers
    for member in proposal.isr:
        online = turn.state.is_online(member.broker_id, topic_partition)
        if not online or member.broker_epoch not in (NO_BROKER_EPOCH, brokers[member.broker_id].epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def elect_leaders(turn: Turn, request: ElectLeaders) -> list[ElectionOutcome]:
    """Preferred or unclean elections by hand (KIP-460)."""
    if request.partitions is not None:
        return [_elect_by_hand(turn, request.type, topic_partition) for topic_partition in request.partitions]
    everywhere = [_elect_by_hand(turn, request.type, each) for each, _ in list(turn.state.image.partitions())]
    return [outcome for outcome in everywhere if outcome.error is not ErrorCode.ELECTION_NOT_NEEDED]


def _elect_by_hand(turn: Turn, type: ElectionType, topic_partition: TopicPartition) -> ElectionOutcome:
    image = turn.state.image.partition(topic_partition)
    if image is None or not image.has_state:
        return ElectionOutcome(topic_partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if topic_partition.topic in turn.state.deleting:
        return ElectionOutcome(topic_partition, ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
    not_needed = ElectionOutcome(
        topic_partition, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    )
    if type is ElectionType.UNCLEAN:
        if image.leader != NO_LEADER:
            return not_needed
        if elect(turn, topic_partition, image, unclean=True):
            return ElectionOutcome(topic_partition)
        return ElectionOutcome(
            topic_partition,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"Failed to elect leader for partition {topic_partition}: no replica is live.",
        )
    preferred = image.replicas[0]
    if image.leader == preferred:
        return not_needed
    if preferred not in image.isr or not turn.state.is_online(preferred, topic_partition):
        return ElectionOutcome(
            topic_partition,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"Failed to elect leader for partition {topic_partition}: the preferred leader {preferred} is not live "
            "or not in sync.",
        )
    turn.write_state(topic_partition, preferred, image.isr)
    turn.tell.partition(topic_partition)
    return ElectionOutcome(topic_partition)


def shut_down(turn: Turn, request: ControlledShutdown) -> list[TopicPartition]:
    """Moves leaderships away from a broker that wants to leave, and takes it out of the ISRs that others lead.

    Returns what it still leads, for no other member of the ISR is live.
    """
    check_broker_epoch(turn, request.broker_id, request.broker_epoch)
    leaving, remaining = request.broker_id, []
    for topic_partition, image in list(turn.state.partitions_on(leaving)):
        if leaving not in image.isr or topic_partition.topic in turn.state.deleting or len(image.replicas) == 1:
            continue
        isr = [id for id in image.isr if id != leaving]
        leader = image.leader
        if leader == leaving:
            online = [id for id in image.replicas if turn.state.is_online(id, topic_partition)]
            successor = choose_leader(image.replicas, isr, online)
            if successor is None:
                remaining.append(topic_partition)
                continue
            leader = successor
        if isr:
            turn.write_state(topic_partition, leader, isr)
            turn.tell.partition(topic_partition)
            turn.tell.stop(leaving, topic_partition, delete=False)
    return remaining
