"""Reads of one request that wait for several log directories: none waits for another one's disk.

    request --> what is in memory is read at once
            --> the rest, one read for each directory on its I/O threads --> all have ended, or COLD_WAIT_MS are over
                                                                                  |
                     the answer has what is there, and leaves the others for the next request <--+

A read that the request did not wait for is *late*. It goes on: what it brings into the page cache is found by the next
request. No request waits for a directory with late reads, and of these there are `LATE_MAX` at most: a disk that hangs
costs the first request `COLD_WAIT_MS`, and the others nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.broker.shell import InDirectories

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.broker.deferred import Deferred
    from tidelog.broker.shell import Shell

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")

COLD_WAIT_MS: Final = 250
"""For how long a request waits for its reads in several directories: disks that are busy are quicker."""
LATE_MAX: Final = 16
"""Late reads of a directory, beyond which no more are begun there by requests that have other directories to read."""


class ColdReads:
    """Those of one broker; on the loop's thread."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._late: Counter[str] = Counter()
        """By directory, how many reads are late."""

    def is_late(self, directory: str) -> bool:
        """Whether no request waits for the directory, for reads there are late already."""
        return self._late[directory] > 0

    def accepts(self, directory: str) -> bool:
        """Whether `read` begins reads there: not while too many are late."""
        return self._late[directory] < LATE_MAX

    def read(
        self,
        reads: Mapping[str, Callable[[], T]],
        done: Callable[[dict[str, Deferred[T]]], None],
        late: Callable[[T], None],
    ) -> None:
        """Reads in several directories, `reads` by their paths, each on a thread of its directory.

        `done` is called once, with the outcomes of those that have ended by then; `late` with what each of the others
        gives after that.
        """
        ended: dict[str, Deferred[T]] = {}
        begun = [directory for directory in reads if self.accepts(directory)]
        waited_for = {directory for directory in begun if not self._late[directory]}
        is_over = False

        def over() -> None:
            nonlocal is_over
            is_over = True
            timer.cancel()
            self._late.update(directory for directory in begun if directory not in ended)
            done(ended)

        def settled(directory: str, outcome: Deferred[T]) -> None:
            if is_over:
                self._late[directory] -= 1
                _pass_when_late(outcome, late)
                return
            ended[directory] = outcome
            waited_for.discard(directory)
            if not waited_for and all_begun:
                over()

        timer = self._shell.after(COLD_WAIT_MS, over)
        all_begun = False
        for directory in begun:
            self._shell.in_pool(InDirectories((directory,), reads[directory])).on_complete(partial(settled, directory))
        all_begun = True
        if not waited_for:
            over()


def _pass_when_late(outcome: Deferred[T], late: Callable[[T], None]) -> None:
    try:
        result = outcome.result()
    except Exception:  # Nothing waits for this read any more: the log is the only place that can still tell.
        logger.exception("a read that was not waited for failed")
    else:
        late(result)
