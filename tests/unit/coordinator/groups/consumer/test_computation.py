"""The target of a large group is computed in steps, while the group goes on."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.groups.consumer.world import GROUP, INTERVAL_MS, Consumer, World, topic_id, view

from tidelog.coordinator.groups.consumer.target import compute_target

A = topic_id("a")


def large(members: int = 3, partitions: int = 9) -> tuple[World, list[Consumer]]:
    """A group of which each target is computed in steps, and whose first one is not there yet."""
    world = World(topics=view(a=partitions), assigned_at_once_max=0)
    consumers = [Consumer(world, f"m{index}") for index in range(members)]
    for consumer in consumers:
        consumer.heartbeat()
    return world, consumers


def finish(world: World) -> int:
    """Carries out what is due; how many events that took."""
    events = 0
    while world.tick():
        events += 1
        world.check()
    return events


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_target_is_the_one_that_is_computed_at_once(assignor: str) -> None:
    """It takes several events, and nothing of it is known before the last; then it is all there, in one write."""
    world = World(topics=view(a=9, b=4), assigned_at_once_max=0)
    consumers = [
        Consumer(world, f"m{index}", frozenset({"a"} if index % 2 else {"a", "b"}), assignor=assignor)
        for index in range(7)
    ]
    for consumer in consumers:
        assert not consumer.heartbeat()
        assert consumer.told == {}
    expected = compute_target(dict(world.group.members), {}, {}, world.topics, assignor)
    written = len(world.log)
    while world.tick() and not world.group.target:
        assert len(world.log) == written
    assert world.group.target == expected
    assert world.group.assignment_epoch == world.group.epoch == 7
    assert finish(world) == 0
    world.check()


def test_a_member_comes_back_soon_for_its_target() -> None:
    world, consumers = large()
    assert consumers[0].last is not None
    assert consumers[0].last.interval_ms < INTERVAL_MS
    assert finish(world) > 2
    for consumer in consumers:
        consumer.step()
    assert sorted(len(consumer.owned[A]) for consumer in consumers) == [3, 3, 3]


def test_who_leaves_meanwhile_gets_nothing() -> None:
    """What was begun is ended for those that are left; the next target has the rest."""
    world, consumers = large()
    assert world.tick()
    consumers[0].leave()
    while not world.group.target:
        assert world.tick()
    world.check()
    assert world.group.assignment_epoch == 3
    assert world.group.epoch == 4
    assert set(world.group.target) == {"m1", "m2"}
    finish(world)
    assert world.group.assignment_epoch == 4
    assert sorted(len(each[A]) for each in world.group.target.values()) == [4, 5]


def test_who_comes_meanwhile_has_its_part_of_the_next_target() -> None:
    world, _ = large()
    assert world.tick()
    late = Consumer(world, "late")
    late.heartbeat()
    while world.group.assignment_epoch < 3:
        assert world.tick()
    assert "late" not in world.group.target
    world.check()
    late.heartbeat()
    finish(world)
    assert len(world.group.target["late"][A]) == 2


def test_a_static_member_that_comes_back_meanwhile_has_what_its_former_self_was_to_have() -> None:
    world = World(topics=view(a=4), assigned_at_once_max=0)
    former, other = Consumer(world, "former", instance="i"), Consumer(world, "other")
    former.heartbeat()
    other.heartbeat()
    assert world.tick()
    former.leave(-2)
    returned = Consumer(world, "returned", instance="i")
    returned.heartbeat()
    while not world.group.assignment_epoch:
        assert world.tick()
    world.check()
    assert set(world.group.target) == {"returned", "other"}
    assert len(world.group.target["returned"][A]) == 2


def test_a_coordinator_that_moves_begins_anew() -> None:
    """Nothing is in the log before the end."""
    world, consumers = large()
    assert world.tick()
    assert world.tick()
    world.move()
    assert not world.tick()
    assert world.group.target == {}
    consumers[0].heartbeat()
    finish(world)
    assert world.group.assignment_epoch == world.group.epoch
    assert sum(len(each[A]) for each in world.group.target.values()) == 9


def test_the_group_may_end_meanwhile() -> None:
    """All leave, and another group of the name begins: what was begun for the first one is not its target."""
    world, consumers = large(2)
    assert world.tick()
    for consumer in consumers:
        consumer.leave()
    finish(world)
    assert world.group.target == {}
    late = Consumer(world, "late")
    late.heartbeat()
    finish(world)
    assert world.group.target == {"late": {A: frozenset(range(9))}}


def test_the_interval_holds_for_large_groups_too() -> None:
    world = World(topics=view(a=4), assigned_at_once_max=0, assignment_interval_ms=1000)
    Consumer(world, "m0").heartbeat()
    finish(world)
    assert world.group.assignment_epoch == 1
    Consumer(world, "m1").heartbeat()
    assert finish(world) == 0
    world.pass_time(999)
    assert world.group.assignment_epoch == 1
    world.pass_time(1)
    assert world.group.assignment_epoch == 2
    assert GROUP in world.machine.groups
