"""The simple assignor of share groups: each partition has a member, each member a partition, portions are even."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples

from tidelog.coordinator.groups.share.assignment import assign
from tidelog.model.identifiers import TopicId

MEMBERS = [f"m{number}" for number in range(9)]
TOPIC = TopicId(bytes(15) + b"t")


@settings(max_examples=examples(1000), deadline=None)
@given(
    st.integers(1, 12),
    st.sets(st.sampled_from(MEMBERS), min_size=1),
    st.dictionaries(st.sampled_from(MEMBERS), st.frozensets(st.integers(0, 15), min_size=1)),
)
def test_portions_are_even_and_nobody_goes_without(
    partitions: int, members: set[str], former: dict[str, frozenset[int]]
) -> None:
    assignable = {TOPIC: frozenset(range(partitions))}
    subscriptions = {member: {TOPIC} for member in members}
    given_out = assign(subscriptions, assignable, {member: {TOPIC: each} for member, each in former.items()})
    assert given_out.keys() == members
    held = {member: topics[TOPIC] for member, topics in given_out.items()}
    users = [sum(partition in each for each in held.values()) for partition in range(partitions)]
    sizes = [len(each) for each in held.values()]
    assert min(users) >= 1
    assert min(sizes) >= 1
    if len(members) >= partitions:
        assert set(sizes) == {1}
        assert max(users) - min(users) <= 1
    else:
        assert set(users) == {1}
        assert max(sizes) - min(sizes) <= 1
    again = assign(subscriptions, assignable, given_out)
    assert again == given_out
