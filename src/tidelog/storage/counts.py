"""What has become of the logs' bytes, as plain integers for metrics, and how far a start has come with reading them.

load_log --recovered_bytes--> LogCounts <--truncated_bytes-- truncations
                                  |
LogManager.open ----------> StartProgress ----------> metrics, on the loop's thread while another one opens the logs
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tidelog.storage.file_names import LOG, parse_segment_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.ports.disk import Disk


class LogCounts:
    """Of all logs of a broker, since its start. Each is written by the thread that owns the logs then."""

    __slots__ = ("recovered_bytes", "recovery_cut_bytes", "truncated_bytes")

    def __init__(self) -> None:
        self.recovered_bytes = 0
        """Read and checked because the last stop was not clean, or files were damaged."""
        self.recovery_cut_bytes = 0
        """Taken out of logs by that: torn ends, and segments behind what had to be cut."""
        self.truncated_bytes = 0
        """Taken out of followers' logs, since their leaders do not have them."""


class StartProgress:
    """How far the start has come in each log directory. Written by the thread that opens the logs, read by any."""

    def __init__(self, counts: LogCounts) -> None:
        self.measures_bytes = False
        """Whether to look first at how many bytes there are to be recovered: a look at each segment's size."""
        self.logs_left: dict[str, int] = {}
        """[log directory] -> logs that are not loaded yet; there from when the directory's turn comes."""
        self._bytes_left: dict[str, int] = {}
        """[log directory] -> bytes of those logs that are to be recovered."""
        self._counts = counts
        self._log = ("", 0, 0)
        """Directory of the log that is being loaded, what it has to recover, and `recovered_bytes` when it began."""

    def directory_begins(self, directory: str, bytes_to_recover: Iterable[int]) -> None:
        """The directory has logs, with so much to recover in each."""
        sizes = list(bytes_to_recover)
        self._bytes_left[directory] = sum(sizes)
        self.logs_left[directory] = len(sizes)

    def log_begins(self, directory: str, bytes_to_recover: int) -> None:
        """The next log of the directory is being loaded."""
        self._log = (directory, bytes_to_recover, self._counts.recovered_bytes)

    def log_ends(self, directory: str) -> None:
        """It is loaded."""
        _, size, _ = self._log
        self._log = ("", 0, 0)
        self._bytes_left[directory] -= size
        self.logs_left[directory] -= 1

    def directory_ends(self, directory: str) -> None:
        """The directory is offline: nothing more of it is loaded."""
        self._log = ("", 0, 0)
        self._bytes_left[directory] = self.logs_left[directory] = 0

    def bytes_left(self, directory: str) -> int:
        """Bytes that are to be recovered and have not been read."""
        current, size, before = self._log
        done = min(self._counts.recovered_bytes - before, size) if current == directory else 0
        return max(self._bytes_left.get(directory, 0) - done, 0)


def bytes_to_recover(disk: Disk, path: str, recovery_point: int) -> int:
    """Bytes of the segments of the log in `path` that a start reads through after a crash. OSError.

    Those are the last one, and those whose successor begins above the recovery point.
    """
    files = [parsed for name in disk.list(path) if (parsed := parse_segment_file(name)) is not None]
    bases = sorted(base for base, suffix, marks in files if suffix == LOG and not marks)
    unflushed = [base for base, following in pairwise(bases) if following > recovery_point]
    return sum(disk.stat(f"{path}/{base:020d}{LOG}").size for base in (*unflushed, *bases[-1:]))
