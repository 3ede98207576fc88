"""A partition's folder, and what a log needs of the broker around it.

Everything that a log consists of stands on this: where its files are, through which disk they are reached, and what
becomes of an I/O error. An OSError that says that the disk is broken (`disk_errors`) takes the whole log directory
offline, by way of its owner; from then on every call raises KAFKA_STORAGE_ERROR.

**A step over several files is all or nothing.** Each has one change that decides whether it has happened: before it
everything can be left as it was, after it the state in memory is the new one, whatever else fails. What is then still
to be done to files is `unfinished`, and the next step over several files begins with it.
"""

from __future__ import annotations

import logging
from dataclasses import field
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.values import value
from tidelog.ports.disk import sync_file
from tidelog.storage.counts import LogCounts
from tidelog.storage.disk_errors import advice, fails_alone
from tidelog.storage.errors import DirectoryOffline, RefusedForNow
from tidelog.storage.file_names import DELETED
from tidelog.storage.file_pool import close_file
from tidelog.storage.rot import Findings

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from tidelog.model.identifiers import TopicPartition
    from tidelog.ports.clock import Clock
    from tidelog.ports.disk import Disk, File
    from tidelog.ports.random import Random
    from tidelog.storage.file_pool import FilePool
    from tidelog.storage.producer_limit import ProducerLimit
    from tidelog.storage.tasks import DiskTask


logger = logging.getLogger(__name__)
Outcome = TypeVar("Outcome")

_NOTHING_UNFINISHED: Final[list[Callable[[], None]]] = []


class LogOwner(Protocol):
    """What a log tells the directory that it lies in."""

    @property
    def path(self) -> str: ...

    @property
    def failure(self) -> str | None:
        """Why the directory is offline; None while it works."""
        ...

    @property
    def is_released(self) -> bool:
        """Whether the broker has stopped: the files belong to the one that starts there next, in any process."""
        ...

    @property
    def name_lock(self) -> threading.RLock:
        """Held while names of its folders, or in them, are changed."""
        ...

    def failed(self, error: OSError, what: str) -> None:
        """An operation failed: the directory goes offline."""
        ...

    def flush_wanted(self, topic_partition: TopicPartition) -> None:
        """The log rolled, or has `flush.messages` unflushed records."""
        ...

    def flush_due(self, due_ms: int) -> None:
        """By the monotonic time `due_ms` a log wants a flush, because of `flush.ms`."""
        ...

    def flush_failed(self, topic_partition: TopicPartition) -> None:
        """A flush did not happen, and the directory is online: it is to be tried again after a while."""
        ...

    def truncated(self, topic_partition: TopicPartition) -> None:
        """The log was cut: before anything is flushed behind the cut, that is to be made durable."""
        ...

    def changed(self, topic_partition: TopicPartition) -> None:
        """The log has something to flush or to checkpoint; said once until it is clean again."""
        ...

    def delete_later(self, unlink: Callable[[], None], delay_ms: int) -> None:
        """Files have their `.deleted` name: `unlink` them after a while."""
        ...


@value
class LogEnvironment:
    """What all logs of a broker share."""

    disk: Disk
    pool: FilePool
    clock: Clock
    random: Random | None
    """Draws the jitter of `segment.jitter.ms`; None for none."""
    producer_expiration_ms: int
    producer_limit: ProducerLimit
    snapshots: dict[LogFolder, Callable[[], DiskTask]] = field(default_factory=dict)
    """[a log's folder] -> makes the task that writes the log's producers down."""
    findings: Findings = field(default_factory=Findings)
    """Rot that was found, for the broker to take up."""
    counts: LogCounts = field(default_factory=LogCounts)


