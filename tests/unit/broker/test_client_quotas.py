"""Client quotas in force: throttle times in the answers, and connections that are not heard meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.harness import Broker, make_batch, produce_request
from tests.unit.broker.test_server import METADATA, FakeTransport, World, feed, frame

from tidelog.broker.cluster.forwarding import FORWARDED, throttle_ms_of
from tidelog.broker.connections.server import HELD_MAX
from tidelog.broker.handlers import load_handlers
from tidelog.broker.metrics.quota_metrics import collect_quotas
from tidelog.broker.metrics.request_metrics import collect_requests
from tidelog.broker.metrics.requests import MeasuredDispatcher, RequestMetrics
from tidelog.broker.peer import Peer
from tidelog.controller.requests import CreatedTopic
from tidelog.metrics.page import Page, joined
from tidelog.model.errors import KafkaError
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.quotas.entities import CLIENT_ID, IP, USER, Entity, Name, QuotaKey
from tidelog.quotas.request_quota import RequestQuota

USER_ENTITY: dict[str, Name] = {USER: "ANONYMOUS"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(str(tmp_path))
    made.lead("orders")
    yield made
    made.close()


def limit(broker: Broker, key: QuotaKey, value: float, names: dict[str, Name] | None = None) -> list[int]:
    """Sets a quota; the list gets what the connection is throttled for."""
    broker.node.quotas.set(Entity.of(names or USER_ENTITY), {key: value})
    throttled: list[int] = []
    broker.peer.on_throttled = throttled.append
    return throttled


def produce(broker: Broker, size: int, version: int = 9, acks: int = 1, client_id: str = "c") -> Any:
    request = produce_request("orders", make_batch([bytes(size)]), 0, acks, version)
    answer = broker.send(ApiKey.PRODUCE, version, request, client_id)
    return None if answer is None else broker.decode(ApiKey.PRODUCE, version, answer)


@pytest.mark.parametrize("version", [3, 5, 8, 9, 12, 13])
def test_a_producer_over_its_quota_is_answered_and_not_heard(broker: Broker, version: int) -> None:
    """Its records are appended; all versions are told for how long, and the connection is muted for as long."""
    throttled = limit(broker, QuotaKey.PRODUCER_BYTE_RATE, 10_000)
    assert produce(broker, 90_000, version).throttle_time_ms == 0
    assert throttled == []
    answer = produce(broker, 30_000, version)
    assert 2_000 <= answer.throttle_time_ms <= 2_050
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert set(throttled) == {answer.throttle_time_ms}
    assert broker.replica("orders").log.log_end_offset == 2


def test_without_acknowledgement_the_connection_alone_is_throttled(broker: Broker) -> None:
    throttled = limit(broker, QuotaKey.PRODUCER_BYTE_RATE, 10_000)
    assert produce(broker, 120_000, acks=0) is None
    assert throttled[0] >= 2_000


def test_who_is_not_limited_is_left_alone(broker: Broker) -> None:
    throttled = limit(broker, QuotaKey.PRODUCER_BYTE_RATE, 1, {CLIENT_ID: "other"})
    assert produce(broker, 120_000).throttle_time_ms == 0
    assert throttled == []
    assert produce(broker, 120_000, client_id="other").throttle_time_ms > 0


def test_a_consumer_over_its_quota_gets_an_empty_answer(broker: Broker) -> None:
    """What it did not get is not counted: it gets it once what it did get is out of the window."""
    produce(broker, 60_000)
    throttled = limit(broker, QuotaKey.CONSUMER_BYTE_RATE, 10_000)
    request = broker.fetch_request("orders")
    first = broker.ask(ApiKey.FETCH, 12, request)
    assert len(first.responses[0].partitions[0].records) > 60_000
    second = broker.ask(ApiKey.FETCH, 12, request)
    assert second.responses == []
    assert second.error_code == 0
    assert 2_000 <= second.throttle_time_ms <= 2_100
    assert throttled == [second.throttle_time_ms]
    broker.shell.advance(11_000)
    assert broker.ask(ApiKey.FETCH, 12, request).responses


def test_an_answer_carries_what_a_window_allows_at_most(broker: Broker) -> None:
    """Else it would be throttled for ever: Kafka's maxValueInQuotaWindow."""
    for _ in range(4):
        produce(broker, 4_000)
    limit(broker, QuotaKey.CONSUMER_BYTE_RATE, 1_000)
    answer = broker.ask(ApiKey.FETCH, 12, broker.fetch_request("orders"))
    assert 0 < answer.throttle_time_ms < 200
    broker.shell.advance(answer.throttle_time_ms)
    answer = broker.ask(ApiKey.FETCH, 12, broker.fetch_request("orders"))
    assert len(answer.responses[0].partitions[0].records) == 10_000


