"""ConsumerGroupHeartbeat: who may be a member, with which epoch, and what a member is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.coordinator.groups.consumer.world import (
    GROUP,
    INTERVAL_MS,
    REBALANCE_MS,
    SESSION_MS,
    Consumer,
    World,
    topic_id,
    view,
)

from tidelog.coordinator.groups.consumer import records
from tidelog.coordinator.groups.consumer.events import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribeConsumerGroup,
    DescribedConsumerGroup,
)
from tidelog.coordinator.groups.consumer.group import ASSIGNING, EMPTY, RECONCILING, STABLE
from tidelog.coordinator.groups.consumer.member import MemberState
from tidelog.coordinator.groups.events import DeleteGroups
from tidelog.coordinator.groups.topics_view import TopicRights
from tidelog.model.errors import ErrorCode

A, B = topic_id("a"), topic_id("b")


def ask(world: World, **fields: Any) -> ConsumerHeartbeatReply:
    """A first heartbeat, sound but for `fields`."""
    sound: dict[str, Any] = {
        "group": GROUP,
        "member_id": "m",
        "epoch": 0,
        "wall_ms": world.wall_ms,
        "rebalance_timeout_ms": 1000,
        "topics": frozenset({"a"}),
        "owned": {},
    }
    reply = world.ask(lambda request_id: ConsumerHeartbeat(request_id, **(sound | fields)))
    assert isinstance(reply, ConsumerHeartbeatReply)
    return reply


@pytest.mark.parametrize(
    "fields",
    [
        {"group": ""},
        {"member_id": ""},
        {"member_id": "", "version": 0, "epoch": 5},
        {"instance_id": ""},
        {"rack_id": " "},
        {"epoch": -3},
        {"epoch": -2},
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"owned": {A: frozenset({1})}},
        {"topics": None},
        {"group": "g" * 5000},
        {"member_id": "m" * 5000},
        {"instance_id": "i" * 5000},
        {"topics": frozenset({"t" * 300_000})},
    ],
)
def test_senseless_requests(fields: dict[str, Any]) -> None:
    """INVALID_REQUEST, with a reason, and nothing is written."""
    world = World()
    reply = ask(world, **fields)
    assert reply.error is ErrorCode.INVALID_REQUEST
    assert reply.message
    assert not world.log


def test_an_assignor_that_is_not_there() -> None:
    """UNSUPPORTED_ASSIGNOR says which there are."""
    reply = ask(World(), assignor="sticky")
    assert reply.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in (reply.message or "")


def test_a_member_without_an_id_is_given_one() -> None:
    """Version 0 left that to the coordinator."""
    assert ask(World(), member_id="", new_member_id="drawn", version=0).member_id == "drawn"


def test_a_group_is_full() -> None:
    """GROUP_MAX_SIZE_REACHED for whoever is no member yet."""
    world = World(group_size_max=1)
    assert ask(world).error is ErrorCode.NONE
    assert ask(world, member_id="another").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert ask(world).error is ErrorCode.NONE


def test_a_target_that_fits_no_batch() -> None:
    """The member that would make it so large is refused: or nothing about the group could be written any more."""
    world = World()
    world.machine.settings = replace(world.settings, group_record_max_bytes=400)
    errors = [ask(world, member_id=str(number)).error for number in range(9)]
    refused = errors.index(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert refused > 3
    assert set(errors[refused:]) == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    # Batch overhead is 61 bytes, a record in it adds up to 12.
    target = [record for record in world.log if record[0][:2] == b"\x00\x07"]
    last = {key: (key, value) for key, value in target}
    assert sum(len(key) + len(value or b"") + 12 for key, value in last.values()) < 400
    assert ask(world, member_id="0").error is ErrorCode.NONE


def test_unknown_groups_and_members() -> None:
    """Only who joins makes a group or a member."""
    world = World()
    assert ask(world, epoch=3).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert ask(world, epoch=-1).error is ErrorCode.GROUP_ID_NOT_FOUND
    ask(world)
    assert ask(world, member_id="other", epoch=3).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert ask(world, member_id="other", epoch=-1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_epochs() -> None:
    """The member's own, or the one before as long as it owns no more than it was given; 0 begins anew."""
    world = World()
    first, second = Consumer(world, "1"), Consumer(world, "2")
    first.step()
    second.heartbeat()
    first.step()
    assert (first.epoch, world.group.members["1"].previous_epoch) == (2, 1)
    first.epoch = 3
    assert first.heartbeat() is ErrorCode.FENCED_MEMBER_EPOCH
    assert first.heartbeat() is ErrorCode.NONE
    assert first.epoch == 2
    first.reconcile()
    first.epoch = 1
    assert first.heartbeat(lose=True) is ErrorCode.NONE
    first.owned = {A: frozenset(range(6))}
    assert first.heartbeat(lose=True) is ErrorCode.FENCED_MEMBER_EPOCH
    assert first.heartbeat(lose=True, tell=False) is ErrorCode.FENCED_MEMBER_EPOCH


