"""Where the options' folders meet the disk: in the driver, which sees that they are there, and in tasks."""

import logging
from collections.abc import Iterator
from functools import cache
from typing import Final

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.offsets import OffsetRange
from pyspark_tidelog.options import SourceOptions
from pyspark_tidelog.segments.catalog import SegmentsCatalog
from pyspark_tidelog.segments.directories import folders_of, log_directories
from pyspark_tidelog.segments.pieces import Missing, Piece, read_parts
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
    options: SourceOptions, offset_range: OffsetRange, *, replica: int = 0, reason: str = ""
) -> Iterator[Piece | Missing]:
    """A range of offsets from the files, as pieces of bytes; what they lack is said.

    `replica` and `reason`: as in `read_parts`.
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
    start, end = offset_range.start, offset_range.end
    return read_parts(chosen, same, start, end, committed=options.read_committed, replica=replica, reason=reason)


@cache
def _log_absent(reason: str) -> None:
    """Says once a worker process that brokers have to do the work after all."""
    logger.warning("segments_absent: reason=%s", reason)
