"""Records that are locked for this member, and what its caller has said of them. No I/O.

    delivered --- acknowledge ---> said --- taken for a request ---> told (`AcknowledgeResult`), or put back: said again
        ^                                          |
        '------------------ renewed ---------------'

A `Delivery` is what one fetch brought of one partition. Offsets that the broker has locked and that have no record, as
after compaction, are said to be gaps by themselves.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tidelog.client.consumed import Header, consumed_records
from tidelog.client.fetching import FetchedData
from tidelog.model.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model.identifiers import TopicPartition
from tidelog.sharing.sessions import SharedPlace

GAP: Final = 0
"""Acknowledges that there is no record at an offset."""


LED_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors of a partition after which its leader is asked for anew: locks are no more."""


class AcknowledgeType(enum.IntEnum):
    """What became of a record, as the caller says it."""

    ACCEPT = 1
    """It is done."""
    RELEASE = 2
    """It is to be delivered again, to any member, unless it was as often as the group's limit says."""
    REJECT = 3
    """It is not to be delivered again: it cannot be handled."""
    RENEW = 4
    """It is still being worked on: its lock begins anew, and it is to be acknowledged later (KIP-1222)."""


class SharedRecord(NamedTuple):
    """A record as it came."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    timestamp_type: int
    """0 where the producer set it, 1 where the broker did."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    delivery_count: int
    """How often it was delivered to members of the group, with this time: from 1."""


class SharedBatch:
    """Records of one partition that came together, each locked for this consumer."""

    __slots__ = ("_records", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, records: Sequence[SharedRecord]) -> None:
        self.topic_partition = topic_partition
        """Where they are from."""
        self._records = records

    def __iter__(self) -> Iterator[SharedRecord]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)


class AcknowledgeResult(NamedTuple):
    """What became of an acknowledgement of neighbouring records; both ends are in it."""

    topic_partition: TopicPartition
    first_offset: int
    last_offset: int
    type: AcknowledgeType
    error: TidelogError | None
    """None: it holds. KafkaError INVALID_RECORD_STATE: the lock had ended, and the record was or will be delivered
    again; a ClientError: the answer was lost, the acknowledgement may hold or not."""


class Said(NamedTuple):
    """What is said of neighbouring offsets; both ends are in it."""

    first: int
    last: int
    type: int
    """An AcknowledgeType, or GAP."""


class Delivery:
    """What a fetch brought of one partition."""

    def __init__(
        self, place: SharedPlace, topic_partition: TopicPartition, offsets: Iterable[int], lock_ends_at: float
    ) -> None:
        """`lock_ends_at`: in monotonic seconds, from when on others may get the records."""
        self.place = place
        self.topic_partition = topic_partition
        self.lock_ends_at = lock_ends_at
        self.records: list[SharedRecord] = []
        self.lost: TidelogError | None = None
        """Why its locks are no more; None: they hold as far as is known."""
        self._said: dict[int, int | None] = dict.fromkeys(offsets)
        """[offset that is held] -> what is to be told of it; None: nothing yet."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is held of it any more."""
        return not self._said

    def __contains__(self, offset: int) -> bool:
        return offset in self._said

    def say(self, offset: int, kind: int) -> None:
        """What became of a record that is held; the last word before it is sent counts."""
        self._said[offset] = kind

    def say_of_rest(self, kind: int) -> None:
        """The same of all records of which nothing was said."""
        for offset, said in self._said.items():
            if said is None:
                self._said[offset] = kind

    @property
    def has_said(self) -> bool:
        """Whether there is something to be told."""
        return any(said is not None for said in self._said.values())

    @property
    def renews(self) -> bool:
        """Whether a lock is to be renewed."""
        return AcknowledgeType.RENEW in self._said.values()

    def renew_no_more(self) -> None:
        """No lock is renewed: what was to be, is not spoken of."""
        for offset, said in self._said.items():
            if said == AcknowledgeType.RENEW:
                self._said[offset] = None

    def forget(self) -> None:
        """Nothing of it is held any more, and nothing is told of it."""
        self._said.clear()

    def take(self) -> list[Said]:
        """What is to be told, in the order of offsets; it is not held any more, but for what is renewed."""
        taken: list[Said] = []
        for offset, kind in sorted(self._said.items()):
            if kind is None:
                continue
            if kind == AcknowledgeType.RENEW:
                self._said[offset] = None
            else:
                del self._said[offset]
            last = taken[-1] if taken else None
            if last is not None and last.last + 1 == offset and last.type == kind:
                taken[-1] = last._replace(last=offset)
            else:
                taken.append(Said(offset, offset, kind))
        return taken

    def put_back(self, taken: Iterable[Said]) -> None:
        """What was taken could not be told: it is to be told again, unless the caller has said something else since."""
        for first, last, kind in taken:
            for offset in range(first, last + 1):
                if self._said.get(offset) is None:
                    self._said[offset] = kind


