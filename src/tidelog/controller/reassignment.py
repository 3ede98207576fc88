"""Partitions on their way to other brokers: begun, replaced, cancelled, finished (KIP-455); by request or an old plan.

A partition goes from its origin to a target. While it is under way its topic's node says so,

    replicas = target + (origin - target)      adding = what the origin has not      removing = what the target has not

and a new controller continues from it. Kafka 2.8 writes, and so do we:

    begin      1 topic node: all replicas, adding, removing
               2 state: leader epoch + 1, so that every replica is told of all others
    under way  3 state: the ISR grows as the leader proposes it (`isr`)
    finish     4 state: leader epoch + 1; the first live one of the target leads, where the leader is none of it
               5 state: each removed replica leaves the ISR, in the next leader epoch; it is told to delete its files
               6 topic node: the target alone
               7 /admin/reassign_partitions without the partition, or gone with the last one

A partition is finished when its ISR holds the whole target and one of it can lead: all that is committed is there. A
reassignment whose target needs no new replica begins and finishes at once, without 2. A replica that a cancelled or
replaced reassignment was adding is dropped at once, as in 5, unless no other replica is in sync: then it stays, to be
removed later (Kafka drops it, and the records with it).

**Many at once.** Kafka writes a topic's node for every partition. For a large topic that is much more than the
partitions are worth, so that beyond `NODE_ENTRIES_MAX` partitions share the writes of their step: in the same order,
each step of all of them before the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from tidelog.controller.elections import (
    choose_leader,
    create_partitions,
    elect,
    leads_from_now_on,
    online_replicas,
)
from tidelog.controller.events import ReassignmentsRequested
from tidelog.controller.lost_tails import complete_members
from tidelog.controller.requests import (
    AlterReassignments,
    ListReassignments,
    OngoingReassignment,
    ReassignmentOutcome,
    ReassignPartition,
)
from tidelog.controller.state import NodeRead
from tidelog.controller.topic_nodes import TOPIC_NODE_SIZE_MAX, Move, content_of, move_of
from tidelog.controller.turn import ControllerTurn
from tidelog.metadata.image import PartitionImage
from tidelog.metadata.operations import Delete, SetData
from tidelog.metadata.znodes import (
    REASSIGN_PARTITIONS,
    encode_reassignment,
    encode_topic,
    state_path,
    topic_path,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER, BrokerId, TopicPartition

NODE_ENTRIES_MAX: Final = 10_000
"""Partitions named in all the topic nodes and plans that a turn writes, while each partition has writes of its own."""

logger = logging.getLogger(__name__)


def origin_of(image: PartitionImage) -> tuple[BrokerId, ...]:
    """Where a partition comes from, and goes back to when its reassignment is cancelled."""
    return tuple(id for id in image.replicas if id not in image.adding)


def move_to(image: PartitionImage, target: Sequence[BrokerId]) -> Move:
    """From where the partition comes from to `target`, whatever other target it has now.

    If only replicas that the present reassignment adds are in sync, they are not dropped but removed when others are.

    >>> move_to(PartitionImage((1, 2, 3), isr=(1, 2, 3)), (4, 1))
    Move(replicas=(4, 1, 2, 3), adding=(4,), removing=(2, 3))
    """
    origin = origin_of(image)
    if not any(id in target or id in origin for id in image.isr):
        origin += tuple(id for id in image.isr if id in image.adding)
    replicas = tuple(dict.fromkeys([*target, *origin]))
    return Move(
        replicas, tuple(id for id in replicas if id not in origin), tuple(id for id in replicas if id not in target)
    )


# What is asked: by the API, by a node.


def alter_reassignments(turn: ControllerTurn, request: AlterReassignments) -> list[ReassignmentOutcome]:
    """Begins, replaces and cancels reassignments, each partition by itself; of several wishes the last one counts."""
    wishes = {wish.topic_partition: wish for wish in request.partitions}
    moves: dict[TopicPartition, Move] = {}
    refused: dict[TopicPartition, KafkaError] = {}
    for topic_partition, wish in wishes.items():
        try:
            moves[topic_partition] = _wanted(turn, wish, request.allow_replication_factor_change)
        except KafkaError as error:
            refused[topic_partition] = error
    for topic_partition, reason in _take_too_large(turn, moves).items():
        refused[topic_partition] = KafkaError(ErrorCode.POLICY_VIOLATION, reason)
    # The latest wish counts, whichever way it came.
    _drop_from_plan(turn, moves)
    _begin(turn, moves)
    return [
        ReassignmentOutcome(each, refused[each].code, refused[each].message)
        if each in refused
        else ReassignmentOutcome(each)
        for each in wishes
    ]


def list_reassignments(turn: ControllerTurn, request: ListReassignments) -> list[OngoingReassignment]:
    """The reassignments under way."""
    if request.partitions is None:
        known = list(turn.state.image.partitions())
    else:
        asked = [(each, turn.state.image.partition(each)) for each in dict.fromkeys(request.partitions)]
        known = [(each, image) for each, image in asked if image is not None]
    return [
        OngoingReassignment(each, image.replicas, image.adding, image.removing)
        for each, image in known
        if image.is_reassigning and each.topic not in turn.state.deleting
    ]


def adopt_plan(turn: ControllerTurn, event: ReassignmentsRequested) -> None:
    """What an old tool wrote into /admin/reassign_partitions.

    The node stays until all of it is done: tools look at it to see whether something is under way. That it is gone
    cancels nothing. One that cannot be read, or that names no partition, stays where it is, as with Kafka: no tool
    writes another one before it is deleted.
    """
    known = turn.state.plan
    if event.data is None:
        turn.state.replay(Delete(REASSIGN_PARTITIONS))
        return
    turn.state.replay(NodeRead(REASSIGN_PARTITIONS, event.data, event.version, czxid=event.czxid))
    reason = turn.state.malformed.get(REASSIGN_PARTITIONS)
    if reason is not None:
        logger.error("no reassignment: reason=%s: delete the node, or no tool can ask for another one", reason)
        return
    assert turn.state.plan is not None
    if not turn.state.plan:
        logger.error(
            "plan names no partition: path=%s: delete the node, or no tool can ask for another one", REASSIGN_PARTITIONS
        )
    _follow_plan(turn, {each: ids for each, ids in turn.state.plan.items() if (known or {}).get(each) != ids})


def resume(turn: ControllerTurn) -> None:
    """What a new controller does: goes on with the plan, and with what the topics' nodes say is under way."""
    _follow_plan(turn, dict(turn.state.plan or {}))
    planned = turn.state.plan or {}
    under_way = {
        each: move_of(image)
        for each, image in turn.state.image.partitions()
        if image.is_reassigning and each not in planned and each.topic not in turn.state.deleting
    }
    _begin(turn, under_way)


