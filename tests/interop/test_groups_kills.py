"""Unchanged Python clients in one group on three brokers, which are killed one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.amount import thorough
from tests.conformance.clients import scenarios
from tests.conformance.clients.scenarios import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with scenarios.site(tmp_path_factory.mktemp("workers"), brokers=3, processes=True) as site:
        yield site


@pytest.mark.row("R15")
def test_a_group_of_every_client(site: Site) -> None:
    """No partition with two owners, no acknowledged commit lost, though the coordinator dies twice."""
    scenarios.under_kills(site, ["confluent", "kafka-python", "aiokafka"])


@pytest.mark.row("R18")
def test_a_cooperative_group(site: Site) -> None:
    """The same, handing over one by one."""
    scenarios.under_kills(site, ["confluent"] * 3, assignor="cooperative-sticky")


@thorough
def test_a_group_of_the_next_generation(site: Site) -> None:
    """The same, with the coordinator assigning."""
    scenarios.under_kills(site, ["confluent"] * 3, protocol="consumer")
