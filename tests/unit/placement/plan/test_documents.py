"""States, plans and Kafka's lists of moves as documents: what is written is read again, and what is wrong is named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tidelog.model.identifiers import TopicPartition
from tidelog.operator.emptying import moves_within
from tidelog.placement.plan.documents import DocumentError
from tidelog.placement.plan.goals import Goals
from tidelog.placement.plan.kafka_json import dump_kafka, load_kafka
from tidelog.placement.plan.plan import Move, Plan
from tidelog.placement.plan.plan_file import dump_plan, is_plan, load_plan
from tidelog.placement.plan.planner import make_plan
from tidelog.placement.plan.state import (
    BrokerState,
    ClusterState,
    DirectoryMoveState,
    DirectoryState,
    PartitionState,
    ReassignmentState,
    TopicState,
)
from tidelog.placement.plan.state_file import dump_state, load_state

STATE = ClusterState.of(
    cluster_id="c",
    taken_at_ms=12,
    brokers=[
        BrokerState(1, "b", directories=(DirectoryState("/x", 100, 50), DirectoryState("/y", error="KAFKA_STORAGE"))),
        BrokerState(0, "a", cordoned=True, throttles={"leader.replication.throttled.rate": "10"}),
        BrokerState(2, online=False),
    ],
    topics=[TopicState("t", "id", min_insync_replicas=2, throttles={"leader.replication.throttled.replicas": "*"})],
    partitions=[
        PartitionState("t", 1, (2, 0), 0, (0,), (None, None), (None, 7), 1.5, 2.5),
        PartitionState("t", 0, (0, 1), 0, (0, 1), (None, "/x"), (5, 6)),
    ],
    reassignments={TopicPartition("t", 0): ReassignmentState((1,), ())},
    directory_moves=[DirectoryMoveState("t", 0, 1, "/y", 3)],
    missing=["sizes of log directories of broker 0: it is older than Kafka 3.3"],
)

PLAN = Plan.of(
    [
        Move("t", 1, (2, 0), (1, 0), (None, None), ("/x", None), 7, wave=1, topic_id="id"),
        Move("t", 0, (0, 1), (0, 1), (None, "/x"), (None, "/y"), 6),
    ],
    cluster_id="c",
    made_at_ms=12,
    state_digest=STATE.digest(),
    goals=["counts"],
    moves_least=2,
    bytes_least=13,
    gap=0.0,
    simulation={"seconds": 3},
)


def small_state(**changes: Any) -> dict[str, Any]:
    """The least that a state written by hand has to have."""
    document: dict[str, Any] = {
        "version": 1,
        "brokers": [{"id": 0}, {"id": 1}],
        "topics": [{"name": "t", "partitions": [{"partition": 0, "replicas": [0, 1]}]}],
    }
    return document | changes


def of_partition(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "t", "partitions": [{"partition": 0, "replicas": [0, 1]} | fields]}]


def test_a_state_is_read_as_it_was_written() -> None:
    assert load_state(dump_state(STATE)) == STATE
    assert list(STATE.brokers) == [0, 1, 2]
    assert list(STATE.partitions) == [TopicPartition("t", 0), TopicPartition("t", 1)]


def test_a_plan_is_read_as_it_was_written_and_undone_by_its_inverse() -> None:
    """Moves come by wave; the inverse begins with the last one."""
    assert load_plan(dump_plan(PLAN)) == PLAN
    assert is_plan(dump_plan(PLAN))
    assert [move.partition for move in PLAN.moves] == [0, 1]
    assert (PLAN.replica_moves, PLAN.bytes) == (2, 13)
    back = PLAN.inverse()
    assert [(move.partition, move.replicas_to, move.directories_to) for move in back.moves] == [
        (1, (2, 0), (None, None)),
        (0, (0, 1), (None, "/x")),
    ]
    assert [move.replicas_to for move in back.inverse().moves] == [move.replicas_to for move in PLAN.moves]


def test_moves_know_the_topic_that_they_are_for() -> None:
    """By its id, whoever made them: a plan, Kafka's list, a move between directories, and the way back."""
    state = replace(STATE, reassignments={}, directory_moves=())
    planned = make_plan(state, Goals(factors={"t": 1})).plan
    listed = load_kafka('{"version": 1, "partitions": [{"topic": "t", "partition": 1, "replicas": [1, 0]}]}', state)
    within = moves_within(state, 1, source="/x", target="/y")
    for plan in (planned, planned.inverse(), listed, within):
        assert plan.moves
        assert {move.topic_id for move in plan.moves} == {"id"}


