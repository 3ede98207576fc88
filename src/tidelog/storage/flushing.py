"""What of a log survives a power cut, and the tasks that make more of it do.

    Durability   one log's recovery point, and which of its files a flush has still to take care of
    Flush        the task: what was dirty when it was made; its I/O runs in any thread, beside appends

A flush writes the leader epochs first and moves the recovery point last: below a recovery point the batches are not
read again after a crash, so their epochs must be in the checkpoint by then. Above it the batches tell them. An epoch
that has no batch yet may be forgotten: no record was written in it that another log could contradict, and loading a
log forgets it even after a clean stop, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.model.identifiers import Offset
from tidelog.storage.file_names import LEADER_EPOCH_CHECKPOINT, SNAPSHOT, segment_file
from tidelog.storage.segment import Segment
from tidelog.storage.segment_order import floor_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.records.epochs import EpochCache
    from tidelog.storage.log_folder import LogFolder


class Durability:
    """How much of one log is durable. Several flushes may be under way."""

    __slots__ = (
        "_epochs_written",
        "_files",
        "_files_synced",
        "_is_writing_epochs",
        "_prepared_epochs",
        "_recovery_point",
        "_unsynced_from",
        "all_synced_to",
        "cut_offset",
        "epochs",
        "flushed_offset",
        "folder",
        "is_cut",
        "rolls",
        "times_emptied",
        "truncation_is_pending",
        "truncations",
        "unflushed_since_ms",
    )

    def __init__(self, folder: LogFolder, epochs: EpochCache, flushed_offset: int) -> None:
        self.folder = folder
        self.epochs = epochs
        self.flushed_offset = Offset(flushed_offset)
        """Everything below is on the device."""
        self.truncation_is_pending = False
        """Whether the log is to be cut or was, and that is not durable yet: nothing is flushed meanwhile."""
        self.is_cut = False
        """Whether it was cut, and the cut is not durable yet."""
        self.cut_offset: Offset | None = None
        """Where, while `truncation_is_pending`; the lowest of several."""
        self._recovery_point = Offset(flushed_offset)
        """As far as the epochs in the checkpoint file go, too."""
        self.unflushed_since_ms: int | None = None
        """Monotonic time of the oldest append that is not flushed; None when all is."""
        self._epochs_written: bytes | None = None
        """Content of the checkpoint file as last written; None without one."""
        self._is_writing_epochs = False
        """Whether a flush is at it, which alone uses the temporary name."""
        self._prepared_epochs: bytes | None = None
        """What a clean stop has written under the temporary name."""
        self._files = 0
        """Counts the segment files created; a flush makes durable their names, too."""
        self._files_synced = 0
        self._unsynced_from: int | None = None
        """Base offset of the first closed segment whose indexes are not durable, its batches perhaps all: those of the
        active one are left out of flushes. Recovery must read it again, or it would miss what was aborted in it."""
        self.all_synced_to: Offset | None = None
        """The log's end at a clean stop: there the indexes of the active segment are durable, too."""
        self.rolls = 0
        """Counts them: a flush from before a roll has not synced the indexes of the segment that was closed."""
        self.truncations = 0
        """Counts them: a flush from before a truncation says nothing of what was appended after it."""
        self.times_emptied = 0
        """Counts the truncations that removed everything, once they were carried out and not only announced."""

    def loaded(self, flushed_offset: int, epochs_file: bytes | None, *, clean: bool) -> None:
        """What the loader has found; `clean`: after a stop at which every file was durable."""
        self.flushed_offset = self._recovery_point = Offset(flushed_offset)
        self.all_synced_to = self.flushed_offset if clean else None
        self._epochs_written = epochs_file
        self._files += 1  # A process that was killed may have left files whose names are in memory only.

    def file_created(self) -> None:
        """A segment's files are new in the folder."""
        self._files += 1

    def rolled(self, closed: Segment) -> None:
        """`closed` is appended to no more."""
        self.rolls += 1
        # A truncation may have removed the segment that was noted, and all behind `closed`.
        noted = self._unsynced_from
        self._unsynced_from = closed.base_offset if noted is None else min(noted, closed.base_offset)

    def is_closing_flushed(self, closed: Segment) -> bool:
        """Whether the indexes and the snapshot that the roll wrote when it closed a segment are durable."""
        return self._unsynced_from is None or closed.base_offset < self._unsynced_from

    def all_synced(self, log_end_offset: int) -> None:
        """Every file is durable."""
        self.flushed_offset = self.all_synced_to = Offset(log_end_offset)
        self._unsynced_from = None

    def flush_failed(self, since_ms: int | None) -> None:
        """A flush of what was unflushed since then did not happen: while the directory is online it is tried again."""
        if since_ms is not None:
            self.unflushed_since_ms = min(since_ms, self.unflushed_since_ms or since_ms)
        self.folder.owner.flush_failed(self.folder.topic_partition)

    def truncated_to(self, offset: int) -> None:
        """The log was cut to end at `offset`."""
        self.truncations += 1
        self.all_synced_to = None
        self.is_cut = self.truncation_is_pending = True
        self.cut_offset = Offset(offset if self.cut_offset is None else min(self.cut_offset, offset))
        self.flushed_offset = Offset(min(self.flushed_offset, offset))
        self._recovery_point = min(self._recovery_point, self.flushed_offset)

    def truncation_announced(self, offset: int) -> None:
        """The log will be cut to end at `offset`: nothing above counts as durable from now on."""
        is_cut = self.is_cut
        self.truncated_to(offset)
        self.is_cut = is_cut

    def truncation_settled(self) -> None:
        """The last cut, if there was one, is durable, and so is the recovery point that says so."""
        self.truncation_is_pending = self.is_cut = False
        self.cut_offset = None

    def recovery_point(self, active: Segment) -> Offset:
        """What a checkpoint may say: batches below it are on the device, so are the indexes of segments that end there
        or below, and the batches' epochs are in the checkpoint file.

        Flushes leave out the indexes of the active segment. It may end at what was flushed, by a roll that no
        checkpoint has come after: the point stays below that, so that the segment is read again.
        """
        offset = self.flushed_offset if not self.epochs_dirty else min(self._recovery_point, self.flushed_offset)
        if self._unsynced_from is not None:
            offset = Offset(min(offset, self._unsynced_from))
        if offset <= active.base_offset or offset == self.all_synced_to:
            return offset
        return Offset(offset - 1)

    @property
    def epochs_dirty(self) -> bool:
        """Whether the epochs differ from their checkpoint file."""
        return self._epochs_content() != self._epochs_written

    def _epochs_content(self) -> bytes | None:
        """Content of the checkpoint file; None for a log that needs none yet."""
        if self._epochs_written is None and self.epochs.latest_entry is None:
            return None
        return self.epochs.to_checkpoint_text().encode()

    def prepare_epochs(self) -> bool:
        """Writes the checkpoint under its temporary name, for a clean stop; true if it differs from the file's.

        Nothing is synced: what a stop costs must not grow by two syncs for each of thousands of logs.
        """
        content = self._epochs_content()
        if content is None or content == self._epochs_written:
            return False
        file = self.folder.disk.open(self.folder.path_of(_PREPARED), create=True)
        try:
            file.truncate(0)
            file.pwrite(content, 0)
        finally:
            file.close()
        self._prepared_epochs = content
        return True

    def install_epochs(self) -> bool:
        """Gives the checkpoint that was prepared, and is durable by now, its name; true if there was one.

        The name is durable once the folder is.
        """
        if self._prepared_epochs is None:
            return False
        self.folder.disk.rename(self.folder.path_of(_PREPARED), self.folder.path_of(LEADER_EPOCH_CHECKPOINT))
        self._epochs_written, self._prepared_epochs = self._prepared_epochs, None
        return True

    def flush(self, segments: list[Segment], target: int, settled: Callable[[], None]) -> Flush | None:
        """Makes everything below `target` durable, and the epochs; None when that is so already.

        Index entries that are only in memory are written now, since that must not run beside an append. `settled` is
        called when the flush is done and the recovery point has moved. OSError if the disk refuses.
        """
        content = epochs = self._epochs_content()
        if epochs == self._epochs_written or self._is_writing_epochs:
            epochs = None
        unsynced = self._unsynced_from
        syncs_closed = unsynced is not None and target >= segments[-1].base_offset
        if self.truncation_is_pending or (target <= self.flushed_offset and epochs is None and not syncs_closed):
            return None
        first = self.flushed_offset if unsynced is None or not syncs_closed else min(unsynced, self.flushed_offset)
        dirty = segments[floor_index(segments, first) :]
        dirty = [segment for segment in dirty if segment.base_offset < target or segment is segments[-1]]
        for segment in dirty:
            segment.write_indexes()
        if epochs is not None:
            self._is_writing_epochs = True
        since_ms = self.unflushed_since_ms
        self.unflushed_since_ms = None
        return Flush(self, dirty, segments[-1], target, content, epochs, settled, since_ms)

    def sync(self, segments: list[Segment], log_end_offset: int) -> None:
        """Makes durable what a clean stop has written, file by file, in this thread."""
        unsynced = self.flushed_offset if self._unsynced_from is None else self._unsynced_from
        for segment in segments[floor_index(segments, min(unsynced, self.flushed_offset)) :]:
            segment.fsync(indexes=True)
            segment.release_files()
        self.folder.sync_file(segment_file(log_end_offset, SNAPSHOT))
        if self._prepared_epochs is not None:
            self.folder.sync_file(_PREPARED)
            self.install_epochs()
        self.folder.disk.fsync_directory(self.folder.path)


