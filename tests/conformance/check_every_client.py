"""One group of every client that there is, on three brokers that are killed one after the other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.conformance.clients import scenarios
from tests.conformance.clients.harness import BUILT
from tests.conformance.clients.scenarios import Site

EVERY = {
    "confluent": True,
    "kafka-python": True,
    "aiokafka": True,
    "java-3.9": (BUILT / "java").exists(),
    "java-4.3": (BUILT / "java").exists(),
    "franz-go": (BUILT / "go").exists(),
    "sarama": (BUILT / "go").exists(),
    "kafkajs": (BUILT / "node").exists(),
    "kcat": shutil.which("kcat") is not None,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with scenarios.site(tmp_path_factory.mktemp("workers"), brokers=3, processes=True) as site:
        yield site


@pytest.mark.nightly
@pytest.mark.row("R15")
def test_one_group_of_them_all(site: Site) -> None:
    """They join, rebalance, commit, leave, crash and come back; whoever is elected leader assigns to all."""
    scenarios.under_kills(site, [client for client, there in EVERY.items() if there])
