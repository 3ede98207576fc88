"""Plans carried out on a cluster in memory: whole, killed at each step, paused, cancelled, undone."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.operator.fake_cluster import CHANGING, FakeCluster, Killed, failing

from tidelog.client.errors import ConnectionFailed, RequestTimedOut, UnsupportedByBroker
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId, TopicPartition, format_topic_id
from tidelog.operator.execution import Changed, Ended, Execution
from tidelog.operator.journal import Asked, Journal, RunKind, RunStatus, Wish
from tidelog.placement.plan.plan import Move, Plan
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

OTHERS = {
    (4, "7"): {"leader.replication.throttled.rate": "77"},
    (2, "u"): {"leader.replication.throttled.replicas": "0:7"},
}
"""Throttles that somebody else has set."""
FAST = 250
"""A throttle, in bytes a second, for what is done many times over: fewer looks until it is done."""


def move(topic: str, partition: int, before: tuple[int, ...], after: tuple[int, ...], wave: int = 0) -> Move:
    return Move(topic, partition, before, after, ("/a",) * len(before), (None,) * len(after), size=1000, wave=wave)


def cluster_and_plan() -> tuple[FakeCluster, Plan]:
    """Two waves: replicas move to broker 2, one changes its directory, one partition only its order."""
    cluster = FakeCluster(
        {0: ["/a", "/b"], 1: ["/a"], 2: ["/a", "/b"], 7: ["/a"]}, {"t": [(0, 1), (0, 1), (1, 0)], "u": [(7, 1)]}
    )
    cluster.configs.update({resource: dict(settings) for resource, settings in OTHERS.items()})
    moves = [
        Move("t", 0, (0, 1), (2, 1), ("/a", "/a"), ("/b", "/a"), size=1000),
        Move("t", 1, (0, 1), (0, 1), ("/a", "/a"), ("/b", "/a"), size=1000, wave=1),
        move("t", 2, (1, 0), (0, 1), wave=1),
        move("u", 0, (7, 1), (7, 2), wave=1),
    ]
    return cluster, Plan.of(moves, cluster_id="fake")


def run(cluster: FakeCluster, plan: Plan, throttle: int | None = 50) -> Ended:
    return cluster.run(Execution(cluster.routing, cluster.around, patience_s=60).run(plan, throttle=throttle))


def is_done(cluster: FakeCluster) -> None:
    assert cluster.replicas("t") == [(2, 1), (0, 1), (0, 1)]
    assert cluster.replicas("u") == [(7, 2)]
    assert cluster.places[2, TopicPartition("t", 0)] == "/b"
    assert cluster.places[0, TopicPartition("t", 1)] == "/b"
    assert cluster.partitions[TopicPartition("t", 2)].leader == 0
    assert cluster.throttles() == OTHERS
    assert not cluster.around.journal().has_throttles


def is_as_before(cluster: FakeCluster) -> None:
    assert cluster.replicas("t") == [(0, 1), (0, 1), (1, 0)]
    assert cluster.replicas("u") == [(7, 1)]
    assert cluster.places[0, TopicPartition("t", 1)] == "/a"
    assert cluster.futures == {}
    assert cluster.throttles() == OTHERS


def test_a_plan_is_carried_out_in_waves() -> None:
    """Replicas, directories, order and leaders as planned; throttles only where moves were, and none left."""
    cluster, plan = cluster_and_plan()
    ended = run(cluster, plan)
    assert (ended.status, ended.done, ended.left) == (RunStatus.DONE, 4, ())
    is_done(cluster)
    assert (2, "t") in cluster.throttled_most
    assert (4, "7") not in cluster.throttled_most
    assert {sight.wave for sight in cluster.around.sights} == {1, 2}
    # Two waves of 1,000 bytes at 50 a second, and what looking takes.
    assert 40 <= ended.measured_seconds < 46
    assert ended.predicted_seconds == pytest.approx(ended.measured_seconds, rel=0.2)
    again = run(cluster, plan)
    assert (again.status, again.done, again.done_before, again.bytes) == (RunStatus.DONE, 4, 4, 0)
    assert again.predicted_seconds is None


def test_a_run_goes_back_by_one_command() -> None:
    """All is where it was; that rollback being done, nothing is left to undo."""
    cluster, plan = cluster_and_plan()
    run(cluster, plan)
    ended = cluster.run(Execution(cluster.routing, cluster.around).rollback(plan, throttle=80))
    assert ended.status is RunStatus.DONE
    is_as_before(cluster)
    last = cluster.around.journal().run
    assert last is not None
    assert (last.kind, last.status, last.undone) == (RunKind.ROLLBACK, RunStatus.DONE, True)


def test_a_run_that_finds_nothing_to_do_is_not_the_last_one() -> None:
    """What `rollback` takes back is the run before it, which did something."""
    cluster, plan = cluster_and_plan()
    run(cluster, plan)
    for nothing in (Plan.of((), cluster_id="fake"), Plan.of(plan.moves[:1], cluster_id="fake"), plan):
        ended = run(cluster, nothing)
        assert (ended.status, ended.done_before) == (RunStatus.DONE, len(nothing.moves))
    last = cluster.around.journal().run
    assert last is not None
    cluster.run(Execution(cluster.routing, cluster.around).rollback(last.plan))
    is_as_before(cluster)


def steps_of_a_run() -> list[int]:
    """All that change something, and some of those that only look."""
    cluster, plan = cluster_and_plan()
    run(cluster, plan, throttle=FAST)
    return sorted({*cluster.changing, *range(1, cluster.steps, 29)})


STEPS = steps_of_a_run()


@pytest.mark.parametrize(
    ("then", "before"),
    [("run", True), ("run", False), ("tidy", True), ("tidy", False), ("cancel", False), ("rollback", False)],
)
def test_killed_at_any_step_it_goes_on(then: str, before: bool) -> None:
    """Whatever step it is killed at: going on ends as if it had not been; so do cancelling and going back."""
    for step in STEPS:
        cluster, plan = cluster_and_plan()
        cluster.kill_at, cluster.kill_before = step, before
        with pytest.raises(Killed):
            run(cluster, plan, throttle=FAST)
        cluster.restart_tool()
        execution = Execution(cluster.routing, cluster.around, patience_s=60)
        last = cluster.around.journal().run
        match then:
            case "run":
                # Another throttle than before is welcome.
                assert run(cluster, plan, throttle=FAST + 1).status is RunStatus.DONE, step
                is_done(cluster)
            case "tidy":
                cluster.advance(100)
                assert cluster.run(execution.tidy()), step
                assert cluster.throttles() == OTHERS, step
            case "cancel" if last is not None:
                ended = cluster.run(execution.cancel(last))
                assert ended.status is RunStatus.CANCELLED, step
                assert all(each.target is None for each in cluster.partitions.values()), step
                assert (cluster.throttles(), cluster.futures) == (OTHERS, {}), step
                cluster.run(Execution(cluster.routing, cluster.around).rollback(plan))
                is_as_before(cluster)
            case "rollback":
                assert cluster.run(execution.rollback(plan)).status is RunStatus.DONE, step
                is_as_before(cluster)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_rollback_killed_at_any_step_goes_on(before: bool) -> None:
    """Called again it goes on where it was, in the direction in which it was going."""
    done, plan = cluster_and_plan()
    run(done, plan, throttle=FAST)
    first = copy.deepcopy((done.partitions, done.places)), done.around.text
    done.changing.clear()
    begin = done.steps
    done.run(Execution(done.routing, done.around).rollback(plan, throttle=FAST))
    for step in done.changing:
        cluster, plan = cluster_and_plan()
        (cluster.partitions, cluster.places), cluster.around.text = copy.deepcopy(first)
        cluster.kill_at, cluster.kill_before = step - begin, before
        with pytest.raises(Killed):
            cluster.run(Execution(cluster.routing, cluster.around).rollback(plan, throttle=FAST))
        cluster.restart_tool()
        ended = cluster.run(Execution(cluster.routing, cluster.around).rollback(plan, throttle=FAST))
        assert ended.status is RunStatus.DONE, step
        is_as_before(cluster)


def test_what_has_changed_is_told_and_nothing_is_begun() -> None:
    """Other replicas, a topic that is gone, a reassignment of others, a broker that is not live, another cluster."""
    cluster, plan = cluster_and_plan()
    cluster.partitions[TopicPartition("t", 0)].replicas = (1, 0)
    del cluster.partitions[TopicPartition("u", 0)]
    cluster.places = {place: path for place, path in cluster.places.items() if place[1].topic != "u"}
    cluster.partitions[TopicPartition("t", 2)].size = 10**9
    cluster._begin(TopicPartition("t", 2), (7, 0))
    cluster.live.discard(2)
    with pytest.raises(Changed) as changed:
        run(cluster, plan)
    text = "\n".join(changed.value.changes)
    assert "t-0: its replicas are [1, 0], the plan is for [0, 1]" in text
    assert "u-0: it does not exist any more" in text
    assert "t-2: it is being moved to [7, 0]" in text
    assert cluster.throttles() == OTHERS
    other = Plan.of(plan.moves, cluster_id="another")
    with pytest.raises(Changed, match="the plan is for cluster another"):
        run(cluster, other)


def test_a_broker_that_is_to_get_replicas_must_be_live() -> None:
    """At the beginning: nothing is begun that would only wait."""
    cluster, plan = cluster_and_plan()
    cluster.live.discard(2)
    with pytest.raises(Changed, match="broker 2, which is to get replicas, is not live"):
        run(cluster, plan)


def test_throttles_of_many_topics_are_noted_at_once() -> None:
    """The journal has the whole plan: written for each topic, it would take longer than the moves."""

    def writings(topics: int) -> int:
        names = [f"t{number}" for number in range(topics)]
        cluster = FakeCluster({0: ["/a"], 1: ["/a"]}, {name: [(0,)] for name in names})
        plan = Plan.of([move(name, 0, (0,), (1,)) for name in names], cluster_id="fake")
        written: list[Journal] = []
        save = cluster.around.save
        cluster.around.save = lambda journal: (written.append(journal), save(journal))[1]  # type: ignore[method-assign]
        assert run(cluster, plan, throttle=FAST).status is RunStatus.DONE
        assert cluster.throttles() == {}
        return len(written)

    assert writings(12) == writings(2)


def test_throttles_of_others_are_not_touched() -> None:
    """A rate that stands on a broker of ours stays, and so do elements of a topic's list, while moves run and after."""
    cluster, plan = cluster_and_plan()
    cluster.configs[4, "2"] = {"follower.replication.throttled.rate": "4000"}
    cluster.configs[2, "t"] = {"follower.replication.throttled.replicas": "1:1,0:2"}
    before = {key: dict(each) for key, each in cluster.throttles().items()}
    assert run(cluster, plan).status is RunStatus.DONE
    assert cluster.throttles() == before
    assert any("is not ours" in line for line in cluster.around.said)


