"""Replicas on their way from one log directory of this broker to another, while they are written and read (KIP-113).

    AlterReplicaLogDirs --> checkpoints written --> a copy begun --> filled, chunk by chunk --> equal: takes its place
                                                      ^                    |
                                                      +--- the log was cut, or begins later than the copy ends

The copy is filled from the log that serves, uncommitted records too: no other broker is asked. What says how
far the two are equal are leader epochs, as between leader and follower; where they part, the copy is begun anew.
`storage.future_logs` keeps the copies, through crashes as well, after which the moves go on.

Each step of a move waits for one of the two directories: for its source while an I/O thread reads a chunk, for its
target while the copy is made durable. At most one step waits for a directory at a time, so that one that hangs stalls
the moves out of it and into it, and no others. All moves together stay within
replica.alter.log.dirs.io.max.bytes.per.second. The last few records, and the change of places, are done in one turn of
the loop, so that nothing comes between; it waits for a handful of syncs, once a move.
"""

from __future__ import annotations

import logging
import os.path
from enum import Enum
from typing import TYPE_CHECKING, Final

from tidelog.broker.deferred import Deferred
from tidelog.broker.replicas.replica_manager import diverging_epoch
from tidelog.broker.shell import InDirectories
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import NO_LEADER_EPOCH, TopicPartition
from tidelog.storage.errors import CorruptFile
from tidelog.storage.future_logs import check_folder_name
from tidelog.storage.tasks import run_now

if TYPE_CHECKING:
    from tidelog.broker.disk_scheduler import DiskScheduler
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.fetches.replication_throttles import ReplicationThrottles
    from tidelog.broker.following.replica_fetcher_manager import ReplicaFetcherManager
    from tidelog.broker.replicas.replica import Replica
    from tidelog.broker.replicas.replica_manager import ReplicaManager
    from tidelog.broker.shell import Timer
    from tidelog.storage.log import Log
    from tidelog.storage.log_directory import LogDirectory
    from tidelog.storage.log_manager import LogManager

logger: Final = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1 << 20
"""Read at once, and appended in one turn of the loop: about a millisecond."""
LAST_BYTES_MAX: Final = 256 << 10
"""What may be copied in the turn in which the copy takes its place, at the first attempt."""
LAST_BYTES_LIMIT: Final = 4 << 20
"""And at the last: into a busy partition more may come during each sync, and its move is to end all the same."""
RETRY_MS: Final = 500
"""After a step that the disk has refused for the moment, or that has read damaged records."""
DAMAGED_MS_MAX: Final = 60_000
"""For so long a move tries to read what is damaged: a bit may have been read wrongly, and rot is repaired by what other
replicas have (`repairs`)."""
WANTED_MAX: Final = 100_000
"""Partitions that are not here whose directory is remembered, the latest: more than a broker has replicas. Kafka
remembers all that were ever asked for, of topics that never come too."""
PENDING_TRUNCATION_MS: Final = 20
"""Between two looks at a log that is just being cut."""


class _Phase(Enum):
    BEGINNING = "beginning"
    COPYING = "copying"
    SETTLING = "settling"
    """The copy has all that the log had a moment ago, and that is being made durable."""


class _Move:
    """One replica's."""

    __slots__ = (
        "damaged_since_ms",
        "directory",
        "is_near",
        "last_bytes",
        "not_before_ms",
        "phase",
        "replica",
        "waits_for",
    )

    def __init__(self, replica: Replica, directory: LogDirectory, phase: _Phase) -> None:
        self.replica = replica
        self.directory = directory
        """Where it goes."""
        self.phase = phase
        self.is_near = False
        """Whether the copy has reached what the log had when the last chunk was read: the rest is little."""
        self.last_bytes = LAST_BYTES_MAX
        """What may be copied in one turn to catch up, as things stand."""
        self.not_before_ms = 0
        """When its next step is due, monotonic."""
        self.waits_for = ""
        """Path of the log directory that its last step has waited for."""
        self.damaged_since_ms: int | None = None
        """Since when each step has read damaged records, monotonic; None: the last one has not."""


