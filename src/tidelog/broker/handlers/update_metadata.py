"""UpdateMetadata: the controller tells who is alive and who leads what, for Metadata answers. Kafka 3.9's.

Versions 0-8, of which 7 and 8 are served: topic ids since v7. v8: the type, which only KRaft migrations use. Not
advertised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.UPDATE_METADATA
VERSIONS: Final = Versions(7, 8, advertised=False)


def handle(
    node: Node, context: RequestContext, request: messages.UpdateMetadataRequest
) -> messages.UpdateMetadataResponse:
    if not authorize(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if 0 <= request.broker_epoch < node.broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    node.partitions_deleted(node.metadata.update(request))
    return messages.UpdateMetadataResponse()


def error_response(
    request: messages.UpdateMetadataRequest, version: int, error: KafkaError
) -> messages.UpdateMetadataResponse:
    return messages.UpdateMetadataResponse(error_code=error.code)
