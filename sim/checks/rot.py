"""Rot that is left: batches that a reader may ask for, and whose bytes are not what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.records.batch import iterate_headers
from tidelog.storage.file_names import LOG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.machine import BrokerMachine
    from tidelog.model.identifiers import TopicPartition


def rotten_batches(machine: BrokerMachine, partition: TopicPartition) -> Iterator[tuple[str, int]]:
    """File and position of each in the log that a broker has of a partition; below its start they don't matter."""
    replica = None if machine.node is None else machine.node.replicas.get(partition)
    if replica is None:
        return
    log = replica.log
    files = machine.disk.files(log.directory, LOG)
    for name, positions in machine.disk.rotten(log.directory).items():
        for position, header in iterate_headers(bytes(files[name].content)) if name in files else ():
            is_rotten = any(position <= each < position + header.size for each in positions)
            if is_rotten and header.next_offset > log.log_start_offset:
                yield f"{log.directory}/{name}", position
