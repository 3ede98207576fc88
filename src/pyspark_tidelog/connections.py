"""Connections that a worker process keeps between its tasks.

Spark reuses a Python worker for task after task. Connecting costs a round trip for versions, and with TLS and SASL
several more, so a cluster that a task is done with waits here for the next one of the same options.
"""

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark_tidelog.options import SourceOptions
from pyspark_tidelog.planning import open_cluster
from tidelog.client.blocking import BlockingCluster

IDLE_MAX: Final = 4
"""Clusters that wait: a worker serves few queries, and those are closed that have waited longest."""

_idle: list[tuple[tuple[object, ...], BlockingCluster]] = []
"""The one that was used last is last."""


@contextmanager
def kept_cluster(options: SourceOptions) -> Iterator[BlockingCluster | None]:
    """A client for these options, with connections of an earlier task if there are any; for one thread. None where
    they name no brokers.

    It knows nothing of topics: what an earlier task knew may be of a topic that was deleted and created again.
    """
    if not options.bootstrap:
        yield None
        return
    # A forked child must not talk on its parent's sockets.
    key = (os.getpid(), options.bootstrap, options.client_id, options.request_timeout_ms, options.security)
    cluster = _take(key) or open_cluster(options)
    try:
        yield cluster
    finally:
        _idle.append((key, cluster))
        while len(_idle) > IDLE_MAX:
            _idle.pop(0)[1].close()


def close_idle() -> None:
    """Closes all connections that wait."""
    while _idle:
        _idle.pop()[1].close()


def _take(key: tuple[object, ...]) -> BlockingCluster | None:
    for index in reversed(range(len(_idle))):
        if _idle[index][0] == key:
            cluster = _idle.pop(index)[1]
            cluster.start_afresh()
            return cluster
    return None


atexit.register(close_idle)
