"""The list of mutants fits the source, and one of them is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sim.mutants.hunt import ALL, source_of
from sim.mutants.mutant import Mutant
from sim.mutants.protocol import MUTANTS
from tests.amount import thorough

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_what_a_mutant_replaces_is_there_once(mutant: Mutant) -> None:
    """Else it would change nothing, or something else; and what it makes can be compiled."""
    sources = {edit.module: source_of(edit).read_text() for edit in mutant.edits}
    for edit in mutant.edits:
        assert sources[edit.module].count(edit.old) == 1
        sources[edit.module] = sources[edit.module].replace(edit.old, edit.new)
    for source in sources.values():
        compile(source, mutant.name, "exec")


def test_there_are_thirty_of_different_names() -> None:
    """The number that was agreed on; those that came later are no excuse for any of them."""
    assert len({mutant.name for mutant in ALL}) == len(ALL)
    assert len(MUTANTS) == 30


@thorough
def test_a_mutant_is_found() -> None:
    """In a process of its own, through the import hook, while the tree stays as it is."""
    finished = subprocess.run(
        [sys.executable, "-m", "sim.mutants", "leader-outside-isr", "--seeds", "20", "--seconds", "10"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert "1 of 1 found" in finished.stdout
