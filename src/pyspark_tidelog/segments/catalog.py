"""What a plan asks of a cluster, answered by log directories: topics, partitions, offsets."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark_tidelog.errors import SourceError
from pyspark_tidelog.segments.directories import PartitionFolder, folders_of, partitions_in
from pyspark_tidelog.segments.partition import FolderChanged, PartitionFiles
from tidelog.client.fetching import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.client.offsets import OffsetFound
from tidelog.client.views import PartitionView, TopicView, topic_error
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ZERO_TOPIC_ID,
    TopicPartition,
    format_topic_id,
)
from tidelog.model.topics import INTERNAL_TOPICS
from tidelog.ports.disk import Disk

logger: Final = logging.getLogger(__name__)
_NO_RECORD: Final = OffsetFound(-1, -1, -1)


class SegmentsCatalog:
    """Topics of log directories: `planning.Catalog`."""

    def __init__(self, disk: Disk, directories: Sequence[str]) -> None:
        self._disk = disk
        self._directories = directories

    def topics(self, topics: Iterable[str] | re.Pattern[str]) -> Mapping[str, TopicView]:
        """Those named (KafkaError for one that has no folder), or those whose whole name matches but internal ones."""
        present: dict[str, set[int]] = {}
        for directory in self._directories:
            for each in partitions_in(self._disk, directory):
                present.setdefault(each.topic, set()).add(each.partition)
        if isinstance(topics, re.Pattern):
            pattern = topics
            names = sorted(name for name in present if pattern.fullmatch(name) and name not in INTERNAL_TOPICS)
        else:
            names = list(dict.fromkeys(topics))
        views = {}
        for name in names:
            if name not in present:
                raise topic_error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            views[name] = self._view(name, sorted(present[name]))
        return views

    def _view(self, name: str, partitions: list[int]) -> TopicView:
        ids = {
            folder.topic_id or ZERO_TOPIC_ID
            for number in partitions
            for folder in folders_of(self._disk, self._directories, TopicPartition(name, number))
        }
        if len(ids) > 1:
            known = ", ".join(sorted(format_topic_id(each) for each in ids))
            raise SourceError(
                f"option segments names folders of several topics called {name} (ids {known}): leave out"
                " the directories of those that were deleted"
            )
        if partitions != list(range(len(partitions))):
            logger.warning("partitions_absent: topic=%s present=%s", name, partitions)
        return TopicView(
            name,
            next(iter(ids), ZERO_TOPIC_ID),
            name in INTERNAL_TOPICS,
            {number: PartitionView(number, -1, -1, (), (), (), ErrorCode.NONE) for number in partitions},
        )

    def offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, OffsetFound]:
        """As a broker's ListOffsets: for timestamps in ms, -1 (latest) or -2 (earliest); offset -1: no record is as
        late."""
        committed = isolation == READ_COMMITTED
        return {each: self._offset(each, asked, committed=committed) for each, asked in timestamps.items()}

    def _offset(self, topic_partition: TopicPartition, asked: int, *, committed: bool) -> OffsetFound:
        folders = folders_of(self._disk, self._directories, topic_partition)
        if not folders:
            raise SourceError(f"{topic_partition} cannot be planned: it has no folder any more; try again")
        if not any(folder.high_watermark for folder in folders):
            paths = ", ".join(folder.path for folder in folders)
            logger.warning("high_watermark_absent: partition=%s folders=%s", topic_partition, paths)
        try:
            return self._found(folders, asked, committed=committed)
        except FolderChanged as error:
            raise SourceError(f"{topic_partition} cannot be planned: {error}; try again") from error

    def _found(self, folders: list[PartitionFolder], asked: int, *, committed: bool) -> OffsetFound:
        replicas = [PartitionFiles(self._disk, folder) for folder in folders if folder.high_watermark]
        earliest = min((files.start() for files in replicas), default=0)
        if asked == EARLIEST_TIMESTAMP:
            return OffsetFound(earliest, -1, -1)
        ends = [files.stable_end(files.end()) if committed else files.end() for files in replicas]
        if asked == LATEST_TIMESTAMP:
            return OffsetFound(max([earliest, *ends]), -1, -1)
        found = [files.first_as_late_as(asked, files.start(), end) for files, end in zip(replicas, ends, strict=True)]
        first = min((each for each in found if each is not None), default=None)
        return _NO_RECORD if first is None else OffsetFound(first[0], first[1], -1)
