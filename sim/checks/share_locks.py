"""Locks of share groups on the brokers that have given them: each ends when its time is over (invariant 24).

A member cannot tell a lock that does not end from records that other members have; so the locks are looked at where
they are, twice a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.invariants import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sim.machine import BrokerMachine
    from tidelog.broker.sharing.partitions import LedSharePartition

OVERDUE_S_MAX: Final = 1.0


class ShareLocks:
    """Of all brokers."""

    def __init__(self, machines: Sequence[BrokerMachine], now: Callable[[], float], lock_ms: int) -> None:
        """`lock_ms`: how long a lock may hold at most, of records that nothing is renewed of."""
        self._machines = machines
        self._now = now
        self._lock_ms = lock_ms
        self._overdue: dict[tuple[object, ...], float] = {}
        """[machine, its start, share partition, first record, deadline] -> when the lock was first seen to be overdue,
        the machine having run ever since."""

    def check(self) -> None:
        """Now."""
        seen: dict[tuple[object, ...], float] = {}
        for machine in self._machines:
            for led in led_here(machine):
                assert led.machine is not None
                clock_ms = machine.node.clock.monotonic_ms()  # type: ignore[union-attr]  # It leads something.
                for run in led.machine.runs:
                    if not run.is_locked:
                        continue
                    what = f"{led.key} {run.first}-{run.last} on {machine.name}"
                    left_ms = run.deadline_ms - clock_ms
                    require(24, left_ms <= self._lock_ms, f"{what} is locked for another {left_ms} ms")
                    if left_ms < 0:
                        name = (machine.name, machine.generation, led.key, run.first, run.deadline_ms)
                        seen[name] = self._overdue.get(name, self._now())
                        is_late = self._now() - seen[name] >= OVERDUE_S_MAX
                        require(24, not is_late, f"{what} is locked {-left_ms} ms after its time")
        self._overdue = seen


def led_here(machine: BrokerMachine) -> Iterator[LedSharePartition]:
    """The share partitions that a broker leads and has loaded; none while it stands still."""
    node = machine.node
    # Its property would make the part, where no share group has come yet.
    sharing = None if node is None or machine.process is None or not machine.process.runs else node._sharing
    for led in () if sharing is None else sharing.partitions:
        if led.is_current and led.machine is not None:
            yield led
