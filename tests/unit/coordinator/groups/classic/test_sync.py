"""SyncGroup and Heartbeat: assignments reach the members of a generation, and nobody else."""

from __future__ import annotations

from tests.unit.coordinator.groups.classic.cluster import REBALANCE_MS, SESSION_MS, Coordinator

from tidelog.coordinator.groups.classic.events import JoinReply
from tidelog.coordinator.groups.classic.group import ClassicGroupState
from tidelog.coordinator.groups.classic.members import Protocol
from tidelog.coordinator.groups.settings import GroupSettings
from tidelog.model.errors import ErrorCode


def joined(coordinator: Coordinator, count: int = 2) -> list[JoinReply]:
    """A generation whose leader has not spoken yet; its members' answers, the leader's first."""
    ids = [coordinator.new_id(client=f"c{index}") for index in range(count)]
    requests = [coordinator.join(member_id) for member_id in ids]
    coordinator.gather()
    return [coordinator.joined(request) for request in requests]


def test_members_wait_for_the_leader() -> None:
    """Then each gets what is its own; whom the leader forgot gets nothing."""
    coordinator = Coordinator()
    leader, *followers = (reply.member_id for reply in joined(coordinator, 3))
    waiting = [coordinator.sync(follower, 1) for follower in followers]
    assert [coordinator.reply(request) for request in waiting] == [None, None]
    answer = coordinator.synced(coordinator.sync(leader, 1, {followers[0]: b"F", leader: b"L", "stranger": b"S"}))
    assert (answer.assignment, answer.protocol_type, answer.protocol) == (b"L", "consumer", "range")
    assert [coordinator.synced(request).assignment for request in waiting] == [b"F", b""]
    assert coordinator.state is ClassicGroupState.STABLE


def test_one_who_comes_after_the_leader_need_not_wait() -> None:
    """And may ask again."""
    coordinator = Coordinator()
    leader, follower = (reply.member_id for reply in joined(coordinator))
    coordinator.sync(leader, 1, {follower: b"F"})
    for _ in range(2):
        assert coordinator.synced(coordinator.sync(follower, 1)).assignment == b"F"


def test_only_the_latest_sync_of_a_member_waits() -> None:
    """Its client gave the former up; that one is not left unanswered."""
    coordinator = Coordinator()
    leader, follower = (reply.member_id for reply in joined(coordinator))
    former, latest = coordinator.sync(follower, 1), coordinator.sync(follower, 1)
    assert coordinator.reply(former).error is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.sync(leader, 1, {follower: b"F"})
    assert coordinator.synced(latest).assignment == b"F"