def test_a_throttle_that_others_change_meanwhile_stays() -> None:
    """What we set and somebody else has replaced is theirs."""
    cluster, plan = cluster_and_plan()
    cluster.kill_at_s = 5
    with pytest.raises(Killed):
        run(cluster, plan)
    cluster.restart_tool()
    assert cluster.configs[4, "2"]["follower.replication.throttled.rate"] == "50"
    cluster.configs[4, "2"]["follower.replication.throttled.rate"] = "321"
    assert run(cluster, plan).status is RunStatus.DONE
    assert cluster.throttles() == {**OTHERS, (4, "2"): {"follower.replication.throttled.rate": "321"}}


def test_throttles_that_a_broker_has_not_seen_yet_go_too() -> None:
    """Kafka answers for a setting before every broker has it: a throttle of ours that is not described may be set."""
    cluster, plan = cluster_and_plan()
    cluster.described = copy.deepcopy(cluster.configs)
    assert run(cluster, plan).status is RunStatus.DONE
    assert (2, "t") in cluster.throttled_most
    assert cluster.throttles() == OTHERS


def test_it_pauses_and_goes_on_faster() -> None:
    """What is under way ends, the next wave does not begin; no throttle is held meanwhile; then another limit holds."""
    cluster, plan = cluster_and_plan()
    around = cluster.around
    around.wishes.append((lambda: cluster.now > 5, Asked(Wish.PAUSE)))
    paused: list[object] = []

    def long_paused() -> bool:
        if cluster.now > 100 and not paused:
            paused.extend([cluster.replicas("t"), cluster.throttles(), around.journal().run])
        return cluster.now > 100

    around.wishes.append((long_paused, Asked(Wish.RESUME, 100)))
    ended = run(cluster, plan)
    assert ended.status is RunStatus.DONE
    assert paused[:2] == [[(2, 1), (0, 1), (1, 0)], OTHERS]
    assert getattr(paused[2], "status", None) is RunStatus.PAUSED
    # The pause is no part of what it took: 20 s at 50 bytes a second, 10 s at 100.
    assert ended.measured_seconds < 40
    is_done(cluster)


