"""The asyncio connection and cluster, against brokers that behave and brokers that don't."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from typing import Any

import pytest
from tests.unit.client.group_broker import GroupBroker
from tests.unit.client.log_broker import LogBroker
from tests.unit.client.scripted_broker import DROP, SILENCE, ScriptedBroker
from tests.waiting import eventually

from tidelog.client import admin
from tidelog.client.addresses import Address
from tidelog.client.blocking_connection import BlockingConnection
from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection
from tidelog.client.coordination import CoordinatorConnection
from tidelog.client.errors import ClientError, ConnectionFailed, InvalidResponse, RequestTimedOut
from tidelog.client.offsets import OffsetFound, list_offsets
from tidelog.client.operations import Call, Purpose
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey


def connect(broker: ScriptedBroker) -> Any:
    """A connection to a scripted broker, to be awaited."""
    return Connection.connect(Address("127.0.0.1", broker.port), timeout_s=5)


def question() -> Any:
    """A request that scripted brokers answer as a test says."""
    return messages.ListOffsetsRequest(replica_id=-1)


async def test_requests_are_pipelined_and_paired() -> None:
    """Many requests at once on one connection each get their own answer."""
    with ScriptedBroker() as broker:
        connection = await connect(broker)
        requests = [messages.MetadataRequest(topics=[_topic(name)]) for name in ("t", *map(str, range(300)))]
        answers = await asyncio.gather(*(connection.request(request) for request in requests))
        assert [answer.topics[0].name for answer in answers] == ["t", *map(str, range(300))]
        assert broker.connections == 1
        connection.close()


def _topic(name: str) -> Any:
    return messages.MetadataRequest.MetadataRequestTopic(name=name)


async def test_old_brokers_are_asked_again_for_their_versions() -> None:
    """The fallback of ApiVersions, over a socket."""
    with ScriptedBroker(versions={ApiKey.API_VERSIONS: (0, 1), ApiKey.METADATA: (0, 4)}) as broker:
        connection = await connect(broker)
        assert connection.versions[ApiKey.METADATA] == (0, 4)
        assert broker.asked_versions(ApiKey.API_VERSIONS) == [4, 1]
        connection.close()


async def test_a_timeout_closes_the_connection_and_fails_the_others() -> None:
    """Whoever waited behind the lost answer learns that the connection ended; a later request too."""
    with ScriptedBroker({ApiKey.LIST_OFFSETS: lambda request, version: SILENCE}) as broker:
        connection = await connect(broker)
        other = asyncio.create_task(connection.request(question(), timeout_s=5))
        with pytest.raises(RequestTimedOut):
            await connection.request(question(), timeout_s=0.1)
        with pytest.raises(ConnectionFailed):
            await other
        with pytest.raises(ConnectionFailed):
            await connection.request(question())


async def test_a_large_answer_may_take_as_long_as_something_of_it_arrives() -> None:
    """By a slow way 50 MiB take longer than a broker may take to answer. One that was given up, and asked for again by
    another connection, would never arrive."""
    with ScriptedBroker({ApiKey.LIST_OFFSETS: lambda request, version: SILENCE}) as broker:
        connection = await connect(broker)
        loop, limit_s = asyncio.get_running_loop(), 180.0
        asked = asyncio.create_task(connection.request(question(), timeout_s=limit_s, is_large=True))
        await eventually(lambda: bool(broker.asked(ApiKey.LIST_OFFSETS)))
        (correlation_id,) = connection._waiting
        response, version = messages.ListOffsetsResponse(topics=[]), broker.asked_versions(ApiKey.LIST_OFFSETS)[0]
        frame = b"".join(map(bytes, framing.encode_response(ApiKey.LIST_OFFSETS, version, correlation_id, response)))
        for arrived in range(len(frame)):
            assert connection._large is not None
            limit, before = connection._large[0], loop.time()
            connection.get_buffer(-1)[:1] = frame[arrived : arrived + 1]
            connection.buffer_updated(1)
            assert (limit.when() or 0) >= before + limit_s
        assert (await asked).topics == []
        assert connection._large is None
        with pytest.raises(RequestTimedOut):
            await connection.request(question(), timeout_s=0.01, is_large=True)
        assert connection.closed


async def test_a_call_that_had_little_time_leaves_the_connection_to_others() -> None:
    """What an operation, or a record, has left of its time says nothing of the broker: another caller's request, which
    may not be repeatable, goes on waiting. One that had its full time ends the connection."""
    may_go = threading.Event()

    def hold(request: Any, version: int) -> Any:
        assert may_go.wait(180)
        return messages.ListOffsetsResponse(topics=[])

    with ScriptedBroker({ApiKey.LIST_OFFSETS: hold}) as broker:
        async with Cluster(broker.bootstrap) as cluster:
            address = Address("127.0.0.1", broker.port)
            other = asyncio.create_task(cluster.call(Call(address, question(), 180)))
            await eventually(lambda: bool(broker.asked(ApiKey.LIST_OFFSETS)))
            late = await cluster.call(Call(address, messages.MetadataRequest(topics=None), 0.05))
            assert isinstance(late, RequestTimedOut)
            assert late.broker == str(address)
            may_go.set()
            assert (await other).topics == []
            assert broker.connections == 1
            cluster.routing.call_timeout_s = 0.05
            broker.handlers[ApiKey.LIST_OFFSETS] = lambda request, version: SILENCE
            assert isinstance(await cluster.call(Call(address, question(), 0.05)), RequestTimedOut)
            assert not cluster.is_connected(address, Purpose.GENERAL)


async def test_cancelling_a_request_leaves_the_connection_to_others() -> None:
    """The late answer is dropped, the next request gets its own."""
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def late(request: Any, version: int) -> Any:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(180)
        return messages.ListOffsetsResponse()

    with ScriptedBroker({ApiKey.LIST_OFFSETS: late}) as broker:
        connection = await connect(broker)
        asked = asyncio.create_task(connection.request(question()))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        release.set()
        answer = await connection.request(messages.MetadataRequest(topics=None))
        assert answer.cluster_id == "scripted"
        connection.close()


HOSTILE = {
    "wrong correlation id": (struct.pack(">ii", 8, 999) + bytes(4), InvalidResponse),
    "negative size": (struct.pack(">i", -5), InvalidResponse),
    "huge size": (struct.pack(">i", 0x7FFFFFFF), InvalidResponse),
    "size below a header": (struct.pack(">i", 2) + b"ab", InvalidResponse),
    "web server": (b"HTTP/1.1 400 Bad Request\r\n\r\n", InvalidResponse),
    "end of the connection": (DROP, ConnectionFailed),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_answers_fail_the_request_at_once(name: str) -> None:
    """Each is one clear error, and the connection is closed."""
    data, error = HOSTILE[name]
    with ScriptedBroker({ApiKey.LIST_OFFSETS: lambda request, version: data}) as broker:
        connection = await connect(broker)
        with pytest.raises(error):
            await connection.request(question(), timeout_s=5)
        assert connection.closed


async def test_a_peer_that_is_no_broker_fails_the_connection() -> None:
    """A greeting answered in another protocol, or not at all."""
    web = ScriptedBroker({ApiKey.API_VERSIONS: lambda request, version: b"HTTP/1.1 400\r\n"})
    with web as broker, pytest.raises(InvalidResponse, match="web server"):
        await connect(broker)
    silent = ScriptedBroker({ApiKey.API_VERSIONS: lambda request, version: SILENCE})
    with silent as broker, pytest.raises(RequestTimedOut):
        await Connection.connect(Address("127.0.0.1", broker.port), timeout_s=0.1)
    with pytest.raises(ConnectionFailed, match="cannot connect"):
        await Connection.connect(Address("127.0.0.1", broker.port), timeout_s=5)


async def test_a_cluster_carries_operations_out_and_shares_connections() -> None:
    """Several operations at once use one connection a broker."""
    with LogBroker() as broker:
        broker.append(1, 5)
        async with Cluster(broker.bootstrap) as cluster:
            partition = TopicPartition("t", 1)
            views, found, described = await asyncio.gather(
                cluster.run(admin.list_topics(cluster.routing)),
                cluster.run(list_offsets(cluster.routing, {partition: -1})),
                cluster.run(admin.describe_cluster(cluster.routing)),
            )
            assert list(views) == ["t"]
            assert found == {partition: OffsetFound(5, -1, -1)}
            assert described.cluster_id == "scripted"
            assert broker.connections == 1


async def test_what_a_broker_lacks_is_told_by_name() -> None:
    """An API without a common version is an error of the client, not of the connection."""
    with ScriptedBroker() as broker:
        async with Cluster(broker.bootstrap, fail_fast=True) as cluster:
            with pytest.raises(ClientError, match="does not serve CreateTopics"):
                await cluster.run(admin.create_topics(cluster.routing, [admin.NewTopic("x")]))
            assert await cluster.run(admin.reassignments(cluster.routing)) == {}
            assert await cluster.run(admin.eligible_replicas(cluster.routing, ["t"])) is None
            errors = await cluster.run(cluster.routing.refresh(["u"], cluster.routing.deadline()))
            assert errors == {"u": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_who_waits_for_anothers_attempt_to_connect_waits_no_longer_than_it_would_alone() -> None:
    """A broker that accepts connections and says nothing, as one that is stopped, is left by all at the same time."""
    with ScriptedBroker({ApiKey.API_VERSIONS: lambda request, version: SILENCE}) as broker:
        async with Cluster(broker.bootstrap) as cluster, asyncio.timeout(180):
            call = Call(Address("127.0.0.1", broker.port), question(), 0.5)
            began = time.monotonic()
            outcomes = await asyncio.gather(*(cluster.call(call) for _ in range(6)))
            assert [type(outcome) for outcome in outcomes] == [RequestTimedOut] * 6
            assert time.monotonic() - began < 1.5


async def test_a_call_whose_time_is_over_costs_no_connection() -> None:
    """It waited for another one's attempt to connect, which succeeded in the end."""
    may_go = threading.Event()
    with ScriptedBroker({ApiKey.LIST_OFFSETS: lambda request, version: messages.ListOffsetsResponse()}) as broker:
        say_versions = broker.handlers[ApiKey.API_VERSIONS]

        def held(request: Any, version: int) -> Any:
            assert may_go.wait(180)
            return say_versions(request, version)

        broker.handlers[ApiKey.API_VERSIONS] = held
        async with Cluster(broker.bootstrap) as cluster, asyncio.timeout(180):
            address = Address("127.0.0.1", broker.port)
            patient = asyncio.create_task(cluster.call(Call(address, question(), 60)))
            await eventually(lambda: broker.connections)
            hasty = await cluster.call(Call(address, question(), 0.1))
            assert isinstance(hasty, RequestTimedOut)
            assert hasty.broker == str(address)
            may_go.set()
            assert not isinstance(await patient, Exception)
            assert broker.connections == 1


