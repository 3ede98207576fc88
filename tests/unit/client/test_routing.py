"""What a client decides, with the brokers' part played by plain values and time that only a pause moves."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from tidelog.client.addresses import Address
from tidelog.client.admin import (
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
    describe_topics,
    list_groups,
)
from tidelog.client.errors import ClientError, ConnectionFailed, InvalidResponse, RequestTimedOut
from tidelog.client.exchange import ByVersion
from tidelog.client.offsets import OffsetFound, list_offsets
from tidelog.client.operations import Call, Operation, Pause
from tidelog.client.producing import ProducedBatch, produce_batches
from tidelog.client.retries import RetryPolicy
from tidelog.client.routing import FORMER_TOPICS_MAX, Routing
from tidelog.client.transacting import TransactionIdentity, append_batches
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages

T = TypeVar("T")
ONE, TWO, SEED = Address("one", 1), Address("two", 2), Address("seed", 9)


class World:
    """Brokers as one function of address and request, and a clock."""

    def __init__(
        self, answer: Callable[[Address, Any], Any], *, fail_fast: bool = False, timeout_s: float = 10
    ) -> None:
        self.time = 100.0
        self.asked: list[tuple[Address, Any]] = []
        self.pauses: list[float] = []
        self._answer = answer
        self.routing = Routing(
            [SEED],
            now=lambda: self.time,
            draw=lambda: 0.5,
            operation_timeout_s=timeout_s,
            call_timeout_s=2,
            fail_fast=fail_fast,
        )

    def run(self, operation: Operation[T]) -> T:
        """Carries an operation out."""
        outcomes: Sequence[Any] = ()
        try:
            step = next(operation)
            while True:
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    self.time += step.seconds
                    outcomes = ()
                else:
                    outcomes = [self._outcome(call) for call in step]
                step = operation.send(outcomes)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # A generator's value is untyped in StopIteration.

    def _outcome(self, call: Call) -> Any:
        self.asked.append((call.address, call.message))
        outcome = self._answer(call.address, call.message)
        if isinstance(outcome, RequestTimedOut):
            self.time += call.timeout_s
        return outcome

    def asked_of(self, kind: type) -> list[Address]:
        """Who was asked with a kind of request."""
        return [address for address, message in self.asked if isinstance(message, kind)]


def metadata(leaders: dict[int, int], *, controller: int = 1, error: ErrorCode = ErrorCode.NONE) -> Any:
    """Brokers 1 and 2, and topic `t` with these leaders."""
    kind = messages.MetadataResponse
    return kind(
        brokers=[
            kind.MetadataResponseBroker(node_id=1, host="one", port=1),
            kind.MetadataResponseBroker(node_id=2, host="two", port=2),
        ],
        cluster_id="c",
        controller_id=controller,
        topics=[
            kind.MetadataResponseTopic(
                name="t",
                topic_id=bytes(range(16)),
                error_code=error,
                partitions=[
                    kind.MetadataResponsePartition(partition_index=p, leader_id=leader, leader_epoch=5)
                    for p, leader in leaders.items()
                ],
            )
        ],
    )


def offsets(answers: dict[int, tuple[ErrorCode, int]]) -> Any:
    """A ListOffsets response for partitions of `t`."""
    kind = messages.ListOffsetsResponse
    partitions = [
        kind.ListOffsetsPartitionResponse(partition_index=p, error_code=code, offset=offset)
        for p, (code, offset) in answers.items()
    ]
    return kind(topics=[kind.ListOffsetsTopicResponse(name="t", partitions=partitions)])


def partitions_asked(message: Any) -> list[int]:
    """The partitions in a ListOffsets request."""
    return [entry.partition_index for topic in message.topics for entry in topic.partitions]


def names_asked(message: Any) -> list[str]:
    """The topics in a Metadata request."""
    return [topic.name for topic in message.topics]


def tp(partition: int) -> TopicPartition:
    """A partition of `t`."""
    return TopicPartition("t", partition)


def test_each_leader_is_asked_once_for_all_its_partitions() -> None:
    """Three partitions of two leaders are one Metadata and two ListOffsets."""

    def answer(address: Address, message: Any) -> Any:
        if isinstance(message, messages.MetadataRequest):
            return metadata({0: 1, 1: 2, 2: 1})
        return offsets({p: (ErrorCode.NONE, 10 + p) for p in partitions_asked(message)})

    world = World(answer)
    found = world.run(list_offsets(world.routing, {tp(0): -1, tp(1): -1, tp(2): -1}))
    assert {p.partition: result.offset for p, result in found.items() if isinstance(result, OffsetFound)} == {
        0: 10,
        1: 11,
        2: 12,
    }
    assert sorted(world.asked_of(messages.ListOffsetsRequest)) == [ONE, TWO]
    assert len(world.asked_of(messages.MetadataRequest)) == 1
    world.run(list_offsets(world.routing, {tp(0): -1}))
    assert len(world.asked_of(messages.MetadataRequest)) == 1


def test_a_moved_leader_is_looked_up_and_only_its_partition_asked_again() -> None:
    """NOT_LEADER_OR_FOLLOWER for one partition of two: fresh metadata, then that one at its new leader."""
    moved = False

    def answer(address: Address, message: Any) -> Any:
        nonlocal moved
        if isinstance(message, messages.MetadataRequest):
            return metadata({0: 1, 1: 2 if moved else 1})
        wrong = address == ONE and 1 in partitions_asked(message)
        moved = True
        return offsets(
            {
                p: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1) if wrong and p == 1 else (ErrorCode.NONE, 7)
                for p in partitions_asked(message)
            }
        )

    world = World(answer)
    found = world.run(list_offsets(world.routing, {tp(0): -1, tp(1): -1}))
    assert found == {tp(0): OffsetFound(7, -1, -1), tp(1): OffsetFound(7, -1, -1)}
    asked = [(a, partitions_asked(m)) for a, m in world.asked if isinstance(m, messages.ListOffsetsRequest)]
    assert asked == [(ONE, [0, 1]), (TWO, [1])]
    assert world.pauses == [pytest.approx(0.05)]


def test_an_error_that_will_not_pass_is_the_partitions_result() -> None:
    """The other partitions have their answers all the same, and nothing is asked again."""

    def answer(address: Address, message: Any) -> Any:
        if isinstance(message, messages.MetadataRequest):
            return metadata({0: 1, 1: 1})
        return offsets({0: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1), 1: (ErrorCode.NONE, 3)})

    world = World(answer)
    found = world.run(list_offsets(world.routing, {tp(0): -1, tp(1): -1}))
    assert isinstance(found[tp(0)], KafkaError)
    assert found[tp(1)] == OffsetFound(3, -1, -1)
    assert world.pauses == []


@pytest.mark.parametrize(
    ("error", "asked"),
    [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, range(5, 8)), (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [1])],
)
def test_a_topic_that_is_missing_is_the_result_of_its_own_partitions(error: ErrorCode, asked: Sequence[int]) -> None:
    """The other topics have their answers; one that is unknown may have been created a moment ago, and has a second."""

    def answer(address: Address, message: Any) -> Any:
        if isinstance(message, messages.MetadataRequest):
            response = metadata({0: 1})
            missing = messages.MetadataResponse.MetadataResponseTopic(name="missing", error_code=error)
            response.topics = [topic for topic in (*response.topics, missing) if topic.name in names_asked(message)]
            return response
        return offsets(dict.fromkeys(partitions_asked(message), (ErrorCode.NONE, 3)))

    world, missing = World(answer, timeout_s=60), TopicPartition("missing", 0)
    found = world.run(list_offsets(world.routing, {missing: -1, tp(0): -1}))
    assert found.pop(tp(0)) == OffsetFound(3, -1, -1)
    assert {place: getattr(each, "code", None) for place, each in found.items()} == {missing: error}
    assert len(world.asked_of(messages.ListOffsetsRequest)) == 1
    assert len(world.asked_of(messages.MetadataRequest)) in asked


def test_an_answer_is_about_the_topics_that_the_request_named_though_they_are_not_shown_meanwhile() -> None:
    """Prebuilt batches are not sent again because another caller looks at all topics, of a broker that lags."""

    def answer(address: Address, message: Any) -> Any:
        if isinstance(message, messages.MetadataRequest):
            response = metadata({0: 1})
            response.topics = response.topics if message.topics else []
            return response
        world.run(world.routing.refresh(None, world.routing.deadline()))
        kind = messages.ProduceResponse
        appended = kind.PartitionProduceResponse(index=0, base_offset=7)
        return kind(responses=[kind.TopicProduceResponse(topic_id=bytes(range(16)), partition_responses=[appended])])

    world = World(answer)
    found = world.run(produce_batches(world.routing, {tp(0): b"batch"}))
    assert found == {tp(0): ProducedBatch(base_offset=7)}
    world.run(append_batches(world.routing, TransactionIdentity("x", 1, 0), {tp(0): b"batch"}))
    assert world.pauses == []


def test_retriable_errors_end_at_the_deadline_with_what_the_broker_said() -> None:
    """Pauses double up to a second; at the deadline the partition's last error is its result."""

    def answer(address: Address, message: Any) -> Any:
        if isinstance(message, messages.MetadataRequest):
            return metadata({0: 1})
        return offsets({0: (ErrorCode.OFFSET_NOT_AVAILABLE, -1)})

    world = World(answer)
    found = world.run(list_offsets(world.routing, {tp(0): -1}))
    error = found[tp(0)]
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.OFFSET_NOT_AVAILABLE
    assert world.pauses[:6] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0])
    assert max(world.pauses) == pytest.approx(1.0)
    assert world.time <= 110


