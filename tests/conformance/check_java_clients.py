"""Kafka's own Java clients, 3.9 and 4.3, in groups and transactions, alone and mixed with others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.clients import scenarios
from tests.conformance.clients.scenarios import Site

RELEASES = ("3.9", "4.3")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with scenarios.site(tmp_path_factory.mktemp("workers"), brokers=3, processes=True) as site:
        yield site


@pytest.mark.row("R15")
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_a_group_of_both_releases(site: Site, assignor: str) -> None:
    """They share the partitions by each of Kafka's assignors."""
    scenarios.membership(site, ["java-3.9", "java-4.3", "java-4.3"], assignor=assignor)


def test_a_group_of_the_next_generation(site: Site) -> None:
    """KIP-848, which 3.9 speaks in its preview only: 4.3 with librdkafka."""
    scenarios.membership(site, ["java-4.3", "confluent", "java-4.3"], protocol="consumer")


@pytest.mark.nightly
def test_a_group_that_goes_over_to_the_next_generation(site: Site) -> None:
    """Members of the classic protocol and of KIP-848's in one group, while the former go one by one."""
    scenarios.upgrade(site, ["java-4.3", "confluent"])


@pytest.mark.nightly
@pytest.mark.row("R15")
def test_a_group_while_brokers_are_killed(site: Site) -> None:
    """Kafka's verifiable consumer among them."""
    scenarios.under_kills(site, ["java-4.3", "java-3.9", "verifiable-4.3"])


@pytest.mark.nightly
def test_a_group_of_the_next_generation_while_brokers_are_killed(site: Site) -> None:
    """The same with the coordinator assigning."""
    scenarios.under_kills(site, ["java-4.3", "verifiable-4.3", "confluent"], protocol="consumer")


@pytest.mark.parametrize("release", RELEASES)
def test_transactions(site: Site, release: str) -> None:
    """Committed, aborted; interrupted by kills of the producer, of its coordinator and of a leader."""
    scenarios.transact(site, f"java-{release}")
    scenarios.transact_under_kills(site, f"java-{release}")


@pytest.mark.parametrize("release", RELEASES)
def test_copied_exactly_once(site: Site, release: str) -> None:
    """Consume, transform, produce, over kills of the application, of both coordinators and of a leader."""
    scenarios.copy(site, [f"java-{release}"], kills=True)


def test_copied_exactly_once_by_two(site: Site) -> None:
    """Applications of both releases in one group."""
    scenarios.copy(site, ["java-3.9", "java-4.3"])
