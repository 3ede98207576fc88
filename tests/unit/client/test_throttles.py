"""Pauses that brokers ask for: kept by both clients, and an empty answer is none of the partition's."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.unit.client.log_broker import LogBroker
from tests.unit.client.test_blocking import cluster, offsets_of
from tests.unit.client.test_fetcher import read

from tidelog.client.addresses import Address
from tidelog.client.connection import Connection
from tidelog.client.errors import RequestTimedOut
from tidelog.client.fetching import FetchSettings
from tidelog.client.throttles import THROTTLE_S_MAX, Throttles, throttle_ms
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

A, B = Address("a", 1), Address("b", 1)
TP = TopicPartition("t", 0)


def test_a_broker_is_left_alone_for_as_long_as_it_asked() -> None:
    """The longest pause counts, each broker has its own, and none is endless."""
    now = 100.0
    throttles = Throttles(lambda: now)
    throttles.told(A, 3_000)
    throttles.told(A, 1_000)
    assert (throttles.left_s(A), throttles.left_s(B)) == (3.0, 0.0)
    now = 102.5
    assert throttles.left_s(A) == 0.5
    now = 103.0
    assert throttles.left_s(A) == 0.0
    throttles.told(A, 1 << 31)
    assert throttles.left_s(A) == THROTTLE_S_MAX


def test_old_brokers_have_waited_already() -> None:
    """Before KIP-219 the answer itself came late."""
    response = messages.FetchResponse(throttle_time_ms=70)
    assert (throttle_ms(ApiKey.FETCH, 7, response), throttle_ms(ApiKey.FETCH, 8, response)) == (0, 70)
    assert throttle_ms(ApiKey.SASL_HANDSHAKE, 1, messages.SaslHandshakeResponse()) == 0
    assert throttle_ms(ApiKey.FETCH, 8, messages.FetchResponse(throttle_time_ms=-5)) == 0


async def test_a_connection_sends_nothing_before_the_pause_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a request of another connection of the same client to that broker waits."""
    now = 0.0
    slept: list[float] = []
    sleep = asyncio.sleep

    async def advance(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds
        await sleep(0)

    throttles = Throttles(lambda: now)
    with LogBroker() as broker:
        plain = broker.handlers[ApiKey.METADATA]

        def metadata(request: Any, version: int) -> Any:
            answer = plain(request, version)
            answer.throttle_time_ms = 700
            return answer

        broker.handlers[ApiKey.METADATA] = metadata
        address = Address("127.0.0.1", broker.port)
        one, two = [await Connection.connect(address, timeout_s=5, throttles=throttles) for _ in range(2)]
        monkeypatch.setattr("tidelog.client.connection.asyncio.sleep", advance)
        await one.request(messages.MetadataRequest(topics=[]))
        assert slept == []
        await two.request(messages.ListOffsetsRequest(replica_id=-1))
        assert slept == [0.7]
        one.close()
        two.close()


def throttled(broker: LogBroker, times: int, pause_ms: int) -> None:
    """The next fetches are answered as under a quota that is used up: empty."""
    answer = messages.FetchResponse(throttle_time_ms=pause_ms)
    broker.fail_next[ApiKey.FETCH] = [answer] * times


def test_the_blocking_reader_goes_on_after_a_throttle(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty answer is neither data nor an error, however long the broker makes it wait."""
    slept: list[float] = []
    with LogBroker() as broker, cluster(broker) as client:
        now = time.monotonic()
        client.routing.throttles._now = lambda: now + sum(slept)
        monkeypatch.setattr("tidelog.client.blocking.time.sleep", slept.append)
        broker.append(0, *[10] * 5)
        throttled(broker, 2, 20_000)
        pieces = list(client.iterate_fetch(TP, 0, 50, FetchSettings(partition_max_bytes=300)))
        assert offsets_of(pieces) == list(range(50))
        assert slept == [20.0, 20.0]
        assert client.fetch(TP, 0).records


def test_the_blocking_reader_gives_up_on_answers_that_stay_empty() -> None:
    """A broker that asks for no pause and leaves the partition out is no quota."""
    with LogBroker() as broker, cluster(broker, operation_timeout_s=0.2) as client:
        broker.append(0, 1)
        throttled(broker, 1_000, 0)
        with pytest.raises(RequestTimedOut, match="answers without t-0"):
            list(client.iterate_fetch(TP, 0, 1))


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
async def test_the_fetcher_goes_on_after_a_throttle(code: ErrorCode) -> None:
    """Also where the broker ends the session with it."""
    with LogBroker(partitions=2) as broker:
        broker.append(0, *[10] * 5)
        broker.append(1, 10)
        broker.fail_next[ApiKey.FETCH] = [messages.FetchResponse(throttle_time_ms=1, error_code=code)] * 3
        found = await read(broker, {0: 0, 1: 0}, {0: 50, 1: 10}, partition_max_bytes=300)
        assert found == {0: list(range(50)), 1: list(range(10))}