def test_a_throttled_fetch_begins_no_session_and_keeps_the_one_there_is(broker: Broker) -> None:
    produce(broker, 60_000)
    limit(broker, QuotaKey.CONSUMER_BYTE_RATE, 10_000)
    request = broker.fetch_request("orders", session_epoch=0)
    session_id = broker.ask(ApiKey.FETCH, 12, request).session_id
    assert session_id
    assert broker.ask(ApiKey.FETCH, 12, request).session_id == 0
    assert len(broker.node.fetch_sessions) == 1
    following = broker.fetch_request("orders", session_id=session_id, session_epoch=1)
    throttled = broker.ask(ApiKey.FETCH, 12, following)
    assert (throttled.session_id, throttled.responses) == (session_id, [])
    broker.shell.advance(11_000)
    following = broker.fetch_request("orders", session_id=session_id, session_epoch=2)
    assert broker.ask(ApiKey.FETCH, 12, following).responses


def test_followers_are_not_limited(broker: Broker) -> None:
    """A quota of everybody's, default user, does not slow replication."""
    broker.lead("copied", isr=[0, 1], replicas=[0, 1], leader_epoch=1)
    throttled = limit(broker, QuotaKey.CONSUMER_BYTE_RATE, 1, {USER: None})
    broker.node.quotas.set(Entity.of({USER: None}), {QuotaKey.REQUEST_PERCENTAGE: 1e-9})
    request = broker.fetch_request("copied")
    request.replica_id = 1
    for _ in range(3):
        assert broker.ask(ApiKey.FETCH, 12, request).throttle_time_ms == 0
    assert throttled == []


def test_requests_that_use_up_their_time_are_throttled_for_a_second_at_most(broker: Broker) -> None:
    throttled = limit(broker, QuotaKey.REQUEST_PERCENTAGE, 1e-9)
    request = messages.ApiVersionsRequest(client_software_name="c", client_software_version="1")
    answers = [broker.ask(ApiKey.API_VERSIONS, 3, request) for _ in range(2)]
    answers += [broker.ask(ApiKey.METADATA, 12, messages.MetadataRequest(topics=[])) for _ in range(2)]
    assert [answer.throttle_time_ms for answer in answers] == [1_000] * 4
    assert throttled == [1_000] * 4
    produce(broker, 10, acks=0)
    assert throttled == [1_000] * 4


@pytest.mark.parametrize(
    ("version", "codes", "throttle_ms"), [(5, [0, 0, 0], 7_000), (6, [0, 0, 89], 1_000), (7, [0, 0, 89], 1_000)]
)
def test_changes_beyond_the_quota(broker: Broker, version: int, codes: list[int], throttle_ms: int) -> None:
    """Older versions do not know THROTTLING_QUOTA_EXCEEDED: what they ask for is done, and throttled."""
    throttled = limit(broker, QuotaKey.CONTROLLER_MUTATION_RATE, 1)

    def create(event: Any) -> list[CreatedTopic]:
        outcomes = []
        for topic in event.topics:
            try:
                event.quota.record(topic.partitions, broker.clock.now_ms)
            except KafkaError as error:
                outcomes.append(CreatedTopic(topic.name, error.code, error.message))
            else:
                outcomes.append(CreatedTopic(topic.name))
        return outcomes

    broker.controller.on_submit = create
    topics = [
        messages.CreateTopicsRequest.CreatableTopic(name=f"t{number}", num_partitions=6, replication_factor=1)
        for number in range(3)
    ]
    answer = broker.ask(ApiKey.CREATE_TOPICS, version, messages.CreateTopicsRequest(topics=topics, timeout_ms=1_000))
    assert [topic.error_code for topic in answer.topics] == codes
    assert answer.throttle_time_ms == throttle_ms
    assert throttled == [throttle_ms]


