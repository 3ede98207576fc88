"""Logs on their way from one log directory of a broker to another (KIP-113).

    first/t-0                                 the log that serves
    second/t-0.<32 hex digits>-future         its copy, which is to take its place

A copy is a `Log` like any other, in the directory that it is in, but the broker serves nothing from it. Once it has all
that the log has, **it takes its place in two steps**, each durable before the next:

    1. first/t-0                          is renamed to t-0.<...>-delete, as a deleted log is
    2. second/t-0.<...>-future            is renamed to t-0

A crash before the first leaves both: the move goes on where it was. A crash between them leaves only the copy:
if every directory works, `settle` finishes the second step at the next start. Kafka takes the steps in the other order,
and a crash between them leaves two folders t-0, with which neither Kafka nor we start.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.storage.checkpoints import encode_partition_metadata
from tidelog.storage.disk_errors import fails_alone
from tidelog.storage.errors import DirectoryOffline
from tidelog.storage.file_names import DELETE_FOLDER, FUTURE_FOLDER, PARTITION_METADATA, marked_folder
from tidelog.storage.log import Log
from tidelog.storage.log_directory import directory_of
from tidelog.storage.log_folder import LogFolder
from tidelog.storage.producer_recovery import load_first_snapshot, write_first_snapshot
from tidelog.storage.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.model.identifiers import TopicPartition
    from tidelog.ports.disk import Disk
    from tidelog.storage.log_directory import LogDirectory
    from tidelog.storage.log_folder import LogEnvironment

logger: Final = logging.getLogger(__name__)


def check_folder_name(topic_partition: TopicPartition) -> None:
    """KafkaError INVALID_TOPIC_EXCEPTION where a copy's folder would have too long a name for a file system.

    A folder whose name had to be cut would not be known again at the next start.
    """
    if not marked_folder(topic_partition, bytes(16), FUTURE_FOLDER).startswith(f"{topic_partition}."):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")


class FutureLogs:
    """The copies of a broker's logs. Owned by the thread that owns the logs."""

    def __init__(
        self,
        environment: LogEnvironment,
        logs: dict[TopicPartition, Log],
        *,
        token: Callable[[], bytes],
        delete_later: Callable[[LogDirectory, str, int], None],
    ) -> None:
        """`logs` are the manager's, those that serve; `delete_later` removes a renamed folder."""
        self._environment = environment
        self._logs = logs
        self._token = token
        self._delete_later = delete_later
        self._futures: dict[TopicPartition, Log] = {}
        self._directories: dict[TopicPartition, LogDirectory] = {}

    @property
    def _disk(self) -> Disk:
        return self._environment.disk

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._futures.values()))

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The copy of a log, while there is one."""
        return self._futures.get(topic_partition)

    # At the start.

    def loaded(self, log: Log, directory: LogDirectory) -> None:
        """A copy was found at the start. Of two, as a crash may leave them, the longer one stays."""
        other = self._futures.get(log.topic_partition)
        if other is not None:
            if other.log_end_offset >= log.log_end_offset:
                self._discard(log, directory)
                return
            self.delete(log.topic_partition)
        self._add(log, directory)

    def settle(self, *, all_online: bool) -> None:
        """Everything was loaded: finishes what a crash has interrupted, and drops copies of another topic's log or in
        their own log's directory."""
        for log in list(self._futures.values()):
            topic_partition = log.topic_partition
            current = self._logs.get(topic_partition)
            if current is None:
                if all_online and not log.is_offline:
                    logger.warning(
                        "move finished after a crash: partition=%s folder=%s", topic_partition, log.directory
                    )
                    self._promote(topic_partition)
            elif current.topic_id != log.topic_id or current.owner is log.owner:
                logger.warning("copy dropped: partition=%s folder=%s", topic_partition, log.directory)
                self.delete(topic_partition)

    # A move.

    def create(self, topic_partition: TopicPartition, directory: LogDirectory) -> Log:
        """An empty copy in `directory`, beginning where the log begins; durable with its first flush.

        The caller has removed an earlier log of that name from the checkpoints of `directory`. KafkaError
        INVALID_TOPIC_EXCEPTION for a name that is too long, KAFKA_STORAGE_ERROR.
        """
        current = self._logs[topic_partition]
        check_folder_name(topic_partition)
        name = marked_folder(topic_partition, self._token(), FUTURE_FOLDER)
        if directory.failure is not None:
            raise DirectoryOffline(directory.path, directory.failure)
        path = f"{directory.path}/{name}"
        disk, start, config = self._disk, current.log_start_offset, current.config
        # All others are in the batches that the copy will get. One may be silent for longer than its records are kept.
        silent = current.producers.silent_since(start)
        folder = LogFolder(topic_partition, path, directory, self._environment)
        try:
            disk.make_directories(path)
            if current.topic_id is not None:
                file = disk.open(f"{path}/{PARTITION_METADATA}", create=True)
                try:
                    file.pwrite(encode_partition_metadata(current.topic_id), 0)
                finally:
                    file.close()
            now_ms = self._environment.clock.wall_ms()
            write_first_snapshot(folder, silent, start)
            segment = Segment.create(self._environment.pool, path, start, config, now_ms=now_ms)
        except OSError as error:
            directory.undo_folder(path)
            raise directory.refused(error, f"creating a copy of {topic_partition}") from error
        log = Log(folder, current.topic_id, config, segments=[segment], log_start_offset=start)
        log.log_end_offset = start
        load_first_snapshot(folder, log.producers, silent, start)
        log.update_high_watermark(start)
        log.durability.file_created()
        self._add(log, directory)
        directory.folder_created(path)
        _remove_half_made(directory)
        return log

    def delete(self, topic_partition: TopicPartition) -> bool:
        """Drops a copy: its folder is renamed now and removed soon; false if there is none. KAFKA_STORAGE_ERROR."""
        log = self._futures.get(topic_partition)
        if log is None:
            return False
        directory = self._directories[topic_partition]
        if directory.failure is None:
            self._discard(log, directory)
        self._forget(topic_partition)
        return True

    def _discard(self, log: Log, directory: LogDirectory) -> None:
        name = marked_folder(log.topic_partition, self._token(), DELETE_FOLDER)
        target = self._rename(log, directory, name, log.deleted)
        directory.copy_dropped(log.topic_partition)
        self._delete_later(directory, target, 0)

    def replace(self, topic_partition: TopicPartition) -> Log:
        """Puts the copy in the place of its log, and returns it. It must have all that the log has, as durably.

        Syncs both directories in this thread: until it returns, nothing may be appended to the log. KafkaError
        KAFKA_STORAGE_ERROR: nothing was replaced, or a directory went offline and the next start goes on (`settle`).
        """
        old = self._logs[topic_partition]
        directory = directory_of(old)
        new = self._futures[topic_partition]
        old.folder.check_online()
        new.folder.check_online()
        try:
            old.folder.finish_steps()
            new.folder.finish_steps()
            self._directories[topic_partition].sync_folders([new.directory])
        except OSError as error:
            raise new.folder.fail(error, "moving") from error
        path = old.directory
        target = self._rename(
            old, directory, marked_folder(topic_partition, self._token(), DELETE_FOLDER), old.replaced
        )
        try:
            self._sync(directory)
        except OSError as error:
            self._rename_back(old, directory, path)
            raise old.folder.fail(error, "moving") from error
        del self._logs[topic_partition], directory.logs[topic_partition]
        for waiting in (directory.flush_requests, directory.changes, directory.truncations):
            waiting.pop(topic_partition, None)
        directory.removed.add(topic_partition)
        new.cleaned_offset = old.cleaned_offset  # Nothing was cleaned while it was copied.
        self._delete_later(directory, target, old.config.file_delete_delay_ms)
        if new.epochs.take_over(old.epochs):
            # Of epochs whose batches compaction has removed it knew nothing: a follower whose log ends in such a one
            # would cut what is committed.
            new.mark_changed()
        self._promote(topic_partition)
        return new

    def _promote(self, topic_partition: TopicPartition) -> None:
        """The copy has its log's place; its folder gets the name now, or as soon as the disk allows it."""
        log, directory = self._futures.pop(topic_partition), self._directories.pop(topic_partition)
        # Also where the directory fails now: the log is there, and offline.
        self._logs[topic_partition] = log

        def rename() -> None:
            target = f"{directory.path}/{topic_partition}"
            log.folder.rename(target, log.moved)
            self._sync_or_later(directory)

        try:
            log.folder.finish(rename)
        except OSError as error:
            raise log.folder.fail(error, "moving") from error

    # Folders.

    def _add(self, log: Log, directory: LogDirectory) -> None:
        self._futures[log.topic_partition] = log
        self._directories[log.topic_partition] = directory
        directory.logs[log.topic_partition] = log

    def _forget(self, topic_partition: TopicPartition) -> None:
        log, directory = self._futures.pop(topic_partition), self._directories.pop(topic_partition)
        if directory.logs.get(topic_partition) is log:
            del directory.logs[topic_partition]
        for waiting in (directory.flush_requests, directory.changes, directory.truncations):
            waiting.pop(topic_partition, None)
        directory.removed.add(topic_partition)

    def _rename(self, log: Log, directory: LogDirectory, name: str, renamed: Callable[[str], None]) -> str:
        """Renames a log's folder, and tells it by `renamed`. KAFKA_STORAGE_ERROR, and then nothing has changed."""
        target = f"{directory.path}/{name}"
        try:
            log.folder.rename(target, renamed)
        except OSError as error:
            raise log.folder.fail(error, "moving") from error
        return target

    def _rename_back(self, log: Log, directory: LogDirectory, path: str) -> None:
        """The folder gets back the name that it had; otherwise the directory goes offline, since no log has it."""
        try:
            log.folder.rename(path, log.reinstated)
        except OSError as error:
            directory.failed(error, "moving a log")

    def _sync(self, directory: LogDirectory) -> None:
        """Makes a rename durable. OSError that fails alone; `DirectoryOffline` after any other."""
        try:
            self._disk.fsync_directory(directory.path)
        except OSError as error:
            if fails_alone(error):
                raise
            directory.failed(error, "moving a log")
            raise DirectoryOffline(directory.path, str(error)) from error

    def _sync_or_later(self, directory: LogDirectory) -> None:
        """As `_sync`; where it has to be tried again the next task for new folders does so."""
        try:
            self._sync(directory)
        except OSError as error:
            logger.debug("sync postponed: directory=%s error=%s", directory.path, error)
            directory.needs_sync = True


def _remove_half_made(directory: LogDirectory) -> None:
    """Removes what failed attempts to make copies have left: no later attempt takes their names."""
    for path in [path for path in directory.half_made if path.endswith(FUTURE_FOLDER)]:
        directory.undo_folder(path)
