"""Requests that take long are in the log with their phases, and in the metrics; long polls are not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.harness import Broker

from tidelog.broker.deferred import Deferred
from tidelog.broker.metrics.request_metrics import collect_requests
from tidelog.broker.metrics.requests import BUSY_READS, MeasuredDispatcher, RequestMetrics
from tidelog.broker.metrics.slow_requests import LINES_MAX, WINDOW_NS, SlowRequests
from tidelog.broker.peer import Peer
from tidelog.metrics.page import Page, joined
from tidelog.metrics.requests import ApiTimes
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

THRESHOLD_MS = 500


@pytest.fixture
def metrics(broker: Broker) -> RequestMetrics:
    metrics = RequestMetrics(lambda: broker.clock.now_ms * 1_000_000)
    metrics.slow = SlowRequests(THRESHOLD_MS, metrics.now_ns)
    broker.dispatcher = MeasuredDispatcher(broker.node, broker.node.handlers, None, metrics)
    return metrics


def slow_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith("slow request:")]


def test_a_slow_request_is_logged_with_its_phases(
    broker: Broker, metrics: RequestMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    """When it is answered: which client, and where the time went; one that was quick is not."""
    late: Deferred[Any] = Deferred()
    broker.node.handlers[ApiKey.DESCRIBE_CLUSTER].handle = lambda *_: late
    broker.send(ApiKey.DESCRIBE_CLUSTER, 0, messages.DescribeClusterRequest())
    broker.clock.now_ms += THRESHOLD_MS
    late.complete(messages.DescribeClusterResponse())
    quick: Deferred[Any] = Deferred()
    broker.node.handlers[ApiKey.DESCRIBE_CLUSTER].handle = lambda *_: quick
    broker.send(ApiKey.DESCRIBE_CLUSTER, 0, messages.DescribeClusterRequest())
    broker.clock.now_ms += THRESHOLD_MS - 1
    quick.complete(messages.DescribeClusterResponse())
    (line,) = slow_lines(caplog)
    assert line.startswith("slow request: api=DescribeCluster client=")
    assert line.endswith("peer=127.0.0.1:50000 total_ms=500 queue_ms=0 local_ms=0 remote_ms=500")
    page = Page()
    for _ in collect_requests(page, metrics):
        pass
    assert b'tidelog_slow_requests_total{request="DescribeCluster"} 1\n' in joined(list(page.chunks()))


def test_a_handler_that_takes_long_is_slow(
    broker: Broker, metrics: RequestMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    """On a busy broker too, where others' requests are timed by samples."""

    def handle(*_: Any) -> messages.DescribeClusterResponse:
        broker.clock.now_ms += THRESHOLD_MS
        return messages.DescribeClusterResponse()

    dispatcher = broker.dispatcher
    assert isinstance(dispatcher, MeasuredDispatcher)
    assert all(dispatcher.request == dispatcher.timed for _ in range(2 * BUSY_READS))
    broker.node.handlers[ApiKey.DESCRIBE_CLUSTER].handle = handle
    broker.send(ApiKey.DESCRIBE_CLUSTER, 0, messages.DescribeClusterRequest())
    assert "local_ms=500 remote_ms=0" in slow_lines(caplog)[0]


def test_long_polls_are_slow_only_in_the_brokers_own_part(caplog: pytest.LogCaptureFixture) -> None:
    """A fetch that waits for records as long as its client asked to is none."""
    slow, peer = SlowRequests(THRESHOLD_MS, lambda: 0), Peer("PLAINTEXT", 1)
    fetch, produce = ApiTimes("Fetch"), ApiTimes("Produce")
    slow.look(fetch, peer, 0, 100, 30_000_000)
    slow.look(produce, peer, 0, 100, 30_000_000)
    slow.look(fetch, peer, 200_000, 300_000, 0)
    assert (fetch.slow, produce.slow) == (1, 1)
    assert len(slow_lines(caplog)) == 2


def test_lines_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """All are counted; how many were left out is said when the next window begins."""
    now = [0]
    slow, peer, times = SlowRequests(THRESHOLD_MS, lambda: now[0]), Peer("PLAINTEXT", 1), ApiTimes("Produce")
    for _ in range(LINES_MAX + 3):
        slow.look(times, peer, 0, 0, 1_000_000)
    assert (times.slow, len(slow_lines(caplog))) == (LINES_MAX + 3, LINES_MAX)
    now[0] += WINDOW_NS
    slow.look(times, peer, 0, 0, 1_000_000)
    assert "slow requests not logged: count=3" in caplog.text
    assert len(slow_lines(caplog)) == LINES_MAX + 1
