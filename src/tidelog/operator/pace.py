"""How fast a reassignment may copy: as the operator says, and slower while followers cannot keep up. No I/O.

A copy competes with what followers fetch. When replicas that were in sync fall out of the ISR on live brokers, the rate
is halved, as often as it takes; when none has been out for a while, it grows again, up to what the operator allows.
Without a limit of the operator's nothing is throttled until that happens.
"""

from __future__ import annotations

from typing import Final

RATE_MIN: Final = 64 * 1024
"""Bytes a second; below it a copy would not end."""
SLOWEST: Final = 16
"""Or this part of a limit that is low itself."""
SLOWER_EVERY_S: Final = 10.0
"""A throttle is measured over some ten seconds by brokers: what it does shows after that."""
FASTER_AFTER_S: Final = 30.0
"""So long no follower may be out before it goes faster."""
RATE_MAX: Final = 1 << 40
"""No broker copies as fast: a throttle that has grown to it is taken away. Settings end at 2 ** 63 - 1."""
SLOWER: Final = 0.5
FASTER: Final = 1.5


class Pace:
    """The rate for one run. `limit` is the operator's, in bytes a second for each broker; None: none."""

    def __init__(self, limit: int | None, now: float) -> None:
        self.limit = limit
        self.rate = limit
        """What is to be set now; None: no throttle."""
        self._changed_at = now - SLOWER_EVERY_S
        self._trouble_at = now

    def limit_to(self, limit: int | None) -> None:
        """Another limit of the operator's, from now on."""
        self.limit = limit
        self.rate = limit

    def see(self, now: float, out_of_sync: int, measured: float) -> bool:
        """Takes account of followers that fell out of the ISR, and of the bytes a second copied; True: `rate` changed.

        `now` is in monotonic seconds.
        """
        before = self.rate
        if out_of_sync:
            self._trouble_at = now
            if now - self._changed_at >= SLOWER_EVERY_S:
                present = self.rate if self.rate is not None else measured
                floor = RATE_MIN if self.limit is None else min(RATE_MIN, max(1, self.limit // SLOWEST))
                self.rate = max(floor, int(present * SLOWER))
        elif self.rate is not None and self.rate != self.limit and self._is_quiet(now):
            grown = int(self.rate * FASTER)
            if self.limit is not None:
                self.rate = min(self.limit, grown)
            else:
                self.rate = grown if grown < RATE_MAX else None
        if self.rate == before:
            return False
        self._changed_at = now
        return True

    def _is_quiet(self, now: float) -> bool:
        return now - max(self._trouble_at, self._changed_at) >= FASTER_AFTER_S
