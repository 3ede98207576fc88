"""Growing topics: two partitions on three brokers, grown to three, whichever way they were made and are grown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewPartitions, NewTopic

from tests.conformance.documents.commands import MANY
from tests.conformance.documents.conftest import Open
from tests.conformance.documents.placement import is_drawn
from tests.conformance.documents.site import Site

pytestmark = pytest.mark.timeout(600)
"""Dozens of commands, each a start of Java: a second on a quiet machine."""


@pytest.fixture(scope="module")
def site(open_site: Open) -> Iterator[Site]:
    """Three brokers of which one has come back, so that who hears of them in their order of coming has 0 last."""
    with open_site({}, brokers=3) as site:
        site.cluster.restart(0)
        site.until(lambda: len(site.admin.list_topics(timeout=10).brokers) == 3)
        yield site


@pytest.mark.row("R10")
def test_made_by_the_tool(site: Site) -> None:
    """Grown by the tool: a broker each."""
    site.type("growing: create", topic="by-tool")
    site.settle("by-tool")
    site.type("growing: grow")
    _check(site, "by-tool")
    site.type("growing: describe", described=site.described("by-tool"))


@pytest.mark.row("R10")
def test_made_by_the_interface(site: Site) -> None:
    """Grown by the tool, all at once: a broker each."""
    names = [f"by-interface-{number}" for number in range(MANY)]
    for future in site.admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        future.result(10)
    for name in names:
        site.settle(name)
    site.type("growing: grow made by the interface")
    for name in names:
        _check(site, name)


@pytest.mark.row("R10")
def test_made_by_the_tool_and_grown_by_the_interface(site: Site) -> None:
    """The other way round; what the tool has made first is grown again."""
    site.type("growing: create", topic="by-tool-too")
    site.settle("by-tool-too")
    site.admin.create_partitions([NewPartitions("by-tool-too", 3)])["by-tool-too"].result(10)
    _check(site, "by-tool-too")


def _check(site: Site, topic: str) -> None:
    site.until(lambda: len(site.assignment(topic)) == 3)
    site.settle(topic)
    assignment = site.assignment(topic)
    assert sorted(replicas[0] for replicas in assignment.values()) == [0, 1, 2], assignment
    assert is_drawn(assignment, [0, 1, 2]), assignment
