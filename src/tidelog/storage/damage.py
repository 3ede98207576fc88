"""Records that a log has lost, as recovery finds it: known to the next start, and what was cut kept aside.

Recovery ends a log behind the last batch that is whole. A torn tail, which a crash leaves, has nothing valid behind it.
Where valid batches follow that go on from the cut, the bytes between have been damaged, and records are lost with them
that this replica had, and that other replicas may have. Then, before anything is cut,

    replica-damage                      says so, until the replica is whole again
    00000000000000000011.log.cut        keeps the bytes that are cut from offset 11 on, as they were

beside the segments. Kafka and older versions look at neither. A log that ends below its checkpointed high watermark has
lost records too.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Final

from tidelog.metadata.replica_marks import ReplicaDamage
from tidelog.model.identifiers import LeaderEpoch, Offset
from tidelog.ports.disk import replace_file
from tidelog.records.batch import HEADER_SIZE, InvalidBatch, check_crc, read_header
from tidelog.storage.batch_scan import contradicts_next
from tidelog.storage.file_names import LOG, segment_file
from tidelog.storage.offset_index import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from tidelog.ports.disk import Bytes, Disk, File
    from tidelog.records.batch import BatchHeader
    from tidelog.storage.log_folder import LogFolder
    from tidelog.storage.segment import Segment

logger = logging.getLogger(__name__)

DAMAGE_FILE: Final = "replica-damage"
KEPT_FILES_MAX: Final = 4
"""Files of cut bytes that are kept for a partition; those of the lowest offsets go first."""
KEPT_SIZE_MAX: Final = 256 << 20
"""Bytes of one cut that are kept, in all its files."""
SEARCH_SIZE: Final = 32 << 20
"""Bytes behind a cut in which a valid batch is looked for: more than a damaged batch has, in any sensible setting."""
_COPY_SIZE: Final = 1 << 20
_MAGIC_POSITION: Final = 16
_MAGIC: Final = b"\x02"
_CUT_FILE: Final = re.compile(r"[0-9]{20}\.log\.cut(\.[0-9]+)?")


# What the next start is to know.


def read_damage(disk: Disk, directory: str) -> ReplicaDamage | None:
    """What an earlier start found, of a log that is not whole again; None of one that is. OSError."""
    try:
        content = json.loads(disk.read(f"{directory}/{DAMAGE_FILE}"))
        return ReplicaDamage(
            Offset(int(content["log_end"])),
            LeaderEpoch(int(content["leader_epoch"])),
            Offset(int(content["lost_end"])),
            has_hole=content.get("has_hole") is True,
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("damage_file_ignored: path=%s/%s reason=%s", directory, DAMAGE_FILE, error)
        return None


def write_damage(disk: Disk, directory: str, damage: ReplicaDamage) -> None:
    """Makes it known to later starts, durably. OSError."""
    content = {
        "log_end": damage.log_end,
        "leader_epoch": damage.leader_epoch,
        "lost_end": damage.lost_end,
        "has_hole": damage.has_hole,
    }
    replace_file(disk, f"{directory}/{DAMAGE_FILE}", json.dumps(content).encode())


def remove_damage(disk: Disk, directory: str) -> None:
    """The replica is whole again. OSError."""
    path = f"{directory}/{DAMAGE_FILE}"
    if disk.exists(path):
        disk.unlink(path)


# What follows a cut.


def find_continuation(
    file: File,
    position: int,
    size: int,
    *,
    base_offset: int,
    next_offset: int,
    latest_epoch: int,
    behind: BatchHeader | None = None,
) -> Offset | None:
    """Where the valid batches end that follow the cut at `position` in a file of `size` bytes; None without any.

    Only batches count that can come after those before the cut, by offset and leader epoch: others have been removed by
    a truncation, and a power cut has brought them back. `base_offset` is the segment's, `behind` the first valid batch
    of the next file. OSError.
    """
    window = file.pread(min(SEARCH_SIZE, size - position), position)
    at = 0
    while True:
        magic = window.find(_MAGIC, at + _MAGIC_POSITION)
        if magic < 0:
            return None
        at = magic - _MAGIC_POSITION
        end = _valid_end(file, window, position, at, size, base_offset, next_offset, latest_epoch, behind)
        if end is not None:
            return end
        at += 1


def _valid_end(
    file: File,
    window: Bytes,
    start: int,
    at: int,
    size: int,
    base_offset: int,
    next_offset: int,
    latest_epoch: int,
    behind: BatchHeader | None,
) -> Offset | None:
    """Where the batches end that begin at `at` of the window; None where there is no valid one."""
    end: Offset | None = None
    position = start + at
    while size - position >= HEADER_SIZE:
        header_bytes = window[at : at + HEADER_SIZE] if end is None else b""
        if len(header_bytes) < HEADER_SIZE:
            header_bytes = file.pread(HEADER_SIZE, position)
        try:
            header = read_header(header_bytes, 0)
            fits = next_offset <= header.base_offset and header.last_offset - base_offset <= RELATIVE_OFFSET_MAX
            if not fits or header.partition_leader_epoch < latest_epoch or position + header.size > size:
                return end
            check_crc(file.pread(header.size, position), 0, header)
        except InvalidBatch:
            return end
        if position == start and contradicts_next(file, size, position, header, latest_epoch, behind):
            # The one that was not believed.
            return end
        next_offset, latest_epoch = header.next_offset, header.partition_leader_epoch
        end = Offset(next_offset)
        position += header.size
    return end


# What is kept aside.


def keep_aside(folder: LogFolder, file: File, position: int, size: int, offset: int) -> None:
    """Copies what is about to be cut from a segment into a file beside it; best effort, for the cut must happen.

    A copy that fails is told, and takes nothing with it: what the replica has lost its peers may have.
    """
    path = _free_path(folder, offset)
    kept = min(size - position, KEPT_SIZE_MAX)
    try:
        copy = folder.disk.open(path, create=True)
        try:
            for done in range(0, kept, _COPY_SIZE):
                copy.pwrite(file.pread(min(_COPY_SIZE, kept - done), position + done), done)
            copy.fsync()
        finally:
            copy.close()
        _remove_oldest(folder)
    except OSError as error:
        logger.warning(
            "cut_not_kept: log=%s offset=%d bytes=%d error=%s", folder.topic_partition, offset, size - position, error
        )
        return
    logger.warning(
        "cut_kept_aside: log=%s offset=%d bytes=%d kept=%d path=%s: valid batches follow the damage, so "
        "records are lost here",
        folder.topic_partition,
        offset,
        size - position,
        kept,
        path,
    )


def keep_segments_aside(folder: LogFolder, segments: list[Segment]) -> list[Segment]:
    """Renames .log files of segments behind a cut, as many as are to be kept; gives the segments that are not.

    OSError.
    """
    kept_bytes = 0
    for index, segment in enumerate(segments):
        if index + 1 >= KEPT_FILES_MAX or kept_bytes + segment.size > KEPT_SIZE_MAX:
            return segments[index:]
        kept_bytes += segment.size
        path = _free_path(folder, segment.base_offset)
        segment.release_files()
        folder.disk.rename(segment.path(LOG), path)
        segment.unlink()
        logger.warning(
            "cut_kept_aside: log=%s offset=%d bytes=%d kept=%d path=%s: the segment lies behind damage, so records are"
            " lost here",
            folder.topic_partition,
            segment.base_offset,
            segment.size,
            segment.size,
            path,
        )
    return []


def _free_path(folder: LogFolder, offset: int) -> str:
    """A name that no earlier cut has taken."""
    path = f"{folder.path}/{segment_file(offset, LOG)}.cut"
    number = 1
    candidate = path
    while folder.disk.exists(candidate):
        number += 1
        candidate = f"{path}.{number}"
    return candidate


def _remove_oldest(folder: LogFolder) -> None:
    names = [name for name in folder.disk.list(folder.path) if _CUT_FILE.fullmatch(name)]
    for name in names[: max(len(names) - KEPT_FILES_MAX, 0)]:
        folder.disk.unlink(f"{folder.path}/{name}")
