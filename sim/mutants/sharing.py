"""Bugs in share groups, for `sim.mutants` to put in and find."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

SHARING_MUTANTS: Final = (
    Mutant(
        "share-write-forgotten",
        "coordinator.share_state.coordinator",
        "event.delivery_complete_count,\n        )\n        result.writes.append(",
        "event.delivery_complete_count,\n        )\n        list[Any]().append(",
        "what members acknowledge is not stored: the next leader delivers it again",
    ),
    Mutant(
        "share-limit-passed",
        "sharing.partition",
        "run.delivery_count >= self.settings.delivery_count_limit",
        "run.delivery_count > self.settings.delivery_count_limit",
        "a record that is released is delivered once more than it may be",
    ),
)
