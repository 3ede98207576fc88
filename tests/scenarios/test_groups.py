"""Partitions of a topic are shared by a group: one member each, and members beyond the partitions stay idle."""

from __future__ import annotations

import pytest
from tests.scenarios.consumers import CLIENTS, KAFKA_PYTHON_WARNS, group_of
from tests.waiting import until

from tidelog.testing import Cluster

pytestmark = [pytest.mark.row("R15"), *KAFKA_PYTHON_WARNS]

PARTITIONS = 7


@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_grows_from_one_to_eight_members(broker: Cluster, client: str) -> None:
    """One reads all seven partitions; each that comes takes its share; the eighth has nothing to do."""
    with group_of(broker, client, f"grows-{client}", "range", t=PARTITIONS) as group:
        for size in range(1, 9):
            group.join(f"c{size}", "t")
            shares = group.until_shared(PARTITIONS)
            assert list(shares) == [f"c{member}" for member in range(1, size + 1)]
            counts = [len(partitions) for partitions in shares.values()]
            assert counts == [PARTITIONS // size + (member < PARTITIONS % size) for member in range(size)]


@pytest.mark.parametrize("client", CLIENTS)
def test_an_idle_member_steps_in(broker: Cluster, client: str) -> None:
    """The more members than partitions, the sooner one that is gone is replaced."""
    with group_of(broker, client, f"idle-{client}", "range", t=2) as group:
        for name in ("c1", "c2", "c3"):
            group.join(name, "t")
        group.until(c1="tp0", c2="tp1", c3="")
        group.leave("c1")
        group.until(c2="tp0", c3="tp1")


def test_groups_do_not_touch_each_other(broker: Cluster) -> None:
    """Each group has all partitions."""
    with group_of(broker, "confluent", "one", "range", t=2) as one:
        one.join("a", "t")
        other = type(one)(broker.bootstrap, "confluent", "other", "range")
        other.join("b", "t")
        try:
            one.until(a="tp0 tp1")
            other.until(b="tp0 tp1")
            assert one.members["a"].generations == ["tp0 tp1"] or one.members["a"].generations == ["", "tp0 tp1"]
        finally:
            other.leave("b")
        until(lambda: not other.described(), "the other group is empty")
