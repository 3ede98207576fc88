"""Trouble with disks: errors, no room, no descriptors, operations that do not return, bits that are others."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Final

from sim.machine import DATA
from sim.plan import FaultKind
from sim.world.disk import Fault, Operation
from tidelog.records.batch import CRC_START, read_header
from tidelog.records.errors import InvalidBatch
from tidelog.storage.file_names import LOG

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from sim.checks.partition_states import PartitionStates
    from sim.cluster import Cluster
    from sim.machine import BrokerMachine
    from sim.plan import Plan
    from sim.world.randomness import SeededRandom
    from tidelog.model.identifiers import TopicPartition

NEED_DESCRIPTORS: Final = frozenset({"open", "create", "fsync_directory", "sync", "list"})
GROW: Final = frozenset({"write", "create", "make_directory"})
HANG_S_MAX: Final = 8.0
ROT_LOOKS: Final = 40
ROT_LOOK_S: Final = 0.25
"""How often a batch is looked for that may rot, and how long a pause there is between two looks."""
ROTS_AT_LEADER_CHANCE: Final = 0.75
"""That the replica which rots is the leader's, from which clients read; else it is any."""
START_LOOK_S: Final = 0.1
START_LOOKS_MAX: Final = 50
"""How often a broker that starts is looked at until its logs are open."""


