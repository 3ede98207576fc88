"""One run: a cluster, clients, and what a seed does to them, until every invariant is checked or one is broken."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TextIO

from sim.plan import draw
from sim.scenarios.compaction import compact_beside
from sim.scenarios.offsets import OffsetsWalk
from sim.scenarios.walk import LogWalk
from sim.simulation import NothingPromisedError, Simulation
from sim.world.clients import client_world
from sim.world.cycles import cycles_left
from sim.world.loop import VirtualLoop
from sim.world.randomness import SeededRandom
from sim.world.threads import cooperative_locks
from sim.world.trace import Trace

if TYPE_CHECKING:
    from sim.plan import FaultKind
    from sim.simulation import Outcome


class RunFailedError(AssertionError):
    """A run broke an invariant or stood still. The message ends with the command that replays it."""


def run(
    seed: int,
    seconds: float,
    *,
    brokers: int | None = None,
    faults: tuple[FaultKind, ...] = (),
    log_dirs: int | None = None,
    clients: bool = False,
    shares: bool = False,
    trace_file: TextIO | None = None,
) -> Outcome:
    """Simulates `seconds` of load and faults, and the healing afterwards; `faults` are some that it has in any case.

    With `clients` the product's own client takes part, with `shares` a share group and no other application.
    """
    loop = VirtualLoop(SeededRandom(seed, "loop"))
    trace = Trace(loop.time, trace_file)
    random = SeededRandom(seed, "run")
    plan = draw(
        random.stream("plan"), brokers=brokers, wished=faults, log_dirs=log_dirs, clients=clients, shares=shares
    )
    simulation = Simulation(seed, seconds, plan, loop, random, trace)
    asyncio.set_event_loop(None)
    try:
        LogWalk(seed).run()
        compact_beside(seed)
        OffsetsWalk(seed).run()
        over = contextlib.suppress(NothingPromisedError)
        with over, simulation.complaints, cooperative_locks(), client_world(loop), cycles_left():
            loop.run_until_complete(simulation.main())
        simulation.check_errors()
        return simulation.outcome()
    except Exception as error:
        last = "\n".join(list(trace.lines)[-40:])
        command = f"python -m sim --seed {seed} --seconds {seconds:g}"
        if brokers is not None:
            command += f" --brokers {brokers}"
        command += "".join(f" --fault {kind.name}" for kind in faults)
        if log_dirs is not None:
            command += f" --log-dirs {log_dirs}"
        if clients:
            command += " --clients"
        if shares:
            command += " --shares"
        raise RunFailedError(
            f"{last}\nplan: {simulation.plan}\n{type(error).__name__}: {error}\nreplay: {command}"
        ) from error
    finally:
        simulation.close()
        loop.close()
