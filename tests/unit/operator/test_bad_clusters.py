"""Plans on clusters that refuse, answer late, change their controller, lack an API, tell no sizes, or stand still.

Whatever they do the cluster stays whole: what was begun ends or is taken back, no throttle of ours is left or
forgotten, and those of others are as they were.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operator.fake_cluster import FakeCluster
from tests.unit.operator.test_execution import OTHERS, cluster_and_plan, is_done, move, run

from tidelog.client.errors import UnsupportedByBroker
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition
from tidelog.operator.execution import Execution
from tidelog.operator.journal import Asked, RunStatus, Wish
from tidelog.operator.reading import read_state
from tidelog.placement.plan.goals import Balance, Goals
from tidelog.placement.plan.plan import Move, Plan
from tidelog.placement.plan.planner import make_plan
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

CHANGING = (
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.ELECT_LEADERS,
)


def refusing(key: ApiKey, code: ErrorCode) -> Any:
    """Each request of an API is refused, whole or entry by entry, as Kafka does."""

    def refuse(asked: ApiKey, request: Any) -> Any:
        if asked is not key:
            return None
        match key:
            case ApiKey.ALTER_PARTITION_REASSIGNMENTS:
                kind = messages.AlterPartitionReassignmentsResponse
                return kind(error_code=code, error_message="no", responses=[])
            case ApiKey.INCREMENTAL_ALTER_CONFIGS:
                configs = messages.IncrementalAlterConfigsResponse
                return configs(
                    responses=[
                        configs.AlterConfigsResourceResponse(
                            error_code=code,
                            error_message="no",
                            resource_type=each.resource_type,
                            resource_name=each.resource_name,
                        )
                        for each in request.resources
                    ]
                )
            case _:
                dirs = messages.AlterReplicaLogDirsResponse
                return dirs(
                    results=[
                        dirs.AlterReplicaLogDirTopicResult(
                            topic_name=topic.name,
                            partitions=[
                                dirs.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                                for index in topic.partitions
                            ],
                        )
                        for each in request.dirs
                        for topic in each.topics
                    ]
                )

    return refuse


@pytest.mark.parametrize("key", [ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_PARTITION_REASSIGNMENTS])
def test_a_cluster_that_refuses_the_operator(key: ApiKey) -> None:
    """A missing right ends the run with the cluster's word; nothing is under way, and the next run does all."""
    cluster, plan = cluster_and_plan()
    cluster.refuse = refusing(key, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError) as refused:
        run(cluster, plan)
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert all(each.target is None for each in cluster.partitions.values())
    cluster.refuse = lambda asked, request: None
    cluster.restart_tool()
    assert cluster.run(Execution(cluster.routing, cluster.around).tidy())
    assert cluster.throttles() == OTHERS
    assert run(cluster, plan).status is RunStatus.DONE
    is_done(cluster)


def test_a_directory_that_is_refused() -> None:
    """The replica that stays is given up with the reason; the one that comes lies where the broker puts it."""
    cluster, plan = cluster_and_plan()
    cluster.refuse = refusing(ApiKey.ALTER_REPLICA_LOG_DIRS, ErrorCode.KAFKA_STORAGE_ERROR)
    ended = run(cluster, plan)
    assert ended.status is RunStatus.INCOMPLETE
    left = {str(move.key): why for move, why in ended.left}
    assert left["t-1"] == "broker 0 refuses log directory /b: KAFKA_STORAGE_ERROR"
    assert cluster.replicas("u") == [(7, 2)]
    assert cluster.throttles() == OTHERS
    assert all(each.target is None for each in cluster.partitions.values())


@pytest.mark.parametrize("key", CHANGING)
def test_what_is_carried_out_and_answered_too_late(key: ApiKey) -> None:
    """Asked again, nothing is done twice; no throttle is left."""
    cluster, plan = cluster_and_plan()
    cluster.late = {key: 2}
    assert run(cluster, plan).status is RunStatus.DONE
    assert not cluster.late[key] or key is ApiKey.ELECT_LEADERS
    is_done(cluster)


@pytest.mark.parametrize("at_s", [0.2, 5.0, 21.0])
def test_a_controller_that_changes_in_the_middle(at_s: float) -> None:
    """The old one says that it is none any more; its successor is found, and the run does not end."""
    cluster, plan = cluster_and_plan()

    def move_controller() -> bool:
        if cluster.now >= at_s:
            cluster.controller = 7
        return cluster.now >= at_s

    cluster.around.wishes.append((move_controller, Asked(Wish.RESUME, 50)))
    assert run(cluster, plan).status is RunStatus.DONE
    assert cluster.controller == 7
    is_done(cluster)


@pytest.mark.parametrize(
    ("key", "works"),
    [
        (ApiKey.DESCRIBE_LOG_DIRS, True),
        (ApiKey.ELECT_LEADERS, True),
        (ApiKey.ALTER_REPLICA_LOG_DIRS, False),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, False),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, False),
    ],
    ids=lambda each: each.name if isinstance(each, ApiKey) else "",
)
def test_an_api_that_is_missing(key: ApiKey, works: bool) -> None:
    """Without sizes or elections a run goes on; without what moves need it ends, and leaves nothing behind."""
    cluster, plan = cluster_and_plan()
    cluster.missing = {key}
    if works:
        assert run(cluster, plan).status is RunStatus.DONE
        assert cluster.replicas("t") == [(2, 1), (0, 1), (0, 1)]
    else:
        with pytest.raises(UnsupportedByBroker):
            run(cluster, plan)
        assert all(each.target is None for each in cluster.partitions.values())
    cluster.missing = set()
    assert cluster.run(Execution(cluster.routing, cluster.around).tidy())
    assert cluster.throttles() == OTHERS


