"""What the product's client believes to be the world: network, time and chance of the simulated process that it is in.

The client opens its connections by its event loop, and asks Python's own modules for time, chance and ids. A process
that runs it has an `Outside`: `VirtualLoop.create_connection` connects over its network, and within `client_world` the
client's modules find modules in the place of Python's that answer for the process in which they are asked.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sim.world.clock import EPOCH_MS
from sim.world.ownership import PROCESS, Outside
from sim.world.process import Process

if TYPE_CHECKING:
    from types import ModuleType

    from sim.world.loop import VirtualLoop
    from sim.world.network import SimulatedNetwork
    from sim.world.randomness import SeededRandom

CLIENT: Final = "tidelog.client."
"""The package whose modules have another world."""


def client_process(name: str, loop: VirtualLoop, network: SimulatedNetwork, random: SeededRandom) -> Process:
    """A process on a machine of its own, for what uses the product's client: `spawn` what it is to do."""
    process = Process(name, loop)
    process.outside = Outside(network.host(name), random)
    return process


class SimulatedTime:
    """Stands for Python's module `time`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    def time_ns(self) -> int:
        return EPOCH_MS * 1_000_000 + int(self._loop.time() * 1e9)


class SimulatedChance:
    """Stands for Python's module `random`."""

    def random(self) -> float:
        return _outside().random.between(0.0, 1.0)

    def getrandbits(self, bits: int) -> int:
        return _outside().random.below(1 << bits)


class SimulatedIds:
    """Stands for Python's module `uuid`."""

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(bytes=_outside().random.token(16), version=4)


def _outside() -> Outside:
    process = PROCESS.get()
    if process is None or process.outside is None:
        raise RuntimeError("the client runs outside of a simulated process")
    return process.outside


@contextlib.contextmanager
def client_world(loop: VirtualLoop) -> Iterator[None]:
    """While it lasts, the client's modules have simulated time, chance and ids."""
    stand_ins: dict[ModuleType, object] = {
        time: SimulatedTime(loop),
        random: SimulatedChance(),
        uuid: SimulatedIds(),
    }
    replaced: list[tuple[dict[str, object], str, ModuleType]] = []
    for name, module in list(sys.modules.items()):
        if not name.startswith(CLIENT):
            continue
        for attribute, value in list(vars(module).items()):
            for own, stand_in in stand_ins.items():
                if value is own:
                    replaced.append((vars(module), attribute, own))
                    vars(module)[attribute] = stand_in
    try:
        yield
    finally:
        for names, attribute, own in replaced:
            names[attribute] = own
