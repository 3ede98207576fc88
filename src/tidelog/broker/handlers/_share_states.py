"""What the five APIs of share coordinators have in common: each partition is asked for by itself.

Leaders of share partitions and group coordinators ask; tools may too, with CLUSTER_ACTION.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred, gather
from tidelog.coordinator.share_state.events import ShareKey, StateReply
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

FORBIDDEN: Final = "Cluster authorization failed."
UNKNOWN_TOPIC: Final = "This server does not host this topic-partition."
NO_PARTITION: Final = "The partition id cannot be a negative number."


def ask_all(
    node: Node,
    context: RequestContext,
    request: Any,
    event: Callable[[int, ShareKey, Any], Any],
    response: Any,
    result: Any,
    fill: Callable[[Any, StateReply], object],
    *,
    needs_topic: bool = False,
) -> Any:
    """The answer to `request`: `fill(partition's answer, reply)` for each, of `event(request id, key, what is asked)`.

    `needs_topic`: what concerns no topic that exists is refused.
    """
    may = authorize(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    waiting: list[Deferred[None]] = []
    answer = response()
    for topic in request.topics:
        found = result(topic_id=topic.topic_id)
        answer.results.append(found)
        topic_id = TopicId(bytes(topic.topic_id))
        for wanted in topic.partitions:
            told = response.PartitionResult(partition=wanted.partition)
            found.partitions.append(told)
            if not may:
                refuse(told, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, FORBIDDEN))
            elif wanted.partition < 0:
                refuse(told, KafkaError(ErrorCode.INVALID_REQUEST, NO_PARTITION))
            elif needs_topic and node.metadata.topic_name(topic_id) is None:
                refuse(told, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC))
            else:
                key = ShareKey(request.group_id, topic_id, wanted.partition)
                waiting.append(_ask(node, key, wanted, event, told, fill))
    return gather(waiting).then(lambda _: answer)


def _ask(
    node: Node,
    key: ShareKey,
    wanted: Any,
    event: Callable[[int, ShareKey, Any], Any],
    told: Any,
    fill: Callable[[Any, StateReply], object],
) -> Deferred[None]:
    answer: Deferred[None] = Deferred()

    def settle(outcome: Deferred[StateReply]) -> None:
        try:
            reply = outcome.result()
        except KafkaError as error:
            refuse(told, error)
        else:
            if reply.error is ErrorCode.NONE:
                fill(told, reply)
            else:
                refuse(told, KafkaError(reply.error, reply.message or ""))
        answer.complete(None)

    node.sharing.states.shards.ask(str(key), lambda request_id: event(request_id, key, wanted)).on_complete(settle)
    return answer


def refuse(told: Any, error: KafkaError) -> None:
    """Puts the error into the answer of one partition or topic."""
    told.error_code, told.error_message = error.code, error.message


def failed(request: Any, response: Any, result: Any, error: KafkaError) -> Any:
    """The answer where the whole request failed."""
    answer = response()
    for topic in request.topics:
        found = result(topic_id=topic.topic_id)
        for wanted in topic.partitions:
            told = response.PartitionResult(partition=wanted.partition)
            refuse(told, error)
            found.partitions.append(told)
        answer.results.append(found)
    return answer
