"""Time that moves only when it is told to."""

from collections.abc import Callable
from typing import Final

EPOCH_MS: Final = 1_700_000_000_000
"""Wall time at which every simulation begins, milliseconds since 1970."""


class ManualClock:
    """`tidelog.ports.clock.Clock` without a loop: for scenarios that run in one thread from beginning to end."""

    def __init__(self) -> None:
        self.now_ms = 0

    def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    def wall_ms(self) -> int:
        return EPOCH_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class LoopClock:
    """`tidelog.ports.clock.Clock` of one machine on a virtual loop's time; restarted processes see it go on."""

    def __init__(self, seconds: Callable[[], float], *, skew_ms: int = 0, rate: float = 1.0) -> None:
        """`seconds` is the loop's `time`; `rate` is how fast this machine's clocks go, 1.001 is a second in 17 minutes.

        `skew_ms` is how far its wall clock is off; it may be set at any time: a jump.
        """
        self._seconds = seconds
        self._rate = rate
        self.skew_ms = skew_ms

    def wall_ms(self) -> int:
        return EPOCH_MS + self.skew_ms + int(self._seconds() * self._rate * 1000)

    def monotonic_ms(self) -> int:
        return int(self._seconds() * self._rate * 1000)
