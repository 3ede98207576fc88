"""A partition's log as its bytes on a machine's disk say, read from outside, whatever the broker thinks of it.

`LogView.refresh` reads only what was written since the last time, unless something before that has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
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

    def knows(self, file: FileContent) -> bool:
        """Whether nothing of the file has changed since it was read."""
        return self.position == file.size and self.state == file.state


class LogView:
    """One folder."""

    def __init__(self, disk: SimulatedDisk, folder: str) -> None:
        self._disk = disk
        self.folder = folder
        self._segments: dict[int, _Segment] = {}
        """By base offset, ascending."""
        self.by_offset: dict[int, BatchId] = {}
        """[base offset] -> the batch that begins there."""
        self._files: Mapping[str, FileContent] = {}
        """As they were listed last: another object, once a name has changed."""
        self._contents: list[tuple[int, FileContent]] = []
        """Those of segments, by base offset."""

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

    def whole_part(self) -> list[BatchId]:
        """The batches that follow each other without a gap, from the log's start on: recovery cuts at a gap."""
        whole: list[BatchId] = []
        end = self.start
        for batch in self.batches():
            if batch.base_offset > end:
                break
            whole.append(batch)
            end = batch.next_offset
        return whole

    def newest_first(self) -> Iterator[BatchId]:
        """All of them, from the end."""
        for segment in reversed(self._segments.values()):
            yield from reversed(segment.batches)

    def refresh(self) -> list[tuple[BatchId | None, BatchId]]:
        """Reads what is new: each new batch with the one before it, None for the log's first."""
        files = self._disk.files(self.folder, LOG)
        if files is self._files and all(self._segments[base].knows(file) for base, file in self._contents):
            return []
        found: list[tuple[BatchId | None, BatchId]] = []
        segments: dict[int, _Segment] = {}
        previous: BatchId | None = None
        if files is not self._files:
            self._files, self._contents = files, list(segment_files(files))
        for base_offset, file in self._contents:
            segment = self._segments.get(base_offset)
            if segment is None or segment.state != file.state:
                segment = _Segment(file.state)
            segments[base_offset] = segment
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


def segment_files(files: Mapping[str, FileContent]) -> Iterator[tuple[int, FileContent]]:
    """Base offset and content of each segment's file of those in a folder, ascending."""
    for name, file in files.items():
        base_offset = _base_offset(name)
        if base_offset is not None:
            yield base_offset, file


@lru_cache(maxsize=4096)
def _base_offset(name: str) -> int | None:
    """Of the segment whose file is called so; None for any other, and for one that is on its way in or out."""
    parsed = parse_segment_file(name)
    return None if parsed is None or parsed[2] else int(parsed[0])
