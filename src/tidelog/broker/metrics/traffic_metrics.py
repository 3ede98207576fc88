"""Metrics of traffic: bytes, messages and requests of topics, and of the broker."""

from __future__ import annotations

from collections.abc import Iterator
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
)
_TOPICS_PER_STEP: Final = 50


def collect_traffic(page: Page, node: Node) -> Iterator[None]:
    """Of all topics together, and of each one of which this broker has a replica."""
    selection = Selection(node.config)
    traffic = node.replicas.traffic
    total = traffic.sum()
    meters = []
    for name, counter, help in _OF_TOPICS:
        meter = page.meter(f"{_PREFIX}{name}", help)
        meter.add(getattr(total, counter))
        meters.append((meter, counter))
    for name, counter, help in _OF_BROKER:
        page.meter(f"{_PREFIX}{name}", help).add(getattr(total, counter))
    yield
    for index, (topic, counts) in enumerate(list(traffic.topics.items())):
        if not selection.has_topic(topic):
            continue
        labels = f'{{topic="{topic}"}}'
        for meter, counter in meters:
            meter.add(getattr(counts, counter), labels)
        if not index % _TOPICS_PER_STEP:
            yield
