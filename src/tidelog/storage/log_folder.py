"""A partition's folder, and what a log needs of the broker around it.

Everything that a log consists of stands on this: where its files are, through which disk they are reached, and what
becomes of an I/O error. An OSError takes the whole log directory offline, by way of its owner; from then on every call
raises KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.storage.errors import DirectoryOffline
from tidelog.storage.file_names import DELETED
from tidelog.storage.integrity import Findings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.model.identifiers import TopicPartition
    from tidelog.ports.clock import Clock
    from tidelog.ports.disk import Disk
    from tidelog.ports.random import Random
    from tidelog.storage.file_pool import FilePool
    from tidelog.storage.log import Log
    from tidelog.storage.producer_limit import ProducerLimit


class LogOwner(Protocol):
    """What a log tells the directory that it lies in."""

    @property
    def path(self) -> str: ...

    @property
    def failure(self) -> str | None:
        """Why the directory is offline; None while it works."""
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


@dataclass(frozen=True, slots=True)
class LogEnvironment:
    """What all logs of a broker share."""

    disk: Disk
    pool: FilePool
    clock: Clock
    random: Random | None
    """Draws the jitter of `segment.jitter.ms`; None for none."""
    producer_expiration_ms: int
    producer_limit: ProducerLimit
    snapshots: dict[Log, None] = field(default_factory=dict)
    """Logs whose producers are to be written down by a task."""
    findings: Findings = field(default_factory=Findings)
    """Rot that was found, for the broker to take up."""


class LogFolder:
    """One partition's folder."""

    __slots__ = ("environment", "is_deleted", "is_replaced", "owner", "path", "topic_partition")

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

    @property
    def disk(self) -> Disk:
        return self.environment.disk

    def check_online(self) -> None:
        """`DirectoryOffline` (KAFKA_STORAGE_ERROR) when the log can serve no more."""
        failure = self.owner.failure
        if failure is not None:
            raise DirectoryOffline(self.owner.path, failure)
        if self.is_replaced:
            # In the moment of the move only: whoever comes again finds the log that took its place.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} has moved")
        if self.is_deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} has been deleted")

    def fail(self, error: OSError, doing: str) -> KafkaError:
        """Takes the directory offline, unless the error is not the disk's; gives what to raise.

        `doing` is what failed, as in "appending to".
        """
        what = f"{doing} {self.topic_partition}"
        if isinstance(error, FileNotFoundError) and str(error.filename).endswith(DELETED):
            # Retention or compaction took the segment while it was in use; who asks again finds what is there now.
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: its segment has been replaced or deleted")
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            return KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {error.strerror}; raise the limit on open files (ulimit -n)"
            )
        self.owner.failed(error, what)
        return DirectoryOffline(self.owner.path, f"{what}: {error}")

    def sync_file(self, path: str) -> None:
        """Makes a file durable, if it is there."""
        disk = self.environment.disk
        if disk.exists(path):
            file = disk.open(path)
            try:
                file.fsync()
            finally:
                file.close()