def brokers_came(turn: ControllerTurn, broker_ids: Collection[BrokerId]) -> None:
    """Goes on with what waits for these brokers: they are told, as at the beginning, with the next leader epoch."""
    waiting: dict[TopicPartition, Move] = {}
    for broker_id in broker_ids:
        for topic_partition, image in turn.state.partitions_on(broker_id):
            if (
                image.is_reassigning
                and broker_id not in image.removing
                and topic_partition.topic not in turn.state.deleting
            ):
                waiting[topic_partition] = move_of(image)
    _begin(turn, waiting)


def finish_moves(turn: ControllerTurn) -> None:
    """Finishes what this turn has brought to its target."""
    arrived = [each for each in turn.moving if _has_arrived(turn, each)]
    turn.moving.clear()
    for group in _groups(turn, arrived):
        _finish(turn, group)


def forget_topics(turn: ControllerTurn) -> None:
    """Takes partitions that are gone, or are about to go, out of the plan."""
    if turn.state.plan:
        _drop_from_plan(turn, [each for each in turn.state.plan if not _exists(turn, each)])


def _follow_plan(turn: ControllerTurn, plan: Mapping[TopicPartition, Sequence[BrokerId]]) -> None:
    """Begins what a plan says; what makes no sense is dropped from it. Brokers may be unknown: they are waited for."""
    moves: dict[TopicPartition, Move] = {}
    refused = []
    for topic_partition, target in plan.items():
        reason = "there is no such partition" if not _exists(turn, topic_partition) else _list_fault(target)
        image = turn.state.image.partition(topic_partition)
        if turn.state.has_unreadable_state(topic_partition):
            # It stays in the plan: all is read anew when the node is mended.
            continue
        if reason is not None or image is None:
            logger.error(
                "partition of a plan dropped: path=%s partition=%s-%d reason=%s",
                REASSIGN_PARTITIONS,
                *topic_partition,
                reason,
            )
            refused.append(topic_partition)
        else:
            moves[topic_partition] = move_to(image, target)
    too_large = _take_too_large(turn, moves)
    for reason in dict.fromkeys(too_large.values()):
        logger.error("partitions of a plan dropped: path=%s reason=%s", REASSIGN_PARTITIONS, reason)
    refused += too_large
    _begin(turn, moves)
    _drop_from_plan(turn, refused)


