"""Small problems of bytes solved to the end: a mixed-integer program for HiGHS, from the extra `plan`.

    x[item, disk] is 1 where a replica lies. An item has the replicas it needs, one a broker at most, one a rack while
    it needs no more than there are racks. A disk's load is in its band, but for what is outside of it, which is made
    least first; then, at that, the bytes moved are.

The solver stops by its count of nodes, never by time, without parallel search and with a fixed seed: the same problem
has the same answer. It is told what the local search found, and can only be better.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.placement.plan.disks import Band, DiskLoads

SOLVER: Final = "highspy"
PLACES_MAX: Final = 600
"""Variables of the largest problem that is solved: some seconds."""
NODES_MAX: Final = 2000
"""Nodes of the search tree; where they do not suffice, the bound that was reached is told."""
LIGHT: Final = 1e-4
"""Of a thousandth of a disk: what a replica counts for at least, so that empty ones are not moved for nothing."""
WHAT_TO_INSTALL: Final = "without HiGHS (pip install 'tidelog[plan]') bytes are planned by local search alone"


@dataclass(frozen=True, slots=True)
class Solved:
    """The placement found, [item] -> disks, and bounds that no placement is below."""

    placed: list[list[int]]
    outside_least: float
    bytes_least: float


def is_installed() -> bool:
    """Whether the extra is there."""
    return importlib.util.find_spec(SOLVER) is not None


def is_small(loads: DiskLoads) -> bool:
    """Whether a problem can be solved to the end."""
    return len(loads.on) * len(loads.disks) <= PLACES_MAX


def solve(
    loads: DiskLoads, bands: Sequence[Band], count_bounds: Sequence[tuple[int, int]] | None, *, inside: bool
) -> Solved | None:
    """The best placement; None where the solver found none within its nodes.

    `inside` says that a placement is known that has all loads in their bands.
    """
    program = _Program(loads, bands, count_bounds)
    if not program.is_possible:
        return None
    outside = (0.0, 0.0) if inside else program.minimize(program.outside)
    if outside is None:
        return None
    program.keep_outside(outside[0])
    moved = program.minimize(program.moved)
    if moved is None:
        return None
    return Solved(program.placed(), outside[1] * program.unit, max(0.0, moved[1] - program.slack) * program.unit)


class _Program:
    def __init__(self, loads: DiskLoads, bands: Sequence[Band], count_bounds: Sequence[tuple[int, int]] | None) -> None:
        self.loads = loads
        self.unit = max(1.0, max((band.high for band in bands), default=1.0) / 1000)
        """Bytes that are 1 in the program: its numbers stay within what solvers like."""
        self.highs = importlib.import_module(SOLVER)
        self.solver: Any = self.highs.Highs()
        for option, value in (
            ("output_flag", False),
            # Not `threads`: HiGHS refuses to run where its process has used another number of them before.
            ("parallel", "off"),
            ("random_seed", 0),
            ("mip_max_nodes", NODES_MAX),
            ("mip_rel_gap", 0.0),
            ("mip_abs_gap", 1e-6),
        ):
            self.solver.setOptionValue(option, value)
        self.x: list[dict[int, Any]] = []
        for item in range(len(loads.on)):
            self.x.append({disk: self.solver.addBinary() for disk in self._allowed(item)})
        self.is_possible = all(
            len({loads.disks[disk].broker for disk in variables}) >= loads.layout.needs[item]
            for item, variables in enumerate(self.x)
        )
        if not self.is_possible:
            return
        self._place_items()
        self._spread()
        if count_bounds is not None:
            self._count(count_bounds)
        beyond = [self.solver.addVariable(lb=0.0) for _ in bands]
        self._fill(bands, beyond)
        self.outside = sum(beyond[1:], beyond[0])
        light = [item for item, weight in enumerate(loads.weights) if weight / self.unit < LIGHT]
        self.slack = LIGHT * sum(loads.layout.needs[item] for item in light)
        """What `moved` may be above the bytes that are moved."""
        self.moved = sum(
            (
                max(LIGHT, loads.weights[item] / self.unit) * variable
                for item, variables in enumerate(self.x)
                for disk, variable in variables.items()
                if loads.cost(item, disk)
            ),
            0 * beyond[0],
        )

    def _allowed(self, item: int) -> list[int]:
        loads, layout = self.loads, self.loads.layout
        return [
            disk
            for disk, place in enumerate(loads.disks)
            if (loads.former[item].get(place.broker) == disk and self._may_stay(item, place.broker))
            or (place.open and (layout.closed[place.broker] is None or place.broker in loads.former[item]))
        ]

    def _may_stay(self, item: int, broker: int) -> bool:
        """Whether a replica may be where it was: on an offline broker only if no stage before has dropped it."""
        layout = self.loads.layout
        return layout.holds[broker] or (not layout.is_drained(broker) and broker in self.loads.on[item])

    def _place_items(self) -> None:
        """Each item has its replicas, one a broker at most."""
        for item, variables in enumerate(self.x):
            self.solver.addConstr(sum(variables.values()) == self.loads.layout.needs[item])
            of_broker: dict[int, list[Any]] = {}
            for disk, variable in variables.items():
                of_broker.setdefault(self.loads.disks[disk].broker, []).append(variable)
            for several in of_broker.values():
                if len(several) > 1:
                    self.solver.addConstr(sum(several) <= 1)
            pin = self.loads.layout.pins.get(item)
            if pin is not None:
                self.solver.addConstr(sum(of_broker.get(pin, [])) >= 1)

    def _spread(self) -> None:
        """At most one a rack, or at least one where there are more replicas than racks."""
        layout = self.loads.layout
        if layout.racks is None:
            return
        live = {layout.racks[broker] for broker in range(len(layout.brokers)) if layout.holds[broker]}
        for item, variables in enumerate(self.x):
            of_rack: dict[int, list[Any]] = {}
            for disk, variable in variables.items():
                of_rack.setdefault(layout.racks[self.loads.disks[disk].broker], []).append(variable)
            for rack, several in of_rack.items():
                if layout.needs[item] <= layout.rack_count:
                    self.solver.addConstr(sum(several) <= 1)
                elif rack in live:
                    self.solver.addConstr(sum(several) >= 1)

    def _count(self, bounds: Sequence[tuple[int, int]]) -> None:
        of_broker: dict[int, list[Any]] = {}
        for variables in self.x:
            for disk, variable in variables.items():
                of_broker.setdefault(self.loads.disks[disk].broker, []).append(variable)
        for broker, several in of_broker.items():
            staying = self.loads.layout.staying[broker]
            self.solver.addConstr(sum(several) >= bounds[broker][0] - staying)
            self.solver.addConstr(sum(several) <= bounds[broker][1] - staying)

    def _fill(self, bands: Sequence[Band], beyond: Sequence[Any]) -> None:
        on_disk: dict[int, list[Any]] = {}
        for item, variables in enumerate(self.x):
            for disk, variable in variables.items():
                on_disk.setdefault(disk, []).append(self.loads.weights[item] / self.unit * variable)
        for disk, band in enumerate(bands):
            load = sum(on_disk.get(disk, []), self.loads.staying_loads[disk] / self.unit + 0 * beyond[disk])
            self.solver.addConstr(load - beyond[disk] <= band.high / self.unit)
            self.solver.addConstr(load + beyond[disk] >= band.low / self.unit)

    def minimize(self, goal: Any) -> tuple[float, float] | None:
        """The least value found and the bound; None where nothing was found."""
        self.solver.minimize(goal)
        if self.solver.getModelStatus() == self.highs.HighsModelStatus.kNotset:
            raise RuntimeError("HiGHS did not run; uninstall highspy to plan by local search alone")
        info = self.solver.getInfo()
        if info.primal_solution_status != self.highs.SolutionStatus.kSolutionStatusFeasible:
            return None
        return info.objective_function_value, info.mip_dual_bound

    def keep_outside(self, value: float) -> None:
        """From now on no more may lie outside of bands."""
        self.solver.addConstr(self.outside <= value + 1e-6)

    def placed(self) -> list[list[int]]:
        """[item] -> disks."""
        return [
            [disk for disk, variable in variables.items() if self.solver.variableValue(variable) > 0.5]
            for variables in self.x
        ]
