"""`tidelog consume --share GROUP`: records taken from a share group, printed, and accepted once they are printed."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Final

from tidelog.cli.consumption import CLOSE_S_MAX, Plan, Printer, until_told
from tidelog.cli.output import warn
from tidelog.cli.security import command_security
from tidelog.client.admin import ShareOffset, describe_share_group_offsets
from tidelog.client.cluster import Cluster
from tidelog.client.consumed import ConsumedRecord
from tidelog.client.errors import ClientError
from tidelog.client.offsets import OffsetFound, list_offsets
from tidelog.client.share_consumer import (
    AcknowledgementMode,
    AcknowledgeResult,
    ShareConsumer,
    ShareConsumerSettings,
    SharedBatch,
)
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

QUIET_S: Final = 2.0
"""Without --follow a run asks whether records are left for the group when none came for so long. It ends when there are
none, or when none came within --timeout: another member may hold them."""
ASKING_S_MAX: Final = 5.0
"""How long one question about that may take; it is asked again."""


class ShareConsumption:
    """One run as a member of a share group; what it has not printed when it ends is given back."""

    def __init__(self, plan: Plan, group: str) -> None:
        self._plan = plan
        self._group = group
        self.printer = Printer(plan)

    async def run(self, bootstrap: str, timeout_s: float) -> int:
        """Prints until nothing is left, the count or until told to end; how many records it printed."""
        async with Cluster(
            bootstrap,
            client_id="tidelog-consume",
            operation_timeout_s=timeout_s,
            call_timeout_s=timeout_s,
            fail_fast=True,
            security=command_security(),
        ) as cluster:
            await cluster.run(cluster.routing.require_topics(self._plan.topics, cluster.routing.deadline()))
            cluster.routing.fail_fast = False
            settings = ShareConsumerSettings(
                acknowledgement_mode=AcknowledgementMode.EXPLICIT,
                rack=self._plan.rack or None,
                close_timeout_s=CLOSE_S_MAX,
            )
            async with ShareConsumer(cluster, self._group, settings, on_acknowledged=_warn_of_refused) as consumer:
                consumer.subscribe(self._plan.topics)
                if self._plan.follow:
                    await until_told(self._print(consumer))
                else:
                    await self._print_what_is_left(cluster, consumer, timeout_s)
        return self.printer.count

    async def _print(self, consumer: ShareConsumer) -> None:
        while not self.printer.enough:
            batch = await consumer.poll()
            assert batch is not None
            await self._print_batch(consumer, batch)

    async def _print_what_is_left(self, cluster: Cluster, consumer: ShareConsumer, timeout_s: float) -> None:
        """Until nothing is left for the group in the partitions of this member, or none came for `timeout_s`."""
        give_up_at = time.monotonic() + timeout_s
        while not self.printer.enough:
            batch = await consumer.poll(QUIET_S)
            if batch is not None:
                await self._print_batch(consumer, batch)
                give_up_at = time.monotonic() + timeout_s
                continue
            if consumer.assignment and not await _is_left(cluster, self._group, consumer.assignment, timeout_s):
                return
            if time.monotonic() >= give_up_at:
                none = "the group has given this member no partition"
                behind = "or the group begins behind them (share.auto.offset.reset)"
                reason = f"others may hold the records that are left, {behind}" if consumer.assignment else none
                warn(f"share group '{self._group}' gave nothing for {timeout_s:g} s: {reason}")
                return

    async def _print_batch(self, consumer: ShareConsumer, batch: SharedBatch) -> None:
        """Accepts what was printed, also where the count ends within the batch."""
        printed = 0

        def taken(offset: int) -> None:
            nonlocal printed
            printed = offset

        try:
            await self.printer.print_beside((ConsumedRecord(*record[:8]) for record in batch), taken)
        finally:
            consumer.acknowledge(record for record in batch if record.offset < printed)


async def _is_left(cluster: Cluster, group: str, partitions: Collection[TopicPartition], timeout_s: float) -> bool:
    """Whether there are records that the group is not done with, held by a member or not. Where that may be
    told later, True; where it is not told to us, or by such brokers, False.

    Where the group has not begun in a partition that has records, they may be its own: the partition is being loaded.
    """
    deadline_s = min(timeout_s, ASKING_S_MAX)
    routing = cluster.routing
    try:
        told = await cluster.run(describe_share_group_offsets(routing, group, timeout_s=deadline_s))
        rest: dict[TopicPartition, int] = {}
        for topic_partition in partitions:
            offset = told.get(topic_partition)
            if isinstance(offset, KafkaError) or (isinstance(offset, ShareOffset) and offset.lag > 0):
                return True
            if offset is None or offset.lag < 0:
                rest[topic_partition] = -1 if offset is None else offset.start_offset
        if not rest:
            return False
        starts = {tp for tp, offset in rest.items() if offset < 0}
        ends = await cluster.run(list_offsets(routing, dict.fromkeys(rest, LATEST_TIMESTAMP), timeout_s=deadline_s))
        first = await cluster.run(
            list_offsets(routing, dict.fromkeys(starts, EARLIEST_TIMESTAMP), timeout_s=deadline_s)
        )
    except (KafkaError, ClientError) as error:
        return error.retriable
    begins = rest | {tp: each.offset for tp, each in first.items() if isinstance(each, OffsetFound)}
    return any(not isinstance(end, OffsetFound) or begins[tp] < end.offset for tp, end in ends.items())


def _warn_of_refused(results: Sequence[AcknowledgeResult]) -> None:
    """What was printed and could not be accepted comes again, to this run or to another member."""
    for topic_partition, first, last, _, error in results:
        if error is not None:
            warn(f"{topic_partition} offsets {first} to {last} were printed and may come again: {error}")
