"""Brokers for stories: real nodes with real logs on disk, joined in memory; the test plays controller and network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.broker.replica_harness import ReplicaCluster


@pytest.fixture
def two(tmp_path: Path) -> Iterator[ReplicaCluster]:
    """Brokers 0 and 1."""
    cluster = ReplicaCluster(tmp_path, 2)
    yield cluster
    cluster.close()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ReplicaCluster]:
    """Brokers 0, 1 and 2."""
    cluster = ReplicaCluster(tmp_path, 3)
    yield cluster
    cluster.close()