def test_who_may_not_sync() -> None:
    """Strangers, other generations, other protocols."""
    coordinator = Coordinator()
    leader, _ = (reply.member_id for reply in joined(coordinator))

    def error(member_id: str = leader, generation: int = 1, **options: str) -> ErrorCode:
        reply = coordinator.reply(coordinator.sync(member_id, generation, **options))  # type: ignore[arg-type]
        found: ErrorCode = reply.error
        return found

    assert error("stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(group="unknown") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert error(generation=2) is ErrorCode.ILLEGAL_GENERATION
    assert error(protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error(protocol="sticky") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.state is ClassicGroupState.COMPLETING_REBALANCE


def test_a_sync_during_a_rebalance_is_told_to_join() -> None:
    """REBALANCE_IN_PROGRESS, whether it waited or comes."""
    coordinator = Coordinator()
    leader, follower = (reply.member_id for reply in joined(coordinator))
    waiting = coordinator.sync(follower, 1)
    coordinator.join(known=False)
    assert coordinator.reply(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.reply(coordinator.sync(leader, 1)).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_empty_group_has_nothing_to_give() -> None:
    """Nobody is a member of it."""
    coordinator = Coordinator()
    (member_id,) = coordinator.stable(1)
    coordinator.leave(member_id)
    assert coordinator.reply(coordinator.sync(member_id, 1)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_sync_is_out() -> None:
    """After the rebalance timeout; those that waited for it join again."""
    coordinator = Coordinator()
    leader, follower = (reply.member_id for reply in joined(coordinator))
    waiting = coordinator.sync(follower, 1)
    for _ in range(REBALANCE_MS // SESSION_MS * 2 - 1):
        coordinator.pass_time(SESSION_MS // 2)
        assert coordinator.heartbeat(leader, 1) is ErrorCode.NONE
    assert coordinator.reply(waiting) is None
    coordinator.pass_time(SESSION_MS // 2)
    assert coordinator.reply(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(coordinator.group().members) == [follower]
    assert coordinator.joined(coordinator.join(follower)).leader == follower


def test_a_follower_that_does_not_sync_is_out() -> None:
    """Although the group is stable, and it sends heartbeats."""
    coordinator = Coordinator()
    leader, follower = (reply.member_id for reply in joined(coordinator))
    coordinator.sync(leader, 1, {follower: b"F"})
    for _ in range(REBALANCE_MS // SESSION_MS * 2):
        coordinator.pass_time(SESSION_MS // 2)
        coordinator.heartbeat(leader, 1)
        coordinator.heartbeat(follower, 1)
    assert coordinator.state is ClassicGroupState.PREPARING_REBALANCE
    assert list(coordinator.group().members) == [leader]


def test_a_member_whose_sync_waits_does_not_expire() -> None:
    """Its session begins anew with the answer."""
    coordinator = Coordinator()
    leader, follower = (reply.member_id for reply in joined(coordinator))
    waiting = coordinator.sync(follower, 1)
    coordinator.pass_time(SESSION_MS - 1)
    coordinator.heartbeat(leader, 1)
    coordinator.pass_time(SESSION_MS - 1)
    coordinator.synced(coordinator.sync(leader, 1, {follower: b"F"}))
    assert coordinator.synced(waiting).assignment == b"F"
    coordinator.pass_time(SESSION_MS - 1)
    assert coordinator.heartbeat(follower, 1) is ErrorCode.NONE


def test_heartbeats_keep_a_member() -> None:
    """Without one for its session timeout it is out, and the others rebalance."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    for _ in range(3):
        coordinator.pass_time(SESSION_MS - 1)
        assert coordinator.heartbeat(leader, 1) is ErrorCode.NONE
        assert coordinator.heartbeat(follower, 1) is ErrorCode.NONE
    coordinator.pass_time(SESSION_MS - 1)
    coordinator.heartbeat(leader, 1)
    coordinator.pass_time(1)
    assert coordinator.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_whose_heartbeats_count() -> None:
    """Those of members, with the generation that they are in."""
    coordinator = Coordinator()
    leader, _ = coordinator.stable(2)
    assert coordinator.heartbeat("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.heartbeat(leader, 0) is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.heartbeat(leader, 2) is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.heartbeat(leader, 1, group="unknown") is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.heartbeat(coordinator.new_id(), 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_write_nothing() -> None:
    """They move a deadline, no more."""
    coordinator = Coordinator()
    leader, _ = coordinator.stable(2)
    written = len(coordinator.log)
    for _ in range(10):
        coordinator.heartbeat(leader, 1)
    assert len(coordinator.log) == written


def test_heartbeats_count_before_the_sync_too() -> None:
    """A member knows its generation from the join."""
    coordinator = Coordinator()
    leader, follower = (reply.member_id for reply in joined(coordinator))
    coordinator.pass_time(SESSION_MS - 1)
    assert coordinator.heartbeat(leader, 1) is ErrorCode.NONE
    coordinator.pass_time(1)
    assert list(coordinator.group().members) == [leader]
    assert coordinator.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_assignment_that_is_too_large_is_refused() -> None:
    """Nothing is written, all that wait are told, and the group rebalances. A smaller one fits."""
    for size in (1000, 2000):
        coordinator = Coordinator(GroupSettings(group_record_max_bytes=1200))
        leader, follower = (reply.member_id for reply in joined(coordinator))
        waiting = coordinator.sync(follower, 1)
        requests = [waiting, coordinator.sync(leader, 1, {follower: bytes(size)})]
        fits = size == 1000
        error = ErrorCode.NONE if fits else ErrorCode.UNKNOWN_SERVER_ERROR
        assert [coordinator.reply(request).error for request in requests] == [error, error]
        assert bool(coordinator.log) == fits
        assert coordinator.state is (ClassicGroupState.STABLE if fits else ClassicGroupState.PREPARING_REBALANCE)


def test_opaque_bytes_are_passed_on() -> None:
    """Whatever members and leaders say to each other, the coordinator does not look."""
    coordinator = Coordinator()
    hostile = bytes(range(256)) * 3
    member_id = coordinator.new_id()
    request = coordinator.join(member_id, protocols=(Protocol("", hostile),))
    coordinator.gather()
    assert coordinator.joined(request).members[0].metadata == hostile
    assert coordinator.synced(coordinator.sync(member_id, 1, {member_id: hostile})).assignment == hostile
    assert coordinator.group().subscribed_topics is None
    assert coordinator.moved().group().members[member_id].assignment == hostile
