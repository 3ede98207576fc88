"""One step of a member from what it holds to what it is to have: revoke first, then wait for others, then take.

    STABLE --new target--> UNREVOKED_PARTITIONS --gave up--> UNRELEASED_PARTITIONS --others gave up--> STABLE

A partition is given to a member only while no member holds it; that keeps it from having two owners, whatever is lost
on the way. Partitions that are to be revoked count as held until the member says, by what it owns, that it gave them
up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidelog.coordinator.groups.consumer.member import (
    NO_PARTITIONS,
    ConsumerMember,
    HeldPartitions,
    MemberState,
    Partitions,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId

IsFree = Callable[[TopicId, int], bool]
"""Whether no member holds the partition."""


def reconcile(
    member: ConsumerMember, target_epoch: int, target: Partitions, is_free: IsFree, owned: Partitions | None
) -> ConsumerMember:
    """The member after its next step; itself when it cannot go on. `owned` is what it says it has; None: not told.

    Raises KafkaError FENCED_MEMBER_EPOCH where the member's state is not known and it still has partitions.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                return member
            epoch = member.epoch
        case MemberState.UNREVOKED_PARTITIONS:
            if _owns_any(owned, member.pending_revocation):
                return member
            # What is assigned now belongs to the epoch after; the target may have moved on since.
            epoch = member.epoch + 1
        case MemberState.UNRELEASED_PARTITIONS:
            epoch = member.epoch
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The state of the member is not known to this release: it must give up its partitions and rejoin.",
                )
            epoch = target_epoch
    return _next(member, epoch, target_epoch, target, is_free, owned)


def _next(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    is_free: IsFree,
    owned: Partitions | None,
) -> ConsumerMember:
    kept: dict[TopicId, dict[int, int]] = {}
    to_revoke: dict[TopicId, dict[int, int]] = {}
    for topic_id, held in member.assigned.items():
        wanted = target.get(topic_id, frozenset())
        for partition, since in held.items():
            (kept if partition in wanted else to_revoke).setdefault(topic_id, {})[partition] = since
    if to_revoke and _owns_any(owned, to_revoke):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, epoch, kept, to_revoke)
    is_complete = True
    for topic_id, wanted in target.items():
        has = kept.get(topic_id, {})
        for partition in sorted(wanted):
            if partition in has:
                continue
            # What the member itself gives up in this very step is free only with the next one, as with Kafka.
            if is_free(topic_id, partition):
                kept.setdefault(topic_id, {})[partition] = target_epoch
            else:
                is_complete = False
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
    return _moved(member, state, target_epoch, kept, {})


def _moved(
    member: ConsumerMember, state: MemberState, epoch: int, assigned: HeldPartitions, to_revoke: HeldPartitions
) -> ConsumerMember:
    previous = member.previous_epoch if epoch == member.epoch else member.epoch
    return replace(
        member,
        state=state,
        epoch=epoch,
        previous_epoch=previous,
        assigned=assigned,
        pending_revocation=to_revoke,
    )


def _owns_any(owned: Partitions | None, held: HeldPartitions) -> bool:
    """Whether the member still has some of `held`; what it does not tell counts as had."""
    if owned is None:
        return True
    return any(not owned.get(topic_id, frozenset()).isdisjoint(partitions) for topic_id, partitions in held.items())


def is_waiting_for_others(member: ConsumerMember, target: Partitions, is_free: IsFree) -> bool:
    """Whether some of its target is still held by others; it need not ask before."""
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    return any(
        partition not in member.assigned.get(topic_id, NO_PARTITIONS) and not is_free(topic_id, partition)
        for topic_id, wanted in target.items()
        for partition in wanted
    )