class Moves:
    """All of a broker."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        logs: LogManager,
        replicas: ReplicaManager,
        fetcher_manager: ReplicaFetcherManager,
        throttles: ReplicationThrottles,
        disk_scheduler: DiskScheduler,
    ) -> None:
        self._clock = environment.clock
        self._shell = environment.shell
        self._logs = logs
        self._replicas = replicas
        self._fetcher_manager = fetcher_manager
        self._throttles = throttles
        self._disk_scheduler = disk_scheduler
        self._moves: dict[TopicPartition, _Move] = {}
        """Whose turn was longest ago first."""
        self._under_way: set[_Move] = set()
        """Moves whose step has not ended; one may have been given up meanwhile."""
        self._scheduled = False
        self._timer: Timer | None = None
        self._stopped = False

    def __len__(self) -> int:
        return len(self._moves)

    # What is asked for.

    def alter(self, topic_partition: TopicPartition, path: str) -> None:
        """The replica is to lie in the log directory `path` from when it has been copied.

        KafkaError: LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR where a directory is offline; INVALID_TOPIC_EXCEPTION for a
        name that is too long; REPLICA_NOT_AVAILABLE where there is no such replica: it will be created there if it
        comes.
        """
        check_folder_name(topic_partition)
        logs = self._logs
        directory = self._directory(path)
        if directory.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
        replica = self._replicas.get(topic_partition)
        if replica is None:
            wanted = logs.wanted_directories
            wanted.pop(topic_partition, None)
            wanted[topic_partition] = directory.path
            if len(wanted) > WANTED_MAX:
                del wanted[next(iter(wanted))]
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE, f"Partition {topic_partition} is not on this broker: it will be there"
            )
        if replica.log.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {topic_partition} is offline")
        move = self._moves.get(topic_partition)
        if move is not None and move.replica is replica and move.directory is directory:
            return
        if move is not None:
            self._end(move, "another directory is asked for, or for another replica")
        if replica.log.owner is directory:
            return
        if logs.offline_directories:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Cannot move {topic_partition}: log directories {','.join(logs.offline_directories)} are offline",
            )
        logger.info("move begins: partition=%s from=%s to=%s", topic_partition, replica.log.owner.path, directory.path)
        self._moves[topic_partition] = _Move(replica, directory, _Phase.BEGINNING)
        self._look_again()

    def _directory(self, path: str) -> LogDirectory:
        wanted = path.rstrip("/") or "/"
        for directory in self._logs.directories:
            if os.path.abspath(directory.path) == wanted:
                return directory
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir '{path}' is not found in the config.")

    def resume(self, replica: Replica) -> None:
        """A replica was loaded at the start: a move that was under way goes on."""
        future = self._logs.futures.get(replica.topic_partition)
        if future is None or future.is_offline or replica.topic_partition in self._moves:
            return
        if future.topic_id != replica.log.topic_id:
            self._logs.futures.delete(replica.topic_partition)
            return
        directory = next(one for one in self._logs.directories if one is future.owner)
        logger.info("move goes on: partition=%s to=%s", replica.topic_partition, directory.path)
        self._moves[replica.topic_partition] = _Move(replica, directory, _Phase.COPYING)
        self._look_again()

    def throttle_changed(self) -> None:
        """The rate is another."""
        self._look_again()

    def _look_again(self) -> None:
        """What is waited for may be another thing now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._schedule()

    def stop(self) -> None:
        """Copies no more; the next start goes on."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    # One step after the other.

    def _schedule(self) -> None:
        if not self._scheduled and self._timer is None and self._moves and not self._stopped:
            self._scheduled = True
            self._shell.soon(self._turn)

    def _wait(self, delay_ms: int) -> None:
        self._timer = self._shell.after(max(1, delay_ms), self._look_again)

    def _look_later(self, move: _Move) -> None:
        """The log is just being cut: the move looks again in a moment."""
        move.not_before_ms = self._clock.monotonic_ms() + PENDING_TRUNCATION_MS

    def _turn(self) -> None:
        self._scheduled = False
        if self._stopped or self._timer is not None:
            return
        waited_for = {move.waits_for for move in self._under_way}
        free = [
            move
            for move in self._moves.values()
            if move not in self._under_way and waited_for.isdisjoint((move.replica.log.owner.path, move.directory.path))
        ]
        if not free:
            return
        now_ms = self._clock.monotonic_ms()
        first = min(free, key=lambda move: max(move.not_before_ms, now_ms))
        delay_ms = max(self._throttles.moves.delay_ms(now_ms), first.not_before_ms - now_ms)
        if delay_ms > 0:
            self._wait(delay_ms)
            return
        topic_partition = first.replica.topic_partition
        move = self._moves[topic_partition] = self._moves.pop(topic_partition)
        self._under_way.add(move)
        try:
            step = self._step(move)
        except Exception as error:
            # Whatever it is, the other moves are to go on.
            step = Deferred()
            step.fail(error)
        step.on_complete(lambda settled: self._stepped(move, settled))
        self._schedule()

    def _stepped(self, move: _Move, settled: Deferred[None]) -> None:
        self._under_way.discard(move)
        try:
            settled.result()
            move.damaged_since_ms = None
        except Exception as error:
            if self._is_current(move) and self._may_be_repeated(move, error):
                logger.warning("move_waits: partition=%s error=%s", move.replica.topic_partition, error)
                move.not_before_ms = self._clock.monotonic_ms() + RETRY_MS
            elif self._is_current(move):
                logger.error(
                    "move given up: partition=%s error=%s",
                    move.replica.topic_partition,
                    error,
                    exc_info=not isinstance(error, (KafkaError, CorruptFile)),
                )
                self._end(move, "it failed")
        self._schedule()

    def _may_be_repeated(self, move: _Move, error: Exception) -> bool:
        """Whether a step may succeed later: it lacked descriptors or memory, or has read damaged records not for long.

        Each step looks anew at what there is.
        """
        if not isinstance(error, KafkaError) or move.directory.failure is not None or move.replica.log.is_offline:
            return False
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            now_ms = self._clock.monotonic_ms()
            if move.damaged_since_ms is None:
                move.damaged_since_ms = now_ms
            return now_ms - move.damaged_since_ms < DAMAGED_MS_MAX
        return error.code is ErrorCode.KAFKA_STORAGE_ERROR

    def _is_current(self, move: _Move) -> bool:
        return self._moves.get(move.replica.topic_partition) is move

    def _end(self, move: _Move, reason: str) -> None:
        """Gives the move up, and its copy."""
        topic_partition = move.replica.topic_partition
        logger.info("move ends: partition=%s to=%s reason=%s", topic_partition, move.directory.path, reason)
        del self._moves[topic_partition]
        if move.directory.failure is None and not move.replica.log.is_offline:
            # Else a start with all directories finds what is to be done.
            try:
                self._logs.futures.delete(topic_partition)
            except KafkaError as error:
                logger.error("copy not removed: partition=%s error=%s", topic_partition, error)
            self._disk_scheduler.wake()

    def _step(self, move: _Move) -> Deferred[None]:
        replica, log = move.replica, move.replica.log
        done = Deferred.of(None)
        if replica.removed or self._replicas.get(replica.topic_partition) is not replica:
            self._end(move, "the replica is not here any more")
            return done
        if log.is_offline or move.directory.failure is not None:
            # What lies in a directory that works stays there: a start with both goes on.
            logger.error("move stops: partition=%s reason=a log directory is offline", replica.topic_partition)
            del self._moves[replica.topic_partition]
            return done
        future = self._logs.futures.get(replica.topic_partition)
        if move.phase is _Phase.BEGINNING or future is None:
            return self._begin(move)
        if log.truncation_is_pending:
            self._look_later(move)
            return done
        if not _is_beginning_of(future, log):
            logger.info(
                "copy begun anew: partition=%s log=%d..%d copy=%d..%d: the log was cut, or begins later",
                replica.topic_partition,
                log.log_start_offset,
                log.log_end_offset,
                future.log_start_offset,
                future.log_end_offset,
            )
            return self._begin(move)
        missing = log.log_end_offset - future.log_end_offset
        if missing and move.is_near and self._copy_last(move, future):
            missing = 0
        if missing:
            move.phase, move.is_near = _Phase.COPYING, False
            return self._copy(move, future)
        if move.phase is _Phase.COPYING:
            move.phase, move.is_near = _Phase.SETTLING, True
            return self._settle(move, future)
        self._finish(move, future)
        return done

    def _begin(self, move: _Move) -> Deferred[None]:
        """Begins the copy, when no checkpoint in its directory speaks of an earlier log of that name any more."""
        logs, topic_partition = self._logs, move.replica.topic_partition
        move.waits_for = move.directory.path
        logs.futures.delete(topic_partition)
        self._disk_scheduler.wake()

        def begin(_: None) -> None:
            if self._is_current(move) and self._replicas.get(topic_partition) is move.replica:
                logs.futures.create(topic_partition, move.directory)
                move.phase = _Phase.COPYING
                self._disk_scheduler.wake()

        return self._disk_scheduler.starts_durable([move.directory.path]).then(begin)

    def _copy(self, move: _Move, future: Log) -> Deferred[None]:
        log, quota = move.replica.log, self._throttles.moves
        move.waits_for = log.owner.path
        start, end, size = future.log_end_offset, log.log_end_offset, min(CHUNK_BYTES, quota.portion)

        def append(data: bytes) -> None:
            if not data:
                # The log was cut, or begins later by now, which is seen before the next chunk.
                self._look_later(move)
            elif self._is_current(move) and not future.folder.is_deleted and future.log_end_offset == start:
                # What was read while the log was being cut is found out before the next chunk.
                info = future.append_as_follower(data)
                quota.record(self._clock.monotonic_ms(), info.size)
                _follow(future, log)
                move.is_near = future.log_end_offset >= end
                if info.rolled or future.is_flush_due:
                    self._disk_scheduler.wake()

        return self._shell.in_pool(InDirectories((log.owner.path,), lambda: _read(log, start, size, end))).then(append)

    def _copy_last(self, move: _Move, future: Log) -> bool:
        """Copies what came while the copy was made durable, in this turn; whether that was little enough.

        Where it was too much twice as much may be copied at the next attempt, up to a few MiB: else a partition that
        is written faster than a sync lets go by would be copied for ever. The loop then stands still for some
        milliseconds more, once a move.
        """
        log, start, left = move.replica.log, future.log_end_offset, move.last_bytes
        while start < log.log_end_offset:
            data = _read(log, start, left, log.log_end_offset)
            left -= len(data)
            if left <= 0:
                move.last_bytes = min(2 * move.last_bytes, LAST_BYTES_LIMIT)
                return False
            self._throttles.moves.record(self._clock.monotonic_ms(), len(data))
            if data:
                future.append_as_follower(data)
            if future.log_end_offset == start:
                return False
            start = future.log_end_offset
        return True

    def _settle(self, move: _Move, future: Log) -> Deferred[None]:
        """Makes the copy durable, and where it begins."""
        move.waits_for = move.directory.path
        _follow(future, move.replica.log)
        flush = future.flush_task()
        flushed: Deferred[None] = Deferred.of(None) if flush is None else self._disk_scheduler.run(flush)
        return flushed.and_then(lambda _: self._disk_scheduler.starts_durable([move.directory.path]))

    def _moved(self, replica: Replica) -> None:
        """Another log directory has the replica's log now."""
        log = self._logs.get(replica.topic_partition)
        assert log is not None
        self._replicas.log_moved(replica, log)
        if replica.leader is None and not log.is_offline:
            self._fetcher_manager.follow_again(replica)
        self._disk_scheduler.wake()

    def _finish(self, move: _Move, future: Log) -> None:
        """The copy equals its log, in this turn: it takes its place."""
        replica, log = move.replica, move.replica.log
        begins_as = future.kept_start
        _follow(future, log)
        if future.kept_start != begins_as:
            # The checkpoint is to say so before the copy counts.
            move.phase = _Phase.COPYING
            return
        if replica.leader is not None:
            future.assign_epoch(replica.leader_epoch)
        flush = future.flush_task()
        if flush is not None:
            run_now(flush)
        if future.flushed_offset < future.log_end_offset:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the copy could not be flushed")
        before = log.owner.path
        try:
            self._logs.futures.replace(replica.topic_partition)
        except KafkaError:
            if self._logs.get(replica.topic_partition) is future:
                # Its directory failed in the last step: the log is there, and offline.
                self._moved(replica)
            raise
        del self._moves[replica.topic_partition]
        self._moved(replica)
        for task in self._logs.maintenance.checkpoint_tasks(high_watermarks=False):
            # How far the log has been cleaned is told by the other directory from now on.
            self._disk_scheduler.run(task)
        logger.info(
            "moved: partition=%s from=%s to=%s log_end=%d",
            replica.topic_partition,
            before,
            move.directory.path,
            future.log_end_offset,
        )


