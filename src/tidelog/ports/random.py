"""Randomness that a simulation can replay."""

from typing import Protocol


class Random(Protocol):
    """A source of random numbers; `ports.real.SystemRandom` in production, seeded in the simulator."""

    def below(self, bound: int) -> int:
        """A number in 0 .. bound - 1, each as likely; `bound` is at least 1."""
        ...

    def token(self, size: int) -> bytes:
        """`size` random bytes, unpredictable in production: for topic ids, session ids, member ids."""
        ...
