"""`tidelog consume`: records out of topics, as values, with keys, or as JSON lines."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import datetime
import enum
import re
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from itertools import islice
from typing import Annotated, Any, Final

import typer

from tidelog.cli.errors import WrongUsage
from tidelog.cli.options import DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS
from tidelog.cli.output import warn
from tidelog.cli.records import json_line
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.cluster import Cluster
from tidelog.client.consumed import ConsumedRecord, consumed_records
from tidelog.client.errors import OffsetOutOfRange
from tidelog.client.fetcher import Fetcher
from tidelog.client.fetching import READ_COMMITTED, READ_UNCOMMITTED, FetchSettings
from tidelog.client.offsets import CommittedOffset, OffsetFound, commit_offsets, committed_offsets, list_offsets
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from tidelog.records.columns import ALL, Column

app = typer.Typer(add_completion=False)

COMMIT_INTERVAL_S: Final = 5.0
"""How often a group's progress is committed while records flow (auto.commit.interval.ms)."""


class OutputFormat(enum.StrEnum):
    """What a line of output is."""

    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: a question of ListOffsets, a timestamp, an offset, so many before the end, a commit."""

    kind: str
    number: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """What to read and how to print it."""

    topics: tuple[str, ...]
    partitions: frozenset[int] | None
    start: Start
    follow: bool
    count_max: int | None
    isolation: int
    group: str | None
    columns: Column
    line: Callable[[ConsumedRecord], bytes]


@app.command()
def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="What to read.")],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, end, an offset, -N (the last N of each partition), @MS or @TIME (ISO 8601), committed.",
            show_default="beginning; with --group committed",
        ),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="The same as --from beginning, as Kafka's own tool calls it.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow/--exit-at-end", help="Wait for more at the end, or read what there is.")
    ] = False,
    count_max: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, metavar="N", help="Stop after so many.")
    ] = None,
    format: Annotated[
        OutputFormat | None, typer.Option("--format", "-f", help="What a line shows; -o json means json.")
    ] = None,
    key_separator: Annotated[
        str, typer.Option("--key-separator", "-K", metavar="TEXT", help="Between key and value.", show_default="tab")
    ] = "\t",
    null: Annotated[str, typer.Option("--null", metavar="TEXT", help="Stands for a null key or value.")] = "null",
    as_base64: Annotated[bool, typer.Option("--base64", help="Print keys and values in base64.")] = False,
    committed_only: Annotated[
        bool, typer.Option("--read-committed", help="Without records of open and aborted transactions.")
    ] = False,
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="NAME", help="Go on where it stopped, and commit.")
    ] = None,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Print the records of topics: all there are, or with --follow also those to come."""
    if from_beginning and start not in (None, "beginning"):
        raise WrongUsage(f"--from-beginning and --from {start} contradict each other")
    begin = parse_start(start or ("committed" if group and not from_beginning else "beginning"))
    if begin.kind == "committed" and group is None:
        raise WrongUsage("--from committed needs --group")
    if begin.kind == "end" and not follow:
        raise WrongUsage("nothing is after the end yet: add --follow, or choose another --from")
    chosen = format or (OutputFormat.JSON if output is Form.JSON else OutputFormat.VALUE)
    line, columns = _line(chosen, key_separator.replace("\\t", "\t").encode(), null.encode(), as_base64)
    plan = _Plan(
        topics=tuple(dict.fromkeys(topics)),
        partitions=None if partition is None else frozenset(partition),
        start=begin,
        follow=follow,
        count_max=count_max,
        isolation=READ_COMMITTED if committed_only else READ_UNCOMMITTED,
        group=group,
        columns=columns,
        line=line,
    )
    count = asyncio.run(_Consumption(plan).run(bootstrap, timeout))
    if output is Form.KAFKA:
        print(f"Processed a total of {count} messages", file=sys.stderr)


def parse_start(text: str) -> Start:
    """What --from means; WrongUsage when it means nothing."""
    if text in ("beginning", "end", "committed"):
        return Start(text)
    if re.fullmatch(r"\d{1,18}", text):
        return Start("offset", int(text))
    if re.fullmatch(r"-\d{1,18}", text):
        return Start("tail", int(text[1:]))
    if re.fullmatch(r"@\d{1,18}", text):
        return Start("timestamp", int(text[1:]))
    if text.startswith("@"):
        with contextlib.suppress(ValueError, OverflowError):
            moment = datetime.datetime.fromisoformat(text[1:])
            return Start("timestamp", int(moment.timestamp() * 1000))
    raise WrongUsage(f"--from {text!r} is none of beginning, end, committed, an offset, -N, @MS, @2026-01-31T12:00")