def test_it_cancels() -> None:
    """What is under way is taken back; the next wave is not begun."""
    cluster, plan = cluster_and_plan()
    cluster.around.wishes.append((lambda: cluster.now > 5, Asked(Wish.CANCEL)))
    ended = run(cluster, plan)
    assert ended.status is RunStatus.CANCELLED
    assert len(ended.left) == 4
    is_as_before(cluster)


def test_a_broker_that_dies_is_waited_for_and_others_go_on() -> None:
    """The second wave's other moves are done meanwhile; when the broker is back, all is."""
    cluster, plan = cluster_and_plan()
    cluster.around.wishes.append((lambda: cluster.now > 5 and not cluster.live.discard(2), Asked(Wish.RESUME, 50)))
    done_without: list[list[tuple[int, ...]]] = []

    def back() -> bool:
        if cluster.now > 50:
            done_without.append(cluster.replicas("t"))
            cluster.live.add(2)
        return cluster.now > 50

    cluster.around.wishes.append((back, Asked(Wish.RESUME, 50)))
    assert run(cluster, plan).status is RunStatus.DONE
    assert done_without[0][2] == (0, 1)
    assert any(sight.waiting_for == (2,) for sight in cluster.around.sights)
    is_done(cluster)


def test_a_broker_that_stays_away_leaves_the_cluster_whole() -> None:
    """Its moves are taken back, the others are done, no throttle is left on live brokers; the plan can be run again."""
    cluster, plan = cluster_and_plan()
    cluster.around.wishes.append((lambda: cluster.now > 5 and not cluster.live.discard(2), Asked(Wish.RESUME, 50)))
    ended = run(cluster, plan)
    assert ended.status is RunStatus.INCOMPLETE
    assert {str(each.key): why for each, why in ended.left} == {
        "t-0": "its brokers are not live",
        "u-0": "its brokers are not live",
    }
    assert ended.bytes == 1000
    assert cluster.replicas("t") == [(0, 1), (0, 1), (0, 1)]
    assert cluster.throttles() == OTHERS
    cluster.live.add(2)
    cluster.restart_tool()
    assert run(cluster, plan).status is RunStatus.DONE
    is_done(cluster)


