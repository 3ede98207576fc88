"""What a consumer gives its caller: a piece of one partition, decoded when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.client.consumed import ConsumedRecord, consumed_columns, consumed_records
from tidelog.client.fetching import FetchedData
from tidelog.model.identifiers import TopicPartition
from tidelog.records.columns import ALL, Column, Columns


class ConsumedBatch:
    """A piece of one partition, as it came from the broker: decoded when it is asked for records or columns.

    It holds the records from `offset` up to `next_offset`; there may be none, where all were aborted or compacted away.
    """

    __slots__ = ("_committed_only", "_data")

    def __init__(self, data: FetchedData, committed_only: bool) -> None:
        self._data = data
        self._committed_only = committed_only

    def __iter__(self) -> Iterator[ConsumedRecord]:
        return self.records()

    @property
    def topic_partition(self) -> TopicPartition:
        """Where it is from."""
        return self._data.topic_partition

    @property
    def offset(self) -> int:
        """Where it begins; its first record may be a later one."""
        return self._data.fetch_offset

    @property
    def next_offset(self) -> int:
        """Where the next one begins: what a commit after this batch says."""
        return self._data.next_offset

    @property
    def high_watermark(self) -> int:
        """Where the partition's records ended when it was fetched."""
        return self._data.high_watermark

    def records(self, columns: Column = ALL) -> Iterator[ConsumedRecord]:
        """Its records as objects; without `columns` that are not needed it is faster. KafkaError if it is damaged."""
        return consumed_records(self._data, self._data.next_offset, columns, committed_only=self._committed_only)

    def columns(self, columns: Column = ALL) -> Iterator[Columns]:
        """Its records as columns laid out as Arrow's, some thousands at a time: the fast way. KafkaError likewise."""
        return consumed_columns(self._data, self._data.next_offset, columns, committed_only=self._committed_only)
