"""A real cluster for tests: `with Cluster() as c: c.bootstrap`.

`Cluster` runs brokers in a thread of this process, with a temporary folder and free ports, ready within a few
hundredths of a second; `Cluster(brokers=3, processes=True)` gives each broker a process, which can be killed, paused
and started again. `ProcessBroker` is one broker with its store in a process. `tidelog.testing.plugin` has fixtures for
pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.testing.cluster import Cluster as Cluster
    from tidelog.testing.process import ProcessBroker as ProcessBroker

__all__ = ["Cluster", "ProcessBroker"]


def __getattr__(name: str) -> Any:
    # On first use: pytest imports this package for its plugin, also in runs that need no broker.
    if name == "Cluster":
        from tidelog.testing.cluster import Cluster

        return Cluster
    if name == "ProcessBroker":
        from tidelog.testing.process import ProcessBroker

        return ProcessBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