def test_a_move_that_is_begun_later_than_others_is_throttled_too() -> None:
    """At first its partition was on the replicas of before and after together, as a broker that lags shows it."""
    cluster, plan = cluster_and_plan()
    key = TopicPartition("t", 0)
    before = cluster.partitions[key].replicas
    cluster.partitions[key].replicas = (2, 1, 0)
    begun: list[str | None] = []

    def lagging(api: ApiKey, request: Any) -> None:
        if cluster.now > 0 and cluster.partitions[key].replicas == (2, 1, 0) and not begun:
            cluster.partitions[key].replicas = before
        if api is ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            parts = [(each.name, part.partition_index) for each in request.topics for part in each.partitions]
            if ("t", 0) in parts:
                begun.append(cluster._setting(2, "t", "follower.replication.throttled.replicas"))

    cluster.refuse = lagging
    assert run(cluster, plan).status is RunStatus.DONE
    [listed] = begun
    assert listed is not None
    assert "0:2" in listed.split(",")
    is_done(cluster)


def test_moves_that_others_cancel_are_not_begun_again() -> None:
    """It ends incomplete and says why; the rest is done."""
    cluster, plan = cluster_and_plan()

    def cancelled() -> bool:
        if cluster.now > 5:
            cluster._begin(TopicPartition("t", 0), None)
        return cluster.now > 5

    cluster.around.wishes.append((cancelled, Asked(Wish.RESUME, 50)))
    ended = run(cluster, plan)
    assert ended.status is RunStatus.INCOMPLETE
    [(left, why)] = ended.left
    assert (left.key, why) == (TopicPartition("t", 0), "others cancelled it, or gave it other replicas")
    assert cluster.replicas("u") == [(7, 2)]


@pytest.mark.parametrize(
    "key", [ApiKey.METADATA, ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.INCREMENTAL_ALTER_CONFIGS]
)
@pytest.mark.parametrize("error", [ConnectionFailed("gone"), RequestTimedOut("late")], ids=["gone", "late"])
def test_a_cluster_that_is_away_for_a_while_is_asked_again(key: ApiKey, error: Exception) -> None:
    """Lost connections and late answers pass."""
    cluster, plan = cluster_and_plan()
    cluster.refuse = failing(5, error, key)  # type: ignore[arg-type]
    assert run(cluster, plan).status is RunStatus.DONE
    is_done(cluster)


