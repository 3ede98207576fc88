"""A coordinator's longer work: a step a turn of the loop, and many records that were encoded before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.unit.broker.coordinator_harness import Node, shards_over

from tidelog.broker.coordinators.internal_topic import InternalTopic
from tidelog.broker.coordinators.shards import Shards
from tidelog.coordinator.records import CoordinatorRecord, PreparedRecords
from tidelog.coordinator.result import Result
from tidelog.coordinator.state_machine import StateMachine, TimePassed
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC
from tidelog.protocol import messages
from tidelog.protocol.coordinator_records import CONSUMER_OFFSETS
from tidelog.records.batch import Codec, read_records

TOPIC = InternalTopic(CONSUMER_OFFSETS_TOPIC, 1, 1, [], Codec.NONE, 1000, 1 << 20)
STEPS = 3


@dataclass(frozen=True)
class Begin:
    """Has the work begun; answered when its name is written."""

    request_id: int


class Machine(StateMachine):
    """Its work is done in steps; the last one writes five names."""

    TOPIC = CONSUMER_OFFSETS

    def __init__(self) -> None:
        self.names: list[str] = []
        self.left = 0

    @property
    def next_due_ms(self) -> int | None:
        return 0 if self.left else None

    def handle(self, now_ms: int, event: Any) -> Result[Any, Any]:
        result: Result[Any, Any] = Result()
        if isinstance(event, Begin):
            self.left = STEPS
            result.writes.append(name("begun"))
            result.replies.append((event.request_id, "begun"))
        elif isinstance(event, TimePassed) and self.left:
            self.left -= 1
            result.goes_on = True
            if not self.left:
                prepared = PreparedRecords()
                for number in range(5):
                    prepared.add(name(f"n{number}"))
                prepared.key = ["all", "five"]
                result.writes.append(prepared)
        return result

    def replay(self, record: Any) -> None:
        self.names += record.key if isinstance(record, PreparedRecords) else [record.key.group]


def name(text: str) -> CoordinatorRecord:
    return CoordinatorRecord(messages.GroupMetadataKey(group=text), None)


def shards_of(node: Node) -> tuple[Shards[Machine], list[Machine]]:
    return shards_over(node, TOPIC, Machine)


def test_a_step_a_turn_and_one_batch_in_the_end() -> None:
    """Clients have their turn between two steps; what was prepared is a batch of its own, behind what came before, and
    whoever reads the log finds each record."""
    node = Node()
    shards, machines = shards_of(node)
    begun = shards.ask("k", Begin)
    for left in (2, 1, 0):
        node.shell.run_timers()
        assert machines[0].left == left
    assert begun.result() == "begun"
    assert machines[0].names == ["begun", "all", "five"]
    log = node.replicas.replica.log
    assert [end - first for first, end, _ in log.batches] == [1, 5]
    records = read_records(log.batches[1][2])
    assert [record.offset for record in records] == [1, 2, 3, 4, 5]
    other, loaded = shards_of(node)
    other.leadership_changed(0)
    node.shell.settle()
    assert loaded[0].names == ["begun", "n0", "n1", "n2", "n3", "n4"]


def test_what_is_prepared_and_does_not_fit_a_batch_has_the_state_loaded_anew() -> None:
    node = Node()
    node.replicas.replica.log.config = node.replicas.replica.log.config.__class__(max_message_bytes=120)
    shards, machines = shards_of(node)
    shards.ask("k", Begin)
    for _ in range(STEPS):
        node.shell.run_timers()
    assert len(node.replicas.replica.log.batches) == 1
    shards.leadership_changed(0)
    node.shell.settle()
    assert machines[-1].names == ["begun"]
    assert len(machines) == 2
