"""Groups as the tests write them: members and topics in a line, assignments as sets of names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tidelog.assignors.assignor import Assignment, Assignor, MemberId, Subscription, TopicLayout
from tidelog.assignors.ownership import encode
from tidelog.model.identifiers import TopicPartition

Members = dict[MemberId, Subscription]


def partitions(text: str) -> tuple[TopicPartition, ...]:
    """`t0p0 t0p1`, as the documents write partitions."""
    found = []
    for word in text.split():
        topic, _, partition = word.rpartition("p")
        found.append(TopicPartition(topic, int(partition)))
    return tuple(found)


def members(**topics: str) -> Members:
    """`c0="t0 t1"`: what each member subscribes to."""
    return {MemberId(name): Subscription(frozenset(wanted.split())) for name, wanted in topics.items()}


def topics(**counts: int) -> dict[str, TopicLayout]:
    return {name: TopicLayout(count) for name, count in counts.items()}


def text(outcome: Mapping[MemberId, Assignment]) -> dict[str, str]:
    """{member: "t0p0 t0p1"}, each member's in order."""
    return {
        member: " ".join(f"{topic}p{partition}" for topic, partition in sorted(assignment.partitions))
        for member, assignment in outcome.items()
    }


def owning(group: Members, owned: Mapping[str, tuple[TopicPartition, ...]], generation: int = 1) -> Members:
    """The group with these claims, told both ways: in the subscription and in the sticky assignor's user data."""
    return {
        member: dataclasses.replace(
            subscription,
            owned=owned[member],
            generation=generation,
            user_data=encode(owned[member], generation),
        )
        if member in owned
        else subscription
        for member, subscription in group.items()
    }


def after(group: Members, outcome: Mapping[MemberId, Assignment], generation: int = 1) -> Members:
    """The group's next rebalance: those that are still in it own what they were given."""
    return owning(group, {member: assignment.partitions for member, assignment in outcome.items()}, generation)


def assigned(assignor: Assignor, group: Members, layout: Mapping[str, TopicLayout]) -> dict[str, str]:
    return text(assignor.assign(group, layout))
