"""A reader that jumps: records at offsets of its own choice, and offsets by timestamp, which come by the indexes.

Consumers read on from where they were, so that an index leads them nowhere but to the end of the log. What was read or
acknowledged before is asked for here again, at its own offset, from its leader; and what ListOffsets says of a record's
own timestamp must be that record or one before it that is as young, and what it says of the log's end the leader's high
watermark. The youngest record of which a leader tells is a committed one. Where a record's leader epoch ends is behind
it, and before any record of a later epoch. A batch that rots is read before the scrub comes by.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from sim.invariants import require
from sim.workloads.consumers import Reader, fetch_request
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sim.checks.history import History
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.model.identifiers import TopicPartition

PAUSE_S: Final = (0.1, 0.6)


class SpotReader:
    """See the module. Of partitions in which no record is lost or compacted."""

    def __init__(
        self,
        partitions: Sequence[TopicPartition],
        router: Router,
        random: SeededRandom,
        history: History,
        trace: Trace,
        high_watermark: Callable[[TopicPartition, int], tuple[int, int] | None],
        has_uncommitted: Callable[[TopicPartition], bool],
    ) -> None:
        """`high_watermark(partition, broker)`: leader epoch and high watermark, where the broker takes itself for the
        leader. `has_uncommitted(partition)`: whether its leader has records that are not committed.
        """
        self._partitions = partitions
        self._router = router
        self._random = random
        self._history = history
        self._trace = trace
        self._high_watermark = high_watermark
        self._has_uncommitted = has_uncommitted
        self._choices = random.stream("uncommitted")
        self._rotten: deque[tuple[TopicPartition, int]] = deque()
        """Partition and first offset of batches that have rotted, and that nothing has read since."""
        self._ends: dict[TopicPartition, tuple[int, int]] = {}
        """Where a log ends, as a leader has said last, and its epoch."""
        self._epochs: dict[TopicPartition, dict[int, int]] = {}
        """[offset] -> leader epoch of the records that were read here."""
        self.done = 0
        self.stopping = False

    def rotted(self, partition: TopicPartition, offset: int) -> None:
        """The batch at `offset` has rotted on some replica: it is read next."""
        if partition in self._partitions:
            self._rotten.append((partition, offset))

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._random.between(*PAUSE_S))
            try:
                if self._rotten:
                    await self._read_rotten(*self._rotten.popleft())
                    continue
                partition = self._partitions[self._random.below(len(self._partitions))]
                await self._read(partition)
                await self._ask_for_end(partition)
                await self._ask_for_youngest()
            except (OSError, TimeoutError) as error:
                self._trace.record("spot_read_fails", repr(error))
        self._router.close()

    async def _read_rotten(self, partition: TopicPartition, offset: int) -> None:
        """The leader may have the rotten replica: then it gives an error, or what it has mended."""
        reader = Reader("spot reader", partition, self._router, self._random, self._history, self._trace)
        if reader.target < 0:
            await self._router.refresh([partition.topic])
        if reader.target >= 0:
            reader.offset = offset
            await self._fetch(reader)
            self._trace.record("rotten_read", partition, offset)

    async def _read(self, partition: TopicPartition) -> None:
        known = self._history.of(partition)
        offsets = sorted(known.acknowledged | known.read)
        if not offsets:
            return
        # The newest ones above all: they have just been written, or truncated and written anew.
        low = max(len(offsets) - 10, 0) if self._random.chance(0.4) else 0
        offset = offsets[low + self._random.below(len(offsets) - low)]
        reader = Reader("spot reader", partition, self._router, self._random, self._history, self._trace)
        if reader.target < 0:
            await self._router.refresh([partition.topic])
            if reader.target < 0:
                return
        reader.offset = offset
        timestamps = await self._fetch(reader)
        if timestamps is None:
            return
        self._trace.record("spot_read", partition, offset)
        await self._ask_for_end_of_epoch(partition, offset, reader.epochs)
        found = await self._router.offset(partition, timestamps[offset])
        if not 0 <= found <= offset and await self._router.offset(partition, EARLIEST_TIMESTAMP) > offset:
            return  # Retention has taken the record since it was read.
        require(
            3,
            0 <= found <= offset,
            f"{partition}: the record at {offset} is of {timestamps[offset]}, first reached at {found} says its leader",
        )
        if found < offset:
            reader.offset = found
            earlier = await self._fetch(reader)
            if earlier is not None:
                require(
                    3,
                    earlier.get(found, 0) >= timestamps[offset],
                    f"{partition}: {timestamps[offset]} is first reached at {found} says its leader,"
                    f" and the record there is of {earlier.get(found)}",
                )
        self.done += 1

    async def _ask_for_end_of_epoch(self, partition: TopicPartition, offset: int, epochs: Mapping[int, int]) -> None:
        """As a consumer does that finds another leader (KIP-320): an end at or before what it has read says that the
        record is not the partition's any more, and it reads others in its place."""
        known = self._epochs.setdefault(partition, {})
        known |= epochs
        epoch = known[offset]
        found = await self._router.end_of_epoch(partition, epoch)
        if partition.topic in self._history.lossy:
            return
        behind = min((each for each, later in known.items() if later > epoch), default=found[1])
        is_right = found[0] == epoch and offset < found[1] <= behind
        if not is_right and await self._router.offset(partition, EARLIEST_TIMESTAMP) > offset:
            return  # Retention has taken the record, and with it where its epoch ended.
        told = (
            f"{partition}: epoch {epoch} has a record at {offset}, ends at {found} says its leader, {behind} is later"
        )
        require(3, is_right, told)

    async def _ask_for_end(self, partition: TopicPartition) -> None:
        """What the leader says of the log's end is its high watermark at some time between question and answer.

        A new leader says no less than the one before it: it does not answer before it knows as much (KIP-207).
        """
        asked = await self._router.find_leader(partition)
        before = self._high_watermark(partition, asked.broker_id)
        end = await self._router.offset(partition, LATEST_TIMESTAMP)
        after = self._high_watermark(partition, asked.broker_id)
        if before is None or after is None or before[0] != after[0] or self._router.leader(partition) != asked:
            return  # Its leadership has ended meanwhile.
        told = f"{partition} ends at {end}, says its leader, whose high watermark was {before[1]} and is {after[1]}"
        require(10, before[1] <= end <= after[1], told)
        epoch, known = self._ends.get(partition, (before[0], end))
        if partition.topic not in self._history.lossy and before[0] >= epoch:
            told = f"{partition} ends at {end}, says its leader of epoch {before[0]}, and {known} said one of {epoch}"
            require(10, end >= known, told)
        if before[0] >= epoch:
            self._ends[partition] = before[0], end

    async def _ask_for_youngest(self) -> None:
        """The record with the greatest timestamp, of a partition that has later ones which are not committed."""
        partitions = [each for each in self._partitions if self._has_uncommitted(each)]
        if not partitions:
            return
        partition = partitions[self._choices.below(len(partitions))]
        asked = await self._router.find_leader(partition)
        before = self._high_watermark(partition, asked.broker_id)
        found = await self._router.offset(partition, MAX_TIMESTAMP)
        after = self._high_watermark(partition, asked.broker_id)
        if before is None or after is None or before[0] != after[0] or self._router.leader(partition) != asked:
            return  # Its leadership has ended meanwhile.
        self._trace.record("youngest", partition, found, before[1])
        told = f"{partition} has its youngest record at {found}, says its leader, whose high watermark is {after[1]}"
        require(10, found < after[1], told)

    async def _fetch(self, reader: Reader) -> dict[int, int] | None:
        """[offset] -> timestamp of the records from the reader's offset on; None where they have been deleted."""
        target = reader.target
        response = await self._router.ask(target, ApiKey.FETCH, fetch_request([reader], self._random, 0, ""))
        if response.error_code:
            raise ConnectionError(ErrorCode(response.error_code).name)
        ((result,),) = [topic.partitions for topic in response.responses]
        asked = reader.offset
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # It has been deleted; or others were told of it by a newer leader than this one, which is not fenced yet.
            self._router.forget(reader.partition)
            return None
        await reader.take(result, target)
        if reader.offset < asked or result.error_code:
            return None
        return {record.offset: record.timestamp for record in reader.records} or None
