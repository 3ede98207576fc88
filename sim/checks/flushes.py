"""What brokers take for durable, compared with what a power cut would leave of it.

With flush.messages=1 a record is acknowledged because replicas say that it is flushed, and recovery never reads again
what lies below a recovery point. A loss needs a power cut at the very moment in which either is untrue, on every member
of the ISR; here it shows without one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from sim.checks.log_view import segment_files
from sim.checks.replicas import replicas_of
from sim.invariants import broken, require
from tidelog.records.batch import read_header
from tidelog.records.errors import InvalidBatch
from tidelog.replication.follower import Phase
from tidelog.storage.checkpoints import decode_offsets
from tidelog.storage.errors import CorruptFile
from tidelog.storage.file_names import LOG, RECOVERY_POINT_CHECKPOINT, SEGMENT_SUFFIXES, segment_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.machine import BrokerMachine
    from sim.world.disk import SimulatedDisk
    from tidelog.broker.replicas.replica import Replica
    from tidelog.model.identifiers import TopicPartition
    from tidelog.storage.log import Log


class _Reading(NamedTuple):
    """How far a file was read, when a broker had flushed it up to some offset."""

    state: tuple[object, int]
    size: int
    end: int
    """The offset behind the batch that ends at `size`."""


class FlushChecks:
    """`check` again and again."""

    def __init__(self, machines: Sequence[BrokerMachine]) -> None:
        self._machines = machines
        self._readings: dict[tuple[str, TopicPartition, int], _Reading] = {}
        """[(machine, partition, base offset)]: what has been flushed is not read again."""

    def check(self) -> None:
        """Of all brokers that run and have loaded their logs."""
        for machine in self._machines:
            if not machine.is_ready or machine.process is None:
                continue
            points = {directory: _recovery_points(machine, directory) for directory in machine.log_dirs}
            for replica in replicas_of(machine):
                if replica.log.is_offline:
                    continue
                _check_reported(machine, replica)
                partition = replica.topic_partition
                start = replica.log.log_start_offset
                written = points.get(replica.log.directory.rpartition("/")[0], {}).get(partition, 0)
                check_indexes_durable(machine.disk, replica.log, written)
                for offset, says in (
                    (written, "has the recovery point"),
                    (replica.log.flushed_offset, "says that it has flushed"),
                ):
                    # An empty log may go on with a batch that begins before it: what lies before the start is not read.
                    if offset > start:
                        self._check(machine, partition, offset, says)

    def _check(self, machine: BrokerMachine, partition: TopicPartition, offset: int, says: str) -> None:
        """Whether all batches below `offset` are on the platter."""
        for base_offset, file in segment_files(machine.disk.files(machine.folder_of(partition), LOG)):
            if base_offset >= offset or file.is_clean:
                continue
            place = (machine.name, partition, base_offset)
            size, end = 0, base_offset
            known = self._readings.get(place)
            if known is not None and known.state == file.state and known.end <= offset:
                _, size, end = known
            content = file.content
            try:
                while end < offset and size < len(content):
                    header = read_header(content, size)
                    size, end = size + header.size, header.next_offset
            except InvalidBatch:
                pass
            self._readings[place] = _Reading(file.state, size, end)
            if content[:size] != file.durable[:size]:
                name = segment_file(base_offset, LOG)
                broken(
                    1,
                    f"{partition}: {machine.name} {says} {offset}, and of {name} a power cut would leave less than"
                    f" {end}",
                )


def _check_reported(machine: BrokerMachine, replica: Replica) -> None:
    """Whether a leader, or a follower, counts no more as flushed than its log does: acks=all goes by what it counts."""
    log, node = replica.log, machine.node
    if log.truncation_is_pending or node is None:
        return
    counted = [] if replica.leader is None else [("leader", replica.leader.flushed_end)]
    followed = node.fetcher_manager.get(replica.topic_partition)
    if followed is not None and followed.replica is replica and followed.follower.phase is not Phase.TRUNCATING:
        counted.append(("follower", followed.follower.flushed_end))
    # A log that begins anew at its end has nothing to flush.
    flushed = max(log.flushed_offset, log.log_start_offset)
    for role, end in counted:
        found = f"{replica.topic_partition}: {machine.name}, a {role}, counts {end} as flushed, its log {flushed}"
        require(1, end <= flushed, found)


def check_indexes_durable(disk: SimulatedDisk, log: Log, written: int = 0) -> None:
    """Whether the indexes of closed segments below a log's recovery point, and the `written` one, are on the platter.

    A start reads none of these segments again: an entry that a power cut takes is missing for ever. An offset index
    without it is slower to use; an index of aborted transactions without it shows aborted records as committed ones.
    """
    if log.is_offline or log.truncation_is_pending:
        return
    point, folder = max(log.recovery_point, written), log.directory
    closed = [each.base_offset for each, after in pairwise(log.segments) if after.base_offset <= point]
    for suffix in SEGMENT_SUFFIXES:
        if suffix != LOG and closed:
            files = disk.files(folder, suffix)
            for base_offset in closed:
                name = segment_file(base_offset, suffix)
                is_durable = name not in files or files[name].is_clean
                require(1, is_durable, f"{folder}: the recovery point is {point}, and {name} waits for a sync")


def _recovery_points(machine: BrokerMachine, directory: str) -> Mapping[TopicPartition, int]:
    path = f"{directory}/{RECOVERY_POINT_CHECKPOINT}"
    try:
        return decode_offsets(machine.disk.read(path)) if machine.disk.exists(path) else {}
    except CorruptFile:
        return {}
