"""A run fails of errors that brokers log, unless one of its faults explains them."""

import logging

import pytest
from sim.checks.complaints import Complaints
from sim.plan import FaultKind
from sim.world.ownership import PROCESS
from sim.world.trace import Trace


class Process:
    name = "broker1.0"
    alive = True


@pytest.mark.parametrize("fault", [FaultKind.DISK_FULL, FaultKind.KILL])
@pytest.mark.parametrize(
    "line",
    [
        "move given up: partition=kept-0 error=KAFKA_STORAGE_ERROR: The log directory /data is offline",
        "move stops: partition=kept-0 reason=a log directory is offline",
        "copy not removed: partition=kept-0 error=KAFKA_STORAGE_ERROR",
        "log not put aside: partition=kept-0 error=KAFKA_STORAGE_ERROR: The log directory /data is offline",
    ],
)
def test_a_disk_that_fails_explains_what_cannot_be_moved(fault: FaultKind, line: str) -> None:
    """A move between directories, or out of the way, may fail when a directory has failed, and for no other reason."""
    complaints = Complaints([fault], [], Trace(lambda: 0.0))
    token = PROCESS.set(Process())  # type: ignore[arg-type]
    try:
        with complaints:
            logging.getLogger("tidelog.broker").error(line)
    finally:
        PROCESS.reset(token)
    assert bool(complaints.unexplained) is (fault is FaultKind.KILL)
