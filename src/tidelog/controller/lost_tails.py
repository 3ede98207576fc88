"""Elections after a power cut of all: members of the ISR that may each lack the tail of the log.

    all members stop, their page caches are gone: of what was not flushed each disk has kept some beginning
    0 is back: log end 70  ---+
    1 is back: log end 95  ---+--> 2 is waited for, isr.return.wait.ms at most --> 1 leads, and the others get its tail

A broker that stopped uncleanly, and whose machine was booted anew since, says so before it registers
(`tidelog.metadata.replica_marks`). Where a live member of the ISR is no such broker it has all that was committed, and
leads at once. Else the election waits until all members are back, or long enough, and takes the log that has most.
A replica of such a broker that is known to have lost records has lost its tail as the others may have: it takes part
in the comparison where one that is not known to have lost any could lead.

Machines may boot faster than sessions end. Then the first broker back finds the others registered still, and seems to
have been away alone. So the first controller after that puts ISRs in doubt, also of partitions of which the returned
broker has no replica (`put_in_doubt`): it leaves an ISR as it is until another member answers, which mostly takes no
time, or until those sessions have ended. A leader that lives leads on meanwhile, and only an unclean election gives the
partition another one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tidelog.controller import log_ends
from tidelog.controller.events import MembersDue, SessionsProven
from tidelog.controller.state import Doubt
from tidelog.controller.turn import ControllerTurn
from tidelog.metadata.image import PartitionImage
from tidelog.model.identifiers import BrokerEpoch, BrokerId, TopicPartition

logger = logging.getLogger(__name__)


def may_lack_tail(
    turn: ControllerTurn, topic_partition: TopicPartition, replicas: Sequence[BrokerId]
) -> list[BrokerId]:
    """Those of some replicas that may lack the end of their log, or do, and nothing else of it."""
    booted, damaged = turn.state.booted_anew(topic_partition), turn.state.damaged_replicas(topic_partition)
    return [id for id in replicas if id in booted and not (id in damaged and damaged[id].has_hole)]


def complete_members(
    turn: ControllerTurn, topic_partition: TopicPartition, members: Sequence[BrokerId]
) -> list[BrokerId]:
    """Those of some members of an ISR that have all that was committed, as far as is known.

    After a doubt, members that stayed come before those that were away, and those that were away before it before those
    that were away meanwhile, as after any other absence.
    """
    state = turn.state
    booted = state.booted_anew(topic_partition)
    complete = [id for id in state.whole_replicas(topic_partition, members) if id not in booted]
    doubt = state.doubts.get(topic_partition)
    if doubt is None:
        return complete
    now = _registered(turn)
    present = [id for id in complete if id in doubt.registered and doubt.registered[id] == now.get(id)]
    return [id for id in present if id in doubt.seemed_to_stay] or present or complete


def successors(turn: ControllerTurn, topic_partition: TopicPartition, members: Sequence[BrokerId]) -> list[BrokerId]:
    """Those of some members of an ISR that may lead instead of a leader that lives: in a doubt, those that stayed."""
    if topic_partition in turn.state.in_doubt:
        return complete_members(turn, topic_partition, members)
    return turn.state.whole_replicas(topic_partition, members)


def _registered(turn: ControllerTurn) -> dict[BrokerId, BrokerEpoch]:
    return {id: registration.epoch for id, registration in turn.state.image.brokers.items()}


def put_in_doubt(turn: ControllerTurn, topic_partition: TopicPartition, others: Sequence[BrokerId]) -> None:
    """Leaves an ISR as it is until one of `others` has answered, or the sessions of dead brokers have ended."""
    timeout_ms = turn.settings.session_timeout_ms
    turn.state.in_doubt[topic_partition] = turn.now_ms + timeout_ms
    booted = tuple([id for id in turn.state.marks.booted_anew if id not in others])
    turn.state.doubts[topic_partition] = Doubt(booted, tuple(others), _registered(turn))
    turn.set_timer(timeout_ms, SessionsProven(turn.now_ms + timeout_ms))
    log_ends.ask(turn, topic_partition, others)


def awaits_members(
    turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage, online: Sequence[BrokerId]
) -> bool:
    """Whether the election of a leaderless partition, none of whose live members is complete, is to wait for others."""
    present = may_lack_tail(turn, topic_partition, [id for id in image.isr if id in online])
    away = [id for id in image.isr if id not in turn.state.image.brokers]
    wait_ms = turn.settings.isr_return_wait_ms
    if not present:
        # The wait begins anew with the next member that is back.
        turn.state.members_due.pop(topic_partition, None)
    if not present or not away or not wait_ms:
        return False
    log_ends.ask(turn, topic_partition, present)
    due_ms = turn.state.members_due.get(topic_partition)
    if due_ms is None:
        due_ms = turn.state.members_due[topic_partition] = turn.now_ms + wait_ms
        turn.set_timer(wait_ms, MembersDue(due_ms))
        logger.warning(
            "election waits for members that are away: partition=%s isr=%s away=%s wait_ms=%d: the machines of all "
            "others were booted anew after an unclean stop, and any of them may lack the end of its log",
            topic_partition,
            list(image.isr),
            away,
            wait_ms,
        )
    return turn.now_ms < due_ms


def members_to_compare(
    turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage, online: Sequence[BrokerId]
) -> list[BrokerId]:
    """The live members of the ISR that may lack their tail; none where each of them is known to have lost records."""
    present = may_lack_tail(turn, topic_partition, [id for id in image.isr if id in online])
    return present if turn.state.whole_replicas(topic_partition, present) else []


def choose_by_log(
    turn: ControllerTurn, topic_partition: TopicPartition, image: PartitionImage, among: Sequence[BrokerId]
) -> tuple[BrokerId, list[BrokerId]]:
    """The one of some members of the ISR whose log has most, and the new ISR: those that have as much."""
    ends = log_ends.known_ends(turn, topic_partition, image, among)
    leader = max((id for id in image.replicas if id in among), key=ends.__getitem__)
    equals = [id for id in turn.state.whole_replicas(topic_partition, among) if ends[id] == ends[leader]]
    if len(equals) < len(image.isr):
        logger.warning(
            "leader elected by the ends of logs: partition=%s leader=%d log_ends=%s away=%s: machines were booted anew "
            "after an unclean stop, and what none of these logs has is lost",
            topic_partition,
            leader,
            {id: f"{end} in epoch {epoch}" for id, (epoch, end) in ends.items()},
            [id for id in image.isr if id not in among],
        )
    return leader, equals if leader in equals else [leader]
