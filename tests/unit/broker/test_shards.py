"""The shell of any coordinator: time, answers that come later, and who hears of what was committed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from tests.unit.broker.coordinator_harness import Leader, Log, Node, Replica, error_of, shards_over

from tidelog.broker.coordinators.internal_topic import InternalTopic
from tidelog.broker.coordinators.shards import GRACE_MS, LOADS_MAX, RETRY_MS, Shards
from tidelog.coordinator.records import CoordinatorRecord
from tidelog.coordinator.result import Result
from tidelog.coordinator.state_machine import Remaining, StateMachine, TimePassed
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.topics import CONSUMER_OFFSETS_TOPIC
from tidelog.protocol import messages
from tidelog.protocol.coordinator_records import CONSUMER_OFFSETS
from tidelog.records.batch import Codec

TOPIC = InternalTopic(CONSUMER_OFFSETS_TOPIC, 1, 1, [], Codec.NONE, 1000, 1 << 20)


@dataclass(frozen=True)
class Wait:
    """Answered when somebody wakes it."""

    request_id: int


@dataclass(frozen=True)
class Wake:
    """Writes, and answers itself and those that wait."""

    request_id: int


@dataclass(frozen=True)
class Ask:
    """Answered with the names that were written."""

    request_id: int


@dataclass(frozen=True)
class Sweep:
    """Takes out the first name; answered by how many are left."""

    request_id: int


class Machine(StateMachine):
    """Each wake, and each deadline, writes a name."""

    TOPIC: ClassVar[str] = CONSUMER_OFFSETS
    READS: ClassVar[frozenset[type]] = frozenset({Ask})

    def __init__(self) -> None:
        self.names: list[str] = []
        self.waiting: list[int] = []
        self.due: list[int] = []
        self.began = 0
        self.mistakes = 0

    @property
    def next_due_ms(self) -> int | None:
        return min(self.due, default=None)

    def handle(self, now_ms: int, event: Any) -> Result[Any, Any]:
        self._slip()
        result: Result[Any, Any] = Result()
        match event:
            case Wait(request_id):
                self.waiting.append(request_id)
            case Wake(request_id):
                result.writes.append(name(f"n{len(self.names)}"))
                result.replies = [(each, "woken") for each in (*self.waiting, request_id)]
                self.waiting.clear()
            case Ask(request_id):
                result.replies.append((request_id, list(self.names)))
            case Sweep(request_id):
                del self.names[:1]
                result.replies.append((request_id, Remaining(len(self.names))))
            case TimePassed() if self.due and min(self.due) <= now_ms:
                self.due.remove(min(self.due))
                result.writes.append(name(f"due{len(self.names)}"))
        return result

    def _slip(self) -> None:
        if self.mistakes:
            self.mistakes -= 1
            raise ZeroDivisionError

    def replay(self, record: CoordinatorRecord) -> None:
        self._slip()
        assert isinstance(record.key, messages.GroupMetadataKey)
        self.names.append(record.key.group)

    def loaded(self, now_ms: int, wall_ms: int) -> Result[Any, Any] | None:
        self.began += 1
        return Result([name("began")]) if self.names else None


def name(text: str) -> CoordinatorRecord:
    return CoordinatorRecord(messages.GroupMetadataKey(group=text), None)


@pytest.fixture
def node() -> Node:
    return Node()


def shards_of(node: Node) -> tuple[Shards[Machine], list[Machine]]:
    return shards_over(node, TOPIC, Machine)


def test_a_request_may_be_answered_by_a_later_event(node: Node) -> None:
    """When what that event wrote is committed."""
    shards, _ = shards_of(node)
    node.replicas.commit_at_once = False
    waiting = shards.ask("k", Wait)
    waking = shards.ask("k", Wake)
    node.shell.settle()
    assert not waiting.done
    node.replicas.outcomes[0].complete(None)
    assert (waiting.result(), waking.result()) == ("woken", "woken")


def test_whoever_left_is_not_answered(node: Node) -> None:
    """His request is forgotten."""
    shards, _ = shards_of(node)
    waiting = shards.ask("k", Wait)
    waiting.abandon()
    shards.ask("k", Wake)
    node.shell.settle()
    assert not waiting.done


def test_who_waits_is_told_when_the_coordinator_moves(node: Node) -> None:
    """He asks elsewhere."""
    shards, _ = shards_of(node)
    waiting = shards.ask("k", Wait)
    node.replicas.replica.leader = None
    shards.leadership_changed(0)
    assert error_of(waiting) is ErrorCode.NOT_COORDINATOR


def test_who_asks_before_this_broker_leads_is_to_come_again(node: Node) -> None:
    """Clients know the leader from the metadata, which may be here before the replica leads; librdkafka gives up a
    commit that is answered NOT_COORDINATOR."""
    shards, _ = shards_of(node)
    node.replicas.replica.leader, leader = None, node.replicas.replica.leader
    node.replicas.replica.leader_epoch = -1
    assert error_of(shards.ask("k", Ask)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert error_of(shards.ask_partition(1, Ask)) is ErrorCode.NOT_COORDINATOR
    node.replicas.replica.leader, node.replicas.replica.leader_epoch = leader, 0
    shards.leadership_changed(0)
    assert shards.ask("k", Ask).done
    # Now its disk fails: another broker will lead.
    node.replicas.replica.log.is_offline = True
    assert error_of(shards.ask("k", Ask)) is ErrorCode.NOT_COORDINATOR


def test_results_are_told_when_they_are_committed(node: Node) -> None:
    """After the replies, in the order of the events; those that wrote nothing behind those that did."""
    shards, _ = shards_of(node)
    told: list[Any] = []
    shards.on_committed = lambda shard, result: told.append((shard.term, len(result.writes)))
    node.replicas.commit_at_once = False
    shards.ask("k", Wake).on_complete(lambda _: told.append("reply"))
    shards.ask("k", Ask)
    node.shell.settle()
    assert told == []
    node.replicas.outcomes[0].complete(None)
    assert told == ["reply", (0, 1), (0, 0)]
    shards.ask("k", Ask)
    assert told[3:] == [(0, 0)]


def test_each_deadline_sees_what_the_one_before_wrote(node: Node) -> None:
    """All that are due, in one turn; the timer is set for the next."""
    shards, machines = shards_of(node)
    shards.ask("k", Ask)
    machines[0].due = [5, 3, 900]
    shards.ask("k", Ask)
    assert node.shell.waiting() == [3]
    node.clock.now_ms = 10
    node.shell.run_timers()
    assert machines[0].names == ["due0", "due1"]
    assert node.shell.waiting() == [890]
    machines[0].due.append(100)
    shards.ask("k", Ask)
    assert node.shell.waiting() == [90]


def test_no_deadline_is_missed_for_want_of_replicas(node: Node) -> None:
    """What is due waits, and when the partition takes appends again, for members to be heard first."""
    shards, machines = shards_of(node)
    shards.ask("k", Ask)
    machines[0].due = [1]
    shards.ask("k", Ask)
    leader = node.replicas.replica.leader
    assert leader is not None
    leader.has_enough_replicas = False
    node.clock.now_ms = 10
    node.shell.run_timers()
    assert (machines[0].names, node.shell.waiting()) == ([], [RETRY_MS])
    leader.has_enough_replicas = True
    node.shell.run_timers()
    assert (machines[0].names, node.shell.waiting()) == ([], [GRACE_MS])
    node.shell.run_timers()
    assert machines[0].names == ["due0"]


def test_what_is_told_in_vain_costs_no_state(node: Node) -> None:
    """An append that is sure to fail would: whoever tells comes again."""
    shards, machines = shards_of(node)
    leader = node.replicas.replica.leader
    assert leader is not None
    shard = shards.ready(0)
    leader.has_enough_replicas = False
    node.replicas.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not shards.tell(shard, Wake(0))
    node.shell.settle()
    leader.has_enough_replicas, node.replicas.refuse = True, None
    assert shards.tell(shard, Wake(0))
    node.shell.settle()
    assert (len(machines), machines[0].names) == (1, ["n0"])


def test_news_wait_until_the_partition_takes_appends(node: Node) -> None:
    """A deleted topic's offsets go before anything is committed for one that has its name by then."""
    shards, machines = shards_of(node)
    leader = node.replicas.replica.leader
    assert leader is not None
    shards.ready(0)
    leader.has_enough_replicas = False
    machines[0].names = ["deleted"]
    shards.tell_all(Sweep(0))
    assert machines[0].names == ["deleted"]
    leader.has_enough_replicas = True
    shards.ask("k", Wake)
    assert machines[0].names == ["n0"]