def _wanted(turn: ControllerTurn, wish: ReassignPartition, may_change_replication_factor: bool) -> Move:
    fault = None if wish.replicas is None else _list_fault(wish.replicas)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)
    image = turn.state.image.partition(wish.topic_partition)
    if image is None or not _exists(turn, wish.topic_partition):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if turn.state.has_unreadable_state(wish.topic_partition):
        # Any of its replicas may be the only one in sync.
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"No replica moves until {state_path(*wish.topic_partition)} is mended.",
        )
    if wish.replicas is None:
        return _cancelled(wish.topic_partition, image)
    move = move_to(image, wish.replicas)
    live = turn.state.image.brokers
    if any(id not in live for id in move.adding):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Replica assignment has brokers that are not alive. Replica list: {list(move.adding)}, live broker list: "
            f"{sorted(live)}",
        )
    before = len(move_of(image).target)
    if not may_change_replication_factor and before != len(wish.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {before} to {len(wish.replicas)}",
        )
    return move


def _cancelled(topic_partition: TopicPartition, image: PartitionImage) -> Move:
    if not image.is_reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    origin = origin_of(image)
    if image.has_state and not any(id in origin for id in image.isr):
        # Whether unclean elections are allowed or not: asking for the former replicas as a target loses nothing.
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic_partition.topic}:{topic_partition.partition} because "
            "it would require an unclean leader election.",
        )
    return Move(origin)


def _list_fault(replicas: Sequence[BrokerId]) -> str | None:
    """Why a list cannot be a partition's replicas, in the words of Kafka 2.8; None where it can."""
    if not replicas:
        return "Empty replica list specified in partition reassignment."
    if len(set(replicas)) != len(replicas):
        return f"Duplicate replica ids in partition reassignment replica list: {list(replicas)}"
    if any(id < 0 for id in replicas):
        return f"Invalid broker id in replica list: {list(replicas)}"
    return None


def _take_too_large(turn: ControllerTurn, moves: dict[TopicPartition, Move]) -> dict[TopicPartition, str]:
    """Takes out moves that would make their topic's node larger than the store takes; each with the reason.

    What makes the node no larger stays in, and is left out of the account: the others may well be written before it.
    """
    larger: dict[str, dict[int, Move]] = {}
    for (name, index), move in moves.items():
        if move.size > move_of(_image(turn, TopicPartition(name, index))).size:
            larger.setdefault(name, {})[index] = move
    taken = {}
    for name, changed in larger.items():
        size = len(encode_topic(content_of(turn.state.image.topics[name], changed)))
        if size > TOPIC_NODE_SIZE_MAX:
            reason = (
                f"With {len(changed)} more of its partitions on their way {topic_path(name)} in the metadata store "
                f"would hold {size} bytes, and it takes {TOPIC_NODE_SIZE_MAX}. Move fewer partitions at a time."
            )
            for index in changed:
                del moves[TopicPartition(name, index)]
                taken[TopicPartition(name, index)] = reason
    return taken


