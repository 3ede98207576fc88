"""kafkajs, in groups and transactions, alone and mixed with others."""

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
def test_three_members(site: Site) -> None:
    """One leaves, one is killed and comes back."""
    scenarios.membership(site, ["kafkajs"] * 3)


@pytest.mark.nightly
@pytest.mark.row("R15")
@pytest.mark.row("R19")
def test_a_group_while_brokers_are_killed(site: Site) -> None:
    """With librdkafka, by an assignor of the user's own in JavaScript."""
    scenarios.under_kills(site, ["kafkajs", "confluent", "kafkajs"])


def test_transactions(site: Site) -> None:
    """Committed and aborted."""
    scenarios.transact(site, "kafkajs")


def test_copied_exactly_once(site: Site) -> None:
    """Consume, transform, produce; the application is killed."""
    scenarios.copy(site, ["kafkajs"])
