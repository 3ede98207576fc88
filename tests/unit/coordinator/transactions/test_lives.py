"""Random lives: producers that come, end, repeat themselves and are superseded, while time passes, markers come late or
twice, and the coordinator moves with and without what was not committed yet.

    Life        the log with its committed part, answers and markers that wait for it, partitions, producers
    Partition   what producers wrote, and what markers made of it
    Producer    one application: asks one thing at a time, as clients do
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.coordinator.transactions.turns import TIMEOUT_MS, loaded_from

from tidelog.coordinator.state_machine import TimePassed
from tidelog.coordinator.transactions.coordinator import TransactionCoordinator
from tidelog.coordinator.transactions.events import (
    AbortOverdue,
    AddPartitions,
    EndTransaction,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    NeedsProducerId,
    ProducerIdentity,
    WriteMarkers,
)
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ProducerEpoch, ProducerId, TopicPartition

PLACES = [TopicPartition("t", index) for index in range(3)]
IDS = ["a", "b"]


@dataclass
class Partition:
    """As a leader keeps it: who may write, what is open, and whose markers it takes."""

    epochs: dict[int, int] = field(default_factory=dict)
    """Producer id -> highest epoch seen."""
    open: dict[int, set[int]] = field(default_factory=dict)
    """Producer id -> transactions (numbered by the test) with records that have no outcome."""
    coordinator_epochs: dict[int, int] = field(default_factory=dict)

    def write(self, producer_id: int, epoch: int, transaction: int) -> bool:
        if epoch < self.epochs.get(producer_id, 0):
            return False
        self.epochs[producer_id] = epoch
        self.open.setdefault(producer_id, set()).add(transaction)
        return True


@dataclass
class Producer:
    name: str
    version: int
    identity: ProducerIdentity | None = None
    asked: int | None = None
    """The request that is under way."""
    event: Any = None
    transaction: int | None = None
    wrote: dict[int, set[TopicPartition]] = field(default_factory=dict)
    superseded: bool = False
    """Whether another one got an identity for the same transactional id since this one did."""
    superseded_when_asked: bool = False
    wants_commit: bool | None = None


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = TransactionCoordinator()
        self.term = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.committed = 0
        self.waiting: list[tuple[int, list[tuple[int, Any]], list[WriteMarkers]]] = []
        """(log end, replies, markers) that hold when the log is committed so far."""
        self.markers: list[tuple[int, WriteMarkers]] = []
        """(term of the coordinator, markers) on their way."""
        self.partitions = {place: Partition() for place in PLACES}
        self.outcomes: dict[int, set[bool]] = {}
        """Transaction -> what markers made of its records."""
        self.acknowledged: dict[int, bool] = {}
        """Transaction -> what its producer was told that became of it."""
        self.producers: list[Producer] = []
        self.given: dict[str, list[tuple[int, int]]] = {}
        self.request_ids = count(1)
        self.producer_ids = count(100)
        self.transactions = count(1)
        self.now_ms = 1_000
        self.wall_ms = 1_700_000_000_000

    # The shell.

    def handle(self, event: Any) -> None:
        result = self.coordinator.handle(self.now_ms, event)
        for write in result.writes:
            record: Any = write
            self.log.append(record.encode())
            self.coordinator.replay(record)
        self.waiting.append((len(self.log), result.replies, result.sends))
        if self.committed == len(self.log):
            self.commit(len(self.log))

    def commit(self, end: int) -> None:
        self.committed = end
        while self.waiting and self.waiting[0][0] <= end:
            _, replies, sends = self.waiting.pop(0)
            self.markers.extend((self.term, send) for send in sends)
            for request_id, reply in replies:
                self.take(request_id, reply)

    def turns(self) -> None:
        while (due_ms := self.coordinator.next_due_ms) is not None and due_ms <= self.now_ms:
            self.handle(TimePassed(self.wall_ms))

    # Producers.

    def take(self, request_id: int, reply: Any) -> None:
        producer = next((found for found in self.producers if found.asked == request_id), None)
        if producer is None:
            return
        event, producer.asked = producer.event, None
        if isinstance(reply, NeedsProducerId):
            self.ask(producer, event, ProducerId(next(self.producer_ids)))
            return
        if reply.error is ErrorCode.NONE:
            assert not producer.superseded_when_asked, f"a fenced producer succeeded: {event}"
        match event:
            case InitProducer() if reply.error is ErrorCode.NONE:
                self.begun(producer, reply, event)
            case AddPartitions() if reply.error is ErrorCode.NONE:
                assert producer.identity is not None
                assert producer.transaction is not None
                for place in event.partitions:
                    written = self.partitions[place].write(
                        producer.identity.producer_id, producer.identity.producer_epoch, producer.transaction
                    )
                    if written:
                        producer.wrote.setdefault(producer.transaction, set()).add(place)
            case EndTransaction() if reply.error is ErrorCode.NONE:
                if producer.transaction is not None:
                    self.acknowledged[producer.transaction] = event.committed
                producer.transaction = producer.wants_commit = None
                if producer.version == 2:
                    producer.identity = reply

    def begun(self, producer: Producer, reply: ProducerIdentity, event: InitProducer) -> None:
        given = self.given.setdefault(producer.name, [])
        mine = (reply.producer_id, reply.producer_epoch)
        if event.expected is None:
            assert mine not in given, "two producers have the same identity"
        if given and given[-1][0] == mine[0]:
            assert mine[1] >= given[-1][1], "an epoch went back"
        given.append(mine)
        for other in self.producers:
            if other is not producer and other.name == producer.name and other.identity is not None:
                other.superseded = True
        producer.identity, producer.transaction, producer.wants_commit = reply, None, None
        producer.superseded = False

    def ask(self, producer: Producer, event: Any, fresh: ProducerId = ProducerId(-1)) -> None:  # noqa: B008
        request_id = next(self.request_ids)
        match event:
            case InitProducer():
                again: Any = InitProducer(
                    request_id, event.transactional_id, TIMEOUT_MS, self.wall_ms, event.expected, fresh, 100
                )
            case EndTransaction():
                again = EndTransaction(
                    request_id,
                    event.transactional_id,
                    event.producer_id,
                    event.producer_epoch,
                    event.committed,
                    self.wall_ms,
                    event.version,
                    fresh,
                    100,
                )
            case _:
                again = AddPartitions(
                    request_id,
                    event.transactional_id,
                    event.producer_id,
                    event.producer_epoch,
                    event.partitions,
                    self.wall_ms,
                    event.version,
                    100,
                )
        producer.asked, producer.event = request_id, again
        # A producer that comes anew is superseded by nobody.
        producer.superseded_when_asked = producer.superseded and not (
            isinstance(event, InitProducer) and event.expected is None
        )
        self.handle(again)

    @precondition(lambda self: len(self.producers) < 6)
    @rule(name=st.sampled_from(IDS), version=st.sampled_from([0, 2]))
    def another_producer(self, name: str, version: int) -> None:
        producer = Producer(name, version)
        self.producers.append(producer)
        self.ask(producer, InitProducer(0, name, TIMEOUT_MS, self.wall_ms))

    def idle(self) -> list[Producer]:
        return [producer for producer in self.producers if producer.asked is None]

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), says_who=st.booleans())
    def a_producer_begins_anew(self, data: st.DataObject, says_who: bool) -> None:
        producer = data.draw(st.sampled_from(self.idle()))
        who = producer.identity
        expected = None if who is None or not says_who else (who.producer_id, who.producer_epoch)
        self.ask(producer, InitProducer(0, producer.name, TIMEOUT_MS, self.wall_ms, expected))

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), places=st.sets(st.sampled_from(PLACES), min_size=1))
    def a_producer_writes(self, data: st.DataObject, places: set[TopicPartition]) -> None:
        producer = data.draw(st.sampled_from(self.idle()))
        who = producer.identity
        if who is None or producer.wants_commit is not None:
            return
        if producer.transaction is None:
            producer.transaction = next(self.transactions)
        event = AddPartitions(
            0, producer.name, who.producer_id, who.producer_epoch, sorted(places), 0, producer.version
        )
        self.ask(producer, event)

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), committed=st.booleans())
    def a_producer_ends(self, data: st.DataObject, committed: bool) -> None:
        """Once it has asked for an end, it asks for nothing else until it is told."""
        producer = data.draw(st.sampled_from(self.idle()))
        who = producer.identity
        if who is None or producer.transaction is None:
            return
        if producer.wants_commit is None:
            producer.wants_commit = committed
        event = EndTransaction(
            0, producer.name, who.producer_id, who.producer_epoch, producer.wants_commit, 0, producer.version
        )
        self.ask(producer, event)

    # What happens around them.

    @precondition(lambda self: self.committed < len(self.log))
    @rule(data=st.data())
    def some_of_the_log_is_committed(self, data: st.DataObject) -> None:
        self.commit(data.draw(st.integers(self.committed + 1, len(self.log))))

    @rule(ms=st.sampled_from([0, 1, 50, 100, TIMEOUT_MS // 2, TIMEOUT_MS]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.wall_ms += ms
        self.turns()

    @rule()
    def the_clock_is_looked_at(self) -> None:
        self.handle(AbortOverdue(next(self.request_ids), self.wall_ms))

    @precondition(lambda self: self.markers)
    @rule(data=st.data(), answered=st.booleans(), kept=st.booleans())
    def markers_arrive(self, data: st.DataObject, answered: bool, kept: bool) -> None:
        """At one leader; its answer may be lost, and the request may come again."""
        index = data.draw(st.integers(0, len(self.markers) - 1))
        term, send = self.markers[index]
        place = data.draw(st.sampled_from(list(send.partitions)))
        self.mark(term, send, place, answered)
        if not kept and answered and len(send.partitions) == 1:
            self.markers.pop(index)

    def mark(self, term: int, send: WriteMarkers, place: TopicPartition, answered: bool) -> None:
        partition, producer_id = self.partitions[place], send.producer_id
        if term < partition.coordinator_epochs.get(producer_id, 0):
            return
        if send.producer_epoch >= partition.epochs.get(producer_id, 0):
            partition.coordinator_epochs[producer_id] = term
            partition.epochs[producer_id] = send.producer_epoch
            repeats = send.version == 0 and (send, place) in self.marked_of(term)
            if not repeats:
                for transaction in partition.open.pop(producer_id, set()):
                    self.outcomes.setdefault(transaction, set()).add(send.committed)
            self.marked_of(term).add((send, place)) if answered else None
        if answered and term == self.term:
            self.handle(
                MarkersWritten(send.transactional_id, send.producer_id, send.producer_epoch, [place], self.wall_ms)
            )

    def marked_of(self, term: int) -> set[Any]:
        """What a sender was answered: it does not send that again."""
        return self.__dict__.setdefault("marked", {}).setdefault(term, set())

    @rule(data=st.data())
    def the_coordinator_moves(self, data: st.DataObject) -> None:
        """To a replica that has all that is committed, and perhaps more."""
        end = data.draw(st.integers(self.committed, len(self.log)))
        del self.log[end:]
        self.waiting.clear()
        for producer in self.producers:
            producer.asked = None
        self.coordinator = loaded_from(self.log)
        self.term += 1
        self.coordinator.loaded(self.now_ms, self.wall_ms)
        self.turns()

    # What always holds.

    @invariant()
    def live_is_what_is_in_the_log(self) -> None:
        assert loaded_from(self.log) == self.coordinator

    @invariant()
    def all_or_nothing(self) -> None:
        for transaction, outcomes in self.outcomes.items():
            assert len(outcomes) == 1, "a transaction is half done"
            told = self.acknowledged.get(transaction)
            assert told is None or outcomes == {told}, "a transaction ended otherwise than its producer was told"

    def teardown(self) -> None:
        """In the end every transaction that was decided is complete, and all that were acknowledged are there."""
        for _ in range(50):
            self.commit(len(self.log))
            for term, send in list(self.markers):
                for place in send.partitions:
                    self.mark(term, send, place, answered=True)
                self.markers.remove((term, send))
            self.time_passes(100)
        reply: Any = self.coordinator.handle(0, ListTransactions(0, self.wall_ms)).replies[0][1]
        assert not [name for name, found in reply.transactions if found.state.is_prepared]
        self.all_or_nothing()
        for producer in self.producers:
            for transaction, places in producer.wrote.items():
                if transaction in self.acknowledged and places:
                    assert self.outcomes.get(transaction) == {self.acknowledged[transaction]}


TestLives = Life.TestCase
TestLives.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)


def test_epochs_in_the_model_are_kafkas() -> None:
    """The model's partition refuses what is older than what it has seen."""
    partition = Partition()
    assert partition.write(1, ProducerEpoch(1), 1)
    assert not partition.write(1, ProducerEpoch(0), 2)
