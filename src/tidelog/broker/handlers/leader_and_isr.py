"""LeaderAndIsr: the controller says which broker leads which partition. Kafka 3.9's, the last release that had it.

Versions 0-7, of which 5-7 are served: topic ids since v5. v7: the request's type, full or incremental, which only
KRaft migrations use. Not advertised: brokers of ZooKeeper days know each other's release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._between_brokers import require_controller
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node

KEY: Final = ApiKey.LEADER_AND_ISR
VERSIONS: Final = Versions(5, 7, advertised=False)


def handle(
    node: Node, context: RequestContext, request: messages.LeaderAndIsrRequest
) -> Deferred[messages.LeaderAndIsrResponse]:
    confirmed = require_controller(node, context, request)

    def answer(outcomes: dict[TopicPartition, ErrorCode]) -> messages.LeaderAndIsrResponse:
        response = messages.LeaderAndIsrResponse()
        for topic in request.topic_states:
            errors = messages.LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=_topic_id(node, topic))
            response.topics.append(errors)
            for state in topic.partition_states:
                errors.partition_errors.append(
                    messages.LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                        partition_index=state.partition_index,
                        error_code=outcomes[TopicPartition(topic.topic_name, state.partition_index)],
                    )
                )
        return response

    def carry_out() -> Deferred[messages.LeaderAndIsrResponse]:
        return node.leadership.lead_or_follow(request).then(answer)

    return carry_out() if confirmed is None else confirmed.and_then(lambda _: carry_out())


def _topic_id(node: Node, topic: messages.LeaderAndIsrRequest.LeaderAndIsrTopicState) -> TopicId:
    """The topic's id. Where the controller knows none, it is told the one that this broker's logs have."""
    if topic.topic_id != ZERO_TOPIC_ID:
        return TopicId(topic.topic_id)
    replicas = (
        node.replicas.get(TopicPartition(topic.topic_name, each.partition_index)) for each in topic.partition_states
    )
    ids = (replica.topic_id for replica in replicas if replica is not None)
    return next((topic_id for topic_id in ids if topic_id != ZERO_TOPIC_ID), ZERO_TOPIC_ID)


def error_response(
    request: messages.LeaderAndIsrRequest, version: int, error: KafkaError
) -> messages.LeaderAndIsrResponse:
    return messages.LeaderAndIsrResponse(error_code=error.code)
