"""Batches that were refused for a while, so that those behind them in flight are refused for the same reason.

An idempotent producer has up to five requests under way. When a leader moves away and back, or an ISR shrinks and
grows, the first may be refused and the next one arrive when all is well again: it would be out of order, or, from a
producer that is not known yet, be taken and leave a gap for ever. Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER, upon
which librdkafka begins a new epoch, and what it then sends again of other partitions may be in the log twice. Here the
later ones get the retriable error of the first, and the producer sends all again in order.

Only for `REMEMBERED_MS`: longer than anything is in flight that was sent before its producer knew. After that a gap is
the producer's own, and gets Kafka's answer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.model.identifiers import TopicPartition
    from tidelog.ports.disk import Bytes
    from tidelog.storage.producer_entries import ProducerEntry

REMEMBERED_MS: Final = 5_000
PRODUCERS_MAX: Final = 1_000
"""Remembered for one partition, the newest."""
PARTITIONS_BEFORE_MAX: Final = 100
"""Whose replicas are not there: remembered, the newest. Those are few at a time, and any client can name more."""
PRODUCERS_BEFORE_MAX: Final = 100
"""Remembered for one of these, the newest."""
RETRIABLE: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
"""Refusals after which a producer sends the very batch again."""

_PRODUCER: Final = struct.Struct(">qhi")
"""Producer id, epoch, first sequence."""
_PRODUCER_AT: Final = 43
_HEADER_SIZE: Final = 61
_SEQUENCE_COUNT: Final = 1 << 31


class _Refused(NamedTuple):
    producer_epoch: int
    sequence: int
    code: ErrorCode
    at_ms: int


class Refusals:
    """What one partition has refused lately; times are monotonic."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[int, _Refused] = {}
        """By producer id, the oldest first."""

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(
        self,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        code: ErrorCode,
        now_ms: int,
        *,
        producers_max: int = PRODUCERS_MAX,
    ) -> None:
        """A batch that begins with `sequence` was refused, or has been taken out of the log again."""
        self.expire(now_ms)
        known = self._refused.get(producer_id)
        if known is not None and known.producer_epoch == producer_epoch and _is_behind(sequence, known.sequence):
            # The first one is what the others wait for, and for no longer because there are more of them.
            self._refused[producer_id] = known._replace(code=code)
            return
        if known is not None:
            del self._refused[producer_id]
        self._refused[producer_id] = _Refused(producer_epoch, sequence, code, now_ms)
        if len(self._refused) > producers_max:
            del self._refused[next(iter(self._refused))]

    def expire(self, now_ms: int) -> None:
        """Forgets what is too old to matter."""
        while self._refused:
            oldest = next(iter(self._refused))
            if now_ms - self._refused[oldest].at_ms <= REMEMBERED_MS:
                return
            del self._refused[oldest]

    def check(self, data: Bytes, now_ms: int, producers: Mapping[int, ProducerEntry]) -> None:
        """KafkaError of an earlier refusal, if this batch was sent behind the refused one.

        `producers`: those of the log. The refused batch may be there by now: another leader has taken it.
        """
        if len(data) < _HEADER_SIZE:
            return
        producer_id, producer_epoch, sequence = _PRODUCER.unpack_from(data, _PRODUCER_AT)
        self.expire(now_ms)
        refused = self._refused.get(producer_id)
        if refused is None:
            return
        if producer_epoch == refused.producer_epoch:
            if _is_behind(sequence, refused.sequence) and not _is_written(refused, producers.get(producer_id)):
                raise KafkaError(refused.code, f"The batch before this one was refused: {refused.code.name}.")
            if _is_behind(refused.sequence, sequence):
                return  # A repetition of what is in the log already: the refused one is still to come.
        del self._refused[producer_id]


def refused_batch(data: Bytes, code: ErrorCode) -> tuple[int, int, int] | None:
    """Producer id, epoch and first sequence of a batch that was refused with `code`; None where it need not be noted:
    it names no producer, or the producer will not send it again.
    """
    if code not in RETRIABLE or len(data) < _HEADER_SIZE:
        return None
    producer_id, producer_epoch, sequence = _PRODUCER.unpack_from(data, _PRODUCER_AT)
    return None if producer_id < 0 or sequence < 0 else (producer_id, producer_epoch, sequence)


def note_before(
    awaited: dict[TopicPartition, Refusals],
    topic_partition: TopicPartition,
    batch: tuple[int, int, int],
    code: ErrorCode,
    now_ms: int,
) -> None:
    """Clients may learn of a new partition before its replica is there: what is refused until then is kept for it."""
    while awaited:
        oldest = next(iter(awaited))
        awaited[oldest].expire(now_ms)
        if awaited[oldest]:
            break
        del awaited[oldest]
    # Where it was noted last stands last: those before it expire first.
    refusals = awaited.pop(topic_partition) if topic_partition in awaited else Refusals()
    awaited[topic_partition] = refusals
    refusals.note(*batch, code, now_ms, producers_max=PRODUCERS_BEFORE_MAX)
    if len(awaited) > PARTITIONS_BEFORE_MAX:
        del awaited[next(iter(awaited))]


def _is_written(refused: _Refused, entry: ProducerEntry | None) -> bool:
    """Whether the log has come to the refused batch or past it."""
    if entry is None or entry.producer_epoch != refused.producer_epoch or not entry.batches:
        return False
    return not _is_behind(refused.sequence, entry.last_sequence)


def _is_behind(sequence: int, other: int) -> bool:
    """Whether `sequence` comes after `other`; sequences begin again at 0 after 2^31 - 1."""
    return 0 < (sequence - other) % _SEQUENCE_COUNT < _SEQUENCE_COUNT // 2
