"""`tidelog dump`: what is in files of a log directory.

The text is that of Kafka's `kafka-dump-log --print-data-log --deep-iteration`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from tidelog.cli.errors import Refused
from tidelog.cli.options import Form, Output
from tidelog.ports.real import SystemDisk
from tidelog.storage.dump import dump_items

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
    output: Output = Form.TABLE,
) -> None:
    """Print what is in files of a log directory, without a broker.

    table and kafka are the same here: Kafka's own text. json gives an object a line. What is damaged is told on
    stderr, and makes the exit code 1.
    """
    disk = SystemDisk()
    refused: list[str] = []
    for path in _files(files):
        try:
            if output is not Form.JSON:
                print(f"Dumping {path}")
            for item in dump_items(disk, path, data=data, records=records):
                if item.kind == "damage":
                    refused.append(f"{path}: {item.line().strip()}")
                elif output is Form.JSON:
                    value = {"file": path, "kind": item.kind, **item.fields}
                    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
                else:
                    print(item.line())
        except BrokenPipeError:
            raise  # Whoever reads has seen enough.
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
