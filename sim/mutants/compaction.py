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
    Mutant(
        "tombstones-go-early",
        "storage.cleaner.cleaning",
        "        delete_horizon_ms = self._now_ms + log.config.delete_retention_ms\n",
        "        delete_horizon_ms = self._now_ms\n",
        "tombstones and markers go with the second cleaning, whatever delete.retention.ms says",
    ),
    Mutant(
        "markers-go-at-once",
        "storage.cleaner.rewriting",
        "        if is_superfluous and horizon is not None and horizon <= self._now_ms:\n",
        "        if is_superfluous:\n",
        "compaction removes markers with the data of their transactions, at once",
    ),
)
