"""Where the options' folders meet the disk: in the driver, which sees that they are there, and in tasks."""

import logging
from collections.abc import Iterator
from functools import cache
from typing import Final

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.offsets import OffsetRange
from pyspark_tidelog.options import SourceOptions
from pyspark_tidelog.segments.agreement import agreed_end, by_leader
from pyspark_tidelog.segments.catalog import SegmentsCatalog
from pyspark_tidelog.segments.directories import PartitionFolder, folders_of, log_directories
from pyspark_tidelog.segments.partition import FolderChanged, PartitionFiles
from pyspark_tidelog.segments.pieces import Missing, Piece, read_parts
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import ClientError
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import format_topic_id
from tidelog.ports.real import SystemDisk

logger: Final = logging.getLogger(__name__)


def open_catalog(options: SourceOptions) -> SegmentsCatalog:
    """The topics of the options' folders; OptionError where these are none that have logs."""
    chosen = SystemDisk()
    try:
        directories = log_directories(chosen, options.segments)
    except OSError as error:
        raise OptionError("segments", f"names {error.filename}, which cannot be read: {error.strerror}") from None
    if not directories:
        raise OptionError(
            "segments",
            f"names {', '.join(options.segments)}, where no log directory is: give folders that have"
            " replication-offset-checkpoint beside the folders of partitions, as log.dirs of a broker have",
        )
    return SegmentsCatalog(chosen, directories)


def parts_of(
    cluster: BlockingCluster | None,
    options: SourceOptions,
    offset_range: OffsetRange,
    *,
    replica: int = 0,
    reason: str = "",
) -> Iterator[Piece | Missing]:
    """A range of offsets from the files, as pieces of bytes; what they lack is said.

    With a `cluster` the partition's leader says which records are its. `replica` and `reason`: as in `read_parts`.
    """
    chosen = SystemDisk()
    try:
        directories = log_directories(chosen, options.segments)
        folders = folders_of(chosen, directories, offset_range.topic_partition)
    except OSError as error:
        _log_absent(str(error))
        return iter([Missing(offset_range.start, offset_range.end, f"the folders cannot be read: {error}")])
    wanted = offset_range.topic_id
    same = [
        folder
        for folder in folders
        if not wanted or (folder.topic_id is not None and format_topic_id(folder.topic_id) == wanted)
    ]
    if folders and not same:
        reason = "the folders are those of another topic of that name"
    if cluster is not None:
        same = [_agreed(cluster, folder) for folder in same]
    start, end = offset_range.start, offset_range.end
    return read_parts(chosen, same, start, end, committed=options.read_committed, replica=replica, reason=reason)


def _agreed(cluster: BlockingCluster, folder: PartitionFolder) -> PartitionFolder:
    """The folder up to where its records are the leader's."""
    if not folder.high_watermark:
        return folder
    try:
        end = agreed_end(PartitionFiles(SystemDisk(), folder), by_leader(cluster, folder.topic_partition))
    except (KafkaError, ClientError, FolderChanged, OSError) as error:
        return folder.up_to(0, f"whether {folder.path} is what the leader has cannot be told: {error}")
    return folder.up_to(end, f"{folder.path} parts from the leader's log at offset {end}")


@cache
def _log_absent(reason: str) -> None:
    """Says once a worker process that brokers have to do the work after all."""
    logger.warning("segments_absent: reason=%s", reason)