def test_a_partition_without_leader_is_waited_for() -> None:
    """LEADER_NOT_AVAILABLE passes once an election has happened."""
    rounds = 0

    def answer(address: Address, message: Any) -> Any:
        nonlocal rounds
        if isinstance(message, messages.MetadataRequest):
            rounds += 1
            return metadata({0: -1 if rounds < 3 else 2})
        return offsets({0: (ErrorCode.NONE, 1)})

    world = World(answer)
    assert world.run(list_offsets(world.routing, {tp(0): -1})) == {tp(0): OffsetFound(1, -1, -1)}
    assert world.asked_of(messages.ListOffsetsRequest) == [TWO]


def test_others_of_a_topic_have_their_leaders_while_one_is_looked_for() -> None:
    """A producer on the same cluster sends to them, however long Metadata takes to answer."""
    seen: list[list[int]] = []

    def answer(address: Address, message: Any) -> Any:
        if isinstance(message, messages.MetadataRequest):
            view = world.routing.topics.get("t")
            seen.append([] if view is None else [each.leader for each in view.partitions.values()])
            return metadata({0: -1 if len(seen) < 3 else 2, 1: 1})
        return offsets({0: (ErrorCode.NONE, 1)})

    world = World(answer)
    assert world.run(list_offsets(world.routing, {tp(0): -1})) == {tp(0): OffsetFound(1, -1, -1)}
    assert seen == [[], [-1, 1], [-1, 1]]


