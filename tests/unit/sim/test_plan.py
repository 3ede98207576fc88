"""What a seed draws."""

import pytest
from sim.plan import DRAWN_LATER, FaultKind, draw
from sim.world.randomness import SeededRandom

SEEDS = range(60)


def faults_of(seed: int) -> tuple[FaultKind, ...]:
    return draw(SeededRandom(seed, "run").stream("plan")).faults


@pytest.mark.parametrize("kind", DRAWN_LATER)
def test_faults_that_came_later_are_drawn(kind: FaultKind) -> None:
    """Each of them in some runs, once, and not in all."""
    times = [faults_of(seed).count(kind) for seed in SEEDS]
    assert set(times) == {0, 1}


def test_brokers_have_one_or_two_directories() -> None:
    """Both kinds of machines are simulated, and the command line decides where it says so."""
    drawn = [draw(SeededRandom(seed, "run").stream("plan")).log_dirs for seed in SEEDS]
    assert 5 < drawn.count(2) < 40
    assert {draw(SeededRandom(seed, "run").stream("plan"), log_dirs=1).log_dirs for seed in SEEDS} == {1}


def test_a_share_group_may_be_the_one_application() -> None:
    """With the topics that it reads; what is drawn beside it is as in any run of the seed."""
    for seed in SEEDS:
        plan = draw(SeededRandom(seed, "run").stream("plan"), shares=True)
        assert plan.share_members == 8
        assert (plan.groups, plan.transactions) == ((), ())
        assert [topic.name for topic in plan.topics] == ["kept", "trimmed"]
        assert plan.brokers == draw(SeededRandom(seed, "run").stream("plan")).brokers
