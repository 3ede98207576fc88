"""What every coordinator is to the shell that runs it: the state of one partition of an internal topic. Pure.

event --> handle --> writes, replies            replay: the only mutator of what is in the log
record of the log --> load --> replay           loaded: the log was read to its end, sessions begin anew
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from tidelog.coordinator.records import decode_record
from tidelog.coordinator.result import Result


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The deadline of `next_due_ms` may have come; no reply. What is due first is done; the shell asks again for what
    else is, so that each sees what the one before has written.
    """

    wall_ms: int = 0
    """Wall time."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """The answer to an event that concerns the whole partition, and does of it what fits a batch and a turn."""

    rest: Any = None
    """For the next event of the kind, to go on from; something false: all is done."""


class Write(Protocol):
    """A record to append: `CoordinatorRecord`, or a compact form of one."""

    @property
    def producer(self) -> tuple[int, int] | None:
        """Producer id and epoch of the transaction it belongs to; None: of none. All writes of a result agree."""
        ...

    def encode(self) -> tuple[bytes, bytes | None]:
        """Key and value as they are written."""
        ...


class StateMachine(ABC):
    """One partition's coordinator. What is in its log changes by `replay` alone; what is not (requests that wait,
    sessions) may change in `handle`, and is lost when the coordinator moves.
    """

    TOPIC: ClassVar[str]
    """The internal topic, whose name says how its records are read."""
    READS: ClassVar[frozenset[type]] = frozenset()
    """Events that never write: they are answered while the partition takes no appends, too."""
    DIVISIBLE: ClassVar[frozenset[type]] = frozenset()
    """Events whose writes are independent: they may be more than fit a batch, and a part of them may be lost."""

    @property
    def next_due_ms(self) -> int | None:
        """When `TimePassed` is to be handled next, at the latest; monotonic; None: no need."""
        return None

    @abstractmethod
    def handle(self, now_ms: int, event: Any) -> Result[Any, Any]:
        """What follows from `event`. `now_ms` is monotonic; wall times come with the events."""

    @abstractmethod
    def replay(self, record: Any) -> None:
        """Brings one of `handle`'s writes in, or a record of the log."""

    def load(self, key: bytes | None, value: bytes | None, producer: tuple[int, int] | None) -> None:
        """Brings in a record as it stands in the log. MalformedRecord; UnknownRecordType for a later release's."""
        self.replay(decode_record(self.TOPIC, key, value, producer))

    def loaded(self, now_ms: int, wall_ms: int) -> Result[Any, Any] | None:
        """The log has been read to its end, once: what is not in it begins anew. What follows is as of `handle`."""
        return None

    # Not every coordinator is written to in transactions.
    def transaction_ended(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:  # noqa: B027
        """A marker is in the log: what that producer wrote in its transaction holds, or is void."""

    def too_large(self, event: Any) -> bool:
        """The writes of `event` do not fit a batch and are not appended; whether nothing else has to be undone.

        Otherwise the whole state is loaded anew, which forgets what is not in the log.
        """
        return False
