"""DescribeQuorum (KIP-595, KIP-836): who decides, for tools such as kafka-metadata-quorum.

Versions 0-2. v1: times. v2: directories, endpoints, messages.

The cluster's metadata is in a store, and not in a log that voters replicate. What these tools are asked for is known
all the same: the controller is the leader, its epoch the leader's, and each live broker is a voter, since each may be
the next controller. Offsets and times are -1: there is no log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.topics import CLUSTER_METADATA_TOPIC
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.DESCRIBE_QUORUM
VERSIONS: Final = Versions(0, 2)

_ENDPOINTS_SINCE: Final = 2
_UNKNOWN: Final = -1
_Response = messages.DescribeQuorumResponse


def handle(
    node: Node, context: RequestContext, request: messages.DescribeQuorumRequest
) -> messages.DescribeQuorumResponse:
    if not authorize(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    image = node.metadata.image
    if not image.is_live(image.controller_id):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "There is no controller at the moment.")
    response = messages.DescribeQuorumResponse(
        topics=[
            _Response.TopicData(
                topic_name=topic.topic_name,
                partitions=[_partition(node, topic.topic_name, each.partition_index) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )
    if context.api_version >= _ENDPOINTS_SINCE:
        response.nodes = [
            _Response.Node(
                node_id=broker.id,
                listeners=[_Response.Listener(name=context.listener, host=endpoint.host, port=endpoint.port)],
            )
            for broker, endpoint in node.metadata.live_endpoints(context.listener)
        ]
    return response


def _partition(node: Node, topic: str, partition: int) -> messages.DescribeQuorumResponse.PartitionData:
    if (topic, partition) != (CLUSTER_METADATA_TOPIC, 0):
        return _Response.PartitionData(partition_index=partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    image = node.metadata.image
    return _Response.PartitionData(
        partition_index=partition,
        leader_id=image.controller_id,
        leader_epoch=image.controller_epoch,
        high_watermark=_UNKNOWN,
        current_voters=[
            _Response.ReplicaState(replica_id=broker, log_end_offset=_UNKNOWN) for broker in sorted(image.brokers)
        ],
    )


def error_response(
    request: messages.DescribeQuorumRequest, version: int, error: KafkaError
) -> messages.DescribeQuorumResponse:
    return messages.DescribeQuorumResponse(error_code=error.code, error_message=error.message)
