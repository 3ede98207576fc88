"""Logs of running brokers against a full scan of themselves: what a broker remembers must be what its bytes say.

A mistake in memory (an epoch, a producer's sequence, an index entry, an open transaction) is often gone after the next
start, which rebuilds it; it could not be seen in the end. One log is looked at at a time: a scan costs something.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sim.checks.log_checks import check_log
from sim.checks.replicas import replicas_of
from sim.invariants import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sim.checks.log_checks import Batch
    from sim.checks.replicas import ReplicaChecker
    from sim.machine import BrokerMachine
    from sim.world.disk import SimulatedDisk
    from sim.world.randomness import SeededRandom
    from tidelog.broker.replicas.replica import Replica
    from tidelog.storage.log import Log


class LiveLogs:
    """See the module."""

    def __init__(self, machines: Sequence[BrokerMachine], checker: ReplicaChecker, random: SeededRandom) -> None:
        self._machines = machines
        self._checker = checker
        self._random = random
        self.checked = 0

    def check(self) -> None:
        """Looks at one log of some broker, and at one that was cut and has grown since: what a cut forgets to take back
        is in the way now.
        """
        machine = self._machines[self._random.below(len(self._machines))]
        replicas = replicas_of(machine) if machine.is_ready else []
        if replicas:
            self._check(machine, replicas[self._random.below(len(replicas))])
        for (name, partition), end in list(self._checker.shrunk.items()):
            machine = next(each for each in self._machines if each.name == name)
            replica = machine.node.replicas.get(partition) if machine.is_ready and machine.node is not None else None
            if replica is None or self._checker.end(machine, partition) <= end:
                continue
            if self._check(machine, replica):
                del self._checker.shrunk[name, partition]
                break

    def _check(self, machine: BrokerMachine, replica: Replica) -> bool:
        """False where nothing can be said: its directory has failed, or it is just being cut."""
        log = replica.log
        is_whole = not (log.is_offline or log.folder.is_deleted or log.truncation_is_pending or log.producers.is_behind)
        if not is_whole or (machine.broker_id, replica.topic_partition) in self._checker.excused:
            return False
        with undisturbed(machine.disk):
            batches = check_log(log)
        check_stable(log, batches)
        self.checked += 1
        return True


def check_stable(log: Log, batches: Sequence[Batch]) -> None:
    """Invariant 10: a transaction is undecided for readers until its marker is committed."""
    begun: dict[int, int] = {}
    for header, _, _ in batches:
        if header.is_control:
            first = begun.pop(header.producer_id, None)
            if first is not None and header.base_offset >= log.high_watermark:
                told = f"{log}: stable is {log.last_stable_offset}, the marker at {header.base_offset} is not committed"
                require(10, log.last_stable_offset <= max(first, log.log_start_offset), told)
        elif header.is_transactional:
            begun.setdefault(header.producer_id, header.base_offset)


@contextmanager
def undisturbed(disk: SimulatedDisk) -> Iterator[None]:
    """Nothing that is to go wrong with the disk does so while the simulator itself reads it."""
    fault, slowness = disk.fault, disk.slowness
    disk.fault = disk.slowness = None
    try:
        yield
    finally:
        disk.fault, disk.slowness = fault, slowness
