"""Batches of records for one partition: columns while they fill, bytes once they are sent, split where too large."""

from __future__ import annotations

import asyncio
import dataclasses
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from tidelog.client.errors import BatchRefused
from tidelog.client.producer.settings import ProducerSettings
from tidelog.client.producing import Produced, ProducedBatch
from tidelog.client.views import partition_error
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.records.columns import BinaryColumn, HeadersColumn, encode_columns

RECORD_OVERHEAD_MAX: Final = 36
"""Bytes a record can take beside its key, value and headers: six varints and the attributes."""
HEADER_OVERHEAD_MAX: Final = 10

Header = tuple[str, bytes | None]


@dataclasses.dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where a record went; `offset` is -1 after acks=0, and where the broker recognized a batch that it had already."""

    topic_partition: TopicPartition
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """What an idempotent producer signs its batches with; sequences begin at 0 in each new epoch."""

    producer_id: int
    epoch: int


NO_IDENTITY: Final = Identity(-1, -1)


class Delivery:
    """The fate of one record; await `place()` or don't: `Producer.flush` tells of failures too."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def outcome(self) -> RecordPlace | Exception | None:
        """Where the record went, why it was not delivered, or None while that is open. Waits for nothing."""
        batch, index = self._batch, self._index
        while batch.done.done():
            error = batch.done.exception()
            if isinstance(error, BatchRefused):
                return error.of(index)
            if isinstance(error, Exception):
                return error
            result = batch.done.result()
            if isinstance(result, ProducedBatch):
                return _place(batch.topic_partition, result, index)
            batch, index = _part_with(result, index)
        return None

    async def place(self) -> RecordPlace:
        """Waits for the acknowledgement; KafkaError or ClientError when the record was not delivered.

        RefusedWithBatch: the broker refused other records of its batch; this one may be sent again.
        """
        batch, index = self._batch, self._index
        while True:
            try:
                result = await asyncio.shield(batch.done)
            except BatchRefused as error:
                raise error.of(index) from error
            if isinstance(result, ProducedBatch):
                return _place(batch.topic_partition, result, index)
            batch, index = _part_with(result, index)


def _place(topic_partition: TopicPartition, result: ProducedBatch, index: int) -> RecordPlace:
    return RecordPlace(topic_partition, result.base_offset + index if result.base_offset >= 0 else -1)


def _part_with(parts: tuple[Batch, ...], index: int) -> tuple[Batch, int]:
    """The part of a batch that was split which has its record `index`, and where in it."""
    for part in parts:
        if index < part.count:
            return part, index
        index -= part.count
    raise IndexError(index)


