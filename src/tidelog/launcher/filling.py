"""`tidelog start --brokers auto`: how many brokers fill this machine, and why so many.

A broker is one event loop, which keeps one core busy, and a few threads that wait for disks. So there is one for each
core that this process may use. Each needs memory of its own, and as much again for the page cache, from which it serves
consumers: less memory, fewer brokers. Brokers that have data here are always among them, for replicas that nothing
serves are missing from their partitions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tidelog.launcher.machine import Machine
from tidelog.launcher.plan import BROKERS_MAX

REST_MIB: Final = 50
"""What a broker takes that has nothing to do."""
BUSY_MIB: Final = 256
"""What a broker takes at most, a few thousand partitions and connections included: 32 MiB for ordinary requests in
flight, 128 for large ones (queued.max.request.bytes), 64 for answers that are not read."""
MEMORY_A_BROKER_MIB: Final = 2 * BUSY_MIB
"""With as much again for the page cache."""
_BROKER_FOLDER: Final = re.compile(r"broker-(0|[1-9]\d{0,8})")


class NoFilling(Exception):
    """The machine cannot be filled as asked; the text is for the operator."""


@dataclass(frozen=True, slots=True)
class Filling:
    """What fills a machine, and the reasons."""

    brokers: int
    """At least 1."""
    reason: str
    """Why so many."""
    rack: str
    """broker.rack of all of them: they share one machine, so replicas of a partition lie on others where there are."""
    memory: str
    """What they may take of the memory."""


def fill(machine: Machine, held: Collection[int] = (), first_id: int = 0) -> Filling:
    """How many brokers fill the machine; their ids begin with `first_id`.

    `held` are the ids that have data in the folder. NoFilling: some of them are not reached from `first_id`, or there
    are more than BROKERS_MAX.
    """
    lost = sorted(id for id in held if id < first_id)
    if lost:
        raise NoFilling(
            f"the data folder has broker {lost[0]}, which --first-id {first_id} would leave out: "
            f"choose --first-id {lost[0]}, or another folder"
        )
    by_memory = max(1, machine.memory_bytes // (MEMORY_A_BROKER_MIB << 20))
    wanted = max((id - first_id + 1 for id in held), default=0)
    fitting = min(machine.cores, by_memory, BROKERS_MAX)
    if wanted > BROKERS_MAX:
        raise NoFilling(
            f"the data folder has brokers up to {max(held)}: more than {BROKERS_MAX} do not run on one machine"
        )
    if wanted > fitting:
        reason = f"those that have data here; the machine would do for {fitting}"
    elif machine.cores <= min(by_memory, BROKERS_MAX):
        reason = f"one for each core ({machine.cores_bound})"
    elif by_memory <= BROKERS_MAX:
        reason = f"one for each {MEMORY_A_BROKER_MIB} MiB of memory; the cores would do for {machine.cores}"
    else:
        reason = f"the most that are started on one machine; the cores would do for {machine.cores}"
    brokers = max(wanted, fitting)
    memory = (
        f"{machine.memory_bytes >> 20} MiB ({machine.memory_bound}); each broker takes some {REST_MIB} MiB at rest and "
        f"{BUSY_MIB} at most under load, {brokers * BUSY_MIB} in all; the rest caches the logs"
    )
    return Filling(brokers, reason, machine.name, memory)


def brokers_with_data(data: str) -> set[int]:
    """Ids of the brokers that have logs in the folder of a cluster; none where it is not there yet."""
    try:
        names = os.listdir(data)
    except OSError:
        return set()
    matches = [match for name in names if (match := _BROKER_FOLDER.fullmatch(name))]
    return {int(match[1]) for match in matches if os.path.exists(f"{data}/{match[0]}/meta.properties")}
