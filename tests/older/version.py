"""The older version: its source out of the repository's history, and its brokers as processes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
COMMIT: Final = "0b6c722"
"""The commit whose data, and whose brokers, today's code goes on with."""


def is_there() -> bool:
    """Whether this is a clone that has the commit: an sdist or a shallow clone has not."""
    if not (ROOT / ".git").exists():
        return False
    found = subprocess.run(
        ["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    return found.returncode == 0


def unpack(folder: Path) -> Path:
    """The commit's packages in `folder`; the path for PYTHONPATH. Plain Python serves as its kernel."""
    archive = subprocess.run(["git", "archive", COMMIT, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        extract(files, folder)
    return folder / "src"


def extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpacks into the folder and nowhere else, where Python (3.11.4 and later) can promise that."""
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder)


def start(source: Path, *arguments: str | Path, log: Path) -> subprocess.Popen[str]:
    """Runs `tidelog` of the packages in `source`; its stdout is a pipe, its stderr goes to `log`."""
    with log.open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "tidelog", *map(str, arguments)],
            cwd=log.parent,
            env={**os.environ, "PYTHONPATH": str(source)},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def address(process: subprocess.Popen[str], log: Path) -> str:
    """What stands behind `ready:`, when it stands there; RuntimeError with the log if the process ends before."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("ready: "):
            return line.removeprefix("ready: ").strip()
    raise RuntimeError(f"exit code {process.wait()}: {log.read_text()}")
