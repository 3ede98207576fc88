"""`replica.placement` reaches the controller of a running cluster."""

from __future__ import annotations

from tidelog.client import admin
from tidelog.client.blocking import BlockingCluster
from tidelog.testing import Cluster


def test_the_striped_placement_looks_at_what_stands() -> None:
    """Brokers 0 and 1 have a topic's partitions; the next one goes to broker 2, with `ordered` to broker 0 again."""
    for placement, expected in (("striped", 2), ("ordered", 0)):
        with (
            Cluster({"replica.placement": placement}, brokers=3) as cluster,
            BlockingCluster(cluster.bootstrap) as client,
        ):
            topic = admin.NewTopic("t", assignment={0: (0,), 1: (1,), 2: (0,)})
            assert not isinstance(client.run(admin.create_topics(client.routing, [topic]))["t"], Exception)
            assert client.run(admin.create_partitions(client.routing, {"t": 4})) == {"t": None}
            view = client.run(admin.describe_topics(client.routing, ["t"]))["t"]
            assert not isinstance(view, Exception)
            assert view.partitions[3].replicas == (expected,)
