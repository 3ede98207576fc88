"""What brokers' lives do to leaderships: they come, go, bounce, shut down, lose a log directory; a controller begins.

Kafka's order of writes is kept: of several partitions first those that get another leader, then the others. Where
several brokers go at once, a partition is written once for all of them; Kafka writes once for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tidelog.controller.elections import (
    choose_leader,
    choose_unclean_leader,
    elect_offline,
    isr_to_wait_for,
    leads_from_now_on,
    online_replicas,
    unclean_allowed,
)
from tidelog.controller.events import BrokersChanged, LogEndsLearned, MarksChanged, ReplicasFailed, ReplicasPostponed
from tidelog.controller.lost_tails import complete_members, may_lack_tail, put_in_doubt, successors
from tidelog.controller.requests import ControlledShutdown
from tidelog.controller.turn import ControllerTurn
from tidelog.metadata.image import BrokerChanged, BrokerGone, PartitionImage
from tidelog.metadata.operations import Delete
from tidelog.metadata.replica_marks import MARKS, parse_mark_name
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER, BrokerEpoch, BrokerId, TopicPartition


def change_brokers(turn: ControllerTurn, event: BrokersChanged) -> list[BrokerId]:
    """Compares the registered brokers with the former ones; another epoch is a broker that came back before its end was
    seen.

    Such a broker may have lost what was not flushed: it leaves ISRs and leaderships as if it had been away (KIP-380).
    Returns the newcomers.
    """
    state = turn.state
    known = dict(state.image.brokers)
    now = {registration.id: registration for registration in event.registrations}
    gone = [id for id in known if id not in now or now[id].epoch != known[id].epoch]
    come = [id for id in now if id not in known or now[id].epoch != known[id].epoch]
    moved = [id for id in now if id in known and now[id] != known[id] and id not in come]
    for id in gone:
        state.replay(BrokerGone(id))
    remove_replicas(turn, {id: [each for each, _ in state.partitions_on(id)] for id in gone}, returning=come)
    for id in [*come, *moved]:
        state.replay(BrokerChanged(now[id]))
    if gone or come or moved:
        turn.tell.brokers_changed()
    for id in come:
        turn.tell.everything_to(id)
        elect_offline(turn, state.partitions_on(id))
        for topic_partition, image in state.partitions_on(id):
            # The others know it as offline. Of what it has yet to fetch they hear when it joins the ISR.
            if id in image.isr and topic_partition.topic not in state.deleting:
                turn.tell.metadata_only(topic_partition)
    return come


def begin(turn: ControllerTurn) -> None:
    """What a new controller does first: brings the states in line with the live brokers, and tells each everything."""
    state = turn.state
    # Kafka's new controller writes a led partition twice: first without its leader, then with the next one. It writes
    # what has no leader too, with the next epoch, while the last member of its ISR is away.
    for topic_partition, image in list(state.image.partitions()):
        if not image.has_state or topic_partition.topic in state.deleting:
            continue
        leader, isr, is_stale = _as_found(turn, topic_partition, image)
        if is_stale:
            turn.write_state(topic_partition, leader, isr)
            turn.tell.partition(topic_partition)
    elect_offline(turn, state.image.partitions())
    _answer_marks(turn)
    state.written.clear()
    for broker_id in state.image.brokers:
        turn.tell.everything_to(broker_id)


def _as_found(
    turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage
) -> tuple[BrokerId, Sequence[BrokerId], bool]:
    """Leader and ISR of a partition as a new controller finds it, and whether they are to be written.

    No leader where the one that the state names cannot go on: then one is elected, if any can lead.
    """
    online = [id for id in image.isr if id in image.replicas and turn.state.is_online(id, topic_partition)]
    lacking = _may_lack_tail(turn, topic_partition, image, online)
    whole = [id for id in turn.state.whole_replicas(topic_partition, online) if id not in lacking]
    whole = [id for id in whole if id not in _bounced(turn, topic_partition, whole)]
    if lacking and not whole:
        isr = isr_to_wait_for(turn, topic_partition, image.isr)
        return NO_LEADER, isr, image.leader != NO_LEADER or len(isr) < len(image.isr)
    if whole and _sessions_may_outlive_brokers(turn, topic_partition, image, whole):
        # They may be of before the power cut that booted another machine anew: it took the end of these logs, too.
        put_in_doubt(turn, topic_partition, whole)
        leader = image.leader if image.leader in whole else NO_LEADER
        return leader, image.isr, leader != image.leader
    is_stale = len(whole) < len(image.isr)
    if image.leader in whole:
        if len(image.replicas) > 1 and _lost_its_tail(turn, topic_partition, image.leader):
            # In its old epoch it would write other records at offsets that another replica has.
            return NO_LEADER, whole, True
        return image.leader, whole, is_stale
    if whole:
        return NO_LEADER, whole, True
    if image.leader in online and not _registered_since(turn, topic_partition, image.leader):
        # It found damage in its log while it led, and no other member could.
        return image.leader, online, len(online) < len(image.isr)
    is_stale = image.leader != NO_LEADER or len(online) < len(image.isr)
    return NO_LEADER, isr_to_wait_for(turn, topic_partition, image.isr), is_stale


def _may_lack_tail(
    turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage, online: Sequence[BrokerId]
) -> list[BrokerId]:
    """Live members of an ISR that came back, since its state was written, without the end of their log perhaps."""
    if len(image.replicas) == 1:
        return []
    lacking = may_lack_tail(turn, topic_partition, online)
    return [id for id in lacking if _registered_since(turn, topic_partition, id)]


def _sessions_may_outlive_brokers(
    turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage, members: Sequence[BrokerId]
) -> bool:
    """Whether members of an ISR may be dead although they are registered, since sessions outlive a power cut.

    So it is when all these registrations are older than the partition's state, and some broker, with a replica or
    without, has since come back from a machine that was booted anew.
    """
    if len(image.replicas) == 1 or any(_registered_since(turn, topic_partition, id) for id in members):
        return False
    booted = [id for id in turn.state.marks.booted_anew if id in turn.state.image.brokers]
    return any(_registered_since(turn, topic_partition, id) for id in booted)


def _registered_since(turn: ControllerTurn, topic_partition: TopicPartition, broker_id: BrokerId) -> bool:
    """Whether a live broker registered after a partition's state was written: then it was away, or its session was.

    A write can be on its way while the broker dies and registers again: then the state names the broker as it was
    before, and is younger than the registration. So one that stopped uncleanly counts until its mark is gone, which
    goes when a controller has decided upon the registration.
    """
    written = turn.state.written.get(topic_partition)
    if written is None:
        return False
    return turn.state.image.brokers[broker_id].epoch > written or broker_id in turn.state.marks.unclean_stops


def _lost_its_tail(turn: ControllerTurn, topic_partition: TopicPartition, leader: BrokerId) -> bool:
    """Whether a leader has come back after an unclean stop, with what its disk had kept of the log."""
    return leader in turn.state.marks.unclean_stops and _registered_since(turn, topic_partition, leader)


def _bounced(turn: ControllerTurn, topic_partition: TopicPartition, isr: Sequence[BrokerId]) -> list[BrokerId]:
    """Live members of an ISR that registered after its state was written: they were away, and no controller saw it.

    They may have lost what was not flushed, so replicas that stayed come before them (as in `change_brokers`). Where
    none stayed, as when the whole cluster was restarted, none does.
    """
    away = [id for id in isr if _registered_since(turn, topic_partition, id)]
    return away if len(away) < len(isr) else []


def change_marks(turn: ControllerTurn, event: MarksChanged) -> None:
    """Replicas were found to have lost records, or were mended.

    A replica that has lost records leaves leadership and ISR where another member of the ISR can lead; where none can,
    it goes on as long as it lives, and is not elected again.
    """
    touched: dict[TopicPartition, None] = {}
    for node in event.found:
        turn.state.replay(node)
    for name in event.gone:
        turn.state.replay(Delete(f"{MARKS}/{name}"))
    for name in [*(node.path.removeprefix(f"{MARKS}/") for node in event.found), *event.gone]:
        match parse_mark_name(name):
            case _, TopicPartition() as topic_partition:
                touched[topic_partition] = None
    for topic_partition in touched:
        image = turn.state.image.partition(topic_partition)
        if image is None or not image.has_state or topic_partition.topic in turn.state.deleting:
            continue
        if image.leader == NO_LEADER:
            elect_offline(turn, [(topic_partition, image)])
        else:
            _lead_without_damage(turn, topic_partition, image)
    _answer_marks(turn)


def _answer_marks(turn: ControllerTurn) -> None:
    """Tells brokers which marks of holes have been read, behind what was decided upon them."""
    for operation in list(turn.state.marks.answers()):
        turn.write(operation)


def _lead_without_damage(turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage) -> None:
    isr = successors(turn, topic_partition, image.isr)
    online = online_replicas(turn, topic_partition, image)
    leader = image.leader if image.leader in isr else choose_leader(image.replicas, isr, online)
    if leader is not None and len(isr) < len(image.isr):
        turn.write_state(topic_partition, leader, isr)
        turn.tell.partition(topic_partition)


def remove_replicas(
    turn: ControllerTurn, gone: Mapping[BrokerId, Iterable[TopicPartition]], *, returning: Collection[BrokerId] = ()
) -> None:
    """Takes replicas that can serve no more out of leadership and ISR: one write a partition.

    `gone` is by broker, its replicas. First come the partitions that get another leader, then the others. Where no
    member of the ISR can lead, those that have all records stay in it: any of them is waited for, since nothing was
    committed without them. No unclean leader is elected where one is among the `returning`, which are back in the same
    turn.
    """
    affected: dict[TopicPartition, list[BrokerId]] = {}
    for broker_id, replicas in gone.items():
        for topic_partition in replicas:
            affected.setdefault(topic_partition, []).append(broker_id)
    led, others = [], []
    for topic_partition, brokers in affected.items():
        image = turn.state.image.partition(topic_partition)
        if image is None or not image.has_state or topic_partition.topic in turn.state.deleting:
            continue
        if topic_partition in turn.state.in_doubt:
            # All members stay until it is known which of them live.
            if image.leader in brokers:
                others.append((topic_partition, NO_LEADER, list(image.isr)))
            continue
        isr = [id for id in image.isr if id not in brokers]
        if image.leader not in brokers:
            if isr and len(isr) < len(image.isr) and image.leader != NO_LEADER:
                others.append((topic_partition, image.leader, isr))
            else:
                # It was not in sync; or no replica leads, and one that is waited for is away again.
                turn.tell.metadata_only(topic_partition)
            continue
        online = online_replicas(turn, topic_partition, image)
        isr = turn.state.whole_replicas(topic_partition, isr)
        leader = choose_leader(image.replicas, isr, online)
        waits = any(id in returning for id in image.isr)
        if leader is None and not waits and unclean_allowed(turn, topic_partition.topic):
            leader = choose_unclean_leader(turn, topic_partition, online)
            isr = isr if leader is None else [leader]
        if leader is None:
            others.append((topic_partition, NO_LEADER, isr_to_wait_for(turn, topic_partition, image.isr)))
        else:
            led.append((topic_partition, leader, isr))
    for topic_partition, leader, isr in [*led, *others]:
        turn.write_state(topic_partition, leader, isr)
        turn.tell.partition(topic_partition)
    for topic_partition, leader, _ in led:
        leads_from_now_on(turn, topic_partition, leader)


def sessions_proven(turn: ControllerTurn, due_ms: int) -> None:
    """The sessions of dead brokers have ended by now: the members of ISRs that are still registered live."""
    for topic_partition in [each for each, until_ms in turn.state.in_doubt.items() if until_ms <= due_ms]:
        _end_doubt(turn, topic_partition)


def has_answered(turn: ControllerTurn, event: LogEndsLearned) -> None:
    """A broker lives. Where it is in sync and has all records, its ISR is in doubt no longer."""
    for topic_partition in [each for each in event.ends if each in turn.state.in_doubt]:
        if event.broker_id not in turn.state.booted_anew(topic_partition):
            _end_doubt(turn, topic_partition)


def _end_doubt(turn: ControllerTurn, topic_partition: TopicPartition) -> None:
    """Elects a leader, or takes those out of the leader's ISR that may lack the end of their logs."""
    del turn.state.in_doubt[topic_partition]
    image = turn.state.image.partition(topic_partition)
    if image is None or not image.has_state or topic_partition.topic in turn.state.deleting:
        turn.state.doubts.pop(topic_partition, None)
        return
    if image.is_reassigning:
        # Who leads at its end could not be said before.
        turn.moving[topic_partition] = None
    if image.leader == NO_LEADER:
        elect_offline(turn, [(topic_partition, image)])
        return
    online = online_replicas(turn, topic_partition, image)
    isr = complete_members(turn, topic_partition, [id for id in image.isr if id in online])
    turn.state.doubts.pop(topic_partition, None)
    if image.leader in isr and len(isr) < len(image.isr):
        turn.write_state(topic_partition, image.leader, isr)
        turn.tell.partition(topic_partition)