def test_the_assignment_is_told_when_it_changes_or_is_asked_for() -> None:
    """A heartbeat without news has none, a full request has it."""
    world = World()
    consumer = Consumer(world, "1")
    consumer.heartbeat()
    assert consumer.last is not None
    assert consumer.last.assignment == {A: frozenset(range(6))}
    consumer.heartbeat(tell=False)
    assert consumer.last.assignment is None
    assert not world.machine.handle(world.now_ms, heartbeat_of(world, consumer)).writes
    consumer.heartbeat(full=True)
    assert consumer.last.assignment == {A: frozenset(range(6))}


def test_answers_are_lost_one_after_the_other() -> None:
    """The member is known by the last epoch that it has shown to have, however often the group has moved on."""
    world = World()
    first, *others = [Consumer(world, str(number)) for number in range(1, 5)]
    for consumer in (first, *others, first, *others):
        consumer.step()
    known = first.epoch
    for consumer in others:
        consumer.leave()
        assert first.heartbeat(lose=True, full=True) is ErrorCode.NONE
    member = world.group.members["1"]
    assert member.previous_epoch == first.epoch == known
    assert member.epoch == known + len(others)
    first.step()
    assert (first.epoch, first.owned) == (member.epoch, {A: frozenset(range(6))})


def test_a_member_that_is_to_give_back_what_it_owns_loses_answers() -> None:
    """It keeps the rest: what it still owns goes to nobody else before it has said that it gave it up.

    The simulator found a member that lost everything because its coordinator moved twice.
    """
    world = World()
    first, second, third = [Consumer(world, str(number)) for number in range(1, 4)]
    for consumer in (first, second, first, second):
        consumer.step()
    known = first.epoch
    second.leave()
    assert first.heartbeat(lose=True, full=True) is ErrorCode.NONE
    third.heartbeat()
    second = Consumer(world, "2")
    second.heartbeat()
    for _ in range(2):
        assert first.heartbeat(lose=True, full=True) is ErrorCode.NONE
    member = world.group.members["1"]
    assert member.previous_epoch == first.epoch == known
    assert first.owned[A] & member.pending_revocation[A].keys()
    for consumer in (first, second, third):
        consumer.step()
        world.check()
    assert first.epoch > known
    assert len(first.owned[A]) == 2


def test_an_assignment_whose_answer_was_lost() -> None:
    """It is told once: a member that missed an answer says all there is to say, and is told all of its assignment.

    A random walk took a client for sound that went on with short heartbeats: it never learned what it was given.
    """
    world = World(topics=view(a=4, b=1))
    consumer = Consumer(world, "1")
    consumer.step()
    consumer.topics = frozenset({"b"})
    consumer.heartbeat(full=True, lose=True)
    consumer.missed = False
    consumer.heartbeat()
    assert consumer.last is not None
    assert consumer.last.assignment is None
    consumer.missed = True
    consumer.step()
    assert consumer.owned == {B: frozenset({0})}


