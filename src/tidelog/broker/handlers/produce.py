"""Produce: batches appended as they come.

Versions 0-13 are advertised, 3-13 served: librdkafka before 2.11.1 takes a higher minimum for "no compression".
v3: batches of magic 2 only, one a partition. v5: log start offset. v7: zstd. v8: errors of single records (KIP-467).
v9: flexible. v10: the current leader beside NOT_LEADER_OR_FOLLOWER (KIP-951). v11: TRANSACTION_ABORTABLE. v12:
partitions are added to transactions by the way (KIP-890). v13: topics by id.

acks=0 has no answer; an error closes the connection, so that the producer asks for the leaders anew. acks=1 waits for
the flush where flush.messages is 1; acks=-1 waits for the high watermark, and is told NOT_ENOUGH_REPLICAS_AFTER_APPEND
where too few were in sync by then (`_produce_waits.py`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._ordinary import ProduceFrames
from tidelog.broker.handlers._produce_answers import (
    FLEXIBLE_SINCE,
    NO_OFFSET,
    TOPIC_IDS_SINCE,
    close_on_error,
    failed,
    name_leaders,
    quick_answer,
)
from tidelog.broker.handlers._produce_waits import late_answer, late_answers, when_acknowledged
from tidelog.broker.peer import CloseConnection
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicPartition
from tidelog.model.topics import INTERNAL_TOPICS
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import HEADER_SIZE, Codec, InvalidBatch
from tidelog.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.context import RequestContext
    from tidelog.broker.handler import Handler, OrdinaryRequests, Resume
    from tidelog.broker.node import Node
    from tidelog.broker.peer import Peer
    from tidelog.broker.replicas.replica import Replica
    from tidelog.ports.disk import Bytes
    from tidelog.replication.leader import PartitionLeader
    from tidelog.storage.log import AppendInfo

    Appends: TypeAlias = Sequence[tuple[Replica, AppendInfo | KafkaError]]

KEY: Final = ApiKey.PRODUCE
VERSIONS: Final = Versions(0, 13, served_min=3)

_ADMIN_CLIENT: Final = "__admin_client"
"""The client id by which Kafka's tools may write to internal topics."""
_ZSTD_SINCE: Final = 7
_TRANSACTIONAL: Final = 0x10
_PRODUCER: Final = struct.Struct(">qh")
"""Producer id and epoch, where they stand in a batch."""
_PRODUCER_AT: Final = 43

