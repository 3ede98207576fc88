"""Finds a message's block in the table without parsing the others: a process uses a few dozen of 250 messages."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from tidelog.protocol.schema import Schema, parse

SUBJECTS: Final = (
    "core",
    "topics",
    "groups",
    "transactions",
    "admin",
    "security",
    "interbroker",
    "quorum",
    "share",
    "streams",
    "coordinator_records",
    "share_records",
    "data",
)
"""The modules of `tidelog.protocol.definitions`."""


@cache
def places() -> dict[str, tuple[str, int, int]]:
    """[name of message] -> the text with its block, where that begins and where it ends; in the order of the table.

    No copies of the blocks: they would take as much memory as the texts, 0.1 MiB.
    """
    found = {}
    for subject in SUBJECTS:
        text: str = import_module(f"tidelog.protocol.definitions.{subject}").DEFINITIONS
        start, last = 0, len(text.rstrip())
        while start < last:
            end = text.find("\n\n", start)
            end = last if end < 0 else end
            start += text[start] == "\n"
            found[text[start : text.index(" ", start)]] = (text, start, end)
            start = end + 2
    return found


def block(name: str) -> str:
    """A message in the notation of `tidelog.protocol.schema`. KeyError where there is no such message."""
    text, start, end = places()[name]
    return text[start:end]


def schema(name: str) -> Schema:
    """KeyError where there is no such message."""
    return parse(block(name))
