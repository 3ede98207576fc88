"""What is counted of requests: how many of each API and version, how long each phase took, which errors were answered.

    received ---- queue ----> handler called ---- local ----> it returns ---- remote ----> answered
                                                                  (an acknowledgement, records, other members)

Most requests are answered in the call of their handler, without having waited: for those one histogram is enough, and
`phases` derives the others from it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.metrics.histogram import Histogram

VERSIONS_MAX = 32
"""No API has as many versions."""


class ApiTimes:
    """Counts and durations of one API, or of one kind of its requests."""

    __slots__ = (
        "at_once",
        "errors",
        "failed",
        "local",
        "name",
        "queue",
        "remote",
        "slow",
        "throttled",
        "total",
        "versions",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        """As Kafka's metrics call it: `Produce`, `FetchFollower`."""
        self.versions = [0] * VERSIONS_MAX
        """Requests by version."""
        self.at_once = Histogram()
        """Of requests that were answered in their handler's call, and had not waited for it."""
        self.queue = Histogram()
        """This and the following: of all others, those that are not answered yet left out of `remote` and `total`."""
        self.local = Histogram()
        self.remote = Histogram()
        self.total = Histogram()
        self.errors: dict[int, int] = {}
        """[error code] -> how often it was answered, once for each field that has it; 0 is left out."""
        self.failed = 0
        """Answers with any error code."""
        self.slow = 0
        """Requests that took longer than `slow.request.ms`."""
        self.throttled = Histogram()
        """For how long clients were throttled; of those answers that said so."""

    @property
    def requests(self) -> int:
        """How many came."""
        return sum(self.versions)

    def phases(self) -> Iterator[tuple[str, Histogram]]:
        """Phase -> durations of all requests: `total`, `queue`, `local`, `remote`."""
        zeros = self.at_once.as_zeros()
        yield "total", self.at_once.plus(self.total)
        yield "queue", zeros.plus(self.queue)
        yield "local", self.at_once.plus(self.local)
        yield "remote", zeros.plus(self.remote)

    def roll(self) -> None:
        """As `Histogram.roll`."""
        for histogram in (self.at_once, self.queue, self.local, self.remote, self.total, self.throttled):
            histogram.roll()
