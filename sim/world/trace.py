"""What happened, in order: a digest that two runs of a seed must agree on, and the last lines to find causes in."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final, TextIO

LINES_KEPT: Final = 400
LINES_HASHED: Final = 256
"""How many lines the digest takes in at once."""


class Trace:
    """Events with their virtual time. Details must not depend on addresses, hash seeds or the real clock."""

    def __init__(self, seconds: Callable[[], float], file: TextIO | None = None) -> None:
        """`file` gets every line."""
        self._file = file
        self._seconds = seconds
        self._digest = hashlib.sha256()
        self._unhashed: list[str] = []
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self.count = 0

    def record(self, event: str, *details: object) -> None:
        line = f"{self._seconds():.6f} {event} {' '.join(map(str, details))}"
        self._unhashed.append(line)
        if len(self._unhashed) >= LINES_HASHED:
            self._hash()
        self.lines.append(line)
        if self._file is not None:
            print(line, file=self._file)
        self.count += 1

    def _hash(self) -> None:
        lines, self._unhashed = self._unhashed, []
        self._digest.update("".join(f"{line}\n" for line in lines).encode())

    def digest(self) -> str:
        """SHA-256 of all events so far, in hex."""
        self._hash()
        return self._digest.hexdigest()
