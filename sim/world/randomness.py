"""Randomness that a seed replays: every part of a simulation draws from a stream of its own, named after it.

Streams are seeded with text, which `random.Random` hashes by SHA-512: the same in every process.
Because each part has its own stream, a change in one (one more draw by a client) doesn't shift all others.
"""

import random


class SeededRandom:
    """`tidelog.ports.random.Random`, and a few more draws that the simulator itself needs."""

    def __init__(self, seed: int | str, stream: str = "") -> None:
        self._name = f"{seed}/{stream}"
        self._random = random.Random(self._name)
        self._fraction = self._random.random
        self._bits = self._random.getrandbits

    def stream(self, name: str) -> "SeededRandom":
        """An independent stream; the same one whenever it is asked for, however much was drawn here."""
        return SeededRandom(self._name, name)

    def below(self, bound: int) -> int:
        """What `randrange` gives, by a shorter way: a run draws a hundred thousand times."""
        if bound < 1:
            raise ValueError(f"nothing is below {bound}")
        size = bound.bit_length()
        number = self._bits(size)
        while number >= bound:
            number = self._bits(size)
        return number

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def between(self, low: float, high: float) -> float:
        """A number from `low` to `high`, each as likely."""
        return low + (high - low) * self._fraction()

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return self._fraction() < probability

    def shuffle(self, items: list[object]) -> None:
        """Puts a list into a random order, in place."""
        self._random.shuffle(items)