def test_a_cluster_that_stays_away_ends_the_run() -> None:
    """After `patience_s`, with the error; the journal knows the throttles."""
    cluster, plan = cluster_and_plan()
    cluster.kill_at_s = 5
    with pytest.raises(Killed):
        run(cluster, plan)
    cluster.restart_tool()
    cluster.live.clear()
    with pytest.raises(ConnectionFailed):
        run(cluster, plan)
    assert cluster.around.journal().has_throttles


def test_an_old_cluster_says_that_it_lacks_the_api() -> None:
    """Before Kafka 2.4 there is no such API: nothing is left behind by the attempt."""
    cluster, plan = cluster_and_plan()
    cluster.missing = {ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS}
    with pytest.raises(UnsupportedByBroker):
        run(cluster, plan)
    assert cluster.run(Execution(cluster.routing, cluster.around).tidy())
    assert cluster.throttles() == OTHERS


def test_an_interrupted_plan_is_not_forgotten_for_another() -> None:
    """While its moves are under way another plan is refused, which says what to do."""
    cluster, plan = cluster_and_plan()
    cluster.kill_at_s = 5
    with pytest.raises(Killed):
        run(cluster, plan)
    cluster.restart_tool()
    other = Plan.of([move("t", 1, (0, 1), (7, 1))], cluster_id="fake")
    with pytest.raises(Changed, match="was interrupted, and 1 of its moves are under way"):
        run(cluster, other)
    assert not cluster.run(Execution(cluster.routing, cluster.around).tidy())


def test_followers_that_fall_out_of_the_isr_slow_it_down() -> None:
    """The rate is halved while they are out, and grows back."""
    cluster, plan = cluster_and_plan()
    cluster.partitions[TopicPartition("t", 0)].size = 6000
    lagging = cluster.partitions[TopicPartition("u", 0)]

    def lag() -> bool:
        lagging.isr = (7,) if 5 < cluster.now < 40 else (7, 1)
        return False

    cluster.around.wishes.append((lag, Asked(Wish.PAUSE)))
    assert run(cluster, plan, throttle=100).status is RunStatus.DONE
    rates = [sight.throttle for sight in cluster.around.sights if sight.throttle is not None]
    assert rates[0] == 100
    assert min(rates) < 50
    assert cluster.throttles() == OTHERS


def test_a_dead_broker_is_drained() -> None:
    """What it had is copied from the replicas that live; no throttle is asked of it."""
    cluster, _ = cluster_and_plan()
    cluster.live.discard(7)
    cluster.advance(1)
    plan = Plan.of([move("u", 0, (7, 1), (2, 1))], cluster_id="fake")
    assert run(cluster, plan).status is RunStatus.DONE
    assert cluster.replicas("u") == [(2, 1)]
    assert cluster.throttles() == OTHERS


def test_a_run_without_a_limit_throttles_nothing() -> None:
    """Until followers fall out of the ISR; then it is slowed down, and the throttle is gone at the end."""
    cluster, plan = cluster_and_plan()
    assert run(cluster, plan, throttle=None).status is RunStatus.DONE
    assert cluster.throttled_most == set()
    is_done(cluster)


def test_going_back_where_nothing_was_done_forgets_no_other_run() -> None:
    """The last run can still be undone."""
    cluster, plan = cluster_and_plan()
    run(cluster, plan)
    other = Plan.of([move("t", 1, (0, 1), (7, 1))], cluster_id="fake")
    ended = cluster.run(Execution(cluster.routing, cluster.around).rollback(other))
    assert (ended.status, ended.moves) == (RunStatus.DONE, 0)
    last = cluster.around.journal().run
    assert last is not None
    assert last.plan.moves == plan.moves


