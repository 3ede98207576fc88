"""Requests are counted with their times and errors, and no mistake in counting reaches a client."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.harness import Broker, whole

from tidelog.broker.deferred import Deferred
from tidelog.broker.metrics.errors import error_codes
from tidelog.broker.metrics.requests import (
    BUSY_READS,
    SAMPLED,
    SAMPLED_RARELY,
    VERY_BUSY_READS,
    MeasuredDispatcher,
    RequestMetrics,
)
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey


class Nanoseconds:
    """A clock that the test moves; each look at it takes 20 us."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.extra = 0

    def __call__(self) -> int:
        self.extra += 20_000
        return self._broker.clock.now_ms * 1_000_000 + self.extra


@pytest.fixture
def metrics(broker: Broker) -> RequestMetrics:
    """Those of a broker whose dispatcher measures."""
    metrics = RequestMetrics(Nanoseconds(broker))
    broker.dispatcher = MeasuredDispatcher(broker.node, broker.node.handlers, None, metrics)
    return metrics


def test_a_request_is_counted_by_version_and_phase(broker: Broker, metrics: RequestMetrics) -> None:
    """One that is answered at once has a local time, and nothing else."""
    for version in (0, 0, 1):
        broker.ask(ApiKey.DESCRIBE_CLUSTER, version, messages.DescribeClusterRequest())
    times = metrics.of(ApiKey.DESCRIBE_CLUSTER)
    assert (times.name, times.versions[:2]) == ("DescribeCluster", [2, 1])
    assert {phase: (each.count, each.sum) for phase, each in times.phases()} == {
        "total": (3, 60),
        "queue": (3, 0),
        "local": (3, 60),
        "remote": (3, 0),
    }


def test_a_request_that_waits_has_its_remote_time(broker: Broker, metrics: RequestMetrics) -> None:
    """From the handler's return to the answer; counted when it is answered."""
    late: Deferred[Any] = Deferred()
    broker.node.handlers[ApiKey.DESCRIBE_CLUSTER].handle = lambda *_: late
    answer = broker.send(ApiKey.DESCRIBE_CLUSTER, 0, messages.DescribeClusterRequest())
    times = metrics.of(ApiKey.DESCRIBE_CLUSTER)
    assert (times.requests, dict(times.phases())["total"].count) == (1, 0)
    broker.clock.now_ms += 300
    late.complete(messages.DescribeClusterResponse())
    assert whole(answer.result())
    phases = dict(times.phases())
    assert 300_000 <= phases["remote"].sum <= phases["total"].sum <= 300_100


def test_a_request_that_waited_for_its_turn_has_a_queue_time(broker: Broker, metrics: RequestMetrics) -> None:
    """Whole milliseconds count: those of its receipt are not known better."""
    frame_ms = broker.clock.now_ms
    broker.clock.now_ms += 50
    request = messages.DescribeClusterRequest()
    from tidelog.protocol import framing

    frame = memoryview(framing.encode_request(ApiKey.DESCRIBE_CLUSTER, 0, 1, "c", request))[4:]
    broker.dispatcher.request(broker.peer, frame, 0, len(frame), frame_ms)
    phases = dict(metrics.of(ApiKey.DESCRIBE_CLUSTER).phases())
    assert 49_000 <= phases["queue"].sum <= 50_100


def test_errors_are_counted_wherever_they_stand(broker: Broker, metrics: RequestMetrics) -> None:
    """A code for each partition that has one; the answer counts as one that failed."""
    topics = [
        messages.ListOffsetsRequest.ListOffsetsTopic(
            name=name,
            partitions=[
                messages.ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1)
                for index in (0, 77)
            ],
        )
        for name in ("t", "absent")
    ]
    broker.ask(ApiKey.LIST_OFFSETS, 6, messages.ListOffsetsRequest(replica_id=-1, topics=topics))
    times = metrics.of(ApiKey.LIST_OFFSETS)
    assert (sum(times.errors.values()), times.failed) == (3, 1)
    assert times.errors[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] >= 2


def test_every_answer_can_be_searched_for_errors() -> None:
    """Of each response that there is, also where structs are nested or null."""
    for name in dir(messages):
        if name.endswith("Response"):
            assert [*error_codes(getattr(messages, name)())] == []


def test_fetches_are_counted_by_who_asks(broker: Broker, metrics: RequestMetrics) -> None:
    """As Fetch, and as FetchConsumer or FetchFollower."""
    broker.ask(ApiKey.FETCH, 12, messages.FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0))
    broker.ask(ApiKey.FETCH, 12, messages.FetchRequest(replica_id=0, max_wait_ms=0, min_bytes=0))
    assert {times.name: times.requests for times in metrics.seen() if times.name.startswith("Fetch")} == {
        "Fetch": 2,
        "FetchConsumer": 1,
        "FetchFollower": 1,
    }


