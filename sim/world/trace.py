"""What happened, in order: a digest that two runs of a seed must agree on, and the last lines to find causes in."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final, TextIO

LINES_KEPT: Final = 400


class Trace:
    """Events with their virtual time. Details must not depend on addresses, hash seeds or the real clock."""

    def __init__(self, seconds: Callable[[], float], file: TextIO | None = None) -> None:
        """`file` gets every line."""
        self._file = file
        self._seconds = seconds
        self._digest = hashlib.sha256()
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self.count = 0

    def record(self, event: str, *details: object) -> None:
        line = f"{self._seconds():.6f} {event} {' '.join(map(str, details))}"
        self._digest.update(line.encode())
        self._digest.update(b"\n")
        self.lines.append(line)
        if self._file is not None:
            print(line, file=self._file)
        self.count += 1

    def digest(self) -> str:
        """SHA-256 of all events so far, in hex."""
        return self._digest.hexdigest()
