"""What a command tells the caller to change; kept apart from typer so that raising it loads nothing."""

from __future__ import annotations

from collections.abc import Sequence


class WrongUsage(Exception):
    """Arguments that make no sense together: exit code 2."""


class Refused(Exception):
    """Work that was refused, in part or whole: exit code 1, a line on stderr for each reason."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)