_EXPECTED_ERRORS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that Kafka does not count as failed produce requests, beside batches that are too large."""

_BATCH_PREFIX: Final = struct.Struct(">qiiBIh")
"""Base offset, length, leader epoch, magic, CRC, attributes."""
_OLD_HEAD: Final = struct.Struct(">hhiih")
"""Before v9: length of the transactional id, acks, timeout, topics, length of the name."""
_OLD_PARTITION: Final = struct.Struct(">iii")
"""Before v9: partitions, index, bytes of records."""
_NEW_HEAD: Final = struct.Struct(">Bhi")
"""From v9 on: length + 1 of the transactional id, acks, timeout; then the compact array of topics."""
_INDEX: Final = struct.Struct(">i")
_ANSWER: Final = struct.Struct(">qqq")


def handle_body(node: Node, context: RequestContext, body: memoryview) -> Any:
    """The shape that nearly every request has: one topic, one partition, one batch, no transaction.

    Whatever is out of the ordinary, errors too, goes through `handle`.
    """
    version = context.api_version
    try:
        if version < FLEXIBLE_SINCE:
            transactional, acks, timeout_ms, topics, name_size = _OLD_HEAD.unpack_from(body)
            if transactional >= 0 or topics != 1 or name_size < 0:
                return NotImplemented
            position = 14 + name_size
            name = bytes(body[14:position])
            partitions, index, size = _OLD_PARTITION.unpack_from(body, position)
            if partitions != 1:
                return NotImplemented
            position += 12
            end = len(body)
        else:
            transactional, acks, timeout_ms = _NEW_HEAD.unpack_from(body)
            if transactional or body[7] != 2:
                return NotImplemented
            position = 8
            if version < TOPIC_IDS_SINCE:
                name_size = body[8] - 1
                if not 0 <= name_size < 127:
                    return NotImplemented
                position = 9 + name_size
                name = bytes(body[9:position])
            else:
                position = 24
                name = bytes(body[8:24])
            if body[position] != 2:
                return NotImplemented
            (index,) = _INDEX.unpack_from(body, position + 1)
            position += 5
            size = shift = 0
            while True:
                byte = body[position]
                position += 1
                size |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            size -= 1
            end = len(body) - 3
        # The records reach exactly to the end, and are a single batch that needs no further thought.
        if position + size != end or size < HEADER_SIZE:
            return NotImplemented
        _, length, _, magic, _, attributes = _BATCH_PREFIX.unpack_from(body, position)
        if length + 12 != size or magic != 2 or attributes & _TRANSACTIONAL:
            return NotImplemented
        if attributes & 7 == 4 and version < _ZSTD_SINCE:
            return NotImplemented
        replica = node.replicas.by_wire_name[name][index]
    except (struct.error, IndexError, KeyError):
        return NotImplemented
    topic = replica.topic_partition[0]
    if (
        not -1 <= acks <= 1
        or replica.leader is None
        or topic in INTERNAL_TOPICS
        or not authorize(context, Operation.WRITE, ResourceType.TOPIC, topic, quiet=True)
    ):
        # Denials are logged there.
        return NotImplemented
    try:
        info = node.replicas.append(replica, body[position : position + size], required_acks=acks)
    except KafkaError:
        # Nothing was appended; the answer with its words is made there, where the attempt is counted.
        replica.traffic.produces -= 1
        return NotImplemented
    if not acks:
        return None
    if node.replicas.acknowledged(replica, info.last_offset, acks):
        return quick_answer(replica, version, context.correlation_id, info)
    return late_answer(node, replica, info, version, context.correlation_id, acks, timeout_ms)


def ordinary(node: Node, handler: Handler, resume: Resume) -> OrdinaryRequests | None:
    """The compiled way of ordinary requests, from the receive buffer on; None where it was not built."""

    def rest(
        peer: Peer, version: int, correlation_id: int, has_client_id: bool, body: memoryview, appends: Appends
    ) -> bytes | Deferred[Any] | None:
        def handle_rest(node: Node, context: RequestContext, request: messages.ProduceRequest) -> Any:
            return handle(node, context, request, appends)

        answer = resume(peer, version, correlation_id, has_client_id, body, handle_rest)
        return b"".join(cast("list[bytes]", answer)) if isinstance(answer, list) else answer

    return None if ProduceFrames is None else ProduceFrames(node, handler, late_answer, late_answers, rest)


class _Outcome:
    """What becomes of the batch for one partition."""

    __slots__ = ("_leader", "answer", "error", "index", "info", "late", "replica", "topic")

    def __init__(self, answer: messages.ProduceResponse.TopicProduceResponse, topic: str, index: int) -> None:
        self.answer = answer
        """Where its own is to stand; the partitions of a topic are in the request's order."""
        self.topic = topic
        self.index = index
        self.replica: Replica | None = None
        self.info: AppendInfo | None = None
        self._leader: PartitionLeader | None = None
        """The leadership in which it was appended, where others of the request are late."""
        self.error: KafkaError | None = None
        self.late: Deferred[AppendInfo] | None = None
        """What it waits for before it is appended: its transaction is not known here yet."""

    def was(self, replica: Replica, result: AppendInfo | KafkaError) -> None:
        """The compiled way has tried it. KafkaError where it was refused."""
        self.replica = replica
        if isinstance(result, KafkaError):
            raise result
        self.info = result

    def settle(self, late: Deferred[AppendInfo]) -> None:
        """Its transaction is known: it was appended, or refused."""
        try:
            self.info = late.result()
        except KafkaError as error:
            self.error = error
        self.note_leadership()

    def note_leadership(self) -> None:
        """It was appended just now, and others are late."""
        self._leader = None if self.replica is None else self.replica.leader

    def check_leadership(self) -> None:
        """Others were late: if its leadership has ended meanwhile, another batch may be at its offsets by now."""
        if self.replica is None or self.info is None:
            return
        if self.replica.log.is_offline:
            self.info, self.error = None, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        elif self.replica.leader is not self._leader:
            self.info, self.error = None, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def handle(
    node: Node, context: RequestContext, request: messages.ProduceRequest, appends: Appends = ()
) -> messages.ProduceResponse | Deferred[messages.ProduceResponse] | None:
    """`appends`: what has become of the first partitions that the request names, where the compiled way has begun."""
    if any(_is_transactional(data.records) for topic in request.topic_data for data in topic.partition_data):
        _check_transaction(context, request)
    response = messages.ProduceResponse()
    outcomes: list[_Outcome] = []
    for topic in request.topic_data:
        answer = messages.ProduceResponse.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        response.responses.append(answer)
        name = topic.name
        if context.api_version >= TOPIC_IDS_SINCE:
            name = node.metadata.topic_name(topic.topic_id) or ""
        for data in topic.partition_data:
            outcome = _Outcome(answer, name, data.index)
            outcomes.append(outcome)
            try:
                if not -1 <= request.acks <= 1:
                    raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks} is none of -1, 0 and 1.")
                if len(outcomes) > len(appends):
                    _append(node, context, request, data, outcome)
                else:
                    outcome.was(*appends[len(outcomes) - 1])
            except KafkaError as error:
                outcome.error = error
                _count_failure(outcome, data.records, error)
                if data.records is not None:
                    refused, now_ms = TopicPartition(name, data.index), node.clock.monotonic_ms()
                    node.replicas.note_refusal(refused, data.records, error.code, now_ms)
    late = [outcome.late for outcome in outcomes if outcome.late is not None]
    if not late:
        return _answer(node, context, request, response, outcomes)

    def appended(_: list[None]) -> Deferred[Any]:
        for outcome in outcomes:
            outcome.check_leadership()
        answer = _answer(node, context, request, response, outcomes)
        return answer if isinstance(answer, Deferred) else Deferred.of(answer)

    for outcome in outcomes:
        if outcome.late is not None:
            outcome.late.on_complete(outcome.settle)
        else:
            outcome.note_leadership()
    return gather([_settled(each) for each in late]).and_then(appended)