class Batch:
    """Records of one partition on their way. `order` sorts a partition's batches as they were made."""

    __slots__ = (
        "base_sequence", "count", "data", "deadline", "done", "header_counts", "header_keys", "header_values",
        "identity", "is_uncertain", "keys", "order", "out_of_sequence_since", "ready_at", "size", "timestamps",
        "topic_partition", "values",
    )  # fmt: skip

    def __init__(
        self, topic_partition: TopicPartition, ready_at: float, deadline: float, order: tuple[int, ...] = (0,)
    ) -> None:
        self.topic_partition = topic_partition
        self.ready_at = ready_at
        self.deadline = deadline
        self.order = order
        self.done: asyncio.Future[ProducedBatch | tuple[Batch, ...]] = asyncio.get_running_loop().create_future()
        """Where the batch went, or the batches that it was split into."""
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps = array("q")
        self.header_counts: list[int] = []
        """How many each record has; empty while none has any."""
        self.header_keys: list[bytes | None] = []
        self.header_values: list[bytes | None] = []
        self.count = 0
        self.size = 0
        self.identity = NO_IDENTITY
        self.base_sequence = -1
        """-1 until the batch is sent for the first time, and for producers that are not idempotent."""
        self.is_uncertain = False
        """Whether an attempt ended without an answer: its records may be in the log."""
        self.out_of_sequence_since: float | None = None
        """Monotonic seconds at which a leader first found the batch out of sequence although it may be in the log."""
        self.data: bytes | bytearray | None = None

    def append(
        self, key: bytes | None, value: bytes | None, headers: Sequence[Header], timestamp: int, size: int
    ) -> Delivery:
        """Takes a record of at most `size` bytes."""
        self.keys.append(key)
        self.values.append(value)
        self.timestamps.append(timestamp)
        index = self.count
        if headers or self.header_counts:
            if len(self.header_counts) < index:
                self.header_counts = [0] * index
            self.header_counts.append(len(headers))
            for name, content in headers:
                self.header_keys.append(name.encode())
                self.header_values.append(content)
        self.size += size
        self.count = index + 1
        return Delivery(self, index)

    def sign(self, identity: Identity, base_sequence: int) -> None:
        """Gives the batch its place in an idempotent producer's order; -1 takes it away."""
        self.identity = identity
        self.base_sequence = base_sequence
        self.data = None

    def encode(self, settings: ProducerSettings) -> bytes | bytearray:
        """The batch as bytes, made once for each identity: a retry must send the same."""
        if self.data is None:
            headers = None
            if self.header_keys:
                headers = HeadersColumn(
                    memoryview(array("i", accumulate(self.header_counts, initial=0))),
                    _column(self.header_keys),
                    _column(self.header_values),
                )
            (self.data,) = encode_columns(
                rows=self.count,
                timestamp=memoryview(self.timestamps),
                key=_nullable_column(self.keys),
                value=_nullable_column(self.values),
                headers=headers,
                batch_bytes_max=1 << 30,
                codec=settings.codec,
                level=settings.level,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                base_sequence=self.base_sequence,
                transactional=settings.transactional_id is not None,
            )
        return self.data

    def split(self) -> tuple[Batch, Batch]:
        """Two batches with half of the bytes each, as far as records allow; they keep identity and sequences."""
        assert self.count > 1
        sizes = self._record_sizes()
        half, taken, middle = sum(sizes) / 2, 0, 0
        while middle < self.count - 1 and (not middle or taken + sizes[middle] / 2 <= half):
            taken += sizes[middle]
            middle += 1
        first_headers = sum(self.header_counts[:middle])
        return (
            self._part(0, slice(0, middle), slice(0, first_headers), taken),
            self._part(1, slice(middle, None), slice(first_headers, None), self.size - taken),
        )

    def _part(self, number: int, rows: slice, headers: slice, size: int) -> Batch:
        part = Batch(self.topic_partition, self.ready_at, self.deadline, (*self.order, number))
        part.keys, part.values, part.timestamps = self.keys[rows], self.values[rows], self.timestamps[rows]
        part.header_counts = self.header_counts[rows]
        part.header_keys, part.header_values = self.header_keys[headers], self.header_values[headers]
        part.count = len(part.values)
        part.size = size
        part.is_uncertain = self.is_uncertain
        if self.base_sequence >= 0:
            part.sign(self.identity, (self.base_sequence + rows.start) % SEQUENCES)
        return part

    def _record_sizes(self) -> list[int]:
        """Bytes of each record at most; their sum is `size`."""
        sizes: list[int] = []
        header = 0
        counts = self.header_counts or [0] * self.count
        for key, value, headers in zip(self.keys, self.values, counts, strict=True):
            size = len(value or b"") + len(key or b"") + RECORD_OVERHEAD_MAX
            for position in range(header, header + headers):
                size += len(self.header_keys[position] or b"") + len(self.header_values[position] or b"")
                size += HEADER_OVERHEAD_MAX
            header += headers
            sizes.append(size)
        return sizes


SEQUENCES: Final = 2**31
"""Sequence numbers wrap to 0 here."""


def failed(topic: str, error: KafkaError) -> Delivery:
    """The fate of a record that is not sent."""
    batch = Batch(TopicPartition(topic, -1), 0.0, 0.0)
    batch.count = 1
    batch.done.set_exception(error)
    batch.done.exception()  # Marks it as seen: flush tells of it if the delivery is not awaited.
    return Delivery(batch, 0)


def leaderless(topic_partition: TopicPartition) -> KafkaError:
    """Why a batch cannot be sent now."""
    return partition_error(topic_partition, ErrorCode.LEADER_NOT_AVAILABLE, f"{topic_partition} has no leader now")


def refused(batch: Batch, answer: Produced) -> KafkaError:
    """The error of a batch that its leader refuses."""
    code, text = answer.code, answer.text
    topic, partition = batch.topic_partition
    if answer.record_errors:
        words = text or str(batch.topic_partition)
        return BatchRefused(code, words, answer.record_errors).about(topic=topic, partition=partition)
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        hint = f"{batch.topic_partition}: {len(batch.data or b'')} bytes are above the topic's max.message.bytes"
        text = f"{hint}; send smaller records, or raise it"
    return partition_error(batch.topic_partition, code, text)


def _nullable_column(values: Sequence[bytes | None]) -> BinaryColumn | None:
    """A column of these values; None, which stands for all null, where they are."""
    return None if values.count(None) == len(values) else _column(values)


def _column(values: Sequence[bytes | None]) -> BinaryColumn:
    present = [value or b"" for value in values]
    offsets = memoryview(array("i", accumulate(map(len, present), initial=0)))
    nulls = values.count(None)
    if not nulls:
        return BinaryColumn(offsets, b"".join(present))
    validity = bytearray((len(values) + 7) // 8)
    for index, value in enumerate(values):
        if value is not None:
            validity[index >> 3] |= 1 << (index & 7)
    return BinaryColumn(offsets, b"".join(present), validity, nulls)
