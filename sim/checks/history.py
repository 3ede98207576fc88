"""What clients were told, and what must therefore be so: the checker of a run, after Jepsen's for Kafka.

A value is "lane:number", unique in a run; a `Lane` is one producer's records for one partition. Acknowledgements and
fetches are noted as they come, and contradictions between them raise at once; `check_final` compares all of it with a
last complete read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from sim.checks.log_checks import Batch
from sim.invariants import require
from tidelog.model.identifiers import TopicPartition
from tidelog.records.record import Record


def key_of(value: bytes) -> bytes:
    """The key of a value in a compacted topic: its number's, whatever its lane."""
    return b"key-%d" % (int(value.rpartition(b":")[2]) % 5)


def is_tombstone(value: bytes) -> bool:
    """Whether a value in a compacted topic goes out as none at all: in its place a header says which one it is."""
    return int(value.rpartition(b":")[2]) % 7 == 3


def value_of(record: Record) -> bytes:
    """What a record says, or what is said of the tombstone that it is."""
    if record.value is None and record.headers:
        return record.headers[0][1] or b""
    return record.value or b""


class Guarantee(Enum):
    """What a producer asks for."""

    EXACTLY_ONCE = "idempotent, acks=all, sent again until it is acknowledged"
    ALL = "acks=all, sent once"
    LEADER = "acks=1, sent once: may be lost"


@dataclass(slots=True)
class PartitionHistory:
    """What is known of one partition."""

    values: dict[int, bytes] = field(default_factory=dict)
    """[offset] -> value, of every record that was acknowledged by all, or read."""
    acknowledged: set[int] = field(default_factory=set)
    acknowledged_by_leader: dict[int, bytes] = field(default_factory=dict)
    """Those with acks=1."""
    read: set[int] = field(default_factory=set)
    log_starts: dict[int, int] = field(default_factory=dict)
    """[broker] -> greatest log start offset that it has shown."""
    high_watermarks: dict[tuple[int, int], int] = field(default_factory=dict)
    """[(broker, its generation)] -> greatest high watermark that it has shown."""
    starts_at: int = 0
    """Greatest offset up to which a deletion was confirmed."""
    may_start_at: int = 0
    """Greatest offset up to which a client asked for deletion."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What brokers had shown of a partition when a request was sent: its answer may not fall behind that, while it may
    come after answers to later requests.
    """

    log_starts: dict[int, int]
    high_watermarks: dict[tuple[int, int], int]


