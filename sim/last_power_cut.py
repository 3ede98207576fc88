"""The end of some runs without flush: all brokers lose their power under load, with what was not synced.

What no disk has kept is lost, as declared. What a member of the ISR has kept is there again once all are back
(invariant 25), whichever is back first: elections wait for the others (`isr.return.wait.ms`). Nothing else that clients
were told is promised any more, so all of them end with the power, and the run ends with this check.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from sim.checks.replicas import replicas_of
from sim.invariants import require
from sim.waiting import until
from tidelog.storage.file_names import LOG, segment_file

if TYPE_CHECKING:
    from sim.checks.log_view import BatchId, LogView
    from sim.cluster import Cluster
    from sim.machine import BrokerMachine
    from sim.world.randomness import SeededRandom
    from tidelog.model.identifiers import TopicPartition

WRITTEN_BACK_CHANCE: Final = 0.25
"""Of each replica's active segment, in each of some moments before the cut: so that replicas keep different parts."""
MOMENTS: Final = 3
AWAY_S_MAX: Final = 8.0
"""How much later than the first a machine is back."""
SESSIONS_END_S_MAX: Final = 30.0


class Kept(NamedTuple):
    """What a power cut has left of a replica, whole and sound from its start on."""

    machine: BrokerMachine
    batches: list[BatchId]

    @property
    def extent(self) -> tuple[int, int]:
        """Epoch of the last batch and its end: logs of members of one ISR compare by it."""
        return (self.batches[-1].epoch, self.batches[-1].next_offset) if self.batches else (-1, -1)


class LastPowerCut:
    """See the module."""

    def __init__(self, cluster: Cluster, random: SeededRandom) -> None:
        self._cluster = cluster
        self._random = random

    async def write_back(self) -> None:
        """The last seconds before the cut: operating systems write back some pages, each its own."""
        for _ in range(MOMENTS):
            await asyncio.sleep(self._random.between(0.1, 1.0))
            for machine in self._cluster.brokers:
                for replica in replicas_of(machine):
                    if self._random.chance(WRITTEN_BACK_CHANCE) and not replica.log.is_offline:
                        log = replica.log
                        machine.disk.write_back(f"{log.directory}/{segment_file(log.active.base_offset, LOG)}")

    def strike(self) -> dict[TopicPartition, Kept]:
        """Takes the power from all brokers; of each partition, what the member of its ISR has kept that has most.

        Topics that may lose records by unclean elections are left out, and compacted ones, whose replicas differ; and
        the records below the log start of any member: retention has let them go, though the renames of their files
        reach each disk in any order, some never.
        """
        states, checker = self._cluster.states, self._cluster.checker
        assert states is not None
        isrs = {
            partition: state.isr
            for partition in states.partitions()
            if partition.topic not in checker.lossy | checker.compacted
            and (state := states.state(partition)) is not None
            and not states.is_being_deleted(partition.topic)
        }
        members_of = {
            partition: [machine for machine in self._cluster.brokers if machine.broker_id in isr]
            for partition, isr in isrs.items()
        }
        starts = {
            partition: max(checker.view(machine, partition).start for machine in members)
            for partition, members in members_of.items()
        }
        for machine in self._cluster.brokers:
            machine.power_cut()
        kept = {}
        for partition, members in members_of.items():
            of_members = [Kept(machine, checker.view(machine, partition).whole_part()) for machine in members]
            source, batches = max(of_members, key=lambda each: each.extent)
            kept[partition] = Kept(source, [each for each in batches if each.next_offset > starts[partition]])
            checker.excused |= {(machine.broker_id, partition) for machine in members}
        return kept

    async def bring_back(self, kept: dict[TopicPartition, Kept]) -> None:
        """Lets the machines come back, one after the other, and looks for what was kept.

        Every other time their sessions end first, as machines take longer to boot; else the first one is back while the
        others still seem to live.
        """
        with ExitStack() as stack:
            holds = {machine.name: stack.enter_context(ExitStack()) for machine in self._cluster.brokers}
            for machine in self._cluster.brokers:
                holds[machine.name].enter_context(self._cluster.kept_down(machine))
            if self._random.chance(0.5):
                await until(
                    lambda: not any(map(self._cluster.session_of, self._cluster.brokers)),
                    lambda: "sessions outlive a power cut of all",
                    seconds=SESSIONS_END_S_MAX,
                )
            delays = [(self._random.between(0.0, AWAY_S_MAX), machine.name) for machine in self._cluster.brokers]
            passed = 0.0
            for delay, name in sorted(delays):
                await asyncio.sleep(delay - passed)
                passed = delay
                holds[name].close()
        await until(
            lambda: self._cluster.all_serve and not self._leaderless(kept),
            lambda: f"after a power cut of all no broker leads {self._leaderless(kept)}",
        )
        for partition, (source, batches) in kept.items():
            leader = self._cluster.leader(partition)
            assert leader is not None
            view = self._cluster.checker.view(leader, partition)
            missing = [each for each in batches if each.base_offset >= view.start and not _has(view, each)]
            require(
                25,
                not missing,
                f"{partition}: {leader.name} leads, and lacks {missing[:1]}, which {source.name} had kept on its disk",
            )

    def _leaderless(self, kept: dict[TopicPartition, Kept]) -> list[TopicPartition]:
        return [partition for partition in kept if self._cluster.leader(partition) is None]


def _has(view: LogView, batch: BatchId) -> bool:
    return view.by_offset.get(batch.base_offset) == batch
