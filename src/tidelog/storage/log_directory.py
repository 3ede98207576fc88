"""One entry of `log.dirs`: whose it is, what lies in it, and whether it still works.

    .lock                                    held while a broker uses the directory
    meta.properties                          cluster, broker and directory id
    .kafka_cleanshutdown, segment-sizes, boot-id, disk-failed
                                             how its last owner stopped: `last_stop`
    recovery-point-offset-checkpoint, replication-offset-checkpoint, log-start-offset-checkpoint,
    cleaner-offset-checkpoint
    <topic>-<partition>/                     the logs

The first operation that fails because the disk is broken (`disk_errors`) takes the directory offline for good: what its
files hold is then unknown, and only a restart, with its recovery, may trust it again. One that fails for a lack of
descriptors or memory fails alone: what was to be done for the whole directory is then done a moment later.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar, cast

from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import TopicPartition, format_topic_id
from tidelog.model.topics import CLUSTER_METADATA_TOPIC
from tidelog.ports.disk import make_durable_directories, replace_file, sync_file
from tidelog.storage.checkpoints import (
    MetaProperties,
    decode_meta_properties,
    decode_offsets,
    encode_meta_properties,
    encode_offsets,
)
from tidelog.storage.disk_errors import advice, fails_alone
from tidelog.storage.errors import CorruptFile, DirectoryOffline, LogDirectoryLocked, RefusedForNow, WrongLogDirectory
from tidelog.storage.file_names import (
    CLEANER_CHECKPOINT,
    DELETE_FOLDER,
    FUTURE_FOLDER,
    LOCK,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    parse_marked_folder,
    parse_partition_folder,
)
from tidelog.storage.last_stop import LastStop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.model.identifiers import TopicId
    from tidelog.ports.disk import Disk, Lock
    from tidelog.storage.log import Log

logger = logging.getLogger(__name__)

T = TypeVar("T")

SYNCED_ONE_BY_ONE_MAX: Final = 16
"""Logs up to which syncing their own files is quicker than syncing the file system."""
_FOREIGN_FOLDERS: Final = frozenset({"lost+found", "remote-log-index-cache", f"{CLUSTER_METADATA_TOPIC}-0", ".store"})
"""What others keep beside logs: the file system, Kafka itself, and the embedded metadata store of `tidelog broker`."""

FLUSH_RETRY_MS: Final = 1_000
"""Before a flush is tried again that did not happen for want of descriptors or memory."""


class LogDirectory:
    """A log directory and its logs."""

    def __init__(self, disk: Disk, path: str, *, on_failure: Callable[[LogDirectory], None]) -> None:
        self._disk = disk
        self._on_failure = on_failure
        self._lock: Lock | None = None
        self._path = path.rstrip("/") or "/"
        self._failure: str | None = None
        self._name_lock = threading.RLock()
        self.is_released = False
        self.logs: dict[TopicPartition, Log] = {}
        self.properties: MetaProperties | None = None
        self.last_stop = LastStop(disk, self._path)
        self.is_new = False
        """Whether it had no owner before. `meta.properties` is not written before that was told (`keep_properties`)."""
        self.missing: dict[TopicPartition, int] = {}
        """Partitions without a folder here, with the high watermark by which the checkpoint names them; it goes on to
        do so until that was told."""
        self.written: dict[str, bytes] = {}
        """[checkpoint file] -> content last written, or about to be, to leave out writes that change nothing"""
        self._checkpoint_lock = threading.Lock()
        """Held while a checkpoint file is replaced: a task of an I/O thread and `forget_removed` may meet."""
        self.pending_deletions: list[tuple[Callable[[], None], int]] = []
        """What to unlink, and after how many milliseconds."""
        self.flush_requests: dict[TopicPartition, None] = {}
        """Logs that want a flush, in the order in which they said so."""
        self.flush_retries: dict[TopicPartition, int] = {}
        """Monotonic time at which a flush that did not happen is tried again, by log."""
        self.on_flush_due: Callable[[int], None] = lambda due_ms: None
        """Told of the monotonic time by which a flush is wanted; the scheduler of disk tasks looks then."""
        self.truncations: dict[TopicPartition, None] = {}
        """Logs that were cut since the last task that makes that durable."""
        self.changes: dict[TopicPartition, None] = {}
        """Logs with something to flush or to checkpoint."""
        self.knows_cleaned = False
        """Whether there is a checkpoint of the cleaner's to be kept true; without compacted topics there is none."""
        self.checkpoints_are_behind = False
        """Whether the disk has refused the last checkpoints, for now."""
        self.is_checkpointing = False
        """Whether a task that writes checkpoints is under way: what it writes may be older than what is known now."""
        self._is_damaged = False
        self.removed: set[TopicPartition] = set()
        """Of logs that are not here any more, and that a checkpoint file may still name."""
        self.offsets_written: dict[str, Mapping[TopicPartition, int]] = {}
        """[checkpoint file] -> the offsets as they stand there: a crash cannot take them back."""
        self._drafts: dict[str, tuple[bytes, Mapping[TopicPartition, int]]] = {}
        """[checkpoint file] -> the newest content that is to be written there, and its offsets."""
        self.created: dict[str, int] = {}
        """[path of a partition's folder] -> number of the change: made since the last sync."""
        self.put_away: dict[TopicPartition, int] = {}
        """[partition] -> number of the change: its folder here was renamed to go since the last sync."""
        self.dropped_copies: dict[TopicPartition, int] = {}
        """The same for copies on their way here."""
        self._folder_changes = 0
        self.syncs = 0
        """Tasks under way that make folders durable."""
        self.needs_sync = False
        """Whether folders were created, renamed or removed since the last sync."""
        self.half_made: set[str] = set()
        """Folders of partitions whose creation has failed, and which could not be removed then."""

    def __repr__(self) -> str:
        return f"LogDirectory({self._path!r}, {len(self.logs)} logs{', offline' if self._failure else ''})"

    # What logs know of it: `tidelog.storage.log_folder.LogOwner`.

    @property
    def path(self) -> str:
        return self._path

    @property
    def failure(self) -> str | None:
        """Why it is offline; None while it works."""
        return self._failure

    @property
    def name_lock(self) -> threading.RLock:
        """Held while names of its folders, or in them, are changed."""
        return self._name_lock

    def failed(self, error: OSError, what: str) -> None:
        """Takes the directory offline, once; in any thread."""
        if self._failure is not None:
            return
        self._failure = f"{what}: {error}"
        logger.error("log_directory_offline: path=%s while=%r error=%s", self._path, what, error)
        if self._lock is not None:
            self.last_stop.note_failure()
        for log in list(self.logs.values()):
            log.release_files()
        # Replaced, not emptied: the logs' owner may be going through one just now.
        self.flush_requests, self.flush_retries, self.truncations, self.changes = {}, {}, {}, {}
        self.pending_deletions = []
        self._on_failure(self)

    def task_failed(self, error: OSError, what: str) -> bool:
        """Work for the whole directory has failed: takes it offline, or gives true: the work is to be done again."""
        if self._failure is None and fails_alone(error):
            logger.warning("disk_task_postponed: path=%s while=%r error=%s", self._path, what, advice(error))
            return True
        self.failed(error, what)
        return False

    def refused(self, error: OSError, what: str) -> KafkaError:
        """What to raise where a step that concerns no log yet has failed; takes the directory offline if it must."""
        if fails_alone(error):
            return RefusedForNow(f"{what}: {advice(error)}")
        self.failed(error, what)
        return DirectoryOffline(self._path, str(error))

    def undo_folder(self, path: str) -> None:
        """Removes the folder of a log that could not be made; before the next attempt, if the disk refuses it now."""
        self.half_made.add(path)
        try:
            self.remove_half_made(path)
        except OSError as error:
            logger.warning("folder_left: path=%s error=%s", path, error)

    def remove_half_made(self, path: str) -> None:
        """Removes what `undo_folder` has left. OSError."""
        remove_folder(self._disk, path)
        self.half_made.discard(path)

    def flush_wanted(self, topic_partition: TopicPartition) -> None:
        self.flush_requests[topic_partition] = None

    def flush_due(self, due_ms: int) -> None:
        self.on_flush_due(due_ms)

    def flush_failed(self, topic_partition: TopicPartition) -> None:
        log = self.logs.get(topic_partition)
        if self._failure is None and log is not None:
            due_ms = log.folder.environment.clock.monotonic_ms() + FLUSH_RETRY_MS
            self.flush_retries[topic_partition] = due_ms
            self.on_flush_due(due_ms)

    def take_flush_retries(self, now_ms: int) -> list[Log]:
        """The logs whose flush is to be tried again by now, once."""
        due = [name for name, due_ms in self.flush_retries.items() if due_ms <= now_ms]
        for name in due:
            self.flush_retries.pop(name, None)
        return [self.logs[name] for name in due if name in self.logs]

    def truncated(self, topic_partition: TopicPartition) -> None:
        self.truncations[topic_partition] = None

    def changed(self, topic_partition: TopicPartition) -> None:
        self.changes[topic_partition] = None

    def take_flush_requests(self) -> list[Log]:
        """The logs that want a flush; they are taken at their word once."""
        wanted, self.flush_requests = self.flush_requests, {}
        return [self.logs[name] for name in wanted if name in self.logs]

    def take_truncations(self) -> list[Log]:
        """The logs that were cut, once."""
        cut, self.truncations = self.truncations, {}
        return [self.logs[name] for name in cut if name in self.logs]

    def changed_logs(self) -> list[Log]:
        """The logs that may have something to flush or to checkpoint."""
        return [self.logs[name] for name in self.changes if name in self.logs]

    def delete_later(self, unlink: Callable[[], None], delay_ms: int) -> None:
        self.pending_deletions.append((unlink, delay_ms))

    # Opening.

    def open(self, broker_id: int, cluster_id: str | None, directory_id: Callable[[], TopicId]) -> None:
        """Locks the directory and makes sure that it is ours.

        `LogDirectoryLocked`, `WrongLogDirectory` and `CorruptFile` are to stop the broker; an OSError only takes the
        directory out of service (`failed`).
        """
        disk, path = self._disk, self._path
        make_durable_directories(disk, path)
        try:
            self._lock = disk.lock(f"{path}/{LOCK}")
        except BlockingIOError as error:
            raise LogDirectoryLocked(
                f"Failed to acquire lock on file {LOCK} in {path}. Another process is using this directory, or log.dirs"
                " names it twice: stop that process, or give this broker a directory of its own"
            ) from error
        self._check_properties(broker_id, cluster_id, directory_id)
        self.last_stop.read()

    def _check_properties(self, broker_id: int, cluster_id: str | None, directory_id: Callable[[], TopicId]) -> None:
        file = f"{self._path}/{META_PROPERTIES}"
        try:
            found = decode_meta_properties(self._disk.read(file))
        except FileNotFoundError:
            found = MetaProperties(None, None, None)
            self.is_new = True
        except CorruptFile as error:
            raise CorruptFile(
                f"{file}: {error}; restore it, or remove it if the directory belongs to this broker"
            ) from error
        if found.broker_id is not None and found.broker_id != broker_id:
            raise WrongLogDirectory(
                f"Configured broker.id {broker_id} doesn't match stored broker.id {found.broker_id} in {file}."
                f" If you moved"
                " your data, make sure your configured broker.id matches. If you intend to create a new broker, give it"
                " another log directory"
            )
        if cluster_id is not None and found.cluster_id is not None and found.cluster_id != cluster_id:
            raise WrongLogDirectory(
                f"The Cluster ID {cluster_id} doesn't match stored clusterId {found.cluster_id} in {file}. The"
                f" broker is"
                " trying to join the wrong cluster: check which store it uses, or give it another log directory"
            )
        self.properties = MetaProperties(
            broker_id,
            found.cluster_id if cluster_id is None else cluster_id,
            found.directory_id or format_topic_id(directory_id()),
            found.version,
        )
        if self.properties != found and found.version == 0 and not self.is_new:
            replace_file(self._disk, file, encode_meta_properties(self.properties))

    def keep_properties(self) -> None:
        """Makes a new directory its owner's: a later start takes what is not in it for logs that never were. Blocks.
        OSError."""
        if self.is_new and self.properties is not None:
            replace_file(self._disk, f"{self._path}/{META_PROPERTIES}", encode_meta_properties(self.properties))
            self.is_new = False

    def read_offsets(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint; an unreadable one counts as empty: offsets are then found by recovery."""
        try:
            return decode_offsets(self._disk.read(f"{self._path}/{name}"))
        except FileNotFoundError:
            return {}
        except CorruptFile as error:
            logger.warning("checkpoint_ignored: path=%s/%s reason=%s", self._path, name, error)
            return {}

    def partition_folders(
        self,
    ) -> tuple[list[tuple[TopicPartition, str]], list[tuple[TopicPartition, str]], list[str]]:
        """Partitions with their folders, those on their way here with theirs, and the paths of deleted ones' folders.

        `InvalidLogFolder` for a folder that cannot be a partition's; strays are left alone.
        """
        partitions: list[tuple[TopicPartition, str]] = []
        futures: list[tuple[TopicPartition, str]] = []
        deleted: list[str] = []
        for name in self._disk.list(self._path):
            path = f"{self._path}/{name}"
            if name in _FOREIGN_FOLDERS or not self._disk.stat(path).is_directory:
                continue
            marked = parse_marked_folder(name)
            if marked is None:
                partitions.append((parse_partition_folder(name, self._path), path))
            elif marked[1] == DELETE_FOLDER:
                deleted.append(path)
            elif marked[1] == FUTURE_FOLDER:
                futures.append((parse_partition_folder(marked[0], self._path), path))
            else:
                logger.warning("log_folder_left_alone: path=%s", path)
        return partitions, futures, deleted

    # Checkpoints.

    def checkpoint_writes(self, *, recovery: bool = True, high_watermarks: bool = True) -> list[tuple[str, bytes]]:
        """Path and content of the checkpoints that differ from what was last written."""
        contents: list[tuple[str, Mapping[TopicPartition, int]]] = []
        if recovery:
            recovery_points = {tp: log.recovery_point for tp, log in self.logs.items()}
            contents.append((RECOVERY_POINT_CHECKPOINT, recovery_points))
            # Kafka leaves out starts that are a segment's own. But the removal of older segments may not be durable
            # yet, and a power cut that brings them back must not bring back their records.
            starts = {tp: log.kept_start for tp, log in self.logs.items() if log.kept_start > 0}
            contents.append((LOG_START_CHECKPOINT, starts))
            cleaned = {tp: log.cleaned_offset for tp, log in self.logs.items() if log.cleaned_offset is not None}
            self.knows_cleaned = self.knows_cleaned or bool(cleaned)
            if self.knows_cleaned:
                contents.append((CLEANER_CHECKPOINT, cleaned))
        if high_watermarks:
            high_watermarks_kept = {tp: log.kept_high_watermark for tp, log in self.logs.items()}
            contents.append((REPLICATION_CHECKPOINT, self.missing | high_watermarks_kept))
        writes = []
        for name, offsets in contents:
            content = encode_offsets(offsets)
            if self.written.get(name) != content:
                self.written[name] = content
                self._drafts[name] = (content, offsets)
                writes.append((f"{self._path}/{name}", content))
        return writes

    def forget_removed(self, topic_partition: TopicPartition) -> None:
        """Before a log is made anew: whatever the checkpoints say of one that had its name is not true of it.

        A power cut would otherwise leave what was not synced below the old log's recovery point unlooked-at, and a
        start that the new log does not reach would have it emptied. OSError.
        """
        if topic_partition not in self.removed:
            return
        self.missing.pop(topic_partition, None)
        if self.is_checkpointing:
            # What the task under way is to write is not there yet, and may be older than the removal: all is written
            # here, and the task leaves out what has become old.
            self.written.clear()
        writes = self.checkpoint_writes()
        try:
            self.write_checkpoints(writes)
        except OSError:
            self.not_written(writes)
            raise
        self.removed.intersection_update(self.missing)

    def not_written(self, writes: list[tuple[str, bytes]]) -> None:
        """These checkpoints were to be written and perhaps were not: they are to be written again."""
        self.checkpoints_are_behind = True
        for path, content in writes:
            name = path.rpartition("/")[2]
            if self.written.get(name) == content:
                del self.written[name]

    def write_checkpoints(self, writes: list[tuple[str, bytes]]) -> None:
        """Replaces the files, but for those of which something newer has been written since; in any thread. OSError.

        Newer content that the disk has refused is no reason to leave one out: what waits for this task would not be
        there.
        """
        for path, content in writes:
            name = path.rpartition("/")[2]
            with self._checkpoint_lock:
                if self.written.get(name, content) == content:
                    replace_file(self._disk, path, content)
                    draft, offsets = self._drafts[name]
                    if content is draft:
                        self.offsets_written[name] = offsets
                    else:
                        self.offsets_written.pop(name, None)
        self.checkpoints_are_behind = False

    def folder_created(self, path: str) -> None:
        """A partition's folder was made."""
        self._note_change(self.created, path)

    def folder_put_away(self, topic_partition: TopicPartition) -> None:
        """A log's folder was renamed to go."""
        self._note_change(self.put_away, topic_partition)

    def copy_dropped(self, topic_partition: TopicPartition) -> None:
        """A copy's folder was renamed to go."""
        self._note_change(self.dropped_copies, topic_partition)

    def _note_change(self, changes: dict[T, int], key: T) -> None:
        self._folder_changes += 1
        changes[key] = self._folder_changes
        self.needs_sync = True

    def changes_durable(self, up_to: int) -> None:
        """A sync that was begun at `folder_changes` has ended: what came later is not durable yet."""
        self.created = _later(self.created, up_to)
        self.put_away = _later(self.put_away, up_to)
        self.dropped_copies = _later(self.dropped_copies, up_to)

    @property
    def folder_changes(self) -> int:
        """Number of the last change of folders."""
        return self._folder_changes

    def sync_folders(self, created: list[str]) -> None:
        """Makes new folders of partitions durable, and that others were renamed or removed.

        Many are made durable by one sync of the whole file system, which waits for other files' pages too; a few by
        one sync each.
        """
        if len(created) > SYNCED_ONE_BY_ONE_MAX:
            self._disk.sync_file_system(self._path)
            return
        for folder in created:
            try:
                self._sync_folder(folder)
            except FileNotFoundError:
                # Its log was deleted meanwhile, or has moved. One that was made anew under the name is another folder.
                if self._disk.exists(folder):
                    self._sync_folder(folder)
        self._disk.fsync_directory(self._path)

    def _sync_folder(self, folder: str) -> None:
        metadata = f"{folder}/{PARTITION_METADATA}"
        if self._disk.exists(metadata):
            file = self._disk.open(metadata)
            try:
                sync_file(file)
            finally:
                file.close()
        self._disk.fsync_directory(folder)

    def close(self, broker_epoch: int) -> None:
        """Closes the logs, syncs, writes the checkpoints, and says that the stop was clean, unless the next start is to
        recover the logs all the same; releases the lock.

        The number of syncs is bounded, however many logs there are.
        """
        try:
            if self._failure is None:
                outcomes = [(log, self._close_log(log)) for log in self.logs.values()]
                changed = [log for log, is_changed in outcomes if is_changed]
                if len(changed) + len(self.created) > SYNCED_ONE_BY_ONE_MAX:
                    self._disk.sync_file_system(self._path)
                    # Leader epochs get their names when their content is durable, and before any recovery point moves.
                    if sum(log.install_epochs() for log in changed):
                        self._disk.sync_file_system(self._path)
                else:
                    for log in changed:
                        log.sync_files()
                    self.sync_folders(list(self.created))
                for log, is_changed in outcomes:
                    if is_changed is not None:
                        log.synced()
                self.write_checkpoints(self.checkpoint_writes())
                if not self._is_damaged:
                    self.last_stop.note_clean(broker_epoch, self._sizes())
        except OSError as error:
            self.failed(error, "closing the logs")
        finally:
            self.release()

    def _sizes(self) -> dict[TopicPartition, dict[int, int]]:
        return {
            topic_partition: {segment.base_offset: segment.size for segment in log.segments}
            for topic_partition, log in self.logs.items()
        }

    def _close_log(self, log: Log) -> bool | None:
        """`Log.close`; None for one that cannot be closed, since its files are damaged, say: it does not count as
        durable, and makes the next start recover all."""
        try:
            return log.close()
        except (KafkaError, CorruptFile) as error:
            logger.error("log_not_closed_cleanly: log=%s reason=%s", log.topic_partition, error)
            self._is_damaged = True
            return None

    def release(self) -> None:
        """Gives up the lock; what was not closed is recovered at the next start."""
        self.is_released = True
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


def _later(changes: dict[T, int], number: int) -> dict[T, int]:
    """The changes after that of this number."""
    return {key: each for key, each in changes.items() if each > number}


def remove_folder(disk: Disk, path: str) -> None:
    """Removes a partition's folder and the files in it; may be called again where it came half-way.

    A flush that began before may still be at it in another thread: ENOTEMPTY where it has put a file there meanwhile.
    """
    if not disk.exists(path):
        return
    for name in disk.list(path):
        file = f"{path}/{name}"
        with suppress(FileNotFoundError):
            if disk.stat(file).is_directory:
                remove_folder(disk, file)
            else:
                disk.unlink(file)
    disk.remove_directory(path)


def directory_of(log: Log) -> LogDirectory:
    """The log directory in which a log of the broker lies."""
    return cast("LogDirectory", log.owner)