def test_a_partition_that_does_not_exist_is_an_error_at_once() -> None:
    """No broker can ever lead it."""
    world = World(lambda address, message: metadata({0: 1}))
    error = world.run(list_offsets(world.routing, {tp(9): -1}))[tp(9)]
    assert isinstance(error, KafkaError)
    assert error.message == "topic 't' has no partition 9"
    assert world.asked_of(messages.ListOffsetsRequest) == []


def test_an_unknown_topic_is_asked_for_again_for_a_second_only() -> None:
    """It may have been created a moment ago; after a second it is missing."""
    world = World(lambda address, message: metadata({}, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), timeout_s=60)
    with pytest.raises(KafkaError, match="topic 't' does not exist"):
        world.run(world.routing.require_topics(["t"], world.routing.deadline()))
    assert 101 <= world.time < 102.5


def test_a_topic_that_metadata_leaves_out_is_unknown() -> None:
    """It is asked for again for a second, with pauses, and told as unknown, whatever was known of it before."""
    leaves_out = False

    def answer(address: Address, message: Any) -> Any:
        response = metadata({0: 1})
        if leaves_out:
            response.topics.clear()
        return response

    world = World(answer)
    world.run(world.routing.refresh(["t"], world.routing.deadline()))
    leaves_out = True
    found = world.run(describe_topics(world.routing, ["t"]))["t"]
    assert isinstance(found, KafkaError)
    with pytest.raises(KafkaError, match="'t'"):
        world.run(world.routing.require_topics(["t"], world.routing.deadline()))
    assert 101 <= world.time < 102.5


