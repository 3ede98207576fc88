"""Settings of client metrics resources, refused in Kafka's words."""

from __future__ import annotations

import pytest

from tidelog.config import client_metrics_config
from tidelog.config.client_metrics_config import InvalidClientMetrics, RefusedClientMetrics


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"interval.ms": "100", "metrics": "*", "match": "client_id=a.*, client_software_name = Java"},
        {"interval.ms": "3600000", "metrics": "", "match": ""},
        {"match": "client_source_port=92[0-9]+,client_instance_id=x,client_software_version=1,client_source_address=:"},
    ],
)
def test_what_can_be_set(values: dict[str, str]) -> None:
    client_metrics_config.validate(values)


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ({"interval": "1"}, RefusedClientMetrics, "Unknown client metrics configuration: interval"),
        (
            {"interval.ms": "3600001"},
            RefusedClientMetrics,
            "Invalid value 3600001 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            {"interval.ms": "x"},
            InvalidClientMetrics,
            "Invalid value x for configuration interval.ms: Not a number of type INT",
        ),
        ({"metrics": "a,,b"}, InvalidClientMetrics, "Configuration 'metrics' values must not be empty."),
        *(
            ({"match": pattern}, InvalidClientMetrics, f"Illegal client matching pattern: {pattern}")
            for pattern in ("client_id", "client_id=", "client_id=a=b", "client_id=(", "=a", "id=a")
        ),
    ],
)
def test_refusals(values: dict[str, str], kind: type[Exception], message: str) -> None:
    """As Kafka 4.3 answers them: beside INVALID_REQUEST, or INVALID_CONFIG."""
    with pytest.raises(InvalidClientMetrics) as refused:
        client_metrics_config.validate(values)
    assert (type(refused.value), str(refused.value)) == (kind, message)
