"""What is measured against a quota: a rate over samples, and a bucket of tokens. Kafka's arithmetic.

    SampledRate   bytes, thread time and connections: the sum of the last samples, divided by the time they cover
    TokenBucket   changes of the cluster (KIP-599): tokens come at the quota's rate, and may go below zero once

A rate of fewer samples than the window has counts as if the missing ones were there and empty. So a client may send ten
seconds' worth at once before it is throttled (with the default of 11 samples of a second).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

MS: Final = 1000
THROTTLE_MS_MAX: Final = (1 << 31) - 1
"""Throttle times are 32 bits wide on the wire."""


class Window(NamedTuple):
    """Over what a rate is measured (`quota.window.num`, `quota.window.size.seconds`)."""

    samples: int
    sample_ms: int

    @property
    def burst_s(self) -> float:
        """Seconds of a token bucket's rate that it holds."""
        return self.samples * self.sample_ms / MS

    @property
    def full_s(self) -> float:
        """Seconds of whole samples, without the one that is being filled."""
        return (self.samples - 1) * self.sample_ms / MS


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.start(now_ms)

    def start(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class SampledRate:
    """How much passes in a second."""

    __slots__ = ("_current", "_samples", "_window", "last_ms")

    def __init__(self, window: Window, now_ms: int) -> None:
        self._window = window
        self._samples = [_Sample(now_ms)]
        """A ring of one more than the window has: the oldest one overlaps the window's beginning."""
        self._current = 0
        self.last_ms = now_ms
        """When it was last used."""

    def record(self, value: float, now_ms: int) -> None:
        """Counts `value`; a negative one takes back what was counted before."""
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._window.sample_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_ms = self.last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        """The rate now."""
        total, window_ms = self._measure(now_ms)
        return total / (window_ms / MS)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Milliseconds after which the rate would be `bound` a second again, were nothing counted meanwhile; 0: it is
        not above it."""
        total, window_ms = self._measure(now_ms)
        rate = total / (window_ms / MS)
        if rate <= bound:
            return 0
        return min(_rounded((rate - bound) / bound * window_ms), THROTTLE_MS_MAX)

    def _advance(self, now_ms: int) -> _Sample:
        self._current = (self._current + 1) % (self._window.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].start(now_ms)
        return self._samples[self._current]

    def _measure(self, now_ms: int) -> tuple[float, int]:
        """The sum of what was counted, and the milliseconds in which it was."""
        samples, sample_ms = self._window
        expired_ms = now_ms - samples * sample_ms
        total, oldest_ms = 0.0, now_ms
        for sample in self._samples:
            if sample.last_ms <= expired_ms:
                sample.start(now_ms)
            total += sample.value
            oldest_ms = min(oldest_ms, sample.start_ms)
        elapsed_ms = now_ms - oldest_ms
        missing = max(samples - 1 - elapsed_ms // sample_ms, 0)
        return total, max(elapsed_ms + missing * sample_ms, 1)


class TokenBucket:
    """How much may still be done."""

    __slots__ = ("_tokens", "_window", "last_ms")

    def __init__(self, window: Window, now_ms: int) -> None:
        self._window = window
        self._tokens = math.inf
        """Below zero after a request that took more than there was; infinite: as full as its quota lets it be."""
        self.last_ms = now_ms

    @property
    def is_untouched(self) -> bool:
        """Whether it is as a new one: nothing was ever asked of it."""
        return math.isinf(self._tokens)

    def record(self, value: float, bound: float, now_ms: int) -> None:
        """Takes `value` tokens out; they come back at `bound` a second."""
        self._refill(bound, now_ms)
        self._tokens -= value

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Milliseconds until there is no token missing."""
        self._refill(bound, now_ms)
        if self._tokens >= 0:
            return 0
        return min(_rounded(-self._tokens / bound * MS), THROTTLE_MS_MAX)

    def _refill(self, bound: float, now_ms: int) -> None:
        # Infinity times no time is no number.
        gained = math.inf if math.isinf(bound) else bound * (now_ms - self.last_ms) / MS
        self._tokens = min(self._tokens + gained, bound * self._window.burst_s)
        self.last_ms = now_ms


def _rounded(milliseconds: float) -> int:
    """To the nearest, halves up; a quota of nearly nothing gives what no int of Java's holds."""
    return math.floor(min(milliseconds, float(THROTTLE_MS_MAX)) + 0.5)
