"""A client's payload, OpenTelemetry's MetricsData, as samples for Prometheus.

    bytes --> opentelemetry-proto --> ResourceMetrics, ScopeMetrics, Metric, data points --> Pushed

librdkafka sends one ResourceMetrics, Java one for each metric. Both send gauges, and sums of what was counted since the
push before (delta temporality, as brokers ask for). `org.apache.kafka.producer.record.queue.time.avg` becomes
`org_apache_kafka_producer_record_queue_time_avg`, which is what OpenTelemetry's collector makes of it.

The package `opentelemetry-proto` is an extra (`tidelog[telemetry]`), loaded with the first payload.
Format: https://opentelemetry.io/docs/specs/otlp/, metrics/v1
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from tidelog.metrics.page import escaped
from tidelog.model.values import value

Kind: TypeAlias = Literal["counter", "gauge"]

REQUIREMENT: Final = "opentelemetry-proto (pip install 'tidelog[telemetry]')"
POINTS_MAX: Final = 20_000
"""Data points of one payload that are read: what follows is left out. Java's largest consumer sends some hundreds."""
NAME_LENGTH_MAX: Final = 200
VALUE_LENGTH_MAX: Final = 256
"""Characters of a label's value: what is longer is cut."""
ATTRIBUTES_MAX: Final = 8
"""Attributes of a data point or resource that become labels."""

_MODULE: Final = "opentelemetry.proto.metrics.v1.metrics_pb2"
_KAFKA: Final = "org.apache.kafka."
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")
_DELTA: Final = 1
_CUMULATIVE: Final = 2
"""AggregationTemporality."""


class InvalidPayload(ValueError):
    """The bytes are no MetricsData."""


class Sample(NamedTuple):
    """One data point."""

    family: str
    """A name for Prometheus; of a counter it ends with `_total`."""
    kind: Kind
    labels: tuple[tuple[str, str], ...]
    """Names for Prometheus and values, by name."""
    value: float
    is_delta: bool
    """Whether it is to be added to what came before."""


@value
class Pushed:
    """What one payload says."""

    resource: dict[str, str]
    """Attributes of the client, such as `group_id`, `group_member_id`, `transactional_id`."""
    samples: list[Sample]
    left_out: int
    """Data points of types that are not shown (histograms), and those beyond POINTS_MAX."""


def is_installed() -> bool:
    """Whether payloads can be read here; loads nothing large."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in ("google.protobuf", "opentelemetry.proto"))
    except ModuleNotFoundError:
        return False


def parse(payload: bytes) -> Pushed:
    """Reads a payload; InvalidPayload. Takes some milliseconds at most for what clients send: not for the loop."""
    # Its types are not installed where the extra is not.
    metrics: Any = importlib.import_module(_MODULE)
    decode_error: type[Exception] = importlib.import_module("google.protobuf.message").DecodeError
    try:
        data = metrics.MetricsData.FromString(payload)
    except decode_error as error:
        raise InvalidPayload(str(error)) from error
    resource: dict[str, str] = {}
    samples: list[Sample] = []
    left_out = 0
    for of_resource in data.resource_metrics:
        resource.update(_labels(of_resource.resource.attributes))
        for scope in of_resource.scope_metrics:
            for metric in scope.metrics:
                for sample in _samples(metric):
                    if sample is None or len(samples) >= POINTS_MAX:
                        left_out += 1
                    else:
                        samples.append(sample)
    return Pushed(dict(sorted(resource.items())[:ATTRIBUTES_MAX]), samples, left_out)


def _samples(metric: Any) -> Iterator[Sample | None]:
    """A metric's data points; None for each that cannot be shown."""
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    points = getattr(metric, kind)
    if kind == "gauge":
        family, shown, is_delta = family_name(metric.name), "gauge", False
    elif kind == "sum" and points.aggregation_temporality in (_DELTA, _CUMULATIVE):
        is_delta = points.aggregation_temporality == _DELTA
        shown = "counter" if points.is_monotonic else "gauge"
        family = family_name(metric.name, is_counter=points.is_monotonic)
    else:
        yield from (None for _ in points.data_points)
        return
    for point in points.data_points:
        value = point.WhichOneof("value")
        if value is None:
            yield None
        else:
            labels = tuple(sorted(_labels(point.attributes).items()))
            yield Sample(family, shown, labels, getattr(point, value), is_delta)  # type: ignore[arg-type]


def family_name(name: str, *, is_counter: bool = False) -> str:
    """A metric's name for Prometheus. One that is not Kafka's own begins with `client_`: none passes for a broker's."""
    text = _NOT_IN_NAMES.sub("_", name[:NAME_LENGTH_MAX])
    if not name.startswith(_KAFKA):
        text = f"client_{text}"
    return f"{text}_total" if is_counter and not text.endswith("_total") else text


def _labels(attributes: Iterable[Any]) -> dict[str, str]:
    """[name for Prometheus] -> value, escaped; of two of one name the last."""
    found: dict[str, str] = {}
    for attribute in attributes:
        name = _NOT_IN_NAMES.sub("_", attribute.key[:NAME_LENGTH_MAX])
        if not name or name[0].isdigit() or name.startswith("__"):
            # Names that begin so are Prometheus' own, or none.
            name = f"attribute_{name}"
        found[name] = _text(attribute.value)
        if len(found) >= ATTRIBUTES_MAX:
            break
    return found


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    if kind not in ("string_value", "bool_value", "int_value", "double_value"):
        return ""
    text = getattr(value, kind)
    return escaped(str(text)[:VALUE_LENGTH_MAX])
