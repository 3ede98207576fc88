"""What the clients' tests share: one broker a module, names of their own, waiting with a deadline, a set of records."""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

DEADLINE_S: Final = 180.0
"""How long any single thing may take on a busy machine."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS: Final = 1_600_000_000_000
"""Timestamp of the first record of `records`; they are a second apart."""

_numbers = itertools.count()


class Sent(NamedTuple):
    """A record, in every client's terms."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


def records(*, without_both: bool = True) -> list[Sent]:
    """Records with everything that a record can have or lack; some clients refuse to send neither key nor value."""
    every = [
        Sent(b"key", b"value", [], START_MS),
        Sent(None, b"no key", [], START_MS + 1000),
        Sent(b"no value", None, [], START_MS + 2000),
        Sent(None, None, [], START_MS + 3000),
        Sent(b"", b"", [], START_MS + 4000),
        Sent(b"h", b"headers", [("a", b"1"), ("a", b"2"), ("empty", b"")], START_MS + 5000),
        Sent("ключ".encode(), "значение".encode(), [("ü", "ß".encode())], START_MS + 6000),
        Sent(b"large", bytes(range(256)) * 200, [], START_MS + 7000),
    ]
    return [record for record in every if without_both or record[:2] != (None, None)]


def topic_name(what: str) -> str:
    """A name that no other test of this process has."""
    return f"{what}-{next(_numbers)}"