def heartbeat_of(world: World, consumer: Consumer) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        1, GROUP, consumer.member_id, consumer.epoch, world.wall_ms, client_id="c", client_host="/h"
    )


def test_a_partition_goes_on_when_it_is_let_go() -> None:
    """The former owner is told to revoke; the next one waits until it says that it has."""
    world = World()
    first, second = Consumer(world, "1"), Consumer(world, "2")
    first.step()
    second.heartbeat()
    assert (second.epoch, second.told) == (2, {})
    assert world.group.members["2"].state is MemberState.UNRELEASED_PARTITIONS
    first.heartbeat()
    assert (first.epoch, len(first.told[A])) == (1, 3)
    assert world.group.members["1"].state is MemberState.UNREVOKED_PARTITIONS
    assert world.group.state == RECONCILING
    second.heartbeat()
    assert second.told == {}
    first.heartbeat(tell=False)
    assert first.epoch == 1
    first.revoke()
    first.heartbeat()
    assert first.epoch == 2
    second.heartbeat()
    assert len(second.told[A]) == 3
    assert world.group.state == STABLE


def test_who_does_not_let_go_is_put_out() -> None:
    """After its rebalance timeout, though it lives; what it held is given away then."""
    world = World()
    first, second = Consumer(world, "1"), Consumer(world, "2")
    first.step()
    second.heartbeat()
    for _ in range(REBALANCE_MS // INTERVAL_MS + 1):
        first.heartbeat(tell=False)
        second.step()
        world.pass_time(INTERVAL_MS)
    assert first.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    second.step()
    assert second.told == {A: frozenset(range(6))}


def test_a_group_with_settings_of_its_own_goes_by_them() -> None:
    """The interval that members are told, their sessions, the time between targets; other groups by the broker's."""
    world = World(assignment_interval_ms=0)
    member = Consumer(world, "1")
    member.step()
    assert member.last is not None
    assert member.last.interval_ms == INTERVAL_MS
    broker = world.settings.consumer
    own = replace(broker, heartbeat_interval_ms=7, session_timeout_ms=4_000, assignment_interval_ms=60_000)
    world.machine.settings = replace(world.settings, of_groups={"another": own})
    member.step()
    assert member.last.interval_ms == INTERVAL_MS
    world.machine.settings = replace(world.settings, of_groups={GROUP: own})
    # A heartbeat without news, and one that tells all.
    for full in (False, True):
        member.heartbeat(full=full)
        assert member.last.interval_ms == 7
    late = Consumer(world, "2")
    late.step()
    assert late.told == {}
    world.pass_time(3_999)
    assert set(world.group.members) == {"1", "2"}
    world.pass_time(1)
    assert set(world.group.members) == set()
    # Without them again.
    world.machine.settings = world.settings
    member.step()
    world.pass_time(SESSION_MS - 1)
    assert set(world.group.members) == {"1"}


def test_silence_ends_a_session() -> None:
    """And its group goes on without it; the last one leaves an empty group, which may be deleted."""
    world = World()
    first, second = Consumer(world, "1"), Consumer(world, "2")
    first.step()
    second.step()
    for _ in range(SESSION_MS // INTERVAL_MS + 1):
        world.pass_time(INTERVAL_MS)
        second.step()
    assert set(world.group.members) == {"2"}
    assert second.told == {A: frozenset(range(6))}
    world.pass_time(SESSION_MS)
    assert (world.group.state, world.group.patterns) == (EMPTY, {})
    world.ask(lambda request_id: DeleteGroups(request_id, [GROUP]))
    assert world.kind is None
    world.check()


def test_a_new_coordinator_gives_everybody_time() -> None:
    """Sessions begin anew; a member that was revoking has its rebalance timeout from then on."""
    world = World()
    first, second = Consumer(world, "1"), Consumer(world, "2")
    first.step()
    second.heartbeat()
    first.heartbeat()
    world.pass_time(SESSION_MS - 1)
    world.move()
    world.pass_time(SESSION_MS - 1)
    assert first.heartbeat(tell=False) is second.heartbeat() is ErrorCode.NONE
    world.pass_time(SESSION_MS - 1)
    first.heartbeat(tell=False)
    world.pass_time(REBALANCE_MS - 2 * (SESSION_MS - 1))
    assert first.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_come_together_share_a_target() -> None:
    """Within the assignment interval the target stays; who waits for the next one is told to come back for it."""
    world = World(assignment_interval_ms=1000)
    first, second, third = (Consumer(world, str(number)) for number in range(3))
    first.heartbeat()
    world.pass_time(200)
    second.heartbeat()
    third.heartbeat()
    assert (second.epoch, second.told, third.epoch) == (1, {}, 1)
    assert second.last is not None
    assert second.last.interval_ms == 800
    assert (world.group.epoch, world.group.assignment_epoch, world.group.state) == (3, 1, ASSIGNING)
    world.pass_time(800)
    assert (world.group.assignment_epoch, len(world.group.target["2"][A])) == (3, 2)


def test_topics_that_appear_grow_and_vanish() -> None:
    """The next heartbeat of anybody sees it, and only once."""
    world = World(topics=view(b=1))
    consumer = Consumer(world, "1", frozenset({"a", "b"}))
    consumer.step()
    assert consumer.told == {B: frozenset({0})}
    world.topics = view(2, a=2, b=1)
    consumer.step()
    assert consumer.told == {A: frozenset({0, 1}), B: frozenset({0})}
    epoch = world.group.epoch
    world.topics = view(3, a=2, b=1, other=5)
    consumer.step()
    assert world.group.epoch == epoch
    world.topics = view(4, a=3)
    consumer.step()
    assert (consumer.told, world.group.epoch) == ({A: frozenset({0, 1, 2})}, epoch + 1)


def test_topics_that_grow_are_seen_though_the_first_heartbeat_after_that_is_refused() -> None:
    """That of a member whose state a later release has written."""
    world = World()
    x, y = Consumer(world, "x"), Consumer(world, "y")
    for _ in range(3):
        x.step()
        y.step()
        world.pass_time(INTERVAL_MS)
    written = records.current(GROUP, world.group.members["x"])
    written.value.state = 99
    world.log.append(written.encode())
    world.move()
    y.heartbeat()
    world.topics = view(2, a=8)
    assert x.heartbeat() is ErrorCode.FENCED_MEMBER_EPOCH
    for _ in range(4):
        x.step()
        y.step()
        world.pass_time(INTERVAL_MS)
    assert x.partitions | y.partitions == {(A, partition) for partition in range(8)}


def test_patterns() -> None:
    """A pattern stands for the topics that match as a whole; it is gone with its last user."""
    world = World(topics=view(a=1, ab=1, b=1))
    consumer = Consumer(world, "1", None, "a.*|c")
    consumer.step()
    assert set(consumer.told) == {A, topic_id("ab")}
    assert world.group.is_subscribed("ab")
    assert not world.group.is_subscribed("b")
    world.topics = view(2, a=1, ab=1, b=1, c=1)
    consumer.step()
    assert topic_id("c") not in consumer.told
    for _ in range(4):
        world.pass_time(INTERVAL_MS)
        consumer.step()
    assert topic_id("c") in consumer.told
    consumer.topics, consumer.pattern = frozenset({"b"}), ""
    consumer.heartbeat(full=True)
    consumer.step()
    assert (set(consumer.told), world.group.patterns) == ({B}, {})


def test_a_pattern_stands_for_topics_that_may_be_described() -> None:
    """It is resolved again when ACLs change, though topics stay; not at once where it was just resolved."""
    world = World(topics=view(a=1, ab=1, b=1))
    allowed = {"ab", "b"}
    consumer = Consumer(world, "1", None, "a.*")
    consumer.rights = TopicRights(1, allowed.__contains__)
    consumer.step()
    assert set(consumer.told) == {topic_id("ab")}
    assert world.group.patterns["a.*"].topics == {"ab"}
    epoch = world.group.epoch
    for _ in range(5):
        world.pass_time(INTERVAL_MS)
        consumer.step()
    assert world.group.epoch == epoch
    allowed.add("a")
    consumer.rights = TopicRights(2, allowed.__contains__)
    consumer.step()
    assert set(consumer.told) == {A, topic_id("ab")}
    allowed.clear()
    consumer.rights = TopicRights(3, allowed.__contains__)
    consumer.step()
    assert set(consumer.told) == {A, topic_id("ab")}
    for _ in range(4):
        world.pass_time(INTERVAL_MS)
        consumer.step()
    assert consumer.told == {}


def test_a_pattern_that_one_of_its_users_gives_up() -> None:
    """The others' topics appear, though the first look at the new topics comes with the heartbeat that gives it up."""
    world = World(topics=view(ab=1))
    first, second = (Consumer(world, id, None, "a.*") for id in "12")
    for _ in range(2):
        first.step()
        second.step()
        world.pass_time(2 * INTERVAL_MS)
    world.topics = view(2, ab=1, ac=1)
    first.pattern = "b.*"
    first.heartbeat(full=True)
    for _ in range(2):
        first.step()
        second.step()
    assert (set(first.told), set(second.told)) == (set(), {topic_id("ab"), topic_id("ac")})


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "a{1001}", "\ud800", "a" * 5000])
def test_patterns_that_are_none(pattern: str) -> None:
    """INVALID_REGULAR_EXPRESSION, and nothing is written."""
    world = World()
    assert ask(world, topics=None, pattern=pattern).error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not world.log


