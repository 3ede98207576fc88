"""Rounds of the assignors' vectors: the question in our types, the answer in theirs, and what can be measured of it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from tidelog.assignors.assignor import Assignment, Assignor, MemberId, Subscription, TopicLayout
from tidelog.model.identifiers import TopicId, TopicPartition

MORE_IS_BETTER = frozenset({"assigned", "min", "rack_matches"})


def check_round(assignor: Assignor, given: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same assignment where Kafka has but one; elsewhere one that is no worse than Kafka's worst of several.

    Two things are not asked for. Kafka's sticky assignors may give a member back what it had some generations ago of a
    topic that it no longer wants; its consumer refuses that and joins again, and again. And what is near whom in an
    assignment by the uniform one is chance: it looks at no racks.
    """
    members, topics = read_members(given["members"]), read_topics(given["topics"])
    outcome = assignor.assign(members, topics)
    unwanted = any(set(each) - members[MemberId(member)].topics for member, each in expected["assignment"].items())
    found = properties(outcome, members, topics)
    if unwanted:
        assert found["assigned"] == expected["properties"]["assigned"]
        return
    if expected["stable"]:
        assert by_topic(outcome) == expected["assignment"], given["what"]
    for name, value in expected["properties"].items():
        if name == "rack_matches" and assignor.name == "uniform":
            continue
        least, greatest = expected.get("ranges", {}).get(name, (value, value))
        no_worse = found[name] >= least if name in MORE_IS_BETTER else found[name] <= greatest
        assert no_worse, f"{given['what']} {name}: {found[name]}, Kafka has {least} to {greatest}"


def read_members(members: list[dict[str, Any]]) -> dict[MemberId, Subscription]:
    return {
        MemberId(member["id"]): Subscription(
            topics=frozenset(member["topics"]),
            owned=tuple(TopicPartition(name, p) for name, each in member.get("owned", {}).items() for p in each),
            generation=member.get("generation"),
            instance_id=member.get("instance_id"),
            rack=member.get("rack"),
            user_data=bytes.fromhex(member["user_data"]) if member.get("user_data") is not None else None,
        )
        for member in members
    }


def read_topics(topics: dict[str, dict[str, Any]]) -> dict[str, TopicLayout]:
    return {
        name: TopicLayout(
            topic["partitions"],
            None if topic["replica_racks"] is None else tuple(frozenset(racks) for racks in topic["replica_racks"]),
            _topic_id(topic["id"]) if "id" in topic else None,
        )
        for name, topic in topics.items()
    }


def _topic_id(text: str) -> TopicId:
    """Kafka writes ids in URL-safe base64 without its padding."""
    return TopicId(base64.urlsafe_b64decode(text + "=="))


def by_topic(outcome: Mapping[MemberId, Assignment]) -> dict[str, dict[str, list[int]]]:
    """{member: {topic: [partition]}}."""
    found: dict[str, dict[str, list[int]]] = {}
    for member, assignment in outcome.items():
        topics: dict[str, list[int]] = found.setdefault(member, {})
        for topic, partition in sorted(assignment.partitions):
            topics.setdefault(topic, []).append(partition)
    return found


def properties(
    outcome: Mapping[MemberId, Assignment],
    members: Mapping[MemberId, Subscription],
    topics: Mapping[str, TopicLayout],
) -> dict[str, int]:
    """What README.md tells of `properties`."""
    loads = [len(assignment.partitions) for assignment in outcome.values()]
    claimants: dict[TopicPartition, set[MemberId]] = {}
    for member, subscription in members.items():
        for each in subscription.owned:
            if each.topic in topics and each.partition < topics[each.topic].partitions:
                claimants.setdefault(each, set()).add(member)
    owner = {each: member for member, assignment in outcome.items() for each in assignment.partitions}
    assert all(each.topic in members[member].topics for each, member in owner.items()), "unwanted topics"
    assert len(owner) == sum(loads), "two owners"
    return {
        "assigned": sum(loads),
        "min": min(loads),
        "max": max(loads),
        "balance_score": sum(abs(one - other) for at, one in enumerate(loads) for other in loads[at + 1 :]),
        "claimed": len(claimants),
        "moved": sum(owner.get(each) not in claiming for each, claiming in claimants.items()),
        "rack_matches": sum(members[member].rack in topics[t].racks_of(p) for (t, p), member in owner.items()),
    }
