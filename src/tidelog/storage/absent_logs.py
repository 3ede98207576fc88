"""Logs that checkpoints name and that are not here: deleted, moved to another directory, or lost.

A checkpoint goes on naming a log until it is written anew. Each `LogDirectory` knows which ones its checkpoints may
name (`removed`), so that none of them speaks of a log that is made anew under the name, and which of them had committed
records (`missing`). Here is what follows for the broker: which logs it has lost, and which may lie in a directory that
is offline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.model.identifiers import TopicPartition
    from tidelog.storage.log_directory import LogDirectory

REMOVED_MAX: Final = 10_000
"""Deleted logs of a directory that are remembered because a checkpoint may name them; then the checkpoints are written,
in the loop's thread as when a log is made anew, and all are forgotten."""


class AbsentLogs:
    """Of all log directories of a broker. Owned by the thread that owns the `LogManager`."""

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        self._directories = directories
        self.missing: dict[TopicPartition, int] = {}
        """Partitions without a folder, with the high watermark by which a checkpoint still names them: deleted just
        before a crash, or lost."""
        self._named_only: set[TopicPartition] = set()
        """Partitions that checkpoints named at the start in directories without their folders: removed by an earlier
        life of the broker, or only copied there. Those that were made or removed since are not among them."""

    # The start.

    def found(
        self, directory: LogDirectory, named: Iterable[TopicPartition], high_watermarks: Mapping[TopicPartition, int]
    ) -> None:
        """The checkpoints of a directory name these partitions, and there is no folder of theirs in it."""
        directory.removed.update(named)
        self._named_only |= directory.removed
        directory.missing = {each: mark for each, mark in high_watermarks.items() if each in directory.removed and mark}
        self.missing |= directory.missing

    def all_loaded(self, present: Iterable[TopicPartition]) -> None:
        """Every directory was opened, and these logs are there: perhaps in another one than a checkpoint says."""
        for topic_partition in present:
            self.missing.pop(topic_partition, None)

    def losses_told(self) -> None:
        """The cluster has been told which logs are missing; `LogManager.keep_properties` does the rest of it."""
        self.missing.clear()
        for directory in self._directories:
            directory.missing.clear()

    # Afterwards.

    def created(self, topic_partition: TopicPartition) -> None:
        """A log was made; its directory has forgotten a former one of that name before (`forget_removed`)."""
        self._named_only.discard(topic_partition)

    def removed(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """A log of the directory is not there any more."""
        directory.removed.add(topic_partition)
        self._named_only.discard(topic_partition)
        if len(directory.removed) >= REMOVED_MAX:
            try:
                directory.forget_removed(topic_partition)
            except OSError as error:
                directory.task_failed(error, "writing checkpoints")

    def may_be_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether a log that is not known may lie in a directory that is offline; not one that was removed here."""
        online = [directory for directory in self._directories if directory.failure is None]
        was_removed = topic_partition not in self._named_only and any(
            topic_partition in directory.removed for directory in online
        )
        return len(online) < len(self._directories) and not was_removed
