"""`tidelog produce`: records from files, pipes, the terminal and arguments into a topic."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import errno
import os
import stat
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from tidelog.cli.cluster import connect_async
from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.options import DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS, key_values
from tidelog.cli.output import print_json
from tidelog.cli.plugins import load
from tidelog.cli.records import InvalidRecord, RecordToSend, json_parser, line_parser
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.consumed import Header
from tidelog.client.errors import ClientError, RefusedWithBatch
from tidelog.client.partitioners import DEFAULT, PARTITIONERS, InvalidPartition, Own
from tidelog.client.producer import Delivery, Producer, ProducerSettings
from tidelog.client.producer.producer import TIMESTAMP_MAX
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.records.batch import Codec

app = typer.Typer(add_completion=False)

CHUNK_SIZE: Final = 256 << 10
"""Bytes read at a time; between two of them the sender gets its turn."""
_RECORD_ERRORS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
"""What is wrong with a record, and with no other."""
LINGER_MS_MAX: Final = 3_600_000.0
FAILURES_TOLD_MAX: Final = 10
"""Lines that could not be sent, of which each is named; of more only the number is told."""
LINE_SIZE_MAX: Final = 64 << 20
"""Bytes. A line that never ends must not fill the memory."""


class InputFormat(enum.StrEnum):
    """What a line of input is."""

    LINES = "lines"
    JSON = "json"


class Acks(enum.StrEnum):
    """Who must have a record before it counts as sent."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


class CodecName(enum.StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@app.command()
def produce(
    topic: Annotated[str, typer.Argument(help="Where to.")],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE...]", help="What to send, a record a line; - or none: stdin.")
    ] = None,
    message: Annotated[
        list[str] | None, typer.Option("--message", "-m", metavar="LINE", help="A line to send; may be repeated.")
    ] = None,
    format: Annotated[
        InputFormat,
        typer.Option("--format", "-f", help='lines: a value each; json: {"key": .., "value": .., "headers": ..} each.'),
    ] = InputFormat.LINES,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="Lines are key, this, value (\\t: tab).")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="Key of all records.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="KEY=VALUE", help="On all records; may be repeated.")
    ] = None,
    null: Annotated[
        str | None, typer.Option("--null", metavar="TEXT", help="A key or value of this text is null (a tombstone).")
    ] = None,
    is_base64: Annotated[bool, typer.Option("--base64", help="Keys and values are in base64.")] = False,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="For all records.")] = None,
    partitioner: Annotated[
        str | None,
        typer.Option(
            "--partitioner",
            metavar="NAME",
            help=f"Where records go: {', '.join(PARTITIONERS)}, or MODULE:NAME of your own in Python.",
        ),
    ] = None,
    timestamp: Annotated[
        int | None,
        typer.Option("--timestamp", min=0, max=TIMESTAMP_MAX, metavar="MS", help="Of all records, since 1970."),
    ] = None,
    codec: Annotated[
        CodecName, typer.Option("--compression", "-z", help="How batches are compressed.")
    ] = CodecName.NONE,
    acks: Annotated[
        Acks, typer.Option("--acks", help="Which replicas must have a record: all in sync, the leader, none.")
    ] = Acks.ALL,
    idempotent: Annotated[bool, typer.Option("--idempotent", help="No record twice, even after retries.")] = False,
    transactional_id: Annotated[
        str | None,
        typer.Option("--transactional-id", metavar="ID", help="All in one transaction: all is read, or nothing."),
    ] = None,
    transaction_size: Annotated[
        int | None, typer.Option("--transaction-size", min=1, metavar="N", help="A transaction every N records.")
    ] = None,
    linger_ms: Annotated[
        float, typer.Option("--linger", min=0, max=LINGER_MS_MAX, metavar="MS", help="Wait for more in a batch.")
    ] = 5.0,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, metavar="BYTES", help="Of a batch.")] = 512 << 10,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Send records to a topic: lines of files or stdin, or --message."""
    if message and files:
        raise WrongUsage("give either files or --message")
    if idempotent and acks is not Acks.ALL:
        raise WrongUsage("--idempotent needs --acks all")
    if transactional_id is not None and acks is not Acks.ALL:
        raise WrongUsage("--transactional-id needs --acks all")
    if transactional_id == "":
        raise WrongUsage("--transactional-id is empty")
    if transaction_size is not None and transactional_id is None:
        raise WrongUsage("--transaction-size needs --transactional-id")
    if partitioner is not None and partition is not None:
        raise WrongUsage("give either --partition or --partitioner")
    headers: list[Header] = [(name, os.fsencode(value)) for name, value in key_values(header or [], "--header").items()]
    parse = _parser(format, key_separator, key, null, is_base64, headers)
    settings = ProducerSettings(
        acks={Acks.ALL: -1, Acks.LEADER: 1, Acks.NONE: 0}[acks],
        codec=Codec.of_name(codec.value),
        linger_ms=linger_ms,
        batch_size=batch_size,
        delivery_timeout_s=timeout + linger_ms / 1000,
        idempotent=idempotent,
        transactional_id=transactional_id,
        partitioner=DEFAULT if partitioner is None else _partitioner(partitioner),
    )
    job = _Job(partition, timestamp, transaction_size)
    started = time.monotonic()
    sent = _Sent()
    lines = _Input(files or [], message or [])
    try:
        asyncio.run(_produce(bootstrap, topic, lines, parse, settings, job, timeout, sent))
    except (InvalidRecord, InvalidPartition) as error:
        done = sent.records - sent.refused if transactional_id is None else sent.committed
        raise Refused([*sent.refusals, f"{lines.where}: {error}; {done} records before it were sent"]) from error
    seconds = time.monotonic() - started
    if output is Form.JSON:
        print_json({"topic": topic, "records": sent.records, "bytes": sent.bytes, "seconds": round(seconds, 3)})
    elif output is Form.TABLE and sys.stderr.isatty():
        print(f"{sent.records:,} records, {sent.bytes:,} bytes in {seconds:.2f} s", file=sys.stderr)


def _partitioner(text: str) -> str | Own:
    """A name of ours, or what stands in a user's module: a class is called, an object or a function taken as it is."""
    if text in PARTITIONERS:
        return text
    found = load(text, "--partitioner", ", ".join(PARTITIONERS))
    if isinstance(found, str) or not callable(getattr(found, "partition", found)):
        raise WrongUsage(f"--partitioner {text!r} is neither a function nor an object with a method partition")
    own: Own = found
    return own


