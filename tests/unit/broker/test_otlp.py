"""Payloads of OpenTelemetry's protocol, as samples for Prometheus."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.telemetry import otlp
from tidelog.broker.telemetry.otlp import InvalidPayload, Sample, family_name

pytest.importorskip("opentelemetry.proto", reason="the extra tidelog[telemetry] is not installed")
from tests.unit.broker.telemetry_payloads import counted, gauge, histogram, java, librdkafka, point


def test_both_shapes_say_the_same() -> None:
    """librdkafka's one ResourceMetrics, Java's one for each metric."""
    metrics = [
        gauge("org.apache.kafka.producer.a.avg", point(1.5, node__id=3), point(math.inf, topic="t")),
        counted("org.apache.kafka.producer.b.total", point(2)),
        counted("org.apache.kafka.producer.c", point(5), temporality=2),
        counted("org.apache.kafka.producer.d", point(-1), monotonic=False),
    ]
    expected = [
        Sample("org_apache_kafka_producer_a_avg", "gauge", (("node_id", "3"),), 1.5, False),
        Sample("org_apache_kafka_producer_a_avg", "gauge", (("topic", "t"),), math.inf, False),
        Sample("org_apache_kafka_producer_b_total", "counter", (), 2, True),
        Sample("org_apache_kafka_producer_c_total", "counter", (), 5, False),
        Sample("org_apache_kafka_producer_d", "gauge", (), -1, True),
    ]
    for made in (librdkafka, java):
        pushed = otlp.parse(made(*metrics, group_id="g"))
        assert pushed.samples == expected
        assert (pushed.resource, pushed.left_out) == ({"group_id": "g"}, 0)


def test_what_cannot_be_shown_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Histograms, points without a value, points beyond the bound."""
    monkeypatch.setattr(otlp, "POINTS_MAX", 2)
    without = point(1)
    without.ClearField("as_int")
    pushed = otlp.parse(librdkafka(histogram("h"), gauge("g", without, point(1), point(2), point(3))))
    assert [sample.value for sample in pushed.samples] == [1, 2]
    assert pushed.left_out == 3


def test_no_client_can_take_a_brokers_names() -> None:
    """Names and labels are Prometheus' own characters; what is not Kafka's is marked."""
    assert family_name("kafka_server_brokertopicmetrics_bytesin_total") == (
        "client_kafka_server_brokertopicmetrics_bytesin_total"
    )
    assert family_name('x{a="b"} 1\n', is_counter=True) == "client_x_a__b___1__total"
    pushed = otlp.parse(librdkafka(gauge("x", point(1, **{"1a": "v", "____name": "w", "b}": "x\n" + "y" * 500}))))
    labels = dict(pushed.samples[0].labels)
    assert labels["attribute_1a"] == "v"
    assert labels["attribute___name"] == "w"
    assert labels["b_"] == "x\\n" + "y" * 254


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(payload: bytes) -> None:
    with contextlib.suppress(InvalidPayload):
        otlp.parse(payload)
