"""Files of local tables that survive a power cut: pyarrow and delta-rs sync nothing.

What a commit names has to be on the disk before the commit, and a commit before the next one: a later one that alone is
kept would say that the table has what is gone, and readers pass a commit over that has become an empty file.
"""

import errno
import os
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from deltalake import DeltaTable

_LOG: Final = "_delta_log"
_CHECKPOINT: Final = "_last_checkpoint"
_VERSION_DIGITS: Final = 20
_NO_SUCH_THING: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF})
"""What mounted object stores and some network file systems say, which do not sync folders, or what is open to read."""


def sync_files(table: str, names: Iterable[str]) -> None:
    """Syncs files of a table, by its path or URI, and their names; those of other file systems are theirs to keep."""
    folder = _local_folder(table)
    if folder is not None:
        _sync(folder, names)


def sync_commits(table: str, first: int, last: int) -> None:
    """Syncs what the log has of these versions; first and last count."""
    folder = _local_folder(table)
    if folder is None:
        return
    versions = {f"{version:0{_VERSION_DIGITS}}" for version in range(first, last + 1)}
    log = f"{folder}/{_LOG}"
    _sync(log, [each for each in os.listdir(log) if each[:_VERSION_DIGITS] in versions or each == _CHECKPOINT])


def take_in(table: DeltaTable) -> None:
    """After a commit: has `table` be as it is by now, which no power cut takes away."""
    before = table.version()
    table.update_incremental()
    sync_commits(table.table_uri, before + 1, table.version())


def _local_folder(table: str) -> str | None:
    if table.startswith("file://"):
        return unquote(table.removeprefix("file://"))
    return None if "://" in table else table


def _sync(folder: str, names: Iterable[str]) -> None:
    for path in (*(f"{folder}/{each}" for each in names), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_SUCH_THING:
                raise
        finally:
            os.close(descriptor)