def _exists(turn: ControllerTurn, topic_partition: TopicPartition) -> bool:
    known = turn.state.image.partition(topic_partition) is not None
    return known and topic_partition.topic not in turn.state.deleting


# The steps.


def _begin(turn: ControllerTurn, moves: Mapping[TopicPartition, Move]) -> None:
    """Steps 1 and 2, or all of them for what is at its target already; also for what was begun before."""
    for group in _groups(turn, moves):
        for topic_partition in group:
            before, move = move_of(_image(turn, topic_partition)), moves[topic_partition]
            if before != move:
                logger.info(
                    "reassigned: partition=%s replicas=%s adding=%s removing=%s before=%s",
                    topic_partition,
                    list(move.replicas),
                    list(move.adding),
                    list(move.removing),
                    list(before.replicas),
                )
        dropped = {each: _dropped(turn, each, moves[each]) for each in group}
        _write_topics(turn, {each: moves[each] for each in group if move_of(_image(turn, each)) != moves[each]})
        new = [each for each in group if not _image(turn, each).has_state]
        create_partitions(turn, [each for each in new if not turn.state.has_unreadable_state(each)])
        arrived = []
        for topic_partition in group:
            for broker_id in dropped[topic_partition]:
                _remove(turn, topic_partition, broker_id)
            if not _image(turn, topic_partition).is_reassigning or _has_arrived(turn, topic_partition):
                arrived.append(topic_partition)
            else:
                _announce(turn, topic_partition)
        _finish(turn, arrived)


def _announce(turn: ControllerTurn, topic_partition: TopicPartition) -> None:
    """Step 2: with another leader epoch every replica hears of it, and none acts upon what was before.

    Where the leader was dropped just now, another one is elected: nothing else would bring that about.
    """
    image = _image(turn, topic_partition)
    if not image.has_state:
        # No replica is live: the first one that comes will lead.
        return
    leader = image.leader
    if leader == NO_LEADER:
        leader = _next_leader(turn, topic_partition, image.replicas)
    _lead(turn, topic_partition, leader)
    # What it cannot have been by now it will be by its leader's next proposal.
    turn.moving.pop(topic_partition, None)
    turn.tell.partition(topic_partition)
    if leader == NO_LEADER:
        elect(turn, topic_partition, _image(turn, topic_partition), unclean=False)
    for broker_id in image.adding:
        if broker_id not in image.isr:
            turn.tell.new_replica(broker_id, topic_partition)


def _has_arrived(turn: ControllerTurn, topic_partition: TopicPartition) -> bool:
    """Whether a partition that is reassigned has its whole target in sync, and one of it can lead."""
    image = turn.state.image.partition(topic_partition)
    if image is None or not image.is_reassigning or not image.has_state or not _exists(turn, topic_partition):
        return False
    target = move_of(image).target
    return set(target) <= set(image.isr) and _successor(turn, topic_partition, target) != NO_LEADER


def _successor(turn: ControllerTurn, topic_partition: TopicPartition, target: Sequence[BrokerId]) -> BrokerId:
    """The leader at the end: the present one, if it is of the target, else the first of it that is live and in sync."""
    image = _image(turn, topic_partition)
    if image.leader in target and image.leader in turn.state.image.brokers:
        return image.leader
    return _next_leader(turn, topic_partition, target)


def _next_leader(turn: ControllerTurn, topic_partition: TopicPartition, among: Sequence[BrokerId]) -> BrokerId:
    """The first of some replicas that is live and has all that was committed; -1 where that is known of none.

    A partition without a leader may be waiting for members of its ISR that have more (`tidelog.controller.lost_tails`).
    """
    image = _image(turn, topic_partition)
    if topic_partition in turn.state.in_doubt:
        return NO_LEADER
    members = turn.state.whole_replicas(topic_partition, image.isr)
    if image.leader == NO_LEADER:
        members = complete_members(turn, topic_partition, members)
    leader = choose_leader(among, members, online_replicas(turn, topic_partition, image))
    return NO_LEADER if leader is None else leader


