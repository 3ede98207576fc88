"""DeleteTopics: answered when the topics are gone from the store, after every live replica was stopped.

Versions 1-6. v5: error messages. v6: topics by id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._deadlines import within
from tidelog.controller.requests import DeletedTopic, DeleteTopics, TopicReference
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.DELETE_TOPICS
VERSIONS: Final = Versions(1, 6)

STRICT_QUOTA_SINCE: Final = 5
"""From here on clients know THROTTLING_QUOTA_EXCEEDED."""

TOPIC_IDS_SINCE: Final = 6
DISABLED_SINCE: Final = 3
"""From here on clients know TOPIC_DELETION_DISABLED."""
_UNKNOWN_ID: Final = "This server does not host this topic ID."


def handle(
    node: Node, context: RequestContext, request: messages.DeleteTopicsRequest
) -> messages.DeleteTopicsResponse | Deferred[messages.DeleteTopicsResponse]:
    if not node.config.delete_topic_enable:
        known = context.api_version >= DISABLED_SINCE
        code = ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "Topic deletion is disabled: delete.topic.enable is false.")
    references = _references(request, context.api_version)
    counts = Counter(references)
    outcomes: dict[TopicReference, DeletedTopic] = {}
    wanted: list[TopicReference] = []
    for reference in counts:
        refused = _refusal(node, context, reference, counts[reference])
        if refused is None:
            wanted.append(reference)
        else:
            outcomes[reference] = refused
    if not wanted:
        return _response(list(outcomes.values()))
    outcome = within(
        node,
        context,
        node.controller.submit(DeleteTopics(wanted, context.mutations(strict_since=STRICT_QUOTA_SINCE))),
        request.timeout_ms,
    )

    def respond(deleted: Sequence[DeletedTopic]) -> messages.DeleteTopicsResponse:
        outcomes.update(zip(wanted, deleted, strict=True))
        return _response([outcomes[reference] for reference in counts])

    return outcome.then(respond)


def _references(request: messages.DeleteTopicsRequest, version: int) -> list[TopicReference]:
    if version >= TOPIC_IDS_SINCE:
        return [TopicReference(topic.name, TopicId(bytes(topic.topic_id))) for topic in request.topics]
    return [TopicReference(name) for name in request.topic_names]


def _refusal(node: Node, context: RequestContext, topic: TopicReference, times: int) -> DeletedTopic | None:
    """Why a topic is not even handed to the controller; None when it is."""
    by_id = topic.topic_id != ZERO_TOPIC_ID
    reason = None
    if topic.name is None and not by_id:
        reason = "Neither topic name nor id were specified."
    elif topic.name is not None and by_id:
        reason = "You may not specify both topic name and topic id."
    elif times > 1:
        reason = "Duplicate topic id." if by_id else "Duplicate topic name."
    if reason is not None:
        return DeletedTopic(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, reason)
    if authorize(context, Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        return None
    name = topic.name if topic.name is not None else node.metadata.topic_name(topic.topic_id)
    if name is None:
        # The controller may know it already, and asks for no right to it.
        return DeletedTopic(None, topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)
    if not authorize(context, Operation.DELETE, ResourceType.TOPIC, name):
        if name not in node.metadata.image.topics and authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            return DeletedTopic(topic.name, topic.topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return DeletedTopic(topic.name, topic.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return None


def _response(outcomes: list[DeletedTopic]) -> messages.DeleteTopicsResponse:
    return messages.DeleteTopicsResponse(
        responses=[
            messages.DeleteTopicsResponse.DeletableTopicResult(
                name=outcome.name,
                topic_id=outcome.topic_id,
                error_code=outcome.error,
                error_message=outcome.message,
            )
            for outcome in outcomes
        ]
    )


def error_response(
    request: messages.DeleteTopicsRequest, version: int, error: KafkaError
) -> messages.DeleteTopicsResponse:
    return _response(
        [
            DeletedTopic(reference.name, reference.topic_id, error.code, error.message)
            for reference in dict.fromkeys(_references(request, version))
        ]
    )
