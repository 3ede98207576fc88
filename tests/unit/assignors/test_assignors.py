"""How an assignor is chosen, and what a user's own has to be."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.unit.assignors.groups import assigned, members, topics

from tidelog.assignors import BROKERS, CONSUMERS, assignor_named
from tidelog.assignors.assignor import (
    Assignment,
    Assignor,
    MemberId,
    Subscription,
    TopicLayout,
    is_cooperative,
    user_data_of,
)
from tidelog.model.identifiers import TopicPartition


def test_names_are_kafkas() -> None:
    """What clients of other makes send as protocol names, and what they may name in group.remote.assignor."""
    assert list(CONSUMERS) == ["range", "roundrobin", "sticky", "cooperative-sticky"]
    assert list(BROKERS) == ["uniform", "range"]
    assert all(assignor.name == name for name, assignor in [*CONSUMERS.items(), *BROKERS.items()])


def test_an_unknown_name_is_told_what_there_is() -> None:
    """The message lists the names."""
    with pytest.raises(ValueError, match="no assignor 'stiky': choose one of range, roundrobin, sticky, coop"):
        assignor_named("stiky")
    assert assignor_named("uniform", among=BROKERS) is BROKERS["uniform"]


class OneForAll:
    """A user's own: the first member by name gets everything."""

    name = "one-for-all"

    def assign(
        self, members: Mapping[MemberId, Subscription], topics: Mapping[str, TopicLayout]
    ) -> dict[MemberId, Assignment]:
        every = tuple(TopicPartition(name, p) for name, topic in topics.items() for p in range(topic.partitions))
        return {member: Assignment(every if member == min(members) else ()) for member in members}


def test_a_users_own_is_a_name_and_a_method() -> None:
    """Nothing to inherit; it is eager and sends no bytes unless it says so."""
    own: Assignor = OneForAll()
    assert assigned(own, members(b="t", a="t"), topics(t=2)) == {"b": "", "a": "tp0 tp1"}
    assert not is_cooperative(own)
    assert user_data_of(own, (), 3) is None
