"""What a coordinator answers must be committed: another leader may know nothing of what is only appended (15).

An offset that is told too early is taken back only where its coordinator dies just then. Here it shows as long as
followers are behind: what was told stands in the part of the log that is not committed, and nowhere below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sim.checks.live_logs import undisturbed
from sim.checks.log_checks import read_batches
from sim.invariants import require
from tidelog.coordinator.records import decode_record
from tidelog.model.identifiers import TopicPartition
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC
from tidelog.protocol.messages import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.checks.log_checks import Batch
    from sim.machine import BrokerMachine
    from tidelog.broker.replicas.replica import Replica
    from tidelog.replication.leader import PartitionLeader


class _Reign(NamedTuple):
    """A broker that leads a group's partition; equal as long as it does so without a break."""

    replica: Replica
    leader: PartitionLeader
    generation: int
    """Of the broker's process."""


class CommittedAnswers:
    """About the offsets of one group; `reign` before a question, `check` when it is answered."""

    def __init__(self, machines: Sequence[BrokerMachine], group: str, coordinated_by: TopicPartition) -> None:
        """`coordinated_by`: the group's partition of `__consumer_offsets`."""
        self._machines = {machine.broker_id: machine for machine in machines}
        self._group = group
        self._coordinated_by = coordinated_by

    def reign(self, broker: int) -> _Reign | None:
        """How the broker leads the group's partition now; None where it does not."""
        machine = self._machines.get(broker)
        node = None if machine is None or not machine.is_ready else machine.node
        replica = None if node is None else node.replicas.get(self._coordinated_by)
        if machine is None or replica is None or replica.leader is None or replica.log.is_offline:
            return None
        return _Reign(replica, replica.leader, machine.generation)

    def check(self, broker: int, before: _Reign | None, found: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """What `broker` has answered, offsets and notes, and how it led when it was asked."""
        if before is None or before != self.reign(broker):
            return
        log, committed = before.replica.log, before.replica.high_watermark
        if committed >= log.log_end_offset:
            return
        with undisturbed(self._machines[broker].disk):
            told = found.items() & self._commits(read_batches(log, committed))
            if told:
                told -= self._commits(read_batches(log, end=committed))
        require(15, not told, f"{self._group}: {broker} tells {sorted(told)}, which is appended, and not committed")

    def _commits(self, batches: Sequence[Batch]) -> set[tuple[TopicPartition, tuple[int, str]]]:
        """Offsets and notes that the group's commits in these batches have."""
        found = set()
        records = [record for batch in batches if not batch.header.is_control for record in batch.records]
        for record in records:
            key, value, *_ = decode_record(CONSUMER_OFFSETS_TOPIC, record.key, record.value)
            if isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue) and key.group == self._group:
                found.add((TopicPartition(key.topic, key.partition), (value.offset, value.metadata)))
        return found
