"""Unchanged Python clients in transactions: committed, aborted, interrupted; and consume-transform-produce."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.amount import daily, thorough
from tests.conformance.clients import scenarios
from tests.conformance.clients.scenarios import Site

CLIENTS = ("confluent", "kafka-python", "aiokafka")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with scenarios.site(tmp_path_factory.mktemp("workers"), brokers=3, processes=True) as site:
        yield site


@pytest.mark.parametrize("client", CLIENTS)
def test_committed_and_aborted(site: Site, client: str) -> None:
    """A reader of committed records sees all values of the ones, and none of the others."""
    scenarios.transact(site, client)


@pytest.mark.parametrize("client", daily(1, CLIENTS))
def test_interrupted(site: Site, client: str) -> None:
    """The producer, its coordinator and a leader are killed: each transaction is there as a whole, or not at all."""
    scenarios.transact_under_kills(site, client)


@thorough
@pytest.mark.parametrize("client", CLIENTS)
def test_copied_exactly_once(site: Site, client: str) -> None:
    """Over kills of the application, of both coordinators and of a leader."""
    scenarios.copy(site, [client], kills=True)


@thorough
def test_copied_exactly_once_by_two(site: Site) -> None:
    """Two applications in one group, of two clients, each killed once: who takes over waits for what is open."""
    scenarios.copy(site, ["confluent", "kafka-python"])
