"""How many producers a broker remembers, in all its logs together, and which it forgets first.

An idempotent producer is remembered in each partition that it writes to until it was silent for
`producer.id.expiration.ms`, a day. Clients that make a new producer for each of their tasks would fill the memory:

    up to 9/10 of the maximum    nothing happens
    from there on                those silent for `RECENT_MS` go, the longest silent first; where that is not enough new
                                 producer ids are given out slowly (`ProducerIds`)
    above 19/20                  those silent for `KEPT_MS` go, too; in both cases until 4/5 of the maximum are left
    an eighth above it           producers that are not known yet are refused, with an error upon which they try again

A producer with an open transaction stays. **Why nothing is written twice**: of a producer that is forgotten the next
batch is taken whatever its sequence number, as in Kafka after producer.id.expiration.ms (KIP-360). A batch that is here
already would be written again, but a client repeats one for `delivery.timeout.ms` at most, two minutes by default, and
none that was heard of within `KEPT_MS` is forgotten. Silence counts from when this broker last saw the producer:
timestamps are the client's, and may lie.
"""

from __future__ import annotations

import heapq
import logging
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from tidelog.storage.producer_entries import is_expired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.ports.clock import Clock
    from tidelog.storage.producer_entries import ProducerEntry
    from tidelog.storage.producer_state import ProducerState

logger = logging.getLogger(__name__)

PRODUCERS_MAX: Final = 200_000
"""Default of `producer.ids.max`: about 70 MB."""
RECENT_MS: Final = 600_000
"""Silent for less: forgotten only above 19/20 of the maximum."""
KEPT_MS: Final = 180_000
"""Silent for less: not forgotten for others. A client's `delivery.timeout.ms`, and a minute more."""
LOOK_INTERVAL_MS: Final = 1_000
"""Between two looks while there are too many."""
LOOK_IN_VAIN_INTERVAL_MS: Final = 10_000
"""The same, after none could be forgotten."""
_TOLD_INTERVAL_MS: Final = 60_000


class ProducerLimit:
    """Counts the producers of all logs. Owned by the thread that owns the logs; `Choice.run` may happen elsewhere."""

    __slots__ = ("_clock", "_new", "_now_ms", "_told_ms", "count", "count_max", "is_full", "is_pressed", "on_crowded")

    def __init__(self, clock: Clock, count_max: int = PRODUCERS_MAX) -> None:
        self._clock = clock
        self.count_max = count_max
        self.count = 0
        """Producers, each once for every partition; those that expired since the last look are counted still."""
        self.is_pressed = False
        """Whether new producer ids are to be given out slowly."""
        self.on_crowded: Callable[[], object] = lambda: None
        """Called when it is time to look which producers may go."""
        self.is_full = False
        """Whether producers that are not known yet are to be refused."""
        self._new = 0
        """Since the last look."""
        self._now_ms = 0
        self._told_ms: int | None = None

    @property
    def is_crowded(self) -> bool:
        """Whether some should go."""
        return self.count >= self.count_max - self.count_max // 10

    def now_ms(self) -> int:
        """Monotonic time in whole seconds; the same object for all of a second, so that it costs no memory."""
        now_ms = self._clock.monotonic_ms()
        if not 0 <= now_ms - self._now_ms < 1_000:
            self._now_ms = now_ms - now_ms % 1_000
        return self._now_ms

    def added(self, count: int) -> None:
        """So many producers are new in some log."""
        self.count += count
        self._new += count
        self._judge()
        if self._new > self.count_max // 50 and self.is_crowded:
            self._new = 0
            self.on_crowded()

    def _judge(self) -> None:
        self.is_full = self.count >= self.count_max + self.count_max // 8

    def looked(self, count: int, forgotten: int) -> None:
        """So many there are, after so many were forgotten to make room."""
        self.count = count
        self._new = 0
        self._judge()
        self.is_pressed = self.is_crowded
        now_ms = self._clock.monotonic_ms()
        if (forgotten or self.is_pressed) and (self._told_ms is None or now_ms - self._told_ms >= _TOLD_INTERVAL_MS):
            self._told_ms = now_ms
            logger.warning(
                "producers_crowded: known=%d max=%d forgotten=%d new_ids=%s",
                count,
                self.count_max,
                forgotten,
                "refused" if self.is_full else "throttled" if self.is_pressed else "free",
            )


class Choice:
    """Which producers go: chosen in any thread from what was known when it was made, carried out by the logs' own.

    An entry is replaced whenever its producer is heard of, so one that is still there then has been silent since.
    """

    def __init__(
        self, states: Iterable[ProducerState], limit: ProducerLimit, now_ms: int, wall_ms: int, expiration_ms: int
    ) -> None:
        """`now_ms` is monotonic; `expiration_ms` is `producer.id.expiration.ms`, by `wall_ms`."""
        self._known: list[tuple[ProducerState, Sequence[ProducerEntry]]] = [
            (state, tuple(state.entries.values())) for state in states
        ]
        self._limit = limit
        self._count_max = limit.count_max
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._expiration_ms = expiration_ms
        self._chosen: list[tuple[ProducerState, ProducerEntry]] = []
        self._expired_count = 0

    def run(self) -> None:
        """Chooses."""
        count = sum(len(entries) for _, entries in self._known)
        silent: list[tuple[int, int, ProducerState, ProducerEntry]] = []
        for state, entries in self._known:
            for entry in entries:
                if entry.transaction_first_offset >= 0:
                    continue
                silent_ms = self._now_ms - entry.seen_ms
                # One that copies old records has their timestamps, and is heard of all the same.
                may_expire = silent_ms >= min(KEPT_MS, self._expiration_ms)
                if may_expire and is_expired(entry, self._wall_ms, self._expiration_ms):
                    self._chosen.append((state, entry))
                elif silent_ms >= KEPT_MS:
                    silent.append((entry.seen_ms, entry.last_timestamp, state, entry))
        self._expired_count = len(self._chosen)
        count -= self._expired_count
        if count < self._count_max - self._count_max // 10:
            return
        excess = count - (self._count_max - self._count_max // 5)
        # By time only: states and entries are not compared.
        for seen_ms, _, state, entry in heapq.nsmallest(excess, silent, key=itemgetter(0, 1)):
            if self._now_ms - seen_ms < RECENT_MS and count <= self._count_max - self._count_max // 20:
                break
            self._chosen.append((state, entry))
            count -= 1

    def carry_out(self, states: Iterable[ProducerState]) -> int:
        """Forgets those that are still as they were; gives how many. `states` are those of all logs now."""
        forgotten = 0
        for state, entry in self._chosen:
            if state.entries.get(entry.producer_id) is entry:
                del state.entries[entry.producer_id]
                forgotten += 1
        count = sum(len(state.entries) for state in states)
        self._limit.looked(count, max(0, forgotten - self._expired_count))
        return forgotten
