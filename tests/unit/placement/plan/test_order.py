"""The order of creation as a goal (R10): leaders by the brokers in turn, with the fewest copies; expansion goes on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tidelog.model.identifiers import TopicPartition
from tidelog.placement.assignment import expand
from tidelog.placement.brokers import BrokerRack, creation_start, in_order_of
from tidelog.placement.plan.goals import Balance, Goals
from tidelog.placement.plan.plan import Plan
from tidelog.placement.plan.planner import make_plan
from tidelog.placement.plan.state import (
    BrokerState,
    ClusterState,
    DirectoryState,
    PartitionState,
    ReassignmentState,
    TopicState,
)


class First:
    """Draws the lowest."""

    def below(self, bound: int) -> int:
        return 0

    def token(self) -> bytes:
        return bytes(16)


def cluster(
    replicas: Sequence[Sequence[int]], brokers: int, *, racks: int = 0, cordoned: Sequence[int] = ()
) -> ClusterState:
    """One topic with these replicas, the preferred leaders first."""
    return ClusterState.of(
        brokers=[
            BrokerState(
                id,
                f"r{id % racks}" if racks else None,
                cordoned=id in cordoned,
                directories=(DirectoryState("/d", 1 << 40, 1 << 39),),
            )
            for id in range(brokers)
        ],
        topics=[TopicState("t")],
        partitions=[
            PartitionState("t", number, tuple(each), each[0], tuple(each), ("/d",) * len(each), (1000,) * len(each))
            for number, each in enumerate(replicas)
        ],
    )


def after(state: ClusterState, plan: Plan) -> dict[int, tuple[int, ...]]:
    """[partition] -> replicas once the plan has run."""
    moves = {move.key: move.replicas_to for move in plan.moves}
    return {key.partition: moves.get(key, each.replicas) for key, each in state.partitions.items()}


def drawn(draw: random.Random, racks: int) -> ClusterState:
    brokers = draw.randint(max(2, racks), 6)
    factor = draw.randint(1, racks or min(3, brokers))
    found = []
    for _ in range(draw.randint(1, 9)):
        replicas = draw.sample(range(brokers), brokers)
        if racks:
            seen: dict[int, int] = {}
            for id in replicas:
                seen.setdefault(id % racks, id)
            replicas = list(seen.values())
        found.append(replicas[:factor])
    return cluster(found, brokers, racks=racks)


def gained(state: ClusterState, existing: dict[int, tuple[int, ...]], count: int) -> list[int]:
    """The leaders of the partitions that the topic would gain."""
    brokers = [BrokerRack(each.id, each.rack) for each in state.brokers.values()]
    in_order = in_order_of(existing, brokers)
    start = creation_start(existing, in_order)
    placed = expand("t", existing, in_order, len(existing) + count, random=First(), start=start)
    return [placed[number][0] for number in sorted(placed)]


@pytest.mark.row("R10")
@pytest.mark.parametrize("racks", [0, 2])
def test_leaders_take_turns_with_the_fewest_copies(racks: int) -> None:
    """As an exhaustive look at every beginning finds; and an expansion goes on where the last partition stood."""
    draw = random.Random(racks)
    for _ in range(100):
        state = drawn(draw, racks)
        planned = make_plan(state, Goals(balance=(Balance.ORDER,)))
        found = after(state, planned.plan)
        leaders = [found[number][0] for number in sorted(found)]
        turn = [*leaders, *gained(state, found, len(state.brokers))][: len(state.brokers)]
        assert len(set(turn)) == len(turn), (state.partitions, leaders)
        assert leaders == [turn[number % len(turn)] for number in range(len(leaders))]
        least = min(
            sum(
                turn[(start + key.partition) % len(turn)] not in each.replicas for key, each in state.partitions.items()
            )
            for start in range(len(turn))
        )
        assert (planned.plan.replica_moves, planned.plan.moves_least, planned.plan.gap) == (least, least, 0.0)
        if racks:
            assert all(len({id % racks for id in each}) == len(each) for each in found.values())


@pytest.mark.row("R10")
def test_the_documents_case_is_in_order_already() -> None:
    """Created over 1, 0, 2, with leaders 1 and 0: nothing is moved, and partition 2 is to come to broker 2."""
    state = cluster([(1,), (0,)], 3)
    planned = make_plan(state, Goals(balance=(Balance.ORDER,)))
    assert planned.plan.moves == ()
    assert gained(state, after(state, planned.plan), 1) == [2]


@pytest.mark.row("R10")
def test_even_counts_around_the_order() -> None:
    """Asked for in that order both are reached: a new broker gets its turn and its share."""
    state = cluster([(number % 3, (number + 1) % 3) for number in range(12)], 4)
    planned = make_plan(state, Goals(balance=(Balance.ORDER, Balance.COUNTS)))
    found = after(state, planned.plan)
    leaders = [found[number][0] for number in sorted(found)]
    assert leaders == [(leaders[0] + number) % 4 for number in range(12)]
    counts = [sum(id in each for each in found.values()) for id in range(4)]
    assert counts == [6, 6, 6, 6]
    assert planned.plan.moves_least is not None
    assert 6 <= planned.plan.moves_least <= planned.plan.replica_moves <= 9


@pytest.mark.row("R10")
def test_an_order_that_is_asked_for_last_copies_nothing() -> None:
    """The counts' moves are the least as before; what is not in turn is told."""
    state = cluster([(number % 3, (number + 1) % 3) for number in range(12)], 4)
    planned = make_plan(state, Goals(balance=(Balance.COUNTS, Balance.ORDER)))
    assert (planned.plan.replica_moves, planned.plan.moves_least) == (6, 6)
    assert any("of topic t are not led in turn" in remark for remark in planned.remarks)


