"""The way to the controller: which requests go where, asked how often, and what an envelope carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.harness import Broker, ManualShell, topic_id_of

from tidelog.broker.cluster import controller_requests
from tidelog.broker.cluster.forwarding import (
    FORWARDED,
    URGENT_MS_MAX,
    Forwarding,
    decode_address,
    decode_principal,
    encode_address,
    encode_principal,
)
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import create_topics
from tidelog.broker.peer import CloseConnection
from tidelog.broker.requests.dispatch import Dispatcher
from tidelog.broker.shell import Purpose
from tidelog.controller.requests import (
    AllocateProducerIds,
    AlterPartition,
    ControlledShutdown,
    CreatedTopic,
    CreateTopics,
    DeleteTopics,
    IsrMember,
    IsrOutcome,
    IsrProposal,
    NewTopic,
    ProducerIdBlock,
)
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)
from tidelog.protocol import codec, framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import ANONYMOUS, Operation, Principal, ResourceType
from tidelog.security.acls import AclEntry, Permission, ResourcePattern
from tidelog.security.authorizer import Authorizer

CREATE = messages.CreateTopicsRequest(
    topics=[messages.CreateTopicsRequest.CreatableTopic(name="new", num_partitions=1, replication_factor=1)],
    timeout_ms=1_000,
)


class Local:
    """This broker's driver, as a test has it."""

    def __init__(self) -> None:
        self.is_controller = False
        self.controller_id = 1
        self.submitted: list[Any] = []
        self.answer: Callable[[Any], Any] = lambda event: None

    def serve(self, event: Any, timeout_ms: int) -> Deferred[Any]:
        self.submitted.append(event)
        outcome: Deferred[Any] = Deferred()
        if self.is_controller:
            outcome.complete(self.answer(event))
        else:
            outcome.fail(KafkaError(ErrorCode.NOT_CONTROLLER))
        return outcome

    lacks_store = False

    def confirm(self, controller_id: int, epoch: int) -> Deferred[bool]:
        return Deferred.of(True)


class Asked:
    """A question to another broker, to be answered by the test."""

    def __init__(self, broker_id: int, purpose: Purpose, message: Any, version: int, timeout_ms: int) -> None:
        self.broker_id, self.purpose, self.message = broker_id, purpose, message
        self.version, self.timeout_ms = version, timeout_ms
        self.answer: Deferred[Any] = Deferred()


class Way:
    """A broker whose controller is elsewhere, or here if the test says so."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.local = Local()
        self.asked: list[Asked] = []
        monkeypatch.setattr(ManualShell, "ask", lambda _, *asked: self._ask(*asked), raising=False)
        node = broker.node
        self.forwarding = Forwarding(
            node.environment,
            self.local,
            metadata=node.metadata,
            settings=broker.settings,
            known_settings=node.known_settings,
        )
        broker.node.controller = self.forwarding
        broker.dispatcher = Dispatcher(broker.node, broker.node.handlers, self.forwarding)

    def _ask(self, *asked: Any) -> Deferred[Any]:
        self.asked.append(Asked(*asked))
        return self.asked[-1].answer


@pytest.fixture
def way(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Way:
    return Way(broker, monkeypatch)


def wrapped(answer: Any, correlation_id: int) -> messages.EnvelopeResponse:
    """A response of CreateTopics version 7 as the controller's broker wraps it."""
    chunks = framing.encode_response(ApiKey.CREATE_TOPICS, 7, correlation_id, answer)
    return messages.EnvelopeResponse(response_data=b"".join(chunks)[4:])  # type: ignore[arg-type]


def created(name: str = "new") -> messages.CreateTopicsResponse:
    return messages.CreateTopicsResponse(
        topics=[messages.CreateTopicsResponse.CreatableTopicResult(name=name, topic_id=topic_id_of(name))]
    )


