"""Answers to Produce: of what was appended, in bytes that hardly change, and of what was refused."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.peer import CloseConnection
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.wire import uvarint
from tidelog.records.errors import InvalidBatch

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.broker.replicas.replica import Replica
    from tidelog.storage.log import AppendInfo

LOG_START_SINCE: Final = 5
FLEXIBLE_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 13
NO_OFFSET: Final = -1
_CURRENT_LEADER_SINCE: Final = 10

logger = logging.getLogger(__name__)

_PRODUCER_STATE_ERRORS: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


def quick_answer(replica: Replica, version: int, correlation_id: int, info: AppendInfo) -> bytes:
    """A success, from the bytes around its numbers that are the same every time."""
    answers = replica.answers
    if answers is None:
        answers = replica.answers = {}
    template = answers.get(version)
    if template is None:
        template = answers[version] = _template(replica, version)
    pack, size, before, after = template
    log_append_time_ms = (
        -1 if info.duplicate and not replica.log.config.message_timestamp_type else info.log_append_time_ms
    )
    if version >= LOG_START_SINCE:
        return pack(  # type: ignore[no-any-return]
            size, correlation_id, before, info.first_offset, log_append_time_ms, info.log_start_offset, after
        )
    return pack(size, correlation_id, before, info.first_offset, log_append_time_ms, after)  # type: ignore[no-any-return]


def _template(replica: Replica, version: int) -> tuple[Any, int, bytes, bytes]:
    """`pack`, the size field, and the bytes before and after offset, append time and log start offset."""
    topic, index = replica.topic_partition
    name = topic.encode()
    if version < FLEXIBLE_SINCE:
        before = struct.pack(f">ih{len(name)}siih", 1, len(name), name, 1, index, 0)
        after = struct.pack(">ihi", 0, -1, 0) if version >= 8 else struct.pack(">i", 0)
    else:
        named = replica.topic_id if version >= TOPIC_IDS_SINCE else uvarint(len(name) + 1) + name
        # Header's tags; topics; partitions, index, error. Then: record errors, message, three tag sections, throttle.
        before = b"\0\2" + named + struct.pack(">Bih", 2, index, 0)
        after = b"\1\0\0\0" + bytes(4) + b"\0"
    layout = struct.Struct(f">ii{len(before)}s{'qqq' if version >= LOG_START_SINCE else 'qq'}{len(after)}s")
    return layout.pack, layout.size - 4, before, after


def failed(
    node: Node, version: int, index: int, topic: str, error: KafkaError
) -> messages.ProduceResponse.PartitionProduceResponse:
    response = messages.ProduceResponse.PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=NO_OFFSET,
        log_append_time_ms=-1,
        log_start_offset=NO_OFFSET,
        error_message=error.message,
    )
    if error.code in _PRODUCER_STATE_ERRORS:
        # These make an idempotent producer resend or begin a new epoch; the log says why.
        logger.info("batch refused: reason=%s", error.message)
    if isinstance(error, InvalidBatch):
        response.record_errors = [
            messages.ProduceResponse.BatchIndexAndErrorMessage(
                batch_index=each.batch_index, batch_index_error_message=each.message
            )
            for each in error.record_errors
        ]
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= _CURRENT_LEADER_SINCE:
        node.metadata.name_leader(TopicPartition(topic, index), response.current_leader)
    return response


def name_leaders(node: Node, context: RequestContext, response: messages.ProduceResponse) -> None:
    """Adds where the leaders are that the answer names, so that the producer need not ask (KIP-951)."""
    if context.api_version < _CURRENT_LEADER_SINCE:
        return
    leaders = {
        partition.current_leader.leader_id
        for topic in response.responses
        for partition in topic.partition_responses
        if partition.error_code
    }
    for broker, endpoint in node.metadata.live_endpoints(context.listener) if leaders - {-1} else ():
        if broker.id in leaders:
            response.node_endpoints.append(
                messages.ProduceResponse.NodeEndpoint(
                    node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )


def close_on_error(response: messages.ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                error = ErrorCode(partition.error_code).name
                raise CloseConnection(f"produce with acks=0 failed for {topic.name}-{partition.index}: {error}")