@dataclasses.dataclass(frozen=True, slots=True)
class _Job:
    """What goes for all records; `transaction_size` None: one transaction, if there are any."""

    partition: int | None
    timestamp: int | None
    transaction_size: int | None


class _Sent:
    """What went out so far; `committed` counts the records of transactions that are done.

    `refused` counts records that brokers refused before a line that cannot be read, `refusals` names them.
    """

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.committed = 0
        self.refused = 0
        self.refusals: list[str] = []


def _parser(
    format: InputFormat,
    key_separator: str | None,
    key: str | None,
    null: str | None,
    is_base64: bool,
    headers: list[Header],
) -> Callable[[bytes], RecordToSend]:
    all_key = None if key is None else os.fsencode(key)
    if format is InputFormat.JSON:
        if key_separator is not None or null is not None:
            raise WrongUsage("JSON lines have keys and nulls of their own: no --key-separator, no --null")
        return json_parser(key=all_key, is_base64=is_base64, headers=headers)
    if key_separator is not None:
        if key is not None:
            raise WrongUsage("give either --key or --key-separator")
        if not key_separator:
            raise WrongUsage("--key-separator is empty")
    return line_parser(
        key=all_key,
        separator=None if key_separator is None else key_separator.replace("\\t", "\t").encode(),
        null=None if null is None else null.encode(),
        is_base64=is_base64,
        headers=headers,
    )


async def _produce(
    bootstrap: str,
    topic: str,
    lines: _Input,
    parse: Callable[[bytes], RecordToSend],
    settings: ProducerSettings,
    job: _Job,
    timeout_s: float,
    sent: _Sent,
) -> None:
    async with (
        connect_async("produce", bootstrap, timeout_s) as cluster,
        Producer(cluster, settings) as producer,
    ):
        await producer.require(topic)
        # Whatever was wrong before the first record is told at once; from here on brokers may come and go.
        cluster.routing.fail_fast = False
        if settings.transactional_id is None:
            await _send_all(producer, topic, lines, parse, job, sent)
        else:
            await _send_in_transactions(producer, topic, lines, parse, job, sent)


async def _send_all(
    producer: Producer, topic: str, lines: _Input, parse: Callable[[bytes], RecordToSend], job: _Job, sent: _Sent
) -> None:
    """Sends every line. One that cannot be read ends it after those before; those that brokers refuse are named at
    the end, and the rest is sent."""
    failure: InvalidRecord | InvalidPartition | None = None
    refusals = _Refusals(producer)
    try:
        async for chunk in lines.chunks():
            for line in chunk:
                where = lines.where
                refusals.add(where, await _send(producer, topic, lines, parse(line), job, sent))
            refusals.collect()
            await asyncio.sleep(0)
    except (InvalidRecord, InvalidPartition) as error:
        failure = error
    with contextlib.suppress(KafkaError, ClientError):
        await producer.flush()
    refusals.collect()
    if failure is not None:
        sent.refused, sent.refusals = refusals.count, refusals.named()
        raise failure
    if refusals.told:
        raise Refused(refusals.in_words(sent.records))


