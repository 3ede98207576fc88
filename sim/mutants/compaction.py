"""Bugs in compaction, for `sim.mutants` to put in and find."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

COMPACTION_MUTANTS: Final = (
    Mutant(
        "cleaned-not-synced",
        "storage.cleaner.cleaning",
        "            sync_cleaned(cleaned)\n",
        "            cleaned.forget_files()\n",
        "a cleaned segment takes its place before it is durable",
    ),
    Mutant(
        "cleaned-past-stable",
        "storage.cleaner.choice",
        "    first_uncleanable: int = min(log.last_stable_offset, active)\n",
        "    first_uncleanable: int = active\n",
        "what is not committed yet is cleaned, and supersedes what is",
    ),
)
