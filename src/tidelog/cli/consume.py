"""`tidelog consume`: records out of topics, as values, with keys, or as JSON lines."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import datetime
import enum
import re
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from tidelog.assignors import CONSUMERS
from tidelog.assignors.assignor import Assignor
from tidelog.cli.consumption import (
    CLOSE_S_MAX,
    COMMIT_INTERVAL_S,
    Consumption,
    GroupConsumption,
    Plan,
    Start,
    fetch_settings,
)
from tidelog.cli.errors import WrongUsage
from tidelog.cli.options import COUNT_MAX, DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS
from tidelog.cli.plugins import load
from tidelog.cli.records import json_line
from tidelog.cli.share_consumption import ShareConsumption
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.consumed import ConsumedRecord
from tidelog.client.consumer import AutoOffsetReset, ConsumerSettings, GroupProtocol
from tidelog.client.fetching import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.records.columns import ALL, Column

app = typer.Typer(add_completion=False)


class OutputFormat(enum.StrEnum):
    """What a line of output is."""

    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"


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
        int | None, typer.Option("--max-messages", "-n", min=1, max=COUNT_MAX, metavar="N", help="Stop after so many.")
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
    share: Annotated[
        str | None,
        typer.Option("--share", metavar="GROUP", help="Take records as a member of this share group, and accept them."),
    ] = None,
    assignor: Annotated[
        list[str] | None,
        typer.Option(
            "--assignor",
            metavar="NAME",
            help=f"Who gets what in the group: {', '.join(CONSUMERS)}, or MODULE:NAME of your own; may be repeated.",
        ),
    ] = None,
    instance_id: Annotated[
        str | None, typer.Option("--instance-id", metavar="NAME", help="Stay the same member over restarts.")
    ] = None,
    protocol: Annotated[
        GroupProtocol, typer.Option("--group-protocol", help="consumer: the brokers assign (KIP-848).")
    ] = GroupProtocol.CLASSIC,
    rack: Annotated[
        str, typer.Option("--rack", metavar="NAME", help="Read from followers in this rack, where brokers allow it.")
    ] = "",
    lag: Annotated[bool, typer.Option("--lag", help="Tell every second how far the end is, on stderr.")] = False,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Print the records of topics: all there are, or with --follow also those to come."""
    alone = (group, partition, start, assignor, instance_id, from_beginning, committed_only, lag)
    if share is not None and (any(alone) or protocol is not GroupProtocol.CLASSIC):
        raise WrongUsage(
            "--share goes with none of --group, --partition, --from, --read-committed, --lag and what is for"
            " members of a --group: where a share group begins is its setting share.auto.offset.reset"
        )
    if from_beginning and start not in (None, "beginning"):
        raise WrongUsage(f"--from-beginning and --from {start} contradict each other")
    begin = parse_start(start or ("committed" if group and not from_beginning else "beginning"))
    if begin.kind == "committed" and group is None:
        raise WrongUsage("--from committed needs --group")
    if begin.kind == "end" and not follow:
        raise WrongUsage("nothing is after the end yet: add --follow, or choose another --from")
    chosen = format or (OutputFormat.JSON if output is Form.JSON else OutputFormat.VALUE)
    line, columns = _line(chosen, key_separator.replace("\\t", "\t").encode(), null.encode(), as_base64)
    isolation = READ_COMMITTED if committed_only else READ_UNCOMMITTED
    membership = None
    if group is not None and partition is None:
        membership = _membership(assignor, instance_id, protocol, isolation, rack)
    elif assignor or instance_id or lag or protocol is not GroupProtocol.CLASSIC:
        raise WrongUsage("--assignor, --instance-id, --group-protocol and --lag are for members of a --group")
    plan = Plan(
        topics=tuple(dict.fromkeys(topics)),
        partitions=None if partition is None else frozenset(partition),
        start=begin,
        follow=follow,
        count_max=count_max,
        isolation=isolation,
        rack=rack,
        group=group,
        membership=membership,
        lag=lag,
        columns=columns,
        line=line,
    )
    run: Consumption | GroupConsumption | ShareConsumption
    if share is not None:
        run = ShareConsumption(plan, share)
    else:
        run = Consumption(plan) if membership is None else GroupConsumption(plan, membership)
    with run.printer.leaving():
        count = asyncio.run(run.run(bootstrap, timeout))
    if output is Form.KAFKA:
        print(f"Processed a total of {count} messages", file=sys.stderr)


def _membership(
    assignors: list[str] | None, instance_id: str | None, protocol: GroupProtocol, isolation: int, rack: str
) -> ConsumerSettings:
    if assignors and protocol is GroupProtocol.CONSUMER:
        raise WrongUsage("with --group-protocol consumer the brokers assign: no --assignor")
    if instance_id == "":
        raise WrongUsage("--instance-id is empty")
    names = ", ".join(CONSUMERS)
    chosen = [name if name in CONSUMERS else _own_assignor(name, names) for name in assignors or ()]
    settings = ConsumerSettings(
        protocol=protocol,
        instance_id=instance_id,
        rack=rack or None,
        auto_commit_interval_s=COMMIT_INTERVAL_S,
        auto_offset_reset=AutoOffsetReset.EARLIEST,
        close_timeout_s=CLOSE_S_MAX,
        fetch=fetch_settings(isolation),
    )
    return dataclasses.replace(settings, assignors=tuple(chosen)) if chosen else settings


def _own_assignor(text: str, names: str) -> Assignor:
    found = load(text, "--assignor", names)
    if not isinstance(getattr(found, "name", None), str) or not callable(getattr(found, "assign", None)):
        raise WrongUsage(f"--assignor {text!r} is not an assignor: it needs a name and a method assign")
    own: Assignor = found
    return own


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
            # No record is older than 1970.
            return Start("timestamp", max(int(moment.timestamp() * 1000), 0))
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
