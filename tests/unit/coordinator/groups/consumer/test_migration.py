"""Groups that change their protocol while their members consume."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.coordinator.groups.consumer.world import (
    GROUP,
    INTERVAL_MS,
    ClassicConsumer,
    Consumer,
    World,
    check_clients,
    topic_id,
)

from tidelog.coordinator.groups.classic.events import JoinGroup
from tidelog.coordinator.groups.classic.group import ClassicGroup
from tidelog.coordinator.groups.classic.members import Protocol
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.coordinator_records import CONSUMER_OFFSETS, decode_key

A = topic_id("a")


def settle(world: World, *clients: Any, rounds: int = 8) -> None:
    for _ in range(rounds):
        for client in clients:
            client.step()
        world.pass_time(INTERVAL_MS)
        for client in clients:
            if isinstance(client, ClassicConsumer):
                client.look()
        world.check()
        check_clients(world, list(clients))


def classic_group(world: World, *, assignor: str = "range", count: int = 2, **fields: Any) -> list[ClassicConsumer]:
    members = [ClassicConsumer(world, assignor, **fields) for _ in range(count)]
    settle(world, *members)
    assert sum(len(member.partitions) for member in members) == 6
    return members


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_there_and_back(assignor: str) -> None:
    """A newer consumer joins and shares with the classic ones; when it leaves they are by themselves again."""
    world = World()
    old = classic_group(world, assignor=assignor)
    new = Consumer(world, "new")
    new.heartbeat()
    assert (world.kind, world.group.classic_members) == ("consumer", 2)
    world.check()
    settle(world, *old, new)
    assert [len(client.partitions) for client in (*old, new)] == [2, 2, 2]
    new.leave()
    assert world.kind == "classic"
    settle(world, *old)
    assert [len(client.partitions) for client in old] == [3, 3]
    world.move()
    settle(world, *old)
    assert [len(client.partitions) for client in old] == [3, 3]


def test_the_records_of_an_upgrade_and_of_the_way_back() -> None:
    """One form is taken away before the other is written."""
    world = World()
    (old,) = classic_group(world, count=1)
    before = len(world.log)
    new = Consumer(world, "new")
    new.heartbeat()
    kinds = [(type(decode_key(CONSUMER_OFFSETS, key)), value is None) for key, value in world.log[before:]]
    assert kinds[0] == (messages.GroupMetadataKey, True)
    assert not any(gone for _, gone in kinds[1:])
    before = len(world.log)
    new.leave()
    kinds = [(type(decode_key(CONSUMER_OFFSETS, key)), value is None) for key, value in world.log[before:]]
    assert all(gone for _, gone in kinds[:-1])
    assert kinds[-2][0] is messages.ConsumerGroupMetadataKey
    assert kinds[-1] == (messages.GroupMetadataKey, False)
    assert old.is_alive


def test_policies() -> None:
    """Groups stay what they are where it is not allowed."""
    world = World(may_upgrade=False)
    classic_group(world)
    assert Consumer(world, "new").heartbeat() is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.kind == "classic"
    world = World(may_downgrade=False)
    classic_group(world)
    new = Consumer(world, "new")
    new.heartbeat()
    new.leave()
    assert world.kind == "consumer"


def test_groups_that_are_too_large_for_a_batch() -> None:
    """They stay what they are, and whoever leaves has left: an append that is sure to fail would harm other groups."""
    world = World()
    old = classic_group(world)
    world.machine.settings = replace(world.settings, group_record_max_bytes=700)
    new = Consumer(world, "new")
    assert new.heartbeat() is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.kind == "classic"
    world.machine.settings = world.settings
    settle(world, *old, new)
    assert world.kind == "consumer"
    world.machine.settings = replace(world.settings, group_record_max_bytes=400)
    new.leave()
    assert (world.kind, len(world.group.members)) == ("consumer", 2)
    settle(world, *old)
    assert [len(client.partitions) for client in old] == [3, 3]


def test_groups_that_are_no_consumers() -> None:
    """Connect's workers, and bytes that are no subscription, stay classic."""
    for protocol_type, metadata in (("connect", b"\x00\x00"), ("consumer", b"\x7f")):
        world = World()
        for _ in range(2):
            member_id = next(iter(pending(world)), "")
            world.ask(
                lambda request_id, member_id=member_id, kind=protocol_type, data=metadata, world=world: JoinGroup(
                    *(request_id, GROUP, member_id, "m", "c", "/h", 10_000, 10_000, kind),
                    (Protocol("p", data),),
                    world.wall_ms,
                )
            )
        assert Consumer(world, "new").heartbeat() is ErrorCode.GROUP_ID_NOT_FOUND
        assert world.kind == "classic"