def _lead(turn: ControllerTurn, topic_partition: TopicPartition, leader: BrokerId) -> None:
    """Writes the next leader epoch, and who leads in it."""
    image = _image(turn, topic_partition)
    turn.write_state(topic_partition, leader, image.isr)
    if image.leader == NO_LEADER != leader:
        leads_from_now_on(turn, topic_partition, leader)


def _finish(turn: ControllerTurn, group: Sequence[TopicPartition]) -> None:
    """Steps 4 to 7."""
    moves = {}
    for topic_partition in group:
        image = _image(turn, topic_partition)
        moves[topic_partition] = Move(move_of(image).target)
        if image.has_state:
            _lead(turn, topic_partition, _successor(turn, topic_partition, moves[topic_partition].target))
        for broker_id in image.removing:
            _remove(turn, topic_partition, broker_id)
        turn.moving.pop(topic_partition, None)
    _write_topics(turn, moves)
    for topic_partition in moves:
        turn.tell.partition(topic_partition)
        image = _image(turn, topic_partition)
        logger.info(
            "reassignment done: partition=%s replicas=%s leader=%d leader_epoch=%d",
            topic_partition,
            list(image.replicas),
            image.leader,
            image.leader_epoch,
        )
    planned = turn.state.plan or {}
    _drop_from_plan(turn, [each for each, move in moves.items() if planned.get(each) == move.replicas])


def _dropped(turn: ControllerTurn, topic_partition: TopicPartition, move: Move) -> list[BrokerId]:
    """Replicas that were being added, and are not wanted any more."""
    return [id for id in _image(turn, topic_partition).replicas if id not in move.replicas]


def _remove(turn: ControllerTurn, topic_partition: TopicPartition, broker_id: BrokerId) -> None:
    """Step 5 for one replica. Its broker is not waited for: one that is away has nothing to say in the partition."""
    image = _image(turn, topic_partition)
    isr = [id for id in image.isr if id != broker_id]
    if broker_id in image.isr and isr:
        turn.write_state(topic_partition, NO_LEADER if image.leader == broker_id else image.leader, isr)
    if broker_id in turn.state.image.brokers:
        turn.tell.stop(broker_id, topic_partition, delete=True)


def _write_topics(turn: ControllerTurn, moves: Mapping[TopicPartition, Move]) -> None:
    """A topic's node with some of its partitions changed, one write a topic."""
    by_topic: dict[str, dict[int, Move]] = {}
    for (name, partition), move in moves.items():
        by_topic.setdefault(name, {})[partition] = move
    for name, changed in by_topic.items():
        topic = turn.state.image.topics[name]
        turn.write_topic(name, content_of(topic, changed))


def _drop_from_plan(turn: ControllerTurn, done: Collection[TopicPartition]) -> None:
    """Step 7: /admin/reassign_partitions without these; the last ones take the node with them."""
    plan = turn.state.plan
    if not plan or not any(each in plan for each in done):
        return
    finished = set(done)
    left = {each: replicas for each, replicas in plan.items() if each not in finished}
    node = turn.state.plan_node
    if left:
        turn.write(SetData(REASSIGN_PARTITIONS, encode_reassignment(left), node.version))
    else:
        turn.write(Delete(REASSIGN_PARTITIONS, node.version, node.czxid))


def _groups(turn: ControllerTurn, partitions: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """One partition a group, as Kafka does it, or all in one where that would be too much to write."""
    each = list(partitions)
    topics, plan_size = turn.state.image.topics, len(turn.state.plan or ())
    if sum(len(topics[name].partitions) + plan_size for name, _ in each) <= NODE_ENTRIES_MAX:
        yield from ([one] for one in each)
    elif each:
        yield each


def _image(turn: ControllerTurn, topic_partition: TopicPartition) -> PartitionImage:
    return turn.state.image.topics[topic_partition.topic].partitions[topic_partition.partition]