def test_a_clients_request_goes_in_an_envelope_and_its_answer_comes_back_as_it_is(way: Way) -> None:
    """The client's very bytes, its name and its address; the answer has the client's correlation id."""
    way.broker.peer.principal = Principal("alice")
    answer = way.broker.send(ApiKey.CREATE_TOPICS, 7, CREATE)
    (asked,) = way.asked
    assert (asked.broker_id, asked.purpose) == (1, Purpose.FORWARD)
    header, start = framing.decode_request_header(memoryview(asked.message.request_data))
    assert (header.request_api_key, header.client_id) == (ApiKey.CREATE_TOPICS, "test")
    inside, _ = codec.decode(messages.CreateTopicsRequest, 7, memoryview(asked.message.request_data), start)
    assert inside == CREATE
    assert decode_principal(asked.message.request_principal) == Principal("alice")
    assert decode_address(asked.message.client_host_address) == "127.0.0.1"
    way.broker.lead("new")
    asked.answer.complete(wrapped(created(), header.correlation_id))
    response = way.broker.decode(ApiKey.CREATE_TOPICS, 7, answer.result())
    assert response == created()


def test_an_answer_waits_until_this_broker_knows_what_was_made(way: Way) -> None:
    """Whoever is told may go on at once; after a while it is told all the same."""
    answer = way.broker.send(ApiKey.CREATE_TOPICS, 7, CREATE)
    way.asked[0].answer.complete(wrapped(created(), 1))
    way.broker.shell.advance(100)
    assert not answer.done
    way.broker.lead("new")
    way.broker.shell.advance(10)
    assert answer.done
    late = way.broker.send(ApiKey.CREATE_TOPICS, 7, CREATE)
    way.asked[1].answer.complete(wrapped(created("never"), 2))
    way.broker.shell.advance(60_000)
    assert late.done


def test_a_validation_waits_for_nothing(way: Way) -> None:
    """validate_only makes nothing that could be waited for."""
    request = messages.CreateTopicsRequest(topics=CREATE.topics, timeout_ms=1_000, validate_only=True)
    answer = way.broker.send(ApiKey.CREATE_TOPICS, 7, request)
    way.asked[0].answer.complete(wrapped(created(), 1))
    assert answer.done


@pytest.mark.parametrize(
    "failure",
    [
        ConnectionResetError("gone"),
        TimeoutError("silent"),
        messages.EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER),
    ],
)
def test_another_controller_is_asked_when_the_first_is_none(way: Way, failure: Any) -> None:
    """Broken connections and NOT_CONTROLLER are asked again, of whoever controls then."""
    answer = way.broker.send(ApiKey.CREATE_TOPICS, 7, CREATE)
    if isinstance(failure, Exception):
        way.asked[0].answer.fail(failure)
    else:
        way.asked[0].answer.complete(failure)
    way.local.controller_id = 2
    way.broker.shell.advance(100)
    assert [asked.broker_id for asked in way.asked] == [1, 2]
    way.broker.lead("new")
    way.asked[1].answer.complete(wrapped(created(), 1))
    assert way.broker.decode(ApiKey.CREATE_TOPICS, 7, answer.result()) == created()


def test_a_request_is_handled_here_once_this_broker_controls(way: Way) -> None:
    """The next controller may be this very broker."""
    way.local.controller_id = -1
    answer = way.broker.send(ApiKey.CREATE_TOPICS, 7, CREATE)
    way.broker.shell.advance(100)
    assert not way.asked
    way.local.is_controller = True
    way.local.answer = lambda event: [CreatedTopic(topic.name) for topic in event.topics]
    way.broker.lead("new")
    way.broker.shell.advance(100)
    response = way.broker.decode(ApiKey.CREATE_TOPICS, 7, answer.result())
    assert response.topics[0].error_code == ErrorCode.NONE
    assert way.local.submitted == [CreateTopics([create_topics._new_topic(CREATE.topics[0])])]


def test_without_a_controller_the_client_is_told_in_time(way: Way) -> None:
    """NOT_CONTROLLER when the client's own time is over, not before."""
    way.local.controller_id = -1
    answer = way.broker.send(ApiKey.CREATE_TOPICS, 7, CREATE)
    way.broker.shell.advance(900)
    assert not answer.done
    way.broker.shell.advance(200)
    response = way.broker.decode(ApiKey.CREATE_TOPICS, 7, answer.result())
    assert response.topics[0].error_code == ErrorCode.NOT_CONTROLLER


