"""A tool's connection to a cluster's metadata store, as people's scripts and Kafka's old tools have one: by kazoo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kazoo.client import KazooClient

from tidelog.testing import Cluster

DEADLINE_S: Final = 180.0
LOOK_INTERVAL_S: Final = 0.01


@contextmanager
def tool(cluster: Cluster) -> Iterator[KazooClient]:
    """A started client of the cluster's store."""
    client = KazooClient(cluster.store, timeout=10)
    client.start(DEADLINE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()
