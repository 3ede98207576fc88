"""What a coordinator's shell needs of a node, in memory: a log of batches, appends that are committed when told to."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from tidelog.broker.coordinators.internal_topic import InternalTopic
from tidelog.broker.coordinators.shards import Shards
from tidelog.broker.deferred import Deferred
from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.state_machine import StateMachine
from tidelog.metadata.image import ClusterImage, PartitionChanged, PartitionImage, TopicChanged
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import (
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC
from tidelog.records.batch import patch
from tidelog.storage.log import ReadResult
from tidelog.storage.log_config import LogConfig

PLACE = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
M = TypeVar("M", bound=StateMachine)


class Timer:
    def __init__(self, delay_ms: int, callback: Callable[[], object]) -> None:
        self.delay_ms = delay_ms
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Shell:
    """Runs what was asked for when told to."""

    def __init__(self) -> None:
        self.turns: list[Callable[[], object]] = []
        self.timers: list[Timer] = []

    def after(self, delay_ms: int, callback: Callable[..., object], *arguments: Any) -> Timer:
        timer = Timer(delay_ms, lambda: callback(*arguments))
        self.timers.append(timer)
        return timer

    def waiting(self) -> list[int]:
        """Delays of the timers that were neither cancelled nor run."""
        return [timer.delay_ms for timer in self.timers if timer.callback is not None]

    def run_timers(self) -> None:
        """Those that wait now, and the turns that follow."""
        for timer in list(self.timers):
            callback = timer.callback
            timer.cancel()
            if callback is not None:
                callback()
        self.settle()

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self.turns.append(lambda: callback(*arguments))

    def in_pool(self, work: Callable[[], Any]) -> Deferred[Any]:
        outcome: Deferred[Any] = Deferred()

        def run() -> None:
            try:
                value = work()
            except Exception as error:
                outcome.fail(error)
            else:
                outcome.complete(value)

        self.turns.append(run)
        return outcome

    def settle(self) -> None:
        while self.turns:
            self.turns.pop(0)()


class Range:
    """Bytes as a FileRange gives them."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self) -> bytes:
        return self.data

    def release(self) -> None:
        self.data = b""


class Log:
    """Batches in memory."""

    def __init__(self) -> None:
        self.owner = SimpleNamespace(path="/memory")
        """The log directory, by whose threads it is read."""
        self.batches: list[tuple[int, int, bytes]] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.broken = False
        self.is_offline = False
        self.flip: tuple[int, int] | None = None
        """After how many reads a bit of which byte is read wrong, once."""
        self.config = LogConfig()

    def append(self, data: bytearray, count: int) -> int:
        first = self.log_end_offset
        patch(data, 0, base_offset=first, leader_epoch=0)
        self.log_end_offset += count
        self.batches.append((first, self.log_end_offset, bytes(data)))
        return first

    def read(self, offset: int, max_bytes: int, *, up_to_offset: int) -> ReadResult:
        if self.broken:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")
        for _, end, data in self.batches:
            if end > offset:
                if self.flip is not None:
                    reads, at = self.flip
                    self.flip = None if not reads else (reads - 1, at)
                    if not reads:
                        data = data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]
                return ReadResult([Range(data)], len(data))  # type: ignore[list-item]
        return ReadResult([], 0)


class Leader:
    has_enough_replicas = True


class Replica:
    def __init__(self, log: Log, partition: int = 0) -> None:
        self.topic_partition = PLACE._replace(partition=partition)
        self.log = log
        self.leader: Leader | None = Leader()
        self.leader_epoch = 0
        self.removed = False
        self.delayed_appends: list[Any] = []

    def delayed(self) -> Replica:
        return self

    def add(self, append: Any, required_acks: int) -> None:
        self.delayed_appends.append(append)


