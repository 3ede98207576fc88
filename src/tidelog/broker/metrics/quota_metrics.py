"""Metrics of client quotas: what clients use of them, and for how long they are throttled.

As in Kafka, a series is a budget: of a user, a client id, or both; what it does not name is the empty text. Families of
Kafka's `kafka.server:type=Produce|Fetch|Request|ControllerMutation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.metrics.page import labels_text
from tidelog.quotas.entities import QuotaKey

if TYPE_CHECKING:
    from tidelog.broker.node import Node
    from tidelog.metrics.page import Page

BUDGETS_MAX: Final = 1_000
"""Budgets with series of their own: clients choose their ids, and may choose many."""
CLIENT_ID_LENGTH_MAX: Final = 256
"""A budget of a longer one has no series: cut, two could not be told apart."""
_PER_STEP: Final = 200
_NAMES: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: ("produce", "byte_rate", "Bytes a second that the client has produced lately."),
    QuotaKey.CONSUMER_BYTE_RATE: ("fetch", "byte_rate", "Bytes a second that the client has fetched lately."),
    QuotaKey.REQUEST_PERCENTAGE: ("request", "request_time", "Percent of the event loop's time that it takes."),
}
"""Kafka's type, its attribute, and what it is."""


def collect_quotas(page: Page, node: Node) -> Iterator[None]:
    """Of the clients that a quota limits, and that have used some of it."""
    now_ms = node.clock.monotonic_ms()
    for index, usage in enumerate(node.quotas.usage(now_ms)):
        if index == BUDGETS_MAX:
            break
        if len(usage.client_id or "") > CLIENT_ID_LENGTH_MAX:
            continue
        kind, attribute, help = _NAMES[usage.key]
        labels = labels_text(user=usage.user or "", client_id=usage.client_id or "")
        page.family(f"kafka_server_{kind}_{attribute}", "gauge", help).add(usage.rate, labels)
        page.family(
            f"kafka_server_{kind}_throttle_time", "gauge", "Milliseconds for which the client is to be throttled now."
        ).add(usage.throttle_ms, labels)
        if not index % _PER_STEP:
            yield
    page.family("tidelog_client_quotas", "gauge", "Entities that have quotas.").add(len(node.quotas.entities))
    yield