def test_bytes_and_order_together() -> None:
    """Bytes are evened out by followers: the leaders in turn stay."""
    draw = random.Random(5)
    placed = [tuple(draw.sample(range(6), 2)) for _ in range(60)]
    state = cluster(placed, 6)
    planned = make_plan(state, Goals(balance=(Balance.ORDER, Balance.BYTES)))
    found = after(state, planned.plan)
    leaders = [found[number][0] for number in sorted(found)]
    assert leaders == [(leaders[0] + number) % 6 for number in range(60)]
    counts = [sum(id in each for each in found.values()) for id in range(6)]
    assert max(counts) - min(counts) <= 2


def test_a_cordoned_broker_has_no_turn() -> None:
    """New partitions do not come to it, so the turn goes on without it."""
    state = cluster([(0, 1), (1, 2), (2, 3), (3, 0)], 4, cordoned=[3])
    found = after(state, make_plan(state, Goals(balance=(Balance.ORDER,))).plan)
    leaders = [found[number][0] for number in range(4)]
    assert leaders == [0, 1, 2, 0]


def test_whichever_of_order_and_even_leaders_comes_first_holds() -> None:
    """The other one gives way, and is told to."""
    state = cluster([(0, 1), (0, 1), (2, 1), (2, 0)], 3)
    first = make_plan(state, Goals(balance=(Balance.ORDER, Balance.LEADERS)))
    assert any("as even as the order of creation makes them" in remark for remark in first.remarks)
    last = make_plan(state, Goals(balance=(Balance.LEADERS, Balance.ORDER)))
    assert last.plan.replica_moves == 0
    assert any("the order of creation gives way" in remark for remark in last.remarks)


@pytest.mark.parametrize("balance", [(Balance.LEADERS, Balance.ORDER), (Balance.RACKS, Balance.LEADERS, Balance.ORDER)])
def test_an_order_that_gives_way_to_even_leaders_copies_nothing(balance: tuple[Balance, ...]) -> None:
    """Broker 2 has no replica to lead, and gets none for a turn that even leaders end."""
    state = cluster([(0, 1), (0, 1), (1, 0), (0, 1)], 3)
    planned = make_plan(state, Goals(balance=balance))
    assert (planned.plan.replica_moves, planned.plan.moves_least) == (0, 0)
    found = after(state, planned.plan)
    assert sorted(each[0] for each in found.values()) == [0, 0, 1, 1]


def test_a_partition_that_is_being_moved_keeps_its_place_in_the_turn() -> None:
    """It is left alone, and the others, which have their turn already, are not taken for another order without it."""
    state = cluster([(number, (number + 1) % 6) for number in (2, 3, 4, 5, 0, 1)], 6)
    state = replace(state, reassignments={TopicPartition("t", 1): ReassignmentState((5,), (4,))})
    planned = make_plan(state, Goals(balance=(Balance.ORDER,)))
    assert not planned.plan.moves
