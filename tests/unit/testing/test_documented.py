"""docs/testing.md: every example runs, word for word."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/testing.md"
WAIT_S = 180.0


def examples(kind: str) -> list[str]:
    """The blocks of the page that are marked so."""
    return re.findall(rf"<!-- runs: {kind} -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_every_example_is_marked() -> None:
    """A block of Python without a mark would be tried by nobody."""
    assert PAGE.read_text().count("```python") == len(examples("script")) + len(examples("pytest")) > 1


@pytest.mark.parametrize("code", examples("script"))
def test_a_script_runs(code: str, tmp_path: Path) -> None:
    """As it stands there."""
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("code", examples("pytest"))
def test_a_test_file_passes(code: str, tmp_path: Path) -> None:
    """With the plugin, as installed."""
    (tmp_path / "test_application.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "3 passed" in ended.stdout
