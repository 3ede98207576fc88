"""A partition's log as its bytes on a machine's disk say, read from outside, whatever the broker thinks of it.

`LogView.refresh` reads only what was written since the last time, unless something before that has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tidelog.records.batch import check_crc, read_header
from tidelog.records.errors import InvalidBatch
from tidelog.storage.file_names import LOG, PARTITION_METADATA, parse_segment_file

if TYPE_CHECKING:
    from sim.world.disk import SimulatedDisk
    from sim.world.platter import FileContent


class BatchId(NamedTuple):
    """What tells a batch from any other that could stand at its place."""

    base_offset: int
    next_offset: int
    epoch: int
    """Of the leader that appended it."""
    crc: int
    size: int
    """Bytes."""
    youngest_ms: int
    """Greatest timestamp of its records."""


@dataclass(slots=True)
class _Segment:
    """What is known of one file."""

    state: tuple[object, int]
    position: int = 0
    """Bytes read."""
    batches: list[BatchId] = field(default_factory=list)


class LogView:
    """One folder."""

    def __init__(self, disk: SimulatedDisk, folder: str) -> None:
        self._disk = disk
        self.folder = folder
        self._segments: dict[int, _Segment] = {}
        """By base offset, ascending."""
        self.by_offset: dict[int, BatchId] = {}
        """[base offset] -> the batch that begins there."""

    @property
    def topic_id(self) -> str:
        """As partition.metadata has it; empty where there is none yet."""
        path = f"{self.folder}/{PARTITION_METADATA}"
        return self._disk.read(path).decode(errors="replace").rpartition(" ")[2] if self._disk.exists(path) else ""

    @property
    def start(self) -> int:
        """Base offset of the first segment; 0 where there is none."""
        return next(iter(self._segments), 0)

    @property
    def end(self) -> int:
        """The log end, as far as whole batches go."""
        for base_offset in reversed(self._segments):
            batches = self._segments[base_offset].batches
            return batches[-1].next_offset if batches else base_offset
        return 0

    def batches(self) -> Iterator[BatchId]:
        """All of them, in order."""
        for segment in self._segments.values():
            yield from segment.batches

    def newest_first(self) -> Iterator[BatchId]:
        """All of them, from the end."""
        for segment in reversed(self._segments.values()):
            yield from reversed(segment.batches)

    def refresh(self) -> list[tuple[BatchId | None, BatchId]]:
        """Reads what is new: each new batch with the one before it, None for the log's first."""
        files = self._disk.files(self.folder, LOG)
        found: list[tuple[BatchId | None, BatchId]] = []
        segments: dict[int, _Segment] = {}
        previous: BatchId | None = None
        for name, file in files.items():
            parsed = parse_segment_file(name)
            if parsed is None or parsed[2]:
                continue
            segment = self._segments.get(parsed[0])
            if segment is None or segment.state != file.state:
                segment = _Segment(file.state)
            segments[parsed[0]] = segment
            if segment.position < len(file.content):
                previous = self._read(segment, file, previous, found)
            elif segment.batches:
                previous = segment.batches[-1]
        changed = found or segments.keys() != self._segments.keys()
        shrunk = any(segments.get(base) is not segment for base, segment in self._segments.items())
        self._segments = segments
        if shrunk:
            self.by_offset = {batch.base_offset: batch for batch in self.batches()}
        elif changed:
            self.by_offset.update((batch.base_offset, batch) for _, batch in found)
        return found

    def _read(
        self,
        segment: _Segment,
        file: FileContent,
        previous: BatchId | None,
        found: list[tuple[BatchId | None, BatchId]],
    ) -> BatchId | None:
        """Whole, sound batches from where the last reading ended; the rest is not there yet, or torn."""
        content = bytes(memoryview(file.content)[segment.position :])
        position = 0
        if segment.batches:
            previous = segment.batches[-1]
        while position < len(content):
            try:
                header = read_header(content, position)
                if position + header.size > len(content):
                    break
                check_crc(content, position, header)
            except InvalidBatch:
                break
            batch = BatchId(
                header.base_offset,
                header.next_offset,
                header.partition_leader_epoch,
                header.crc,
                header.size,
                header.max_timestamp,
            )
            found.append((previous, batch))
            segment.batches.append(batch)
            previous = batch
            position += header.size
        segment.position += position
        return previous
