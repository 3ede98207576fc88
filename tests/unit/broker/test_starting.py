"""What a broker serves before it knows its cluster."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.harness import Broker, whole

from tidelog.broker.deferred import Deferred
from tidelog.broker.peer import CloseConnection
from tidelog.broker.requests import starting
from tidelog.broker.requests.dispatch import Dispatcher
from tidelog.broker.requests.starting import StartingDispatcher
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey


@pytest.fixture
def ready(broker: Broker) -> Dispatcher:
    """The dispatcher of later; the broker has the one of its start."""
    later = broker.dispatcher
    broker.dispatcher = StartingDispatcher(broker.node, broker.node.handlers)
    return later


def test_the_controller_is_served_and_clients_wait(broker: Broker, ready: Dispatcher) -> None:
    """What the controller told in between is in the answer."""
    answer = broker.send(ApiKey.METADATA, 12, messages.MetadataRequest(topics=None))
    assert isinstance(answer, Deferred)
    assert not answer.done
    broker.lead("told")
    assert broker.ask(ApiKey.API_VERSIONS, 0, messages.ApiVersionsRequest()).error_code == 0
    broker.dispatcher.open(ready)
    response = broker.decode_any(ApiKey.METADATA, 12, whole(answer.result()))
    assert "told" in [topic.name for topic in response.topics]


def test_what_waits_again_is_passed_on(broker: Broker, ready: Dispatcher) -> None:
    """A request that its handler keeps is answered when the handler is done; a client that is gone ends it."""
    late: Deferred[Any] = Deferred()
    abandoned: list[bool] = []
    late.on_abandoned = lambda: abandoned.append(True)
    broker.node.handlers[ApiKey.DESCRIBE_CLUSTER].handle = lambda *_: late
    answer = broker.send(ApiKey.DESCRIBE_CLUSTER, 0, messages.DescribeClusterRequest())
    broker.dispatcher.open(ready)
    answer.abandon()
    assert abandoned
    assert not answer.done
    late.complete(messages.DescribeClusterResponse(cluster_id="c"))
    assert broker.decode_any(ApiKey.DESCRIBE_CLUSTER, 0, answer.result()).cluster_id == "c"


def test_what_a_client_asked_that_is_gone_is_not_begun(
    broker: Broker, ready: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have asked the same again by another connection, for which there is room."""
    asked: list[Any] = []
    handler = broker.node.handlers[ApiKey.DESCRIBE_CLUSTER]
    monkeypatch.setattr(handler, "handle", lambda *arguments: asked.append(arguments))
    request = messages.DescribeClusterRequest()
    monkeypatch.setattr(starting, "KEPT_BYTES_MAX", len(broker.frame(ApiKey.DESCRIBE_CLUSTER, 0, request)))
    broker.send(ApiKey.DESCRIBE_CLUSTER, 0, request).abandon()
    broker.send(ApiKey.DESCRIBE_CLUSTER, 0, request)
    broker.dispatcher.open(ready)
    assert len(asked) == 1


def test_what_is_malformed_ends_its_connection_later(broker: Broker, ready: Dispatcher) -> None:
    """The others that waited are answered all the same."""
    frame = broker.frame(ApiKey.METADATA, 12, messages.MetadataRequest(topics=[]))
    bad = broker.dispatcher.request(broker.peer, memoryview(frame), 4, len(frame) - 1, 0)
    good = broker.send(ApiKey.METADATA, 12, messages.MetadataRequest(topics=[]))
    broker.dispatcher.open(ready)
    with pytest.raises(CloseConnection, match="malformed"):
        bad.result()
    assert good.done


def test_what_waits_is_bounded(broker: Broker, ready: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes beyond the bound has to come again."""
    request = messages.MetadataRequest(topics=[])
    monkeypatch.setattr(starting, "KEPT_BYTES_MAX", len(broker.frame(ApiKey.METADATA, 12, request)))
    broker.send(ApiKey.METADATA, 12, request)
    with pytest.raises(CloseConnection, match="starting"):
        broker.send(ApiKey.METADATA, 12, request)
