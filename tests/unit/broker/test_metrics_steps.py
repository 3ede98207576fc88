"""A page of 10,000 partitions is made in steps so small that a slice of the loop's time ends when it is to."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import pairwise, repeat
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.harness import Broker, ManualShell

from tidelog.broker.metrics.cluster_metrics import (
    PARTITIONS_PER_STEP,
    TOPICS_PER_STEP,
    collect_controller,
    collect_topics,
)
from tidelog.broker.metrics.lag import COMMITS_PER_STEP, POSITIONS_PER_STEP, Lags
from tidelog.broker.metrics.lag_metrics import collect_lag
from tidelog.broker.metrics.replica_metrics import REPLICAS_PER_STEP, collect_replicas
from tidelog.broker.metrics.scraping import Scraping
from tidelog.broker.metrics.traffic_metrics import collect_traffic
from tidelog.coordinator.records import CommittedOffset
from tidelog.metrics.page import LINES_PER_CHUNK, Page, joined
from tidelog.model.identifiers import LeaderEpoch, Offset

PARTITIONS = 10_000
TOPICS = 2_000
SAMPLES_OF_A_REPLICA = 19
"""On its leader."""


class Instead:
    """An object with some attributes of its own, else as another one."""

    def __init__(self, of: Any, **own: Any) -> None:
        self._of = of
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


def largest_step(page: Page, steps: Iterator[None]) -> int:
    """Samples that were added between two places where a collector may be interrupted, at most."""
    counts = [page.samples]
    counts += [page.samples for _ in steps]
    counts.append(page.samples)
    return max(after - before for before, after in pairwise(counts))


def test_the_controller_counts_some_partitions_at_once(broker: Broker) -> None:
    """Of one topic with many, and of many topics with few."""
    broker.lead("orders")
    one = broker.node.metadata.image.topics["orders"]
    (partition,) = one.partitions.values()
    large = Instead(one, name="large", partitions=dict.fromkeys(range(PARTITIONS), partition))
    for topics in ({"large": large}, {str(number): one for number in range(PARTITIONS)}):
        image = Instead(broker.node.metadata.image, topics=topics)
        state = SimpleNamespace(deleting=(), leader_elections=0)
        controller = SimpleNamespace(image=image, state=state, unclean_elections=0)
        driver: Any = SimpleNamespace(elections=SimpleNamespace(controller=controller, controller_queue=0))
        page = Page()
        steps = sum(1 for _ in collect_controller(page, driver))
        assert steps >= PARTITIONS // PARTITIONS_PER_STEP
        assert f"globalpartitioncount {PARTITIONS}\n".encode() in joined(list(page.chunks()))
        node: Any = Instead(broker.node, metadata=SimpleNamespace(image=image))
        assert sum(1 for _ in collect_topics(Page(), node)) >= len(topics) // TOPICS_PER_STEP


class WorkClock:
    """Time that passes by work: a microsecond for each sample that is added, a third for each line that is written."""

    def __init__(self) -> None:
        self.us = 0.0

    def monotonic_ms(self) -> int:
        return int(self.us // 1000)

    def collecting(self, collect: Any) -> Any:
        """A collector, whose samples take time."""

        def collector(page: Page) -> Iterator[Any]:
            before = page.samples
            for awaited in collect(page):
                self.us += page.samples - before
                before = page.samples
                yield awaited
            self.us += page.samples - before

        return collector

    def chunks(self, page: Page) -> Iterator[bytes]:
        """A page's text, whose lines take time."""
        for chunk in _chunks(page):
            self.us += chunk.count(b"\n") / 3
            yield chunk


_chunks = Page.chunks


def test_no_slice_of_a_page_of_ten_thousand_partitions_is_longer_than_five_milliseconds(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the work that is done in it; the whole page is made in many of them."""
    broker.lead("orders")
    many = Instead(broker.node.replicas, items=repeat(broker.replica("orders"), PARTITIONS))
    for number in range(TOPICS):
        broker.node.replicas.traffic.of(f"t{number}")
    clock: Any = WorkClock()
    shell = ManualShell(clock)
    monkeypatch.setattr(Page, "chunks", lambda page: clock.chunks(page))
    scraping = Scraping(shell, clock)
    node = Instead(broker.node, replicas=many)
    for name, collect in (("replicas", collect_replicas), ("traffic", collect_traffic)):
        scraping.add(name, clock.collecting(functools.partial(collect, node=node)))
    slices, ended = [], [0.0]
    made = scraping.page()
    while not made.done:
        slices.append(clock.us - ended[-1])
        ended.append(clock.us)
        shell.run_turn()
    assert len(joined(made.result()).splitlines()) > PARTITIONS * SAMPLES_OF_A_REPLICA
    assert len(slices) > 50
    assert max(slices) <= 5_000


class Positions:
    """A group that has committed for as many partitions, all led here."""

    def __init__(self, broker: Broker, count: int) -> None:
        replica = broker.replica("orders")
        value = CommittedOffset(Offset(0), LeaderEpoch(0), "", 1_000).encode()
        commits = [("orders", number, value) for number in range(count)]
        store = SimpleNamespace(committed={"g": None}, of_group=lambda group: iter(commits))
        machine = SimpleNamespace(offsets=SimpleNamespace(store=store), groups={})
        shards = SimpleNamespace(loaded=lambda: [SimpleNamespace(machine=machine)])
        replicas = Instead(broker.node.replicas, get=lambda _: replica, of_topic=lambda _: [replica])
        self.node: Any = Instead(broker.node, replicas=replicas, groups=SimpleNamespace(shards=shards))


def test_a_groups_positions_are_looked_at_in_steps(broker: Broker) -> None:
    """Commits, ends, timestamps and samples of ten thousand partitions."""
    broker.lead("orders")
    broker.produce("orders", [b"v"] * 3)
    node = Positions(broker, PARTITIONS).node
    lags = Lags(node)
    page = Page()
    steps = sum(1 for _ in collect_lag(page, node, lags))
    assert steps >= PARTITIONS // COMMITS_PER_STEP + 4 * (PARTITIONS // POSITIONS_PER_STEP)
    text = joined(list(page.chunks()))
    assert text.count(b"\nkafka_consumergroup_lag{") == PARTITIONS
    assert f'kafka_consumergroup_lag_sum{{consumergroup="g"}} {3 * PARTITIONS}\n'.encode() in text
    assert largest_step(page, collect_lag(page, node, lags)) <= 1_000


def test_a_step_adds_a_thousand_samples_at_most(broker: Broker) -> None:
    """A sample takes about a microsecond: a slice of 4 ms is over within 5. Of partitions, of topics, and of text."""
    broker.lead("orders")
    many = Instead(broker.node.replicas, items=repeat(broker.replica("orders"), PARTITIONS))
    page = Page()
    of_replicas = largest_step(page, collect_replicas(page, Instead(broker.node, replicas=many)))
    assert page.samples >= PARTITIONS * SAMPLES_OF_A_REPLICA
    assert of_replicas <= REPLICAS_PER_STEP * SAMPLES_OF_A_REPLICA + 50 <= 1_000
    for number in range(TOPICS):
        broker.node.replicas.traffic.of(f"t{number}")
    before = page.samples
    assert largest_step(page, collect_traffic(page, broker.node)) <= 1_000
    assert page.samples - before >= TOPICS * 16
    assert LINES_PER_CHUNK <= 5_000
    assert max(chunk.count(b"\n") for chunk in page.chunks()) <= LINES_PER_CHUNK + 2
