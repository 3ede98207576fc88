"""A reader of committed records, which leaves out those of aborted transactions and tells the histories the rest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.checks.log_checks import split_batches
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.records.control import ControlRecordType, control_type
from tidelog.records.errors import InvalidBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.checks.history import History
    from sim.checks.log_checks import Batch
    from sim.checks.transaction_history import TransactionHistory
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.model.identifiers import TopicPartition

PAUSE_S: Final = 0.1
"""The longest wait between two rounds."""


class CommittedReader:
    """Reads committed records of some partitions, without those of aborted transactions."""

    def __init__(
        self,
        name: str,
        partitions: Sequence[TopicPartition],
        router: Router,
        random: SeededRandom,
        history: History,
        transactions: TransactionHistory,
        trace: Trace,
    ) -> None:
        self._name = name
        self._partitions = list(partitions)
        self._router = router
        self._random = random
        self._history = history
        self._transactions = transactions
        self._trace = trace
        self._offsets = dict.fromkeys(self._partitions, 0)
        self.values: dict[TopicPartition, list[bytes]] = {partition: [] for partition in self._partitions}
        """What it has read, in its order."""
        self.behind: dict[TopicPartition, str] = dict.fromkeys(self._partitions, "nothing was read")
        """What it has not read yet: up to the high watermark, since transactions end."""
        self.stopping = False

    async def run(self) -> None:
        """Until it is told to stop, and has read to the high watermarks in a round that began after that."""
        is_last = False
        while not is_last or self.behind:
            is_last = self.stopping
            for partition in self._partitions:
                try:
                    await self._read(partition)
                except (OSError, TimeoutError) as error:
                    self._trace.record("committed_reader_retries", self._name, repr(error))
                    self.behind[partition] = repr(error)
                    self._router.forget(partition)
                    await asyncio.sleep(self._random.between(0.0, 2 * PAUSE_S))
            await asyncio.sleep(self._random.between(0.0, PAUSE_S))
        self._router.close()

    async def _read(self, partition: TopicPartition) -> None:
        leader = await self._router.find_leader(partition)
        asked = self._offsets[partition]
        wanted = messages.FetchRequest.FetchPartition(
            partition=partition.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=asked,
            partition_max_bytes=100 + self._random.below(3000),
        )
        request = messages.FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            session_id=0,
            session_epoch=-1,
            topics=[messages.FetchRequest.FetchTopic(topic=partition.topic, partitions=[wanted])],
        )
        response = await self._router.ask(leader.broker_id, ApiKey.FETCH, request)
        if response.error_code:
            raise ConnectionError(ErrorCode(response.error_code).name)
        ((result,),) = [topic.partitions for topic in response.responses]
        if result.error_code:
            raise ConnectionError(f"{partition}: {ErrorCode(result.error_code).name}")
        try:
            batches = split_batches(bytes(result.records or b""))
        except InvalidBatch as error:
            self._history.corrupt(f"{partition} fetched at {asked}: {error}")
            raise ConnectionError(f"{partition}: what was served is corrupt") from None
        following = self._history.fetched(
            partition,
            leader.broker_id,
            asked,
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
            batches,
            stable_only=True,
        )
        for offset, value in committed_records(batches, asked, result.aborted_transactions or ()):
            self._transactions.read(partition, offset, value)
            self.values[partition].append(value)
        self._offsets[partition] = following
        self.behind.pop(partition, None)
        if following < result.high_watermark:
            self.behind[partition] = f"at {following} of {result.high_watermark}, stable is {result.last_stable_offset}"
        if batches:
            self._trace.record("read_committed", partition, leader.broker_id, asked, following)


def committed_records(
    batches: Sequence[Batch], asked: int, aborted_transactions: Sequence[Any]
) -> list[tuple[int, bytes]]:
    """Offsets and values without control records and those of the aborted transactions that a fetch names."""
    coming = sorted(aborted_transactions, key=lambda each: each.first_offset, reverse=True)
    aborted: set[int] = set()
    found: list[tuple[int, bytes]] = []
    for header, records, _ in batches:
        while coming and coming[-1].first_offset <= header.last_offset:
            aborted.add(coming.pop().producer_id)
        if header.is_control:
            if control_type(records[0].key) is ControlRecordType.ABORT:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            found += [(record.offset, record.value or b"") for record in records if record.offset >= asked]
    return found
