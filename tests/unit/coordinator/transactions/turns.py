"""A coordinator of transactions with a log in memory: what it writes is appended and replayed, as its shell does it."""

from __future__ import annotations

from itertools import count
from typing import Any

from tidelog.coordinator.state_machine import TimePassed
from tidelog.coordinator.transactions.coordinator import TransactionCoordinator
from tidelog.coordinator.transactions.events import (
    AbortOverdue,
    AddPartitions,
    EndTransaction,
    Event,
    ForgetIdle,
    InitProducer,
    MarkersWritten,
    NeedsProducerId,
    Outcome,
    ProducerIdentity,
    Reply,
    TransactionResult,
    VerifyPartitions,
    WriteMarkers,
)
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ProducerEpoch, ProducerId, TopicPartition

P0, P1, P2 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
TIMEOUT_MS = 60_000


class Turns:
    """Handles events one after another; everything is committed at once."""

    def __init__(self) -> None:
        self.coordinator = TransactionCoordinator()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 1_000
        self.wall_ms = 1_700_000_000_000
        self.replies: dict[int, Reply] = {}
        self.sends: list[WriteMarkers] = []
        """Markers that nobody has written yet."""
        self._ids = count(1)
        self._producer_ids = count(100)

    def handle(self, event: Event) -> TransactionResult:
        return self.carry_out(self.coordinator.handle(self.now_ms, event))

    def carry_out(self, result: TransactionResult) -> TransactionResult:
        for write in result.writes:
            record: Any = write
            self.log.append(record.encode())
            self.coordinator.replay(record)
        for request_id, reply in result.replies:
            assert request_id not in self.replies, "a request was answered twice"
            self.replies[request_id] = reply
        self.sends.extend(result.sends)
        return result

    def ask(self, event: Any) -> Reply | None:
        """The reply; None while it is held."""
        self.handle(event)
        return self.replies.get(event.request_id)

    def pass_time(self, ms: int = 0) -> None:
        """Moves both clocks, and does what has become due."""
        self.now_ms += ms
        self.wall_ms += ms
        while (due_ms := self.coordinator.next_due_ms) is not None and due_ms <= self.now_ms:
            self.handle(TimePassed(self.wall_ms))

    def reload(self) -> None:
        """The coordinator moves: another one has the same log."""
        self.coordinator = loaded_from(self.log)
        self.sends.clear()
        self.carry_out(self.coordinator.loaded(self.now_ms, self.wall_ms))
        self.pass_time()

    # What producers ask.

    def init(
        self,
        name: str = "a",
        expected: tuple[int, int] | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        hold_ms: int = 0,
    ) -> ProducerIdentity:
        """InitProducerId, with a fresh producer id where one is needed."""
        former = None if expected is None else (ProducerId(expected[0]), ProducerEpoch(expected[1]))
        event = InitProducer(next(self._ids), name, timeout_ms, self.wall_ms, former, hold_ms=hold_ms)
        reply = self.ask(event)
        if isinstance(reply, NeedsProducerId):
            fresh = ProducerId(next(self._producer_ids))
            reply = self.ask(
                InitProducer(next(self._ids), name, timeout_ms, self.wall_ms, former, fresh, hold_ms=hold_ms)
            )
        assert isinstance(reply, ProducerIdentity)
        return reply

    def held_init(self, name: str = "a", *, hold_ms: int = 100) -> int:
        """InitProducerId that has to wait; its request id."""
        event = InitProducer(next(self._ids), name, TIMEOUT_MS, self.wall_ms, hold_ms=hold_ms)
        assert self.ask(event) is None
        return event.request_id

    def add(self, who: ProducerIdentity, *partitions: TopicPartition, name: str = "a", version: int = 0) -> ErrorCode:
        reply = self.ask(self.adding(who, *partitions, name=name, version=version))
        assert isinstance(reply, Outcome)
        return reply.error

    def adding(
        self,
        who: ProducerIdentity,
        *partitions: TopicPartition,
        name: str = "a",
        version: int = 0,
        hold_ms: int = 0,
    ) -> AddPartitions:
        return AddPartitions(
            next(self._ids),
            name,
            who.producer_id,
            who.producer_epoch,
            partitions or (P0,),
            self.wall_ms,
            version,
            hold_ms,
        )

    def verify(self, who: ProducerIdentity, *partitions: TopicPartition, name: str = "a") -> list[ErrorCode]:
        reply: Any = self.ask(VerifyPartitions(next(self._ids), name, who.producer_id, who.producer_epoch, partitions))
        assert [place for place, _ in reply.errors] == list(partitions)
        return [error for _, error in reply.errors]

    def end(
        self, who: ProducerIdentity, *, committed: bool = True, name: str = "a", version: int = 0, hold_ms: int = 0
    ) -> ProducerIdentity:
        """EndTxn, with a fresh producer id where one is needed."""
        event = self.ending(who, committed=committed, name=name, version=version, hold_ms=hold_ms)
        reply = self.ask(event)
        if isinstance(reply, NeedsProducerId):
            fresh = ProducerId(next(self._producer_ids))
            event = self.ending(
                who, committed=committed, name=name, version=version, hold_ms=hold_ms, fresh_producer_id=fresh
            )
            reply = self.ask(event)
        assert isinstance(reply, ProducerIdentity)
        return reply

    def ending(self, who: ProducerIdentity, *, name: str = "a", committed: bool = True, **more: Any) -> EndTransaction:
        return EndTransaction(
            next(self._ids), name, who.producer_id, who.producer_epoch, committed, self.wall_ms, **more
        )

    def abort_overdue(self) -> int:
        reply: Any = self.ask(AbortOverdue(next(self._ids), self.wall_ms))
        return int(reply.rest)

    def forget_idle(self, expiration_ms: int) -> int:
        reply: Any = self.ask(ForgetIdle(next(self._ids), self.wall_ms, expiration_ms))
        return int(reply.rest)

    # What leaders answer.

    def write_markers(self, *only: TopicPartition) -> None:
        """All markers that are wanted are written, or those of some partitions; held requests go on."""
        sends, self.sends = self.sends, []
        for send in sends:
            partitions = [place for place in send.partitions if not only or place in only]
            self.handle(
                MarkersWritten(send.transactional_id, send.producer_id, send.producer_epoch, partitions, self.wall_ms)
            )
        self.pass_time()

    def begun(self, *partitions: TopicPartition, name: str = "a", version: int = 0) -> ProducerIdentity:
        """A producer with an ongoing transaction."""
        who = self.init(name)
        assert self.add(who, *(partitions or (P0,)), name=name, version=version) is ErrorCode.NONE
        return who


def loaded_from(log: list[tuple[bytes, bytes | None]]) -> TransactionCoordinator:
    coordinator = TransactionCoordinator()
    for key, value in log:
        coordinator.load(key, value, None)
    return coordinator
