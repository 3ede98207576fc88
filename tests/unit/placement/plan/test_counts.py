"""Counts: the planner's moves are the fewest that exist, whatever the rules; and what cannot be, is explained."""

from __future__ import annotations

import importlib
import itertools
import random
from collections.abc import Sequence

import pytest
from tests.solver import needs_solver

from tidelog.model.identifiers import TopicPartition
from tidelog.placement.plan import exact
from tidelog.placement.plan.goals import Balance, Goals, PlanRefused
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


def state_of(
    replicas: Sequence[Sequence[int]],
    *,
    racks: Sequence[str | None] = (None, None, None, None),
    cordoned: Sequence[int] = (),
    offline: Sequence[int] = (),
) -> ClusterState:
    """A topic's partitions on brokers 0, 1, ..., one for each of `racks`."""
    return ClusterState.of(
        brokers=[
            BrokerState(broker, rack, broker not in offline, broker in cordoned) for broker, rack in enumerate(racks)
        ],
        topics=[TopicState("t")],
        partitions=[
            PartitionState("t", number, tuple(brokers), brokers[0], tuple(brokers))
            for number, brokers in enumerate(replicas)
        ],
    )


def spreads(brokers: Sequence[int], racks: Sequence[str | None], open_racks: int) -> bool:
    """Whether no rack is used twice while one is unused."""
    return None in racks or len({racks[broker] for broker in brokers}) == min(len(brokers), open_racks)


def search(state: ClusterState, goals: Goals) -> tuple[int, int] | None:
    """All placements tried: the least (sum of squared counts, moves); None where no placement keeps the rules."""
    brokers = list(state.brokers.values())
    racks = [broker.rack for broker in brokers]
    allowed = [broker.id for broker in brokers if broker.id not in goals.drain]
    open_racks = len({racks[broker] for broker in allowed})
    best: dict[tuple[int, ...], int] = {(0,) * len(brokers): 0}
    for partition in state.partitions.values():
        need = goals.factors.get("t", len(partition.replicas))
        after: dict[tuple[int, ...], int] = {}
        for placed in itertools.combinations(allowed, need):
            entering = [broker for broker in placed if broker not in partition.replicas]
            if not spreads(placed, racks, open_racks) or any(brokers[broker].cordoned for broker in entering):
                continue
            for counts, moves in best.items():
                key = tuple(count + (broker in placed) for broker, count in enumerate(counts))
                after[key] = min(after.get(key, 1 << 30), moves + len(entering))
        best = after
    return min(((sum(count * count for count in counts), moves) for counts, moves in best.items()), default=None)


def measured(state: ClusterState, goals: Goals) -> tuple[int, int]:
    """What the planner reaches: (sum of squared counts, moves), and that it claims no other number as the least."""
    planned = make_plan(state, goals)
    after = {partition.key: partition.replicas for partition in state.partitions.values()}
    after |= {move.key: move.replicas_to for move in planned.plan.moves}
    counts = [sum(broker in replicas for replicas in after.values()) for broker in state.brokers]
    assert planned.plan.moves_least == planned.plan.replica_moves
    racks = [broker.rack for broker in state.brokers.values()]
    open_racks = len({racks[broker] for broker in state.brokers if broker not in goals.drain})
    for replicas in after.values():
        assert spreads(replicas, racks, open_racks)
        assert goals.drain.isdisjoint(replicas)
    return sum(count * count for count in counts), planned.plan.replica_moves


def compare(rounds: int, seed: int) -> None:
    draw = random.Random(seed)
    for round in range(rounds):
        brokers = draw.randint(2, 4)
        factor = draw.randint(1, 2)
        replicas = [draw.sample(range(brokers), factor) for _ in range(draw.randint(1, 5))]
        racks: list[str | None] = [draw.choice("ab") if round % 3 else None for _ in range(brokers)]
        if round % 3 == 0:
            racks = [None] * brokers
        drain = draw.sample(range(brokers), draw.choice([0, 0, 1]))
        cordoned = draw.sample(range(brokers), draw.choice([0, 0, 1]))
        factors = {"t": draw.randint(1, 3)} if draw.random() < 0.3 else {}
        state = state_of(replicas, racks=racks, cordoned=cordoned)
        goals = Goals(balance=(Balance.COUNTS,), drain=frozenset(drain), factors=factors)
        expected = search(state, goals)
        if expected is None:
            with pytest.raises(PlanRefused):
                make_plan(state, goals)
        else:
            assert measured(state, goals) == expected, (round, replicas, racks, drain, cordoned, factors)