def test_the_next_broker_is_asked_when_one_is_out_of_reach() -> None:
    """Those that Metadata named come first, then the bootstrap ones; who answered last is first next time."""

    def answer(address: Address, message: Any) -> Any:
        return ConnectionFailed("refused") if address == ONE else metadata({0: 1})

    world = World(answer)
    world.run(world.routing.refresh(None, world.routing.deadline()))
    world.run(world.routing.refresh(None, world.routing.deadline()))
    world.run(world.routing.refresh(None, world.routing.deadline()))
    assert world.asked_of(messages.MetadataRequest) == [SEED, ONE, TWO, TWO]


@pytest.mark.parametrize("silent", [(ONE,), (ONE, SEED)])
def test_a_broker_that_does_not_answer_is_asked_last_next_time(silent: tuple[Address, ...]) -> None:
    """Its machine is gone without a word, and the one question takes all the time that there is. As the first one that
    is asked each time it would keep all others from being asked, for as long as it is away."""
    is_away = False

    def answer(address: Address, message: Any) -> Any:
        return RequestTimedOut("silent") if is_away and address in silent else metadata({0: 1})

    world = World(answer)
    world.run(world.routing.refresh(None, world.routing.deadline()))
    world.run(world.routing.refresh(None, world.routing.deadline()))
    assert world.asked_of(messages.MetadataRequest) == [SEED, ONE]
    is_away = True
    with pytest.raises(RequestTimedOut):
        world.run(world.routing.refresh(None, world.routing.deadline(1)))
    world.asked.clear()
    world.run(world.routing.refresh(None, world.routing.deadline(1)))
    assert world.asked_of(messages.MetadataRequest) == [TWO]


def test_fail_fast_ends_when_nobody_answers() -> None:
    """One round through all brokers, no pause, and the reason is told."""
    world = World(lambda address, message: ConnectionFailed(f"cannot connect to {address}"), fail_fast=True)
    with pytest.raises(ConnectionFailed, match="cannot connect to seed:9"):
        world.run(world.routing.refresh(None, world.routing.deadline()))
    assert world.pauses == []


def test_without_fail_fast_a_cluster_may_be_restarting() -> None:
    """Rounds go on until the deadline, which slow brokers cannot push out."""
    world = World(lambda address, message: RequestTimedOut("slow"), timeout_s=5)
    with pytest.raises(RequestTimedOut):
        world.run(world.routing.refresh(None, world.routing.deadline()))
    assert 100 < world.time <= 105
    assert len(world.asked) > 1


def test_a_peer_that_speaks_no_kafka_is_not_asked_again() -> None:
    """InvalidResponse is raised at once: it would say the same again."""
    world = World(lambda address, message: InvalidResponse("web server"))
    with pytest.raises(InvalidResponse):
        world.run(world.routing.refresh(None, world.routing.deadline()))
    assert len(world.asked) == 1


def test_the_controller_is_found_and_found_again() -> None:
    """NOT_CONTROLLER makes the client look who is controller now."""
    controller = 1

    def answer(address: Address, message: Any) -> Any:
        nonlocal controller
        if isinstance(message, messages.MetadataRequest):
            return metadata({0: 1}, controller=controller)
        if address == ONE:
            controller = 2
            return messages.ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return messages.ListPartitionReassignmentsResponse()

    world = World(answer)
    request = messages.ListPartitionReassignmentsRequest(topics=None)
    operation = world.routing.ask_controller(request, world.routing.deadline(), lambda answer: (answer.error_code,))
    assert world.run(operation).error_code == 0
    assert world.asked_of(messages.ListPartitionReassignmentsRequest) == [ONE, TWO]


