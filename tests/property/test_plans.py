"""Plans of random clusters for random goals: whatever is asked, a plan keeps the rules, or says why there is none."""

from __future__ import annotations

import contextlib
import random
from unittest import mock

import pytest

from tidelog.placement.plan import exact
from tidelog.placement.plan.goals import NOT_TO_BE_FILLED, Balance, Goals, PlanRefused, closed_because, may_hold
from tidelog.placement.plan.plan import Move
from tidelog.placement.plan.plan_file import dump_plan, load_plan
from tidelog.placement.plan.planner import make_plan
from tidelog.placement.plan.state import (
    BrokerState,
    ClusterState,
    DirectoryState,
    PartitionState,
    ReassignmentState,
    TopicState,
)
from tidelog.placement.plan.state_file import dump_state, load_state


def drawn_state(draw: random.Random) -> ClusterState:
    """Up to seven brokers, some offline, cordoned, without directories or room; partitions with unknown sizes too."""
    count = draw.randint(1, 7)
    racked = draw.random() < 0.5
    brokers = []
    for broker in range(count):
        online = draw.random() < 0.9
        paths = draw.choice([(), ("/a",), ("/a", "/b"), ("/a", "/b", "/c")]) if online else ()
        directories = tuple(
            DirectoryState(
                path,
                draw.choice([None, 10**6]),
                draw.choice([None, 10**5, 5 * 10**5]),
                draw.choice([None, None, None, "KAFKA_STORAGE_ERROR"]),
                draw.random() < 0.1,
            )
            for path in paths
        )
        rack = draw.choice("abc") if racked and online else None
        brokers.append(BrokerState(broker, rack, online, draw.random() < 0.1, directories))
    partitions = []
    for topic in ("t", "u"):
        for number in range(draw.randint(1, 8)):
            replicas = tuple(draw.sample(range(count), draw.randint(1, min(3, count))))
            live = tuple(broker for broker in replicas if brokers[broker].online)
            known = tuple(
                draw.choice([each.path for each in brokers[broker].directories] or [None]) for broker in replicas
            )
            size = draw.choice([None, 0, 10, int(draw.lognormvariate(9, 1.5))])
            partitions.append(
                PartitionState(
                    topic,
                    number,
                    replicas,
                    live[0] if live else -1,
                    live,
                    draw.choice([(), known]),
                    draw.choice([(), (size,) * len(replicas)]),
                    draw.choice([None, 0.0, 1000.0]),
                )
            )
    moving = {each.key: ReassignmentState((), ()) for each in partitions if draw.random() < 0.05}
    return ClusterState.of(
        brokers=brokers,
        topics=[TopicState("t", min_insync_replicas=2), TopicState("u")],
        partitions=partitions,
        reassignments=moving,
    )


def drawn_goals(draw: random.Random, count: int) -> Goals:
    def some(chance: float) -> frozenset[int]:
        return frozenset(broker for broker in range(count) if draw.random() < chance)

    balance = tuple(draw.sample(list(Balance), draw.randint(0, 3)))
    return Goals(
        balance=balance,
        drain=some(0.15),
        fill=some(0.1) if draw.random() < 0.3 else frozenset(),
        exclude=some(0.1),
        factors={"t": draw.randint(1, 4)} if draw.random() < 0.3 else {},
        topics=frozenset({"t"}) if draw.random() < 0.2 else None,
        moves_max=draw.choice([None, None, 1, 3]),
        bytes_max=draw.choice([None, None, 50_000]),
        seconds_max=draw.choice([None, None, None, 1.0005]),
        disks_max=draw.choice([None, 1, 2]) if Balance.BYTES in balance else None,
        rack_aware=draw.random() < 0.8,
    )


def has_no_place_to_fill(state: ClusterState, goals: Goals, move: Move) -> bool:
    """Whether each broker to fill has a replica already, or its rack has."""
    kept = [broker for broker in move.replicas_from if may_hold(state.brokers[broker], goals)]
    racks = {state.brokers[broker].rack for broker in kept} - {None}
    return all(broker in kept or state.brokers[broker].rack in racks for broker in goals.fill)


def check_rules(state: ClusterState, goals: Goals) -> None:
    """Makes the plan, if there is one, and holds it against the rules."""
    planned = make_plan(state, goals)
    plan = planned.plan
    assert load_plan(dump_plan(plan)) == plan
    assert plan.moves_least is None or plan.moves_least <= plan.replica_moves
    assert plan.bytes_least is None or plan.bytes_least <= plan.bytes
    limited = goals.is_limited
    assert goals.moves_max is None or plan.replica_moves <= goals.moves_max
    assert goals.bytes_max is None or plan.bytes <= goals.bytes_max
    live_racks = {
        broker.rack
        for broker in state.brokers.values()
        if broker.online and broker.id not in goals.drain and broker.rack
    }
    for move in plan.moves:
        partition = state.partitions[move.key]
        assert (move.replicas_from, move.key in state.reassignments) == (partition.replicas, False)
        assert goals.in_scope(move.topic)
        drained_left = goals.drain.intersection(move.replicas_to)
        assert not drained_left or (limited and drained_left < goals.drain.intersection(move.replicas_from))
        for broker in move.adding:
            why = closed_because(state.brokers[broker], goals)
            assert why is None or (why == NOT_TO_BE_FILLED and has_no_place_to_fill(state, goals, move))
        for broker, path in zip(move.replicas_to, move.directories_to, strict=True):
            known = {each.path: each for each in state.brokers[broker].directories}
            assert path is None or path in known or path in move.directories_from
            if broker in move.adding and path is not None:
                assert (known[path].error, known[path].cordoned) == (None, False)
        assert len(move.replicas_to) == goals.factors.get(move.topic, len(move.replicas_from))
        if any(may_hold(state.brokers[broker], goals) for broker in move.replicas_from):
            assert any(may_hold(state.brokers[broker], goals) for broker in move.replicas_to)
        racks = [state.brokers[broker].rack for broker in move.replicas_to]
        if goals.rack_aware and None not in racks and live_racks:
            assert len(set(racks)) >= min(len(racks), len(live_racks))
    if goals.seconds_max is not None and plan.replica_moves and plan.simulation is not None:
        assert plan.simulation["seconds"] <= goals.seconds_max + 0.001
    if not limited:
        moved = {move.key: move.replicas_to for move in plan.moves}
        for key, partition in state.partitions.items():
            if goals.in_scope(key.topic) and key not in state.reassignments:
                replicas = moved.get(key, partition.replicas)
                assert goals.drain.isdisjoint(replicas)
                assert len(replicas) == goals.factors.get(key.topic, len(partition.replicas))


def run(rounds: int, seed: int) -> int:
    """How many of the drawn clusters had a plan."""
    draw = random.Random(seed)
    plans = 0
    for _ in range(rounds):
        state = drawn_state(draw)
        assert load_state(dump_state(state)) == state
        goals = drawn_goals(draw, len(state.brokers))
        with contextlib.suppress(PlanRefused):
            check_rules(state, goals)
            plans += 1
    return plans


def test_plans_keep_the_rules_whatever_is_asked() -> None:
    with mock.patch.object(exact, "is_installed", return_value=False):
        assert run(300, seed=3) > 100


@pytest.mark.thorough
def test_thousands_of_plans_keep_the_rules() -> None:
    with mock.patch.object(exact, "is_installed", return_value=False):
        assert run(20_000, seed=4) > 5_000
