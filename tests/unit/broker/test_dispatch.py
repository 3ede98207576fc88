"""From a request's bytes to its answer's: what goes wrong stays with the connection whose request it was."""

import logging
from typing import Any

import pytest
from tests.unit.broker.harness import Broker, whole

from tidelog.broker.deferred import Deferred
from tidelog.broker.peer import CloseConnection
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

REQUEST = messages.DescribeClusterRequest()


def play(broker: Broker, handle: Any) -> None:
    """Replaces DescribeCluster's handler."""
    broker.node.handlers[ApiKey.DESCRIBE_CLUSTER].handle = handle


def raising(error: Exception) -> Any:
    def handle(*_: Any) -> Any:
        raise error

    return handle


def test_a_kafka_error_becomes_the_answers_error(broker: Broker) -> None:
    """What a handler raises stands in the answer, with its words."""
    play(broker, raising(KafkaError(ErrorCode.NOT_CONTROLLER, "ask elsewhere")))
    response = broker.ask(ApiKey.DESCRIBE_CLUSTER, 0, REQUEST)
    assert (response.error_code, response.error_message) == (ErrorCode.NOT_CONTROLLER, "ask elsewhere")


def test_a_late_failure_becomes_the_answers_error(broker: Broker) -> None:
    """So does what a deferred fails with."""
    late: Deferred[Any] = Deferred()
    play(broker, lambda *_: late)
    answer = broker.send(ApiKey.DESCRIBE_CLUSTER, 0, REQUEST)
    late.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert (
        broker.decode_any(ApiKey.DESCRIBE_CLUSTER, 0, whole(answer.result())).error_code == ErrorCode.REQUEST_TIMED_OUT
    )


def test_an_unexpected_exception_is_logged_and_answered(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """A bug in a handler is UNKNOWN_SERVER_ERROR for its client, and a traceback in the log."""
    play(broker, raising(ZeroDivisionError()))
    with caplog.at_level(logging.ERROR):
        response = broker.ask(ApiKey.DESCRIBE_CLUSTER, 0, REQUEST)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("late", [False, True])
def test_an_answer_that_cannot_be_encoded_ends_its_connection_only(
    broker: Broker, caplog: pytest.LogCaptureFixture, late: bool
) -> None:
    """Whoever completes a waiting answer must not suffer from a mistake in it."""
    wrong = messages.DescribeClusterResponse(controller_id=1 << 40)
    waiting: Deferred[Any] = Deferred()
    play(broker, lambda *_: waiting if late else wrong)
    with caplog.at_level(logging.ERROR):
        if not late:
            with pytest.raises(CloseConnection):
                broker.send(ApiKey.DESCRIBE_CLUSTER, 0, REQUEST)
        else:
            answer = broker.send(ApiKey.DESCRIBE_CLUSTER, 0, REQUEST)
            waiting.complete(wrong)
            with pytest.raises(CloseConnection):
                answer.result()
    assert "answer not encoded" in caplog.text


def test_a_malformed_body_ends_the_connection(broker: Broker) -> None:
    """The header is right, the body is not what the version says."""
    frame = broker.frame(ApiKey.METADATA, 12, messages.MetadataRequest(topics=None))[:-3]
    with pytest.raises(CloseConnection, match="malformed"):
        broker.dispatcher.request(broker.peer, memoryview(frame), 4, len(frame), 0)


def test_the_client_id_is_told_to_handlers(broker: Broker) -> None:
    """As it was sent, null included; the next request's may be another."""
    seen: list[str | None] = []

    def handle(node: Any, context: Any, request: Any) -> messages.DescribeClusterResponse:
        seen.append(context.client_id)
        return messages.DescribeClusterResponse()

    play(broker, handle)
    for client_id in ("one", "one", None, "two", ""):
        broker.ask(ApiKey.DESCRIBE_CLUSTER, 0, REQUEST, client_id)
    assert seen == ["one", "one", None, "two", ""]
