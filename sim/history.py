"""What clients were told, and what must therefore be so: the checker of a run.

A value is (producer, sequence), unique in a run. Acknowledgements and fetches are noted as they come, and
contradictions between them raise at once; `check_final` compares all of it with a last complete read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.invariants import require
from sim.log_checks import Batch
from tidelog.model.identifiers import TopicPartition


@dataclass(slots=True)
class PartitionHistory:
    """What is known of one partition."""

    values: dict[int, bytes] = field(default_factory=dict)
    """[offset] -> value, of every record that a client was told of."""
    acknowledged: set[int] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    log_start: int = 0
    """Greatest log start offset that a response has shown."""
    high_watermark: int = 0


class History:
    """Of a whole run."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionHistory] = {}
        self.generation = 0
        """Counts the broker's starts."""
        self.acknowledged_count = 0
        self.read_count = 0

    def restarted(self) -> None:
        """A new broker process: it may not know yet how far the one before had come."""
        self.generation += 1
        for history in self._partitions.values():
            history.high_watermark = 0

    def out_of_range(self, partition: TopicPartition, asked: int, log_start: int) -> None:
        """A fetch was refused with OFFSET_OUT_OF_RANGE; `asked` follows what was read, so only deletion may be why."""
        require(
            6, asked < log_start, f"{partition}: read up to {asked}, and that was truncated; it begins at {log_start}"
        )

    def of(self, partition: TopicPartition) -> PartitionHistory:
        return self._partitions.setdefault(partition, PartitionHistory())

    def acknowledged(self, partition: TopicPartition, base_offset: int, values: Sequence[bytes]) -> None:
        """A produce request was answered without an error."""
        history = self.of(partition)
        for offset, value in enumerate(values, base_offset):
            self._note(partition, history, offset, value)
            history.acknowledged.add(offset)
        self.acknowledged_count += len(values)

    def fetched(
        self,
        partition: TopicPartition,
        asked: int,
        high_watermark: int,
        stable: int,
        log_start: int,
        batches: list[Batch],
    ) -> int:
        """A fetch was answered; gives the next offset to ask for."""
        history = self.of(partition)
        where = f"{partition} fetched at {asked}"
        require(6, log_start >= history.log_start, f"{where}: log start {log_start}, it was {history.log_start}")
        require(6, log_start <= stable <= high_watermark, f"{where}: {log_start}, {stable}, {high_watermark}")
        require(
            6,
            high_watermark >= history.high_watermark,
            f"{where}: high watermark {high_watermark}, it was {history.high_watermark}",
        )
        history.log_start, history.high_watermark = log_start, high_watermark
        following = asked
        previous = -1
        for header, records, _ in batches:
            require(
                10, header.last_offset < high_watermark, f"{where}: {header.last_offset} of {high_watermark} is served"
            )
            for record in records:
                require(3, record.offset > previous, f"{where}: offset {record.offset} follows {previous}")
                previous = record.offset
                if record.offset >= following:
                    require(
                        1, record.offset == following, f"{where}: offset {record.offset} where {following} was to come"
                    )
                    following += 1
                self._note(partition, history, record.offset, record.value or b"")
                history.read.add(record.offset)
                self.read_count += 1
        return following

    def _note(self, partition: TopicPartition, history: PartitionHistory, offset: int, value: bytes) -> None:
        known = history.values.setdefault(offset, value)
        require(2, known == value, f"{partition}: offset {offset} shows {value!r}, it was {known!r}")

    def check_final(self, partition: TopicPartition, log_start: int, values: dict[int, bytes]) -> None:
        """`values`: [offset] -> value of a complete read at the end, when nothing is under way any more."""
        history = self.of(partition)
        for kind, offsets in (("acknowledged", history.acknowledged), ("read", history.read)):
            for offset in sorted(offsets):
                if offset >= log_start:
                    found = values.get(offset)
                    require(
                        1,
                        found == history.values[offset],
                        f"{partition}: {history.values[offset]!r}, {kind} at {offset}, is {found!r} in the end",
                    )
        sequences: dict[str, int] = {}
        everything = {offset: value for offset, value in history.values.items() if offset < log_start} | values
        for offset in sorted(everything):
            producer, _, number = everything[offset].decode().partition(":")
            expected = sequences.get(producer, -1) + 1
            require(
                12, int(number) == expected, f"{partition}: {producer} sent {expected}, {number} stands at {offset}"
            )
            sequences[producer] = expected
