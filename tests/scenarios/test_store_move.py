"""A running cluster whose metadata goes to another store, while producers and readers notice nothing but a pause."""

from __future__ import annotations

from pathlib import Path

from tests.amount import thorough
from tests.scenarios.store_move import SETTINGS, load, move_under_load, store
from tests.unit.store.serving import Served

from tidelog.testing import Cluster


def test_a_running_cluster_moves_to_another_store(tmp_path: Path) -> None:
    """Three broker processes, moved and then restarted one by one under load: nothing lost, nothing twice."""
    with Served() as other:
        move_under_load(tmp_path, f"{other.hosts}/tidelog")


@thorough
def test_a_broker_that_is_away_meanwhile(tmp_path: Path) -> None:
    """It comes back into the ISRs: leaders and the new store agree on where each partition stands.

    Partition epochs begin anew in the new store; a leader that kept its own would be refused every change.
    """
    with (
        Served() as other,
        Cluster(SETTINGS, brokers=3, processes=True, data=str(tmp_path)) as cluster,
        load(cluster.bootstrap) as loaded,
    ):
        # Out of the ISRs and in again: their partition epochs grow.
        cluster.restart(2)
        loaded.serves()
        cluster.kill(2)
        loaded.acknowledges()
        moved = store("move", "--store", cluster.store, "--to", other.hosts)
        assert moved.returncode == 0, moved.stderr
        loaded.acknowledges()
        cluster.restart(2)
        loaded.serves()
