"""Printing: tables by rich, imported only where one is printed; JSON; plain lines."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def print_json(value: Any) -> None:
    """A value as JSON on stdout, indented for eyes; programs don't mind."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table on stdout. A column whose name starts with "#" holds numbers, shown to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    lines = box.SIMPLE_HEAD if (sys.stdout.encoding or "").lower().startswith("utf") else box.ASCII2
    table = Table(box=lines, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(
            column.removeprefix("#"), justify="right" if column.startswith("#") else "left", overflow="fold"
        )
    for row in rows:
        # Text, not str: what comes from a cluster must not be read as rich's markup.
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        # A pipe has no width: nothing should be folded for one that is assumed. Nor does rich print into it: where the
        # reader has gone it would end the program, and not as every other command does.
        console = Console(width=10_000, file=io.StringIO())
        console.print(table)
        assert isinstance(console.file, io.StringIO)
        sys.stdout.write(console.file.getvalue())
        return
    console.print(table)


def warn(text: str) -> None:
    """A line on stderr for something that was done all the same."""
    print(f"WARNING: {text}", file=sys.stderr)


def ids(numbers: Iterable[int]) -> str:
    """Broker ids as Kafka's tools list them."""
    return ",".join(str(number) for number in numbers)


def size(count: int) -> str:
    """Bytes for people: 1,024-based, one decimal from KiB on."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        value /= 1024
        if value < 1024 or unit == "PiB":
            break
    return f"{value:.1f} {unit}"
