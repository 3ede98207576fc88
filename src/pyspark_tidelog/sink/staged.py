"""What tasks tell the driver of their staged batches, and what the driver is to copy from it. Pure.

A batch in the private topic is named by partition, offset and checksum. Batches of attempts that lost lie between
them, and no message names those.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from pyspark_tidelog.sink.errors import WriteStopped
from tidelog.model.identifiers import TopicPartition

MARK_PARTITION: Final = 0
"""Of a query's private topic: the number of its last batch. Staged batches lie in the others."""
_ENTRY: Final = struct.Struct("<iqIii")


class StagedBatch(NamedTuple):
    """One encoded batch in the private topic."""

    partition: int
    """Of the private topic."""
    offset: int
    crc: int
    """As the batch's header has it: a batch at that offset with another one is not what the task wrote."""
    rows: int
    target: int
    """Index into the message's `targets`."""


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """What one task has staged."""

    query: str
    """The streaming query's id, or the batch job's."""
    batch: int
    """The micro-batch's number; 0 for a batch job."""
    topic: str
    """The private topic."""
    targets: tuple[TopicPartition, ...]
    entries: bytes
    """Batches in the order of the task's rows, packed: a large task has tens of thousands."""
    rows: int

    def batches(self) -> Iterator[StagedBatch]:
        """The batches in the order of the task's rows."""
        return (StagedBatch(*entry) for entry in _ENTRY.iter_unpack(self.entries))


def pack(batches: Iterable[StagedBatch]) -> bytes:
    """The `entries` of a `StagedWrite`."""
    return b"".join(_ENTRY.pack(*batch) for batch in batches)


def staging_partition(target: TopicPartition, staging_partitions: int) -> int:
    """Where batches for `target` are staged: all in one partition, so that they keep their order."""
    return 1 + (zlib.crc32(target.topic.encode()) + target.partition) % staging_partitions


class Wanted(NamedTuple):
    """A staged batch that is to be copied."""

    crc: int
    rows: int
    target: TopicPartition


@dataclass(slots=True)
class CopyPlan:
    """Which batches of the private topic go where."""

    rows: int = 0
    wanted: dict[int, dict[int, Wanted]] = field(default_factory=dict)
    """[partition of the private topic] -> [offset] -> batch."""

    @property
    def targets(self) -> set[TopicPartition]:
        """The partitions that get rows."""
        return {batch.target for batches in self.wanted.values() for batch in batches.values()}

    def only(self, partitions: Sequence[int]) -> CopyPlan:
        """What of the plan lies in these partitions of the private topic."""
        wanted = {partition: self.wanted[partition] for partition in partitions}
        return CopyPlan(sum(each.rows for batches in wanted.values() for each in batches.values()), wanted)

    def ranges(self) -> dict[int, tuple[int, int]]:
        """[partition] -> first offset, and the one behind the last row that is wanted."""
        return {
            partition: (min(batches), max(offset + batch.rows for offset, batch in batches.items()))
            for partition, batches in self.wanted.items()
        }


def plan_copy(writes: Sequence[StagedWrite]) -> CopyPlan:
    """The winners' batches. WriteStopped when the messages are not of one batch, name a batch twice, or have staged the
    batches for one partition in several."""
    plan = CopyPlan(rows=sum(write.rows for write in writes))
    origins = {(write.query, write.batch, write.topic) for write in writes}
    if len(origins) > 1:
        raise WriteStopped(f"tasks of different batches report to one commit: {sorted(origins)}")
    places: dict[TopicPartition, int] = {}
    for write in writes:
        for entry in write.batches():
            target = write.targets[entry.target]
            if places.setdefault(target, entry.partition) != entry.partition:
                numbers = " and ".join(map(str, sorted((places[target], entry.partition))))
                raise WriteStopped(
                    f"tasks have staged rows for {target} in partitions {numbers} of {write.topic}: they did not see"
                    " the same number of partitions, nothing was written"
                )
            batches = plan.wanted.setdefault(entry.partition, {})
            if entry.offset in batches:
                raise WriteStopped(f"two tasks name the batch at offset {entry.offset} of {write.topic}")
            batches[entry.offset] = Wanted(entry.crc, entry.rows, target)
    if plan.rows != sum(batch.rows for batches in plan.wanted.values() for batch in batches.values()):
        raise WriteStopped("the tasks' counts of rows and of staged rows differ")
    return plan


class Decision(Enum):
    """What to do with a micro-batch."""

    WRITE = auto()
    SKIP = auto()
    """It is written already."""


class Mark(NamedTuple):
    """The batch that a query wrote last."""

    query: str
    batch: int
    rows: int


def encode_mark(query: str, batch: int, rows: int) -> bytes:
    """The record that a transaction leaves beside the rows."""
    return json.dumps({"version": 1, "query": query, "batch": batch, "rows": rows}).encode()


def decode_mark(value: bytes | None, topic: str) -> Mark:
    """The batch that a mark tells of."""
    try:
        document: Mapping[str, object] = json.loads(value or b"")
        query, batch, rows = document["query"], document["batch"], document["rows"]
    except (ValueError, KeyError, TypeError) as error:
        raise WriteStopped(f"the last record of {topic}-{MARK_PARTITION} is no mark of a batch: {error}") from error
    if not isinstance(query, str) or not isinstance(batch, int) or not isinstance(rows, int):
        raise WriteStopped(f"the last record of {topic}-{MARK_PARTITION} is no mark of a batch: {document}")
    return Mark(query, batch, rows)


def decide(mark: Mark | None, query: str, batch: int, rows: int, first_batch: int, topic: str) -> Decision:
    """Whether a micro-batch of so many rows is to be written. WriteStopped where that cannot be known."""
    if mark is None:
        if batch == first_batch:
            return Decision.WRITE
        raise WriteStopped(
            f"query {query} is at batch {batch}, but {topic} has no mark of an earlier one: it was deleted, or the"
            f" query has written elsewhere until now. Whether batch {batch} is written already cannot be known. If it"
            f" is not, set firstBatch to {batch}"
        )
    if mark.query != query:
        raise WriteStopped(f"{topic} belongs to query {mark.query}, not to query {query}")
    if mark.batch == batch:
        if rows > mark.rows:
            raise WriteStopped(
                f"batch {batch} of query {query} was written with {mark.rows} rows, and has {rows} now: it is another"
                " batch, of a checkpoint that was put back by one, or the query gives other rows each time. Start the"
                " query with a new checkpoint"
            )
        return Decision.SKIP
    if mark.batch + 1 == batch:
        return Decision.WRITE
    raise WriteStopped(
        f"query {query} is at batch {batch}, but {topic} says that batch {mark.batch} was the last one written: its"
        " checkpoint was put back or exchanged. Start the query with a new checkpoint"
    )
