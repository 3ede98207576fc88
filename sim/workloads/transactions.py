"""Transactional producers while things break; what they commit is read by `committed_reader`.

A producer's process (`transactional_instance.py`) writes, and commits or aborts, one transaction after the other. Now
and then it is replaced by another of the same transactional id in the middle of something; the old one goes on for a
little, as a zombie, and must be refused.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.invariants import require
from sim.workloads.coordination import PAUSE_S
from sim.workloads.transactional_instance import TIMEOUT_MS, AbortNeededError, FencedError, Instance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.checks.transaction_history import TransactionHistory
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.model.identifiers import TopicPartition

REPLACED_CHANCE: Final = 0.08
"""Of a process being replaced, at each step of a transaction."""
STAYS_CHANCE: Final = 0.35
"""Of an application whose process is not replaced: it lives for longer than any transaction may take."""
GIVEN_UP_S_MAX: Final = TIMEOUT_MS / 1000 + 12.0
"""How long a transaction stays open whose application has died, from its first record: its timeout, a second until the
coordinator looks, and what a coordinator that moves takes."""


class ReplacedError(Exception):
    """The process of an instance ends here, and another one begins."""


class TransactionalProducer:
    """An application with a transactional id, one process after the other."""

    def __init__(
        self,
        transactional_id: str,
        partitions: Sequence[TopicPartition],
        source: TopicPartition,
        make_router: Any,
        random: SeededRandom,
        history: TransactionHistory,
        trace: Trace,
        open_transaction: Callable[[int, TopicPartition], int | None],
        leader_of: Callable[[TopicPartition], int | None],
        *,
        newer: bool,
        clocks_jump: bool,
    ) -> None:
        """`source`: what its group consumes. `make_router(name)` gives each process a way to the cluster.
        `open_transaction(producer id, partition)`: where one begins, as the leader has it. `leader_of(partition)`: the
        broker, as the store has it; None where none leads, or there is one only.

        `clocks_jump`: coordinators may take a young transaction for an old one.
        """
        self.transactional_id = transactional_id
        self.group = f"{transactional_id}-group"
        self.partitions = partitions
        self.source = source
        self.make_router = make_router
        self.random = random
        self.history = history
        self.trace = trace
        self.open_transaction = open_transaction
        self.leader_of = leader_of
        self._newer = newer
        self._instance: Instance | None = None
        self._count = 0
        self._instances = 0
        self._zombies: list[asyncio.Task[None]] = []
        self._stays = random.stream("stays").chance(STAYS_CHANCE)
        self._dies = random.stream("dies")
        self._clocks_jump = self.may_be_late = clocks_jump
        """Whether a transaction may be given up at any time, rightly."""
        self.stopping = False
        """Set it, and `run` returns when the transaction under way has ended."""

    async def pause(self) -> None:
        """Between the steps of a transaction; ReplacedError where the process is to end."""
        await asyncio.sleep(self.random.between(0.0, 0.2))
        if self.random.chance(REPLACED_CHANCE) and not self.stopping and not self._stays:
            raise ReplacedError

    async def run(self) -> None:
        while not self.stopping:
            self._instances += 1
            instance = Instance(self, self._instances, is_newer=self._newer)
            try:
                await self._live(instance)
                instance.close()
            except FencedError as error:
                # No other producer has the id: the coordinator gave a transaction up that took too long.
                self.trace.record("fenced", self.transactional_id, repr(error))
                told = f"{self.transactional_id}, instance {instance.number}: {error}, in a transaction that is young"
                require(13, not instance.is_young, told)
                instance.close()
            except AbortNeededError as error:
                self.trace.record("cannot_go_on", self.transactional_id, repr(error))
                instance.close()
            except ReplacedError:
                self._zombies.append(asyncio.ensure_future(self._replace(instance)))
        for zombie in self._zombies:
            await zombie
        # What the last process left open is ended by one more, as by an application that comes up and goes.
        last = Instance(self, self._instances + 1, is_newer=self._newer)
        await last.initialize()
        if self._dies.chance(0.5) and not self._clocks_jump:
            await self._leave_open(last)
        last.close()

    async def _leave_open(self, last: Instance) -> None:
        """The application dies in the middle of a transaction: the coordinator gives that up in time."""
        loop = asyncio.get_running_loop()
        self._count += 1
        try:
            await last.begin(self._count)
        except (FencedError, AbortNeededError) as error:
            self.trace.record("not_left_open", self.transactional_id, repr(error))
            return
        deadline = loop.time() + GIVEN_UP_S_MAX
        while any(self.open_transaction(last.producer_id, partition) is not None for partition in self.partitions):
            told = f"{self.transactional_id}: a transaction of {TIMEOUT_MS} ms is open after {GIVEN_UP_S_MAX:g} s"
            require(17, loop.time() < deadline, told)
            await asyncio.sleep(PAUSE_S)

    async def _live(self, instance: Instance) -> None:
        await instance.initialize()
        while not self.stopping:
            self._count += 1
            await instance.run_transaction(self._count)
            await self.pause()

    async def _replace(self, old: Instance) -> None:
        """Lets the old process haunt once its successor is there."""
        while self.history.newest(self.transactional_id) <= old.number and not self.stopping:  # noqa: ASYNC110
            await asyncio.sleep(PAUSE_S)  # What it looks at is a record of what happened, no event.
        if self.history.newest(self.transactional_id) > old.number:
            await old.haunt()
        else:
            old.close()
