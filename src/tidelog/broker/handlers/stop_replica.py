"""StopReplica: the controller takes partitions away from this broker, with their files if it says so. Kafka 3.9's.

Versions 0-4, of which 3 and 4 are served: by topic, with leader epochs, since v3. Not advertised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._between_brokers import require_controller
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.model.identifiers import TopicPartition

KEY: Final = ApiKey.STOP_REPLICA
VERSIONS: Final = Versions(3, 4, advertised=False)


def handle(
    node: Node, context: RequestContext, request: messages.StopReplicaRequest
) -> Deferred[messages.StopReplicaResponse]:
    confirmed = require_controller(node, context, request)

    def answer(outcomes: dict[TopicPartition, ErrorCode]) -> messages.StopReplicaResponse:
        return messages.StopReplicaResponse(
            partition_errors=[
                messages.StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=topic, partition_index=partition, error_code=error
                )
                for (topic, partition), error in outcomes.items()
            ]
        )

    def carry_out() -> Deferred[messages.StopReplicaResponse]:
        return node.leadership.stop(request).then(answer)

    return carry_out() if confirmed is None else confirmed.and_then(lambda _: carry_out())


def error_response(
    request: messages.StopReplicaRequest, version: int, error: KafkaError
) -> messages.StopReplicaResponse:
    return messages.StopReplicaResponse(error_code=error.code)
