"""Log directories as they lie on disk, or were copied: which folder has a partition, and what the checkpoints say."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark_tidelog.segments.epochs import agreed_end, in_file, read_epochs
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.ports.disk import Disk
from tidelog.records.epochs import EpochCache
from tidelog.storage.checkpoints import decode_offsets, decode_partition_metadata
from tidelog.storage.errors import CorruptFile, InvalidLogFolder
from tidelog.storage.file_names import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    REPLICATION_CHECKPOINT,
    parse_marked_folder,
    parse_partition_folder,
)

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """A replica's folder. What the checkpoints say was so when they were written: all of it only rises."""

    topic_partition: TopicPartition
    path: str
    topic_id: TopicId | None
    """None where the folder does not tell."""
    high_watermark: int
    """Records below are committed and stay as they are; 0 where the checkpoint does not name the partition."""
    log_start: int
    """Records below were deleted, though they may still be there."""
    cleaned_offset: int
    """Below it compaction leaves gaps between segments; 0 where it never ran."""
    epochs: EpochCache | None = None
    """None where the folder does not tell."""
    limited: str = ""
    """Why the high watermark is not the checkpoint's."""

    def up_to(self, end: int, reason: str) -> PartitionFolder:
        """The folder where only records below `end` count."""
        return self if end >= self.high_watermark else replace(self, high_watermark=end, limited=reason)


def log_directories(disk: Disk, roots: Sequence[str]) -> list[str]:
    """The log directories that `roots` are, or have as sub-folders, as the data folder of `tidelog start` has.

    FileNotFoundError or NotADirectoryError for a root that is none.
    """
    found: list[str] = []
    for root in roots:
        path = root.rstrip("/") or "/"
        names = set(disk.list(path))
        if names & {REPLICATION_CHECKPOINT, META_PROPERTIES}:
            found.append(path)
            continue
        for name in sorted(names):
            below = f"{path}/{name}"
            if disk.stat(below).is_directory and set(disk.list(below)) & {REPLICATION_CHECKPOINT, META_PROPERTIES}:
                found.append(below)
    return found


def partitions_in(disk: Disk, directory: str) -> Iterator[TopicPartition]:
    """The partitions that have a folder in a log directory; none that is deleted, stray or on its way."""
    for name in disk.list(directory):
        if parse_marked_folder(name) is not None:
            continue
        try:
            found = parse_partition_folder(name, directory)
        except InvalidLogFolder:
            continue
        try:
            is_folder = disk.stat(f"{directory}/{name}").is_directory
        except FileNotFoundError:
            continue  # It was deleted, or has moved, since it was listed.
        if is_folder:
            yield found


def folders_of(disk: Disk, directories: Sequence[str], topic_partition: TopicPartition) -> list[PartitionFolder]:
    """The replicas of a partition in these log directories; the one that is known to have most comes first.

    Where their leader epochs tell that some have records which another leader overruled, those do not count.
    """
    found = []
    for directory in directories:
        path = f"{directory}/{topic_partition.topic}-{topic_partition.partition}"
        # The checkpoint first: what it says is then true of the files that are found after it.
        high_watermark = _checkpoint(disk, directory, REPLICATION_CHECKPOINT).get(topic_partition, 0)
        if not disk.exists(path):
            continue
        found.append(
            PartitionFolder(
                topic_partition,
                path,
                topic_id_of(disk, path),
                high_watermark,
                _checkpoint(disk, directory, LOG_START_CHECKPOINT).get(topic_partition, 0),
                _checkpoint(disk, directory, CLEANER_CHECKPOINT).get(topic_partition, 0),
                read_epochs(disk, path),
            )
        )
    return sorted(_agreed(found), key=lambda folder: folder.high_watermark, reverse=True)


def _agreed(folders: list[PartitionFolder]) -> list[PartitionFolder]:
    """Replicas, each up to where it agrees with the one that knows the latest leader."""
    told = [(folder.epochs.latest, folder) for folder in folders if folder.epochs is not None]
    if len(told) < 2:
        return folders
    last_epoch, latest = max(told, key=lambda each: each[0])
    assert latest.epochs is not None
    end_of = in_file(latest.epochs)
    result = []
    for folder in folders:
        same_topic = folder.topic_id == latest.topic_id
        if folder.epochs is not None and same_topic and folder.epochs.latest < last_epoch:
            end = agreed_end(folder.epochs, folder.high_watermark, end_of)
            result.append(folder.up_to(end, f"{folder.path} parts from {latest.path} at offset {end}"))
        else:
            result.append(folder)
    return result


def topic_id_of(disk: Disk, path: str) -> TopicId | None:
    """The topic that a partition's folder belongs to; None where it does not tell."""
    try:
        return decode_partition_metadata(disk.read(f"{path}/{PARTITION_METADATA}"))
    except FileNotFoundError:
        return None
    except CorruptFile as error:
        logger.warning("partition_metadata_ignored: path=%s reason=%s", path, error)
        return None


def _checkpoint(disk: Disk, directory: str, name: str) -> dict[TopicPartition, int]:
    try:
        return decode_offsets(disk.read(f"{directory}/{name}"))
    except FileNotFoundError:
        return {}
    except CorruptFile as error:
        logger.warning("checkpoint_ignored: path=%s/%s reason=%s", directory, name, error)
        return {}
