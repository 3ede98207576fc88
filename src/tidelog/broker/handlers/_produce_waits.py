"""Produce answers that come later: with acks=all once the high watermark has passed, or once the log is flushed.

    appended, not acknowledged -> DelayedProduce -> an error for each append, or none -> the answer

Three ways lead here: a request of the usual shape (`late_answer`), an ordinary one for several partitions
(`late_answers`), and all others (`when_acknowledged`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.handlers._produce_answers import LOG_START_SINCE, NO_OFFSET, failed, quick_answer
from tidelog.broker.replicas.delayed_produce import ACKS_ALL, DelayedProduce
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.deferred import Deferred
    from tidelog.broker.node import Node
    from tidelog.broker.replicas.replica import Replica
    from tidelog.storage.log import AppendInfo

_FAILURE: Final = struct.Struct(">hqq")
_FAILURE_WITH_LOG_START: Final = struct.Struct(">hqqq")
"""A partition's error code, base offset, append time, and log start offset, as they stand in an answer."""


def late_answer(
    node: Node, replica: Replica, info: AppendInfo, version: int, correlation_id: int, acks: int, timeout_ms: int
) -> Deferred[bytes]:
    """The answer of a single batch that is appended, once it is acknowledged."""
    delayed = _delayed_produce(node, acks, [(replica, info)])
    answer = delayed.done.then(lambda errors: _single(node, replica, info, version, correlation_id, error=errors[0]))
    _begin(node, delayed, timeout_ms, answer)
    return answer


def _single(
    node: Node, replica: Replica, info: AppendInfo, version: int, correlation_id: int, *, error: ErrorCode
) -> bytes:
    if error is ErrorCode.NONE:
        return quick_answer(replica, version, correlation_id, info)
    from tidelog.protocol.framing import encode_response

    topic, index = replica.topic_partition
    response = messages.ProduceResponse(
        responses=[
            messages.ProduceResponse.TopicProduceResponse(
                name=topic,
                topic_id=replica.topic_id,
                partition_responses=[failed(node, version, index, topic, KafkaError(error))],
            )
        ]
    )
    chunks = encode_response(ApiKey.PRODUCE, version, correlation_id, response)
    return b"".join(chunks)  # type: ignore[arg-type]


def late_answers(
    node: Node,
    waiting: Sequence[tuple[Replica, AppendInfo, int]],
    version: int,
    acks: int,
    timeout_ms: int,
    answer: bytes,
) -> Deferred[bytes]:
    """The `answer` of a request for several partitions, once all is acknowledged, or has failed.

    `waiting`: the appends that are not acknowledged yet, and where in `answer` the error code of each of them stands.
    """
    delayed = _delayed_produce(node, acks, [(replica, info) for replica, info, _ in waiting])
    failure = _FAILURE_WITH_LOG_START if version >= LOG_START_SINCE else _FAILURE

    def complete(errors: list[ErrorCode]) -> bytes:
        if not any(errors):
            return answer
        patched = bytearray(answer)
        for (_, _, place), error in zip(waiting, errors, strict=True):
            if error is not ErrorCode.NONE:
                failure.pack_into(patched, place, error, *[NO_OFFSET] * (3 if version >= LOG_START_SINCE else 2))
        return bytes(patched)

    late = delayed.done.then(complete)
    _begin(node, delayed, timeout_ms, late)
    return late


def when_acknowledged(
    node: Node,
    request: messages.ProduceRequest,
    response: messages.ProduceResponse,
    pending: list[tuple[Replica, AppendInfo]],
    places: list[messages.ProduceResponse.PartitionProduceResponse],
) -> Deferred[messages.ProduceResponse]:
    """The answer, once every append is acknowledged or has failed, or timed out."""
    delayed = _delayed_produce(node, request.acks, pending)

    def complete(errors: list[ErrorCode]) -> messages.ProduceResponse:
        for place, error in zip(places, errors, strict=True):
            if error is not ErrorCode.NONE:
                place.error_code = error
                place.base_offset = place.log_append_time_ms = place.log_start_offset = NO_OFFSET
        return response

    answer = delayed.done.then(complete)
    _begin(node, delayed, request.timeout_ms, answer)
    return answer


def _delayed_produce(node: Node, acks: int, appends: list[tuple[Replica, AppendInfo]]) -> DelayedProduce:
    return DelayedProduce(
        acks,
        [(replica.delayed(), info.last_offset) for replica, info in appends],
        lambda position: _outcome(node, acks, *appends[position]),
    )


def _begin(node: Node, delayed: DelayedProduce, timeout_ms: int, answer: Deferred[Any]) -> None:
    """Begins to wait; ends early when the producer's connection closes."""
    delayed.begin(node.shell, timeout_ms)
    answer.on_abandoned = delayed.leave


def _outcome(node: Node, acks: int, replica: Replica, info: AppendInfo) -> ErrorCode | None:
    """What became of a delayed append; None while that is open."""
    if replica.log.is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    leader = replica.leader
    if leader is None:
        # A replica that moved to other brokers may have taken the batch with it; of a deleted topic nothing is left.
        is_deleted = replica.removed and node.metadata.image.partition(replica.topic_partition) is None
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_deleted else ErrorCode.NOT_LEADER_OR_FOLLOWER
    if not node.replicas.acknowledged(replica, info.last_offset, acks):
        return None
    if acks == ACKS_ALL and len(leader.maximal_isr) < leader.effective_min_isr:
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return ErrorCode.NONE