def test_going_back_to_a_broker_that_is_gone() -> None:
    """It held nothing any more and is unknown to the cluster: it is waited for, and named where it stays away."""
    cluster = FakeCluster({0: ["/a"], 1: ["/a"], 2: ["/a"], 3: ["/a"]}, {"t": [(0, 3), (1, 3)]})
    plan = Plan.of([move("t", 0, (0, 3), (0, 2)), move("t", 1, (1, 3), (1, 2), wave=1)], cluster_id="fake")
    run(cluster, plan)
    cluster.live.discard(3)
    ended = cluster.run(Execution(cluster.routing, cluster.around, patience_s=60).rollback(plan, throttle=80))
    assert ended.status is RunStatus.INCOMPLETE
    assert {why for _, why in ended.left} == {"its brokers are not live"}
    assert cluster.replicas("t") == [(0, 2), (1, 2)]
    cluster.live.add(3)
    cluster.restart_tool()
    ended = cluster.run(Execution(cluster.routing, cluster.around, patience_s=60).rollback(plan))
    assert ended.status is RunStatus.DONE
    assert cluster.replicas("t") == [(0, 3), (1, 3)]


def test_going_on_without_a_broker_that_is_gone() -> None:
    """Killed before the wave of a broker that has left meanwhile: the rest is done, its move is named."""
    cluster = FakeCluster({0: ["/a"], 1: ["/a"], 2: ["/a"], 3: ["/a"]}, {"t": [(0, 1), (1, 0)]})
    plan = Plan.of([move("t", 0, (0, 1), (0, 2)), move("t", 1, (1, 0), (1, 3), wave=1)], cluster_id="fake")
    cluster.kill_at_s = 5
    with pytest.raises(Killed):
        run(cluster, plan)
    cluster.restart_tool()
    cluster.live.discard(3)
    ended = run(cluster, plan, throttle=77)
    assert (ended.status, [each.partition for each, _ in ended.left]) == (RunStatus.INCOMPLETE, [1])
    assert cluster.replicas("t") == [(0, 2), (1, 0)]
    assert cluster.throttles() == {}


def test_what_others_have_changed_is_not_undone_in_silence() -> None:
    """The rest goes back; the partition that is somewhere else by now is named, and it is no success."""
    cluster, plan = cluster_and_plan()
    run(cluster, plan)
    changed = cluster.partitions[TopicPartition("u", 0)]
    changed.replicas = changed.isr = (7, 0)
    cluster.places[0, TopicPartition("u", 0)] = "/a"
    ended = cluster.run(Execution(cluster.routing, cluster.around).rollback(plan))
    assert (ended.status, ended.done, ended.moves) == (RunStatus.INCOMPLETE, 3, 4)
    [(left, why)] = ended.left
    assert (str(left.key), why) == ("u-0", "partition u-0: its replicas are [7, 0], the plan is for [7, 1]")
    assert cluster.replicas("t") == [(0, 1), (0, 1), (1, 0)]
    assert cluster.replicas("u") == [(7, 0)]
    assert cluster.throttles() == OTHERS


def test_a_topic_that_is_gone_has_nothing_to_undo() -> None:
    """The rest goes back, and it is told."""
    cluster, plan = cluster_and_plan()
    run(cluster, plan)
    del cluster.partitions[TopicPartition("u", 0)]
    cluster.places = {place: path for place, path in cluster.places.items() if place[1].topic != "u"}
    ended = cluster.run(Execution(cluster.routing, cluster.around).rollback(plan))
    assert (ended.status, ended.done, ended.moves) == (RunStatus.DONE, 3, 3)
    assert "partition u-0: it does not exist any more; nothing of it is to be undone" in cluster.around.said
    assert cluster.replicas("t") == [(0, 1), (0, 1), (1, 0)]


def test_a_plan_for_another_cluster_is_not_taken_back_here() -> None:
    """It is refused before anything is asked: topics of the same names are under way, or lie in another order."""
    cluster, plan = cluster_and_plan()
    other = replace(plan, cluster_id="other")
    reordered = cluster.partitions[TopicPartition("t", 1)]
    reordered.replicas = reordered.isr = (1, 0)
    moving = cluster.partitions[TopicPartition("u", 0)]
    moving.replicas, moving.target, moving.copied = (7, 2, 1), (7, 2), {2: 0.0}
    cluster.places[2, TopicPartition("u", 0)] = "/a"
    with pytest.raises(Changed, match="the plan is for cluster other, this is fake"):
        cluster.run(Execution(cluster.routing, cluster.around).rollback(other))
    assert not any(key in CHANGING for key in cluster.asked)
    gone = Plan.of([move("v", 0, (0, 1), (2, 1))], cluster_id="other")
    with pytest.raises(Changed, match="the plan is for cluster other, this is fake"):
        cluster.run(Execution(cluster.routing, cluster.around).rollback(gone))