async def test_a_coordinator_is_waited_for_until_ones_own_deadline() -> None:
    """Whoever else connects to it at the same time."""
    with GroupBroker() as broker:
        find = broker.handlers[ApiKey.FIND_COORDINATOR]
        may_go = threading.Event()

        def held(request: Any, version: int) -> Any:
            assert may_go.wait(180)
            return find(request, version)

        broker.handlers[ApiKey.FIND_COORDINATOR] = held
        async with Cluster(broker.bootstrap) as cluster, asyncio.timeout(180):
            connection = CoordinatorConnection(cluster, "g")
            beat = messages.HeartbeatRequest(group_id="g")
            patient, hasty = (
                asyncio.create_task(connection.ask(beat, lambda answer: (), cluster.routing.deadline(seconds)))
                for seconds in (60, 0.2)
            )
            with pytest.raises(RequestTimedOut, match=r"0\.2 s"):
                await hasty
            may_go.set()
            await patient
            connection.close()


@pytest.mark.parametrize("host", ["kafka..example", f"{'a' * 64}.example"])
async def test_a_host_that_no_name_can_be_is_a_broker_that_is_not_reached(host: str) -> None:
    """Whether it was typed or is what a broker advertises: callers and background tasks know ConnectionFailed."""
    with pytest.raises(ConnectionFailed, match="cannot connect to"):
        await Connection.connect(Address(host, 9092))
    with pytest.raises(ConnectionFailed, match="cannot connect to"):
        BlockingConnection(Address(host, 9092), client_id="test")
