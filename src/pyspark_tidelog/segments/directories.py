"""Log directories as they lie on disk, or were copied: which folder has a partition, and what the checkpoints say."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.ports.disk import Disk
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
        if disk.stat(f"{directory}/{name}").is_directory:
            yield found


def folders_of(disk: Disk, directories: Sequence[str], topic_partition: TopicPartition) -> list[PartitionFolder]:
    """The replicas of a partition in these log directories; the one that is known to have most comes first."""
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
            )
        )
    return sorted(found, key=lambda folder: folder.high_watermark, reverse=True)


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