def test_moves_are_those_of_an_exhaustive_search() -> None:
    """200 random clusters of up to 4 brokers and 5 partitions, with racks, drains, cordons and other factors."""
    compare(200, seed=16)


def moved_to(state: ClusterState, goals: Goals) -> dict[int, tuple[int, ...]]:
    """[partition that the plan moves] -> its replicas."""
    return {move.partition: move.replicas_to for move in make_plan(state, goals).plan.moves}


@pytest.mark.parametrize("balance", [(), (Balance.COUNTS,), (Balance.LEADERS,)])
def test_a_factor_gets_lower_where_replicas_are_on_offline_brokers(balance: tuple[Balance, ...]) -> None:
    """Offline brokers tell no rack. They are no racks of their own that a partition has to keep a replica in."""
    state = state_of([[3, 1, 2]], racks=["b", None, "b", None], offline=[1, 3])
    [replicas] = moved_to(state, Goals(balance=balance, factors={"t": 2})).values()
    assert set(replicas) == {2, 3}


@pytest.mark.parametrize("racks", [(None,) * 4, (None, "a", "b", None), (None, "a", "a", None)])
def test_a_lower_factor_keeps_the_replicas_on_live_brokers(racks: Sequence[str | None]) -> None:
    state = state_of([[3, 0, 2], [0, 1]], racks=racks, offline=[0, 3])
    assert moved_to(state, Goals(factors={"t": 1})) == {0: (2,), 1: (1,)}


def test_a_lower_factor_keeps_the_replicas_in_sync() -> None:
    """Broker 0 is live and behind: dropping the others would leave the partition waiting for it."""
    state = ClusterState.of(
        brokers=[BrokerState(broker) for broker in range(3)],
        topics=[TopicState("t")],
        partitions=[PartitionState("t", 0, (0, 1, 2), 2, (2, 1)), PartitionState("t", 1, (0, 1, 2), 0, (0, 1, 2))],
    )
    assert moved_to(state, Goals(factors={"t": 2})) == {0: (1, 2), 1: (0, 1)}


def test_a_broker_that_cannot_be_filled_is_told_why() -> None:
    """All that others could give it is of a topic that is to be left alone."""
    state = state_of([[1, 2]] * 6)
    with pytest.raises(PlanRefused, match=r"--fill 0: broker 0 gets to 0 replicas and not to the average, .* --leave$"):
        make_plan(state, Goals(fill=frozenset({0}), leave=frozenset({"t"})))


def test_what_others_move_is_left_alone() -> None:
    """Between brokers and between directories; the plan says how many partitions that are."""
    paths = (DirectoryState("/a"), DirectoryState("/b"))
    state = ClusterState.of(
        brokers=[BrokerState(broker, directories=paths) for broker in range(4)],
        topics=[TopicState("t")],
        partitions=[PartitionState("t", number, (0, 1), 0, (0, 1), ("/a", "/a")) for number in range(3)],
        reassignments={TopicPartition("t", 0): ReassignmentState((1,), ())},
        directory_moves=[DirectoryMoveState("t", 1, 0, "/b")],
    )
    planned = make_plan(state, Goals(drain=frozenset({0})))
    assert [move.partition for move in planned.plan.moves] == [2]
    assert planned.remarks == ("2 partitions that are being moved: left alone",)


