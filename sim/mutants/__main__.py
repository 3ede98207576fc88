"""Bugs put into the protocol on purpose, each in a process of its own, to see whether the simulator finds them.

    python -m sim.mutants                 all of them, each until a seed finds it; prints a table
    python -m sim.mutants NAME ...        some of them

A mutant replaces a piece of the product's source as the module is imported; the files stay as they are. The list was
fixed before the simulator was tuned by it. A test sees to it that every text to be replaced is there, once.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final

from sim.mutants.hunt import ALL, hunt, live

SEEDS_MAX: Final = 200
SECONDS: Final = 20.0
"""Simulated, of each run."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.mutants", description="Bugs put in on purpose, and found.")
    parser.add_argument("names", nargs="*", help="which; all of them where none is named")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="how many may be tried for each")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="simulated seconds of each run")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at the same time")
    parser.add_argument(
        "--needed", type=int, default=len(ALL) * 95 // 100, help="how many of the whole list must be found"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    by_name = {mutant.name: mutant for mutant in ALL}
    if arguments.child is not None:
        print(*live(by_name[arguments.child], arguments.seeds, arguments.seconds))
        return 0
    chosen = [by_name[name] for name in arguments.names] or list(ALL)
    caught = 0
    print(f"| {'mutant':30} | seed |    s | found by")
    print(f"|{'-' * 32}|-----:|-----:|{'-' * 40}", flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for hunted in as_completed(
            [pool.submit(hunt, mutant, arguments.seeds, arguments.seconds) for mutant in chosen]
        ):
            found = hunted.result()
            caught += found.seed > 0
            seed = str(found.seed) if found.seed else "-"
            what = found.what or f"NOT FOUND: {found.mutant.meaning}"
            print(f"| {found.mutant.name:30} | {seed:>4} | {found.took_s:4.0f} | {what}", flush=True)
    print(f"{caught} of {len(chosen)} found")
    return 0 if caught >= min(arguments.needed, len(chosen)) or (arguments.names and caught == len(chosen)) else 1


if __name__ == "__main__":
    sys.exit(main())