def test_an_ordinary_fetch_is_a_consumers(broker: Broker, metrics: RequestMetrics) -> None:
    """Though it is never decoded; one that waits counts when it is answered, as any other."""
    broker.produce("t")
    broker.ask(ApiKey.FETCH, 12, broker.fetch_request("t"))
    waiting = broker.send(ApiKey.FETCH, 13, broker.fetch_request("t", 1, version=13, max_wait_ms=500))
    times = metrics.fetch_consumer
    assert (times.requests, times.versions[12], times.versions[13]) == (2, 1, 1)
    assert dict(times.phases())["total"].count == 1
    broker.produce("t")
    assert waiting.done
    assert dict(times.phases())["total"].count == 2


def test_a_mistake_in_measuring_fails_no_request(
    broker: Broker, metrics: RequestMetrics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once and counted; clients get their answers."""

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("tidelog.broker.metrics.requests.error_codes", broken)
    monkeypatch.setattr(MeasuredDispatcher, "_times", None, raising=False)
    broker.dispatcher._times = {}  # type: ignore[attr-defined]
    for _ in range(3):
        response = broker.ask(ApiKey.DESCRIBE_CLUSTER, 0, messages.DescribeClusterRequest())
        assert response.error_code == 0
    assert metrics.faults >= 3
    assert caplog.text.count("request not measured") == 1


class Compiled:
    """Stands for the compiled way: takes so many requests, the last of which may wait."""

    def __init__(self) -> None:
        self.count = 0
        self.late: Deferred[Any] | None = None

    def take(self, *given: Any) -> tuple[int, int, Deferred[Any] | None]:
        return 7, self.count, self.late


def test_the_compiled_way_is_timed_as_a_whole(broker: Broker, metrics: RequestMetrics) -> None:
    """For the reads whose requests are timed: its time is that of all that it took, and the sum is exact."""
    dispatcher: Any = broker.dispatcher
    compiled = dispatcher._ordinary = Compiled()
    times = metrics.of(ApiKey.PRODUCE)
    now_ms = broker.clock.now_ms

    def take(count: int, received_ms: int = now_ms) -> Any:
        assert dispatcher.request == dispatcher.timed
        compiled.count = count
        return dispatcher.ordinary(received_ms).take(broker.peer, memoryview(b""), 0, 0, 9, 9, [])

    assert take(0) == (7, 0, None)
    assert times.at_once.count == 0
    assert take(3) == (7, 3, None)
    assert (times.at_once.count, times.at_once.sum) == (3, 20)
    assert take(7, now_ms - 50) == (7, 7, None)
    phases = {phase: (each.count, each.sum) for phase, each in times.phases()}
    assert phases["local"] == (10, 40)
    assert phases["queue"][0] == 10
    assert phases["queue"][1] >= 7 * 49_000
    late = compiled.late = Deferred()
    take(2)
    assert [each.count for _, each in times.phases()] == [11, 12, 12, 11]
    broker.clock.now_ms += 300
    late.complete(None)
    after = {phase: (each.count, each.sum) for phase, each in times.phases()}
    assert {count for count, _ in after.values()} == {12}
    assert 300_000 <= after["remote"][1] <= 301_000
    dispatcher._times = {}
    compiled.late = None
    assert take(1) == (7, 1, None)
    assert metrics.faults == 1


def test_reads_that_are_not_timed_have_the_compiled_way_itself(broker: Broker, metrics: RequestMetrics) -> None:
    """It counts its requests; where slow ones are to be told, each comes by itself."""
    dispatcher: Any = broker.dispatcher
    compiled = dispatcher._ordinary = Compiled()
    for _ in range(BUSY_READS):
        assert dispatcher.request
    for _ in range(SAMPLED * 10):
        is_timed = dispatcher.request == dispatcher.timed
        assert (dispatcher.ordinary(0) is compiled) is not is_timed
    dispatcher._slow = object()
    assert dispatcher.request == dispatcher.timed
    assert dispatcher.ordinary(0) is None


def test_a_busy_broker_times_a_sample(broker: Broker, metrics: RequestMetrics) -> None:
    """Every request is counted; of those that are timed each stands for several, until the broker is idle again."""
    dispatcher = broker.dispatcher
    assert isinstance(dispatcher, MeasuredDispatcher)
    for _ in range(BUSY_READS):
        assert dispatcher.request
    timed = [dispatcher.request == dispatcher.timed for _ in range(SAMPLED * 10)]
    assert timed.count(True) == 10
    for _ in range(SAMPLED):
        broker.ask(ApiKey.DESCRIBE_CLUSTER, 0, messages.DescribeClusterRequest())
    times = metrics.of(ApiKey.DESCRIBE_CLUSTER)
    assert (times.requests, times.at_once.count) == (SAMPLED, SAMPLED)
    for _ in range(VERY_BUSY_READS):
        assert dispatcher.request
    for _ in range(2):
        # Also in the seconds that follow, from their first read on.
        timed = [dispatcher.request == dispatcher.timed for _ in range(SAMPLED_RARELY * 10)]
        assert timed.count(True) == 10
        dispatcher.adapt()
    dispatcher.adapt()
    assert all(dispatcher.request == dispatcher.timed for _ in range(100))
