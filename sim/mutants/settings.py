"""Bugs of how brokers keep up with altered settings, put in on purpose: see `sim.mutants`, whose list they lengthen."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

SETTINGS_MUTANTS: Final = (
    Mutant(
        "settings-missed-between-sessions",
        "broker.cluster.config_changes",
        "        if self._known.resources():\n            await self._compare_all()\n",
        "",
        "a broker that registers anew takes notifications that it has not read for history",
    ),
    Mutant(
        "purged-notifications-missed",
        "broker.cluster.config_changes",
        " or len(new) != now.created - before.created:\n",
        ":\n",
        "notifications that were deleted before a broker read them are not missed by it",
    ),
    Mutant(
        "settings-written-blindly",
        "controller.configs",
        "Create(path, data) if version is None else SetData(path, data, version)",
        "Create(path, data) if version is None else SetData(path, data)",
        "what a tool has set is undone by a request that the controller carries out before it has read it",
    ),
    Mutant(
        "topic-settings-inherited",
        "controller.deletions",
        "        if resource in turn.state.image.configs:\n            turn.write(Delete(config_path(resource)))\n",
        "",
        "the settings of a topic that is deleted stay in the store, for the next one of its name",
    ),
)
