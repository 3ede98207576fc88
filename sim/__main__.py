"""`python -m sim --seed N --seconds S` replays one run, `--seeds N` makes many; `--crash-log` crashes one log."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from typing import TYPE_CHECKING, Final

from sim.invariants import InvariantBrokenError
from sim.jobs import Job, made
from sim.plan import FaultKind
from sim.scenarios.compaction import CompactionScenario
from sim.scenarios.follower import FollowerScenario
from sim.scenarios.log import LogScenario, count_changes
from sim.scenarios.transaction import FlushedTransactionScenario, TransactionScenario

if TYPE_CHECKING:
    from sim.simulation import Outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim", description="Simulated brokers, faults by seed.")
    parser.add_argument("--seed", type=int, default=1, help="the run, or the first of several")
    parser.add_argument("--seeds", type=int, default=1, help="how many runs")
    parser.add_argument("--seconds", type=float, default=30.0, help="simulated seconds of load and faults in each")
    parser.add_argument("--brokers", type=int, help="how many; drawn by the seed where it is not given")
    parser.add_argument("--fault", action="append", default=[], help="one that each run has, such as ROT; repeatable")
    parser.add_argument("--log-dirs", type=int, help="of each broker, 1 or 2; drawn by the seed where it is not given")
    parser.add_argument("--clients", action="store_true", help="our own client takes part in each run")
    parser.add_argument("--shares", action="store_true", help="a share group is the one application of each run")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time, in processes of their own")
    parser.add_argument("--keep-going", action="store_true", help="make all runs, whatever fails")
    parser.add_argument("--trace", type=argparse.FileType("w"), help="a file for everything that happens, a line each")
    parser.add_argument("--log", help="level from which the broker's own log is shown on stderr, such as WARNING")
    parser.add_argument("--crash-log", action="store_true", help="instead, crash one log at every write and sync")
    arguments = parser.parse_args()
    if arguments.log is None:
        logging.disable(logging.WARNING)  # Errors are looked at, and shown where nothing explains them.
    else:
        logging.basicConfig(level=arguments.log.upper())
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    if arguments.crash_log:
        return 0 if all(map(crash_log, seeds)) else 1
    start = time.monotonic()
    failed: list[int] = []
    simulated = 0.0
    faults = tuple(FaultKind[name] for name in arguments.fault)
    chosen = arguments
    jobs = [
        Job(seed, chosen.seconds, chosen.brokers, faults, chosen.log_dirs, chosen.clients, chosen.shares)
        for seed in seeds
    ]
    for job in made(jobs, arguments.jobs, arguments.trace):
        if job.outcome is None:
            print(job.failure, file=sys.stderr, flush=True)
            failed.append(job.seed)
            if not arguments.keep_going:
                return 1
        else:
            simulated += arguments.seconds
            print(_summary(job, job.outcome), flush=True)
    took_s = time.monotonic() - start
    if len(seeds) > 1:
        print(f"{len(seeds)} runs in {took_s:.0f} s, {simulated / took_s:.0f} simulated seconds a second")
    if failed:
        print(f"{len(failed)} failed: {failed}", file=sys.stderr)
    return 1 if failed else 0


def _summary(job: Job, outcome: Outcome) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in outcome.counts.items() if count)
    return (
        f"seed {job.seed}: {outcome.brokers} brokers, {outcome.acknowledged} records acknowledged, {outcome.read} read,"
        f" {outcome.faults} faults, {counts}; {outcome.events} events in {job.took_s:.1f} s,"
        f" digest {outcome.digest[:16]}"
    )


KINDS: Final = (LogScenario, FollowerScenario, TransactionScenario, FlushedTransactionScenario, CompactionScenario)
"""A leader's log, a follower's, those with transactions, a compacted one."""


def crash_log(seed: int) -> bool:
    """A log of each kind, cut off by a kill and by a power cut at each change of the disk; says where a promise was not
    kept."""
    return all(_crash_everywhere(seed, kind) for kind in KINDS)


def _crash_everywhere(seed: int, kind: type[LogScenario]) -> bool:
    changes = count_changes(seed, kind)
    for number in range(1, changes + 1):
        for power_cut in (False, True):
            scenario = kind(seed)
            scenario.crash_at(number, power_cut=power_cut)
            try:
                scenario.check_recovery(power_cut=power_cut)
            except InvariantBrokenError as broken:
                what = "a power cut" if power_cut else "a kill"
                print(f"{broken}\nafter {what} at change {number}", file=sys.stderr)
                print(f"replay: python -m sim --crash-log --seed {seed}", file=sys.stderr)
                return False
    print(f"seed {seed}, {kind.__name__}: {changes} changes of the disk, a kill and a power cut at each")
    return True


if __name__ == "__main__":
    sys.exit(main())