def test_a_topic_that_was_made_again_is_another_one() -> None:
    """Nothing of it is undone, though its replicas are where the plan has put those of the former topic; nor begun."""
    cluster, plan = cluster_and_plan()
    cluster.topic_ids = {"t": TopicId(bytes([1] * 16)), "u": TopicId(bytes([2] * 16))}
    ids = {topic: format_topic_id(id) for topic, id in cluster.topic_ids.items()}
    plan = replace(plan, moves=tuple(replace(move, topic_id=ids[move.topic]) for move in plan.moves))
    assert run(cluster, plan).status is RunStatus.DONE
    cluster.topic_ids["u"] = TopicId(bytes([3] * 16))
    ended = cluster.run(Execution(cluster.routing, cluster.around).rollback(plan))
    assert (ended.status, ended.done, ended.moves) == (RunStatus.DONE, 3, 3)
    assert cluster.replicas("t") == [(0, 1), (0, 1), (1, 0)]
    assert cluster.replicas("u") == [(7, 2)]
    told = "partition u-0: the topic was deleted, and another one made of its name"
    assert f"{told}; nothing of it is to be undone" in cluster.around.said
    cluster.partitions[TopicPartition("u", 0)].replicas = (7, 1)
    with pytest.raises(Changed, match=told):
        run(cluster, plan)


def test_an_interrupted_run_whose_topic_is_gone_can_be_ended() -> None:
    """To go on is refused with what changed and what to do; cancelling leaves no throttle."""
    cluster, plan = cluster_and_plan()
    cluster.kill_at_s = 5
    with pytest.raises(Killed):
        run(cluster, plan)
    cluster.restart_tool()
    del cluster.partitions[TopicPartition("u", 0)]
    cluster.places = {place: path for place, path in cluster.places.items() if place[1].topic != "u"}
    with pytest.raises(Changed, match=r"`tidelog reassign cancel` ends this run.*partition u-0: it does not exist"):
        run(cluster, plan)
    interrupted = cluster.around.journal().run
    assert interrupted is not None
    cluster.run(Execution(cluster.routing, cluster.around).cancel(interrupted))
    assert cluster.throttles() == OTHERS


@pytest.mark.parametrize("then", ["rollback", "resume", "cancel"])
@pytest.mark.parametrize("change", ["deleted", "moved"])
def test_a_rollback_goes_on_without_what_has_changed_meanwhile(then: str, change: str) -> None:
    """It was killed, and a topic was deleted, or moved by others, before it went on: the rest goes back."""
    cluster, plan = cluster_and_plan()
    run(cluster, plan)
    cluster.kill_at_s = cluster.now + 1
    with pytest.raises(Killed):
        cluster.run(Execution(cluster.routing, cluster.around).rollback(plan, throttle=50))
    cluster.restart_tool()
    if change == "deleted":
        del cluster.partitions[TopicPartition("u", 0)]
        cluster.places = {place: path for place, path in cluster.places.items() if place[1].topic != "u"}
    else:
        moved = cluster.partitions[TopicPartition("u", 0)]
        moved.target, moved.copied = None, {}
        moved.replicas = moved.isr = (7, 0)
        cluster.places[0, TopicPartition("u", 0)] = "/a"
    execution = Execution(cluster.routing, cluster.around)
    last = cluster.around.journal().run
    assert last is not None
    if then == "cancel":
        assert cluster.run(execution.cancel(last)).status is RunStatus.CANCELLED
    again = execution.rollback(plan) if then == "rollback" else execution.run(last.plan, kind=RunKind.ROLLBACK)
    ended = cluster.run(again)
    left = {str(move.key) for move, _ in ended.left}
    if change == "deleted":
        assert (ended.status, left) == (RunStatus.DONE, set())
    else:
        assert (ended.status, left) == (RunStatus.INCOMPLETE, {"u-0"})
        assert cluster.replicas("u") == [(7, 0)]
    assert cluster.replicas("t") == [(0, 1), (0, 1), (1, 0)]
    assert cluster.places[0, TopicPartition("t", 1)] == "/a"
    assert cluster.throttles() == OTHERS


def test_a_rollback_that_was_interrupted_is_named() -> None:
    """Another run of the plan is refused while it is under way, and the refusal says what to do."""
    cluster, plan = cluster_and_plan()
    run(cluster, plan)
    cluster.kill_at_s = cluster.now + 1
    with pytest.raises(Killed):
        cluster.run(Execution(cluster.routing, cluster.around).rollback(plan, throttle=50))
    cluster.restart_tool()
    with pytest.raises(Changed) as refused:
        run(cluster, plan)
    assert "a rollback was interrupted, and 2 of its moves are under way" in refused.value.changes[0]