def test_news_outlive_a_load_that_fails(node: Node) -> None:
    """The next one's state has it that they are about."""
    shards, _ = shards_of(node)
    shards.ask("k", Wake)
    node.shell.settle()
    fresh, machines = shards_of(node)
    node.replicas.replica.log.broken = True
    fresh.leadership_changed(0)
    fresh.tell_all(Wake(0))
    node.shell.settle()
    fresh.tell_all(Wake(0))
    node.replicas.replica.log.broken = False
    node.shell.run_timers()
    assert machines[-1].names == ["n0", "began", "n2", "n3"]


def test_news_go_with_the_leadership(node: Node) -> None:
    """The next leader of the partition has heard of them, too."""
    shards, machines = shards_of(node)
    replica = node.replicas.replica
    assert replica.leader is not None
    shards.ready(0)
    replica.leader.has_enough_replicas = False
    shards.tell_all(Wake(0))
    replica.leader = None
    shards.leadership_changed(0)
    replica.leader, replica.leader_epoch = Leader(), 1
    shards.ask("k", Wake)
    assert machines[-1].names == ["n0"]


def test_a_sweep_asks_until_all_is_done(node: Node) -> None:
    """Each time with what the answer before has left, in a turn of its own; a mistake ends it for one coordinator."""
    shards, machines = shards_of(node)
    replicas = [Replica(Log(), partition) for partition in range(3)]
    node.replicas.get = lambda place: replicas[place.partition]  # type: ignore[method-assign]
    node.replicas.of_topic = lambda topic: replicas  # type: ignore[method-assign]
    for partition in range(3):
        shards.leadership_changed(partition)
        machines[partition].names = ["a", "b", "c"]
    machines[1].mistakes = 1
    rests: list[Any] = []

    def make(request_id: int, rest: Any) -> Sweep:
        rests.append(rest)
        return Sweep(request_id)

    shards.sweep(make)
    turns = 0
    while node.shell.turns:
        turns += 1
        with suppress(ZeroDivisionError):
            node.shell.turns.pop(0)()
    assert [len(machine.names) for machine in machines] == [0, 3, 0]
    assert sorted(rests, key=str) == [1, 1, 2, 2, None, None, None]
    assert turns >= len(rests) - 1