def losing(first: Any, *, others: int = 2) -> World:
    """A world whose broker 1 loses the answer to its first admin request, and then answers `first`.

    Topic `t` has `others` partitions in Metadata.
    """
    lost = False

    def answer(address: Address, message: Any) -> Any:
        nonlocal lost
        if isinstance(message, messages.MetadataRequest):
            return metadata(dict.fromkeys(range(others), 1))
        if lost:
            return first
        lost = True
        return ConnectionFailed("the connection to one broke")

    return World(answer)


def test_a_topic_that_a_lost_request_may_have_made_is_told_as_such() -> None:
    """Nobody knows who made it: that is what the error says. Without a lost answer it says nothing of the kind."""
    kind = messages.CreateTopicsResponse
    exists = ErrorCode.TOPIC_ALREADY_EXISTS
    entry = kind.CreatableTopicResult(name="t", error_code=exists, error_message="Topic 't' already exists.")
    world = losing(kind(topics=[entry]))
    for words in (
        "already exists.*may be the one that this call made: the connection to one broke",
        "already exists.$",
    ):
        result = world.run(create_topics(world.routing, [NewTopic("t")]))["t"]
        assert isinstance(result, KafkaError)
        assert result.code is exists
        assert re.search(words, result.message or "")


@pytest.mark.parametrize("known", [True, False])
def test_a_topic_that_was_there_is_deleted_also_where_the_answer_was_lost(known: bool) -> None:
    """It was there, and is not there any more: that is what was asked for. One that was never seen is unknown."""
    kind = messages.DeleteTopicsResponse
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world = losing(kind(responses=[kind.DeletableTopicResult(name="t", error_code=unknown)]))
    if known:
        world.run(world.routing.refresh(["t"], world.routing.deadline()))
    result = world.run(delete_topics(world.routing, ["t"]))["t"]
    if known:
        assert result is None
        world.run(world.routing.refresh(["t"], world.routing.deadline()))
        result = world.run(delete_topics(world.routing, ["t"]))["t"]
    assert isinstance(result, KafkaError)
    assert result.code is unknown


@pytest.mark.parametrize(("before", "after", "is_ours"), [(2, 4, True), (4, 4, False), (2, 5, False), (0, 4, False)])
def test_a_topic_has_grown_also_where_the_answer_was_lost(before: int, after: int, is_ours: bool) -> None:
    """It had fewer partitions, and has as many as were asked for. Otherwise the refusal is told."""
    kind = messages.CreatePartitionsResponse
    invalid = ErrorCode.INVALID_PARTITIONS
    answer = kind(results=[kind.CreatePartitionsTopicResult(name="t", error_code=invalid)])
    lost = False

    def answer_of(address: Address, message: Any) -> Any:
        nonlocal lost
        if isinstance(message, messages.MetadataRequest):
            return metadata(dict.fromkeys(range(after if lost else before), 1))
        if lost:
            return answer
        lost = True
        return ConnectionFailed("the connection to one broke")

    world = World(answer_of)
    if before:
        world.run(world.routing.refresh(["t"], world.routing.deadline()))
    result = world.run(create_partitions(world.routing, {"t": 4}))["t"]
    if is_ours:
        assert result is None
    else:
        assert isinstance(result, KafkaError)
        assert result.code is invalid


