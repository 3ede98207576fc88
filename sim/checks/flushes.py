"""What brokers take for durable, compared with what a power cut would leave of it.

With flush.messages=1 a record is acknowledged because replicas say that it is flushed, and recovery never reads again
what lies below a recovery point. A loss needs a power cut at the very moment in which either is untrue, on every member
of the ISR; here it shows without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.checks.replicas import replicas_of
from sim.invariants import require
from tidelog.records.batch import read_header
from tidelog.records.errors import InvalidBatch
from tidelog.storage.checkpoints import decode_offsets
from tidelog.storage.errors import CorruptFile
from tidelog.storage.file_names import LOG, RECOVERY_POINT_CHECKPOINT, parse_segment_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.machine import BrokerMachine
    from tidelog.model.identifiers import TopicPartition


def check_flushes(machines: Sequence[BrokerMachine]) -> None:
    """Of all brokers that run and have loaded their logs."""
    for machine in machines:
        if not machine.is_ready or machine.process is None:
            continue
        points = {directory: _recovery_points(machine, directory) for directory in machine.log_dirs}
        for replica in replicas_of(machine):
            if replica.log.is_offline:
                continue
            partition = replica.topic_partition
            start = replica.log.log_start_offset
            written = points.get(replica.log.directory.rpartition("/")[0], {})
            for offset, says in (
                (replica.log.flushed_offset, "says that it has flushed"),
                (written.get(partition, 0), "has the recovery point"),
            ):
                # An empty log may go on with a batch that begins before it: what lies before the start is not read.
                if offset > start:
                    _check(machine, partition, offset, says)


def _recovery_points(machine: BrokerMachine, directory: str) -> Mapping[TopicPartition, int]:
    path = f"{directory}/{RECOVERY_POINT_CHECKPOINT}"
    try:
        return decode_offsets(machine.disk.read(path)) if machine.disk.exists(path) else {}
    except CorruptFile:
        return {}


def _check(machine: BrokerMachine, partition: TopicPartition, offset: int, says: str) -> None:
    """Whether all batches below `offset` are on the platter."""
    for name, file in machine.disk.files(machine.folder_of(partition), LOG).items():
        parsed = parse_segment_file(name)
        if parsed is None or parsed[2] or parsed[0] >= offset or file.is_clean:
            continue
        size, end = 0, int(parsed[0])
        try:
            while end < offset and size < len(file.content):
                header = read_header(file.content, size)
                size, end = size + header.size, header.next_offset
        except InvalidBatch:
            pass
        require(
            1,
            file.content[:size] == file.durable[:size],
            f"{partition}: {machine.name} {says} {offset}, and of {name} a power cut would leave less than {end}",
        )
