"""Which of a disk's errors say that the disk is broken, and which only that one operation did not happen.

    a file's fsync that failed (`SyncFailed`)             the directory goes offline: what it holds is unknown
    EMFILE, ENFILE, ENOMEM, EINTR, EAGAIN, EBUSY          the operation fails alone, and may be tried again
    what no disk raises (`UnexpectedError`)               the same: it is our mistake, and is logged with its trace
    ENOENT of a file that was renamed or removed by us    the operation fails alone; `LogFolder.fail` knows of that
    all others: EIO, EROFS, ENOSPC, ENOENT, ...           the directory goes offline until the broker is started again

An fsync of a folder opens it first; the errors of the second line can come from that, and it may be tried again.

Exceptions: while a directory is loaded, every error takes it offline. ENOSPC is among the last because
every write in the directory would fail with it;
compaction alone, whose files are not needed, waits for room (`cleaner.log_cleaner`).

What fails alone must leave the files and the state in memory in agreement: each step over several files is either
undone, or its rest is remembered and done first by the next step (`LogFolder.unfinished`).
"""

from __future__ import annotations

import errno
from typing import Final

from tidelog.ports.disk import SyncFailed

_ALONE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.EBUSY})
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


class UnexpectedError(OSError):
    """A disk task was ended by an exception that no disk raises: a mistake of ours.

    What the task has done is unknown, but each may be done again: it may come half-way for other reasons, too.
    """


def fails_alone(error: OSError) -> bool:
    """Whether only the operation failed: the directory goes on, and the operation may be tried again."""
    if isinstance(error, SyncFailed):
        return False
    return error.errno in _ALONE or isinstance(error, UnexpectedError)


def advice(error: OSError) -> str:
    """The error's text, and what to do about it where that is known."""
    text = error.strerror or str(error)
    return f"{text}; raise the limit on open files (ulimit -n)" if error.errno in _NO_DESCRIPTORS else text


def as_os_error(error: Exception) -> OSError:
    """What a disk task raised, as its `finish` takes it."""
    if isinstance(error, OSError):
        return error
    if isinstance(error, MemoryError):
        return OSError(errno.ENOMEM, "Cannot allocate memory")
    return UnexpectedError(f"{type(error).__name__}: {error}")
