"""What retention takes from a leader's log: nothing that is too young or not committed, and no more bytes than its
limit asks for.

A leader is looked at again and again; what has gone from its front since the last time, in the same epoch, was taken by
retention (DeleteRecords has topics of its own). Where clocks jump nothing can be said of ages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sim.invariants import require

if TYPE_CHECKING:
    from sim.checks.log_view import BatchId, LogView
    from tidelog.broker.replicas.replica import Replica


class _Look(NamedTuple):
    """A leader's log at one moment."""

    epoch: int
    end: int
    batches: dict[int, BatchId]
    """[base offset] -> batch"""


class Retention:
    """What retention took from the leaders of some topics."""

    def __init__(self, topics: frozenset[str], *, clocks_jump: bool) -> None:
        """`topics`: those whose records only retention deletes."""
        self._topics = topics
        self._clocks_jump = clocks_jump
        self._looks: dict[tuple[str, str], _Look] = {}

    def check(self, machine: str, replica: Replica, view: LogView, now_ms: int) -> None:
        """`replica` leads on `machine`; `now_ms` is that machine's wall clock."""
        partition, leader = replica.topic_partition, replica.leader
        if partition.topic not in self._topics or leader is None:
            return
        place = (machine, str(partition))
        before = self._looks.get(place)
        now = self._looks[place] = _Look(leader.leader_epoch, view.end, dict(view.by_offset))
        if before is None or before.epoch != now.epoch or now.end < before.end:
            return
        gone = [batch for base, batch in before.batches.items() if base < view.start]
        if not gone:
            return
        config = replica.log.config
        where = f"{partition}: {machine} begins at {view.start}"
        high_watermark = replica.high_watermark
        require(6, view.start <= high_watermark, f"{where}, and is committed to {high_watermark}")
        if config.retention_ms >= 0 and config.retention_bytes < 0 and not self._clocks_jump:
            age_ms = now_ms - max(batch.youngest_ms for batch in gone)
            require(
                6, age_ms > config.retention_ms, f"{where}: records went after {age_ms} of {config.retention_ms} ms"
            )
        if config.retention_bytes >= 0:
            left = sum(batch.size for batch in now.batches.values())
            require(6, left >= config.retention_bytes, f"{where}: {left} bytes are left of {config.retention_bytes}")
