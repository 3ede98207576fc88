"""What an operation is made of: calls and pauses, which drivers carry out, and the deadline that ends it. No I/O."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from tidelog.client.addresses import Address

T = TypeVar("T")


class Purpose(enum.Enum):
    """Which connection to a broker carries a request: brokers answer each connection in order, so that a fetch that
    waits for records would hold up what is asked behind it."""

    GENERAL = enum.auto()
    PRODUCE = enum.auto()
    FETCH = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One request for one broker. `timeout_s` bounds connecting, sending and waiting together; of a fetch, until its
    answer begins to arrive, and then each wait for more of it."""

    address: Address
    message: Any
    timeout_s: float
    purpose: Purpose = Purpose.GENERAL
    owner: object = None
    """Whose connection carries it; None: that of all callers with this purpose."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pause:
    """Nothing to do for so long."""

    seconds: float


Step: TypeAlias = "Sequence[Call] | Pause"
Outcomes: TypeAlias = "Sequence[Any]"
"""A response message or a `ClientError` for each call, in their order; nothing after a pause."""
Operation: TypeAlias = Generator[Step, Outcomes, T]


@dataclasses.dataclass(frozen=True, slots=True)
class Deadline:
    """The moment, in the monotonic seconds of `now`, at which an operation gives up."""

    now: Callable[[], float]
    at: float
    timeout_s: float

    @property
    def remaining_s(self) -> float:
        """Seconds left, 0 when it has passed."""
        return max(0.0, self.at - self.now())
