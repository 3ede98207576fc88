"""Round robin deals all topics' partitions in turn; two examples, with stock clients."""

from __future__ import annotations

import pytest
from tests.scenarios.consumers import CLIENTS, KAFKA_PYTHON_WARNS, group_of

from tidelog.testing import Cluster

pytestmark = [pytest.mark.row("R17"), *KAFKA_PYTHON_WARNS]


@pytest.mark.parametrize("client", CLIENTS)
def test_equal_subscriptions(broker: Cluster, client: str) -> None:
    """What range makes 4 and 2 of is 3 and 3 here."""
    with group_of(broker, client, f"equal-{client}", "roundrobin", t0=3, t1=3) as group:
        group.join("c0", "t0", "t1")
        group.join("c1", "t0", "t1")
        group.until(c0="t0p0 t0p2 t1p1", c1="t0p1 t1p0 t1p2")


# kafka-python's own assignor fails where subscriptions differ: it takes a pair for a member's id.
@pytest.mark.parametrize("client", ["confluent", "tidelog"])
def test_unequal_subscriptions(broker: Cluster, client: str) -> None:
    """A member's turn passes where it does not want the topic: t1p1 could have gone to c1, and goes to c2."""
    with group_of(broker, client, f"unequal-{client}", "roundrobin", t0=1, t1=2, t2=3) as group:
        group.join("c0", "t0")
        group.join("c1", "t0", "t1")
        group.join("c2", "t0", "t1", "t2")
        group.until(c0="t0p0", c1="t1p0", c2="t1p1 t2p0 t2p1 t2p2")