def test_a_state_by_hand_needs_little() -> None:
    state = load_state(json.dumps(small_state()))
    partition = state.partitions[TopicPartition("t", 0)]
    assert (partition.leader, partition.isr, partition.size) == (0, (0, 1), None)


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("{", "not JSON: "),
        ("[]", "expected an object, found a list"),
        ('{"version": 1, "version": 1}', "'version' is there twice"),
        ('{"version": NaN}', "NaN is no number"),
        (b"\xff{}", "invalid UTF-8"),
        ("[" * 100_000, "nested too deeply"),
        ('{"version": ' + "1" * 5000 + "}", "a number has more digits than it may"),
        (small_state(topics=[{"name": "\ud800", "partitions": []}]), r"topics\[0\].name: .* is no valid text"),
        (small_state(version=2), "version: this program reads version 1 of 'tidelog-state', the document has 2"),
        (small_state(format="tidelog-plan"), "format: expected 'tidelog-state', found 'tidelog-plan'"),
        ({"version": 1}, "'topics' is missing"),
        (small_state(brokers=[{"id": 0}, {"id": 0}]), "broker 0 is there twice"),
        (small_state(brokers=[{"id": 0}]), "partition t-0: broker 1 is not among the brokers"),
        (small_state(brokers=[{"id": -1}]), r"brokers\[0\].id: -1 is not between 0 and"),
        (small_state(brokers=[{"id": True}]), r"brokers\[0\].id: expected a whole number, found true"),
        (small_state(topics=[{"name": "t"}]), r"topics\[0\]: 'partitions' is missing"),
        (small_state(topics=2 * of_partition()), "topic t is there twice"),
        (small_state(topics=of_partition(replicas=[0, 0])), "a broker is there twice in its replicas"),
        (small_state(topics=of_partition(replicas=[])), "it has no replicas"),
        (small_state(topics=of_partition(log_dirs=["/d"])), "log_dirs has 1 elements for 2 replicas"),
        (small_state(topics=of_partition(bytes=[1, 2, 3])), "bytes has 3 elements for 2 replicas"),
        (small_state(topics=of_partition(bytes=[1, "2"])), r"bytes\[1\]: expected a whole number, found the string"),
        (small_state(topics=of_partition(leader=9)), "its leader, broker 9, is not among the brokers"),
        (
            small_state(reassignments=[{"topic": "t", "partition": 5, "adding": [], "removing": []}]),
            "reassignment of t-5: there is no such partition",
        ),
        (
            small_state(directory_moves=[{"topic": "t", "partition": 5, "broker": 0, "log_dir": "/d"}]),
            "move of t-5 to /d: there is no such partition",
        ),
        (
            small_state(directory_moves=[{"topic": "t", "partition": 0, "broker": 7, "log_dir": "/d"}]),
            "move of t-0 to /d: broker 7 is not among the brokers",
        ),
        (
            small_state(brokers=[{"id": 0, "log_dirs": [{"path": "/d"}]}, {"id": 1}])
            | {"topics": of_partition(log_dirs=["/e", None])},
            "partition t-0: broker 0 has no log directory /e: it has /d",
        ),
    ],
)
def test_what_is_wrong_in_a_state_is_named(document: Any, complaint: str) -> None:
    text = json.dumps(document) if isinstance(document, dict) else document
    with pytest.raises(DocumentError, match=complaint):
        load_state(text)


def small_plan(**changes: Any) -> dict[str, Any]:
    move = {"topic": "t", "partition": 0, "replicas_from": [0, 1], "replicas_to": [0, 2]}
    return {"format": "tidelog-plan", "version": 1, "moves": [move | changes]}


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (small_plan() | {"version": 7}, "version: this program reads version 1"),
        ({"version": 1, "partitions": []}, "'format' is missing"),
        (small_plan() | {"moves": 2 * small_plan()["moves"]}, "partition t-0 is there twice"),
        (small_plan(replicas_to=[2, 2]), "a broker is there twice"),
        (small_plan(replicas_to=[]), "it has no replicas"),
        (small_plan(replicas_to=[0, 1]), "changes nothing"),
        (small_plan(log_dirs_to=["/d"]), r"moves\[0\].log_dirs_to: 1 elements for 2 replicas"),
    ],
)
def test_what_is_wrong_in_a_plan_is_named(document: Any, complaint: str) -> None:
    with pytest.raises(DocumentError, match=complaint):
        load_plan(json.dumps(document))


def kafka(*partitions: dict[str, Any], version: int | None = 1) -> str:
    return json.dumps({"version": version, "partitions": list(partitions)})


def test_lists_of_kafkas_tool_are_read_and_written() -> None:
    """What stays where it is, is left to "any"; what is as the list wants it, is no move."""
    asked = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/z"]}
    plan = load_kafka(kafka(asked, {"topic": "t", "partition": 1, "replicas": [2, 0]}), STATE)
    assert [(move.replicas_to, move.directories_to, move.size) for move in plan.moves] == [((1, 2), ("/x", "/z"), 6)]
    assert json.loads(dump_kafka(plan.moves)) == {"version": 1, "partitions": [asked]}
    assert load_kafka(json.dumps({"partitions": [asked]}), STATE).moves == plan.moves  # Kafka's tool takes 1, too.
    all_of_it = load_kafka(kafka({"topic": "t", "partition": 1, "replicas": [2, 0]}), STATE, unchanged=True)
    assert [(move.replicas_from, move.replicas_to) for move in all_of_it.moves] == [((2, 0), (2, 0))]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (kafka(version=None), "version: expected a whole number, found null"),
        (kafka(version=2), "version: this program reads version 1, the document has 2"),
        (kafka({"topic": "u", "partition": 0, "replicas": [0]}), "partition u-0: there is no such topic"),
        (kafka({"topic": "t", "partition": 9, "replicas": [0]}), "partition t-9: there is no such partition"),
        (kafka({"topic": "t", "partition": 0, "replicas": [9]}), "broker 9 is not among the brokers"),
        (kafka({"topic": "t", "partition": 0, "replicas": [0], "log_dirs": []}), "0 elements for 1 replicas"),
        (kafka(*2 * [{"topic": "t", "partition": 0, "replicas": [1]}]), "partition t-0 is there twice"),
    ],
)
def test_what_is_wrong_in_a_list_of_kafkas_tool_is_named(text: str, complaint: str) -> None:
    with pytest.raises(DocumentError, match=complaint):
        load_kafka(text, STATE)
