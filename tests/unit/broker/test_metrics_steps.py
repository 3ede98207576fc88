"""A page of 10,000 partitions is made in steps so small that a slice of the loop's time ends when it is to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, repeat
from types import SimpleNamespace
from typing import Any

from tests.unit.broker.harness import Broker

from tidelog.broker.metrics.cluster_metrics import (
    PARTITIONS_PER_STEP,
    TOPICS_PER_STEP,
    collect_controller,
    collect_topics,
)
from tidelog.broker.metrics.replica_metrics import REPLICAS_PER_STEP, collect_replicas
from tidelog.broker.metrics.traffic_metrics import collect_traffic
from tidelog.metrics.page import LINES_PER_CHUNK, Page, joined

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
