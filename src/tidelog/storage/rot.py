"""Rot: a segment that does not hold what was written. What readers are told, and what the broker is to repair."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tidelog.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.model.identifiers import TopicPartition


class Rot:
    """One segment that does not hold what was written, until it does again."""

    __slots__ = ("base_offset", "flaw", "is_final", "of_log", "offset", "topic_partition")

    def __init__(
        self, topic_partition: TopicPartition, of_log: dict[int, Rot], base_offset: int, offset: int, flaw: str
    ) -> None:
        self.topic_partition = topic_partition
        self.of_log = of_log
        """All that is known of the log, in which this stands: `ReadableLog.rot`. A log made anew has another one."""
        self.base_offset = base_offset
        """The segment's."""
        self.offset = offset
        """Where a read or the scrub met it."""
        self.flaw = flaw
        self.is_final = False
        """Whether no other replica can repair it, as far as is known."""

    def forget(self) -> None:
        """It is repaired, or its segment is gone: what is found there from now on is found anew."""
        if self.of_log.get(self.base_offset) is self:
            del self.of_log[self.base_offset]


class RottenBatch(KafkaError):
    """A read came to a batch that is not what was written.

    KAFKA_STORAGE_ERROR while it may be repaired: clients ask again, from the same offset. CORRUPT_MESSAGE when no other
    replica has it: clients tell their users.
    """

    def __init__(self, rot: Rot, offset: int) -> None:
        code = ErrorCode.CORRUPT_MESSAGE if rot.is_final else ErrorCode.KAFKA_STORAGE_ERROR
        super().__init__(code, f"{rot.topic_partition} cannot be read at offset {offset}: a batch {rot.flaw}")
        self.rot = rot


class Findings:
    """Rot that was found in any log of a broker, by whichever thread, and that the broker has not taken up yet."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: deque[Rot] = deque()

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, rot: Rot) -> None:
        self._found.append(rot)

    def take(self) -> Rot | None:
        """The oldest one; None where there is none."""
        return self._found.popleft() if self._found else None
