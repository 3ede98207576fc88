"""What all replicas hold, compared while the cluster runs: looks into the machines, never asks them.

Invariant 4 by a chain: a batch of one epoch at one offset is the same everywhere and follows the same batch, so the
prefixes are the same too. Invariant 5: every member of the true ISR holds the last batch below the high watermark of
any broker that presumes to lead. Invariant 7: one presumed leader for each epoch. 6: bounds within a replica. 8: the
leader counts each member of the true ISR as one that may be in it, or it would commit what that one has not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from sim.checks.log_view import BatchId, LogView
from sim.checks.retention import Retention
from sim.invariants import broken, require
from tidelog.model.identifiers import BrokerId, TopicPartition, format_topic_id
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.storage.errors import InvalidLogFolder
from tidelog.storage.file_names import parse_marked_folder, parse_partition_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.checks.partition_states import PartitionStates
    from sim.machine import BrokerMachine
    from tidelog.broker.replicas.replica import Replica
    from tidelog.metadata.znodes import PartitionState
    from tidelog.storage.log import Log


class Presumption(NamedTuple):
    """A replica that believes that it leads."""

    machine: BrokerMachine
    replica: Replica


class _Committed(NamedTuple):
    """How far a replica knew its log to be committed."""

    replica: Replica
    log: Log
    truncations: int
    high_watermark: int


@dataclass(slots=True)
class _Partition:
    """Of one topic id, over the whole run."""

    chain: dict[tuple[int, int], tuple[BatchId, BatchId | None]] = field(default_factory=dict)
    """[(base offset, epoch)] -> the batch, and the one before it where that is known."""
    leaders: dict[int, int] = field(default_factory=dict)
    """[leader epoch] -> broker"""
    committed: BatchId | None = None
    """The last batch that was ever below a high watermark."""
    starts: dict[str, int] = field(default_factory=dict)
    """[machine] -> where its log began when it ran last."""


class ReplicaChecker:
    """Call `check` as often as you can afford."""

    def __init__(self, machines: Sequence[BrokerMachine], states: PartitionStates | None) -> None:
        """`states` None: there is no store to be asked (a lone broker)."""
        self._machines = machines
        self._states = states
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._views: dict[tuple[str, TopicPartition], LogView] = {}
        self._fresh: set[tuple[str, TopicPartition]] | None = None
        """The views that are as the disks are while a check runs; None between checks."""
        self._controllers: dict[tuple[str, int], int] = {}
        """[(machine, its generation)] -> the newest controller epoch of which its broker has heard."""
        self.excused: set[tuple[int, TopicPartition]] = set()
        """Replicas that lost data within the declared budget, while they are still in the ISR."""
        self.compacted: set[str] = {CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC}
        """Topics whose logs each replica rewrites when it likes: of their batches only the order can be judged."""
        self.shrunk: dict[tuple[str, TopicPartition], int] = {}
        """[(machine, partition)] -> where a log ended when it had become shorter."""
        self.retention: Retention | None = None
        """Set it where retention deletes records."""
        self.lossy: set[str] = set()
        """Topics whose committed records may be lost: unclean elections, losses past the budget."""
        self.deleted_to: Callable[[TopicPartition], int] | None = None
        """Up to where clients were told that a partition's records are deleted."""
        self._committed: dict[tuple[str, TopicPartition], _Committed] = {}

    def view(self, machine: BrokerMachine, partition: TopicPartition) -> LogView:
        """A machine's log of a partition as it is now."""
        return self._refresh(machine, partition)

    def end(self, machine: BrokerMachine, partition: TopicPartition) -> int:
        """The log end of a machine's replica, by its bytes."""
        return self._refresh(machine, partition).end

    def holders(self, partition: TopicPartition, offset: int) -> int:
        """How many machines' logs go beyond an offset, or may have gone beyond it before they were cut."""
        return sum(
            self.end(machine, partition) > offset or (machine.name, partition) in self.shrunk
            for machine in self._machines
        )

    def look_at(self, machine: BrokerMachine) -> None:
        """Sees all that a machine's logs hold; raises InvariantBrokenError."""
        for directory in machine.log_dirs:
            for folder in machine.disk.folders(directory):
                partition = partition_of(folder)
                if partition is not None:
                    self._refresh(machine, partition)

    def check(self) -> None:
        """Raises InvariantBrokenError."""
        self._fresh = set()
        try:
            self._check()
        finally:
            self._fresh = None

    def _check(self) -> None:
        presumed: dict[TopicPartition, list[Presumption]] = {}
        for machine in self._machines:
            self.look_at(machine)
            self._check_controller(machine)
            for replica in replicas_of(machine):
                _check_bounds(machine, replica)
                self._check_high_watermark(machine, replica)
                if replica.leader is not None:
                    presumed.setdefault(replica.topic_partition, []).append(Presumption(machine, replica))
        for partition, leaders in presumed.items():
            for presumption in leaders:
                self._check_leader(partition, presumption)

    def _check_controller(self, machine: BrokerMachine) -> None:
        """No broker listens to a controller that is older than one that it has listened to."""
        node = machine.node
        if node is None:
            return
        known = int(node.metadata.image.controller_epoch)
        newest = self._controllers.setdefault((machine.name, machine.generation), known)
        require(7, known >= newest, f"{machine.name} listens to the controller of epoch {known}, after {newest}")
        self._controllers[machine.name, machine.generation] = known

    def _check_high_watermark(self, machine: BrokerMachine, replica: Replica) -> None:
        """As long as a broker's process lives, a replica's high watermark goes back only when its log is truncated."""
        partition, log = replica.topic_partition, replica.log
        place = (machine.name, partition)
        if log.is_offline or partition.topic in self.lossy or (machine.broker_id, partition) in self.excused:
            self._committed.pop(place, None)
            return
        before = self._committed.get(place)
        now = self._committed[place] = _Committed(replica, log, log.truncations, replica.high_watermark)
        if before is not None and (before.replica, before.log, before.truncations) == (replica, log, now.truncations):
            found = (
                f"{partition}: high watermark {now.high_watermark} on {machine.name}, {before.high_watermark} was known"
            )
            require(6, now.high_watermark >= before.high_watermark, found)

    def joined(self, partition: TopicPartition, state: PartitionState, broker: int, broker_epoch: int | None) -> None:
        """`broker` came into the ISR: its leader must know it as the one that is registered now (KIP-903)."""
        for machine in self._machines:
            if machine.broker_id != state.leader:
                continue
            for replica in replicas_of(machine):
                leader = replica.leader
                if replica.topic_partition == partition and leader and leader.leader_epoch == state.leader_epoch:
                    known = leader.followers.get(BrokerId(broker))
                    require(
                        8,
                        known is not None and broker_epoch in (None, known.broker_epoch),
                        f"{partition}: {broker} joins with epoch {broker_epoch}, its leader knows it by"
                        f" {None if known is None else known.broker_epoch}",
                    )
                    needed = max(leader.high_watermark, leader.start_offset)
                    # What it had fetched may be gone with its power; it comes back as another.
                    registered_at = 0.0 if self._states is None else self._states.registered_at(broker)
                    ends = [
                        self.end(other, partition)
                        for other in self._machines
                        if other.broker_id == broker and other.lost_power_at < registered_at
                    ]
                    require(
                        8,
                        not ends or min(ends) >= needed or partition.topic in self.lossy,
                        f"{partition}: {broker} joins with a log that ends at {ends}, not at {needed} or later",
                    )

    def _refresh(self, machine: BrokerMachine, partition: TopicPartition) -> LogView:
        place = (machine.name, partition)
        view = self._views.get(place)
        if view is not None and self._fresh is not None:
            if place in self._fresh:
                return view
            self._fresh.add(place)
        folder = machine.folder_of(partition)
        if view is None or view.folder != folder:
            view = self._views[place] = LogView(machine.disk, folder)
        end = view.end
        new = view.refresh()
        if view.end < end:
            self.shrunk[place] = view.end
        if new:
            known = self._partition(view.topic_id, partition)
            for previous, batch in new:
                self._link(machine, partition, known, previous, batch)
        return view

    def _partition(self, topic_id: str, partition: TopicPartition) -> _Partition:
        """Of a topic; its name stands for the id that it has not been given yet."""
        return self._partitions.setdefault((topic_id or partition.topic, partition.partition), _Partition())

    def _link(
        self,
        machine: BrokerMachine,
        partition: TopicPartition,
        known: _Partition,
        previous: BatchId | None,
        batch: BatchId,
    ) -> None:
        where = f"{partition} on {machine.name}"
        if partition.topic in self.compacted:
            return
        if previous is not None:
            start = _log_start(machine, partition)
            if start is not None:
                known.starts[machine.name] = start
            if previous.next_offset != batch.base_offset:
                # Segments that were deleted may be back after a power cut, until the broker has looked at them.
                previous = None if start is None or start > previous.base_offset else previous
            elif known.starts.get(machine.name, 0) >= previous.next_offset:
                # A follower goes on where its leader's log begins. What it has before that is compared with nothing, is
                # read by nothing, and goes with the start of its log.
                previous = None
        place = (batch.base_offset, batch.epoch)
        expected, follows = known.chain.setdefault(place, (batch, previous))
        if batch != expected:
            # A leader that lost its power may write in the same epoch again what no other replica has seen.
            holders = [other.name for other in self._machines if self._holds(other, partition, expected)]
            require(4, not holders, f"{where}: {batch}; {holders} have {expected}")
            known.chain[place] = expected, follows = batch, previous
        if previous is None:
            return
        require(3, previous.next_offset <= batch.base_offset, f"{where}: {batch} follows {previous}")
        require(3, previous.epoch <= batch.epoch, f"{where}: {batch} follows {previous}")
        if follows is not None and previous != follows:
            # Lost with its leader's power as well, while the batch itself was sent again and came to the same place.
            holders = [other.name for other in self._machines if self._holds(other, partition, follows)]
            require(4, not holders, f"{where}: {batch} follows {previous}, on {holders} {follows}")
        known.chain[place] = (batch, previous)

    def _holds(self, machine: BrokerMachine, partition: TopicPartition, batch: BatchId) -> bool:
        return self._refresh(machine, partition).by_offset.get(batch.base_offset) == batch

    def _check_leader(self, partition: TopicPartition, presumption: Presumption) -> None:
        machine, replica = presumption
        leader = replica.leader
        assert leader is not None
        view = self._refresh(machine, partition)
        if self.retention is not None:
            self.retention.check(machine.name, replica, view, machine.clock.wall_ms())
        topic_id = view.topic_id
        known = self._partition(topic_id, partition)
        where = f"{partition}: {machine.name} presumes to lead in epoch {leader.leader_epoch}"
        former = None if self._states is None else self._states.elected_for_a_former_life.get(partition)
        require(
            9,
            former != (machine.broker_id, leader.leader_epoch),
            f"{where}, for which it was elected before it died, while others of the ISR stayed",
        )
        holder = known.leaders.setdefault(leader.leader_epoch, machine.broker_id)
        require(7, holder == machine.broker_id, f"{where}, as does broker {holder}")
        states = self._states
        state = None if states is None else states.state(partition)
        if states is None or state is None or format_topic_id(states.topic_id(partition.topic)) != topic_id:
            return
        leads = (state.leader, state.leader_epoch) == (machine.broker_id, leader.leader_epoch)
        if leads:
            counted = leader.maximal_isr
            found = f"{where}, waits for {counted} before it commits anything, and the ISR is {state.isr}"
            require(8, set(state.isr) <= set(counted), found)
        if partition.topic in self.lossy or partition.topic in self.compacted:
            return
        if states.is_being_deleted(partition.topic):
            return  # The last member stays in the ISR, and its log may have gone before the leader's has.
        last = _last_below(view, leader.high_watermark)
        if last is None:
            return
        for member in self._machines:
            if member.broker_id in state.isr and (member.broker_id, partition) not in self.excused:
                held = self._refresh(member, partition)
                there = held.by_offset.get(last.base_offset)
                if last.base_offset >= held.start and there != last:
                    broken(
                        5,
                        f"{where}, with {last} below its high watermark {leader.high_watermark}; {member.name}, in the"
                        f" ISR {state.isr}, has {there} there, and ends at {held.end}",
                    )
        if known.committed is None or last.base_offset > known.committed.base_offset:
            known.committed = last
        if leads:
            start = replica.log.log_start_offset
            deleted_to = 0 if self.deleted_to is None else self.deleted_to(partition)
            told = f"{where}, and begins at {start}: all before {deleted_to} was said to be deleted"
            require(6, start >= deleted_to or replica.log.is_offline, told)
            committed = known.committed
            if committed.base_offset >= view.start and view.by_offset.get(committed.base_offset) != committed:
                broken(1, f"{where}, without {committed}, which was committed")