def test_a_coordinator_that_moved_is_found_again() -> None:
    """NOT_COORDINATOR forgets the coordinator; an answer keeps it for the next time."""
    current = TWO

    def answer(address: Address, message: Any) -> Any:
        nonlocal current
        if isinstance(message, messages.OffsetCommitRequest):
            kind = messages.OffsetCommitResponse
            code = ErrorCode.NONE if address == ONE else ErrorCode.NOT_COORDINATOR
            current = ONE
            partition = kind.OffsetCommitResponsePartition(error_code=code)
            return kind(topics=[kind.OffsetCommitResponseTopic(partitions=[partition])])
        return messages.FindCoordinatorResponse(host=current.host, port=current.port)

    world = World(answer)

    def ask() -> Any:
        return world.run(
            world.routing.ask_coordinator(
                "g",
                messages.OffsetCommitRequest(group_id="g"),
                world.routing.deadline(),
                lambda answer: (entry.error_code for topic in answer.topics for entry in topic.partitions),
            )
        )

    ask()
    assert world.asked_of(messages.OffsetCommitRequest) == [TWO, ONE]
    ask()
    assert world.asked_of(messages.OffsetCommitRequest) == [TWO, ONE, ONE]


def test_a_topic_created_anew_has_a_new_id_and_the_old_one_leads_nowhere() -> None:
    """Ids and names are those of the last metadata."""
    world = World(lambda address, message: metadata({0: 1}))
    world.run(world.routing.refresh(None, world.routing.deadline()))
    assert world.routing.topic_id("t") == bytes(range(16))
    assert world.routing.topic_name(world.routing.topic_id("t")) == "t"
    assert world.routing.topic_id("other") == bytes(16)
    assert world.routing.leader_epoch(tp(0)) == 5
    assert world.routing.leader_epoch(tp(1)) == -1


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_leader_of_an_epoch_that_is_over_is_not_believed(is_forgotten: bool) -> None:
    """It was deposed and does not know: the leader of the newer epoch stays, and another broker is asked next."""
    shown = {ONE: (1, 4), TWO: (2, 5), SEED: (2, 5)}

    def answer(address: Address, request: Any) -> Any:
        leader, epoch = shown[address]
        response = metadata({0: leader})
        response.topics[0].partitions[0].leader_epoch = epoch
        return response

    world = World(answer)
    routing, place = world.routing, TopicPartition("t", 0)
    world.run(routing.refresh(["t"], routing.deadline()))
    if is_forgotten:
        routing.forget_leader(place)
    assert world.run(routing.refresh(["t"], routing.deadline())) == {}
    assert [address for address, _ in world.asked] == [SEED, ONE]
    leader = routing.leader(place)
    assert (leader and leader.broker_id, routing.leader_epoch(place)) == (None if is_forgotten else 2, 5)
    world.run(routing.refresh(["t"], routing.deadline()))
    assert world.asked[2][0] == TWO
    leader = routing.leader(place)
    assert (leader and leader.broker_id, routing.leader_epoch(place)) == (2, 5)


def test_a_topic_loses_no_partition() -> None:
    """A broker that lags shows fewer: keys would go by another number. It is asked last from then on."""
    shown = [metadata({0: 1, 1: 2}), metadata({0: 1}), metadata({0: 1, 1: 2})]
    world = World(lambda address, message: shown.pop(0))
    for _ in range(2):
        world.run(world.routing.refresh(["t"], world.routing.deadline()))
    assert list(world.routing.topics["t"].partitions) == [0, 1]
    assert world.routing.leader(tp(1)) is not None
    world.run(world.routing.refresh(["t"], world.routing.deadline()))
    assert [address for address, _ in world.asked] == [SEED, ONE, TWO]