def _count_failure(outcome: _Outcome, records: Bytes | None, error: KafkaError) -> None:
    """What a refused batch is in the metrics of its topic."""
    if outcome.replica is not None:
        traffic = outcome.replica.traffic
        if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            traffic.rejected_bytes += len(records or b"")
        elif error.code not in _EXPECTED_ERRORS:
            traffic.failed_produces += 1


def _settled(late: Deferred[AppendInfo]) -> Deferred[None]:
    """Complete when `late` is, whatever became of it."""
    settled: Deferred[None] = Deferred()
    late.on_complete(lambda _: settled.complete(None))
    return settled


def _answer(
    node: Node,
    context: RequestContext,
    request: messages.ProduceRequest,
    response: messages.ProduceResponse,
    outcomes: list[_Outcome],
) -> messages.ProduceResponse | Deferred[messages.ProduceResponse] | None:
    """What is said when all has been appended, or refused: at once, or when the rest is acknowledged."""
    pending: list[tuple[Replica, AppendInfo]] = []
    places: list[messages.ProduceResponse.PartitionProduceResponse] = []
    for outcome in outcomes:
        replica, info = outcome.replica, outcome.info
        if replica is None or info is None:
            error = outcome.error or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            refused = failed(node, context.api_version, outcome.index, outcome.topic, error)
            outcome.answer.partition_responses.append(refused)
            continue
        stamped = replica.log.config.message_timestamp_type
        partition = messages.ProduceResponse.PartitionProduceResponse(
            index=outcome.index,
            base_offset=info.first_offset,
            log_append_time_ms=info.log_append_time_ms if stamped else -1,
            log_start_offset=info.log_start_offset,
        )
        outcome.answer.partition_responses.append(partition)
        if not node.replicas.acknowledged(replica, info.last_offset, request.acks):
            pending.append((replica, info))
            places.append(partition)
    if request.acks == 0:
        close_on_error(response)
        return None
    name_leaders(node, context, response)
    if not pending:
        return response
    return when_acknowledged(node, request, response, pending, places)


