"""What answers of admin requests have in common: errors of the whole and of each part, and the broker asked. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from tidelog.client.errors import ClientError, refusal
from tidelog.client.exchange import ByVersion
from tidelog.client.operations import Call, Deadline, Operation
from tidelog.client.routing import Routing
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicPartition

REQUEST_TIMEOUT_MS: Final = 30_000
"""How long a broker may work on a creation or deletion before it answers."""


def error_of(
    code: int,
    message: str | None,
    subject: str,
    *,
    topic: str | None = None,
    group: str | None = None,
    broker: str | None = None,
) -> KafkaError | None:
    """The error of an answer, in the broker's words or what the code says of `subject`; None where it succeeded."""
    if code == ErrorCode.NONE:
        return None
    return refusal(error_code(code), subject, message, topic=topic, group=group, broker=broker)


def error_codes(entries: Iterable[Any]) -> Iterator[int]:
    """The error codes of an answer's entries."""
    return (entry.error_code for entry in entries)


def ask_broker(routing: Routing, broker_id: int, request: Any, deadline: Deadline) -> Operation[Any]:
    """Asks one broker, or any if `broker_id` is negative; KafkaError if that broker is not live."""
    if broker_id < 0:
        return (yield from routing.ask_any(request, deadline))
    broker = routing.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no live broker {broker_id}")
    outcome = yield from routing.ask(broker.address, request, deadline)
    if isinstance(outcome, ClientError):
        raise outcome
    return outcome


def ask_every_broker(
    routing: Routing, request: ByVersion, deadline: Deadline, subject: str
) -> Operation[dict[int, Any]]:
    """[broker id] -> what every live broker answers, asked again after a retriable error. KafkaError, of `subject`, or
    ClientError where one does not answer: a list made of the others would not be whole."""
    yield from routing.refresh((), deadline)
    answers: dict[int, Any] = {}
    pending = {broker.broker_id: broker.address for broker in routing.brokers.values()}
    attempt = 0
    while pending:
        timeout_s = min(routing.call_timeout_s, deadline.remaining_s)
        outcomes = yield [Call(address, request, timeout_s) for address in pending.values()]
        failure: KafkaError | None = None
        for broker_id, outcome in zip(list(pending), outcomes, strict=True):
            if isinstance(outcome, ClientError):
                raise outcome
            error = error_of(outcome.error_code, None, f"{subject} of broker {broker_id}")
            if error is None:
                del pending[broker_id]
                answers[broker_id] = outcome
            elif error.code.retriable:
                failure = error
            else:
                raise error
        attempt += 1
        if failure is not None and not (yield from routing.pause(attempt, deadline)):
            raise failure
    return answers


def change_partitions(
    routing: Routing,
    request: ByVersion,
    deadline: Deadline,
    entries_of: Callable[[Any], Iterable[tuple[str, int, int, str | None]]],
    refusal: str,
) -> Operation[dict[TopicPartition, KafkaError | None]]:
    """Has the controller change partitions; each one's error or None.

    `entries_of` gives (topic, partition, error code, message) for each partition of the answer. KafkaError, `refusal`
    where the broker has no words, when the whole request was refused. What was known of the topics is forgotten.
    """

    def errors(response: Any) -> Iterator[int]:
        yield response.error_code
        yield from (code for _, _, code, _ in entries_of(response))

    response = yield from routing.ask_controller(request, deadline, errors)
    refused = error_of(response.error_code, getattr(response, "error_message", None), refusal)
    if refused is not None:
        raise refused
    results: dict[TopicPartition, KafkaError | None] = {}
    for topic, partition, code, text in entries_of(response):
        routing.topics.pop(topic, None)
        error = error_of(code, text, f"partition {topic}-{partition}", topic=topic)
        results[TopicPartition(topic, partition)] = None if error is None else error.about(partition=partition)
    return results
