"""CreateTopics: the controller decides; answered when the topics exist and the brokers were told.

Versions 2-7. v4: -1 for the broker's default of partitions and replicas. v5: the answer has partitions, replicas and
all settings. v7: topic ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.broker.cluster.config_entries import topic_entries
from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._deadlines import within
from tidelog.controller.requests import CreatedTopic, CreateTopics, NewTopic
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.CREATE_TOPICS
VERSIONS: Final = Versions(2, 7)

STRICT_QUOTA_SINCE: Final = 6
"""From here on clients know THROTTLING_QUOTA_EXCEEDED."""

DETAILS_SINCE: Final = 5
TOPIC_IDS_SINCE: Final = 7


def handle(
    node: Node, context: RequestContext, request: messages.CreateTopicsRequest
) -> messages.CreateTopicsResponse | Deferred[messages.CreateTopicsResponse]:
    counts = Counter(topic.name for topic in request.topics)
    refused: dict[str, CreatedTopic] = {}
    wanted: list[NewTopic] = []
    for topic in request.topics:
        if counts[topic.name] > 1:
            refused[topic.name] = CreatedTopic(topic.name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif not _may_create(context, topic.name):
            refused[topic.name] = CreatedTopic(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        else:
            wanted.append(_new_topic(topic))
    order = list(counts)
    if not wanted:
        return _response(node, context, order, refused)
    event = CreateTopics(wanted, request.validate_only, context.mutations(strict_since=STRICT_QUOTA_SINCE))
    outcome = within(node, context, node.controller.submit(event), request.timeout_ms)

    def respond(created: Sequence[CreatedTopic]) -> messages.CreateTopicsResponse:
        return _response(node, context, order, refused | {topic.name: topic for topic in created})

    return outcome.then(respond)


def _may_create(context: RequestContext, name: str) -> bool:
    return authorize(context, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True) or authorize(
        context, Operation.CREATE, ResourceType.TOPIC, name
    )


def _new_topic(topic: messages.CreateTopicsRequest.CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(chosen.partition_index, list(chosen.broker_ids)) for chosen in topic.assignments],
        [(config.name, config.value) for config in topic.configs],
    )


def _response(
    node: Node, context: RequestContext, order: list[str], outcomes: dict[str, CreatedTopic]
) -> messages.CreateTopicsResponse:
    return messages.CreateTopicsResponse(topics=[_result(node, context, outcomes[name]) for name in order])


def _result(
    node: Node, context: RequestContext, created: CreatedTopic
) -> messages.CreateTopicsResponse.CreatableTopicResult:
    response = messages.CreateTopicsResponse
    result = response.CreatableTopicResult(name=created.name, error_code=created.error, error_message=created.message)
    if created.error is not ErrorCode.NONE:
        return result
    if context.api_version >= TOPIC_IDS_SINCE:
        result.topic_id = created.topic_id
    if context.api_version < DETAILS_SINCE:
        return result
    if not authorize(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, created.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    result.num_partitions = created.partitions
    result.replication_factor = created.replication_factor
    result.configs = [
        response.CreatableTopicConfigs(
            name=entry.setting.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.setting.is_sensitive,
        )
        for entry in topic_entries(node.config, created.configs)
    ]
    return result


def error_response(
    request: messages.CreateTopicsRequest, version: int, error: KafkaError
) -> messages.CreateTopicsResponse:
    return messages.CreateTopicsResponse(
        topics=[
            messages.CreateTopicsResponse.CreatableTopicResult(
                name=name, error_code=error.code, error_message=error.message
            )
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )
