"""How `tidelog consume` reads: partitions by itself, or as a member of a group; printed, committed, ended when told."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, Final

from tidelog.cli import FAILED, INTERRUPTED
from tidelog.cli.cluster import connect_async
from tidelog.cli.output import warn
from tidelog.client.cluster import Cluster
from tidelog.client.consumed import ConsumedRecord, consumed_records
from tidelog.client.consumer import ConsumedBatch, Consumer, ConsumerSettings, RebalanceListener
from tidelog.client.errors import ClientError, OffsetOutOfRange
from tidelog.client.fetcher import Fetcher
from tidelog.client.fetching import READ_COMMITTED, FetchSettings
from tidelog.client.offsets import CommittedOffset, OffsetFound, commit_offsets, committed_offsets, list_offsets
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from tidelog.records.columns import Column

COMMIT_INTERVAL_S: Final = 5.0
"""How often a group's progress is committed while records flow (auto.commit.interval.ms)."""
CLOSE_S_MAX: Final = 8.0
"""How long a run that was told to end tries to commit and to leave: its user waits."""
PRINTING_S_MAX: Final = 2.0
"""How long a run that was told to end waits for what reads its output, so that what was printed is committed."""
LAG_INTERVAL_S: Final = 1.0
"""How often the lag is told."""
UNASSIGNED_S: Final = 15.0
"""How long a member of a group that does not follow waits for partitions. Others give them up with one of their
heartbeats, every few seconds; until then the group has none for a new member."""


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: a question of ListOffsets, a timestamp, an offset, so many before the end, a commit."""

    kind: str
    number: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What to read and how to print it; `membership` None: without being a member of a group."""

    topics: tuple[str, ...]
    partitions: frozenset[int] | None
    start: Start
    follow: bool
    count_max: int | None
    isolation: int
    rack: str
    group: str | None
    membership: ConsumerSettings | None
    lag: bool
    columns: Column
    line: Callable[[ConsumedRecord], bytes]


def fetch_settings(isolation: int, rack: str = "") -> FetchSettings:
    """Fetches for eyes and pipes: pieces small enough to come soon."""
    return FetchSettings(partition_max_bytes=1 << 20, isolation=isolation, rack=rack)


class Printer:
    """Lines on stdout, and how many."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._is_stuck = False
        self.count = 0

    @property
    def enough(self) -> bool:
        """Whether as many were printed as were asked for."""
        return self._plan.count_max is not None and self.count >= self._plan.count_max

    def print(self, records: Iterable[ConsumedRecord], taken: Callable[[int], None]) -> bool:
        """Prints records; False where the count ends before they do.

        `taken` is told the offset after the last one, also where the next record cannot be read.
        """
        plan, out = self._plan, sys.stdout.buffer
        left = None if plan.count_max is None else plan.count_max - self.count
        lines: list[bytes] = []
        offset: int | None = None
        try:
            for record in islice(records, left):
                lines.append(plan.line(record))
                offset = record.offset + 1
        finally:
            _write(out, b"".join(lines))
            self.count += len(lines)
            if offset is not None:
                taken(offset)
        return left is None or len(lines) < left

    async def print_beside(self, records: Iterable[ConsumedRecord], taken: Callable[[int], None]) -> bool:
        """As `print`, in a thread: heartbeats and signals are heard while what reads stdout takes its time. `taken` is
        called there. Where the caller is cancelled the write has some time left to end (`leaving`)."""
        loop = asyncio.get_running_loop()
        printed: asyncio.Future[bool] = loop.create_future()

        def settle(whole: bool, error: BaseException | None) -> None:
            if error is None:
                printed.set_result(whole)
            else:
                printed.set_exception(error)
                printed.exception()  # Marks it as seen: a run that was told to end looks no more.

        def work() -> None:
            whole, failure = False, None
            try:
                whole = self.print(records, taken)
            except BaseException as error:  # The caller's, whatever it is.
                failure = error
            with contextlib.suppress(RuntimeError):  # The loop was left meanwhile.
                loop.call_soon_threadsafe(settle, whole, failure)

        # None of asyncio's own threads: the loop, and the interpreter, wait for those for as long as they take.
        threading.Thread(target=work, name="printing", daemon=True).start()
        try:
            return await asyncio.shield(printed)
        except asyncio.CancelledError:
            try:
                await asyncio.wait([printed], timeout=PRINTING_S_MAX)
            finally:
                self._is_stuck = not printed.done()
            raise

    @contextlib.contextmanager
    def leaving(self) -> Iterator[None]:
        """Ends the process behind a run that left a write in the middle: the interpreter's own end would flush stdout,
        and wait for it. Its reader may take nothing for ever."""
        code = 0
        try:
            yield
        except BaseException as error:
            code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED
            if self._is_stuck and isinstance(error, Exception):
                print(f"tidelog: {error}", file=sys.stderr)
            raise
        finally:
            if self._is_stuck:
                sys.stderr.flush()
                os._exit(code)


def _write(out: BinaryIO, data: bytes) -> None:
    """Writes all of it. Where Python has no buffers (PYTHONUNBUFFERED), a signal may end a write in the middle."""
    left = memoryview(data)
    while left:
        left = left[out.write(left) :]
    out.flush()


class Consumption:
    """One run: positions found, records printed, progress committed."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.printer = Printer(plan)
        self._next: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._commit_at = time.monotonic() + COMMIT_INTERVAL_S

    async def run(self, bootstrap: str, timeout_s: float) -> int:
        """Prints until the end, the count or, where it follows, until told to end; how many records it printed."""
        async with connect_async("consume", bootstrap, timeout_s) as cluster:
            partitions = await self._partitions(cluster)
            starts, ends = await find_range(cluster, self._plan, partitions)
            cluster.routing.fail_fast = False
            settings = fetch_settings(self._plan.isolation, self._plan.rack)
            if self._plan.follow:
                # Partitions without a leader are waited for, as members of a group do.
                fetcher = Fetcher(cluster, starts, settings=settings, patience_s=math.inf)
            else:
                fetcher = Fetcher(cluster, starts, ends=ends, settings=settings)
            try:
                if self._plan.follow:
                    await until_told(self._print(cluster, fetcher, {}))
                else:
                    await self._print(cluster, fetcher, ends)
            finally:
                await fetcher.close()
                await self._commit(cluster, CLOSE_S_MAX if self._plan.follow else None)
        return self.printer.count

    async def _partitions(self, cluster: Cluster) -> list[TopicPartition]:
        operation = cluster.routing.require_topics(self._plan.topics, cluster.routing.deadline())
        views = await cluster.run(operation)
        wanted = self._plan.partitions
        for name, view in views.items():
            missing = (wanted or frozenset()) - view.partitions.keys()
            if missing:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name}' has no partition {min(missing)}"
                )
        return [
            TopicPartition(name, partition)
            for name, view in views.items()
            for partition in view.partitions
            if wanted is None or partition in wanted
        ]

    async def _print(self, cluster: Cluster, fetcher: Fetcher, ends: Mapping[TopicPartition, int]) -> None:
        plan = self._plan
        async for data in fetcher:
            topic_partition = data.topic_partition
            records = consumed_records(
                data, ends.get(topic_partition), plan.columns, committed_only=plan.isolation == READ_COMMITTED
            )
            if await self.printer.print_beside(records, partial(self._next.__setitem__, topic_partition)):
                self._next[topic_partition] = data.next_offset
            if self.printer.enough:
                return
            if time.monotonic() >= self._commit_at:
                try:
                    await self._commit(cluster)
                except (KafkaError, ClientError) as error:
                    if not plan.follow:
                        raise
                    warn(f"not committed, to be tried again: {error}")

    async def _commit(self, cluster: Cluster, timeout_s: float | None = None) -> None:
        """Commits what was printed, if there is a group and anything new."""
        self._commit_at = time.monotonic() + COMMIT_INTERVAL_S
        news = {tp: offset for tp, offset in self._next.items() if self._committed.get(tp) != offset}
        if self._plan.group is None or not news:
            return
        commits = {tp: CommittedOffset(offset) for tp, offset in news.items()}
        await cluster.run(commit_offsets(cluster.routing, self._plan.group, commits, timeout_s=timeout_s))
        self._committed |= news


class GroupConsumption:
    """One run as a member of a group: what it assigns is printed, and committed as it is printed."""

    def __init__(self, plan: Plan, membership: ConsumerSettings) -> None:
        self._plan = plan
        self._membership = membership
        self.printer = Printer(plan)
        self._lag_at = time.monotonic() + LAG_INTERVAL_S

    async def run(self, bootstrap: str, timeout_s: float) -> int:
        """Prints until the end, the count or until told to end; how many records it printed."""
        async with connect_async("consume", bootstrap, timeout_s) as cluster:
            await cluster.run(cluster.routing.require_topics(self._plan.topics, cluster.routing.deadline()))
            cluster.routing.fail_fast = False
            async with Consumer(cluster, self._plan.group, self._membership) as consumer:
                starting = _Starting(cluster, consumer, self._plan)
                consumer.subscribe(self._plan.topics, starting)
                try:
                    await until_told(self._print(consumer, starting))
                finally:
                    if self._plan.lag:
                        _tell_lag(consumer)
        return self.printer.count

    async def _print(self, consumer: Consumer, starting: _Starting) -> None:
        wait_s = None if self._plan.follow and not self._plan.lag else LAG_INTERVAL_S
        assigned_at = time.monotonic()
        while not self.printer.enough:
            batch = await consumer.poll(wait_s)
            if batch is not None and not await self._print_batch(consumer, batch):
                return
            if self._plan.lag and time.monotonic() >= self._lag_at:
                self._lag_at = time.monotonic() + LAG_INTERVAL_S
                _tell_lag(consumer)
            if self._plan.follow:
                continue
            if starting.at_end:
                return
            if consumer.assignment:
                assigned_at = time.monotonic()
            elif time.monotonic() - assigned_at >= UNASSIGNED_S:
                warn(f"group '{self._plan.group}' has given this member no partition: other members have them")
                return

    async def _print_batch(self, consumer: Consumer, batch: ConsumedBatch) -> bool:
        """Prints a batch; where that ends within it, what was printed is what will be committed."""
        printed = batch.offset

        def taken(offset: int) -> None:
            nonlocal printed
            printed = offset

        whole = False
        try:
            whole = await self.printer.print_beside(batch.records(self._plan.columns), taken)
        finally:
            if not whole:
                consumer.seek(batch.topic_partition, printed)
        return whole


class _Starting(RebalanceListener):
    """Where partitions begin when they come, and where they ended then."""

    def __init__(self, cluster: Cluster, consumer: Consumer, plan: Plan) -> None:
        self._cluster = cluster
        self._consumer = consumer
        self._plan = plan
        self._known: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] | None = None

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Seeks where --from says, once for each partition, and asks for the ends where those are the end."""
        new = [tp for tp in partitions if tp not in self._known]
        self._known.update(new)
        ends = self._ends or {}
        if self._plan.start.kind != "committed" and new:
            starts, ends_now = await find_range(self._cluster, self._plan, new)
            for topic_partition, offset in starts.items():
                self._consumer.seek(topic_partition, offset)
            ends = ends | ends_now
        elif new and not self._plan.follow:
            found = await self._cluster.run(
                list_offsets(
                    self._cluster.routing, dict.fromkeys(new, LATEST_TIMESTAMP), isolation=self._plan.isolation
                )
            )
            ends = ends | {tp: each.offset for tp, each in good(found).items()}
        self._ends = ends

    @property
    def at_end(self) -> bool:
        """Whether something was assigned, and all that was there then has been given out."""
        if self._ends is None or not self._consumer.assignment:
            return False
        positions = {tp: self._consumer.position(tp) for tp in self._consumer.assignment}
        return all(position is not None and position >= self._ends.get(tp, 0) for tp, position in positions.items())


def _tell_lag(consumer: Consumer) -> None:
    """The lag as a line on stderr: in all, and of each partition that has some."""
    lags = {tp: consumer.lag(tp) for tp in sorted(consumer.assignment)}
    known = {tp: lag for tp, lag in lags.items() if lag is not None}
    behind = " ".join(f"{tp}:{lag}" for tp, lag in known.items() if lag)
    print(f"lag {sum(known.values())}{' ' + behind if behind else ''}", file=sys.stderr)


async def find_range(
    cluster: Cluster, plan: Plan, partitions: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where each partition begins and, as of now, ends."""

    async def ask(question: int) -> dict[TopicPartition, OffsetFound]:
        operation = list_offsets(cluster.routing, dict.fromkeys(partitions, question), isolation=plan.isolation)
        return good(await cluster.run(operation))

    start = plan.start
    ends = {tp: found.offset for tp, found in (await ask(LATEST_TIMESTAMP)).items()}
    earliest = {tp: found.offset for tp, found in (await ask(EARLIEST_TIMESTAMP)).items()}
    match start.kind:
        case "end":
            starts = ends
        case "offset":
            starts = dict.fromkeys(partitions, start.number)
            for tp in partitions:
                if not earliest[tp] <= start.number <= ends[tp]:
                    raise OffsetOutOfRange(tp, start.number, earliest[tp], ends[tp])
        case "tail":
            starts = {tp: max(earliest[tp], ends[tp] - start.number) for tp in partitions}
        case "timestamp":
            found = await ask(start.number)
            starts = {tp: ends[tp] if found[tp].offset < 0 else found[tp].offset for tp in partitions}
        case "committed":
            commits = await cluster.run(committed_offsets(cluster.routing, plan.group or "", partitions))
            starts = {tp: commits[tp].offset if tp in commits else earliest[tp] for tp in partitions}
            for tp in partitions:
                if not earliest[tp] <= starts[tp] <= ends[tp]:
                    warn(f"{tp} no longer has offset {starts[tp]}, which the group committed: from {earliest[tp]} on")
                    starts[tp] = earliest[tp]
        case _:
            starts = earliest
    return starts, ends


async def until_told(work: Coroutine[Any, Any, None]) -> None:
    """Does the work until it ends, or SIGINT or SIGTERM says that it is enough: following has no other end.

    The signals come as callbacks of the loop, never between two lines of whatever runs at the moment, and cancel the
    work alone: what is left to do after it, a commit, is not cancelled. Each is taken once. A second Ctrl-C ends the
    program as it ends any other. A SIGINT that was ignored when the program started stays so, which is how shells keep
    Ctrl-C from what they run in the background; SIGTERM ends that.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    taken = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        taken.append(signal.SIGINT)

    def enough() -> None:
        for number in taken:
            loop.remove_signal_handler(number)
        task.cancel()

    for number in taken:
        loop.add_signal_handler(number, enough)
    try:
        await asyncio.wait([task])
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
        task.cancel()
    if not task.cancelled():
        task.result()


def good(results: Mapping[TopicPartition, OffsetFound | KafkaError]) -> dict[TopicPartition, OffsetFound]:
    """The answers, if none is an error; raises the first that is."""
    found: dict[TopicPartition, OffsetFound] = {}
    for topic_partition, result in results.items():
        if isinstance(result, KafkaError):
            raise result
        found[topic_partition] = result
    return found
