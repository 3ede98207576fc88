"""Our own client while brokers of Apache Kafka 4.3 and 3.9 are killed: a short run of `client_chaos`.

A run that says something about rare things is long: `--records 1000000 --kills 20`.
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


@pytest.mark.parametrize(
    ("jars", "more"),
    [("TIDELOG_KAFKA_JARS", ()), ("TIDELOG_KAFKA_ZOOKEEPER_JARS", ("--setting", PREVIEW))],
    ids=["4.3", "3.9"],
)
@pytest.mark.nightly
def test_nothing_is_lost_on_apache_kafka(jars: str, more: tuple[str, ...]) -> None:
    """Every record is acknowledged, and read once and in order by each group, over two kills."""
    command = [sys.executable, "-m", "tests.conformance.client_chaos", os.environ[jars]]
    done = subprocess.run(
        [*command, "--records", "40000", "--kills", "2", *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "lost 0, twice 0, out of order 0" in done.stdout