def _line(
    format: OutputFormat, separator: bytes, null: bytes, as_base64: bool
) -> tuple[Callable[[ConsumedRecord], bytes], Column]:
    """How a record is printed, and what of it must be decoded for that."""

    def text(content: bytes | None) -> bytes:
        if content is None:
            return null
        return base64.b64encode(content) if as_base64 else content

    match format:
        case OutputFormat.JSON:
            return lambda record: json_line(record, as_base64=as_base64), ALL
        case OutputFormat.KEY_VALUE:
            return (
                lambda record: b"%b%b%b\n" % (text(record.key), separator, text(record.value)),
                Column.KEY | Column.VALUE,
            )
        case OutputFormat.VALUE:
            return lambda record: text(record.value) + b"\n", Column.VALUE


class _Consumption:
    """One run: positions found, records printed, progress committed."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._count = 0
        self._next: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._commit_at = time.monotonic() + COMMIT_INTERVAL_S

    async def run(self, bootstrap: str, timeout_s: float) -> int:
        """Prints until the end, the count or, where it follows, until told to end; how many records it printed."""
        async with Cluster(
            bootstrap,
            client_id="tidelog-consume",
            operation_timeout_s=timeout_s,
            call_timeout_s=timeout_s,
            fail_fast=True,
        ) as cluster:
            partitions = await self._partitions(cluster)
            starts, ends = await self._range(cluster, partitions)
            cluster.routing.fail_fast = False
            settings = FetchSettings(partition_max_bytes=1 << 20, isolation=self._plan.isolation)
            fetcher = Fetcher(cluster, starts, ends=None if self._plan.follow else ends, settings=settings)
            try:
                if self._plan.follow:
                    await _until_told(self._print(cluster, fetcher, {}))
                else:
                    await self._print(cluster, fetcher, ends)
            finally:
                await fetcher.close()
                await self._commit(cluster)
        return self._count

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

    async def _range(
        self, cluster: Cluster, partitions: list[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where each partition begins and, as of now, ends."""

        async def ask(question: int) -> dict[TopicPartition, OffsetFound]:
            operation = list_offsets(
                cluster.routing, dict.fromkeys(partitions, question), isolation=self._plan.isolation
            )
            return _good(await cluster.run(operation))

        start = self._plan.start
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
                commits = await cluster.run(committed_offsets(cluster.routing, self._plan.group or "", partitions))
                starts = {tp: commits[tp].offset if tp in commits else earliest[tp] for tp in partitions}
                for tp in partitions:
                    if not earliest[tp] <= starts[tp] <= ends[tp]:
                        warn(
                            f"{tp} no longer has offset {starts[tp]}, which the group committed: from {earliest[tp]} on"
                        )
                        starts[tp] = earliest[tp]
            case _:
                starts = earliest
        return starts, ends

    async def _print(self, cluster: Cluster, fetcher: Fetcher, ends: Mapping[TopicPartition, int]) -> None:
        plan, out = self._plan, sys.stdout.buffer
        async for data in fetcher:
            records = consumed_records(
                data, ends.get(data.topic_partition), plan.columns, committed_only=plan.isolation == READ_COMMITTED
            )
            left = None if plan.count_max is None else plan.count_max - self._count
            lines: list[bytes] = []
            try:
                for record in islice(records, left):
                    lines.append(plan.line(record))
                    self._next[data.topic_partition] = record.offset + 1
            finally:
                # Also what came before a batch that cannot be read.
                out.write(b"".join(lines))
                out.flush()
                self._count += len(lines)
            if left is None or len(lines) < left:
                self._next[data.topic_partition] = data.next_offset
            if plan.count_max is not None and self._count >= plan.count_max:
                return
            if time.monotonic() >= self._commit_at:
                await self._commit(cluster)

    async def _commit(self, cluster: Cluster) -> None:
        """Commits what was printed, if there is a group and anything new."""
        self._commit_at = time.monotonic() + COMMIT_INTERVAL_S
        news = {tp: offset for tp, offset in self._next.items() if self._committed.get(tp) != offset}
        if self._plan.group is None or not news:
            return
        commits = {tp: CommittedOffset(offset) for tp, offset in news.items()}
        await cluster.run(commit_offsets(cluster.routing, self._plan.group, commits))
        self._committed |= news


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
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


def _good(results: Mapping[TopicPartition, OffsetFound | KafkaError]) -> dict[TopicPartition, OffsetFound]:
    found: dict[TopicPartition, OffsetFound] = {}
    for topic_partition, result in results.items():
        if isinstance(result, KafkaError):
            raise result
        found[topic_partition] = result
    return found
