"""Which tests share a worker of pytest-xdist, and which come first: `--dist loadfile`, as the Makefile asks for it."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Final

from xdist.scheduler import LoadScopeScheduling

ON_SPARK: Final = (
    "tests/unit/pipeline/test_table",
    "tests/unit/pyspark_tidelog/test_lag",
    "tests/unit/pyspark_tidelog/test_sink_",
    "tests/unit/pyspark_tidelog/test_source_",
)
"""How the paths of the tests on Spark begin, and of no others that take long."""
_SPARK_UNIT: Final = "spark"

DOCUMENTS: Final = "tests/conformance/documents/"
"""How the paths begin of checks that type commands at clusters, in several ways."""
_WAY: Final = re.compile(r"[\[-]([\d.]+-(?:zk|api)-(?:embedded|zookeeper))[\]-]")
"""In the name of such a check: a release of the tools, what they are pointed at, and the store."""

ON_MACHINES: Final = ("tests/conformance/check_operations.py", "tests/conformance/check_operations_secured.py")
"""Checks that type a page's commands on machines, whose addresses and ports are the page's: one at a time has them."""
_MACHINES_UNIT: Final = "machines"

SECONDS: Final = {
    _SPARK_UNIT: 2.0,
    "tests/older/": 6.0,
    "tests/scenarios/": 2.0,
    "tests/interop/": 2.0,
    "tests/unit/launcher/": 1.0,
    "tests/unit/testing/": 1.0,
    "tests/unit/cli/": 0.7,
    "tests/unit/sim/": 0.3,
    "tests/property/": 0.3,
    _MACHINES_UNIT: 9.0,
    "tests/conformance/check_go": 12.0,
    "tests/conformance/check_java": 10.0,
    "tests/conformance/check_move": 15.0,
    "tests/conformance/check_plans": 15.0,
    "tests/conformance/check_streams": 15.0,
    "tests/conformance/check_kcat": 0.5,
    "tests/conformance/check_prometheus": 0.5,
    "tests/conformance/check_zookeeper_s": 0.5,
    "tests/conformance/check_": 4.0,
}
"""[how a path begins] -> what a test there takes, roughly; where nothing is said it is little."""
SECONDS_ELSEWHERE: Final = 0.05


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """A file's tests run on one worker, which makes a module's fixture once; those on Spark share one, for its session.

    The documents' commands are split by the way of typing them, for each of which a file has clusters of its own.
    `--dist loadgroup` would be for that, but pytest-xdist 3.8 groups nothing under pytest 9.2. What takes longest comes
    first, so that in the end no worker waits for another's long file.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path in ON_MACHINES:
            return _MACHINES_UNIT
        if path.startswith(DOCUMENTS) and (way := _WAY.search(nodeid)):
            return DOCUMENTS + way[1]
        return _SPARK_UNIT if path.startswith(ON_SPARK) else path

    def schedule(self) -> None:
        """Hands out work; first each worker gets a file with very many tests, as everywhere, then the longest."""
        begins = self.collection is None
        super().schedule()
        if begins:
            units = sorted(self.workqueue.items(), key=lambda unit: -expected_s(unit[0], len(unit[1])))
            self.workqueue = OrderedDict(units)


def expected_s(unit: str, tests: int) -> float:
    """Seconds that a file's tests will take, or those on Spark; a guess that orders them."""
    return tests * next((each for begin, each in SECONDS.items() if unit.startswith(begin)), SECONDS_ELSEWHERE)
