"""Runs mutants, each in a process of its own, until a seed finds it: the module is changed as it is imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple

from sim.mutants.access import ACCESS_MUTANTS
from sim.mutants.answers import ANSWER_MUTANTS
from sim.mutants.clients import CLIENT_MUTANTS
from sim.mutants.compaction import COMPACTION_MUTANTS
from sim.mutants.coordination import COORDINATION_MUTANTS
from sim.mutants.edges import EDGE_MUTANTS
from sim.mutants.elections import ELECTION_MUTANTS
from sim.mutants.mutant import Edit, Mutant
from sim.mutants.protocol import MUTANTS
from sim.mutants.rot import ROT_MUTANTS
from sim.mutants.settings import SETTINGS_MUTANTS
from sim.mutants.sharing import SHARING_MUTANTS

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL: Final = (
    *MUTANTS,
    *COORDINATION_MUTANTS,
    *COMPACTION_MUTANTS,
    *SHARING_MUTANTS,
    *SETTINGS_MUTANTS,
    *ELECTION_MUTANTS,
    *ROT_MUTANTS,
    *EDGE_MUTANTS,
    *ACCESS_MUTANTS,
    *ANSWER_MUTANTS,
    *CLIENT_MUTANTS,
)
"""With those that came later than the thirty."""


def source_of(edit: Edit) -> Path:
    """The file that it changes."""
    spec = importlib.util.find_spec("tidelog")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent.joinpath(*edit.module.split(".")).with_suffix(".py")


class _Finder(importlib.abc.MetaPathFinder):
    """Hands out the mutated modules, and leaves all others alone."""

    def __init__(self, mutant: Mutant) -> None:
        self._edits: dict[str, list[Edit]] = {}
        for edit in mutant.edits:
            self._edits.setdefault(f"tidelog.{edit.module}", []).append(edit)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        edits = self._edits.get(fullname)
        if edits is None:
            return None
        file = str(source_of(edits[0]))
        return importlib.util.spec_from_file_location(fullname, file, loader=_Loader(fullname, file, edits))


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, edits: Sequence[Edit]) -> None:
        super().__init__(fullname, path)
        self._edits = edits

    def get_code(self, fullname: str) -> object:  # type: ignore[override]  # A code object, as its superclass has it.
        source = Path(self.path).read_text()
        for edit in self._edits:
            if source.count(edit.old) != 1:
                raise ImportError(f"{self.path} does not have the text that is to be replaced once: {edit.old}")
            source = source.replace(edit.old, edit.new)
        return compile(source, self.path, "exec")


class Found(NamedTuple):
    """What came of a mutant."""

    mutant: Mutant
    seed: int
    """Which found it; 0: none."""
    what: str
    took_s: float


def hunt(mutant: Mutant, seeds: int, seconds: float) -> Found:
    """Runs a mutant in another process until a seed finds it."""
    start = time.monotonic()
    command = [sys.executable, "-m", "sim.mutants", "--child", mutant.name, "--seeds", str(seeds)]
    finished = subprocess.run(
        [*command, "--seconds", str(seconds)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    seed, _, what = finished.stdout.strip().rpartition("\n")[2].partition(" ")
    if finished.returncode or not seed.isdecimal():
        raise RuntimeError(f"{mutant.name}: {finished.stdout}{finished.stderr}")
    return Found(mutant, int(seed), what, time.monotonic() - start)


def live(mutant: Mutant, seeds: int, seconds: float) -> tuple[int, str]:
    """Runs seeds with the mutant in this process: the one that finds it, and how."""
    sys.meta_path.insert(0, _Finder(mutant))
    import logging

    # Mutants are changes of Python source, which nothing compiled may stand in for: its import fails, as where there is
    # no compiler.
    for compiled in (
        "storage._append",
        "storage._append_followed",
        "storage._read",
        "broker.handlers._fetch_frames",
        "broker.handlers._produce_frames",
        "broker.handlers._fetch_bytes",
        "broker.handlers._heartbeat_frames",
        "broker.connections._single_requests",
    ):
        sys.modules[f"tidelog.{compiled}"] = None  # type: ignore[assignment]  # Python's way to say so.

    from sim.run import RunFailedError, run

    logging.disable(logging.WARNING)
    is_of_clients = any(edit.module.startswith("client.") for edit in mutant.edits)
    is_of_shares = mutant in SHARING_MUTANTS
    for seed in range(1, seeds + 1):
        try:
            run(seed, seconds, clients=is_of_clients, shares=is_of_shares)
        except RunFailedError as failure:
            lines = [line for line in str(failure).split("\n") if "Error: " in line.partition(" (")[0][:60]]
            return seed, (lines[-1] if lines else str(failure).split("\n")[-2])[:160]
    return 0, ""