def _is_beginning_of(future: Log, log: Log) -> bool:
    """Whether a copy has all from the log's first record on, as far as it goes, and nothing that the log has not.

    A log that was cut before its first offset begins earlier than a copy made before that.
    """
    end = future.log_end_offset
    if not future.log_start_offset <= log.log_start_offset <= end <= log.log_end_offset:
        return False
    epoch = future.epochs.latest
    if end == future.log_start_offset or epoch == NO_LEADER_EPOCH:
        return True
    try:
        return diverging_epoch(log, end, epoch) is None
    except KafkaError:
        return False


def _follow(future: Log, log: Log) -> None:
    """The high watermark and the first offset of a log, as far as its copy goes."""
    future.update_high_watermark(max(min(log.high_watermark, future.log_end_offset), future.log_start_offset))
    start = min(log.kept_start, future.high_watermark)
    if start > future.log_start_offset:
        future.announce_start(start)
        future.advance_start(min(log.log_start_offset, start))


def _read(log: Log, offset: int, size: int, end: int) -> bytes:
    """The batches from `offset` on, of which the last may be cut short; none where the log does not reach so far."""
    try:
        found = log.read(offset, size, up_to_offset=end)
    except KafkaError as error:
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return b""
        raise
    try:
        return b"".join(part.read() for part in found.ranges)
    except OSError as error:
        raise log.folder.fail(error, "reading") from error
    finally:
        for part in found.ranges:
            part.release()
