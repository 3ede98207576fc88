"""Payloads as clients push them, made by OpenTelemetry's own package."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2

PREFIX = "org.apache.kafka.producer."


def attribute(key: str, value: object) -> Any:
    kind = "int_value" if isinstance(value, int) else "string_value"
    return common_pb2.KeyValue(key=key, value=common_pb2.AnyValue(**{kind: value}))


def point(value: float, **attributes: object) -> Any:
    kind = "as_int" if isinstance(value, int) else "as_double"
    found = [attribute(name.replace("__", "."), text) for name, text in attributes.items()]
    return metrics_pb2.NumberDataPoint(attributes=found, **{kind: value})


def gauge(name: str, *points: Any) -> Any:
    return metrics_pb2.Metric(name=name, gauge=metrics_pb2.Gauge(data_points=points))


def counted(name: str, *points: Any, temporality: int = 1, monotonic: bool = True) -> Any:
    """A sum; temporality 1: since the last push, 2: since the client's start."""
    sum = metrics_pb2.Sum(data_points=points, aggregation_temporality=temporality, is_monotonic=monotonic)
    return metrics_pb2.Metric(name=name, sum=sum)


def histogram(name: str) -> Any:
    points = [metrics_pb2.HistogramDataPoint(count=1)]
    return metrics_pb2.Metric(name=name, histogram=metrics_pb2.Histogram(data_points=points))


def librdkafka(*metrics: Any, **resource: object) -> bytes:
    """One ResourceMetrics for all metrics."""
    of_resource = metrics_pb2.ResourceMetrics(scope_metrics=[metrics_pb2.ScopeMetrics(metrics=metrics)])
    of_resource.resource.attributes.extend(attribute(key, value) for key, value in resource.items())
    return bytes(metrics_pb2.MetricsData(resource_metrics=[of_resource]).SerializeToString())


def java(*metrics: Any, **resource: object) -> bytes:
    """One ResourceMetrics for each metric: joined messages are one message."""
    return b"".join(librdkafka(metric, **resource) for metric in metrics)