def test_even_counts_take_no_replica_back_to_an_offline_broker() -> None:
    """A partition that has left the offline broker 0 does not go back there, so that another one may leave it."""
    racks, placed = (None, "a", "b", "b"), {"t": [(2, 3), (0, 1)], "u": [(1, 0)]}
    state = ClusterState.of(
        brokers=[BrokerState(broker, rack, broker != 0, broker == 3) for broker, rack in enumerate(racks)],
        topics=[TopicState(topic) for topic in placed],
        partitions=[
            PartitionState(topic, number, replicas, max(replicas), (max(replicas),))
            for topic, partitions in placed.items()
            for number, replicas in enumerate(partitions)
        ],
    )
    moves = make_plan(state, Goals(balance=(Balance.COUNTS,), factors={"t": 1})).plan.moves
    after = {move.key: move.replicas_to for move in moves}
    [left_zero] = [replicas for key, replicas in after.items() if (key.topic, key.partition) == ("t", 1)]
    assert left_zero != (0,)
    assert all(0 in replicas for key, replicas in after.items() if key.topic == "u")


@pytest.mark.thorough
def test_moves_are_those_of_ten_thousand_exhaustive_searches() -> None:
    compare(10_000, seed=1)


def test_a_partition_may_move_twice_on_the_way_to_even_counts() -> None:
    """A replica enters the third rack, and another of the same partition leaves the first one, in one step."""
    racks = ["a", "b", "b", "c", "a", "b", "b"]
    raised = [(2,), (3,), (4, 6, 5), (6,), (6, 5)]
    others = [(3, 5, 1), (6, 2), (0, 6, 3), (0, 1), (2, 0)]
    state = ClusterState.of(
        brokers=[BrokerState(broker, rack, online=True) for broker, rack in enumerate(racks)],
        topics=[TopicState("t"), TopicState("u")],
        partitions=[
            PartitionState(topic, number, replicas, replicas[0], replicas)
            for topic, lists in (("t", raised), ("u", others))
            for number, replicas in enumerate(lists)
        ],
    )
    planned = make_plan(state, Goals(balance=(Balance.COUNTS,), drain=frozenset({6}), factors={"t": 4}))
    after = {key: each.replicas for key, each in state.partitions.items()}
    after |= {move.key: move.replicas_to for move in planned.plan.moves}
    assert sorted(sum(broker in each for each in after.values()) for broker in range(7)) == [0, 5, 5, 5, 5, 5, 7]
    assert all(len({racks[broker] for broker in each}) == 3 for (topic, _), each in after.items() if topic == "t")
    assert planned.plan.moves_least == planned.plan.replica_moves


def test_what_has_no_place_on_a_broker_to_fill_goes_elsewhere() -> None:
    """Broker 3 is replaced by 4, which has a replica of t-0 already: that one goes to another broker, the rest to 4."""
    state = state_of([[4, 3], [3, 0], [2, 3], [0, 1]], racks=[None] * 5)
    after = moved_to(state, Goals(drain=frozenset({3}), fill=frozenset({4})))
    assert after[0][0] == 4
    assert after[0][1] in (0, 1, 2)
    assert (after[1], after[2]) == ((4, 0), (2, 4))
    assert 3 not in after


