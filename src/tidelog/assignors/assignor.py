"""What an assignor is told and what it answers.

The member that leads a group (or, since KIP-848, the broker) knows every member's subscription and every topic's
partitions, and asks an assignor for the assignment. A user's own is any class with a name and one method:

    class OneForAll:
        name = "one-for-all"

        def assign(self, members, topics):
            every = tuple(TopicPartition(name, p) for name, topic in topics.items() for p in range(topic.partitions))
            return {member: Assignment(every if member == min(members) else ()) for member in members}

It must be pure: the same question gets the same answer, whichever member is asked. It may also have
`cooperative = True` and `user_data(owned, generation)`; `is_cooperative` and `user_data_of` say what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from tidelog.assignors.steps import Pace, Steps, at_once, order_of
from tidelog.model.identifiers import TopicId, TopicPartition

MemberId = NewType("MemberId", str)
"""The name that the coordinator gave a member; a member that restarts gets another one."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one member wants and has, as it told when it joined.

    `topics` are names; some may not exist. `owned` is what it says it owns, from the assignment of `generation` (None:
    it never had one, or doesn't tell). `instance_id` is a static member's lasting name (KIP-345), `rack` where it runs
    (KIP-881), `user_data` its assignor's own bytes.
    """

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int | None = None
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """A topic's partitions 0 .. `partitions` - 1, and the racks of each one's replicas; None where no rack is known.

    `topic_id` decides among equals where the broker assigns (KIP-848); clients need not know it.
    """

    partitions: int
    replica_racks: tuple[frozenset[str], ...] | None = None
    topic_id: TopicId | None = None

    def racks_of(self, partition: int) -> frozenset[str]:
        """Racks that hold a replica of the partition, in sync or not."""
        return frozenset() if self.replica_racks is None else self.replica_racks[partition]


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one member gets, and bytes for its assignor."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


class Assignor(Protocol):
    """Gives a group's partitions to its members."""

    @property
    def name(self) -> str:
        """By which members agree on an assignor: what partition.assignment.strategy's classes call themselves."""
        ...

    def assign(
        self, members: Mapping[MemberId, Subscription], topics: Mapping[str, TopicLayout]
    ) -> Mapping[MemberId, Assignment]:
        """An assignment for every one of `members`; `topics` are those that exist, others may be subscribed to."""
        ...


class SteppingAssignor(Assignor, Protocol):
    """One that the broker runs (KIP-848), which has other things to do meanwhile."""

    def steps(
        self, members: Mapping[MemberId, Subscription], topics: Mapping[str, TopicLayout]
    ) -> Steps[dict[MemberId, Assignment]]:
        """As `assign`, with a rest between any two steps."""
        ...


def is_cooperative(assignor: Assignor) -> bool:
    """Whether members keep what they own during a rebalance, since `assign` withholds what changes hands (KIP-429).

    With any other assignor a member gives everything up before it joins again.
    """
    return bool(getattr(assignor, "cooperative", False))


def user_data_of(assignor: Assignor, owned: Sequence[TopicPartition], generation: int | None) -> bytes | None:
    """The assignor's own bytes for a member's next subscription; `owned` came with the assignment of `generation`."""
    make = getattr(assignor, "user_data", None)
    data: bytes | None = None if make is None else make(owned, generation)
    return data


def by_text(text: str) -> bytes:
    """Sort key of names: UTF-16 code units, as Java compares strings."""
    return text.encode("utf-16-be", "surrogatepass")


def in_order(members: Mapping[MemberId, Subscription]) -> list[MemberId]:
    """Static members by instance id, then the others by member id: a static one keeps its place over restarts."""
    return at_once(in_order_steps(members))


def in_order_steps(members: Mapping[MemberId, Subscription]) -> Steps[list[MemberId]]:
    """`in_order`, in steps."""
    pace = Pace()
    keys: list[bytes] = []
    for member, subscription in members.items():
        instance = subscription.instance_id
        keys.append(b"\x01" + by_text(member) if instance is None else b"\x00" + by_text(instance))
        if pace.is_over():
            yield
    ids = list(members)
    order = yield from order_of(keys)
    return [ids[index] for index in order]


def subscribed_topics(
    members: Mapping[MemberId, Subscription], topics: Mapping[str, TopicLayout]
) -> dict[str, TopicLayout]:
    """The topics that exist, have partitions and are wanted by a member, by name in order."""
    # Most members have the very same set, which is looked at once.
    wanted = frozenset[str]().union(*{subscription.topics for subscription in members.values()})
    names = (name for name in wanted if name in topics and topics[name].partitions > 0)
    return {name: topics[name] for name in sorted(names, key=by_text)}


def assignments(
    members: Mapping[MemberId, Subscription], given: Mapping[MemberId, Sequence[TopicPartition]]
) -> dict[MemberId, Assignment]:
    """An answer out of partitions by member, each member's in order."""
    return at_once(assignments_steps(members, given))


def assignments_steps(
    members: Mapping[MemberId, Subscription], given: Mapping[MemberId, Sequence[TopicPartition]]
) -> Steps[dict[MemberId, Assignment]]:
    """`assignments`, in steps."""
    pace = Pace()
    answer: dict[MemberId, Assignment] = {}
    for member in members:
        partitions = given.get(member, ())
        answer[member] = Assignment(tuple(sorted(partitions)))
        if pace.is_over(len(partitions) + 1):
            yield
    return answer
