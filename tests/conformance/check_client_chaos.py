"""Our own client while brokers of Apache Kafka 4.3 and 3.9 are killed: a short run of `client_chaos`.

With TIDELOG_LONG_CHAOS=1, as each night, it is one that says something about rare things, and takes a quarter of an
hour for each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PREVIEW = "group.coordinator.rebalance.protocols=classic,consumer"
"""What brokers of 3.9 must be told to serve the newer protocol of groups."""
RECORDS, KILLS = (1_000_000, 20) if os.environ.get("TIDELOG_LONG_CHAOS") else (40_000, 2)


@pytest.mark.parametrize(
    ("jars", "more"),
    [("TIDELOG_KAFKA_JARS", ()), ("TIDELOG_KAFKA_ZOOKEEPER_JARS", ("--setting", PREVIEW))],
    ids=["4.3", "3.9"],
)
@pytest.mark.nightly
def test_nothing_is_lost_on_apache_kafka(jars: str, more: tuple[str, ...]) -> None:
    """Every record is acknowledged, and read once and in order by each group, over all kills."""
    command = [sys.executable, "-m", "tests.conformance.client_chaos", os.environ[jars]]
    done = subprocess.run(
        [*command, "--records", str(RECORDS), "--kills", str(KILLS), *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300 + 150 * KILLS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "lost 0, twice 0, out of order 0" in done.stdout