def optimum(replicas: Sequence[Sequence[int]], racks: Sequence[str | None]) -> int:
    """The fewest moves to even counts with no rack twice, by HiGHS."""
    solver = importlib.import_module(exact.SOLVER).Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    x = [[solver.addBinary() for _ in racks] for _ in replicas]
    for former, row in zip(replicas, x, strict=True):
        solver.addConstr(sum(row) == len(former))
        for rack in set(racks):
            solver.addConstr(sum(each for each, of in zip(row, racks, strict=True) if of == rack) <= 1)
    total = sum(map(len, replicas))
    for broker in range(len(racks)):
        count = sum(row[broker] for row in x)
        solver.addConstr(count >= total // len(racks))
        solver.addConstr(count <= -(-total // len(racks)))
    solver.minimize(sum(row[id] for former, row in zip(replicas, x, strict=True) for id in set(range(8)) - set(former)))
    return round(solver.getInfo().objective_function_value)


@needs_solver
def test_moves_are_those_of_a_solver() -> None:
    """Beyond what can be searched exhaustively: 8 brokers in 4 racks, 30 partitions of 3 replicas."""
    draw = random.Random(1)
    racks = [f"r{id % 4}" for id in range(8)]
    for _ in range(8):
        skewed = [id for id in range(8) if draw.random() < 0.8 or id < 4]
        replicas = []
        for _ in range(30):
            order = draw.sample(skewed, len(skewed))
            replicas.append(list({id % 4: id for id in order}.values())[:3])
        plan = make_plan(state_of(replicas, racks=racks), Goals(balance=(Balance.COUNTS,))).plan
        assert (plan.replica_moves, plan.moves_least) == (optimum(replicas, racks),) * 2


def counted(state: ClusterState, goals: Goals) -> tuple[list[int], list[int], int]:
    """After a plan that claims to be the least: replicas of brokers, what they lead by preference, and the moves."""
    planned = make_plan(state, goals).plan
    assert planned.moves_least == planned.replica_moves
    after = {partition.key: partition.replicas for partition in state.partitions.values()}
    after |= {move.key: move.replicas_to for move in planned.moves}
    held = [sum(broker in replicas for replicas in after.values()) for broker in state.brokers]
    led = [sum(broker == replicas[0] for replicas in after.values()) for broker in state.brokers]
    return held, led, planned.replica_moves


def test_what_cannot_be_even_is_as_even_as_rules_let_it_be() -> None:
    """Broker 2 gets nothing, so 0 and 3 get what 1 and 4 can give, and 1 is not left with more than that."""
    movable, left = [(4, 1, 3)] * 50, [(0, 3, 1), (4,), (1,), (4, 1)] * 50
    state = ClusterState.of(
        brokers=[BrokerState(broker, rack, cordoned=broker in (1, 2)) for broker, rack in enumerate("abbba")],
        topics=[TopicState("t"), TopicState("left")],
        partitions=[
            PartitionState(topic, number, brokers, brokers[0], brokers)
            for topic, lists in (("t", movable), ("left", left))
            for number, brokers in enumerate(lists)
        ],
    )
    held, _, moves = counted(state, Goals(balance=(Balance.COUNTS,), leave=frozenset({"left"})))
    assert (held, moves) == ([100, 150, 0, 100, 150], 50)


def test_leaders_that_cannot_be_even_are_as_even_as_can_be() -> None:
    """Broker 4 leads what no other live one has, 2 and 3 the rest: nothing else of it, though 1 leads nothing."""
    replicas = [(4, 3), (4, 2, 3), (4,), (4, 0), (4,), (2, 3)] * 50
    state = state_of(replicas, racks=[None] * 5, offline=[0])
    _, led, _ = counted(state, Goals(balance=(Balance.LEADERS,)))
    assert led == [0, 0, 75, 75, 150]


@pytest.mark.parametrize(
    ("movable", "left", "cordoned", "held"),
    [
        # 4 gets nothing and 0, 1 and 3 are even already: 2 gets what can go there all the same.
        ([(1, 0)], [(0, 3), (1, 3, 0), (3, 1)], [4], [2, 3, 1, 3, 0]),
        # 0 and 2 get nothing, and 0 gives nothing either: it would go where 1 has too many for.
        ([(1, 3, 0), (1, 3), (1, 2, 0), (1,), (3, 0, 1)], [], [0, 2], [3, 4, 1, 4]),
    ],
)
def test_groups_that_cannot_be_even_together_get_what_is_theirs(
    movable: Sequence[tuple[int, ...]], left: Sequence[tuple[int, ...]], cordoned: Sequence[int], held: list[int]
) -> None:
    """One replica each is moved; no group of brokers has more of them, or fewer, than rules leave it."""
    state = ClusterState.of(
        brokers=[BrokerState(broker, cordoned=broker in cordoned) for broker in range(len(held))],
        topics=[TopicState("t"), TopicState("left")],
        partitions=[
            PartitionState(topic, number, brokers, brokers[0], brokers)
            for topic, lists in (("t", movable), ("left", left))
            for number, brokers in enumerate(lists)
        ],
    )
    found, _, moves = counted(state, Goals(balance=(Balance.COUNTS,), leave=frozenset({"left"})))
    assert (sorted(found), moves) == (sorted(held), 1)
