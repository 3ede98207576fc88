"""rot          one bit turns over in a batch that a broker has on disk, header or records: it is mended within 30 s

Readers of the run must not see it: they fail by a value that is not what was sent. What mends it is the scrub, which
runs without rests between its passes here, or a read that comes to the batch first.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, Final

from bench.peers.kafka import until

from tests.chaos.faults import Kill
from tests.chaos.targets import Target
from tidelog.records.batch import iterate_headers

MENDED_S_MAX: Final = 30.0
SETTINGS: Final[dict[str, Any]] = {
    "log.initial.task.delay.ms": 1000,
    "log.scrub.interval.ms": 0,
    "log.scrub.max.bytes.per.second": 100_000_000,
}
"""Of brokers that rot: the scrub has to come by in time."""
NEWEST: Final = 5
"""Batches at a file's end that are left alone: not all replicas may have them yet."""


class Rot(Kill):
    """By writing into the file, as only a device would."""

    name = "rot"
    of_store = True

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._path = Path()
        self._position = 0
        self._before = b""

    def strike(self, target: Target, victim: int) -> None:
        until(lambda: self._choose(target, victim), f"broker {victim} has files with more than {NEWEST} batches")
        content = self._path.read_bytes()
        batches = [(at, header.size) for at, header in iterate_headers(content)][:-NEWEST]
        at, size = self._random.choice(batches)
        # Half of the time in the fields that the checksum leaves out, or the checksum.
        byte = at + self._random.randrange(21 if self._random.random() < 0.5 else size)
        self._position, self._before = byte, content[byte : byte + 1]
        self._write(bytes((content[byte] ^ 1 << self._random.randrange(8),)))

    def _choose(self, target: Target, victim: int) -> bool:
        folders = [path for folder in target.log_dirs(victim) for path in sorted(folder.glob("chaos-*"))]
        files = [path for folder in folders for path in sorted(folder.glob("*.log"))]
        self._random.shuffle(files)
        found = next((path for path in files if len(list(iterate_headers(path.read_bytes()))) > NEWEST), None)
        self._path = self._path if found is None else found
        return found is not None

    def _write(self, value: bytes) -> None:
        descriptor = os.open(self._path, os.O_WRONLY)
        try:
            os.pwrite(descriptor, value, self._position)
        finally:
            os.close(descriptor)

    def _is_mended(self) -> bool:
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                return file.read(1) == self._before
        except FileNotFoundError:
            return True  # Retention took it.

    def mend(self, target: Target, victim: int) -> None:
        """The broker's own doing."""
        until(self._is_mended, f"byte {self._position} of {self._path} is as it was", MENDED_S_MAX, 0.05)
