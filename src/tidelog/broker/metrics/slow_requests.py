"""Slow requests in the broker's log, with their phases: `slow.request.ms` is what counts as slow.

    slow request: api=Produce client=app peer=127.0.0.1:50412 total_ms=1204 queue_ms=0 local_ms=2 remote_ms=1202

`queue` is before the request's handler was called, `local` the handler itself, `remote` what it waited for: followers,
flushes, other members. A long poll waits because its client wants to: only the rest of its time counts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.peer import Peer
    from tidelog.metrics.requests import ApiTimes

logger: Final = logging.getLogger(__name__)

LONG_POLLS: Final = frozenset({"Fetch", "JoinGroup", "SyncGroup", "ShareFetch"})
"""Requests that wait for records, or for other members, for as long as they ask to."""
LINES_MAX: Final = 10
"""Lines in a window: a broker in trouble has other things to write."""
WINDOW_NS: Final = 10_000_000_000


class SlowRequests:
    """Of one broker."""

    def __init__(self, threshold_ms: int, now_ns: Callable[[], int]) -> None:
        self._threshold_us = threshold_ms * 1000
        self._now_ns = now_ns
        self._window_began_ns = -WINDOW_NS
        self._lines = 0
        self._left_out = 0

    def look(self, times: ApiTimes, peer: Peer, queue_us: int, local_us: int, remote_us: int = 0) -> None:
        """A request was answered, after so many microseconds in each phase: counts it and logs it if it was slow."""
        total_us = queue_us + local_us + remote_us
        if total_us < self._threshold_us:
            return
        if times.name in LONG_POLLS and queue_us + local_us < self._threshold_us:
            return
        times.slow += 1
        now_ns = self._now_ns()
        if now_ns - self._window_began_ns >= WINDOW_NS:
            if self._left_out:
                logger.warning("slow requests not logged: count=%d", self._left_out)
            self._window_began_ns, self._lines, self._left_out = now_ns, 0, 0
        if self._lines >= LINES_MAX:
            self._left_out += 1
            return
        self._lines += 1
        logger.warning(
            "slow request: api=%s client=%s peer=%s:%d total_ms=%d queue_ms=%d local_ms=%d remote_ms=%d",
            times.name,
            peer.client_id,
            peer.address,
            peer.port,
            total_us // 1000,
            queue_us // 1000,
            local_us // 1000,
            remote_us // 1000,
        )