class History:
    """Of a whole run."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionHistory] = {}
        self._lanes: dict[str, Guarantee] = {}
        self._refused: set[bytes] = set()
        self._unseen: set[bytes] = set()
        self._producer_ids: set[int] = set()
        self.generations: Counter[int] = Counter()
        """[broker] -> how often it was started"""
        self.lossy: set[str] = set()
        """Topics in which records may be lost: by unclean elections, or past the declared budget."""
        self.compacted: set[str] = set()
        """Topics of which only the last value of each key is promised; see `key_of`."""
        self.tombstones_go = False
        """Whether a tombstone may be gone in the end, with all that it superseded."""
        self.retained: set[str] = set()
        """Topics whose records nothing deletes by itself."""
        self.largest_isr: Callable[[TopicPartition, float], int] | None = None
        """Members of a partition's largest ISR since a time; None where there is no store to be asked."""
        self.holders: Callable[[TopicPartition, int], int] | None = None
        """How many replicas have an offset."""
        self.min_insync_replicas = 1
        self.reads_may_fail = False
        """Whether disks of this run read bits wrong."""
        self.corrupt_count = 0
        """Answers whose checksums failed."""
        self.acknowledged_count = 0
        self.read_count = 0
        self.lost_by_leaders = 0
        """Records acknowledged with acks=1 that are not there in the end."""
        self.lost_as_declared = 0
        """Records of lossy topics, acknowledged by all or read, that are not there in the end."""

    @property
    def generation(self) -> int:
        """Counts all starts of brokers."""
        return self.generations.total()

    def restarted(self, broker: int) -> None:
        """A new broker process: it may not know yet how far the one before had come."""
        self.generations[broker] += 1
        for history in self._partitions.values():
            # What it has shown of a deletion may not have been written down yet; what was confirmed is.
            shown = history.log_starts.get(broker, 0)
            history.log_starts[broker] = min(shown, history.starts_at)

    def replica_left(self, partition: TopicPartition, broker: int) -> None:
        """It is no replica any more: when it comes back, it begins anew."""
        history = self.of(partition)
        history.log_starts[broker] = min(history.log_starts.get(broker, 0), history.starts_at)
        history.high_watermarks.pop((broker, self.generations[broker]), None)

    def lane(self, name: str, guarantee: Guarantee) -> None:
        """A producer begins."""
        self._lanes[name] = guarantee

    def out_of_range(self, partition: TopicPartition, asked: int, log_start: int) -> None:
        """A fetch was refused with OFFSET_OUT_OF_RANGE; `asked` follows what was read, so only deletion may be why."""
        require(
            6,
            asked < log_start or partition.topic in self.lossy,
            f"{partition}: read up to {asked}, and that was truncated; it begins at {log_start}",
        )

    def deletion_asked(self, partition: TopicPartition, offset: int) -> None:
        """A client asked to delete all records before `offset`."""
        history = self.of(partition)
        history.may_start_at = max(history.may_start_at, offset)

    def deleted(self, partition: TopicPartition, offset: int) -> None:
        """The deletion was answered: nothing before `offset` is there any more."""
        history = self.of(partition)
        history.starts_at = max(history.starts_at, offset)

    def corrupt(self, found: str) -> None:
        """A client saw a checksum fail."""
        self.corrupt_count += 1
        require(11, self.reads_may_fail, found)

    def shown(self, partition: TopicPartition) -> Shown:
        """What brokers have shown of a partition so far."""
        history = self.of(partition)
        return Shown(dict(history.log_starts), dict(history.high_watermarks))

    def of(self, partition: TopicPartition) -> PartitionHistory:
        return self._partitions.setdefault(partition, PartitionHistory())

    def acknowledged(
        self,
        partition: TopicPartition,
        base_offset: int,
        values: Sequence[bytes],
        guarantee: Guarantee,
        sent_at: float = 0.0,
    ) -> None:
        """A produce request, first sent at `sent_at`, was answered without an error."""
        history = self.of(partition)
        if self.largest_isr is not None and guarantee is not Guarantee.LEADER:
            # A leader that has not heard yet how small the ISR is waits for all that it knows of; in the end it is the
            # replicas that count.
            size = (
                self.largest_isr(partition, sent_at) if self.holders is None else self.holders(partition, base_offset)
            )
            require(
                1,
                size >= self.min_insync_replicas,
                f"{partition}: offset {base_offset} was acknowledged by all, and {size} replicas have it",
            )
        self.acknowledged_count += len(values)
        for offset, value in enumerate(values, base_offset):
            if guarantee is Guarantee.LEADER:
                history.acknowledged_by_leader[offset] = value
            else:
                self._note(partition, history, offset, value)
                history.acknowledged.add(offset)

    def identified(self, producer_id: int) -> None:
        """A producer without a transactional id was given an id: one that is given twice takes records for others'."""
        require(12, producer_id not in self._producer_ids, f"producer id {producer_id} is given a second time")
        self._producer_ids.add(producer_id)

    def refused(self, values: Sequence[bytes]) -> None:
        """A produce request was answered with an error that means that nothing was written."""
        self._refused.update(values)

    def deleted_unseen(self, values: Sequence[bytes]) -> None:
        """What a producer had sent was written, and deleted before anybody could say where it stood."""
        self._unseen.update(values)

    def fetched(
        self,
        partition: TopicPartition,
        broker: int,
        asked: int,
        high_watermark: int,
        stable: int,
        log_start: int,
        batches: list[Batch],
        *,
        stable_only: bool = False,
        shown: Shown | None = None,
    ) -> int:
        """A fetch was answered by `broker`; gives the next offset to ask for. `stable_only`: of committed records.

        `shown` is what was known when it was sent; None: all that is known now.
        """
        history = self.of(partition)
        where = f"{partition} fetched at {asked} from broker {broker}"
        shown = shown or Shown(history.log_starts, history.high_watermarks)
        # A restart, or a replica that is one no more, has set back what is known.
        latest_start = history.log_starts.get(broker, 0)
        known_start = min(shown.log_starts.get(broker, 0), latest_start)
        require(6, log_start >= known_start, f"{where}: log start {log_start}, it was {known_start}")
        history.log_starts[broker] = max(log_start, latest_start)
        require(6, log_start <= stable <= high_watermark, f"{where}: {log_start}, {stable}, {high_watermark}")
        life = (broker, self.generations[broker])
        latest = history.high_watermarks.get(life, 0)
        known = min(shown.high_watermarks.get(life, 0), latest)
        require(
            6,
            high_watermark >= known or partition.topic in self.lossy,
            f"{where}: high watermark {high_watermark}, it was {known}",
        )
        history.high_watermarks[life] = max(high_watermark, latest)
        following = asked
        previous = -1
        limit = stable if stable_only else high_watermark
        is_compacted = partition.topic in self.compacted
        for header, records, _ in batches:
            require(10, header.last_offset < limit, f"{where}: {header.last_offset} of {limit} is served")
            for record in records:
                require(3, record.offset > previous, f"{where}: offset {record.offset} follows {previous}")
                previous = record.offset
                if record.offset >= following:
                    require(
                        1,
                        record.offset == following or is_compacted,
                        f"{where}: offset {record.offset} where {following} was to come",
                    )
                    following = record.offset + 1
                self._note(partition, history, record.offset, value_of(record))
                history.read.add(record.offset)
                self.read_count += 1
            if is_compacted:
                following = max(following, header.next_offset)
        return following

    def _note(self, partition: TopicPartition, history: PartitionHistory, offset: int, value: bytes) -> None:
        require(10, value not in self._refused, f"{partition}: {value!r} at {offset} was refused")
        known = history.values.setdefault(offset, value)
        require(
            2,
            known == value or partition.topic in self.lossy,
            f"{partition}: offset {offset} shows {value!r}, it was {known!r}",
        )

    def check_final(self, partition: TopicPartition, log_start: int, values: dict[int, bytes]) -> None:
        """`values`: [offset] -> value of a complete read at the end, when nothing is under way any more."""
        history = self.of(partition)
        lossy = partition.topic in self.lossy
        require(6, log_start >= history.starts_at, f"{partition} begins at {log_start}, before {history.starts_at}")
        if partition.topic in self.retained:
            require(
                1,
                log_start <= history.may_start_at,
                f"{partition} begins at {log_start}, and nobody asked to delete past {history.may_start_at}",
            )
        last_of = {key_of(value): offset for offset, value in sorted(values.items())}
        for kind, offsets in (("acknowledged", history.acknowledged), ("read", history.read)):
            for offset in sorted(offsets):
                if offset >= log_start and (found := values.get(offset)) != history.values[offset]:
                    if partition.topic in self.compacted and found is None:
                        gone = history.values[offset]
                        last = last_of.get(key_of(gone), -1)
                        if is_tombstone(gone) and self.tombstones_go and last < 0:
                            continue
                        told = f"{history.values[offset]!r}, {kind} at {offset}, is gone, and nothing has come after it"
                        require(14, last > offset, f"{partition}: {told}")
                        continue
                    require(
                        1,
                        lossy,
                        f"{partition}: {history.values[offset]!r}, {kind} at {offset}, is {found!r} in the end",
                    )
                    self.lost_as_declared += 1
        for offset, value in history.acknowledged_by_leader.items():
            self.lost_by_leaders += offset >= log_start and values.get(offset) != value
        if not lossy:
            deleted = {offset: value for offset, value in history.values.items() if offset < log_start}
            self._check_lanes(partition, deleted | values)

    def _check_lanes(self, partition: TopicPartition, values: dict[int, bytes]) -> None:
        """The order within each lane, and whether anything stands there twice, or is missing, or was refused.

        A batch that a producer without idempotence has given up may still be on its way, and come behind later ones.
        """
        history = self.of(partition)
        last: dict[str, int] = {}
        once: set[bytes] = set()
        for offset, value in sorted(values.items()):
            lane, _, text = value.decode().rpartition(":")
            number = int(text)
            require(10, value not in self._refused, f"{partition}: {value!r} was refused")
            before = last.get(lane, -1)
            is_whole = partition.topic not in self.compacted
            if self._lanes.get(lane, Guarantee.EXACTLY_ONCE) is Guarantee.EXACTLY_ONCE:
                expected = before + 1
                while expected < number and b"%s:%d" % (lane.encode(), expected) in self._unseen:
                    expected += 1
                told = f"{partition}: {lane} sent {expected}, {number} stands at {offset}"
                require(12, number == expected or (number > expected and not is_whole), told)
            else:
                require(12, value not in once, f"{partition}: {value!r} stands at {offset}, and before that")
                once.add(value)
                if offset not in history.acknowledged and history.acknowledged_by_leader.get(offset) != value:
                    continue
                require(12, number > before, f"{partition}: of {lane} {number} stands at {offset}, behind {before}")
            last[lane] = number