class Flush:
    """A `DiskTask`: makes durable what was dirty when it was made."""

    __slots__ = (
        "_active",
        "_content",
        "_dirty",
        "_durability",
        "_epochs",
        "_files",
        "_rolls",
        "_settled",
        "_since_ms",
        "_snapshot",
        "_syncs_names",
        "_truncations",
        "target",
    )

    def __init__(
        self,
        durability: Durability,
        dirty: list[Segment],
        active: Segment,
        target: int,
        content: bytes | None,
        epochs: bytes | None,
        settled: Callable[[], None],
        since_ms: int | None,
    ) -> None:
        self.target = target
        """Everything below it is durable afterwards."""
        self._durability = durability
        self._dirty = dirty
        self._active = active
        self._content = content
        """What the checkpoint must say when the recovery point is moved."""
        self._epochs = epochs
        """The checkpoint's content to write; None where it is written, or another flush is at it."""
        self._settled = settled
        self._since_ms = since_ms
        """Monotonic time of the oldest append that it makes durable; None where none was noted."""
        self._snapshot = segment_file(active.base_offset, SNAPSHOT) if len(dirty) > 1 else None
        """The one that the last roll has taken."""
        self._files = durability._files
        self._syncs_names = durability._files != durability._files_synced
        self._truncations = durability.truncations
        self._rolls = durability.rolls

    @property
    def log_dir(self) -> str:
        return self._durability.folder.owner.path

    def __repr__(self) -> str:
        return f"Flush({self._durability.folder.topic_partition} to {self.target})"

    def run(self) -> None:
        folder = self._durability.folder
        if self._epochs is not None:
            folder.replace_file(LEADER_EPOCH_CHECKPOINT, self._epochs)
        if self._snapshot is not None:
            folder.sync_file(self._snapshot)
        for segment in self._dirty:
            if segment.base_offset < self.target:
                segment.fsync(indexes=segment is not self._active)
        if self._syncs_names:
            folder.at_current_path(folder.disk.fsync_directory)

    def finish(self, error: OSError | None) -> None:
        durability = self._durability
        if self._epochs is not None:
            durability._is_writing_epochs = False
        if error is not None:
            is_gone = isinstance(error, FileNotFoundError) and self._truncations != durability.truncations
            if not durability.folder.is_deleted and not is_gone:
                durability.folder.fail(error, "flushing")
                durability.flush_failed(self._since_ms)
            return
        if self._epochs is not None:
            durability._epochs_written = self._epochs
        durability._files_synced = max(self._files, durability._files_synced)
        if self._truncations == durability.truncations:
            durability.flushed_offset = Offset(max(durability.flushed_offset, self.target))
            if durability._unsynced_from is not None and self.target >= self._active.base_offset:
                # What was closed before this flush began is durable with its indexes.
                is_all = self._rolls == durability.rolls
                durability._unsynced_from = None if is_all else max(durability._unsynced_from, self._active.base_offset)
            if self._content == durability._epochs_written:
                durability._recovery_point = Offset(max(durability._recovery_point, self.target))
        self._settled()


_PREPARED: Final = f"{LEADER_EPOCH_CHECKPOINT}.tmp"
"""The name that `LogFolder.replace_file` uses, too: a start meets no other remains after a crash."""