def fail_replicas(turn: ControllerTurn, event: ReplicasFailed) -> None:
    """A broker said that these replicas are on a failed log directory: to the rest of the cluster they are gone.

    One that is not there any more is left out: a later one of the same partition may lie elsewhere.
    """
    if event.broker_id not in turn.state.image.brokers:
        return
    failed = turn.state.failed_replicas.setdefault(event.broker_id, set())
    assigned = [each for each in dict.fromkeys(event.partitions) if _has_replica(turn, event.broker_id, each)]
    new = [each for each in assigned if each not in failed]
    failed.update(new)
    remove_replicas(turn, {event.broker_id: new})


def _has_replica(turn: ControllerTurn, broker_id: BrokerId, topic_partition: TopicPartition) -> bool:
    image = turn.state.image.partition(topic_partition)
    return image is not None and broker_id in image.replicas


def lead_elsewhere(turn: ControllerTurn, event: ReplicasPostponed) -> None:
    """A broker cannot lead yet, and tries again by itself, or refuses to: another member of the ISR leads, if one can.

    Nothing is remembered of it: the replica leaves that ISR, and comes back as any follower does. Where no other can
    lead, the broker is waited for.
    """
    led = []
    for topic_partition in event.partitions:
        image = turn.state.image.partition(topic_partition)
        if image is not None and image.leader == event.broker_id:
            isr = [id for id in successors(turn, topic_partition, image.isr) if id != event.broker_id]
            if choose_leader(image.replicas, isr, online_replicas(turn, topic_partition, image)) is not None:
                led.append(topic_partition)
    remove_replicas(turn, {event.broker_id: led})