def test_a_controller_that_breaks_the_connection_for_good_is_a_timeout(way: Way) -> None:
    """Whether the request was carried out is unknown: REQUEST_TIMED_OUT, as Kafka says."""
    answer = way.broker.send(ApiKey.CREATE_TOPICS, 7, CREATE)
    for _ in range(200):
        if way.asked[-1].answer.done:
            break
        way.asked[-1].answer.fail(ConnectionResetError("gone"))
        way.broker.shell.advance(20)
    response = way.broker.decode(ApiKey.CREATE_TOPICS, 7, answer.result())
    assert response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_malformed_request_is_not_forwarded(way: Way) -> None:
    """It ends the connection that sent it, here."""
    frame = bytearray(way.broker.frame(ApiKey.CREATE_TOPICS, 7, CREATE))
    with pytest.raises(CloseConnection, match="malformed"):
        way.broker.dispatcher.request(way.broker.peer, memoryview(frame), 4, len(frame) - 3, 0)
    assert not way.asked


# What brokers ask for themselves.

ISR = AlterPartition(
    BrokerId(0),
    BrokerEpoch(7),
    [
        IsrProposal(
            TopicPartition("a", index),
            TopicId(topic_id_of("a")),
            LeaderEpoch(3),
            [IsrMember(BrokerId(0), BrokerEpoch(7)), IsrMember(BrokerId(2), BrokerEpoch(9))],
            PartitionEpoch(5),
        )
        for index in range(2)
    ],
)


def through_the_wire(message: Any, version: int) -> Any:
    data = b"".join(codec.encode_chunks(message, version))  # type: ignore[arg-type]
    return codec.decode(type(message), version, data)[0]


def test_a_proposed_isr_and_its_outcome_survive_the_wire() -> None:
    """What the controller's broker decodes is the event, what the leader decodes is the outcome."""
    message, version = controller_requests.encode(ISR)
    request = through_the_wire(message, version)
    assert controller_requests.alter_partition_event(request, version, lambda _: "a") == ISR
    outcomes = [
        IsrOutcome(
            TopicPartition("a", 0),
            TopicId(topic_id_of("a")),
            ErrorCode.NONE,
            BrokerId(0),
            LeaderEpoch(3),
            (BrokerId(0), BrokerId(2)),
            PartitionEpoch(6),
        ),
        IsrOutcome(TopicPartition("a", 1), TopicId(topic_id_of("a")), ErrorCode.INELIGIBLE_REPLICA),
    ]
    response = through_the_wire(controller_requests.alter_partition_response(request, outcomes), version)
    assert controller_requests.decode(ISR, response) == outcomes


def test_an_unknown_topic_id_is_told_for_its_partitions() -> None:
    """A topic that was deleted meanwhile harms no other proposal."""
    message, version = controller_requests.encode(ISR)
    event = controller_requests.alter_partition_event(message, version, lambda _: None)
    assert event.proposals == []
    response = through_the_wire(controller_requests.alter_partition_response(message, []), version)
    assert [outcome.error for outcome in controller_requests.decode(ISR, response)] == [ErrorCode.UNKNOWN_TOPIC_ID] * 2


@pytest.mark.parametrize(
    ("event", "response", "expected"),
    [
        (
            AllocateProducerIds(BrokerId(0), BrokerEpoch(7)),
            messages.AllocateProducerIdsResponse(producer_id_start=5_000, producer_id_len=1_000),
            ProducerIdBlock(ProducerId(5_000), 1_000),
        ),
        (
            ControlledShutdown(BrokerId(0), BrokerEpoch(7)),
            controller_requests.controlled_shutdown_response([TopicPartition("a", 3)]),
            [TopicPartition("a", 3)],
        ),
    ],
)
def test_a_brokers_own_questions(way: Way, event: Any, response: Any, expected: Any) -> None:
    """They go by a connection on which no client's request stands before them."""
    outcome = way.forwarding.submit(event)
    (asked,) = way.asked
    assert (asked.purpose, asked.message.broker_id, asked.message.broker_epoch) == (Purpose.REPORT, 0, 7)
    asked.answer.complete(response)
    assert outcome.result() == expected


