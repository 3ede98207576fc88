"""Sticky assignment, before and after C1 leaves, with stock clients."""

from __future__ import annotations

import pytest
from tests.scenarios.consumers import KAFKA_PYTHON_WARNS, group_of

from tidelog.testing import Cluster

pytestmark = [pytest.mark.row("R18"), *KAFKA_PYTHON_WARNS]

TOPICS = ("t0", "t1", "t2", "t3")


@pytest.mark.parametrize(
    ("client", "assignor"),
    [("kafka-python", "sticky"), ("tidelog", "sticky"), ("confluent", "cooperative-sticky")],
)
def test_what_a_member_had_stays_with_it(broker: Cluster, client: str, assignor: str) -> None:
    """Balance first: four topics of two are 3, 3 and 2. Then C1 leaves: the others keep all they had, and have four."""
    with group_of(broker, client, f"sticky-{client}", assignor, **dict.fromkeys(TOPICS, 2)) as group:
        for name in ("c0", "c1", "c2"):
            group.join(name, *TOPICS)
        before = group.until_shared(8)
        assert sorted(map(len, before.values())) == [2, 3, 3]
        group.leave("c1")
        after = group.until_shared(8)
        assert {name: len(partitions) for name, partitions in after.items()} == {"c0": 4, "c2": 4}
        assert all(set(before[name]) < set(after[name]) for name in after)


def test_balance_comes_before_stickiness(broker: Cluster) -> None:
    """One that owned everything gives up what is above its share, and not more."""
    with group_of(broker, "confluent", "balance", "cooperative-sticky", t=4) as group:
        group.join("c0", "t")
        group.until(c0="tp0 tp1 tp2 tp3")
        group.join("c1", "t")
        shares = group.until_shared(4)
        assert [len(partitions) for partitions in shares.values()] == [2, 2]
        # It was never without what it has kept.
        assert all(set(shares["c0"]) <= set(owned.split()) for owned in group.members["c0"].generations[-2:])