def test_the_throttle_of_a_forwarded_answer_is_found_in_every_version() -> None:
    """Another broker's answer is handed on as bytes: its throttle time is where `throttle_ms_of` looks."""
    handlers = load_handlers()
    for key in FORWARDED:
        versions = handlers[key].versions
        for version in range(versions.lowest, versions.highest + 1):
            response = messages.response_class(key)(throttle_time_ms=4_711)
            encoded = b"".join(framing.encode_response(key, version, 1, response))  # type: ignore[arg-type]
            assert throttle_ms_of(key, version, encoded) == 4_711, (key, version)


def test_metrics_show_what_is_used_of_a_quota(broker: Broker) -> None:
    """By budget: of each client id here, of all that share one once; and the throttle times of produce requests."""
    metrics = RequestMetrics(lambda: broker.clock.now_ms * 1_000_000)
    broker.dispatcher = MeasuredDispatcher(broker.node, broker.node.handlers, None, metrics)
    limit(broker, QuotaKey.PRODUCER_BYTE_RATE, 10_000, {CLIENT_ID: None})
    limit(broker, QuotaKey.REQUEST_PERCENTAGE, 1_000, USER_ENTITY)
    for client_id, size in (("a", 120_000), ("b", 5_000)):
        produce(broker, size, client_id=client_id)
    page = Page()
    for _ in (*collect_quotas(page, broker.node), *collect_requests(page, metrics)):
        pass
    text = joined(list(page.chunks())).decode()
    found = dict(line.rsplit(" ", 1) for line in text.splitlines())
    assert float(found['kafka_server_produce_byte_rate{user="",client_id="a"}']) > 12_000
    assert int(found['kafka_server_produce_throttle_time{user="",client_id="a"}']) >= 2_000
    assert int(found['kafka_server_produce_throttle_time{user="",client_id="b"}']) == 0
    assert 'kafka_server_request_request_time{user="ANONYMOUS",client_id=""}' in found
    assert found["tidelog_client_quotas"] == "2"
    assert found['kafka_network_requestmetrics_throttletimems_sum{request="Produce"}'].startswith("20")


# The connection.


class Throttling:
    """A dispatcher that throttles a connection with each request."""

    def ordinary(self, received_ms: int) -> None:
        """Every request comes by `request`."""

    def __init__(self, milliseconds: int) -> None:
        self.milliseconds = milliseconds
        self.requests = 0

    def connection_closed(self, peer: Peer) -> None:
        """Nothing here belongs to a connection."""

    def request(self, peer: Peer, view: memoryview, position: int, end: int, received_ms: int) -> bytes:
        self.requests += 1
        peer.throttle(self.milliseconds)
        return b"answer"


def test_a_muted_connection_is_answered_and_its_next_requests_wait() -> None:
    world = World()
    dispatcher = Throttling(2_000)
    world.server.dispatcher = dispatcher  # type: ignore[assignment]
    connection, transport = world.connect()
    feed(connection, frame() * 3)
    assert (dispatcher.requests, transport.written, transport.paused) == (1, [b"answer"], True)
    assert not connection.is_idle
    world.shell.advance(1_999)
    assert dispatcher.requests == 1
    world.shell.advance(1)
    assert dispatcher.requests == 2
    world.shell.advance(2_000)
    assert dispatcher.requests == 3
    assert transport.paused
    world.shell.advance(2_000)
    assert not transport.paused


def test_the_throttle_ends_with_the_connection() -> None:
    world = World()
    world.server.dispatcher = Throttling(2_000)  # type: ignore[assignment]
    connection, _ = world.connect()
    feed(connection, frame())
    connection.connection_lost(None)
    assert connection._muted is not None
    assert world.shell.waiting_timers <= 1  # The sweep of idle ones.