class LogFolder:
    """One partition's folder."""

    __slots__ = (
        "environment",
        "is_deleted",
        "is_replaced",
        "owner",
        "path",
        "topic_partition",
        "unfinished",
    )

    def __init__(
        self, topic_partition: TopicPartition, path: str, owner: LogOwner, environment: LogEnvironment
    ) -> None:
        self.topic_partition = topic_partition
        self.path = path
        self.owner = owner
        """The log directory in which it lies."""
        self.environment = environment
        self.is_deleted = False
        """Whether it has been renamed, to be removed: the log serves no more."""
        self.is_replaced = False
        """Whether that is because another log directory has the log now."""
        self.unfinished = _NOTHING_UNFINISHED
        """What steps that have happened have still to do to files, in this order; each may be tried again. Empty nearly
        always, and then shared: replaced, never added to."""

    @property
    def disk(self) -> Disk:
        return self.environment.disk

    @property
    def name_lock(self) -> threading.RLock:
        """Held while the folder is renamed, and by a thread that changes a name in it beside the owner's: for the time
        of that one change, never for that of a sync. All folders of a log directory have the same."""
        return self.owner.name_lock

    def check_online(self) -> None:
        """`DirectoryOffline` (KAFKA_STORAGE_ERROR) when the log can serve no more."""
        failure = self.owner.failure
        if failure is not None:
            raise DirectoryOffline(self.owner.path, failure)
        if self.owner.is_released:
            # A timer of the stopped broker has fired: descriptors would open again, and its bytes lie over newer ones.
            raise DirectoryOffline(self.owner.path, "the broker has stopped")
        if self.is_replaced:
            # In the moment of the move only: a request that comes again finds the log that took its place.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} has moved")
        if self.is_deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} has been deleted")

    def fail(self, error: OSError, doing: str) -> KafkaError:
        """What to raise for an error of the disk; takes the directory offline if that is what it means.

        `doing` is what failed, as in "appending to". In any thread.
        """
        what = f"{doing} {self.topic_partition}"
        if isinstance(error, FileNotFoundError):
            gone = self._gone(error, what)
            if gone is not None:
                return gone
        if fails_alone(error):
            return RefusedForNow(f"{what}: {advice(error)}")
        self.owner.failed(error, what)
        return DirectoryOffline(self.owner.path, f"{what}: {error}")

    def _gone(self, error: FileNotFoundError, what: str) -> KafkaError | None:
        """What to raise where the file was removed by us; None for one that the log should have."""
        with self.environment.pool.names:  # A removal under way ends first.
            is_gone = self.is_deleted
        if is_gone:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if self.is_replaced else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return KafkaError(code, f"{what}: its folder has been {'replaced' if self.is_replaced else 'deleted'}")
        if str(error.filename).endswith(DELETED):
            # Retention, compaction or a truncation took the segment while it was in use; a client that asks again
            # finds what is there now.
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: its segment has been replaced or deleted")
        return None

    # Steps over several files.

    def finish_steps(self) -> None:
        """Does what earlier steps have left to do. OSError: it is still to be done."""
        while self.unfinished:
            self.unfinished[0]()
            self.unfinished = self.unfinished[1:]

    def finish_up_to(self, step: Callable[[], None]) -> None:
        """Does what is unfinished up to `step`, if that is still to be done; where the disk refuses it, later.

        OSError only where that takes the directory offline.
        """
        try:
            while any(each is step for each in self.unfinished):
                self.unfinished[0]()
                self.unfinished = self.unfinished[1:]
        except OSError as error:
            self._unfinished_because(error)

    def finish(self, rest: Callable[[], None]) -> None:
        """Does the rest of a step that has happened, now or, where the disk refuses it, before the next step.

        OSError only where that takes the directory offline.
        """
        if not self.unfinished:
            try:
                rest()
            except OSError as error:
                self._unfinished_because(error)
            else:
                return
        self.unfinished = [*self.unfinished, rest]
        self.owner.changed(self.topic_partition)

    def _unfinished_because(self, error: OSError) -> None:
        """Has the owner come back to what is unfinished; raises the error where it takes the directory offline."""
        if not fails_alone(error):
            raise error
        logger.warning("step_unfinished: log=%s error=%s", self.topic_partition, error)
        self.owner.changed(self.topic_partition)

    def undo(self, name: str) -> None:
        """Removes a file that a step has made which did not happen; in any case before the next step."""

        def unlink() -> None:
            try:
                self.disk.unlink(self.path_of(name))
            except FileNotFoundError:
                return

        self.finish(unlink)

    # Its name.

    def rename(self, target: str, renamed: Callable[[str], None]) -> None:
        """Renames the folder, and tells it by `renamed`; by the thread that owns the log. OSError: nothing has changed.

        A name that a task is changing in it just now (`replace_file`) comes first; the task goes on afterwards.
        """
        with self.name_lock, self.environment.pool.renaming():
            self.disk.rename(self.path, target)
            renamed(target)

    # Files by their names, which may change at any time.

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def at_current_path(self, operation: Callable[[str], Outcome]) -> Outcome:
        """`operation` on the folder's path, again where the folder was renamed meanwhile; in any thread.

        One that adds or replaces a name takes `name_lock` as well: the path might be that of a log made anew by then.
        """
        return self.environment.pool.at_current_path(lambda: self.path, operation)

    def open(self, name: str, *, create: bool = False) -> File:
        """Opens a file in the folder, in any thread. OSError."""
        return self.environment.pool.at_current_path(
            lambda: self.path, lambda path: self.disk.open(f"{path}/{name}", create=create), close_file
        )

    def replace_file(self, name: str, content: bytes) -> None:
        """As `tidelog.ports.disk.replace_file`, in any thread: the folder may be renamed between any two of its steps.

        The file is replaced in this log's folder, whatever that is called by then, and never in another's that was
        given its name. OSError.
        """
        temporary = f"{name}.tmp"
        with self.name_lock:
            file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.pwrite(content, 0)
            sync_file(file)
        finally:
            file.close()
        with self.name_lock:
            self.at_current_path(lambda path: self.disk.rename(f"{path}/{temporary}", f"{path}/{name}"))
        self.at_current_path(self.disk.fsync_directory)

    def sync_file(self, name: str) -> None:
        """Makes a file in the folder durable, if it is there; in any thread."""
        try:
            file = self.open(name)
        except FileNotFoundError:
            return
        try:
            sync_file(file)
        finally:
            file.close()
