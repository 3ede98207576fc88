"""A broker in and out of service, replicas placed by rule and by hand, a factor raised, files read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.documents.conftest import Open
from tests.conformance.documents.placement import is_drawn
from tests.conformance.documents.printing import plan, planned
from tests.conformance.documents.site import Site

SEGMENT_BYTES = 1 << 30
"""As the document's server.properties have it; the tools that ask brokers show it with each topic."""
FIRST = [[2, 0, 1], [1, 2, 0], [0, 1, 2]]
IN_SERVICE = [[2, 3, 0], [3, 0, 1], [0, 1, 2]]
RETIRED = [[2, 1, 0], [0, 2, 1], [1, 0, 2]]
PLAN = "increase-replication-factor.json"

pytestmark = pytest.mark.timeout(600)
"""Dozens of commands, each a start of Java: a second on a quiet machine."""


@pytest.fixture(scope="module")
def site(open_site: Open) -> Iterator[Site]:
    with open_site({"log.segment.bytes": SEGMENT_BYTES, "auto.leader.rebalance.enable": False}, brokers=4) as site:
        yield site


def _configs(site: Site) -> str:
    return "" if site.way.by_store else f"segment.bytes={SEGMENT_BYTES}"


@pytest.mark.row("R23")
def test_what_the_store_holds(site: Site) -> None:
    """Who is there, who controls, and of each partition its leader and who is in sync."""
    site.create("seen", FIRST)
    assert site.children("/brokers/ids") == ["0", "1", "2", "3"]
    assert site.get("/controller")["brokerid"] in range(4)
    state = site.get("/brokers/topics/seen/partitions/0/state")
    assert (state["leader"], state["isr"]) == (2, [2, 0, 1])
    site.delete("seen")


@pytest.mark.row("R12")
@pytest.mark.row("R13")
def test_service_and_retirement(site: Site) -> None:
    """The fourth broker takes over replicas by the document's plan, and gives them back by its second one."""
    topic = "first"
    site.create(topic, FIRST)
    site.produce(topic)
    site.write("topics-to-move.json", json.dumps({"topics": [{"topic": topic}], "version": 1}))
    printed = site.type("service: generate service", current=site.current(topic, FIRST))
    assert is_drawn(planned(printed.out.strip().splitlines()[-1]), [0, 1, 2, 3])
    _execute(site, "service: execute service", topic, FIRST, IN_SERVICE)
    site.type("service: verify service", **site.moved(topic))
    printed = site.type("service: generate retirement", current=site.current(topic, IN_SERVICE))
    assert is_drawn(planned(printed.out.strip().splitlines()[-1]), [0, 1, 2])
    _execute(site, "service: execute retirement", topic, IN_SERVICE, RETIRED)
    site.type("service: verify retirement", **site.moved(topic))
    assert not any(broker == 3 for broker, _ in site.folders(topic))


def _execute(site: Site, command: str, topic: str, before: list[list[int]], after: list[list[int]]) -> None:
    """Executes a plan of the document; all is as it says then."""
    site.write(PLAN, plan(topic, after))
    site.type(command, current=site.current(topic, before), **site.moved(topic))
    site.until(lambda: list(site.assignment(topic).values()) == after)
    site.settle(topic)
    site.until(lambda: site.get("/admin/reassign_partitions") is None)
    site.check_replicas(topic)


@pytest.mark.row("R01")
def test_sixteen_partitions_on_four_brokers(site: Site) -> None:
    """Leaders go round; the distance of the other replicas grows by one with each round, as the document shows it."""
    site.type("service: create second", topic="second")
    site.settle("second")
    assignment = site.assignment("second")
    assert is_drawn(assignment, [0, 1, 2, 3])
    distances = [(assignment[number][1] - assignment[number][0]) % 4 for number in range(16)]
    assert distances == [(distances[0] - 1 + number // 4) % 3 + 1 for number in range(16)], assignment
    site.type("service: describe second", described=site.described("second", configs=_configs(site)))
    site.delete("second")


@pytest.mark.row("R13")
@pytest.mark.row("R30")
def test_placed_by_hand(site: Site) -> None:
    """Four partitions that only two of the four brokers shall hold."""
    topic = "three"
    site.type("service: create three", topic=topic)
    site.settle(topic)
    assert is_drawn(site.assignment(topic), [0, 1, 2, 3])
    site.type("service: describe three", described=site.described(topic, configs=_configs(site)))
    site.delete(topic)
    before = [[2, 1], [3, 0], [1, 2], [0, 3]]
    site.create(topic, before)
    site.produce(topic)
    _execute(site, "service: execute three", topic, before, [[0, 1], [0, 1], [1, 0], [1, 0]])
    site.type("service: verify three", **site.moved(topic))
    assert {broker for broker, _ in site.folders(topic)} == {0, 1}
    # Who leads and may stay, leads on; the document's last leader comes from a preferred election.
    assert [each.leader for each in site.partitions(topic)] == [0, 0, 1, 0]
    assert [each.isr for each in site.partitions(topic)] == [(1, 0), (0, 1), (1, 0), (0, 1)]
    site.type("service: describe three moved", described=site.described(topic, configs=_configs(site)))


@pytest.mark.row("R14")
def test_the_factor_raised(site: Site) -> None:
    """From one replica to three, leaders as the document's afterwards."""
    topic = "four"
    site.type("service: create four", topic=topic)
    site.settle(topic)
    site.delete(topic)
    before = [[3], [1], [0]]
    site.create(topic, before)
    site.produce(topic)
    _execute(site, "service: execute four", topic, before, [[0, 1, 2]] * 3)
    assert [each.leader for each in site.partitions(topic)] == [0, 1, 0]
    site.type("service: describe four", described=site.described(topic, configs=_configs(site)))


@pytest.mark.row("R31")
def test_files(site: Site) -> None:
    """The dump tool reads a segment and its index."""
    site.create("dumped", [[0]])
    site.produce("dumped")
    file = Path(site.cluster.data_of(0)) / "dumped-0" / ("0" * 20)
    printed = site.type("service: dump log", file=str(file))
    assert f"Dumping {file}.log" in printed.out
    assert re.search(r"(?m)^(Log s|S)tarting offset: 0$", printed.out)
    batches = re.findall(r"(?m)^baseOffset: (\d+) lastOffset: (\d+) .*", printed.out)
    assert batches
    assert batches[0][0] == "0"
    assert batches[-1][1] == "499"
    assert len(re.findall(r"magic: 2 compress\w+: (?:NONE|none) crc: \d+ isvalid: true", printed.out)) == len(batches)
    printed = site.type("service: dump index", file=str(file))
    assert f"Dumping {file}.index" in printed.out
    assert "Index offset" not in printed.out
