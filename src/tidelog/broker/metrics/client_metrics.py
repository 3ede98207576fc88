"""Metrics of clients, pushed by them (KIP-714), and of the pushing itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.metrics.page import labels_text
from tidelog.model.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.telemetry.client_metrics_manager import ClientMetricsManager
    from tidelog.metrics.page import Page

_SAMPLES_PER_STEP: Final = 500
_KAFKAS: Final = "kafka_server_client_metrics_"


def collect_client_metrics(page: Page, manager: ClientMetricsManager) -> Iterator[None]:
    """What clients have pushed lately, and how many there are."""
    manager.expire()
    values = manager.values
    page.family(f"{_KAFKAS}instance_count", "gauge", "Client instances that ask what to push.").add(
        len(manager.instances)
    )
    page.family(
        f"{_KAFKAS}unknown_subscription_request_count", "untyped", "Pushes for other subscriptions. A counter."
    ).add(manager.pushes[ErrorCode.UNKNOWN_SUBSCRIPTION_ID])
    pushes = page.family("tidelog_client_metrics_pushes_total", "counter", "Pushes of clients by what was answered.")
    for code in (ErrorCode.NONE, *sorted(manager.pushes.keys() - {ErrorCode.NONE})):
        pushes.add(manager.pushes[code], labels_text(error=code.name))
    page.family("tidelog_client_metrics_series", "gauge", "Series that clients have pushed.").add(values.series)
    page.family(
        "tidelog_client_metrics_left_out_total", "counter", "Data points of clients for which there was no room."
    ).add(values.left_out)
    info = page.family("tidelog_client_info", "gauge", "Clients that push, and what is known of them; always 1.")
    written = 0
    for client in list(values.clients.values()):
        info.add(1, f"{{{client.info}}}")
        for family, labels, value in list(values.samples(client)):
            kind = values.kinds.get(family)
            if kind is not None:
                page.family(family, kind, "Pushed by clients (KIP-714).").add(value, labels)
            written += 1
            if not written % _SAMPLES_PER_STEP:
                yield
    yield
