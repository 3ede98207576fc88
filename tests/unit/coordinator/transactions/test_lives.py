"""Random lives: producers that come, end, repeat themselves and are superseded, while time passes, markers come late or
twice, and the coordinator moves with and without what was not committed yet.

    Life        the log with its committed part, answers and markers that wait for it, partitions, producers
    Partition   what producers wrote, and what markers made of it
    Producer    one application: asks one thing at a time, as clients do
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amount import examples
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
    TransactionResult,
    WriteMarkers,
)
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ProducerEpoch, ProducerId, TopicPartition

PLACES = [TopicPartition("t", index) for index in range(3)]
IDS = ["a", "b"]
PRODUCERS_MAX = 5
STEPS = 150


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


class Life:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.coordinator = TransactionCoordinator()
        self.term = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.committed = 0
        self.lags = False
        """Whether followers don't follow: nothing is committed until they do, or somebody says how much."""
        self.waiting: list[tuple[int, list[tuple[int, Any]], list[WriteMarkers]]] = []
        """(log end, replies, markers) that hold when the log is committed so far."""
        self.markers: list[tuple[int, int, WriteMarkers]] = []
        """(term of the coordinator, number, markers) on their way."""
        self.marked: set[tuple[int, TopicPartition]] = set()
        """(number of markers, partition) for which the sender has an answer: it asks no more."""
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
        self.numbers = count(1)
        self.now_ms = 1_000
        self.wall_ms = 1_700_000_000_000

    # The shell.

    def handle(self, event: Any) -> None:
        self.carry_out(self.coordinator.handle(self.now_ms, event))

    def carry_out(self, result: TransactionResult) -> None:
        for write in result.writes:
            record: Any = write
            self.log.append(record.encode())
            self.coordinator.replay(record)
        # As the shell does it: what it has not appended itself, a coordinator does not wait for.
        end = len(self.log) if result.writes or self.waiting else self.committed
        self.waiting.append((end, result.replies, result.sends))
        self.commit(self.committed if self.lags else len(self.log))

    def commit(self, end: int) -> None:
        self.committed = max(end, self.committed)
        while self.waiting and self.waiting[0][0] <= self.committed:
            _, replies, sends = self.waiting.pop(0)
            self.markers.extend((self.term, next(self.numbers), send) for send in sends)
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

    def another_producer(self, name: str, version: int) -> None:
        producer = Producer(name, version)
        self.producers.append(producer)
        self.ask(producer, InitProducer(0, name, TIMEOUT_MS, self.wall_ms))

    def idle(self) -> list[Producer]:
        return [producer for producer in self.producers if producer.asked is None]

    def a_producer_begins_anew(self, says_who: bool) -> None:
        producer = self.random.choice(self.idle())
        who = producer.identity
        expected = None if who is None or not says_who else (who.producer_id, who.producer_epoch)
        self.ask(producer, InitProducer(0, producer.name, TIMEOUT_MS, self.wall_ms, expected))

    def a_producer_writes(self, places: set[TopicPartition]) -> None:
        producer = self.random.choice(self.idle())
        who = producer.identity
        if who is None or producer.wants_commit is not None:
            return
        if producer.transaction is None:
            producer.transaction = next(self.transactions)
        event = AddPartitions(
            0, producer.name, who.producer_id, who.producer_epoch, sorted(places), 0, producer.version
        )
        self.ask(producer, event)

    def a_producer_ends(self, committed: bool) -> None:
        """Once it has asked for an end, it asks for nothing else until it is told."""
        producer = self.random.choice(self.idle())
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

    def some_of_the_log_is_committed(self) -> None:
        self.commit(self.random.randint(self.committed, len(self.log)))

    def followers_lag_or_follow(self, lags: bool) -> None:
        self.lags = lags
        if not lags:
            self.commit(len(self.log))

    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.wall_ms += ms
        self.turns()

    def the_clock_is_looked_at(self) -> None:
        self.handle(AbortOverdue(next(self.request_ids), self.wall_ms))

    def markers_arrive(self, answered: bool, kept: bool) -> None:
        """At one leader; its answer may be lost, and the request may come again."""
        on_their_way = self.random.choice(self.markers)
        _, number, send = on_their_way
        self.mark(on_their_way, self.random.choice(send.partitions), answered)
        if not kept and all((number, place) in self.marked for place in send.partitions):
            self.markers.remove(on_their_way)

    def mark(self, on_their_way: tuple[int, int, WriteMarkers], place: TopicPartition, answered: bool) -> None:
        term, number, send = on_their_way
        partition, producer_id = self.partitions[place], send.producer_id
        if term < partition.coordinator_epochs.get(producer_id, 0):
            return
        # With an epoch for each transaction a leader knows a late repetition; without, it must not come (KIP-890).
        repeats_late = (
            (number, place) in self.marked
            if send.version == 0
            else bool(partition.open.get(producer_id)) and send.producer_epoch <= partition.epochs[producer_id]
        )
        if send.producer_epoch >= partition.epochs.get(producer_id, 0) and not repeats_late:
            partition.coordinator_epochs[producer_id] = term
            partition.epochs[producer_id] = send.producer_epoch
            for transaction in partition.open.pop(producer_id, set()):
                self.outcomes.setdefault(transaction, set()).add(send.committed)
        if answered and term == self.term:
            self.marked.add((number, place))
            self.handle(
                MarkersWritten(send.transactional_id, send.producer_id, send.producer_epoch, [place], self.wall_ms)
            )

    def the_coordinator_moves(self) -> None:
        """To a replica that has all that is committed, and perhaps more."""
        end = self.random.randint(self.committed, len(self.log))
        del self.log[end:]
        self.waiting.clear()
        for producer in self.producers:
            producer.asked = None
        self.coordinator = loaded_from(self.log)
        self.term += 1
        self.lags = self.random.random() < 0.7
        # The shell begins when all that was read is committed; until then the coordinator may move once more.
        if self.random.random() < 0.3:
            self.the_coordinator_moves()
            return
        self.commit(len(self.log))
        self.carry_out(self.coordinator.loaded(self.now_ms, self.wall_ms))
        self.turns()

    # The life.

    def step(self) -> None:
        """One thing that happens, the likely ones more often."""
        random = self.random
        match random.choices(range(9), [4, 3, 12, 8, 4, 2, 4, 2, 16 if self.markers else 0])[0]:
            case 0 if len(self.producers) < PRODUCERS_MAX:
                self.another_producer(random.choice(IDS), random.choice([0, 2]))
            case 1 if self.idle():
                self.a_producer_begins_anew(says_who=random.random() < 0.5)
            case 2 if self.idle():
                self.a_producer_writes(set(random.sample(PLACES, random.randint(1, len(PLACES)))))
            case 3 if self.idle():
                self.a_producer_ends(committed=random.random() < 0.7)
            case 4:
                self.some_of_the_log_is_committed()
            case 5:
                self.followers_lag_or_follow(lags=random.random() < 0.3)
            case 6:
                self.time_passes(random.choice([0, 0, 0, 1, 50, 100, TIMEOUT_MS // 2]))
                self.the_clock_is_looked_at()
            case 7:
                self.the_coordinator_moves()
            case 8:
                self.markers_arrive(answered=random.random() < 0.8, kept=random.random() < 0.2)

    def end(self) -> None:
        """Every transaction that was decided is complete, and all that were acknowledged are there."""
        self.followers_lag_or_follow(lags=False)
        for _ in range(20):
            for on_their_way in list(self.markers):
                for place in on_their_way[2].partitions:
                    self.mark(on_their_way, place, answered=True)
                self.markers.remove(on_their_way)
            self.time_passes(100)
        reply: Any = self.coordinator.handle(0, ListTransactions(0, self.wall_ms)).replies[0][1]
        assert not [name for name, found in reply.transactions if found.state.is_prepared]
        self.check()
        for producer in self.producers:
            for transaction, places in producer.wrote.items():
                if transaction in self.acknowledged and places:
                    assert self.outcomes.get(transaction) == {self.acknowledged[transaction]}

    def check(self) -> None:
        """What holds at any time."""
        assert loaded_from(self.log) == self.coordinator, "live is not what is in the log"
        for transaction, outcomes in self.outcomes.items():
            assert len(outcomes) == 1, "a transaction is half done"
            told = self.acknowledged.get(transaction)
            assert told is None or outcomes == {told}, "a transaction ended otherwise than its producer was told"


@settings(max_examples=examples(500), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_lives(seed: int) -> None:
    """Transactions are done as a whole or not at all and as their producers were told, epochs never go back, a fenced
    producer never succeeds, what is loaded equals what was live, and all that was decided is completed.
    """
    life = Life(Random(seed))
    for _ in range(STEPS):
        life.step()
        life.check()
    life.end()


def test_epochs_in_the_model_are_kafkas() -> None:
    """The model's partition refuses what is older than what it has seen."""
    partition = Partition()
    assert partition.write(1, ProducerEpoch(1), 1)
    assert not partition.write(1, ProducerEpoch(0), 2)
