"""AlterReplicaLogDirs: this broker's replicas are to lie in other log directories of it (KIP-113).

Versions 1-2; v2: flexible. The answer comes when the moves have begun; DescribeLogDirs shows how far they are. A
partition that is not here yet is REPLICA_NOT_AVAILABLE, or UNKNOWN_TOPIC_OR_PARTITION where the cluster has no such
partition, and will be created in the directory asked for: Kafka's tool asks so before it reassigns.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

logger: Final = logging.getLogger(__name__)

KEY: Final = ApiKey.ALTER_REPLICA_LOG_DIRS
VERSIONS: Final = Versions(1, 2)


def handle(
    node: Node, context: RequestContext, request: messages.AlterReplicaLogDirsRequest
) -> messages.AlterReplicaLogDirsResponse:
    if not authorize(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    outcomes: dict[TopicPartition, ErrorCode] = {}
    for topic_partition, path in _wanted(request):
        try:
            node.moves.alter(topic_partition, path)
        except KafkaError as error:
            # A replica that is not here yet is created there later: tools ask before a reassignment brings it.
            expected = error.code is ErrorCode.REPLICA_NOT_AVAILABLE
            level = logging.INFO if expected else logging.WARNING
            logger.log(level, "not moved: partition=%s to=%s reason=%s", topic_partition, path, error)
            is_unknown = expected and node.metadata.image.partition(topic_partition) is None
            outcomes[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_unknown else error.code
        else:
            outcomes[topic_partition] = ErrorCode.NONE
    return _response(outcomes)


def _wanted(request: messages.AlterReplicaLogDirsRequest) -> Iterator[tuple[TopicPartition, str]]:
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                yield TopicPartition(topic.name, index), directory.path


def _response(outcomes: Mapping[TopicPartition, ErrorCode]) -> messages.AlterReplicaLogDirsResponse:
    kind = messages.AlterReplicaLogDirsResponse
    topics: dict[str, messages.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = {}
    for (topic, index), code in outcomes.items():
        result = topics.setdefault(topic, kind.AlterReplicaLogDirTopicResult(topic_name=topic))
        result.partitions.append(kind.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    return kind(results=list(topics.values()))


def error_response(
    request: messages.AlterReplicaLogDirsRequest, version: int, error: KafkaError
) -> messages.AlterReplicaLogDirsResponse:
    return _response({topic_partition: error.code for topic_partition, _ in _wanted(request)})
