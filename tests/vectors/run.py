"""Judges the code by golden vectors: what Apache Kafka's own classes answered, case by case.

    python -m tests.vectors.run [DIR]

DIR defaults to $TIDELOG_VECTORS, then to the project's copy. Every family that is found in DIR runs; a family whose
files are absent is named and skipped. The last line is `N passed, N failed`, and the exit code is 1 when a case failed.
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
import pkgutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import tests.vectors.families as families

PROJECT_COPY = Path(__file__).parent / "data"
FAILURES_SHOWN = 5
"""Of each family; the rest are counted."""


class Outcome(NamedTuple):
    """What running one family gave; `failures` are (case name, traceback) of the first few."""

    family: str
    passed: int
    failed: int
    failures: list[tuple[str, str]]
    seconds: float
    missing: bool
    unjudged: list[str]
    """What lies in the folder and is not judged."""


def json_cases(module: ModuleType, directory: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """The cases of a family of `<name>.json.gz` files."""
    for file in module.FILES:
        path = directory / file
        if not path.exists():
            continue
        with gzip.open(path, "rt") as stream:
            cases = json.load(stream)["cases"]
        for index, case in enumerate(cases):
            yield f"{file}[{index}]", lambda case=case: module.check(case)


def cases_of(module: ModuleType, directory: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every case of one family that `directory` holds, as (name, check)."""
    if hasattr(module, "cases"):
        return iter(module.cases(str(directory)))
    return json_cases(module, directory)


def run_family(name: str, directory: Path) -> Outcome:
    """Runs one family to its end; a failure does not hold up the next case."""
    module = importlib.import_module(f"tests.vectors.families.{name}")
    started = time.perf_counter()
    passed, failures, failed = 0, [], 0
    for case, check in cases_of(module, directory):
        try:
            check()
        except Exception:
            failed += 1
            if len(failures) < FAILURES_SHOWN:
                failures.append((case, traceback.format_exc(limit=-3)))
        else:
            passed += 1
    unjudged = module.unjudged(str(directory)) if hasattr(module, "unjudged") else []
    missing = passed + failed == 0
    return Outcome(name, passed, failed, failures, time.perf_counter() - started, missing, unjudged)


def family_names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(families.__path__))


def main(arguments: list[str]) -> int:
    directory = Path(arguments[0] if arguments else os.environ.get("TIDELOG_VECTORS") or PROJECT_COPY)
    if not directory.is_dir():
        print(f"{directory} is not a directory: set TIDELOG_VECTORS to a folder of golden vectors", file=sys.stderr)
        return 2
    with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=get_context("spawn")) as pool:
        outcomes = list(pool.map(run_family, family_names(), [directory] * len(family_names())))
    for outcome in outcomes:
        verdict = "not in this folder" if outcome.missing else f"{outcome.passed} passed, {outcome.failed} failed"
        print(f"{outcome.family:24} {verdict:32} {outcome.seconds:6.1f} s")
        for what in outcome.unjudged:
            print(f"  not judged: {what}")
        for case, text in outcome.failures:
            print(f"  {case}\n    " + text.strip().replace("\n", "\n    "))
    failed = sum(outcome.failed for outcome in outcomes)
    print(f"{sum(outcome.passed for outcome in outcomes)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
