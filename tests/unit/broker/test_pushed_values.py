"""Metrics that clients have pushed: their number is bounded, however many client instance ids push."""

from __future__ import annotations

from tidelog.broker.telemetry.client_metrics_manager import INSTANCES_MAX
from tidelog.broker.telemetry.otlp import Pushed, Sample
from tidelog.broker.telemetry.pushed_values import PushedValues


def push(values: PushedValues, number: int, *samples: Sample, series_max: int = 100) -> None:
    facts = {"client_id": f"client-{number}"}
    values.take(number.to_bytes(16, "big"), facts, Pushed({}, list(samples), 0), series_max=series_max, expires_ms=1)


def test_clients_are_bounded_in_number() -> None:
    """A client that has no series is remembered, too, and any can push under one id after the other."""
    values = PushedValues()
    counted = Sample("a_total", "counter", (), 1.0, True)
    push(values, 0, counted)
    push(values, 1, counted)
    for number in range(2, INSTANCES_MAX + 100):
        push(values, number)
        push(values, 0, counted)
    assert len(values.clients) == INSTANCES_MAX
    assert bytes(15) + b"\x01" not in values.clients, "The one that is silent for longest goes"
    assert values.clients[bytes(16)].counters == {("a_total", ()): INSTANCES_MAX + 99.0}
    assert values.series == 1
