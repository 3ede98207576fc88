"""Batches of records on their way to one partition: columns until they are full, bytes from then on."""

from __future__ import annotations

import asyncio
import dataclasses
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from tidelog.client.errors import BatchRefused
from tidelog.client.producer.settings import ProducerSettings
from tidelog.client.producing import ProducedBatch
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.records.columns import BinaryColumn, HeadersColumn, encode_columns

RECORD_OVERHEAD_MAX: Final = 36
"""Bytes a record can take beside its key, value and headers: six varints and the attributes."""
HEADER_OVERHEAD_MAX: Final = 10

Header = tuple[str, bytes | None]


@dataclasses.dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where a record went; `offset` is -1 after acks=0, where nobody says."""

    topic_partition: TopicPartition
    offset: int


class Delivery:
    """The fate of one record; await `place()` or don't: `Producer.flush` tells of failures too."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    async def place(self) -> RecordPlace:
        """Waits for the acknowledgement; KafkaError or ClientError when the record was not delivered.

        RefusedWithBatch: the broker refused other records of its batch; this one may be sent again.
        """
        try:
            result = await asyncio.shield(self._batch.done)
        except BatchRefused as error:
            raise error.of(self._index) from error
        offset = result.base_offset + self._index if result.base_offset >= 0 else -1
        return RecordPlace(self._batch.topic_partition, offset)


class Batch:
    """Records of one partition on their way, as columns until `encode`."""

    __slots__ = (
        "attempts", "base_sequence", "data", "deadline", "done", "header_counts", "header_keys", "header_values",
        "keys", "ready_at", "size", "timestamps", "topic_partition", "values",
    )  # fmt: skip

    def __init__(self, topic_partition: TopicPartition, ready_at: float, deadline: float) -> None:
        self.topic_partition = topic_partition
        self.ready_at = ready_at
        self.deadline = deadline
        self.done: asyncio.Future[ProducedBatch] = asyncio.get_running_loop().create_future()
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps = array("q")
        self.header_counts: list[int] = []
        self.header_keys: list[bytes | None] = []
        self.header_values: list[bytes | None] = []
        self.size = 0
        self.attempts = 0
        self.base_sequence = -1
        self.data: bytes | bytearray | None = None

    def append(
        self, key: bytes | None, value: bytes | None, headers: Sequence[Header], timestamp: int, size: int
    ) -> Delivery:
        """Takes a record of at most `size` bytes."""
        self.keys.append(key)
        self.values.append(value)
        self.timestamps.append(timestamp)
        self.header_counts.append(len(headers))
        for name, content in headers:
            self.header_keys.append(name.encode())
            self.header_values.append(content)
        self.size += size
        return Delivery(self, len(self.values) - 1)

    def encode(self, settings: ProducerSettings, producer_id: int, producer_epoch: int) -> bytes | bytearray:
        """The batch as bytes, made once: a retry must send the same."""
        if self.data is None:
            headers = None
            if self.header_keys:
                headers = HeadersColumn(
                    memoryview(array("i", accumulate(self.header_counts, initial=0))),
                    _column(self.header_keys),
                    _column(self.header_values),
                )
            (self.data,) = encode_columns(
                rows=len(self.values),
                timestamp=memoryview(self.timestamps),
                key=_nullable_column(self.keys),
                value=_nullable_column(self.values),
                headers=headers,
                batch_bytes_max=1 << 30,
                codec=settings.codec,
                level=settings.level,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=self.base_sequence,
                transactional=settings.transactional_id is not None,
            )
        return self.data


def leaderless(batch: Batch) -> KafkaError:
    """Why a batch cannot be sent now."""
    return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{batch.topic_partition} has no leader now")


def refused(batch: Batch, code: ErrorCode, text: str | None, record_errors: Mapping[int, str]) -> KafkaError:
    """What to tell of a batch that a leader does not take; `record_errors`: [place in it] -> what is wrong there."""
    if record_errors:
        return BatchRefused(code, text or str(batch.topic_partition), record_errors)
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        hint = f"{batch.topic_partition}: {len(batch.data or b'')} bytes are above the topic's max.message.bytes"
        return KafkaError(code, f"{hint}; send smaller batches or records, or raise it")
    return KafkaError(code, text or str(batch.topic_partition))


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
