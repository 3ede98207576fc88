"""What follows from one event: records to append, then answers, messages and timers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

W = TypeVar("W")
R = TypeVar("R")


@dataclass(slots=True)
class Result(Generic[W, R]):
    """Outcome of `handle`. The order in which the shell carries it out: replay `writes`, append them in one batch, and
    when the batch is committed give `replies`. If the append fails, no reply holds and the state is loaded anew.
    """

    writes: list[W] = field(default_factory=list)
    replies: list[tuple[int, R]] = field(default_factory=list)
    """(request id, answer); a request may be answered by a later event than its own."""
    goes_on: bool = False
    """Whether this was one step of a longer work: before the next `TimePassed` clients are to have their turn."""
