"""All logs of a broker, over all its log directories.

A new log goes to the working directory with the fewest logs. A directory that fails goes offline with its logs, the
others serve on; when the last has failed the manager says so, and the broker stops.

`maintenance` hands out what has to be done from time to time (flushes, retention, checkpoints, removal of files) as
`DiskTask`s, because it waits for the disk.
"""

from __future__ import annotations

import logging
from itertools import count
from typing import TYPE_CHECKING

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition, dashless_id, format_topic_id
from tidelog.placement import log_directory as placement
from tidelog.ports.disk import replace_file
from tidelog.storage.absent_logs import AbsentLogs
from tidelog.storage.checkpoints import encode_partition_metadata
from tidelog.storage.cleaner.log_cleaner import LogCleaner
from tidelog.storage.counts import StartProgress, bytes_to_recover
from tidelog.storage.errors import DirectoryOffline, NoLogDirectory, WrongLogDirectory
from tidelog.storage.file_names import (
    CLEANER_CHECKPOINT,
    DELETE_FOLDER,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    STRAY_FOLDER,
    marked_folder,
)
from tidelog.storage.file_pool import FilePool
from tidelog.storage.future_logs import FutureLogs
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_directory import LogDirectory, directory_of, remove_folder
from tidelog.storage.log_folder import LogEnvironment, LogFolder
from tidelog.storage.log_loader import load_log
from tidelog.storage.log_maintenance import LogMaintenance
from tidelog.storage.log_manager_settings import LogManagerSettings
from tidelog.storage.lost_records import compare_with_high_watermark
from tidelog.storage.producer_limit import ProducerLimit
from tidelog.storage.producer_maintenance import ProducerMaintenance
from tidelog.storage.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Sequence

    from tidelog.ports.clock import Clock
    from tidelog.ports.disk import Disk
    from tidelog.ports.random import Random
    from tidelog.storage.tasks import DiskTask

__all__ = ["LogManager", "LogManagerSettings"]

logger = logging.getLogger(__name__)