class DiskTrouble:
    """The kinds of faults that begin in a broker's disk."""

    def __init__(self, cluster: Cluster, plan: Plan, random: SeededRandom) -> None:
        self._cluster = cluster
        self._plan = plan
        self._random = random
        self._rotten: set[TopicPartition] = set()
        """Those of which a replica has rotted."""
        self.handlers: Mapping[FaultKind, Callable[[], Awaitable[None]]] = {
            FaultKind.DISK_ERROR: self._disk_error,
            FaultKind.SHORTAGE: self._shortage,
            FaultKind.DISK_FULL: self._disk_full,
            FaultKind.DISK_HANGS: self._disk_hangs,
            FaultKind.ROT: self._rot,
        }

    def _broker(self) -> BrokerMachine:
        brokers = self._cluster.brokers
        return brokers[self._random.below(len(brokers))]

    async def _rest(self, low: float, high: float) -> None:
        await asyncio.sleep(self._random.between(low, high))

    async def _disk_error(self) -> None:
        """A write or a sync fails: the log directory goes offline, and with the last one the broker stops by itself.

        After a failed sync the page cache is no witness of what the disk holds: that machine is rebooted, or the start
        has to know.
        """
        machine = self._broker()
        sync_fails = self._plan.flushes and self._random.chance(0.5)
        if sync_fails:
            fault = machine.fail_at(1 + self._random.below(30), "fsync", errno.EIO)
        else:
            code = (errno.ENOSPC, errno.EIO)[self._random.below(2)]
            fault = machine.fail_at(1 + self._random.below(30), "write", code)
        with self._cluster.kept_down(machine):
            await self._rest(1, 4)
            if machine.disk.fault is fault:
                machine.disk.fault = None
            elif sync_fails and self._random.chance(0.5):
                machine.power_cut()
        await self.repaired(machine)

    async def repaired(self, machine: BrokerMachine) -> None:
        """An operator starts a broker again whose directory is offline, once the device is well.

        One that just starts may have met the fault as it opened the directory: it is waited for.
        """
        for _ in range(START_LOOKS_MAX):
            if machine.process is None or machine.node is not None:
                break
            await asyncio.sleep(START_LOOK_S)
        node = machine.node
        if node is not None and any(directory.failure is not None for directory in node.logs.directories):
            with self._cluster.kept_down(machine):
                await machine.stop()

    async def _failing(
        self, machine: BrokerMachine, kinds: frozenset[str], codes: tuple[int, ...], seconds: tuple[float, float]
    ) -> None:
        """Operations of some kinds fail for a while, all of them or some."""
        likelihood = (1.0, 0.5, 0.15)[self._random.below(3)]
        code = codes[self._random.below(len(codes))]
        after = self._random.below(20)

        def plan(found: Operation) -> Fault | None:
            nonlocal after
            if found.kind not in kinds or not found.path.startswith(DATA):
                return None
            after -= 1
            if after >= 0 or not self._random.chance(likelihood):
                return None
            self._cluster.trace.record("disk_error", machine.name, found.kind, found.path, code)
            done = self._random.below(found.size) if found.kind == "write" and found.size else 0
            return Fault(OSError(code, os.strerror(code), found.path), done)

        machine.disk.fault = plan
        await self._rest(*seconds)
        if machine.disk.fault is plan:
            machine.disk.fault = None
        await self.repaired(machine)

    async def _shortage(self) -> None:
        codes = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
        await self._failing(self._broker(), NEED_DESCRIPTORS, codes, (0.2, 3.0))

    async def _disk_full(self) -> None:
        await self._failing(self._broker(), GROW, (errno.ENOSPC,), (0.3, 3.0))

    async def _disk_hangs(self) -> None:
        """One operation, or each of a few."""
        machine = self._broker()
        after, count = self._random.below(30), 1 + self._random.below(3)
        seconds = self._random.between(0.3, HANG_S_MAX)

        def slowness(kind: str, path: str) -> float:
            nonlocal after, count
            if not path.startswith(DATA) or count <= 0:
                return 0.0
            after -= 1
            if after >= 0:
                return 0.0
            count -= 1
            self._cluster.trace.record("disk_hangs", machine.name, kind, path, f"{seconds:.3f}")
            return seconds

        machine.disk.slowness = slowness
        await self._rest(1, HANG_S_MAX)
        if machine.disk.slowness is slowness:
            machine.disk.slowness = None

    # Rot.

    async def _rot(self) -> None:
        """A bit below a checksum, in a batch that all others of the ISR have on their platters; one replica of each
        partition in a run. It is waited for until there is such a batch.
        """
        states = self._cluster.states
        if states is None:
            return
        for _ in range(ROT_LOOKS):
            found = [each for partition in states.partitions() for each in self._sound(states, partition)]
            if found:
                self._rot_one(*found[self._random.below(len(found))])
                return
            await asyncio.sleep(ROT_LOOK_S)

    def _sound(
        self, states: PartitionStates, partition: TopicPartition
    ) -> list[tuple[BrokerMachine, TopicPartition, str, int, int]]:
        """Batches of a partition that may rot, in one replica: machine, partition, path, position, size."""
        state, replicas = states.state(partition), states.replicas(partition)
        if partition in self._rotten or not self._can_be_mended(partition, replicas):
            return []
        if state is None or len(state.isr) < max(2, len(replicas)):
            return []
        members = [machine for machine in self._cluster.brokers if machine.broker_id in state.isr]
        held = min(self._flushed(each, partition) for each in members)
        machine = members[self._random.below(len(members))]
        if self._random.chance(ROTS_AT_LEADER_CHANCE):
            machine = next((each for each in members if each.broker_id == state.leader), machine)
        return [(machine, partition, *batch) for batch in self._batches(machine, partition, held)]

    def _can_be_mended(self, partition: TopicPartition, replicas: Sequence[int]) -> bool:
        """A compacted replica is copied anew, out of the ISR, where as many others stay as min.insync.replicas says."""
        compacted = {topic.name for topic in self._cluster.plan.topics if topic.compacted}
        is_compacted = partition.topic in compacted or partition.topic.startswith("__")
        return not is_compacted or len(replicas) > self._cluster.plan.min_insync_replicas

    def _flushed(self, machine: BrokerMachine, partition: TopicPartition) -> int:
        """Up to where a machine's log is on its platter, or below 0."""
        node = machine.node
        replica = None if node is None else node.replicas.get(partition)
        return -1 if replica is None else min(replica.log.flushed_offset, replica.high_watermark)

    def _batches(self, machine: BrokerMachine, partition: TopicPartition, held: int) -> list[tuple[str, int, int]]:
        """Path, position and size of the batches below an offset that are on the platter."""
        if held <= 0:
            return []
        folder = machine.folder_of(partition)
        found: list[tuple[str, int, int]] = []
        for name, file in machine.disk.files(folder, LOG).items():
            content, position = bytes(file.content), 0
            durable = len(file.durable) if file.is_clean else 0
            try:
                while position < durable:
                    header = read_header(content, position)
                    if header.next_offset > held:
                        break
                    found.append((f"{folder}/{name}", position, header.size))
                    position += header.size
            except InvalidBatch:
                pass
        return found

    def _rot_one(self, machine: BrokerMachine, partition: TopicPartition, path: str, position: int, size: int) -> None:
        self._rotten.add(partition)
        self._cluster.checker.excused.add((machine.broker_id, partition))
        byte = position + CRC_START + self._random.below(size - CRC_START)
        offset = read_header(machine.disk.read(path), position).base_offset
        machine.disk.rot(path, byte, 1 << self._random.below(8))
        self._cluster.trace.record("rots", machine.name, path, byte)
        for tell in self._cluster.on_rot:
            tell(partition, offset)
