"""Installs each software of `catalogue.py` in an environment of its own, runs it on a cluster, and prints the verdicts.

python -m tests.ecosystem [NAME...]
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from tests.ecosystem import connect, java, mirror
from tests.ecosystem.catalogue import SKIPPED, SOFTWARE, Software
from tests.ecosystem.judge import Wrong, judge, prepare
from tidelog.testing import Cluster

HERE: Final = Path(__file__).parent
ENVIRONMENTS: Final = HERE.parents[1] / "build" / "ecosystem"
ON_JAVA: Final = (connect, mirror)
SHOWN_LINES: Final = 30
"""Of a log, where something went wrong."""


def environment_of(software: Software) -> Path:
    """The folder of its virtual environment, made where it is not there; its name tells the pinned versions apart."""
    pinned = hashlib.sha256("\n".join(software.requirements).encode()).hexdigest()[:8]
    folder = ENVIRONMENTS / f"{software.name}-{pinned}"
    done = folder / ".installed"
    if not done.exists():
        print(f"installing {', '.join(software.requirements)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *software.requirements], check=True)
        done.touch()
    return folder


def run(software: Software, bootstrap: str) -> None:
    """Runs its script until its output is right. Wrong, CalledProcessError where it cannot be installed."""
    python = environment_of(software) / "bin/python"
    source, sink = f"{software.name}-in", f"{software.name}-out"
    prepare(bootstrap, source, sink)
    work = ENVIRONMENTS / f"{software.name}-work"
    work.mkdir(parents=True, exist_ok=True)
    log_path = work / "log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [python, HERE / "software" / f"with_{software.name}.py", bootstrap, source, sink],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=work,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        try:
            judge(bootstrap, sink, lambda: process.poll() is None)
        except Wrong:
            print("\n".join(log_path.read_text(errors="replace").splitlines()[-SHOWN_LINES:]))
            raise
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all where none is named")
    names = parser.parse_args().names
    known = {software.name for software in SOFTWARE} | {each.NAME for each in ON_JAVA}
    if not known.issuperset(names):
        parser.error(f"known are {', '.join(sorted(known))}")
    verdicts: list[tuple[str, str]] = []
    settings = {"default.replication.factor": 3, "min.insync.replicas": 2}
    with Cluster(settings, brokers=3) as cluster:
        chosen = [software for software in SOFTWARE if not names or software.name in names]
        verdicts += [(each.title, _verdict(functools.partial(run, each, cluster.bootstrap))) for each in chosen]
        for each in ON_JAVA:
            if not names or each.NAME in names:
                verdict = _verdict(functools.partial(each.run, cluster.bootstrap, ENVIRONMENTS))
                verdicts.append((each.TITLE, verdict))
    if not names:
        verdicts += [(title, f"skipped: {reason}") for title, reason in SKIPPED.items()]
    print()
    for title, verdict in verdicts:
        print(f"{title:45} {verdict}")
    return int(any(verdict.startswith("FAILED") for _, verdict in verdicts))


def _verdict(attempt: Callable[[], None]) -> str:
    began = time.monotonic()
    try:
        attempt()
    except java.Absent as reason:
        return f"skipped: {reason}"
    except (Wrong, OSError, subprocess.SubprocessError, KafkaException) as error:
        return f"FAILED: {error}"
    return f"passed ({time.monotonic() - began:.0f} s)"


if __name__ == "__main__":
    sys.exit(main())
