"""AlterShareGroupOffsets: a share group without members begins anew at other offsets (KIP-932).

Version 0. A group that is not there is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._share_offsets import check_group, refuse_forbidden, refuse_unknown
from tidelog.broker.handlers._share_states import refuse
from tidelog.broker.sharing.offsets import ByKey
from tidelog.coordinator.share_state.events import ShareKey
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.ALTER_SHARE_GROUP_OFFSETS
VERSIONS: Final = Versions(0, 0)

_Response = messages.AlterShareGroupOffsetsResponse
_Partition = _Response.AlterShareGroupOffsetsResponsePartition


def handle(
    node: Node, context: RequestContext, request: messages.AlterShareGroupOffsetsRequest
) -> messages.AlterShareGroupOffsetsResponse | Deferred[messages.AlterShareGroupOffsetsResponse]:
    group = request.group_id
    check_group(context, Operation.READ, group)
    response = _Response()
    starts: dict[tuple[TopicId, int], int] = {}
    waiting: list[tuple[ShareKey, messages.AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition]] = []
    for topic in request.topics:
        name = topic.topic_name
        known = node.metadata.image.topics.get(name)
        topic_id = ZERO_TOPIC_ID if known is None else known.topic_id
        told = _Response.AlterShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id)
        response.responses.append(told)
        may = authorize(context, Operation.READ, ResourceType.TOPIC, name)
        for partition in topic.partitions:
            found = _Partition(partition_index=partition.partition_index)
            told.partitions.append(found)
            if not may:
                refuse_forbidden(found)
            elif node.metadata.image.partition(TopicPartition(name, partition.partition_index)) is None:
                refuse_unknown(found)
            else:
                starts[topic_id, partition.partition_index] = partition.start_offset
                waiting.append((ShareKey(group, topic_id, partition.partition_index), found))

    def done(outcomes: ByKey) -> messages.AlterShareGroupOffsetsResponse:
        for key, partition in waiting:
            outcome = outcomes[key]
            if isinstance(outcome, KafkaError):
                refuse(partition, outcome)
        return response

    return node.sharing.offsets.alter(group, starts).then(done)


def error_response(
    request: messages.AlterShareGroupOffsetsRequest, version: int, error: KafkaError
) -> messages.AlterShareGroupOffsetsResponse:
    return _Response(error_code=error.code, error_message=error.message)
