"""What the Python workers share: arguments, lines out, orders in."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

_lock = threading.Lock()


def options() -> dict[str, str]:
    """The arguments, `name=value`; with TIDELOG_WORKERS_DEBUG in the environment clients log everything to stderr."""
    if "TIDELOG_WORKERS_DEBUG" in os.environ:
        logging.basicConfig(level=logging.DEBUG, format="%(asctime)s.%(msecs)03d %(name)s %(message)s", datefmt="%T")
    return dict(argument.split("=", 1) for argument in sys.argv[1:])


def say(event: str, **fields: Any) -> None:
    """One line, at once."""
    line = json.dumps({"event": event, "at": time.time(), **fields})
    with _lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def leaving() -> threading.Event:
    """Set when the line `leave`, or the end of standard input, has come."""
    told = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            if line.strip() == "leave":
                break
        told.set()

    threading.Thread(target=listen, daemon=True).start()
    return told


def grouped(positions: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, list[int]]]:
    """(topic, partition, offset) of records -> [(topic, partition, [offset])], in order."""
    found: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset in positions:
        found.setdefault((topic, partition), []).append(offset)
    return [(topic, partition, offsets) for (topic, partition), offsets in sorted(found.items())]


def values_of(name: str, number: int, records: int) -> list[str]:
    """What a transaction of role=transact writes."""
    return [f"{name}-{number}-{record}" for record in range(records)]
