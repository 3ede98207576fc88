"""Programs in Java, started as quickly as Java can: Kafka's tools of each release.

Most of what a tool costs is its start, which loads some thousands of classes. The first run of a program leaves an
archive of them beside the jars (class data sharing); the runs after it take half the time.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Final

JAVA: Final = (
    "java",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # What the machine itself has to say, of archives too, goes to standard output, where the tools print.
    "-Xlog:disable",
    # Releases of Java 8's time look into what Java 17 keeps to itself.
    *(f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in ("java.lang", "java.nio", "sun.nio.ch")),
)
DEADLINE_S: Final = 120.0


def run(jars: str | Path, program: str, *arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Runs a class of the jars in a folder; `how` is for `subprocess.run`, which captures nothing unless told to."""
    archive = Path(jars) / f"{program}.jsa"
    if archive.exists():
        new, option = None, f"-XX:SharedArchiveFile={archive}"
    else:
        new = archive.with_suffix(f".{os.getpid()}")
        option = f"-XX:ArchiveClassesAtExit={new}"
    command = [*JAVA, option, "-cp", f"{jars}/*", program, *arguments]
    done = subprocess.run(command, text=True, timeout=DEADLINE_S, check=False, **how)
    if new is not None and new.exists():
        new.replace(archive)
    return done
