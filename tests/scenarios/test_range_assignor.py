"""Range cuts each topic by itself; two examples, with stock clients."""

from __future__ import annotations

import pytest
from tests.scenarios.consumers import CLIENTS, KAFKA_PYTHON_WARNS, group_of

from tidelog.testing import Cluster

pytestmark = [
    pytest.mark.row("R16"),
    pytest.mark.parametrize("client", CLIENTS),
    *KAFKA_PYTHON_WARNS,
]


def test_even_topics(broker: Cluster, client: str) -> None:
    """Two topics of four: both members get the same half of each."""
    with group_of(broker, client, f"even-{client}", "range", t0=4, t1=4) as group:
        group.join("c0", "t0", "t1")
        group.join("c1", "t0", "t1")
        group.until(c0="t0p0 t0p1 t1p0 t1p1", c1="t0p2 t0p3 t1p2 t1p3")


def test_odd_topics(broker: Cluster, client: str) -> None:
    """Two topics of three: the first member gets the odd one of each, so shares are 4 and 2."""
    with group_of(broker, client, f"odd-{client}", "range", t0=3, t1=3) as group:
        group.join("c0", "t0", "t1")
        group.join("c1", "t0", "t1")
        group.until(c0="t0p0 t0p1 t1p0 t1p1", c1="t0p2 t1p2")
