"""CreatePartitions: more partitions for topics that exist; the controller decides, never fewer.

Versions 0-3. v2: flexible. v3: THROTTLING_QUOTA_EXCEEDED may be answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._deadlines import within
from tidelog.controller.requests import CreatePartitions, MorePartitions, TopicOutcome
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.CREATE_PARTITIONS
VERSIONS: Final = Versions(0, 3)

STRICT_QUOTA_SINCE: Final = 3
"""From here on clients know THROTTLING_QUOTA_EXCEEDED."""


def handle(
    node: Node, context: RequestContext, request: messages.CreatePartitionsRequest
) -> messages.CreatePartitionsResponse | Deferred[messages.CreatePartitionsResponse]:
    counts = Counter(topic.name for topic in request.topics)
    outcomes: dict[str, TopicOutcome] = {}
    wanted: list[MorePartitions] = []
    for topic in request.topics:
        if counts[topic.name] > 1:
            outcomes[topic.name] = TopicOutcome(topic.name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif not authorize(context, Operation.ALTER, ResourceType.TOPIC, topic.name):
            outcomes[topic.name] = TopicOutcome(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        else:
            chosen = topic.assignments
            assignments = None if chosen is None else [list(replicas.broker_ids) for replicas in chosen]
            wanted.append(MorePartitions(topic.name, topic.count, assignments))
    if not wanted:
        return _response([outcomes[name] for name in counts])
    event = CreatePartitions(wanted, request.validate_only, context.mutations(strict_since=STRICT_QUOTA_SINCE))
    outcome = within(node, context, node.controller.submit(event), request.timeout_ms)

    def respond(created: Sequence[TopicOutcome]) -> messages.CreatePartitionsResponse:
        outcomes.update({topic.name: topic for topic in created})
        return _response([outcomes[name] for name in counts])

    return outcome.then(respond)


def _response(outcomes: list[TopicOutcome]) -> messages.CreatePartitionsResponse:
    return messages.CreatePartitionsResponse(
        results=[
            messages.CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=outcome.name, error_code=outcome.error, error_message=outcome.message
            )
            for outcome in outcomes
        ]
    )


def error_response(
    request: messages.CreatePartitionsRequest, version: int, error: KafkaError
) -> messages.CreatePartitionsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return _response([TopicOutcome(name, error.code, error.message) for name in names])