def test_a_large_frame_waits_for_the_end_of_a_throttle() -> None:
    world = World()
    dispatcher = Throttling(2_000)
    world.server.dispatcher = dispatcher  # type: ignore[assignment]
    connection, transport = world.connect()
    data = frame() + frame(METADATA, bytes(300_000))
    sent = feed(connection, data)
    assert dispatcher.requests == 1
    world.shell.advance(2_000)
    feed(connection, data[sent:])
    world.shell.run_turns()
    assert dispatcher.requests == 2
    assert transport.paused


def test_connections_over_their_addresss_rate_are_held_and_closed() -> None:
    """Ten seconds' worth may come at once; the next one is not read, and reset after its throttle."""
    world = World()
    world.server.quotas.set(Entity.of({IP: "10.0.0.1"}), {QuotaKey.CONNECTION_CREATION_RATE: 2})
    for _ in range(20):
        assert not world.connect("10.0.0.1")[1].paused
    connection, transport = world.connect("10.0.0.1")
    assert transport.paused
    assert connection not in world.server.connections
    world.shell.advance(499)
    assert not transport.closed
    world.shell.advance(1)
    assert transport.aborted
    assert world.dispatcher.requests == []
    assert not world.connect("10.0.0.2")[1].paused


def test_connections_over_a_listeners_rate_wait_for_one_another() -> None:
    world = World(max_connection_creation_rate=2)
    transports: list[FakeTransport] = []
    connections = []
    for _ in range(23):
        connection, transport = world.connect()
        connections.append(connection)
        transports.append(transport)
    assert [transport.paused for transport in transports] == [False] * 20 + [True] * 3
    world.shell.advance(500)
    assert [transport.paused for transport in transports[20:]] == [False, True, True]
    world.shell.advance(500)
    assert [transport.paused for transport in transports[20:]] == [False, False, True]
    feed(connections[20], frame())
    assert len(world.dispatcher.requests) == 1


def test_rates_hold_tls_connections_before_their_handshake() -> None:
    """Over a listener's rate the handshake waits; over an address's the connection is reset before there is one."""
    world = World(max_connection_creation_rate=2)

    def begin(address: str = "127.0.0.1") -> tuple[int, FakeTransport]:
        transport = FakeTransport(address)
        return world.server.connection("PLAINTEXT").handshake_begins(transport), transport  # type: ignore[arg-type]

    assert [begin()[0] for _ in range(22)] == [0] * 20 + [500, 1_000]
    world.server.quotas.set(Entity.of({IP: "10.0.0.1"}), {QuotaKey.CONNECTION_CREATION_RATE: 0.1})
    begin("10.0.0.1")
    waits_ms, transport = begin("10.0.0.1")
    assert not transport.closed
    world.shell.advance(waits_ms - 1)
    assert transport.aborted
    assert len(world.server.connections) == 23


def test_a_listener_has_a_rate_of_its_own() -> None:
    world = World(
        **{
            "listeners": "PLAINTEXT://:9092,OTHER://:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
            "listener.name.other.max.connection.creation.rate": 1,
        }
    )
    for _ in range(30):
        assert not world.connect(listener="PLAINTEXT")[1].paused
    assert [world.connect(listener="OTHER")[1].paused for _ in range(11)] == [False] * 10 + [True]


def test_many_connections_over_a_rate_are_not_all_held() -> None:
    """Else they would use up descriptors that max.connections does not count."""
    world = World()
    world.server.quotas.set(Entity.of({IP: None}), {QuotaKey.CONNECTION_CREATION_RATE: 1})
    transports = [world.connect("10.0.0.1")[1] for _ in range(10 + HELD_MAX + 1)]
    assert [transport.aborted for transport in transports[-2:]] == [False, True]
    world.shell.advance(1_000)
    assert all(transport.aborted for transport in transports[10:])


def test_the_time_that_an_answer_takes_counts_for_the_next_request(broker: Broker) -> None:
    limit(broker, QuotaKey.REQUEST_PERCENTAGE, 1e-9)
    client = broker.node.quotas.of("ANONYMOUS", "test", 0)
    assert client is not None
    quota = RequestQuota(client)
    quota.begin(1)
    quota.pause(1_001)
    quota.answered(0)
    assert quota.throttle_ms == 0
    following = RequestQuota(client)
    following.begin(1)
    following.pause(2)
    following.spent(0)
    assert following.throttle_ms == 1_000
