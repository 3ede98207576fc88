"""How long a run should take: by the simulation that the plan was tried in, at the throttle that it runs with. Pure."""

from __future__ import annotations

import math

from tidelog.placement.plan.copies import Directories, work_of
from tidelog.placement.plan.plan import Plan
from tidelog.placement.plan.simulation import ASSUMED_RATE, seconds
from tidelog.placement.plan.state import ClusterState


def predicted_seconds(plan: Plan, state: ClusterState, throttle: int | None) -> float | None:
    """Seconds for the whole plan; `throttle` in bytes a second for each broker. None where it would never end.

    Without a throttle it is the simulation's assumed rate of a link. Traffic is the plan's, where its simulation is for
    this very throttle: a state that was read once does not know it.
    """
    simulation = plan.simulation or {}
    if simulation.get("seconds") is not None and simulation.get("throttle") == throttle:
        return float(simulation["seconds"])
    directories = Directories(state)
    waves = [
        [work_of(move, state, directories) for move in wave if move.key in state.partitions] for wave in plan.waves()
    ]
    found = seconds(waves, float(throttle or ASSUMED_RATE))
    return found if math.isfinite(found) else None
