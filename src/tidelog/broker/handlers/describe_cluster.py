"""DescribeCluster (KIP-700): the brokers, for admin clients.

Versions 0-2. v1: which kind of endpoint is meant; controllers have none of their own here. v2: whether brokers are
fenced; none is, a broker that isn't live isn't listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorized_operations
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import AUTHORIZED_OPERATIONS_UNASKED, CLUSTER_NAME, CLUSTER_OPERATIONS, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.DESCRIBE_CLUSTER
VERSIONS: Final = Versions(0, 2)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(
    node: Node, context: RequestContext, request: messages.DescribeClusterRequest
) -> messages.DescribeClusterResponse:
    if context.api_version >= 1:
        if request.endpoint_type == _CONTROLLERS:
            raise KafkaError(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE, "The request was sent to an endpoint of the wrong type: a broker."
            )
        if request.endpoint_type != _BROKERS:
            raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unknown endpoint type {request.endpoint_type}.")
    image = node.metadata.image
    operations = AUTHORIZED_OPERATIONS_UNASKED
    if request.include_cluster_authorized_operations:
        operations = authorized_operations(context, CLUSTER_OPERATIONS, ResourceType.CLUSTER, CLUSTER_NAME)
    return messages.DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.controller_id if image.is_live(image.controller_id) else NO_LEADER,
        brokers=[
            messages.DescribeClusterResponse.DescribeClusterBroker(
                broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in node.metadata.live_endpoints(context.listener)
        ],
        cluster_authorized_operations=operations,
    )


def error_response(
    request: messages.DescribeClusterRequest, version: int, error: KafkaError
) -> messages.DescribeClusterResponse:
    return messages.DescribeClusterResponse(error_code=error.code, error_message=error.message)