def test_a_cluster_that_cannot_add_to_a_list_that_is_not_set() -> None:
    """Kafka 2.4: the lists of throttled replicas are set then, and those of others are added to."""
    cluster, plan = cluster_and_plan()
    cluster.fails_to_append = True
    assert run(cluster, plan).status is RunStatus.DONE
    assert (2, "t") in cluster.throttled_most
    is_done(cluster)


def test_without_settings_a_run_without_a_throttle_works() -> None:
    """Before Kafka 2.3 settings are not altered one by one: no throttle, and all the rest."""
    cluster, plan = cluster_and_plan()
    cluster.missing = {ApiKey.INCREMENTAL_ALTER_CONFIGS}
    assert run(cluster, plan, throttle=None).status is RunStatus.DONE
    assert cluster.replicas("t") == [(2, 1), (0, 1), (0, 1)]


@pytest.mark.parametrize("missing", [frozenset[ApiKey](), frozenset({ApiKey.DESCRIBE_LOG_DIRS})], ids=["old", "none"])
def test_directories_without_sizes(missing: frozenset[ApiKey]) -> None:
    """What is missing is named; counts are evened out, carried out and undone without knowing any size."""
    cluster = FakeCluster({0: ["/a"], 1: ["/a"], 2: ["/a"]}, {"t": [(0, 1), (1, 0), (0, 1), (1, 0), (0, 1), (1, 0)]})
    cluster.missing = set(missing)
    state = cluster.run(read_state(cluster.routing, taken_at_ms=1))
    assert any("log directories of broker 0" in each for each in state.missing)
    plan = make_plan(state, Goals(balance=(Balance.COUNTS,))).plan
    assert (plan.replica_moves, plan.moves_least) == (4, 4)
    before = cluster.replicas("t")
    assert run(cluster, plan).status is RunStatus.DONE
    assert cluster.replicas("t") != before
    assert cluster.run(Execution(cluster.routing, cluster.around).rollback(plan)).status is RunStatus.DONE
    assert cluster.replicas("t") == before
    assert cluster.throttles() == {}


def disk_to_empty() -> tuple[FakeCluster, Plan]:
    """Two replicas of broker 0 are to go from /a to /b."""
    cluster = FakeCluster({0: ["/a", "/b"], 1: ["/a"]}, {"t": [(0, 1), (1, 0)]})
    moves = [
        Move("t", 0, (0, 1), (0, 1), ("/a", "/a"), ("/b", "/a"), size=1000),
        Move("t", 1, (1, 0), (1, 0), ("/a", "/a"), ("/a", "/b"), size=1000),
    ]
    return cluster, Plan.of(moves, cluster_id="fake")


def test_a_copy_that_stands_still_is_begun_anew() -> None:
    """A broker whose copy never ends would be waited for for ever; the others are not touched."""
    cluster, plan = disk_to_empty()
    stuck = TopicPartition("t", 1)
    cluster.stuck[0, stuck] = 1
    ended = run(cluster, plan, throttle=20_000)
    assert ended.status is RunStatus.DONE
    assert cluster.places[0, stuck] == "/b"
    # At this throttle a portion takes 210 s, for which a copy may stand still.
    assert 270 < cluster.now < 330
    assert any("broker 0 has copied nothing of t-1 for" in each for each in cluster.around.said)
    assert cluster.throttles() == {}


def test_a_broker_that_copies_nothing_from_others_is_named() -> None:
    """Once, with what it should copy and from whom: the run waits, and goes on by itself. Nothing is said of one that a
    throttle holds, nor of one that another broker's copies leave behind."""
    for held_s, throttle in ((100, None), (500, 50_000), (0, 50)):
        cluster = FakeCluster({0: ["/a"], 1: ["/a"], 2: ["/a"], 3: ["/a"]}, {"t": [(0,), (1,), (0,)]})
        plan = Plan.of(
            [move("t", 0, (0,), (2,)), move("t", 1, (1,), (2,)), move("t", 2, (0,), (3,))], cluster_id="fake"
        )
        cluster.held_until[2] = held_s
        assert run(cluster, plan, throttle=throttle).status is RunStatus.DONE
        said = [each for each in cluster.around.said if "copied nothing" in each]
        assert len(said) == (held_s > 0)
        assert all("broker 2 has copied nothing of t-0, t-1 for" in each for each in said)
        assert all("the leader (0, 1)" in each for each in said)


def test_a_copy_that_never_ends_is_given_up() -> None:
    """After three attempts, with the reason; it is taken back, and the other one is done."""
    cluster, plan = disk_to_empty()
    stuck = TopicPartition("t", 0)
    cluster.stuck[0, stuck] = 9
    ended = run(cluster, plan, throttle=None)
    assert ended.status is RunStatus.INCOMPLETE
    assert [(move.key, why) for move, why in ended.left] == [
        (stuck, "broker 0 does not bring its copy in /b to an end")
    ]
    assert cluster.places == {(0, stuck): "/a", (1, stuck): "/a"} | {
        (0, TopicPartition("t", 1)): "/b",
        (1, TopicPartition("t", 1)): "/a",
    }
    assert cluster.futures == {}
    assert 180 < cluster.now < 300


def test_a_passing_error_of_each_kind() -> None:
    """A broker that restarts, a controller that moves, a leader that is being elected."""
    cluster, plan = cluster_and_plan()
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR]
    answers = [refusing(ApiKey.ALTER_PARTITION_REASSIGNMENTS, code) for code in codes]

    def refuse(asked: ApiKey, request: Any) -> Any:
        if asked is ApiKey.ALTER_PARTITION_REASSIGNMENTS and answers:
            return answers.pop()(asked, request)
        return None

    cluster.refuse = refuse
    assert run(cluster, plan).status is RunStatus.DONE
    is_done(cluster)