def check_broker_epoch(turn: ControllerTurn, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
    """Refuses what a broker asked before it was registered anew."""
    registration = turn.state.image.brokers.get(broker_id)
    if registration is None or registration.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} with epoch {broker_epoch} is not registered"
            + ("" if registration is None else f", its epoch is {registration.epoch}"),
        )


def shut_down(turn: ControllerTurn, request: ControlledShutdown) -> list[TopicPartition]:
    """Moves leaderships away from a broker that wants to leave, then takes it out of the ISRs that others lead.

    It is not live any more to elections and ISRs, though it still serves what it leads. Asked again, it is tried again.
    Returns what it still leads, for no other member of the ISR is live. A partition without further replicas is left
    alone: there is no other replica to hand it to.
    """
    check_broker_epoch(turn, request.broker_id, request.broker_epoch)
    leaving, state = request.broker_id, turn.state
    state.shutting_down[leaving] = None
    held = [
        (topic_partition, image)
        for topic_partition, image in state.partitions_on(leaving)
        if image.has_state and len(image.replicas) > 1 and topic_partition.topic not in state.deleting
    ]
    remaining = []
    for topic_partition, image in [item for item in held if item[1].leader == leaving]:
        isr = [id for id in successors(turn, topic_partition, image.isr) if id not in state.shutting_down]
        successor = choose_leader(image.replicas, isr, online_replicas(turn, topic_partition, image))
        if successor is None:
            remaining.append(topic_partition)
        else:
            turn.write_state(topic_partition, successor, isr)
            turn.tell.partition(topic_partition)
            # It is not to follow for a moment: the new leader would wish it back into the ISR, and wait for it.
            turn.tell.stop(leaving, topic_partition, delete=False)
    for topic_partition, image in [item for item in held if item[1].leader != leaving]:
        turn.tell.stop(leaving, topic_partition, delete=False)
        if image.leader == NO_LEADER or topic_partition in state.in_doubt:
            # It may have what no other member has: it is waited for as if it had died (`remove_replicas`).
            continue
        isr = [id for id in image.isr if id != leaving]
        if leaving in image.isr and isr:
            turn.write_state(topic_partition, image.leader, isr)
            turn.tell.partition(topic_partition)
    return remaining