def results(
    topic_partition: TopicPartition, taken: Iterable[Said], error: TidelogError | None
) -> list[AcknowledgeResult]:
    """What the caller is told of what was taken; of gaps nothing."""
    return [
        AcknowledgeResult(topic_partition, first, last, AcknowledgeType(kind), error)
        for first, last, kind in taken
        if kind != GAP
    ]


def delivered(
    place: SharedPlace, topic_partition: TopicPartition, data: Any, lock_ends_at: float
) -> tuple[Delivery, KafkaError | None]:
    """A partition's records in a ShareFetch response, those that are locked for this member.

    With the error of a batch that cannot be decoded: its records, and those behind it, are released. One that was
    damaged on its way comes again whole, one that lies so in the log reaches the group's delivery limit.
    """
    counts = _counts(data.acquired_records)
    delivery = Delivery(place, topic_partition, counts, lock_ends_at)
    damage: KafkaError | None = None
    left = counts.copy()
    if counts:
        first, following = min(counts), max(counts) + 1
        fetched = FetchedData(
            topic_partition, first, following, memoryview(data.records or b""), following, following, first
        )
        append, count_of = delivery.records.append, left.pop
        try:
            for record in consumed_records(fetched, following):
                count = count_of(record.offset, None)
                if count is not None:
                    append(SharedRecord(*record, count))
        except KafkaError as error:
            damage = error
    for offset in left:
        delivery.say(offset, GAP if damage is None else AcknowledgeType.RELEASE)
    return delivery, damage


def _counts(acquired: Iterable[Any]) -> dict[int, int]:
    """[offset that is locked] -> how often it was delivered."""
    counts: dict[int, int] = {}
    for each in acquired:
        counts.update(dict.fromkeys(range(each.first_offset, each.last_offset + 1), each.delivery_count))
    return counts


class Taken:
    """What was taken of deliveries for one request."""

    def __init__(self, deliveries: Iterable[Delivery]) -> None:
        self._parts = [(delivery, said) for delivery in deliveries if (said := delivery.take())]

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def deliveries(self) -> list[Delivery]:
        """Of which something was taken."""
        return [delivery for delivery, _ in self._parts]

    @property
    def renews(self) -> bool:
        """Whether a lock is to be renewed."""
        return any(each.type == AcknowledgeType.RENEW for _, said in self._parts for each in said)

    @property
    def names(self) -> dict[SharedPlace, TopicPartition]:
        """The partitions that something is said of."""
        return {delivery.place: delivery.topic_partition for delivery, _ in self._parts}

    def by_place(self) -> dict[SharedPlace, list[Said]]:
        """[partition] -> what a request says of it, in the order of offsets."""
        told: dict[SharedPlace, list[Said]] = {}
        for delivery, said in self._parts:
            told.setdefault(delivery.place, []).extend(said)
        return {place: sorted(said) for place, said in told.items()}

    def answered(
        self, errors: Mapping[SharedPlace, TidelogError], now: float, lock_s: float | None
    ) -> list[AcknowledgeResult]:
        """Takes note of an answer; what the caller is told. `errors`: [partition] -> why it was refused there.

        What may be taken later is put back while the locks last. `lock_s`: how long a renewed lock lasts; None: as the
        broker did not say.
        """
        found: list[AcknowledgeResult] = []
        for delivery, said in self._parts:
            error = errors.get(delivery.place)
            is_held = delivery.lost is None and now < delivery.lock_ends_at
            if error is not None and is_held and _may_be_taken_later(error):
                delivery.put_back(said)
                continue
            if error is None and lock_s is not None and any(each.type == AcknowledgeType.RENEW for each in said):
                delivery.lock_ends_at = now + lock_s
            found += results(delivery.topic_partition, said, error)
        return found

    def failed(self, error: TidelogError) -> list[AcknowledgeResult]:
        """There is no answer, and will be none."""
        return [each for delivery, said in self._parts for each in results(delivery.topic_partition, said, error)]


def _may_be_taken_later(error: TidelogError) -> bool:
    """Whether the same leader may take the acknowledgement when it is asked again."""
    return error.retriable and isinstance(error, KafkaError) and error.code not in LED_ELSEWHERE