@pytest.mark.parametrize(
    "answer",
    [
        RequestTimedOut("slow"),
        ConnectionFailed("it has just died"),
        messages.DescribeLogDirsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_broker_that_does_not_answer_has_not_brought_a_copy_to_its_end(answer: Any) -> None:
    """Where its replicas lie is not known for a while: a move between its directories is done when it says so."""
    cluster = FakeCluster({0: ["/a", "/b"], 1: ["/a"]}, {"t": [(0, 1)]}, size=5000)
    plan = Plan.of([Move("t", 0, (0, 1), (0, 1), ("/a", "/a"), ("/b", "/a"), size=5000)], cluster_id="fake")
    cluster.refuse = lambda key, request: answer if key is ApiKey.DESCRIBE_LOG_DIRS and 1 < cluster.now < 3 else None
    ended = run(cluster, plan, throttle=None)
    assert (ended.status, ended.done) == (RunStatus.DONE, 1)
    assert cluster.places[0, TopicPartition("t", 0)] == "/b"


@pytest.mark.parametrize("copied", [False, True])
def test_a_broker_that_does_not_answer_is_asked_again_before_its_move_is_taken_back(copied: bool) -> None:
    """Cancelled while the replica is copied, or taken back when it was: it lies where it was, and no copy is left."""
    cluster = FakeCluster({0: ["/a", "/b"], 1: ["/a"]}, {"t": [(0, 1)]}, size=5000)
    plan = Plan.of([Move("t", 0, (0, 1), (0, 1), ("/a", "/a"), ("/b", "/a"), size=5000)], cluster_id="fake")
    if not copied:
        cluster.around.wishes.append((lambda: cluster.now > 2, Asked(Wish.CANCEL)))
    silent_at = (20 if copied else 1.5, 23 if copied else 4)
    cluster.refuse = lambda key, request: (
        RequestTimedOut("slow")
        if key is ApiKey.DESCRIBE_LOG_DIRS and silent_at[0] < cluster.now < silent_at[1]
        else None
    )
    ended = run(cluster, plan, throttle=None)
    assert ended.status is (RunStatus.DONE if copied else RunStatus.CANCELLED)
    if copied:
        assert cluster.places[0, TopicPartition("t", 0)] == "/b"
        cluster.advance(20.5 - cluster.now)
        ended = cluster.run(Execution(cluster.routing, cluster.around, patience_s=60).rollback(plan))
        assert ended.status is RunStatus.DONE
    assert cluster.places[0, TopicPartition("t", 0)] == "/a"
    assert cluster.futures == {}


def test_a_copy_is_cancelled_though_another_one_of_its_move_has_not_begun() -> None:
    """Both replicas change their directory: one broker copies, the other one has not taken it yet."""
    cluster = FakeCluster({0: ["/a", "/b"], 1: ["/a", "/c"]}, {"t": [(0, 1)]}, size=50_000)
    plan = Plan.of([Move("t", 0, (0, 1), (0, 1), ("/a", "/a"), ("/b", "/c"), size=50_000)], cluster_id="fake")
    cluster.refuse = lambda key, request: (
        RequestTimedOut("slow") if key is ApiKey.ALTER_REPLICA_LOG_DIRS and request.dirs[0].path == "/c" else None
    )
    cluster.around.wishes.append((lambda: cluster.now > 3, Asked(Wish.CANCEL)))
    assert run(cluster, plan, throttle=None).status is RunStatus.CANCELLED
    assert cluster.futures == {}


def test_a_broker_that_tells_no_directories_is_believed() -> None:
    """It refuses to describe them to this operator, and takes the move all the same."""
    cluster = FakeCluster({0: ["/a", "/b"], 1: ["/a"]}, {"t": [(0, 1)]})
    plan = Plan.of([Move("t", 0, (0, 1), (1, 0), ("/a", "/a"), ("/a", "/b"), size=1000)], cluster_id="fake")
    refusal = messages.DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    cluster.refuse = lambda key, request: refusal if key is ApiKey.DESCRIBE_LOG_DIRS else None
    assert run(cluster, plan, throttle=None).status is RunStatus.DONE