def pending(world: World) -> list[str]:
    group = world.machine.groups.get(GROUP)
    return list(group.pending) if isinstance(group, ClassicGroup) else []


def test_an_empty_group_is_whatever_the_next_one_speaks() -> None:
    """Without a word about the other protocol."""
    world = World(may_upgrade=False, may_downgrade=False)
    new = Consumer(world, "new")
    new.step()
    new.leave()
    (old,) = classic_group(world, count=1)
    assert world.kind == "classic"
    old.leave()
    world.pass_time(INTERVAL_MS)
    again = Consumer(world, "again")
    again.step()
    assert (world.kind, again.told) == ("consumer", {A: frozenset(range(6))})
    world.check()


def test_a_static_member_changes_its_protocol() -> None:
    """Rolling through a fleet of static members, there and back: each takes its former self's place."""
    world = World()
    other = ClassicConsumer(world, "cooperative-sticky", instance="other")
    settle(world, other)
    former = ClassicConsumer(world, "cooperative-sticky", instance="i")
    settle(world, other, former)
    new = Consumer(world, "new", instance="i")
    new.heartbeat()
    settle(world, other, new)
    assert (world.kind, len(new.partitions), len(other.partitions)) == ("consumer", 3, 3)
    new.leave(-2)
    back = ClassicConsumer(world, "cooperative-sticky", instance="i")
    settle(world, other, back)
    assert (world.kind, len(back.partitions), len(other.partitions)) == ("classic", 3, 3)


def test_silent_classic_members_are_put_out() -> None:
    """By their own session timeout; the others take over."""
    world = World()
    first, second = classic_group(world)
    new = Consumer(world, "new")
    new.heartbeat()
    settle(world, first, new)
    assert second.member_id not in world.group.members
    assert [len(client.partitions) for client in (first, new)] == [3, 3]


def test_what_members_hold_when_their_group_changes_its_kind_twice() -> None:
    """Classic once more before anybody gave up what the target took away: nothing of that is free in the next group."""
    world = World()
    first, second = classic_group(world)
    new = Consumer(world, "new")
    new.heartbeat()
    assert {len(world.group.target[client.member_id][A]) for client in (first, second)} == {2}
    new.leave()
    assert world.kind == "classic"
    again = Consumer(world, "again")
    again.step()
    assert world.kind == "consumer"
    assert len(first.partitions | second.partitions) == 6
    check_clients(world, [first, second, again])
    settle(world, first, second, again)
    assert [len(client.partitions) for client in (first, second, again)] == [2, 2, 2]


def rebalancing(world: World, *, answers: str) -> list[ClassicConsumer]:
    """A member that owns everything, and a new one, in the middle of a rebalance of a cooperative group: `joined` and
    nothing more is answered, or also the leader's SyncGroup is there, whose answer is `lost` or `comes` just now."""
    first = ClassicConsumer(world, "cooperative-sticky")
    settle(world, first)
    second = ClassicConsumer(world, "cooperative-sticky")
    if answers == "joined":
        first.sync = second.sync = lambda reply: None  # type: ignore[method-assign]
    elif answers == "lost":
        first._synced = lambda reply: None  # type: ignore[method-assign]
    else:
        # It has not given up yet what it is not to have any more.
        synced, owned = first._synced, dict(first.owned)

        def busy(reply: Any) -> None:
            synced(reply)
            first.owned = owned

        first._synced = busy  # type: ignore[method-assign]
    for client in (second, first, second, first):
        client.step()
    assert isinstance(world.machine.groups[GROUP], ClassicGroup)
    assert len(first.partitions) == 6
    return [first, second]


@pytest.mark.parametrize("answers", ["joined", "lost", "comes"])
def test_a_rebalance_that_an_upgrade_interrupts_gives_no_partition_to_two(answers: str) -> None:
    """What a member said that it owns is not free, whatever the leader has assigned meanwhile."""
    world = World()
    first, second = rebalancing(world, answers=answers)
    new = Consumer(world, "new")
    for _ in range(3):
        new.step()
        world.check()
        check_clients(world, [first, second, new])
    assert world.kind == "consumer"
    for client in (first, second):
        for name in ("sync", "_synced"):
            client.__dict__.pop(name, None)
    settle(world, first, second, new)
    assert sorted(len(client.partitions) for client in (first, second, new)) == [2, 2, 2]
