"""Metrics of requests and connections: what `RequestMetrics` has counted, and what the server knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.metrics.page import labels_text, pairs_text
from tidelog.model.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.connections.server import Server
    from tidelog.broker.metrics.requests import RequestMetrics
    from tidelog.metrics.page import Page

_PREFIX: Final = "kafka_network_requestmetrics_"
_PHASES: Final = {
    "total": "totaltimems",
    "queue": "requestqueuetimems",
    "local": "localtimems",
    "remote": "remotetimems",
}
"""Phase -> the name of Kafka's metric."""
_PHASE_HELP: Final = {
    "total": "Milliseconds from the receipt of a request to its answer.",
    "queue": "Milliseconds that a request waited before its handler was called.",
    "local": "Milliseconds that a request's handler took.",
    "remote": "Milliseconds that a request waited after that: for acknowledgements, records, other members.",
}
_WITH_BUCKETS: Final = frozenset({"Produce", "FetchConsumer", "FetchFollower", "Metadata", "OffsetCommit"})
"""Requests whose durations are shown as a histogram too, which can be summed over brokers."""


def collect_requests(page: Page, metrics: RequestMetrics) -> Iterator[None]:
    """Of every API that was asked: requests, errors, times."""
    requests = page.meter(f"{_PREFIX}requests", "Requests by API and version.")
    errors = page.meter(f"{_PREFIX}errors", "Error codes in answers by API; NONE: requests that had none.")
    histogram = page.family(
        "tidelog_request_seconds", "histogram", "Time of requests by phase: total, queue, local, remote."
    )
    for times in metrics.seen():
        for version, count in enumerate(times.versions):
            if count:
                requests.add(count, labels_text(request=times.name, version=version))
        for code, count in times.errors.items():
            name = ErrorCode(code).name
            errors.add(count, labels_text(request=times.name, error=name))
        errors.add(times.requests - times.failed, labels_text(request=times.name, error="NONE"))
        pairs = pairs_text(request=times.name)
        for phase, durations in times.phases():
            page.family(f"{_PREFIX}{_PHASES[phase]}", "summary", _PHASE_HELP[phase]).add_summary(durations, pairs)
            if times.name in _WITH_BUCKETS:
                histogram.add_histogram(durations, f"{pairs},{pairs_text(phase=phase)}")
        yield
    page.family(
        "tidelog_requests_not_measured_total", "counter", "Requests that were served, and could not be measured."
    ).add(metrics.faults)


def collect_connections(page: Page, server: Server) -> Iterator[None]:
    """Connections by listener, and what waits in them."""
    by_listener: Counter[str] = Counter()
    for index, connection in enumerate(server.connections):
        by_listener[connection.peer.listener] += 1
        if not index % 1000:
            yield
    counts = page.family(
        "kafka_server_socket_server_metrics_connection_count",
        "gauge",
        "Connections of clients and brokers by listener.",
    )
    others = page.family("kafka_server_socketservermetrics_connection_count", "gauge", "As Confluent's rules name it.")
    for listener in server.listeners:
        count = by_listener[listener]
        # One event loop is one network processor.
        counts.add(count, labels_text(listener=listener, networkProcessor=0, networkprocessor=0))
        others.add(count, labels_text(listener=listener, network_processor=0))
    yield
