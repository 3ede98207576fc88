"""The checker of groups sees what must not be, and nothing else."""

import pytest
from sim.checks.group_history import NOTHING, GroupHistory
from sim.invariants import InvariantBrokenError

from tidelog.model.identifiers import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def history(clock: Clock) -> GroupHistory:
    return GroupHistory("g", clock)


def test_one_owner_in_a_generation(history: GroupHistory) -> None:
    """Another generation may give a partition to another member, the same one may not."""
    history.floor[P0] = 0
    history.assigned("a", 1, [P0])
    history.assigned("b", 1, [P1])
    history.assigned("b", 2, [P0, P1])
    history.assigned("a", 1, [P0])
    with pytest.raises(InvariantBrokenError, match=r"in generation 2 .* has b and a"):
        history.assigned("a", 2, [P1])


def test_a_holding_ends_with_its_release_or_its_session(history: GroupHistory, clock: Clock) -> None:
    """What the coordinator assigns is another's only when it was released, or its holder may count as dead."""
    history.taken("a", P0, lambda: 3.0)
    history.taken("a", P1, lambda: 3.0)
    history.released("a", [P0])
    history.taken("b", P0, lambda: 3.0)
    with pytest.raises(InvariantBrokenError, match=r"b is given .* which a has not released"):
        history.taken("b", P1, lambda: 3.0)
    clock.now_s = 3.0
    history.taken("b", P1, lambda: 6.0)


def test_generations_begin_again_after_a_group_without_offsets(history: GroupHistory) -> None:
    """It expires when it is empty; one with offsets is kept."""
    history.assigned("a", 1, [P0])
    history.assigned("b", 2, [P0])
    history.assigned("c", 1, [P0])
    history.committing(P0, 5, "")
    history.committed({P0: 5}, 1, history.newest)
    with pytest.raises(InvariantBrokenError, match=r"in generation 1 .* has c and d"):
        history.assigned("d", 1, [P0])


@pytest.mark.parametrize(("leader", "binds"), [(1, True), (2, False), (None, True)])
def test_what_a_deposed_coordinator_answers_binds_no_other(clock: Clock, leader: int | None, *, binds: bool) -> None:
    """The answer of broker 1 counts while it leads the group's partition, or another one is yet to be elected."""
    assert GroupHistory("g", clock, lambda: leader).is_coordinator(1) is binds


def test_a_release_of_what_another_has_is_nothing(history: GroupHistory) -> None:
    """A member that gives up late does not give up for its successor."""
    history.taken("a", P0, lambda: 0.0)
    history.taken("b", P0, lambda: 9.0)
    history.released("a", [P0])
    with pytest.raises(InvariantBrokenError):
        history.taken("c", P0, lambda: 9.0)


def test_commits_are_never_taken_back(history: GroupHistory) -> None:
    """What was acknowledged, or shown, stays; what was only asked for may be there or not."""
    history.fetched(P0, NOTHING, "", history.floors())
    history.committing(P0, 5, "a/1")
    history.committing(P0, 8, "a/2")
    history.committed({P0: 5}, 1, 1)
    floors = history.floors()
    history.fetched(P0, 8, "a/2", floors)
    # A fetch that was sent before that one was answered may show the older one.
    history.fetched(P0, 5, "a/1", floors)
    with pytest.raises(InvariantBrokenError, match=r"5 is committed for .* it was 8"):
        history.fetched(P0, 5, "a/1", history.floors())


def test_what_nobody_committed(history: GroupHistory) -> None:
    """An offset or a note that nobody sent is seen."""
    history.committing(P0, 5, "a/1")
    with pytest.raises(InvariantBrokenError, match="nobody asked for it"):
        history.fetched(P0, 5, "a/2", {})


def test_a_stale_commit(history: GroupHistory) -> None:
    """A commit of a generation that is over when it is sent must be refused; on its way a generation may end."""
    history.assigned("a", 1, [P0])
    newest = history.newest
    history.assigned("b", 2, [P0])
    history.committed({P0: 1}, 1, newest)
    with pytest.raises(InvariantBrokenError, match="of generation 1 was taken, 2 had begun"):
        history.committed({P0: 2}, 1, history.newest)
