"""AlterPartition: a leader wants another ISR for its partitions (KIP-497). Kafka 3.9's, asked of the controller.

Versions 2-3: topics by id since v2; v3: the epochs of the ISR's brokers (KIP-903). Not advertised: brokers of ZooKeeper
days know each other's release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.cluster.controller_requests import alter_partition_event, alter_partition_response
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._between_brokers import serve_here
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.model.errors import KafkaError

KEY: Final = ApiKey.ALTER_PARTITION
VERSIONS: Final = Versions(2, 3, advertised=False)


def handle(
    node: Node, context: RequestContext, request: messages.AlterPartitionRequest
) -> Deferred[messages.AlterPartitionResponse]:
    event = alter_partition_event(request, context.api_version, node.metadata.topic_name)
    outcomes = serve_here(node, context, event)
    return outcomes.then(lambda decided: alter_partition_response(request, decided))


def error_response(
    request: messages.AlterPartitionRequest, version: int, error: KafkaError
) -> messages.AlterPartitionResponse:
    return messages.AlterPartitionResponse(error_code=error.code)
