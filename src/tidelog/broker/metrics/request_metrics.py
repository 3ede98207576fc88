"""Metrics of requests and connections: what `RequestMetrics` has counted, and what the server knows."""

from __future__ import annotations

from collections import Counter, deque
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
SOFTWARE_MAX: Final = 100
"""Names and versions of clients' software that have series of their own."""
_OTHERS: Final = ("other", "other")
_LOOKS: Final = 7
_WITH_BUCKETS: Final = frozenset({"Produce", "FetchConsumer", "FetchFollower", "Metadata", "OffsetCommit"})
"""Requests whose durations are shown as a histogram too, which can be summed over brokers."""


def collect_requests(page: Page, metrics: RequestMetrics) -> Iterator[None]:
    """Of every API that was asked: requests, errors, times."""
    requests = page.meter(f"{_PREFIX}requests", "Requests by API and version.")
    errors = page.meter(f"{_PREFIX}errors", "Error codes in answers by API; NONE: requests that had none.")
    histogram = page.family(
        "tidelog_request_seconds", "histogram", "Time of requests by phase: total, queue, local, remote."
    )
    throttled = page.family(
        f"{_PREFIX}throttletimems",
        "summary",
        "Milliseconds for which clients over a quota are not read; of the answers that have said so.",
    )
    slow = page.family("tidelog_slow_requests_total", "counter", "Requests that took longer than slow.request.ms.")
    for times in metrics.seen():
        if metrics.slow is not None:
            slow.add(times.slow, labels_text(request=times.name))
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
        throttled.add_summary(times.throttled, pairs)
        yield
    page.family(
        "tidelog_requests_not_measured_total", "counter", "Requests that were served, and could not be measured."
    ).add(metrics.faults)


class ConnectionRates:
    """How many connections came and went lately, by listener."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._looks: deque[tuple[int, dict[str, int], Counter[str]]] = deque(maxlen=_LOOKS)
        """Monotonic milliseconds, connections that came and that were open by listener, at the last looks."""

    def look(self, now_ms: int) -> None:
        """To be called every ten seconds or so."""
        self._looks.append((now_ms, dict(self._server.accepted), self.open()))

    def open(self) -> Counter[str]:
        """Connections by listener."""
        return Counter(connection.peer.listener for connection in self._server.connections)

    def per_second(self, listener: str, now_ms: int) -> tuple[float, float]:
        """Connections that came and went since the oldest look that is remembered."""
        if not self._looks or now_ms <= self._looks[0][0]:
            return 0.0, 0.0
        then_ms, accepted, open = self._looks[0]
        came = self._server.accepted.get(listener, 0) - accepted.get(listener, 0)
        went = came - (self.open()[listener] - open[listener])
        seconds = (now_ms - then_ms) / 1000
        return came / seconds, max(went, 0) / seconds


def collect_connections(page: Page, server: Server, rates: ConnectionRates) -> Iterator[None]:
    """Connections by listener and by the client's software, and what waits in them."""
    by_listener: Counter[str] = Counter()
    by_software: Counter[tuple[str, str]] = Counter()
    requests = answers = 0
    for index, connection in enumerate(list(server.connections)):
        by_listener[connection.peer.listener] += 1
        software = connection.peer.software or ("unknown", "unknown")
        # Clients choose these words, and may choose many.
        by_software[software if software in by_software or len(by_software) < SOFTWARE_MAX else _OTHERS] += 1
        requests += connection.has_requests_waiting
        answers += connection.has_answers_waiting
        if not index % 1000:
            yield
    _add_listeners(page, server, rates, by_listener)
    software_count = page.family(
        "kafka_server_socketservermetrics_connections", "gauge", "Connections by the software of clients."
    )
    for (name, version), count in by_software.items():
        software_count.add(count, labels_text(client_software_name=name, client_software_version=version))
    channel = "kafka_network_requestchannel_"
    page.family(f"{channel}requestqueuesize", "gauge", "Connections with requests that are not begun.").add(requests)
    page.family(f"{channel}responsequeuesize", "gauge", "Connections that do not take their answers.").add(answers)
    yield


def _add_listeners(page: Page, server: Server, rates: ConnectionRates, by_listener: Counter[str]) -> None:
    prefix = "kafka_server_socketservermetrics_connection_"
    counts = page.family(
        "kafka_server_socket_server_metrics_connection_count",
        "gauge",
        "Connections of clients and brokers by listener.",
    )
    others = page.family(f"{prefix}count", "gauge", "As Confluent's rules name it.")
    came = page.family(f"{prefix}creation_rate", "gauge", "Connections that came, per second of the last minute.")
    went = page.family(f"{prefix}close_rate", "gauge", "Connections that ended, per second of the last minute.")
    total = page.family("tidelog_connections_accepted_total", "counter", "Connections that came.")
    prefix_a, prefix_b = "kafka_server_socket_server_metrics_", "kafka_server_socketservermetrics_"
    refused = page.family(f"{prefix_a}failed_authentication_total", "counter", "Clients that could not authenticate.")
    refused_b = page.family(f"{prefix_b}failed_authentication", "untyped", "As Confluent's rules name it. A counter.")
    passed = page.family(f"{prefix_a}successful_authentication_total", "counter", "Clients that have authenticated.")
    for listener in server.listeners:
        count = by_listener[listener]
        # One event loop is one network processor.
        own = labels_text(listener=listener, network_processor=0)
        counts.add(count, labels_text(listener=listener, networkProcessor=0, networkprocessor=0))
        others.add(count, own)
        failed = _failed_authentications(server, listener)
        refused.add(failed, labels_text(listener=listener, networkProcessor=0, networkprocessor=0))
        refused_b.add(failed, own)
        succeeded = 0 if server.authentication is None else server.authentication.succeeded[listener]
        passed.add(succeeded, labels_text(listener=listener, networkProcessor=0, networkprocessor=0))
        creation, close = rates.per_second(listener, server.monotonic_ms())
        came.add(creation, own)
        went.add(close, own)
        total.add(server.accepted[listener], labels_text(listener=listener))


def _failed_authentications(server: Server, listener: str) -> int:
    """By SASL, and TLS handshakes that have failed."""
    tls = server.tls.get(listener)
    by_sasl = 0 if server.authentication is None else server.authentication.failed[listener]
    return by_sasl + (0 if tls is None else tls.failed_handshakes)
