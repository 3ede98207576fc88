"""The leader of one partition: what it knows about the in-sync replicas, and the high watermark that follows.

The high watermark is the smallest log end among the in-sync replicas and never goes back. What a replica reports as
its log end is, with flush.messages=1, the flushed end: a record counts as held by a replica when it is on its device.

    Appended ----> log end ----+                          +--> HighWatermarkAdvanced
                               +--> reported log end -----+
    Flushed -----> flushed end +    min over the ISR      +--> FlushWanted
"""

from __future__ import annotations

from typing import assert_never

from tidelog.model.identifiers import BrokerId, LeaderEpoch, Offset, PartitionEpoch
from tidelog.replication.events import (
    Appended,
    Effect,
    Event,
    Flushed,
    FlushPolicyChanged,
    FlushWanted,
    HighWatermarkAdvanced,
    IsrCommitted,
)


class PartitionLeader:
    """State of one leadership; a new leader epoch makes a new one."""

    __slots__ = (
        "_flush_under_way",
        "broker_id",
        "flush_before_acknowledge",
        "flushed_end",
        "high_watermark",
        "isr",
        "leader_epoch",
        "log_end",
        "partition_epoch",
        "start_offset",
    )

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        isr: tuple[BrokerId, ...],
        log_end: Offset,
        flushed_end: Offset,
        high_watermark: Offset,
        flush_before_acknowledge: bool,
    ) -> None:
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.isr = isr
        """In-sync replicas as the controller last committed them; this broker is one of them."""
        self.start_offset = log_end
        """Where this epoch begins: a follower must reach it to join the ISR."""
        self.log_end = log_end
        self.flushed_end = flushed_end
        """Everything below is on the device; at most the log end."""
        self.high_watermark = high_watermark
        """Everything below is committed. What is known at the election: the checkpoint, or the log start."""
        self.flush_before_acknowledge = flush_before_acknowledge
        self._flush_under_way = False

    @property
    def reported_log_end(self) -> Offset:
        """The log end that counts for the high watermark."""
        return self.flushed_end if self.flush_before_acknowledge else self.log_end

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """Takes an event in; the effects are to be carried out in order. `now_ms` is monotonic."""
        match event:
            case Appended(log_end):
                self.log_end = log_end
                return self._follow()
            case Flushed(flushed_end):
                self._flush_under_way = False
                self.flushed_end = max(self.flushed_end, flushed_end)
                return self._follow()
            case FlushPolicyChanged(flush_before_acknowledge):
                self.flush_before_acknowledge = flush_before_acknowledge
                return self._follow()
            case IsrCommitted(isr, partition_epoch):
                if partition_epoch > self.partition_epoch:
                    self.isr, self.partition_epoch = isr, partition_epoch
                return self._follow()
            case _:
                assert_never(event)

    def begin(self) -> list[Effect]:
        """What follows from the election itself: a sole in-sync replica has all its log committed."""
        return self._follow()

    def _follow(self) -> list[Effect]:
        effects: list[Effect] = []
        if self.flush_before_acknowledge and self.flushed_end < self.log_end and not self._flush_under_way:
            self._flush_under_way = True
            effects.append(FlushWanted(self.leader_epoch))
        if len(self.isr) == 1:
            committed = self.reported_log_end
            if committed > self.high_watermark:
                self.high_watermark = committed
                effects.append(HighWatermarkAdvanced(committed))
        return effects
