"""What the leader of a classic group does: run the assignor on all members' subscriptions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from tidelog.assignors.assignor import Assignment, Assignor, MemberId, Subscription, TopicLayout
from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, InvalidResponse
from tidelog.client.member_data import InvalidMemberData, decode_subscription, encode_assignment
from tidelog.client.views import Broker, TopicView
from tidelog.model.identifiers import TopicPartition


class InvalidAssignment(ClientError):
    """A user's own assignor gave out what does not exist, to a member that does not exist, or twice."""


class Assigned(NamedTuple):
    """What a leader says to its group, and what it rests on."""

    assignments: dict[str, bytes]
    """[member id] -> its assignment as bytes."""
    laid_out: dict[str, int]
    """[topic that a member wants] -> how many partitions it had; 0: it was not known."""


async def assign(cluster: Cluster, assignor: Assignor, members: Iterable[Any]) -> Assigned:
    """What the members that a JoinGroup response lists are to have."""
    subscriptions: dict[MemberId, Subscription] = {}
    for member in members:
        try:
            subscription = decode_subscription(bytes(member.metadata), member.group_instance_id)
        except InvalidMemberData as error:
            raise InvalidResponse(f"member {member.member_id} joined with what cannot be read: {error}") from error
        subscriptions[MemberId(member.member_id)] = subscription
    wanted = frozenset[str]().union(*(subscription.topics for subscription in subscriptions.values()))
    routing = cluster.routing
    # Others may want topics of which we know nothing, and new partitions shall be seen.
    await cluster.run(routing.refresh(sorted(wanted), routing.deadline()))
    layouts = {name: layout(routing.topics[name], routing.brokers) for name in wanted if name in routing.topics}
    given = checked(assignor, assignor.assign(subscriptions, layouts), subscriptions, layouts)
    return Assigned(
        {str(member): encode_assignment(given.get(member, Assignment())) for member in subscriptions},
        {name: layouts[name].partitions if name in layouts else 0 for name in sorted(wanted)},
    )


def layout(view: TopicView, brokers: Mapping[int, Broker]) -> TopicLayout:
    """A topic as assignors see it."""
    racks = [
        frozenset(rack for replica in view.partitions[partition].replicas if (rack := _rack(brokers, replica)))
        for partition in sorted(view.partitions)
    ]
    return TopicLayout(len(view.partitions), tuple(racks) if any(racks) else None)


def _rack(brokers: Mapping[int, Broker], broker_id: int) -> str | None:
    broker = brokers.get(broker_id)
    return broker.rack if broker else None


def checked(
    assignor: Assignor,
    given: Mapping[MemberId, Assignment],
    members: Collection[MemberId],
    topics: Mapping[str, TopicLayout],
) -> Mapping[MemberId, Assignment]:
    """The assignor's answer, if it can be: its members are members, each partition exists and has one owner."""
    owner: dict[TopicPartition, MemberId] = {}
    for member, assignment in given.items():
        if member not in members:
            raise InvalidAssignment(f"assignor '{assignor.name}' assigns to '{member}', which is not a member")
        for topic_partition in assignment.partitions:
            known = topics.get(topic_partition.topic)
            if known is None or not 0 <= topic_partition.partition < known.partitions:
                raise InvalidAssignment(f"assignor '{assignor.name}' assigns {topic_partition}, which does not exist")
            if topic_partition in owner:
                raise InvalidAssignment(
                    f"assignor '{assignor.name}' assigns {topic_partition} twice: to '{owner[topic_partition]}' and"
                    f" to '{member}'"
                )
            owner[topic_partition] = member
    return given