class Replicas:
    """One replica; appends are committed when `outcomes` says so."""

    broker_id = BrokerId(0)

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.outcomes: list[Deferred[Any]] = []
        self.commit_at_once = True
        self.refuse: KafkaError | None = None
        self.refuse_next: KafkaError | None = None
        self.guards: list[object] = []
        """Of each append, accepted or not."""
        self.high_watermark: int | None = None

    def get(self, topic_partition: TopicPartition) -> Replica | None:
        return self.replica if topic_partition == PLACE else None

    def of_topic(self, topic: str) -> list[Replica]:
        return [self.replica]

    def acknowledged(self, replica: Replica, last_offset: int, required_acks: int) -> bool:
        return self.high_watermark is None or self.high_watermark > last_offset

    def append_and_wait(
        self, topic_partition: TopicPartition, data: bytearray, timeout_ms: int, *, guard: object = None
    ) -> Deferred[Any]:
        outcome: Deferred[Any] = Deferred()
        self.guards.append(guard)
        refusal, self.refuse_next = self.refuse_next or self.refuse, None
        if refusal is not None:
            outcome.fail(refusal)
            return outcome
        self.replica.log.append(data, int.from_bytes(data[57:61], "big"))
        self.outcomes.append(outcome)
        if self.commit_at_once:
            outcome.complete(None)
        return outcome


class TransactionalAppends:
    """The coordinators of transactions, who say yes."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, bool]] = []
        self.refuse: KafkaError | None = None
        self.answer: Deferred[Any] | None = None

    def verify(
        self, replica: Replica, transactional_id: str, producer_id: int, producer_epoch: int, *, adds: bool
    ) -> Deferred[Any]:
        self.asked.append((transactional_id, producer_id, producer_epoch, adds))
        if self.answer is not None:
            return self.answer
        if self.refuse is None:
            return Deferred.of("guard")
        refused: Deferred[Any] = Deferred()
        refused.fail(self.refuse)
        return refused


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def wall_ms(self) -> int:
        return 1000

    def monotonic_ms(self) -> int:
        return self.now_ms


class Controller:
    """Answers when told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Deferred[Any]]] = []

    def submit(self, event: Any) -> Deferred[Any]:
        outcome: Deferred[Any] = Deferred()
        self.asked.append((event, outcome))
        return outcome


class Metadata:
    def __init__(self) -> None:
        self.image = ClusterImage()
        self.layout_changes = 0


class Node:
    """A broker's environment, and what else its coordinators take."""

    broker_id = BrokerId(0)
    broker_epoch = 7

    def __init__(self, *, with_topic: bool = True) -> None:
        self.config = BrokerConfig()
        self.clock = Clock()
        self.shell = Shell()
        self.replicas = Replicas(Replica(Log()))
        self.controller = Controller()
        self.transactional_appends = TransactionalAppends()
        self.metadata = Metadata()
        if with_topic:
            image = PartitionImage((BrokerId(0),), BrokerId(0), LeaderEpoch(0), (BrokerId(0),), PartitionEpoch(0))
            self.metadata.image.apply(TopicChanged(CONSUMER_OFFSETS_TOPIC, TopicId(bytes(range(16)))))
            self.metadata.image.apply(PartitionChanged(CONSUMER_OFFSETS_TOPIC, 0, image))


def error_of(outcome: Deferred[Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        outcome.result()
    return refused.value.code


def shards_over(node: Node, topic: InternalTopic, machine: Callable[[], M]) -> tuple[Shards[M], list[M]]:
    """The shards of `topic` on a node, and the state machines that they have made, which grow with the loads."""
    machines: list[M] = []

    def make() -> M:
        machines.append(machine())
        return machines[-1]

    shards = Shards(
        node,  # type: ignore[arg-type]
        metadata=node.metadata,  # type: ignore[arg-type]
        replicas=node.replicas,  # type: ignore[arg-type]
        controller=node.controller,  # type: ignore[arg-type]
        topic=topic,
        make=make,
    )
    return shards, machines
