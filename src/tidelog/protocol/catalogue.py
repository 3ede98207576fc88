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
def blocks() -> dict[str, str]:
    """[name of message] -> its block of text, in the order of the table."""
    found = {}
    for subject in SUBJECTS:
        definitions: str = import_module(f"tidelog.protocol.definitions.{subject}").DEFINITIONS
        for block in definitions.strip().split("\n\n"):
            found[block[: block.index(" ")]] = block
    return found


def schema(name: str) -> Schema:
    """KeyError where there is no such message."""
    return parse(blocks()[name])
