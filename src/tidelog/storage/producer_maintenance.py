"""Maintenance of logs' producer state beside the loop: writes large snapshots, forgets idle producers.

An entry of `ProducerState` does not change once it is there: it is replaced. So a list of them is a state at one time,
which a thread may encode or judge while the log goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage.producer_limit import LOOK_IN_VAIN_INTERVAL_MS, LOOK_INTERVAL_MS, Choice
from tidelog.storage.tasks import DiskTask, SimpleTask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.model.identifiers import TopicPartition
    from tidelog.storage.log import Log
    from tidelog.storage.log_folder import LogEnvironment


class ProducerMaintenance:
    """Maintains the producer state of all logs of a broker. Owned by the thread that owns the logs."""

    def __init__(self, environment: LogEnvironment, logs: Mapping[TopicPartition, Log]) -> None:
        """`logs` are those of all directories, as they are at any time."""
        self._environment = environment
        self._limit = environment.producer_limit
        self._logs = logs
        self._is_looking = False
        self._look_ms = 0
        """Before which, monotonic, there need not be another look."""

    def next_due_ms(self) -> int | None:
        """Monotonic time at which `tasks` has something to do; None: when something has changed."""
        if self._environment.snapshots:
            return self._environment.clock.monotonic_ms()
        return self._look_ms if self._limit.is_crowded and not self._is_looking else None

    def tasks(self, now_ms: int) -> list[DiskTask]:
        """Writes snapshots that wait, and forgets producers where there are too many, at most once a second."""
        tasks = self._snapshot_tasks()
        if self._limit.is_crowded and now_ms >= self._look_ms and not self._is_looking:
            tasks.append(self.look_task(now_ms))
        return tasks

    def _snapshot_tasks(self) -> list[DiskTask]:
        wanted = list(self._environment.snapshots.values())
        self._environment.snapshots.clear()
        return [make() for make in wanted]

    # Producers that go.

    def look_task(self, now_ms: int) -> DiskTask:
        """Forgets producers that were silent for producer.id.expiration.ms, and others where there are too many."""
        self._is_looking = True
        environment = self._environment
        states = [log.producers for log in self._logs.values() if log.producers.entries]
        wall_ms, expiration_ms = environment.clock.wall_ms(), environment.producer_expiration_ms
        choice = Choice(states, self._limit, now_ms, wall_ms, expiration_ms)

        def finish(error: OSError | None) -> None:
            self._is_looking = False
            forgotten = choice.carry_out([log.producers for log in self._logs.values() if log.producers.entries])
            wait_ms = LOOK_INTERVAL_MS if forgotten else LOOK_IN_VAIN_INTERVAL_MS
            self._look_ms = environment.clock.monotonic_ms() + wait_ms
            for log in self._logs.values():
                if log.producers.verifications:
                    log.producers.expire_verifications(wall_ms, expiration_ms)

        return SimpleTask("forgetting producers", choice.run, finish)
