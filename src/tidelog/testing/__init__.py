"""A real broker for tests: `with Cluster() as c: c.bootstrap`.

`Cluster` runs it in a thread of this process, with a temporary folder and a free port, ready within a few hundredths of
a second. `ProcessBroker` runs it as a process of its own, which can be killed and started again.
"""

from tidelog.testing.cluster import Cluster
from tidelog.testing.process import ProcessBroker

__all__ = ["Cluster", "ProcessBroker"]
