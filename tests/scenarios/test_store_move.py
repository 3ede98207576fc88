"""A running cluster whose metadata goes to another store, while producers and readers notice nothing but a pause."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.moving import move_under_load
from tests.unit.store.serving import Served


def test_a_running_cluster_moves_to_another_store(tmp_path: Path) -> None:
    """Three broker processes, moved and then restarted one by one under load: nothing lost, nothing twice."""
    with Served() as other:
        move_under_load(tmp_path, f"{other.hosts}/tidelog")
