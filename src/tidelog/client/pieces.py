"""Pieces of partitions that were fetched and wait to be taken, in order of arrival; and a piece cut in two. No I/O."""

from __future__ import annotations

import dataclasses
from collections import deque

from tidelog.client.fetching import FetchedData
from tidelog.model.identifiers import TopicPartition
from tidelog.records.batch import iterate_headers


class Pieces:
    """A queue of pieces that knows its bytes, and what it has of each partition."""

    def __init__(self) -> None:
        self._queue: deque[FetchedData] = deque()
        self._count_of: dict[TopicPartition, int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._count_of

    def first(self, topic_partition: TopicPartition) -> FetchedData | None:
        """The next piece of a partition."""
        if topic_partition not in self._count_of:
            return None
        return next(data for data in self._queue if data.topic_partition == topic_partition)

    def add(self, data: FetchedData) -> None:
        """A piece arrives."""
        self._queue.append(data)
        self.bytes += len(data.records)
        self._count_of[data.topic_partition] = self._count_of.get(data.topic_partition, 0) + 1

    def take(self, records_max: int | None = None) -> FetchedData | None:
        """The next piece, or its first records where it has more than `records_max`; None where none waits."""
        if not self._queue:
            return None
        data = self._queue.popleft()
        taken, rest = (data, None) if records_max is None else cut(data, records_max)
        self.bytes -= len(data.records)
        if rest is not None:
            self._queue.appendleft(rest)
            self.bytes += len(rest.records)
        elif self._count_of[data.topic_partition] == 1:
            del self._count_of[data.topic_partition]
        else:
            self._count_of[data.topic_partition] -= 1
        return taken

    def forget(self, topic_partition: TopicPartition) -> int | None:
        """Drops the pieces of a partition; where the first of them began, None where there was none."""
        first = self.first(topic_partition)
        if first is None:
            return None
        self._queue = deque(data for data in self._queue if data.topic_partition != topic_partition)
        self.bytes = sum(len(data.records) for data in self._queue)
        del self._count_of[topic_partition]
        return first.fetch_offset


def cut(data: FetchedData, records_max: int) -> tuple[FetchedData, FetchedData | None]:
    """The first records of a piece, `records_max` at the most, and the rest, if there is one.

    Nothing is decoded: a batch that compaction has thinned out counts as if it were whole, so that fewer may come. A
    batch that is cut stands in both pieces, and their offsets say whose its records are.
    """
    left = records_max
    aborted = data.aborted
    epoch = data.leader_epoch
    for position, header in iterate_headers(data.records):
        if header.is_control:
            # An aborted transaction that ends here is none of the rest's.
            aborted = tuple(
                entry for entry in aborted if entry[0] != header.producer_id or entry[1] > header.base_offset
            )
            epoch = header.partition_leader_epoch
            continue
        first = max(header.base_offset, data.fetch_offset)
        count = min(header.records_count, header.next_offset - first)
        if count <= left:
            left -= max(0, count)
            epoch = header.partition_leader_epoch
            continue
        offset = first + left
        taken = dataclasses.replace(
            data,
            next_offset=offset,
            records=data.records[: position + (header.size if left else 0)],
            leader_epoch=header.partition_leader_epoch if left else epoch,
        )
        rest = dataclasses.replace(data, fetch_offset=offset, records=data.records[position:], aborted=aborted)
        return taken, rest
    return data, None
