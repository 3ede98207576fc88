"""`tidelog dump`: what is in files of a log directory.

The text is that of Kafka's `kafka-dump-log --print-data-log --deep-iteration`.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import Annotated

import typer

from tidelog.cli.errors import Refused
from tidelog.cli.options import Form, Output
from tidelog.ports.real import SystemDisk
from tidelog.protocol.coordinator_records import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.readable import coordinator_record
from tidelog.storage.dump import as_text, dump_items

app = typer.Typer(add_completion=False)


@app.command()
def dump(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Segments (.log), indexes (.index, .timeindex, .txnindex), snapshots (.snapshot), checkpoints; or"
            " folders of partitions.",
            show_default=False,
        ),
    ],
    data: Annotated[bool, typer.Option("--data/--no-data", help="Print the keys and values of records.")] = True,
    records: Annotated[bool, typer.Option("--records/--batches-only", help="Go into batches.")] = True,
    offsets_decoder: Annotated[
        bool, typer.Option("--offsets-decoder", help="Decode records as those of __consumer_offsets.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="Decode records as those of __transaction_state.")
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Print what is in files of a log directory, without a broker.

    In folders of __consumer_offsets and __transaction_state, records are decoded without being asked. table and kafka
    are the same here: Kafka's own text. json gives an object a line. What is damaged is told on stderr, and makes the
    exit code 1.
    """
    disk = SystemDisk()
    asked = CONSUMER_OFFSETS if offsets_decoder else TRANSACTION_STATE if transaction_log_decoder else None
    refused: list[str] = []
    for path in _files(files):
        try:
            if output is not Form.JSON:
                print(f"Dumping {path}")
            topic = asked or _topic(path)
            show = as_text if topic is None else partial(_decoded, topic)
            for item in dump_items(disk, path, data=data, records=records, show=show):
                if item.kind == "damage":
                    refused.append(f"{path}: {item.line().strip()}")
                elif output is Form.JSON:
                    value = {"file": path, "kind": item.kind, **item.fields}
                    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
                else:
                    print(item.line())
        except BrokenPipeError:
            raise  # The reader has seen enough.
        except OSError as error:
            refused.append(f"{path}: {error.strerror}")
    if refused:
        raise Refused(refused)


def _files(paths: list[str]) -> list[str]:
    """The files named, and for a folder those in it."""
    files: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            inside = sorted(os.path.join(path, name) for name in os.listdir(path) if not name.startswith("."))
            files += [file for file in inside if os.path.isfile(file)]
        else:
            files.append(path)
    return files


def _topic(path: str) -> str | None:
    """The internal topic in whose partition's folder the file lies."""
    topic = os.path.basename(os.path.dirname(os.path.abspath(path))).rpartition("-")[0]
    return topic if topic in (CONSUMER_OFFSETS, TRANSACTION_STATE) else None


def _decoded(topic: str, key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """Key and value as Kafka's decoders print them; what is none of the topic's, as text."""
    try:
        shown = coordinator_record(topic, key, value)
    except ProtocolError as reason:
        text, payload = as_text(key, value)
        return text, f"{payload} ({reason})"
    shown_key, shown_value = (
        None if part is None else json.dumps(part, ensure_ascii=False, separators=(",", ":")) for part in shown
    )
    return shown_key, "<DELETE>" if shown_value is None else shown_value