def test_a_stale_broker_epoch_is_not_asked_again(way: Way) -> None:
    """It is refused as a whole: whoever asked has to look at its own registration."""
    outcome = way.forwarding.submit(ISR)
    way.asked[0].answer.complete(messages.AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    with pytest.raises(KafkaError) as refused:
        outcome.result()
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_proposed_isr_is_given_up_sooner_than_other_questions(way: Way) -> None:
    """An old wish is worth nothing; producer ids are worth waiting for."""
    way.local.controller_id = -1
    isr, ids = way.forwarding.submit(ISR), way.forwarding.submit(AllocateProducerIds(BrokerId(0), BrokerEpoch(7)))
    way.broker.shell.advance(URGENT_MS_MAX)
    assert (isr.done, ids.done) == (True, False)
    way.broker.shell.advance(way.broker.node.config.request_timeout_ms)
    assert ids.done


@pytest.mark.parametrize("timeout_ms", [10_000, 40_000])
def test_a_brokers_own_question_is_asked_again_for_request_timeout_ms(way: Way, timeout_ms: int) -> None:
    """The setting, not a number of ours."""
    way.broker.node.config.values["request.timeout.ms"] = timeout_ms
    way.local.controller_id = -1
    ids = way.forwarding.submit(AllocateProducerIds(BrokerId(0), BrokerEpoch(7)))
    way.broker.shell.advance(timeout_ms - 1_000)
    assert not ids.done
    way.broker.shell.advance(2_000)
    assert ids.done


def test_a_topic_that_a_broker_needs_is_created_elsewhere(way: Way) -> None:
    """CreateTopics as a request of its own; done when this broker knows the topic."""
    outcome = way.forwarding.submit(
        CreateTopics([NewTopic("new", assignment=[(0, [1, 0])], configs=[("cleanup.policy", "compact")])])
    )
    (asked,) = way.asked
    (topic,) = asked.message.topics
    assert (asked.purpose, topic.name) == (Purpose.FORWARD, "new")
    assert [(each.partition_index, each.broker_ids) for each in topic.assignments] == [(0, [1, 0])]
    assert [(each.name, each.value) for each in topic.configs] == [("cleanup.policy", "compact")]
    asked.answer.complete(created())
    assert not outcome.done
    way.broker.lead("new")
    way.broker.shell.advance(10)
    assert outcome.result()[0].name == "new"


def test_what_has_no_request_of_its_own_is_refused_elsewhere(way: Way) -> None:
    """Clients' requests are forwarded before they become events."""
    with pytest.raises(KafkaError) as refused:
        way.forwarding.submit(DeleteTopics([])).result()
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


# The controller's side.


def envelope(broker: Broker, key: ApiKey, version: int, request: Any, principal: Principal = ANONYMOUS) -> Any:
    return messages.EnvelopeRequest(
        request_data=broker.frame(key, version, request)[4:],
        request_principal=encode_principal(principal),
        client_host_address=encode_address("10.0.0.9"),
    )


def test_an_envelope_is_handled_in_its_clients_name(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler sees the client's name and address, not the broker's; the answer has the client's correlation id."""
    seen: list[Any] = []
    handler = broker.node.handlers[ApiKey.CREATE_TOPICS]
    monkeypatch.setattr(handler, "handle", lambda node, context, request: seen.append(context) or created())
    response = broker.ask(ApiKey.ENVELOPE, 0, envelope(broker, ApiKey.CREATE_TOPICS, 7, CREATE, Principal("alice")))
    assert response.error_code == ErrorCode.NONE
    (context,) = seen
    assert (context.principal, context.client_address, context.client_id) == (Principal("alice"), "10.0.0.9", "test")
    correlation_id, answer = framing.decode_response(ApiKey.CREATE_TOPICS, 7, response.response_data)
    assert (correlation_id, answer) == (context.correlation_id, created())


class CatchingUp:
    """Stands in for what follows the store's ACLs: it has missed some."""

    def __init__(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer
        self.known: Deferred[None] = Deferred()

    def caught_up(self) -> Deferred[None]:
        return self.known


def test_an_envelope_is_judged_by_the_acls_that_the_store_has(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender may know of a change that this one has not heard of; what super users ask waits for nothing."""
    security = CatchingUp(Authorizer(["User:admin"]))
    monkeypatch.setattr(broker.node, "_security", security)
    seen: list[Any] = []
    handler = broker.node.handlers[ApiKey.CREATE_TOPICS]

    def handle(node: Any, context: Any, request: Any) -> Any:
        seen.append(context.access.allows(Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster"))
        return created()

    monkeypatch.setattr(handler, "handle", handle)
    broker.ask(ApiKey.ENVELOPE, 0, envelope(broker, ApiKey.CREATE_TOPICS, 7, CREATE, Principal("admin")))
    assert seen == [True]
    asked = envelope(broker, ApiKey.CREATE_TOPICS, 7, CREATE, Principal("alice"))
    answer = broker.send(ApiKey.ENVELOPE, 0, asked)
    assert (answer.done, seen) == (False, [True])
    pattern = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
    security.authorizer.set_acls(pattern, [AclEntry("User:alice", "*", Operation.CREATE, Permission.ALLOW)])
    security.known.complete(None)
    assert (answer.done, seen) == (True, [True, True])


def test_an_envelope_that_meets_no_controller_says_so(broker: Broker) -> None:
    """Before the request is handled, and when the controller resigns in the middle of it."""
    request = envelope(broker, ApiKey.CREATE_TOPICS, 7, CREATE)
    # The fake controller answers every event with NOT_CONTROLLER.
    assert broker.ask(ApiKey.ENVELOPE, 0, request).error_code == ErrorCode.NOT_CONTROLLER
    broker.controller.is_here = False
    assert broker.ask(ApiKey.ENVELOPE, 0, request).error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("data", [b"", b"\0\x13", b"\0\x13\0\7\0\0\0\1\0\4te", b"\0\x13\0\x63\0\0\0\1\xff\xff\0"])
def test_a_malformed_request_inside_is_refused(broker: Broker, data: bytes) -> None:
    """INVALID_REQUEST for the broker that sent it; its connection stays."""
    request = messages.EnvelopeRequest(
        request_data=data, request_principal=encode_principal(ANONYMOUS), client_host_address=b"\x7f\0\0\1"
    )
    assert broker.ask(ApiKey.ENVELOPE, 0, request).error_code == ErrorCode.INVALID_REQUEST


def test_only_requests_for_the_controller_are_forwarded(broker: Broker) -> None:
    """An envelope is no way around the listener for clients."""
    for key in (ApiKey.METADATA, ApiKey.ENVELOPE, ApiKey.LEADER_AND_ISR):
        assert key not in FORWARDED
    request = envelope(broker, ApiKey.METADATA, 12, messages.MetadataRequest(topics=[]))
    assert broker.ask(ApiKey.ENVELOPE, 0, request).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("principal", [b"", b"\0", b"\0\1", b"\0\0\x05Us", b"\0\0\2U\xff\xff\xff\xff\xff\xff", None])
def test_a_principal_that_cannot_be_read_is_refused(broker: Broker, principal: bytes | None) -> None:
    """Nothing is done in the name of nobody."""
    request = envelope(broker, ApiKey.CREATE_TOPICS, 7, CREATE)
    request.request_principal = principal
    response = broker.ask(ApiKey.ENVELOPE, 0, request)
    assert response.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


@pytest.mark.parametrize("name", ["", "x", "CN=" + "long" * 100, "Jörg"])
def test_principals_survive_the_envelope(name: str) -> None:
    """Kafka's own serialization: version 0, type, name, no token."""
    principal = Principal(name, "User")
    assert decode_principal(encode_principal(principal)) == principal
    assert encode_principal(Principal("alice")) == b"\0\0\5User\6alice\0\0"


@pytest.mark.parametrize("host", ["127.0.0.1", "2001:db8::1", "client-3"])
def test_addresses_survive_the_envelope(host: str) -> None:
    """IPv4, IPv6, and the names of a network without addresses."""
    assert decode_address(encode_address(host)) == host
