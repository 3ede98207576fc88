"""Whether all replicas hold the same: their files, read as they lie, when the brokers have stopped.

Followers append what their leaders sent, byte for byte, so the batches of every replica are equal to the last byte once
all are in sync; where each cuts them into segments is its own affair.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_HEADER_SIZE: Final = 61


def compare(folders: dict[int, Path]) -> str | None:
    """What differs between the replicas of a partition, [broker id] -> its folder; None if nothing does."""
    ids = list(folders)
    readers = [_batches(folder) for folder in folders.values()]
    for batches in itertools.zip_longest(*readers, fillvalue=b""):
        if any(batch != batches[0] for batch in batches):
            said = (f"broker {id}: {_say(batch)}" for id, batch in zip(ids, batches, strict=True))
            return f"{next(iter(folders.values())).name}: " + "; ".join(said)
    return None


def writers(folder: Path, offsets: set[int]) -> dict[int, tuple[int, int]]:
    """Offset -> (producer id, producer epoch) of the batch that holds it, for those of `offsets` that are there."""
    found: dict[int, tuple[int, int]] = {}
    for batch in _batches(folder):
        if len(batch) < _HEADER_SIZE:
            continue
        base, last_delta = int.from_bytes(batch[:8], "big"), int.from_bytes(batch[23:27], "big")
        producer_id, epoch = struct.unpack_from(">qh", batch, 43)
        found.update(
            (offset, (producer_id, epoch)) for offset in range(base, base + last_delta + 1) if offset in offsets
        )
    return found


def _batches(folder: Path) -> Iterator[bytes]:
    """The batches of a log, header and records, in order."""
    for path in sorted(folder.glob("*.log")):
        with path.open("rb") as file:
            while len(prefix := file.read(12)) == 12:
                yield prefix + file.read(int.from_bytes(prefix[8:], "big"))
            if prefix:
                yield prefix  # A torn tail: whoever compares it will find it.


def _say(batch: bytes) -> str:
    if len(batch) < _HEADER_SIZE:
        return f"a torn tail of {len(batch)} bytes" if batch else "nothing"
    base, epoch = int.from_bytes(batch[:8], "big"), int.from_bytes(batch[12:16], "big", signed=True)
    last = base + int.from_bytes(batch[23:27], "big")
    return f"offsets {base} to {last} of epoch {epoch}, {len(batch)} bytes"
