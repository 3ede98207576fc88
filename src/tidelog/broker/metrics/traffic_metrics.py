"""Metrics of traffic: bytes, messages and requests of topics, and of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from operator import add, attrgetter
from typing import TYPE_CHECKING, Final

from tidelog.broker.metrics.selection import Selection

if TYPE_CHECKING:
    from tidelog.broker.node import Node
    from tidelog.metrics.page import Page

_PREFIX: Final = "kafka_server_brokertopicmetrics_"
_OF_TOPICS: Final = (
    ("bytesin", "bytes_in", "Bytes of batches that clients have appended."),
    ("bytesout", "bytes_out", "Bytes of records that were sent to consumers."),
    ("messagesin", "messages_in", "Records that clients have appended."),
    ("totalproducerequests", "produces", "Attempts of clients to append to a partition."),
    ("failedproducerequests", "failed_produces", "Attempts to append that failed, for no reason of a client's."),
    ("totalfetchrequests", "fetches", "Partitions that were read for consumers and followers."),
    ("failedfetchrequests", "failed_fetches", "Partitions that could not be read, for no reason of a client's."),
    ("bytesrejected", "rejected_bytes", "Bytes of batches that were too large."),
)
"""Kafka's name, that of the counter in `Traffic`, and what it is. Without a label: of all topics."""
_OF_BROKER: Final = (
    ("replicationbytesin", "replication_bytes_in", "Bytes of records that this broker's followers have got."),
    ("replicationbytesout", "replication_bytes_out", "Bytes of records that were sent to other brokers' followers."),
    ("reassignmentbytesin", "reassignment_bytes_in", "Bytes of records that replicas being added here have got."),
    ("reassignmentbytesout", "reassignment_bytes_out", "Bytes of records that were sent to replicas being added."),
)
_TOPICS_PER_STEP: Final = 50
_counters: Final = attrgetter(*(counter for _, counter, _ in (*_OF_TOPICS, *_OF_BROKER)))
"""Of a `Traffic`: all of these, in this order."""


def collect_traffic(page: Page, node: Node) -> Iterator[None]:
    """Of all topics together, and of each one of which this broker has a replica."""
    selection = Selection(node.config)
    meters = [page.meter(f"{_PREFIX}{name}", help) for name, _, help in (*_OF_TOPICS, *_OF_BROKER)]
    table = page.table(*meters[: len(_OF_TOPICS)])
    departed, topics = node.replicas.traffic.parts()
    totals = _counters(departed)
    for index, (topic, traffic) in enumerate(topics):
        counts = _counters(traffic)
        totals = tuple(map(add, totals, counts))
        if selection.has_topic(topic):
            table.add(f'{{topic="{topic}"}}', counts)
        if not index % _TOPICS_PER_STEP:
            yield
    for meter, total in zip(meters, totals, strict=True):
        meter.add(total)
    yield
