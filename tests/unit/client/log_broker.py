"""A scripted broker with a log in memory: enough of Produce, Fetch and ListOffsets for clients to work against."""

from __future__ import annotations

import threading
from typing import Any

from tests.unit.client.scripted_broker import ScriptedBroker

from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.batch import Record, build_batch, iterate_headers, patch, read_records


class LogBroker(ScriptedBroker):
    """Topic `t`; appends and reads batches of each partition. `fail_next` answers so many of an API with an error."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(
            {
                ApiKey.PRODUCE: self._produce,
                ApiKey.FETCH: self._fetch,
                ApiKey.LIST_OFFSETS: self._list_offsets,
                ApiKey.INIT_PRODUCER_ID: lambda request, version: messages.InitProducerIdResponse(
                    producer_id=42, producer_epoch=1
                ),
            },
            **arguments,
        )
        self.batches: dict[int, list[tuple[int, int, bytes]]] = {}
        """[partition] -> (base offset, next offset, bytes) of each batch."""
        self.fail_next: dict[ApiKey, list[Any]] = {}
        self.log_start = 0
        self.record_errors: dict[int, str] = {}
        """[place in a batch] -> what a refused batch's answer says of that record."""
        self.max_batch_bytes = 1 << 30
        self.too_large = ErrorCode.MESSAGE_TOO_LARGE
        """What is said of a batch above that."""
        self.producers: dict[tuple[int, int], tuple[int, int]] = {}
        """[producer id, partition] -> its epoch and next sequence, judged as Kafka does."""
        self._lock = threading.Lock()

    def append(self, partition: int, *sizes: int) -> None:
        """Appends a batch of so many records for each size; values are the offsets, as text."""
        for size in sizes:
            base = self.end(partition)
            records = [Record(base + i, 1_000 + base + i, None, b"%d" % (base + i)) for i in range(size)]
            self._append(partition, bytes(build_batch(records, base_offset=base)))

    def end(self, partition: int) -> int:
        """The log end offset."""
        batches = self.batches.get(partition)
        return batches[-1][1] if batches else 0

    def records(self, partition: int) -> list[Record]:
        """All records of a partition."""
        return [record for _, _, data in self.batches.get(partition, ()) for record in read_records(data)]

    def _append(self, partition: int, data: bytes) -> int:
        first = self.end(partition)
        copy = bytearray(data)
        for position, header in list(iterate_headers(copy)):
            base = self.end(partition)
            patch(copy, position, base_offset=base, leader_epoch=3)
            piece = bytes(copy[position : position + header.size])
            self.batches.setdefault(partition, []).append((base, base + header.last_offset_delta + 1, piece))
        return first

    def _failure(self, key: ApiKey) -> Any:
        failures = self.fail_next.get(key)
        return failures.pop(0) if failures else None

    def _produce(self, request: Any, version: int) -> Any:
        kind = messages.ProduceResponse
        failure = self._failure(ApiKey.PRODUCE)
        if failure is not None and not isinstance(failure, ErrorCode):
            return failure
        with self._lock:
            responses = [
                kind.TopicProduceResponse(
                    name=topic.name if version < 13 else "",
                    topic_id=topic.topic_id if version >= 13 else bytes(16),
                    partition_responses=[
                        self._produced(entry.index, bytes(entry.records), failure) for entry in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        return None if request.acks == 0 else kind(responses=responses)

    def _produced(self, partition: int, data: bytes, failure: ErrorCode | None) -> Any:
        error = failure or self._judge(partition, data)
        base = -1 if error else self._append(partition, data)
        kind = messages.ProduceResponse
        named = self.record_errors if error else {}
        record_errors = [
            kind.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=words)
            for index, words in named.items()
        ]
        return kind.PartitionProduceResponse(
            index=partition, error_code=error, base_offset=base, record_errors=record_errors
        )

    def _judge(self, partition: int, data: bytes) -> ErrorCode:
        """What a leader says of a batch's size and sequence; NONE where it is appended."""
        _, header = next(iterate_headers(data))
        if len(data) > self.max_batch_bytes:
            return self.too_large
        if header.producer_id < 0:
            return ErrorCode.NONE
        key, next_sequence = (header.producer_id, partition), header.base_sequence + header.last_offset_delta + 1
        epoch, expected = self.producers.get(key, (-1, -1))
        if epoch > header.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch >= 0 and header.base_sequence != (expected if epoch == header.producer_epoch else 0):
            is_repeated = epoch == header.producer_epoch and header.base_sequence < expected
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER if is_repeated else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.producers[key] = (header.producer_epoch, next_sequence)
        return ErrorCode.NONE

    def _fetch(self, request: Any, version: int) -> Any:
        failure = self._failure(ApiKey.FETCH)
        if failure is not None and not isinstance(failure, ErrorCode):
            return failure
        kind = messages.FetchResponse
        return kind(
            responses=[
                kind.FetchableTopicResponse(
                    topic=topic.topic if version < 13 else "",
                    topic_id=topic.topic_id if version >= 13 else bytes(16),
                    partitions=[self._fetched(entry, failure) for entry in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _fetched(self, entry: Any, failure: ErrorCode | None) -> Any:
        kind = messages.FetchResponse.PartitionData
        end = self.end(entry.partition)
        if failure is None and not self.log_start <= entry.fetch_offset <= end:
            failure = ErrorCode.OFFSET_OUT_OF_RANGE
        if failure is not None:
            return kind(partition_index=entry.partition, error_code=failure, high_watermark=-1, records=b"")
        pieces = [piece for _, after, piece in self.batches.get(entry.partition, ()) if after > entry.fetch_offset]
        # Cut where the client asked, as sendfile does, but never within the first batch.
        first = len(pieces[0]) if pieces else 0
        return kind(
            partition_index=entry.partition,
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=self.log_start,
            records=b"".join(pieces)[: max(first, entry.partition_max_bytes)],
        )

    def _list_offsets(self, request: Any, version: int) -> Any:
        kind = messages.ListOffsetsResponse
        return kind(
            topics=[
                kind.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        kind.ListOffsetsPartitionResponse(
                            partition_index=entry.partition_index,
                            error_code=self._failure(ApiKey.LIST_OFFSETS) or ErrorCode.NONE,
                            offset=self.log_start if entry.timestamp == -2 else self.end(entry.partition_index),
                        )
                        for entry in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
