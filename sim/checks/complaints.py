"""What brokers log as errors: a run fails of it, unless a fault of the run explains it.

Brokers go on after a mistake in one partition's or one answer's work, with a traceback in their log. Clients may never
notice; here the log is read.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sim.plan import FaultKind
from sim.world.ownership import PROCESS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from types import TracebackType

    from sim.world.trace import Trace

_DISK_FAULTS: Final = (FaultKind.DISK_ERROR, FaultKind.DISK_FULL, FaultKind.SHORTAGE)
EXPLAINED: Final[Mapping[str, Collection[FaultKind]]] = {
    "broker stops: every log directory has failed": _DISK_FAULTS,
    "log directory offline: ": _DISK_FAULTS,
    "log_directory_offline: ": _DISK_FAULTS,
    "log_not_closed_cleanly: ": _DISK_FAULTS,
    "log not created: ": _DISK_FAULTS,
    "log not deleted: ": _DISK_FAULTS,
    "log not put aside: ": _DISK_FAULTS,
    "log start not advanced: ": _DISK_FAULTS,
    "move given up: ": (FaultKind.ROT, *_DISK_FAULTS),  # A lone broker's damage cannot be mended.
    "move stops: ": _DISK_FAULTS,
    "copy not removed: ": _DISK_FAULTS,
    "damage not forgotten: ": _DISK_FAULTS,
    "rot_not_repaired: ": (FaultKind.ROT,),  # Retention may have taken it from the others.
    # Of a leader that trusts what it has appended a moment ago: the follower checks all.
    "records refused: ": (FaultKind.FLIPPED_READ, FaultKind.ROT, *_DISK_FAULTS),
}
"""[how it begins] -> the faults after which it may be logged."""
_LOGGER: Final = "tidelog"


class Complaints(logging.Handler):
    """Use it as a context, around all that brokers do in a run; ask for `unexplained` meanwhile."""

    def __init__(self, faults: Collection[FaultKind], lossy: Collection[str], trace: Trace) -> None:
        """`faults`: those of the run; `lossy`: topics that may lose what was committed."""
        super().__init__(logging.ERROR)
        self._explained = [beginning for beginning, reasons in EXPLAINED.items() if not set(reasons).isdisjoint(faults)]
        for topic in lossy:
            self.allow_loss(topic)
        self._trace = trace
        self._level = logging.NOTSET
        self.unexplained: list[str] = []
        """Each with its traceback, if it has one."""

    def explain(self, fault: FaultKind) -> None:
        """There has been a fault of that kind, which the plan does not name."""
        self._explained += [beginning for beginning, reasons in EXPLAINED.items() if fault in reasons]

    def allow_loss(self, topic: str) -> None:
        """From now on a topic may lose what was committed."""
        self._explained.append(f"truncation below the high watermark: partition={topic}-")

    def __enter__(self) -> Complaints:
        logger = logging.getLogger(_LOGGER)
        self._level = logger.level
        if logger.getEffectiveLevel() > logging.ERROR:
            logger.setLevel(logging.ERROR)
        logger.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(self)
        logger.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        if process is None or not process.alive:
            return  # The simulator's own look at the disks; or the last words of the dead.
        self._trace.record("error_logged", process.name, record.msg)
        # With a traceback it is a mistake, whatever went wrong before it.
        if record.exc_info or not record.getMessage().startswith(tuple(self._explained)):
            self.unexplained.append(f"{process.name} logs: {self.format(record)}")