def test_a_mistake_at_a_deadline_does_not_stop_the_clock(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """It is told, and the rest is done a moment later."""
    shards, machines = shards_of(node)
    shards.ask("k", Ask)
    machines[0].due = [1, 2]
    shards.ask("k", Ask)
    node.clock.now_ms = 10
    machines[0].mistakes = 1
    node.shell.run_timers()
    assert (machines[0].names, node.shell.waiting()) == ([], [RETRY_MS])
    node.shell.run_timers()
    assert machines[0].names == ["due0", "due1"]
    assert "deadline failed" in caplog.text


def test_a_mistake_in_replaying_ends_one_loading(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """That partition is not served; whatever waits behind it is loaded."""
    shards, _ = shards_of(node)
    shards.ask("k", Wake)
    node.shell.settle()
    fresh, machines = shards_of(node)
    fresh.leadership_changed(0)
    machines[0].mistakes = 1
    node.shell.settle()
    assert error_of(fresh.ask("k", Ask)) is ErrorCode.NOT_COORDINATOR
    assert "replay failed" in caplog.text
    node.replicas.replica.leader_epoch = 1
    fresh.leadership_changed(0)
    node.shell.settle()
    assert fresh.ask("k", Ask).done


def test_loadings_that_wait_for_followers_hold_up_no_others(node: Node) -> None:
    """Their slots are for those that read: two partitions whose followers are away must not cost all the others."""
    shards, _ = shards_of(node)
    shards.ask("k", Wake)
    node.shell.settle()
    uncommitted = set(range(LOADS_MAX))
    replicas = [Replica(node.replicas.replica.log, partition) for partition in range(LOADS_MAX + 1)]
    fresh, machines = shards_of(node)
    node.replicas.get = lambda place: replicas[place.partition]  # type: ignore[method-assign]
    node.replicas.acknowledged = (  # type: ignore[method-assign]
        lambda replica, *_: replica.topic_partition.partition not in uncommitted
    )
    for partition in range(LOADS_MAX + 1):
        fresh.leadership_changed(partition)
    node.shell.settle()
    assert [machine.began for machine in machines] == [0] * LOADS_MAX + [1]
    uncommitted.clear()
    assert all(append.try_complete() for replica in replicas for append in replica.delayed_appends)
    assert [machine.began for machine in machines] == [1] * (LOADS_MAX + 1)


def test_a_partition_that_moves_while_it_is_loaded_is_not_taken_for_unreadable(node: Node) -> None:
    """A listing that leaves it out would say that its groups are gone; it is to be asked for again."""
    shards, _ = shards_of(node)
    shards.ask("k", Wake)
    node.shell.settle()
    fresh, _ = shards_of(node)
    replica = node.replicas.replica
    for epoch in range(3):
        replica.leader, replica.leader_epoch = Leader(), epoch
        fresh.leadership_changed(0)
        if epoch < 2:
            replica.leader = None
            fresh.leadership_changed(0)
    # Two reads come to their end, of leaderships that are over; the third load has begun behind them.
    while len(node.shell.turns) > 1:
        node.shell.turns.pop(0)()
    assert error_of(fresh.ask_all(Ask)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.shell.settle()
    assert fresh.ask_all(Ask).result() == [["n0", "began"]]


def test_a_partition_whose_directory_failed_does_not_take_the_others_answers_along(node: Node) -> None:
    """The controller has another broker lead it, and nothing comes of that order here: the replica cannot be read."""
    shards, _ = shards_of(node)
    shards.ready(0)
    assert shards.ask_all(Ask).done
    node.replicas.replica.log.is_offline = True
    assert shards.ask_all(Ask).result() == []
    assert shards.led_partitions() == []


def test_a_coordinator_that_begins_may_write(node: Node) -> None:
    """Once, when all of the log was replayed."""
    shards, _ = shards_of(node)
    shards.ask("k", Wake)
    node.shell.settle()
    fresh, machines = shards_of(node)
    fresh.leadership_changed(0)
    node.shell.settle()
    assert (machines[0].names, machines[0].began) == (["n0", "began"], 1)


def test_a_coordinator_that_failed_begins_anew_by_itself(node: Node) -> None:
    """Somebody may be waiting for a deadline, and nobody asks."""
    shards, machines = shards_of(node)
    node.replicas.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    outcome = shards.ask("k", Wake)
    node.shell.settle()
    assert error_of(outcome) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(machines) == 1
    node.shell.run_timers()
    assert len(machines) == 2


def test_whoever_is_told_of_a_failure_does_not_find_its_state(node: Node) -> None:
    """He may ask again at once."""
    shards, machines = shards_of(node)
    node.replicas.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    found: list[Any] = []
    shards.ask("k", Wake).on_complete(lambda _: found.append(shards.ask("k", Ask).result()))
    node.shell.settle()
    assert (found, machines[0].names) == ([[]], ["n0"])