class LogManager:
    """The logs of one broker. Owned by one thread; only `DiskTask.run` and blocking reads happen elsewhere."""

    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        log_dirs: Sequence[str],
        broker_id: int,
        cluster_id: str | None,
        default_config: LogConfig | None = None,
        topic_config: Callable[[str], LogConfig] | None = None,
        random: Random | None = None,
        settings: LogManagerSettings | None = None,
        on_directory_failure: Callable[[str], None] | None = None,
    ) -> None:
        """`topic_config` gives a topic's settings while its logs are loaded; `cluster_id` None takes what is stored.

        `on_directory_failure` is called with the path of each directory that goes offline.
        """
        if not log_dirs:
            raise ValueError("log.dirs names no directory")
        self._clock = clock
        self._random = random
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._topic_config = topic_config
        self._on_directory_failure = on_directory_failure
        self.default_config = LogConfig() if default_config is None else default_config
        self.settings = LogManagerSettings() if settings is None else settings
        self.pool = FilePool(disk, self.settings.open_files_max)
        self._disk = disk = self.pool.disk
        self.producer_limit = ProducerLimit(clock, self.settings.producers_max)
        """How many producers all logs remember together."""
        self.environment = LogEnvironment(
            disk, self.pool, clock, random, self.settings.producer_expiration_ms, self.producer_limit
        )
        self.counts = self.environment.counts
        """Bytes that were recovered and cut."""
        self.progress = StartProgress(self.counts)
        """How far `open` has come."""
        self.directories = [LogDirectory(disk, path, on_failure=self._directory_failed) for path in log_dirs]
        self.cordoned: Collection[str] = ()
        """`cordoned.log.dirs`: directories that get no new logs unless asked for; `*` stands for all."""
        self._logs: dict[TopicPartition, Log] = {}
        self.producer_maintenance = ProducerMaintenance(self.environment, self._logs)
        """Writes large snapshots of producers, and forgets producers; asked by `maintenance` too."""
        self.maintenance = LogMaintenance(
            disk, clock, self.directories, self._logs, self.settings, self.producer_maintenance
        )
        """What is done to the logs from time to time, and after changes."""
        self._sequence = count()
        self.futures = FutureLogs(
            self.environment,
            self._logs,
            token=self._token,
            delete_later=self._delete_folder_later,
        )
        """Copies of logs on their way to another directory."""
        self.cleaner = LogCleaner(
            clock,
            random,
            self._logs,
            self.settings.cleaner,
            is_moving=lambda partition: self.futures.get(partition) is not None,
            offset_written=self._offset_written,
            checkpoint_task=self._checkpoint_task,
        )
        """Compacts the logs; its tasks are to be asked for, and run, one at a time."""
        self.absent = AbsentLogs(self.directories)
        """Logs that checkpoints name and that are not here."""
        self.wanted_directories: dict[TopicPartition, str] = {}
        """Where logs are to be created that are not here yet (AlterReplicaLogDirs); in memory only, as in Kafka."""

    # Start and stop.

    def open(self) -> None:
        """Opens every directory and loads its logs.

        A directory that the disk refuses is offline; `NoLogDirectory` when none is left. `LogDirectoryLocked`,
        `WrongLogDirectory`, `InvalidLogFolder` and `CorruptFile` name what is to be put right before the broker can
        start.
        """
        try:
            for directory in self.directories:
                self._open_directory(directory)
        except BaseException:
            self.abandon()
            raise
        if not self.online_directories:
            reasons = "; ".join(f"{directory.path}: {directory.failure}" for directory in self.directories)
            raise NoLogDirectory(f"None of the log directories works: {reasons}")
        self.futures.settle(all_online=not self.offline_directories)
        self.absent.all_loaded(self._logs)
        self.maintenance.start()

    def _open_directory(self, directory: LogDirectory) -> None:
        progress = self.progress
        try:
            directory.open(self._broker_id, self._cluster_id, lambda: TopicId(self._token()))
            recovery_points = directory.read_offsets(RECOVERY_POINT_CHECKPOINT)
            start_offsets = directory.read_offsets(LOG_START_CHECKPOINT)
            high_watermarks = directory.read_offsets(REPLICATION_CHECKPOINT)
            cleaned = directory.read_offsets(CLEANER_CHECKPOINT)
            directory.knows_cleaned = bool(cleaned)
            directory.offsets_written[RECOVERY_POINT_CHECKPOINT] = recovery_points
            directory.offsets_written[CLEANER_CHECKPOINT] = cleaned
            partitions, futures, deleted = directory.partition_folders()
            found = (*partitions, *futures)
            named = {*recovery_points, *start_offsets, *high_watermarks, *cleaned}
            self.absent.found(directory, named.difference(dict(partitions)), high_watermarks)

            recovering = [self._to_recover(directory, path, recovery_points.get(each, 0)) for each, path in found]
            progress.directory_begins(directory.path, recovering)
            to_recover = iter(recovering)
            same_boot = directory.last_stop.is_same_boot()

            def load(topic_partition: TopicPartition, path: str) -> Log:
                progress.log_begins(directory.path, next(to_recover))
                try:
                    log = load_log(
                        LogFolder(topic_partition, path, directory, self.environment),
                        self.config_of(topic_partition.topic),
                        recovery_point=recovery_points.get(topic_partition, 0),
                        log_start_offset=start_offsets.get(topic_partition, 0),
                        cleaned_offset=cleaned.get(topic_partition),
                        clean=directory.last_stop.was_clean,
                        sizes_at_stop=directory.last_stop.sizes.get(topic_partition, {}),
                        same_boot=same_boot,
                        writes_again=directory.last_stop.has_failed,
                    )
                    mark = high_watermarks.get(topic_partition, 0)
                    log.begin_at_high_watermark(min(max(mark, log.log_start_offset), log.log_end_offset))
                except KafkaError as refused:
                    error = refused.__cause__
                    if isinstance(error, OSError):
                        raise error from None  # As any other of the disk's, it takes the directory offline.
                    raise
                progress.log_ends(directory.path)
                return log

            for topic_partition, path in partitions:
                log = load(topic_partition, path)
                other = self._logs.get(topic_partition)
                if other is not None and not self._takes_the_place(log, other):
                    continue
                compare_with_high_watermark(log, high_watermarks.get(topic_partition, 0))
                self._add(log, directory)
            directory.last_stop.logs_loaded(has_logs=bool(directory.logs))
            for topic_partition, path in futures:
                self.futures.loaded(load(topic_partition, path), directory)
            directory.last_stop.failure_heeded()
            for path in deleted:
                self._delete_folder_later(directory, path, 0)
            if any(log.recovery_point < recovery_points.get(each, 0) for each, log in directory.logs.items()):
                # Recovery has cut below what was durable once (damage), or has written the index of the active segment,
                # which a clean stop had made durable. What comes there from now on is not: a power cut within the next
                # two seconds must not leave a recovery point that says so.
                directory.write_checkpoints(directory.checkpoint_writes(high_watermarks=False))
        except OSError as error:
            directory.failed(error, "opening the directory")
            directory.release()
            progress.directory_ends(directory.path)

    def _to_recover(self, directory: LogDirectory, path: str, recovery_point: int) -> int:
        """Bytes that loading the log will read through, as far as the progress is to tell them."""
        if directory.last_stop.was_clean or not self.progress.measures_bytes:
            return 0
        return bytes_to_recover(self._disk, path, recovery_point)

    def _takes_the_place(self, log: Log, other: Log) -> bool:
        """Puts aside the older one of two logs of a partition, and says whether that was `other`.

        A replica was made anew, for another assignment, while the directory with its former log was offline. Of two
        logs of one topic the one with the later epoch at its end, and then the longer one, has all that the other has,
        unless it has a hole. A folder without an id and without a record is what is left of a log that could not be
        made. `WrongLogDirectory` where two logs are not known to be of one topic.
        """
        half_made = [each for each in (log, other) if each.topic_id is None and each.log_end_offset == 0]
        if not half_made and (log.topic_id is None or log.topic_id != other.topic_id):
            raise WrongLogDirectory(
                f"Duplicate log directories found: {other.directory} and {log.directory}: move the one that is not to"
                f" be used away"
            )

        def extent(each: Log) -> tuple[bool, bool, int, int]:
            has_hole = each.damage is not None and each.damage.has_hole
            return each not in half_made, not has_hole, each.epochs.latest, each.log_end_offset

        older, newer = sorted((log, other), key=extent)
        logger.warning(
            "former_log_put_aside: log=%s log_end=%d leader_epoch=%d newer=%s log_end=%d leader_epoch=%d",
            older.directory,
            older.log_end_offset,
            older.epochs.latest,
            newer.directory,
            newer.log_end_offset,
            newer.epochs.latest,
        )
        if older is log:
            self._add(log, directory_of(log))
        self.mark_stray(log.topic_partition)
        if older is log:
            self._logs[log.topic_partition] = other
        return older is other

    def _add(self, log: Log, directory: LogDirectory) -> None:
        directory.logs[log.topic_partition] = log
        self._logs[log.topic_partition] = log

    def close(self, broker_epoch: int = -1, *, but: Container[str] = ()) -> None:
        """Stops cleanly: everything durable, checkpoints written, the next start needs no recovery.

        Directories in `but`, by their paths, are let go of as they are: their disks do not answer.
        """
        for directory in self.directories:
            if directory.path in but:
                logger.error("log_directory_not_closed: path=%s reason='its disk does not answer'", directory.path)
                directory.release()
            else:
                directory.close(broker_epoch)
        self.pool.close()

    def abandon(self) -> None:
        """Lets go of files and locks without a clean stop, as a crash would."""
        for directory in self.directories:
            directory.release()
        self.pool.close()

    # Directories.

    @property
    def online_directories(self) -> list[str]:
        """Paths of the directories that work."""
        return [directory.path for directory in self.directories if directory.failure is None]

    @property
    def offline_directories(self) -> list[str]:
        """Paths of the directories that have failed."""
        return [directory.path for directory in self.directories if directory.failure is not None]

    @property
    def has_failed(self) -> bool:
        """Whether no directory is left: the broker must stop."""
        return not self.online_directories

    @property
    def stopped_uncleanly(self) -> bool:
        """Whether the last owner of the logs did not close them all."""
        return any(directory.logs and not directory.last_stop.was_clean for directory in self.directories)

    @property
    def may_lack_tails(self) -> bool:
        """Whether logs may lack what was not flushed: an unclean stop, and another boot of the machine since."""
        return any(directory.last_stop.may_lack_tails for directory in self.directories)

    def keep_boot_id(self) -> None:
        """Elections have taken account of what logs may lack. Blocks; a directory that fails meanwhile goes offline."""
        for directory in self.directories:
            if directory.failure is None and directory.last_stop.may_lack_tails:
                try:
                    directory.last_stop.keep_boot_id()
                except OSError as error:
                    directory.task_failed(error, "noting the boot")

    @property
    def has_new_directory(self) -> bool:
        """Whether a directory was used for the first time: it may stand in the place of one that was lost."""
        return any(directory.is_new for directory in self.directories)

    def keep_properties(self) -> None:
        """Later starts look no more for logs that new directories lack. Blocks; one that fails goes offline."""
        for directory in self.directories:
            if directory.failure is None:
                try:
                    directory.keep_properties()
                except OSError as error:
                    directory.task_failed(error, "writing meta.properties")

    @property
    def cluster_id(self) -> str | None:
        """Of the cluster that the directories belong to; None before `open`, or when neither we nor they know."""
        for directory in self.directories:
            if directory.properties is not None and directory.properties.cluster_id is not None:
                return directory.properties.cluster_id
        return self._cluster_id

    def _directory_failed(self, directory: LogDirectory) -> None:
        if self._on_directory_failure is not None:
            self._on_directory_failure(directory.path)

    # Logs.

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log; of an offline directory too, and then its methods raise KAFKA_STORAGE_ERROR."""
        return self._logs.get(topic_partition)

    def logs(self) -> Iterable[Log]:
        """All logs, offline ones too."""
        return self._logs.values()

    @property
    def log_count(self) -> int:
        """How many logs there are, offline ones too."""
        return len(self._logs)

    def _offset_written(self, checkpoint: str, topic_partition: TopicPartition) -> int | None:
        return directory_of(self._logs[topic_partition]).offsets_written.get(checkpoint, {}).get(topic_partition)

    def _checkpoint_task(self, topic_partition: TopicPartition) -> DiskTask | None:
        return self.maintenance.checkpoint_task(directory_of(self._logs[topic_partition]))

    def config_of(self, topic: str) -> LogConfig:
        """The settings of a topic's logs."""
        return self.default_config if self._topic_config is None else self._topic_config(topic)

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig | None = None,
        log_dir: str | None = None,
        *,
        is_new: bool = True,
    ) -> Log:
        """The log of a partition, created if absent; durable once `LogMaintenance.durability_task` has run.

        `is_new=False` says that this broker may have the log already: then nothing is created while a directory is
        offline, since it may lie there. `KafkaError`: INCONSISTENT_TOPIC_ID, KAFKA_STORAGE_ERROR, LOG_DIR_NOT_FOUND.
        """
        found = self._logs.get(topic_partition)
        if found is not None:
            self._check_topic_id(found, topic_id)
            return found
        if not is_new and self.offline_directories:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Can not create log for {topic_partition} because log directories"
                f" {','.join(self.offline_directories)} are offline",
            )
        wanted = self.wanted_directories.get(topic_partition)
        if log_dir is None and wanted in self.online_directories:
            log_dir = wanted
        directory = self._choose(log_dir)
        if config is None:
            config = self.config_of(topic_partition.topic)
        path = f"{directory.path}/{topic_partition}"
        self._remove_half_made(topic_partition)
        try:
            directory.forget_removed(topic_partition)
            log = self._create_files(topic_partition, topic_id, config, directory, path)
        except OSError as error:
            raise directory.refused(error, f"creating {topic_partition}") from error
        self._add(log, directory)
        self.absent.created(topic_partition)
        self.wanted_directories.pop(topic_partition, None)
        directory.folder_created(path)
        return log

    def _create_files(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        directory: LogDirectory,
        path: str,
    ) -> Log:
        disk = self._disk
        folder = LogFolder(topic_partition, path, directory, self.environment)
        if disk.exists(path):
            # Not of this life, or it would be known; whatever it holds is loaded as after a crash.
            log = load_log(folder, config)
            self._check_topic_id(log, topic_id)
            return log
        try:
            disk.make_directories(path)
            if topic_id is not None:
                _write_new(disk, f"{path}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
            segment = Segment.create(self.pool, path, 0, config, now_ms=self._clock.wall_ms())
        except OSError:
            directory.undo_folder(path)
            raise
        return Log(folder, topic_id, config, segments=[segment])

    def _remove_half_made(self, topic_partition: TopicPartition) -> None:
        """Removes what is left of attempts to create the log, in whichever directory. `KafkaError` if that fails."""
        for directory in self.directories:
            path = f"{directory.path}/{topic_partition}"
            if path in directory.half_made and directory.failure is None:
                try:
                    directory.remove_half_made(path)
                except OSError as error:
                    raise directory.refused(error, f"removing what is left of {topic_partition}") from error

    def _check_topic_id(self, log: Log, topic_id: TopicId | None) -> None:
        if topic_id is None:
            return
        if log.topic_id is None:
            self.assign_topic_id(log, topic_id)
        elif log.topic_id != topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"Topic Id in memory: {format_topic_id(log.topic_id)} does not match the topic Id provided in"
                f" the request: {format_topic_id(topic_id)} for {log.topic_partition}.",
            )

    def assign_topic_id(self, log: Log, topic_id: TopicId) -> None:
        """Gives a log from before topic ids its identity, and so its copy on the way to another directory, first: it
        will take the log's place.
        """
        for each in (self.futures.get(log.topic_partition), log):
            if each is None:
                continue
            try:
                replace_file(self._disk, f"{each.directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
            except OSError as error:
                raise each.folder.fail(error, f"writing {PARTITION_METADATA} of") from error
            each.topic_id = topic_id

    def _choose(self, log_dir: str | None) -> LogDirectory:
        wanted = None if log_dir is None else log_dir.rstrip("/") or "/"
        online = {directory.path: directory for directory in self.directories if directory.failure is None}
        for directory in self.directories:
            if directory.path == wanted and directory.failure is not None:
                raise DirectoryOffline(directory.path, directory.failure)
        counts = {path: len(directory.logs) for path, directory in online.items()}
        return online[placement.choose(counts, wanted, self.cordoned)]

    def delete(self, topic_partition: TopicPartition) -> bool:
        """Deletes a log: its folder is renamed now and removed after `file.delete.delay.ms`; false if there is none.

        What is left of an attempt to create it is removed. `KafkaError`: there is a log, and it is as before, or what
        is left stays, which the next start would take for a log.
        """
        self._remove_half_made(topic_partition)
        log = self._remove(topic_partition, DELETE_FOLDER)
        if log is None:
            return False
        self._delete_folder_later(directory_of(log), log.directory, log.config.file_delete_delay_ms)
        return True

    def mark_stray(self, topic_partition: TopicPartition) -> bool:
        """Puts aside a log that the cluster does not know: its folder is renamed and never removed by us."""
        return self._remove(topic_partition, STRAY_FOLDER) is not None

    def _remove(self, topic_partition: TopicPartition, mark: str) -> Log | None:
        log = self._logs.get(topic_partition)
        if log is None:
            return None
        directory = directory_of(log)
        log.folder.check_online()
        # First: a copy that is alone would take the place of its log at the next start.
        self.futures.delete(topic_partition)
        target = f"{directory.path}/{marked_folder(topic_partition, self._token(), mark)}"
        try:
            log.folder.rename(target, log.deleted)
        except OSError as error:
            raise log.folder.fail(error, "removing") from error
        del self._logs[topic_partition], directory.logs[topic_partition]
        directory.flush_requests.pop(topic_partition, None)
        directory.changes.pop(topic_partition, None)
        directory.flush_retries.pop(topic_partition, None)
        directory.truncations.pop(topic_partition, None)
        directory.folder_put_away(topic_partition)
        self.absent.removed(topic_partition, directory)
        return log

    def set_config(self, topic_partition: TopicPartition, config: LogConfig) -> bool:
        """Gives a log, and its copy on the way to another directory, these settings; whether one had others.

        While a broker loads its logs settings may be altered: either may have been loaded with former ones.
        """
        found = (self._logs.get(topic_partition), self.futures.get(topic_partition))
        others = [log for log in found if log is not None and log.config != config]
        for log in others:
            log.set_config(config)
        return bool(others)

    def _delete_folder_later(self, directory: LogDirectory, path: str, delay_ms: int) -> None:
        def remove() -> None:
            remove_folder(self._disk, path)

        directory.delete_later(remove, delay_ms)

    def _token(self) -> bytes:
        if self._random is not None:
            return dashless_id(self._random.token(16))
        return self._clock.wall_ms().to_bytes(8, "big") + next(self._sequence).to_bytes(8, "big")


def _write_new(disk: Disk, path: str, content: bytes) -> None:
    """Writes a file in a folder that is not in use yet; a crash may leave it empty."""
    file = disk.open(path, create=True)
    try:
        file.pwrite(content, 0)
    finally:
        file.close()
