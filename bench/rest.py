"""What the memory of a broker at rest is made of.

    python -m bench.rest

A process that imports what a broker needs, a step after the other, and then OpenSSL; and fresh brokers of `tidelog
start`: MiB of their own (anonymous) and of files, by /proc/PID/smaps_rollup, and the modules that are loaded.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.lifecycle import tidelog_broker

STEPS: Final = {
    "the interpreter": "pass",
    "asyncio, which loads inspect, subprocess, typing": (
        "from tidelog.launcher.event_loop import load_without_openssl; load_without_openssl(('asyncio',))"
    ),
    "uvloop, logging, dataclasses, hashlib": (
        "import logging, dataclasses; load_without_openssl(('uvloop', 'hashlib', 'hmac'))"
    ),
    "SQLite, cramjam, json": "import _sqlite3, cramjam, json",
    "tidelog's modules": (
        "from tidelog.launcher.lean_modules import import_lean; import_lean(); "
        "import tidelog.cli.start, tidelog.launcher.in_process"
    ),
    "OpenSSL, which a broker with TLS or SASL loads": "import ssl, _hashlib",
}
"""What is imported -> how; each after all before it."""
PROBE: Final = """
import sys
for step in sys.argv[1:]:
    exec(step)
    print(open("/proc/self/smaps_rollup").read(), len(sys.modules), sep="")
"""
BROKERS: Final = 3


def memory(rollup: str) -> tuple[float, float]:
    """MiB of a process's own, and of files, of the text of its smaps_rollup."""
    sizes = {line.split()[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
    own = sizes["Anonymous:"]
    return own / 1024, (sizes["Rss:"] - own) / 1024


def say(what: str, own: float, files: float, modules: str = "") -> None:
    print(f"{what:56} {own + files:5.1f} MiB: {own:5.1f} its own, {files:5.1f} of files  {modules}")


def main() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", PROBE, *STEPS.values()]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)  # Writes bytecode.
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    lines = told.splitlines(keepends=True)
    each = len(lines) // len(STEPS)
    for index, what in enumerate(STEPS):
        part = lines[index * each : (index + 1) * each]
        say(what, *memory("".join(part[:-1])), f"{part[-1].strip()} modules")
    found = []
    for _ in range(BROKERS):
        with tempfile.TemporaryDirectory() as work, tidelog_broker(f"{work}/data") as (pid, _, _):
            time.sleep(1)  # The broker ends what its start has left to the loop; memory at rest is measured.
            found.append(memory(Path(f"/proc/{pid}/smaps_rollup").read_text()))
    say(
        f"a broker without TLS and SASL (median of {BROKERS})",
        *(statistics.median(column) for column in zip(*found, strict=True)),
    )


if __name__ == "__main__":
    main()