@lru_cache(maxsize=4096)
def partition_of(folder: str) -> TopicPartition | None:
    """Whose folder that is; None for one that is marked as deleted or stray."""
    if parse_marked_folder(folder) is not None:
        return None
    try:
        return parse_partition_folder(folder)
    except InvalidLogFolder:
        return None


def replicas_of(machine: BrokerMachine) -> list[Replica]:
    """What the broker on a machine holds; nothing where none runs, or before it has its logs."""
    process = machine.process
    if process is None or machine.node is None:
        return []
    return list(machine.node.replicas)


def replica_of(machine: BrokerMachine, partition: TopicPartition) -> Replica | None:
    """The same of one partition."""
    node = machine.node
    return None if node is None else node.replicas.get(partition)


def _log_start(machine: BrokerMachine, partition: TopicPartition) -> int | None:
    """Where a running broker says that its log begins; None where none says anything."""
    node = machine.node if machine.is_ready else None
    replica = None if node is None else node.replicas.get(partition)
    return None if replica is None else int(replica.log.log_start_offset)


def _check_bounds(machine: BrokerMachine, replica: Replica) -> None:
    log = replica.log
    if log.is_offline:
        return  # It serves nothing, and may have stopped in the middle of a change; a start reads its files.
    bounds = (log.log_start_offset, replica.last_stable_offset, replica.high_watermark, log.log_end_offset)
    if not bounds[0] <= bounds[1] <= bounds[2] <= bounds[3]:
        broken(6, f"{replica.topic_partition} on {machine.name}: start, stable, high watermark, end are {bounds}")


def _last_below(view: LogView, offset: int) -> BatchId | None:
    """The last batch that ends at or below an offset."""
    last: BatchId | None = None
    for batch in view.newest_first():
        if batch.next_offset <= offset:
            last = batch
            break
    return last
