"""The board for Grafana, docs/monitoring/grafana.json: `python -m tidelog.metrics.board`.

A row a subject, a line a panel: title, unit, legend, expression. `$job` is the job of the brokers.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final, NamedTuple


class Panel(NamedTuple):
    """One graph."""

    title: str
    unit: str
    """As Grafana calls it."""
    legend: str
    expression: str


_TRAFFIC: Final = "kafka_server_brokertopicmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_JOB: Final = '{job=~"$job"}'
_TOPICS: Final = '{job=~"$job",topic!=""}'


def _rate(name: str, by: str, labels: str = _JOB) -> str:
    return f"sum by ({by}) (rate({name}{labels}[$__rate_interval]))"


def _slowest(request: str, phase: str) -> str:
    labels = f'{{job=~"$job",request="{request}",phase="{phase}"}}'
    rate = f"rate(tidelog_request_seconds_bucket{labels}[$__rate_interval])"
    return f"histogram_quantile(0.99, sum by (instance, le) ({rate}))"


ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Is it well?": (
        Panel("Brokers up", "none", "", f"sum(up{_JOB})"),
        Panel("Controllers", "none", "", f"sum({_CONTROLLER}activecontrollercount{_JOB})"),
        Panel("Partitions without leader", "none", "", f"sum({_CONTROLLER}offlinepartitionscount{_JOB})"),
        Panel("Under min ISR", "none", "", f"sum({_REPLICAS}underminisrpartitioncount{_JOB})"),
        Panel("Under-replicated", "none", "", f"sum({_REPLICAS}underreplicatedpartitions{_JOB})"),
        Panel("Log directories offline", "none", "", f"sum(kafka_log_logmanager_offlinelogdirectorycount{_JOB})"),
    ),
    "Traffic": (
        Panel("Bytes in", "Bps", "{{topic}}", _rate(f"{_TRAFFIC}bytesin_total", "topic", _TOPICS)),
        Panel("Bytes out", "Bps", "{{topic}}", _rate(f"{_TRAFFIC}bytesout_total", "topic", _TOPICS)),
        Panel("Records in", "wps", "{{topic}}", _rate(f"{_TRAFFIC}messagesin_total", "topic", _TOPICS)),
        Panel("Replication in", "Bps", "{{instance}}", _rate(f"{_TRAFFIC}replicationbytesin_total", "instance")),
    ),
    "Groups": (
        Panel("Lag in seconds", "s", "{{group}}", f"max by (group) (kafka_consumergroup_group_max_lag_seconds{_JOB})"),
        Panel("Lag in records", "none", "{{consumergroup}}", f"sum by (consumergroup) (kafka_consumergroup_lag{_JOB})"),
        Panel("Stands for", "s", "{{consumergroup}}", f"tidelog_consumergroup_unmoved_seconds{_JOB}"),
        Panel("Groups", "none", "{{type}} {{state}}", f"sum by (type, state) (tidelog_groups{_JOB})"),
        Panel("Rebalances", "ops", "{{type}}", _rate("tidelog_group_rebalances_total", "type")),
    ),
    "Requests": (
        Panel("Requests", "reqps", "{{request}}", _rate("kafka_network_requestmetrics_requests_total", "request")),
        Panel(
            "Errors",
            "reqps",
            "{{request}} {{error}}",
            _rate("kafka_network_requestmetrics_errors_total", "request, error", '{job=~"$job",error!="NONE"}'),
        ),
        Panel("Produce, slowest 1 %", "s", "{{instance}}", _slowest("Produce", "total")),
        Panel("Produce, waiting for replicas, slowest 1 %", "s", "{{instance}}", _slowest("Produce", "remote")),
        Panel("Fetch, the broker's part, slowest 1 %", "s", "{{instance}}", _slowest("FetchConsumer", "local")),
        Panel(
            "Requests that wait",
            "none",
            "{{delayedOperation}}",
            f"sum by (delayedOperation) (kafka_server_delayedoperationpurgatory_numdelayedoperations{_JOB})",
        ),
    ),
    "Replication and the controller": (
        Panel("ISR shrinks", "ops", "{{instance}}", _rate(f"{_REPLICAS}isrshrinks_total", "instance")),
        Panel("Furthest follower", "none", "{{instance}}", f"kafka_server_replicafetchermanager_maxlag{_JOB}"),
        Panel("Leaders", "none", "{{instance}}", f"{_REPLICAS}leadercount{_JOB}"),
        Panel("Moving partitions", "none", "", f"sum(tidelog_reassigning_partitions{_JOB})"),
        Panel("Moved", "Bps", "{{instance}}", _rate(f"{_TRAFFIC}reassignmentbytesin_total", "instance")),
        Panel(
            "Store, slowest 1 %",
            "ms",
            "{{instance}}",
            'kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms{job=~"$job",quantile="0.99"}',
        ),
        Panel("Transactions", "none", "{{state}}", f"sum by (state) (tidelog_transactions{_JOB})"),
    ),
    "Machines": (
        Panel(
            "Busy",
            "percentunit",
            "{{instance}}",
            f"1 - kafka_network_socketserver_networkprocessoravgidle_percent{_JOB}",
        ),
        Panel(
            "Flushes, slowest 1 %",
            "s",
            "{{instance}}",
            "histogram_quantile(0.99, sum by (instance, le) "
            '(rate(tidelog_flush_seconds_bucket{job=~"$job"}[$__rate_interval])))',
        ),
        Panel("CPU", "percentunit", "{{instance}}", _rate("process_cpu_seconds_total", "instance")),
        Panel("Memory", "bytes", "{{instance}}", f"process_resident_memory_bytes{_JOB}"),
        Panel("Free on log directories", "bytes", "{{instance}} {{log_dir}}", f"tidelog_log_dir_free_bytes{_JOB}"),
        Panel("Size of logs", "bytes", "{{instance}}", f"sum by (instance) (tidelog_log_dir_size_bytes{_JOB})"),
        Panel(
            "Connections",
            "none",
            "{{instance}} {{listener}}",
            f"kafka_server_socket_server_metrics_connection_count{_JOB}",
        ),
        Panel("Descriptors", "percentunit", "{{instance}}", f"process_open_fds{_JOB} / process_max_fds{_JOB}"),
    ),
}

_WIDTH: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}


def board() -> dict[str, Any]:
    """The board as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append({"type": "row", "title": title, "gridPos": {"h": 1, "w": _WIDTH, "x": 0, "y": y}, "panels": []})
        y += 1
        is_numbers = not any(panel.legend for panel in row)
        width, height = (4, 4) if is_numbers else (8, 8)
        for index, panel in enumerate(row):
            x = index * width % _WIDTH
            if index and not x:
                y += height
            panels.append(_panel(panel, is_numbers, {"h": height, "w": width, "x": x, "y": y}))
        y += height
    for number, panel_found in enumerate(panels, 1):
        panel_found["id"] = number
    return {
        "title": "tidelog",
        "uid": "tidelog",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"},
                {
                    "name": "job",
                    "type": "query",
                    "label": "Job",
                    "datasource": _SOURCE,
                    "query": "label_values(tidelog_info, job)",
                    "multi": True,
                    "includeAll": True,
                    "refresh": 2,
                },
            ]
        },
        "panels": panels,
    }


def _panel(panel: Panel, is_number: bool, place: dict[str, int]) -> dict[str, Any]:
    return {
        "type": "stat" if is_number else "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [{"refId": "A", "expr": panel.expression, "legendFormat": panel.legend, "datasource": _SOURCE}],
    }


def text() -> str:
    """The file's content."""
    return json.dumps(board(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
