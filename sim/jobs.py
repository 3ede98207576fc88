"""Many runs, some of them at the same time, each batch in processes of its own."""

from __future__ import annotations

import logging
import multiprocessing
import time
from typing import TYPE_CHECKING, NamedTuple, TextIO

from sim.plan import FaultKind
from sim.run import RunFailedError, run
from sim.simulation import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Job(NamedTuple):
    """One run to be made, and what came of it."""

    seed: int
    seconds: float
    brokers: int | None
    faults: tuple[FaultKind, ...] = ()
    """That it has in any case."""
    log_dirs: int | None = None
    clients: bool = False
    shares: bool = False
    outcome: Outcome | None = None
    failure: str = ""
    took_s: float = 0.0


def made(jobs: Sequence[Job], processes: int, trace_file: TextIO | None = None) -> Iterator[Job]:
    """Makes the runs; gives them in their order, as they are done. `trace_file` is for those of one process."""
    if processes == 1 or len(jobs) == 1:
        for job in jobs:
            yield make(job, trace_file)
        return
    # Spawned, not forked: each process begins with nothing of another run in it.
    with multiprocessing.get_context("spawn").Pool(processes, logging.disable, (logging.WARNING,)) as pool:
        yield from pool.imap(make, jobs)


def make(job: Job, trace_file: TextIO | None = None) -> Job:
    """Makes one run."""
    start = time.monotonic()
    try:
        outcome = run(
            job.seed,
            job.seconds,
            brokers=job.brokers,
            faults=job.faults,
            log_dirs=job.log_dirs,
            clients=job.clients,
            shares=job.shares,
            trace_file=trace_file,
        )
    except RunFailedError as failure:
        return job._replace(failure=str(failure), took_s=time.monotonic() - start)
    return job._replace(outcome=outcome, took_s=time.monotonic() - start)
