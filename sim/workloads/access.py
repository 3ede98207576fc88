"""Users with passwords, and ACLs that change while brokers die (invariant 23).

Brokers of such a run have a second listener, by which users log in: alice by PLAIN, bob by SCRAM, whose password comes
and goes. They may do what ACLs of the topic `guarded` and of a group allow (`access_users`). An administrator alters
these (`acl_changes`). Each decision of a broker is compared with what it must know (`checks/access_history.py`); no
record that was refused may ever be read. All other clients come by the first listener, where everything is allowed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sim.checks.access_history import AccessHistory
from sim.secured_brokers import PASSWORDS
from sim.workloads.access_users import User
from sim.workloads.acl_changes import AclChanger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.checks.history import History
    from sim.cluster import Cluster
    from sim.machine import BrokerMachine
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from tidelog.model.identifiers import TopicPartition

LAST_CHANGES: Final = 5
IN_FORCE_S: Final = 1.0
"""After a change was answered, when nothing is broken any more: every broker goes by it."""


class Access:
    """All of it; made for plans that are `secured`."""

    def __init__(
        self,
        make_router: Callable[[str], Router],
        random: SeededRandom,
        cluster: Cluster,
        history: History,
        partitions: Sequence[TopicPartition],
    ) -> None:
        self.history = AccessHistory(cluster.store_history)
        self._cluster = cluster
        cluster.on_start.append(self._starts)
        self._changer = AclChanger(make_router("acl changer"), random.stream("changer"), cluster, self.history)
        self._users = [
            User(name, random.stream(name), cluster, history, self.history, partitions) for name in PASSWORDS
        ]
        self._witnesses = [
            User(name, random.stream(f"witness {name}"), cluster, history, self.history, partitions, label="witness.")
            for name in PASSWORDS
        ]
        """They ask the broker that has answered a change, at once."""
        self._changer.on_changed = self._bear_witness
        self._tasks: list[asyncio.Task[None]] = []

    async def _bear_witness(self, machine: BrokerMachine) -> None:
        for user in self._witnesses:
            await user.ask_all([machine])

    def _starts(self, machine: BrokerMachine) -> None:
        self.history.starts((machine.broker_id, machine.generation + 1))

    @property
    def counts(self) -> dict[str, int]:
        """What happened, for a run's last line."""
        return {
            "ACL changes": self._changer.done,
            "denied": self.history.denied,
            "allowed": self.history.allowed,
            "logins refused": sum(user.refused_logins for user in (*self._users, *self._witnesses)),
        }

    def start(self) -> Sequence[asyncio.Task[None]]:
        """Begins; the topic is there. A task that fails ends the run."""
        works = [self._changer.run(), *(user.run() for user in self._users)]
        self._tasks = [asyncio.ensure_future(work) for work in works]
        return self._tasks

    def calm(self) -> None:
        """The last fault is over: ACLs and users stay as they are."""
        self._changer.stopping = True
        for user in self._users:
            user.stopping = True

    @property
    def has_ended(self) -> bool:
        """Whether all requests have been answered, or given up."""
        return all(task.done() for task in self._tasks)

    async def prove(self) -> None:
        """Changes, after each of which every broker goes by it a second later. All is well again, and at rest."""
        await asyncio.sleep(IN_FORCE_S)
        for _ in range(LAST_CHANGES):
            await self._changer.until_done()
            self.history.will_be_everywhere()
            await asyncio.sleep(IN_FORCE_S)
            self.history.is_everywhere()
            for user in self._users:
                await user.ask_all(self._cluster.brokers)
        for user in (*self._users, *self._witnesses):
            user.close()
        await self._changer.close()
