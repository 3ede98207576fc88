"""franz-go's own tests of share groups (KIP-932), unchanged, against three brokers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.testing import Cluster

BINARY = Path(__file__).parents[2] / "build" / "clients" / "go" / "kgo.test"
RECORDS = 10_000
"""Of the pipeline; franz-go's own runs have 500,000."""
SECONDS_MAX = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, processes=True) as cluster:
        yield cluster


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["TestShareGroupETL", "TestShareGroupAckOnClose", "TestShareGroupOffsetsAdmin"])
def test_franz_gos_share_test(cluster: Cluster, name: str) -> None:
    """A pipeline of two share groups whose members come and go, accept, release and reject; acknowledgements of a
    client that closes; offsets that are altered, described and deleted."""
    settings = {"KGO_SEEDS": cluster.bootstrap, "KGO_TEST_RF": "3", "KGO_TEST_RECORDS": str(RECORDS)}
    command = [str(BINARY), "-test.v", f"-test.run=^{name}$", f"-test.timeout={SECONDS_MAX}s"]
    finished = subprocess.run(
        command,
        env={**os.environ, **settings, "KGO_LOG_LEVEL": "none"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX + 30,
    )
    assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-4000:]
    assert f"--- PASS: {name}" in finished.stdout, finished.stdout[-4000:]
