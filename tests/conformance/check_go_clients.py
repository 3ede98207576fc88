"""franz-go and sarama, in groups and transactions, alone and mixed with others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.clients import scenarios
from tests.conformance.clients.scenarios import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with scenarios.site(tmp_path_factory.mktemp("workers"), brokers=3, processes=True) as site:
        yield site


@pytest.mark.nightly
@pytest.mark.row("R15")
@pytest.mark.parametrize("client", ["franz-go", "sarama"])
def test_three_members(site: Site, client: str) -> None:
    """One leaves, one is killed and comes back."""
    scenarios.membership(site, [client] * 3)


@pytest.mark.nightly
@pytest.mark.row("R15")
def test_a_group_of_both(site: Site) -> None:
    """And of librdkafka, while brokers are killed."""
    scenarios.under_kills(site, ["franz-go", "sarama", "confluent"])


@pytest.mark.nightly
@pytest.mark.row("R18")
def test_a_cooperative_group(site: Site) -> None:
    """franz-go with librdkafka."""
    scenarios.membership(site, ["franz-go", "confluent", "franz-go"], assignor="cooperative-sticky")


@pytest.mark.nightly
def test_a_group_of_the_next_generation(site: Site) -> None:
    """KIP-848, franz-go with librdkafka."""
    scenarios.membership(site, ["franz-go", "confluent", "franz-go"], protocol="consumer")


@pytest.mark.parametrize("client", ["franz-go", "sarama"])
def test_transactions(site: Site, client: str) -> None:
    """Committed, aborted; interrupted by kills of the producer, of its coordinator and of a leader."""
    scenarios.transact(site, client)
    scenarios.transact_under_kills(site, client)


def test_copied_exactly_once(site: Site) -> None:
    """Consume, transform, produce, over kills of the application, of both coordinators and of a leader."""
    scenarios.copy(site, ["franz-go"], kills=True)


def test_copied_exactly_once_by_two(site: Site) -> None:
    """franz-go and librdkafka in one group."""
    scenarios.copy(site, ["franz-go", "confluent"])
