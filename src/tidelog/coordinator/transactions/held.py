"""Requests that wait for the end of a transaction: until it has come, or for as long as they may. Pure.

They are kept as the events that they are, and decided upon once more when they are let go: the state of their
transactional id is another one by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from tidelog.coordinator.deadlines import Deadlines
from tidelog.coordinator.transactions.events import AddPartitions, EndTransaction, InitProducer

HELD_MAX: Final = 16
"""Requests that wait for one transactional id; more are answered CONCURRENT_TRANSACTIONS. A producer has one or two."""

Holdable: TypeAlias = InitProducer | AddPartitions | EndTransaction


class HeldRequests:
    """Those of one coordinator."""

    def __init__(self) -> None:
        self._events: dict[int, Holdable] = {}
        """By request id."""
        self._by_name: dict[str, list[int]] = {}
        """Transactional id -> request ids, in the order in which they came."""
        self._deadlines = Deadlines()
        """By request id."""
        self._released: dict[str, None] = {}
        """Transactional ids whose transaction has ended."""

    @property
    def next_due_ms(self) -> int | None:
        """When to look again; 0: at once."""
        return 0 if self._released else self._deadlines.next_due_ms

    @property
    def has_released(self) -> bool:
        """Whether some requests need not wait any longer."""
        return bool(self._released)

    def hold(self, now_ms: int, event: Holdable) -> bool:
        """Keeps `event`; whether there is room, and it may wait."""
        waiting = self._by_name.get(event.transactional_id, ())
        if event.hold_ms <= 0 or len(waiting) >= HELD_MAX:
            return False
        self._events[event.request_id] = event
        self._by_name.setdefault(event.transactional_id, []).append(event.request_id)
        self._deadlines.set(event.request_id, now_ms + event.hold_ms)
        return True

    def first_of(self, name: str) -> Holdable | None:
        """Of those that wait for a transactional id the one that came first."""
        waiting = self._by_name.get(name)
        return self._events[waiting[0]] if waiting else None

    def release(self, name: str) -> None:
        """The transaction has ended: requests that wait for it, since this turn too, are to be served."""
        self._released[name] = None

    def take_released(self) -> list[str]:
        """The transactional ids that were released, and are not any more."""
        released, self._released = self._released, {}
        return list(released)

    def take_due(self, now_ms: int) -> Iterator[Holdable]:
        """Lets go those that have waited long enough."""
        while (request_id := self._deadlines.pop_due(now_ms)) is not None:
            assert isinstance(request_id, int)
            yield self.let_go(self._events[request_id])

    def let_go(self, event: Holdable) -> Holdable:
        """It waits no longer."""
        del self._events[event.request_id]
        self._deadlines.cancel(event.request_id)
        waiting = self._by_name[event.transactional_id]
        waiting.remove(event.request_id)
        if not waiting:
            del self._by_name[event.transactional_id]
            self._released.pop(event.transactional_id, None)
        return event
