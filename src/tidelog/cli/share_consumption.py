"""`tidelog consume --share GROUP`: records taken from a share group, printed, and accepted once they are printed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from tidelog.cli.consumption import CLOSE_S_MAX, Plan, Printer, until_told
from tidelog.cli.output import warn
from tidelog.cli.security import command_security
from tidelog.client.cluster import Cluster
from tidelog.client.consumed import ConsumedRecord
from tidelog.client.share_consumer import (
    AcknowledgementMode,
    AcknowledgeResult,
    ShareConsumer,
    ShareConsumerSettings,
    SharedBatch,
)

QUIET_S: Final = 2.0
"""Without --follow a run ends when there were no records for so long: a share group has no end to ask for."""


class ShareConsumption:
    """One run as a member of a share group; what it has not printed when it ends is given back."""

    def __init__(self, plan: Plan, group: str) -> None:
        self._plan = plan
        self._group = group
        self._printer = Printer(plan)

    async def run(self, bootstrap: str, timeout_s: float) -> int:
        """Prints until nothing comes, the count or until told to end; how many records it printed."""
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
                    await self._print(consumer, time.monotonic() + timeout_s)
        return self._printer.count

    async def _print(self, consumer: ShareConsumer, joined_by: float | None = None) -> None:
        """`joined_by`: None: until told to end; else until nothing comes, partitions being there or time being over."""
        while not self._printer.enough:
            batch = await consumer.poll(None if joined_by is None else QUIET_S)
            if batch is not None:
                await self._print_batch(consumer, batch)
            elif consumer.assignment or (joined_by is not None and time.monotonic() >= joined_by):
                return

    async def _print_batch(self, consumer: ShareConsumer, batch: SharedBatch) -> None:
        """Accepts what was printed, also where the count ends within the batch."""
        printed = 0

        def taken(offset: int) -> None:
            nonlocal printed
            printed = offset

        try:
            await self._printer.print_beside((ConsumedRecord(*record[:8]) for record in batch), taken)
        finally:
            consumer.acknowledge(record for record in batch if record.offset < printed)


def _warn_of_refused(results: Sequence[AcknowledgeResult]) -> None:
    """What was printed and could not be accepted comes again, to this run or to another member."""
    for topic_partition, first, last, _, error in results:
        if error is not None:
            warn(f"{topic_partition} offsets {first} to {last} were printed and may come again: {error}")
