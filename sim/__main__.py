"""`python -m sim --seed N --seconds S`: replays one run; `--seeds N` makes many, one after the other."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from sim.run import RunFailedError, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim", description="Simulated brokers, faults by seed.")
    parser.add_argument("--seed", type=int, default=1, help="the run, or the first of several")
    parser.add_argument("--seeds", type=int, default=1, help="how many runs")
    parser.add_argument("--seconds", type=float, default=30.0, help="simulated seconds of load and faults in each")
    parser.add_argument("--log", help="level from which the broker's own log is shown on stderr, such as WARNING")
    arguments = parser.parse_args()
    if arguments.log is None:
        logging.disable()
    else:
        logging.basicConfig(level=arguments.log.upper())
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        start = time.monotonic()
        try:
            outcome = run(seed, arguments.seconds)
        except RunFailedError as failure:
            print(failure, file=sys.stderr)
            return 1
        print(
            f"seed {seed}: {outcome.acknowledged} records acknowledged, {outcome.read} read, {outcome.faults} faults,"
            f" {outcome.events} events in {time.monotonic() - start:.1f} s, digest {outcome.digest[:16]}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
