"""Plans of drawn states and goals: whatever is asked for, the rules hold, or it is refused."""

from __future__ import annotations

import random

from tidelog.model.identifiers import TopicPartition
from tidelog.placement.plan.goals import NOT_TO_BE_FILLED, Balance, Goals, PlanRefused, closed_because, may_hold
from tidelog.placement.plan.plan import Move
from tidelog.placement.plan.plan_file import dump_plan, load_plan
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

CASES = 100


def drawn_state(draw: random.Random) -> ClusterState:
    """Brokers some of which are offline, cordoned or without a disk; partitions some of which are behind or moving."""
    count, racks, disks = draw.randint(2, 7), draw.choice([0, 0, 2, 3]), draw.choice([0, 1, 2])
    brokers = []
    for id in range(count):
        size = draw.choice([None, 1000, 5000])
        directories = tuple(
            DirectoryState(
                f"/d{number}",
                size,
                None if size is None else draw.randint(0, size),
                "KAFKA_STORAGE_ERROR" if draw.random() < 0.1 else None,
                draw.random() < 0.07,
            )
            for number in range(disks)
        )
        online, rack = draw.random() > 0.1, f"r{draw.randrange(racks)}" if racks else None
        brokers.append(BrokerState(id, rack, online, draw.random() < 0.1, directories if online else ()))
    partitions = [
        drawn_partition(draw, topic, number, brokers) for topic in "tu" for number in range(draw.randint(0, 8))
    ]
    return ClusterState.of(
        brokers=brokers,
        topics=[TopicState(topic, min_insync_replicas=draw.choice([None, 1, 2])) for topic in "tu"],
        partitions=partitions,
        reassignments={
            each.key: ReassignmentState(each.replicas[:1], each.replicas[1:])
            for each in partitions
            if draw.random() < 0.05
        },
        directory_moves=[
            DirectoryMoveState(each.topic, each.partition, each.replicas[0], "/d0")
            for each in partitions
            if disks and draw.random() < 0.05
        ],
    )


def drawn_partition(draw: random.Random, topic: str, number: int, brokers: list[BrokerState]) -> PartitionState:
    replicas = tuple(draw.sample(range(len(brokers)), draw.randint(1, min(3, len(brokers)))))
    isr = tuple(id for id in replicas if brokers[id].online and draw.random() > 0.1)
    paths = tuple(draw.choice(brokers[id].directories).path if brokers[id].directories else None for id in replicas)
    size = draw.choice([None, 0, 1, 10, 100, draw.randint(0, 800)])
    sizes = tuple(size if brokers[id].online else None for id in replicas)
    traffic = draw.choice([None, 0.0, draw.random() * 100])
    return PartitionState(topic, number, replicas, isr[0] if isr else -1, isr, paths, sizes, traffic)


def drawn_goals(draw: random.Random, brokers: int) -> Goals:
    """Some that make sense together, some that do not."""
    balance = tuple(draw.sample(list(Balance), draw.randint(0, 3)))
    return Goals(
        balance=balance,
        drain=frozenset(draw.sample(range(brokers), draw.choice([0, 0, 1, 1, 2]))),
        fill=frozenset(draw.sample(range(brokers), draw.choice([0, 0, 0, 1]))),
        exclude=frozenset(draw.sample(range(brokers), draw.choice([0, 0, 0, 1]))),
        factors=draw.choice([{}, {}, {"t": draw.randint(1, 4)}]),
        topics=draw.choice([None, None, None, frozenset({"t"})]),
        leave=draw.choice([frozenset(), frozenset(), frozenset({"u"})]),
        moves_max=draw.choice([None, None, 1, 2, 5]),
        bytes_max=draw.choice([None, None, 50, 500]),
        seconds_max=draw.choice([None, None, None, 2.0]),
        disks_max=draw.choice([None, 1]) if Balance.BYTES in balance else None,
        rack_aware=draw.random() > 0.2,
    )


def check_move(move: Move, state: ClusterState, goals: Goals) -> None:
    """What holds for every move of any plan."""
    partition = state.partitions[move.key]
    assert move.replicas_from == partition.replicas
    assert len(set(move.replicas_to)) == len(move.replicas_to)
    assert move.key not in state.under_way
    assert goals.in_scope(move.topic)
    for broker in move.adding:
        assert closed_because(state.brokers[broker], goals) in (None, NOT_TO_BE_FILLED)
    former = dict(zip(move.replicas_from, move.directories_from, strict=True))
    for broker, path in zip(move.replicas_to, move.directories_to, strict=True):
        if path is not None and path != former.get(broker):
            [directory] = [each for each in state.brokers[broker].directories if each.path == path]
            assert not directory.cordoned
            assert directory.error is None
    if goals.rack_aware and len(move.replicas_to) >= len(move.replicas_from):
        racks = {broker.rack for broker in state.brokers.values() if may_hold(broker, goals) and broker.rack}
        after, before = (
            len({state.brokers[id].rack or id for id in ids}) for ids in (move.replicas_to, move.replicas_from)
        )
        assert not racks or after >= min(len(move.replicas_to), len(racks), before)


def test_whatever_is_asked_for_the_rules_hold() -> None:
    """Moves within rules, scope and limits, bounds below them, drains and factors reached, and twice the same plan."""
    planned_cases = 0
    for seed in range(CASES):
        draw = random.Random(seed)
        state = drawn_state(draw)
        goals = drawn_goals(draw, len(state.brokers))
        if not goals.words():
            continue
        try:
            plan = make_plan(state, goals, throttle=100).plan
        except PlanRefused:
            continue
        planned_cases += 1
        assert load_plan(dump_plan(plan)) == plan == make_plan(state, goals, throttle=100).plan, seed
        for move in plan.moves:
            check_move(move, state, goals)
        assert plan.moves_least is not None
        assert plan.moves_least <= plan.replica_moves <= (goals.moves_max or plan.replica_moves), seed
        assert (plan.bytes_least or 0) <= plan.bytes <= (goals.bytes_max or plan.bytes), seed
        assert plan.gap is not None
        assert 0 <= plan.gap <= 1, seed
        if not goals.is_limited:
            after = {key: each.replicas for key, each in state.partitions.items()}
            check_reached(state, goals, after | {move.key: move.replicas_to for move in plan.moves})
    assert planned_cases >= CASES / 4


def check_reached(state: ClusterState, goals: Goals, after: dict[TopicPartition, tuple[int, ...]]) -> None:
    """Of a whole plan: brokers are drained, factors are as asked, as far as others move nothing."""
    for key, replicas in after.items():
        if goals.in_scope(key.topic) and key not in state.under_way:
            assert goals.drain.isdisjoint(replicas), key
            assert len(replicas) == goals.factors.get(key.topic, len(state.partitions[key].replicas)), key
