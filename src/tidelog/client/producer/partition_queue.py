"""What a producer has for one partition: batches that fill, wait and are in flight, and the order among them. No I/O.

    append --> open --close--> waiting --take--> in flight --acknowledged | failed
                                  ^                  |
                                  '---- requeue -----'  (retriable errors; also the parts of a batch that was split)

An idempotent producer has up to `in_flight_max` batches of a partition on their way. Their sequence numbers keep the
order: a leader appends a batch only behind the one before. So when one of them fails, those behind it come back with
OUT_OF_ORDER_SEQUENCE_NUMBER, and all are sent again, in their order, once nothing is in flight any more.

A leader knows a batch again that it gets twice, if it is one of the last five of the producer. So no new batch is sent
while the oldest one that is not acknowledged would be further behind it than that, whatever was acknowledged between.

Until a leader has acknowledged something of an epoch, one batch is in flight: a leader that knows nothing of a producer
takes any sequence, so that the second batch could go in before the first. The same holds for a topic that was deleted
and made again (`topic_replaced`): what waits for it, and is in no log, begins another epoch.

A batch that fails for good leaves a gap in the sequences. What is behind it then needs another epoch, in which
sequences begin at 0 (KIP-360): `take` asks for it through `renew` once each batch of the old epoch is
acknowledged or has failed.

Invariants: `waiting` is sorted by `order`, and batches that were sent before (they have a sequence) come first.
A batch whose records may be in the log under one epoch is never signed with another.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from itertools import dropwhile
from operator import attrgetter
from typing import Any, Final

from tidelog.client.producer.batches import NO_IDENTITY, SEQUENCES, Batch, Identity
from tidelog.model.identifiers import ZERO_TOPIC_ID, TopicPartition

_BY_ORDER: Final[Any] = attrgetter("order")


class PartitionQueue:
    """One partition's batches. `in_flight_max` is 1 for producers that are not idempotent: nothing else keeps order."""

    __slots__ = (
        "_has_lost", "_identity", "_is_known", "_next_order", "_next_sequence", "_window", "attempts", "has_gap",
        "in_flight", "in_flight_max", "is_idempotent", "is_retrying", "last_error", "needs_leader", "open", "resume_at",
        "topic_id", "topic_partition", "waiting",
    )  # fmt: skip

    def __init__(self, topic_partition: TopicPartition, *, is_idempotent: bool, in_flight_max: int) -> None:
        self.topic_partition = topic_partition
        self.topic_id = ZERO_TOPIC_ID
        """Of the topic that batches were sent to last; zero where none was, or none is told."""
        self.is_idempotent = is_idempotent
        self.in_flight_max = in_flight_max
        self.open: Batch | None = None
        self.waiting: list[Batch] = []
        self.in_flight: list[Batch] = []
        self.attempts = 0
        """Failures since the last success."""
        self.resume_at = 0.0
        """Monotonic seconds before which nothing is sent."""
        self.needs_leader = False
        """Whether the leader is to be asked for before anything is sent."""
        self.last_error: Exception | None = None
        """Why the last batch that failed is sent again."""
        self.is_retrying = False
        self.has_gap = False
        """Whether the next batch without a sequence begins another epoch."""
        self._has_lost = False
        """Whether that is because a batch with a sequence has failed: the leader may lack what came before."""
        self._next_order = 0
        self._identity = NO_IDENTITY
        self._is_known = False
        """Whether the leader has acknowledged a batch of this identity."""
        self._next_sequence = 0
        self._window: dict[Batch, bool] = {}
        """Batches of this identity from the oldest that is not acknowledged on, by sequence; whether each is open."""

    @property
    def is_empty(self) -> bool:
        """Whether every record was acknowledged or has failed."""
        return self.open is None and not self.waiting and not self.in_flight

    @property
    def batches(self) -> int:
        """How many batches are not acknowledged."""
        return (self.open is not None) + len(self.waiting) + len(self.in_flight)

    @property
    def all_batches(self) -> list[Batch]:
        """Those that are not acknowledged."""
        return [*self.in_flight, *self.waiting, *([] if self.open is None else [self.open])]

    def begin(self, ready_at: float, deadline: float) -> Batch:
        """Opens a batch."""
        assert self.open is None
        self.open = Batch(self.topic_partition, ready_at, deadline, (self._next_order,))
        self._next_order += 1
        return self.open

    def close(self) -> None:
        """The open batch takes no more records."""
        if self.open is not None:
            self.waiting.append(self.open)
            self.open = None

    def is_ready(self, now: float) -> bool:
        """Whether a batch may be sent at `now`."""
        if not self.waiting or self.needs_leader or now < self.resume_at:
            return False
        if self.in_flight and (self.is_retrying or self.needs_identity):
            return False
        is_new = self.waiting[0].base_sequence < 0
        if is_new and len(self._window) >= self.in_flight_max and not self.needs_identity:
            return False
        return len(self.in_flight) < (self.in_flight_max if self._is_known else 1)

    def take(self, renew: Callable[[Identity], Identity]) -> Batch:
        """The next batch, which is in flight from now on.

        `renew(identity)` gives the identity to go on with: one that is not `identity`, where the partition needs it.
        """
        self.is_retrying = False
        if self.needs_identity:
            self._identity = renew(self._identity)
            self._next_sequence = 0
            self._window.clear()
            self.has_gap = self._has_lost = self._is_known = False
        batch = self.waiting.pop(0)
        if self.is_idempotent and batch.base_sequence < 0:
            batch.sign(self._identity, self._next_sequence)
            self._next_sequence = (self._next_sequence + batch.count) % SEQUENCES
            self._window[batch] = True
        self.in_flight.append(batch)
        return batch

    @property
    def needs_identity(self) -> bool:
        """Whether the next batch needs another identity: not while one with a sequence of the old epoch comes first."""
        if not self.is_idempotent or not self.waiting or self.waiting[0].base_sequence >= 0:
            return False
        return self.has_gap or self._identity is NO_IDENTITY

    def restart(self) -> None:
        """The producer has another identity: sequences begin at 0. Nothing may be in flight or sent before."""
        assert not self.in_flight
        self._identity = NO_IDENTITY
        self._window.clear()
        self.has_gap = self._has_lost = self._is_known = False

    def topic_replaced(self, *, begins_epoch: bool) -> None:
        """The partition is that of another topic of its name: its leader knows nothing of this producer.

        Or metadata came from a broker that lags, and the topic is the former one in truth. So batches that may be in
        its log keep their sequences, by which it knows them again. What is behind them begins another epoch, unless
        that is not to be had (`begins_epoch`): in a transaction sequences go on.
        """
        self._is_known = False
        if begins_epoch:
            self.has_gap = True
            for batch in dropwhile(lambda batch: batch.is_uncertain, self.waiting):
                _unsign(batch)

    # What became of a batch in flight.

    def acknowledged(self, batch: Batch) -> None:
        """The batch is in the log."""
        self.in_flight.remove(batch)
        self._is_known = self._is_known or batch.identity == self._identity
        self.attempts = 0
        self.last_error = None
        self._leaves_window(batch)

    def _leaves_window(self, batch: Batch) -> None:
        """The batch is acknowledged or has failed."""
        window = self._window
        if batch in window:
            window[batch] = False
        while window and not window[first := next(iter(window))]:
            del window[first]

    def requeue(self, batch: Batch, resume_at: float, *, is_uncertain: bool) -> None:
        """The batch is to be sent again, not before `resume_at`; `is_uncertain` where it may be in the log."""
        self.in_flight.remove(batch)
        batch.is_uncertain = batch.is_uncertain or is_uncertain
        self._waits_again(batch)
        self.attempts += 1
        self.resume_at = max(self.resume_at, resume_at)

    def split(self, batch: Batch) -> tuple[Batch, Batch]:
        """Splits a batch that is too large; both parts wait in its place."""
        self.in_flight.remove(batch)
        parts = batch.split()
        for part in parts:
            self._waits_again(part)
        window: dict[Batch, bool] = {}
        for each, is_open in self._window.items():
            window.update(dict.fromkeys(parts, True) if each is batch else {each: is_open})
        self._window = window
        return parts

    def _waits_again(self, batch: Batch) -> None:
        if any(each.order < batch.order and each.base_sequence < 0 for each in self.waiting):
            # The one before it was not appended, so this one was not, either: it goes into the next epoch as well.
            _unsign(batch)
        insort(self.waiting, batch, key=_BY_ORDER)
        self.is_retrying = True

    def failed(self, batch: Batch) -> None:
        """The batch is given up, in flight or waiting."""
        (self.in_flight if batch in self.in_flight else self.waiting).remove(batch)
        self._leaves_window(batch)
        if batch.base_sequence >= 0:
            self.has_gap = self._has_lost = True
        if self.is_empty:
            self.last_error = None

    def is_first(self, batch: Batch) -> bool:
        """Whether nothing before the batch is open: what a leader says of its sequence is about the batch itself."""
        earlier = [other for other in (*self.in_flight, *self.waiting) if other.order < batch.order]
        return not earlier

    def out_of_sequence(self, batch: Batch, resume_at: float) -> bool:
        """A leader says that the sequence is wrong; whether the batch can be sent again.

        Behind a batch that failed it can, as it is. The first one has not been appended, since the leader lacks what
        came before: it and all behind it go on in another epoch. But not where an earlier attempt may have been
        appended, and nothing failed before it: a second copy could result. The leader has forgotten, or was deposed
        and has not been told; which of the two only another attempt can show.
        """
        if not self.is_first(batch):
            self.requeue(batch, resume_at, is_uncertain=False)
            return True
        if batch.is_uncertain and not self._has_lost:
            return False
        self.requeue(batch, resume_at, is_uncertain=False)
        for each in self.waiting:
            _unsign(each)
        self.has_gap = True
        return True

    def expired(self, now: float) -> list[Batch]:
        """Batches that wait and whose time is over; those in flight end with their request."""
        return [batch for batch in self.waiting if batch.deadline <= now]


def _unsign(batch: Batch) -> None:
    if batch.base_sequence >= 0:
        batch.sign(NO_IDENTITY, -1)
        batch.is_uncertain = False