def test_of_a_topic_that_a_broker_does_not_know_another_broker_is_asked() -> None:
    """The first one may lag: what all of them do not know is not there."""
    unknown = metadata({}, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    world = World(lambda address, message: metadata({0: 1}) if address == TWO else unknown)
    assert list(world.run(world.routing.require_topics(["t"], world.routing.deadline()))) == ["t"]
    assert TWO in [address for address, _ in world.asked]


@pytest.mark.parametrize("topics", [None, ["t"]])
def test_a_broker_that_knows_of_no_brokers_says_nothing_of_topics(topics: list[str] | None) -> None:
    """Kafka's, with ZooKeeper, answers so when it has just started: its topics are not gone. Another one is asked, or
    the same one later."""
    is_new: set[Address] = set()

    def answer(address: Address, message: Any) -> Any:
        return messages.MetadataResponse(brokers=[], topics=[]) if address in is_new else metadata({0: 1})

    world = World(answer)
    world.run(world.routing.refresh(None, world.routing.deadline()))
    is_new = {SEED, ONE}
    world.asked.clear()
    assert world.run(world.routing.refresh(topics, world.routing.deadline())) == {}
    assert world.asked_of(messages.MetadataRequest) == [ONE, TWO]
    assert world.routing.leader(tp(0)) is not None
    is_new.add(TWO)
    with pytest.raises(ConnectionFailed, match="knows of no brokers"):
        world.run(world.routing.refresh(topics, world.routing.deadline()))
    assert world.routing.leader(tp(0)) is not None


def test_leader_epochs_of_another_topic_begin_anew() -> None:
    """One that was deleted and made again, which has another id."""
    epochs = {bytes(range(16)): 5, bytes(range(1, 17)): 0}

    def answer(address: Address, request: Any) -> Any:
        response = metadata({0: 1})
        response.topics[0].topic_id, response.topics[0].partitions[0].leader_epoch = present, epochs[present]
        return response

    world = World(answer)
    for topic_id in epochs:
        present = topic_id
        world.run(world.routing.refresh(["t"], world.routing.deadline()))
        assert world.routing.leader_epoch(TopicPartition("t", 0)) == epochs[topic_id]
        assert world.routing.leader(TopicPartition("t", 0)) is not None


def test_of_topics_that_are_gone_no_more_than_a_bound_is_kept() -> None:
    """A topic that is made again and again has another id each time; what is shown keeps its epoch."""
    made = itertools.count()

    def answer(address: Address, request: Any) -> Any:
        response = metadata({0: 1})
        response.topics[0].topic_id = (1 << 64 | next(made)).to_bytes(16)
        return response

    world = World(answer)
    for _ in range(FORMER_TOPICS_MAX + 50):
        world.run(world.routing.refresh(["t"], world.routing.deadline()))
    assert len(world.routing._leader_epochs) == len(world.routing._names_by_id) == FORMER_TOPICS_MAX + 1
    present = world.routing.topic_id("t")
    assert world.routing.topic_name(present) == "t"
    assert world.routing._leader_epochs[present] == {0: 5}


def test_a_list_is_that_of_every_coordinator() -> None:
    """One that loads is asked again, alone; where one refuses, or is gone, there is no list."""
    outcomes: dict[Address, list[Any]] = {}

    def answer(address: Address, message: Any) -> Any:
        return outcomes[address].pop(0) if isinstance(message, ByVersion) else metadata({})

    def listed(group: str) -> Any:
        kind = messages.ListGroupsResponse
        return kind(groups=[kind.ListedGroup(group_id=group, protocol_type="consumer", group_state="Stable")])

    loading = messages.ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    world = World(answer)
    outcomes.update({ONE: [listed("b")], TWO: [loading, listed("a")]})
    assert [group.group for group in world.run(list_groups(world.routing))] == ["a", "b"]
    assert world.asked_of(ByVersion) == [ONE, TWO, TWO]
    assert len(world.pauses) == 1
    denied = messages.ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    for second, error in ((denied, KafkaError), (ConnectionFailed("gone"), ClientError)):
        outcomes.update({ONE: [listed("b")], TWO: [second]})
        with pytest.raises(error):
            world.run(list_groups(world.routing))


def test_pauses_are_drawn_around_their_nominal_length() -> None:
    """20 % either way, so that many clients do not come back at once."""
    policy = RetryPolicy(backoff_ms=100, backoff_ms_max=400)
    assert [policy.pause_s(n, lambda: 0.0) for n in (1, 2, 3, 4, 99)] == pytest.approx([0.08, 0.16, 0.32, 0.32, 0.32])
    assert policy.pause_s(1, lambda: 1.0) == pytest.approx(0.12)


def test_errors_of_the_client_are_one_family() -> None:
    """Callers catch ClientError for everything but the cluster's own error codes."""
    assert issubclass(ConnectionFailed, ClientError)
    assert not issubclass(KafkaError, ClientError)
