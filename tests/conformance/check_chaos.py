"""Brokers, their controller and ZooKeeper servers, broken a few times under a load whose every value is checked.

A run that says something about rare things is long: `python -m tests.chaos --zookeeper 3 --fault mix --cycles 200`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("fault", "cycles"), [("mix", 6), ("quorum", 2), ("both", 2)])
def test_nothing_is_lost_on_zookeeper(fault: str, cycles: int, tmp_path: Path) -> None:
    """Every acknowledged record is at its offset, once; leaders are elected in time."""
    command = [sys.executable, "-m", "tests.chaos", "--zookeeper", "3", "--fault", fault, "--cycles", str(cycles)]
    done = subprocess.run(
        [*command, "--seed", "7", "--directory", str(tmp_path / "data")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "lost 0, duplicated 0, inconsistent 0" in done.stdout