def _is_transactional(records: Bytes | None) -> bool:
    return (
        records is not None
        and len(records) >= _BATCH_PREFIX.size
        and bool(_BATCH_PREFIX.unpack_from(records)[-1] & _TRANSACTIONAL)
    )


def _check_transaction(context: RequestContext, request: messages.ProduceRequest) -> None:
    """Whether the transaction's batches may be written at all; KafkaError is the answer for all partitions."""
    name = request.transactional_id
    if name is None or not authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "Transactional batches need a transactional id by which their producer may write.",
        )
    producers = {
        _PRODUCER.unpack_from(data.records, _PRODUCER_AT)
        for topic in request.topic_data
        for data in topic.partition_data
        if data.records is not None and len(data.records) >= HEADER_SIZE and _is_transactional(data.records)
    }
    if len(producers) > 1:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
        )


def _append(
    node: Node,
    context: RequestContext,
    request: messages.ProduceRequest,
    data: messages.ProduceRequest.PartitionProduceData,
    outcome: _Outcome,
) -> None:
    """Appends a partition's batch, or has it appended when its transaction is known."""
    version, topic = context.api_version, outcome.topic
    if not topic:
        if version >= TOPIC_IDS_SINCE:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not authorize(context, Operation.WRITE, ResourceType.TOPIC, topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    records = data.records
    if records is None:
        raise _invalid(version, "must have at least one record batch per partition")
    _check_batch(version, memoryview(records))
    topic_partition = TopicPartition(topic, data.index)
    if node.metadata.image.partition(topic_partition) is None and node.replicas.get(topic_partition) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
    replica = outcome.replica = node.replicas.leader(topic_partition)
    if version >= TOPIC_IDS_SINCE and replica.topic_id not in (ZERO_TOPIC_ID, outcome.answer.topic_id):
        # It is that of a former topic of the name, which this broker has yet to give up.
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    acks, transactional_id = request.acks, request.transactional_id
    if transactional_id is None or not _is_transactional(records) or len(records) < HEADER_SIZE:
        outcome.info = node.replicas.append(replica, records, required_acks=acks)
        return
    appended = node.transactional_appends.append(
        replica, records, required_acks=acks, transactional_id=transactional_id, version=version
    )
    if isinstance(appended, Deferred):
        outcome.late = appended
    else:
        outcome.info = appended


def _check_batch(version: int, records: memoryview) -> None:
    """What this version of Produce allows, before the records are looked into."""
    if not len(records):
        raise _invalid(version, "must have at least one record batch per partition")
    if len(records) < _BATCH_PREFIX.size:
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"{len(records)} bytes are no record batch.")
    _, length, _, magic, _, attributes = _BATCH_PREFIX.unpack_from(records)
    if magic != 2:
        raise _invalid(version, "are only allowed to contain record batches with magic version 2")
    if length >= 0 and length + 12 < len(records):
        raise _invalid(version, "are only allowed to contain exactly one record batch per partition")
    if version < _ZSTD_SINCE and attributes & 7 == Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )


def _invalid(version: int, words: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"Produce requests with version {version} {words}")


def error_response(
    request: messages.ProduceRequest, version: int, error: KafkaError
) -> messages.ProduceResponse | None:
    if request.acks == 0:
        raise CloseConnection(f"produce with acks=0 failed: {error}")
    return messages.ProduceResponse(
        responses=[
            messages.ProduceResponse.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id or ZERO_TOPIC_ID,
                partition_responses=[
                    messages.ProduceResponse.PartitionProduceResponse(
                        index=data.index,
                        error_code=error.code,
                        base_offset=NO_OFFSET,
                        log_start_offset=NO_OFFSET,
                        error_message=error.message,
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