def test_a_pattern_that_hangs_others() -> None:
    """Takes time in proportion to the names."""
    assert ask(World(), topics=None, pattern="(a+)+" * 9 + "$").error is ErrorCode.NONE


def test_static_members() -> None:
    """Who leaves for a while gets everything back under a new id; meanwhile nobody else may be it."""
    world = World()
    first, other = Consumer(world, "1", instance="i"), Consumer(world, "2")
    first.step()
    assert Consumer(world, "x", instance="i").heartbeat() is ErrorCode.UNRELEASED_INSTANCE_ID
    for _ in range(2):
        other.step()
        first.step()
    held = first.owned
    epoch = world.group.epoch
    assert first.leave(-2) is ErrorCode.NONE
    other.step()
    back = Consumer(world, "3", instance="i")
    back.step()
    assert (back.owned, back.epoch, world.group.epoch) == (held, epoch, epoch)
    assert set(world.group.members) == {"2", "3"}
    first.epoch = epoch
    assert first.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert first.leave(-1) is ErrorCode.FENCED_INSTANCE_ID
    assert Consumer(world, "9", instance="j").leave(-2) is ErrorCode.UNKNOWN_MEMBER_ID
    back.heartbeat()
    assert back.leave(-1) is ErrorCode.NONE
    assert world.group.static == {}
    world.check()


def test_an_instance_id_that_its_member_has_changed_is_free() -> None:
    """For the next member with that instance id, whether the coordinator has moved meanwhile or not."""
    world = World(topics=view(a=2))
    member = Consumer(world, "1", instance="i")
    member.step()
    member.instance, member.epoch = "j", 0
    member.step()
    world.check()
    assert world.group.static == {"j": "1"}
    assert Consumer(world, "2", instance="i").heartbeat() is ErrorCode.NONE


def test_most_members_choose_the_assignor() -> None:
    """The first of those that are configured, unless somebody asks for another one."""
    world = World()
    members = [Consumer(world, str(number), assignor=name) for number, name in enumerate([None, "range", "range"])]
    for member in members:
        member.heartbeat()
    reply = world.ask(lambda request_id: DescribeConsumerGroup(request_id, GROUP))
    assert isinstance(reply, DescribedConsumerGroup)
    assert reply.assignor == "range"
    assert world.group.target["1"] == {A: frozenset({2, 3})}
    assert world.ask(lambda request_id: DescribeConsumerGroup(request_id, "x")).error is ErrorCode.GROUP_ID_NOT_FOUND