class _Refusals:
    """Which lines brokers refused; any other failure ends the command."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._open: deque[tuple[str, Delivery]] = deque()
        self.told: list[str] = []
        self.count = 0

    def add(self, where: str, delivery: Delivery) -> None:
        """A line was given to the producer."""
        self._open.append((where, delivery))

    def collect(self) -> None:
        """Takes note of what has become of the oldest lines; raises what no other line would be spared either."""
        while self._open and (outcome := self._open[0][1].outcome) is not None:
            where, _ = self._open.popleft()
            if isinstance(outcome, Exception):
                if not _is_of_one_record(outcome):
                    raise outcome
                self.count += 1
                if self.count <= FAILURES_TOLD_MAX:
                    self.told.append(f"{where}: {outcome.message if isinstance(outcome, KafkaError) else outcome}")

    def in_words(self, records: int) -> list[str]:
        """A line for each refusal, but not for too many; and what became of the others."""
        return [*self.named(), f"{self.count} of {records} records were refused; the others were sent"]

    def named(self) -> list[str]:
        """A line for each refusal, but not for too many."""
        more = [f"and {self.count - FAILURES_TOLD_MAX} more"] if self.count > FAILURES_TOLD_MAX else []
        return [*self.told, *more]


def _is_of_one_record(error: Exception) -> bool:
    return isinstance(error, RefusedWithBatch) or (isinstance(error, KafkaError) and error.code in _RECORD_ERRORS)


async def _send_in_transactions(
    producer: Producer, topic: str, lines: _Input, parse: Callable[[bytes], RecordToSend], job: _Job, sent: _Sent
) -> None:
    """Sends every line in transactions; whatever goes wrong aborts the one that is open, and ends it."""
    await producer.begin()
    async for chunk in lines.chunks():
        for line in chunk:
            await _send(producer, topic, lines, parse(line), job, sent)
            if job.transaction_size is not None and sent.records - sent.committed >= job.transaction_size:
                await producer.commit()
                sent.committed = sent.records
                await producer.begin()
        producer.raise_failure()
        await asyncio.sleep(0)
    await producer.commit()
    sent.committed = sent.records


async def _send(
    producer: Producer, topic: str, lines: _Input, record: RecordToSend, job: _Job, sent: _Sent
) -> Delivery:
    timestamp = job.timestamp if record.timestamp is None else record.timestamp
    if timestamp is not None and not 0 <= timestamp <= TIMESTAMP_MAX:
        raise InvalidRecord(f"a timestamp is 0 to {TIMESTAMP_MAX} ms since 1970, not {timestamp}")
    try:
        delivery = await producer.send(
            topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=job.partition if record.partition is None else record.partition,
            timestamp=timestamp,
        )
    except KafkaError as error:
        if record.partition is None or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise InvalidRecord(error.message) from error  # It is the line's own, which names no partition of the topic.
    lines.taken()
    sent.records += 1
    sent.bytes += len(record.value or b"") + len(record.key or b"")
    return delivery


class _Input:
    """Lines from arguments or files, in chunks as they come, with the place for errors."""

    def __init__(self, files: list[Path], messages: list[str]) -> None:
        self._files = files or [Path("-")]
        self._messages = messages
        self._name = "--message"
        self._line = 0
        self._has_begun = False

    @property
    def where(self) -> str:
        """The file and the line that comes next."""
        return f"{self._name}:{self._line + 1}"

    def taken(self) -> None:
        """Counts a line that was good."""
        self._line += 1

    async def chunks(self) -> AsyncIterator[list[bytes]]:
        """Lists of lines without their ends (\\n or \\r\\n), as soon as there are some.

        InvalidRecord where it cannot go on: what was read before is to be sent. OSError where nothing was read.
        """
        if self._messages:
            yield [os.fsencode(message) for message in self._messages]  # Bytes that are no UTF-8, too.
            return
        for path in self._files:
            self._name, self._line = ("stdin" if str(path) == "-" else str(path)), 0
            try:
                with _opened(path) as descriptor:
                    async for lines in self._lines(descriptor):
                        self._has_begun = True
                        yield lines
            except OSError as error:
                if not self._has_begun:
                    raise
                raise InvalidRecord(error.strerror or str(error)) from error

    async def _lines(self, descriptor: int) -> AsyncIterator[list[bytes]]:
        rest = b""
        async for data in _read(descriptor):
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            if len(rest) > LINE_SIZE_MAX:
                raise InvalidRecord(f"a line of more than {LINE_SIZE_MAX} bytes")
            yield [line.removesuffix(b"\r") for line in lines]
        if rest:
            yield [rest]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    if str(path) == "-":
        if sys.stdin is None:
            raise WrongUsage("stdin is closed: name files to send, or give --message")
        yield sys.stdin.fileno()
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        yield descriptor
    finally:
        os.close(descriptor)


async def _read(descriptor: int) -> AsyncIterator[bytes]:
    """What a descriptor gives, as it comes; the loop goes on while a pipe or a terminal has nothing."""
    waits = not stat.S_ISREG(os.fstat(descriptor).st_mode)
    while True:
        if waits:
            try:
                await _readable(descriptor)
            except PermissionError:  # Such as /dev/null: always readable, and nothing that epoll takes.
                waits = False
        data = os.read(descriptor, CHUNK_SIZE)
        if not data:
            return
        yield data


async def _readable(descriptor: int) -> None:
    """Waits for one readiness: the reader goes with it, since a second call of it would tell of bytes already read."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def tell() -> None:
        loop.remove_reader(descriptor)
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, tell)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
