"""The random numbers that Kafka drew, as a source of randomness: another order or bound of draws is a failure."""

from __future__ import annotations

from collections.abc import Sequence


class Draws:
    """`tidelog.ports.random.Random` that replays [bound, value] pairs and insists on each bound."""

    def __init__(self, draws: Sequence[Sequence[int]]) -> None:
        self._draws = draws
        self._taken = 0

    def below(self, bound: int) -> int:
        assert self._taken < len(self._draws), f"draw {self._taken + 1} of {len(self._draws)}, with bound {bound}"
        expected_bound, value = self._draws[self._taken]
        assert bound == expected_bound, f"draw {self._taken}: bound {bound}, Kafka's was {expected_bound}"
        self._taken += 1
        return value

    def token(self, size: int) -> bytes:
        raise AssertionError(f"{size} random bytes asked for, where Kafka draws numbers only")

    def check_exhausted(self) -> None:
        """Kafka drew no more than was taken."""
        assert self._taken == len(self._draws), f"{self._taken} of {len(self._draws)} draws taken"
