"""A broker with a metrics listener: what is served from its start to its end, and what scrapers can do to it."""

from __future__ import annotations

import http.client
import socket
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.broker.test_runtime import create, send

from tidelog.metrics.page import CONTENT_TYPE
from tidelog.testing import Cluster


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=180) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def address_of(cluster: Cluster) -> str:
    address = cluster.runtime.metrics_address
    assert address is not None
    return address


def test_a_broker_serves_its_metrics_and_its_health() -> None:
    """Each path, to one scraper, to a hundred at once, and beside some that hang; clients do not notice."""
    with Cluster({"metrics.listener": "0"}) as cluster:
        address = address_of(cluster)
        host, port = address.split(":")
        assert host == "127.0.0.1"
        hanging = [socket.create_connection((host, int(port))) for _ in range(20)]
        for each in hanging[:10]:
            each.sendall(b"GET /metrics HTT")
        create(cluster.bootstrap, "t")
        assert send(cluster.bootstrap, "t", [b"v"] * 50) == []
        assert get(address, "/healthz") == (200, "ok\n")
        assert get(address, "/readyz") == (200, "ok\n")
        assert get(address, "/absent")[0] == 404
        with ThreadPoolExecutor(100) as pool:
            pages = list(pool.map(lambda _: get(address, "/metrics"), range(100)))
        assert {status for status, _ in pages} == {200}
        names = {family.name for family in text_string_to_metric_families(pages[0][1])}
        assert {
            "kafka_network_requestmetrics_requests",
            "process_open_fds",
            "kafka_server_kafkaserver_brokerstate",
        } <= names
        connection = http.client.HTTPConnection(host, int(port), timeout=180)
        for _ in range(2):
            connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text"})
            answer = connection.getresponse()
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            answer.read()
        connection.close()
        for each in hanging:
            each.close()


def test_a_port_in_use_keeps_no_broker_from_serving(caplog: pytest.LogCaptureFixture) -> None:
    """The broker says so, starts, and serves its clients."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Cluster({"metrics.listener": f"127.0.0.1:{port}"}) as cluster:
            create(cluster.bootstrap, "t")
            assert send(cluster.bootstrap, "t", [b"v"]) == []
            assert cluster.runtime.metrics_address == f"127.0.0.1:{port}"
    assert f"metrics not served: address=127.0.0.1:{port}" in caplog.text


def test_without_the_setting_there_is_no_listener() -> None:
    """And requests go by the plain dispatcher."""
    with Cluster() as cluster:
        assert cluster.runtime.metrics_address is None
