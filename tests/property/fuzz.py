"""Mutated bytes into every parser, as many as there is time for: no uncaught exception, no hang, no growth.

    python -m tests.property.fuzz SECONDS [--seed N]                    all families, SECONDS each, in parallel
    python -m tests.property.fuzz --family batches --seed N --block B   one block again; --input I stops behind an input

Inputs come in blocks. What a block contains follows from the family's name, the seed and the block's number; time
decides only how many blocks there are. Each family runs in a process of its own, so that a crash or a growth has a
name.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from tests.property.fuzz_families import FAMILIES, Family

from tidelog.records import column_implementation

INPUTS_PER_BLOCK = 200
HANG_SECONDS = 60
"""For one input; the slowest of ours takes a thousandth of it on a busy machine. A hang has no end."""
GROWTH_MIB_MAX = 64
"""Of resident memory, from the end of the warm-up: codecs are compiled on first use, and stay."""
WARM_UP = 0.3
"""The share of the time after which growth is counted."""


class Hang(BaseException):
    """An input took too long. Not an Exception, so that no parser takes it for bad input."""


@dataclass
class Outcome:
    """What one family's run came to."""

    family: str
    seed: int
    inputs: int = 0
    refused: int = 0
    growth_mib: float = 0.0
    finding: str = ""
    """What a parser let through, with its trace; empty if nothing."""
    replay: str = ""


def run_block(name: str, seed: int, block: int, outcome: Outcome, only: int | None = None) -> None:
    """Runs one block; `only` stops behind that input. Raises what a parser lets through, the input's number noted."""
    draw = random.Random(f"{name} {seed} {block}")
    family = _instance(name)
    family.begin(draw)
    try:
        for index in range(INPUTS_PER_BLOCK):
            signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
            try:
                refused = family.attempt(draw)
            except BaseException as error:
                error.add_note(f"--input {index}")
                raise
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            outcome.inputs += 1
            outcome.refused += refused
            if index == only:
                break
    finally:
        family.end()


_instances: dict[str, Family] = {}


def _instance(name: str) -> Family:
    if name not in _instances:
        _instances[name] = FAMILIES[name]()
    return _instances[name]


def run_family(name: str, seconds: float, seed: int, progress: Path) -> Outcome:
    """Blocks until the time is over, or a finding. `progress` says which block runs, for when the process dies."""
    outcome = Outcome(name, seed)
    _instance(name)
    begin = time.monotonic()
    base_mib = 0.0
    block = 0
    while (elapsed := time.monotonic() - begin) < seconds or block < 2:
        if not base_mib and elapsed >= seconds * WARM_UP:
            base_mib = resident_mib()
        progress.write_text(str(block))
        try:
            run_block(name, seed, block, outcome)
        except (Exception, Hang):
            outcome.finding = traceback.format_exc()
            outcome.replay = replay_command(name, seed, block)
            return outcome
        block += 1
    outcome.growth_mib = max(0.0, resident_mib() - (base_mib or resident_mib()))
    if outcome.growth_mib > GROWTH_MIB_MAX:
        outcome.finding = f"Resident memory grew by {outcome.growth_mib:.0f} MiB over {outcome.inputs} inputs."
        outcome.replay = f"python -m tests.property.fuzz --family {name} --seed {seed} {seconds:g}"
    return outcome


def replay_command(name: str, seed: int, block: int) -> str:
    return f"python -m tests.property.fuzz --family {name} --seed {seed} --block {block}"


def resident_mib() -> float:
    """Of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _hang(_number: int, _frame: FrameType | None) -> None:
    raise Hang(f"an input took longer than {HANG_SECONDS} s")


def in_own_process(name: str, seconds: float, seed: int, progress: Path) -> Outcome:
    """`run_family` in a child; a child that dies or hangs where no signal reaches it is a finding too."""
    command = [
        sys.executable,
        "-m",
        "tests.property.fuzz",
        "--family",
        name,
        "--seed",
        str(seed),
        "--child",
        str(progress),
    ]
    child = subprocess.Popen([*command, str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = child.communicate(timeout=seconds + 120)
    except subprocess.TimeoutExpired:
        child.kill()
        output, errors = child.communicate()
        errors += f"\nThe process did not end within {seconds + 120:g} s: it hangs in compiled code."
    if child.returncode == 0:
        return Outcome(**json.loads(output.splitlines()[-1]))
    block = int(progress.read_text()) if progress.exists() else 0
    finding = f"{errors}\nThe process ended with {child.returncode}."
    return Outcome(name, seed, finding=finding, replay=replay_command(name, seed, block))


def run_all(names: list[str], seconds: float, seed: int, folder: Path) -> list[Outcome]:
    """Every family, as many at once as there are cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        runs = [pool.submit(in_own_process, name, seconds, seed, folder / name) for name in names]
        return [run.result() for run in runs]


def report(outcomes: list[Outcome]) -> int:
    """Prints the table and the findings; the exit code."""
    print(f"{'family':<16}{'inputs':>12}{'refused':>12}{'growth MiB':>12}{'seed':>8}")
    for outcome in outcomes:
        verdict = "  FOUND" if outcome.finding else ""
        print(
            f"{outcome.family:<16}{outcome.inputs:>12,}{outcome.refused:>12,}{outcome.growth_mib:>12.1f}{outcome.seed:>8}{verdict}"
        )
    findings = [outcome for outcome in outcomes if outcome.finding]
    for outcome in findings:
        print(f"\n{outcome.family}: {outcome.finding.rstrip()}\nagain: {outcome.replay}")
    total = sum(outcome.inputs for outcome in outcomes)
    print(f"{total} inputs, {len(findings)} findings")
    return 1 if findings else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.property.fuzz", description="Mutated bytes into every parser."
    )
    parser.add_argument("seconds", type=float, nargs="?", default=60.0, help="for each family")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", choices=FAMILIES, action="append", help="only this one; may be repeated")
    parser.add_argument("--block", type=int, help="run this block alone, in this process")
    parser.add_argument("--input", type=int, help="stop behind this input of the block")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = arguments.family or list(FAMILIES)
    if "columns" in names and column_implementation.ABSENT:
        print(f"columns: left out, for the compiled kernel is not there to be compared: {column_implementation.ABSENT}")
        names.remove("columns")
    signal.signal(signal.SIGALRM, _hang)
    if arguments.block is not None:
        outcome = Outcome(names[0], arguments.seed)
        run_block(names[0], arguments.seed, arguments.block, outcome, arguments.input)
        print(f"{outcome.inputs} inputs, 0 findings")
        return 0
    if arguments.child is not None:
        print(json.dumps(asdict(run_family(names[0], arguments.seconds, arguments.seed, arguments.child))))
        return 0
    with tempfile.TemporaryDirectory(prefix="tidelog-fuzz-") as folder:
        return report(run_all(names, arguments.seconds, arguments.seed, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
