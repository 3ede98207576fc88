"""What storage refuses, apart from the Kafka error codes that clients see."""

from tidelog.model.errors import ErrorCode, KafkaError


class StorageError(Exception):
    """The message says what was found, where, and what to do."""


class InvalidLogFolder(StorageError):
    """A folder in a log directory is named as no partition's can be."""


class LogDirectoryLocked(StorageError):
    """Another process works in this log directory."""


class WrongLogDirectory(StorageError):
    """The log directory belongs to another cluster or broker, or two entries of log.dirs are the same directory."""


class NoLogDirectory(StorageError):
    """No log directory works any more: the broker has nothing left to serve."""


class CorruptFile(StorageError):
    """A checkpoint, snapshot or index that cannot be what its name says."""


class CorruptIndex(CorruptFile):
    """An index contradicts its log; it is rebuilt from the log."""


class CorruptTransactionIndex(CorruptFile):
    """A segment's aborted transactions cannot be read; the index is written anew from the log."""

    def __init__(self, base_offset: int, what: str) -> None:
        super().__init__(what)
        self.base_offset = base_offset
        """The segment's."""


class WouldBlock(Exception):
    """Ask again with `blocking=True` from a thread that may wait."""


class RefusedForNow(KafkaError):
    """KAFKA_STORAGE_ERROR: one operation failed alone (`disk_errors.fails_alone`), and may be tried again."""

    def __init__(self, what: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, what)


class DirectoryOffline(KafkaError):
    """KAFKA_STORAGE_ERROR: the log's directory has failed."""

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory {directory} is offline: {reason}")
