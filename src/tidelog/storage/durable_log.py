"""A log that is flushed while it serves, and made whole on disk when it is closed, deleted or moved.

    append --> unflushed_since_ms --> flush_task --> flushed_offset

flush.messages, flush.ms and rolling ask for a flush; `flushing` knows what has to be synced. Its subclass `Log`
adds appends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.model.identifiers import Offset
from tidelog.storage.log_config import LONG_MAX
from tidelog.storage.producer_recovery import take_snapshot
from tidelog.storage.truncation import TruncatableLog

if TYPE_CHECKING:
    from tidelog.storage.tasks import DiskTask


class DurableLog(TruncatableLog):
    """One partition's log, as far as the disk is concerned."""

    __slots__ = ()

    @property
    def flushed_offset(self) -> Offset:
        """Everything below survives a power cut."""
        return self.durability.flushed_offset

    @property
    def recovery_point(self) -> Offset:
        """What the checkpoint may say: batches below need not be read again after a crash."""
        return self.durability.recovery_point(self.active)

    @property
    def unflushed_since_ms(self) -> int | None:
        """Monotonic time of the oldest append that is not flushed; None when all is."""
        return self.durability.unflushed_since_ms

    @property
    def is_clean(self) -> bool:
        """Whether nothing waits to be flushed, or to be done to files."""
        return self.flushed_offset >= self.log_end_offset and not self.epochs_dirty and not self.folder.unfinished

    @property
    def epochs_dirty(self) -> bool:
        """Whether the epochs differ from their checkpoint file."""
        return self.durability.epochs_dirty

    @property
    def is_flush_due(self) -> bool:
        """Whether `flush.messages` records are not flushed."""
        return self.log_end_offset - self.durability.flushed_offset >= self.config.flush_messages

    def want_flush(self) -> None:
        """Has the owner flush what is not flushed yet, as if `flush.messages` asked for it."""
        if self.log_end_offset > self.flushed_offset:
            self.folder.owner.flush_wanted(self.topic_partition)

    def truncation_is_durable(self) -> None:
        """Called when a truncation is durable: flushes that waited for it go on."""
        if self.log_end_offset > self.flushed_offset:
            self._flush_if_due()
            if self.active.base_offset > self.flushed_offset:
                self.folder.owner.flush_wanted(self.topic_partition)

    def _flush_if_due(self) -> None:
        if self.is_flush_due:
            self.folder.owner.flush_wanted(self.topic_partition)

    def _unflushed_since(self, since_ms: int) -> None:
        """The oldest append that is not flushed is of that monotonic time: `flush.ms` counts from there."""
        self.durability.unflushed_since_ms = since_ms
        if self.config.flush_ms != LONG_MAX:
            self.folder.owner.flush_due(since_ms + self.config.flush_ms)

    def flush_task(self, up_to_offset: int | None = None) -> DiskTask | None:
        """Makes everything below `up_to_offset` (None: the log's end) durable; then `flushed_offset` follows.

        None when that is so already. Several flushes of one log may be under way.
        """
        self.folder.check_online()
        target = self.log_end_offset if up_to_offset is None else min(up_to_offset, self.log_end_offset)
        since_ms = self.unflushed_since_ms
        try:
            task = self.durability.flush(self.segments, target, self._flushed)
        except OSError as error:
            refused = self.folder.fail(error, "flushing")
            self.folder.owner.flush_failed(self.topic_partition)
            raise refused from error
        if target < self.log_end_offset:
            # Of closed segments or epochs alone: the records behind go on ageing.
            self.durability.unflushed_since_ms = since_ms
        return task

    def _flushed(self) -> None:
        durability = self.durability
        if durability.flushed_offset >= self.log_end_offset:
            durability.unflushed_since_ms = None
        else:
            if durability.unflushed_since_ms is None:
                self._unflushed_since(self.folder.environment.clock.monotonic_ms())
            self._flush_if_due()

    def finish_steps(self) -> None:
        """Does what earlier steps have left to do to files. `KafkaError` KAFKA_STORAGE_ERROR: it is
        not done yet."""
        self.folder.check_online()
        try:
            self.folder.finish_steps()
        except OSError as error:
            raise self.folder.fail(error, "finishing a step of") from error

    # The end.

    def close(self) -> bool:
        """Finishes every file, as a clean stop must; true if any has changed and is to be synced.

        The caller syncs either by `sync_files`, or by a sync of everything, `install_epochs`, and another sync of
        everything.

        OSError if the disk refuses.
        """
        self.catch_up_producers(self.folder.environment.clock.wall_ms())
        changed = bool(self.folder.unfinished) or self.recovery_point < self.log_end_offset
        self.folder.finish_steps()
        self.producers.map_end_offset = self.log_end_offset
        changed = take_snapshot(self.folder, self.producers, self.log_end_offset) or changed
        changed = self.durability.prepare_epochs() or changed
        for segment in self.segments:
            changed = segment.close() or changed
        return changed

    def sync_files(self) -> None:
        """Makes what `close` left durable, file by file."""
        self.durability.sync(self.segments, self.log_end_offset)

    def install_epochs(self) -> bool:
        """Puts the leader epochs that `close` left, and that are durable by now, in place; true if there were any."""
        return self.durability.install_epochs()

    def synced(self) -> None:
        """All that `close` left is durable."""
        self.durability.all_synced(self.log_end_offset)

    def release_files(self) -> None:
        """Closes descriptors, of a log whose directory has failed or that is being deleted."""
        for segment in self.segments:
            segment.release_files()

    def deleted(self, path: str) -> None:
        """Its folder was renamed to `path`, to be removed or put aside: the log serves no more.

        The caller has held `FilePool.names` since before the renaming, as for `moved` and `replaced`.
        """
        self.folder.path = path
        self.folder.is_deleted = True
        self.folder.unfinished = []
        for segment in self.segments:
            segment.moved(path)
        self.release_files()

    def moved(self, path: str) -> None:
        """Its folder was renamed to `path`: it serves from there."""
        self.folder.path = path
        for segment in self.segments:
            segment.moved(path)

    def reinstated(self, path: str) -> None:
        """What `replaced` said has been taken back: its folder has its name again."""
        self.folder.is_deleted = self.folder.is_replaced = False
        self.moved(path)

    def replaced(self, path: str) -> None:
        """As `deleted`, of a log whose copy in another directory takes its place: readers of it are to ask again."""
        self.folder.is_replaced = True
        self.deleted(path)
