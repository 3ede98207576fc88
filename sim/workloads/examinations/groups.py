"""Groups of the classic protocol, and what coordinators say of them, before and after a coordinator is replaced."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sim.plan import FaultKind
from sim.workloads.examinations.classic_group import REBALANCE_MS, ClassicGroup, ClassicMember
from sim.workloads.examinations.guest import NotNow
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from sim.workloads.coordination import Coordinator
    from sim.workloads.examinations.guest import Guest
    from tidelog.model.identifiers import TopicPartition

SHORT_SESSION_MS: Final = 1_500
LONG_REBALANCE_MS: Final = 6_000
"""Of a group whose leader takes its time."""
LATE: Final = 1.2
"""Sessions after which that leader gives out the partitions."""
FIRST_S: Final = 0.03
"""By which one member is earlier than the other, so that it is the leader as a rule."""
BEAT_S: Final = 0.3
NOTE_LENGTH_MAX: Final = 4096
"""offset.metadata.max.bytes"""
PATIENT_MS: Final = 20_000
"""Session and rebalance timeout of members that the coordinator has no reason of its own to answer meanwhile."""
MOVED_S_MAX: Final = 12.0
"""Within it a broker whose session has ended learns that another broker leads; clients wait longer for an answer."""
INSTANCE: Final = "here to stay"
RESTART_CHANCE: Final = 0.7
"""Of the coordinator, in the middle."""


async def classic_groups_are_kept(guest: Guest) -> None:
    """A coordinator describes a group with a static member, refuses wrong requests, and removes silent members."""
    partition = await guest.topic()
    group = ClassicGroup(guest, f"{partition.topic}-group", partition.topic)
    dynamic, static = group.member(), group.member(INSTANCE)
    await _join_together(group, dynamic, static)
    await asyncio.gather(group.sync(dynamic), group.sync(static))
    for member in (dynamic, static):
        guest.holds(
            member.assignment == member.member_id.encode(), f"{member.member_id} is given {member.assignment!r}"
        )
    await group.expect_beat(dynamic, ErrorCode.NONE, "of a member")
    await group.expect_beat(
        dynamic, ErrorCode.ILLEGAL_GENERATION, "of a generation before", generation_id=dynamic.generation - 1
    )
    await group.expect_beat(dynamic, ErrorCode.UNKNOWN_MEMBER_ID, "of a stranger", member_id="stranger")
    await _commits(guest, group, dynamic, partition)
    await _static_returns(guest, group, static)
    if guest.kills(RESTART_CHANCE):
        await _coordinator_dies(guest, group, dynamic, static, partition)
    await group.leave(static)
    code = await _until_news(group, dynamic)
    guest.holds(code is ErrorCode.REBALANCE_IN_PROGRESS, f"a member has left, and another one is told {code.name}")
    await group.join(dynamic)
    told = f"the next generation is {dynamic.generation}, of {dynamic.others}, led by {dynamic.leader}"
    guest.holds(dynamic.others == (dynamic.member_id,) and dynamic.leader == dynamic.member_id, told)
    # The leader goes on with heartbeats and sends no assignment: the coordinator removes it.
    code = await _until_news(group, dynamic)
    guest.holds(code is ErrorCode.UNKNOWN_MEMBER_ID, f"a leader that never assigned is told {code.name}")
    await _ends(guest, group, dynamic.coordinator, partition)


async def sessions_end(guest: Guest) -> None:
    """A member that is silent is put out when its session ends, and the others hear of it; no sooner."""
    partition = await guest.topic()
    await _session_ends(guest, ClassicGroup(guest, f"{partition.topic}-group", partition.topic))
    await _session_ends_late(guest, ClassicGroup(guest, f"{partition.topic}-late-group", partition.topic))
    await _unused_ids_expire(guest, ClassicGroup(guest, f"{partition.topic}-id-group", partition.topic))
    await _waiting_members_hear(guest, ClassicGroup(guest, f"{partition.topic}-sync-group", partition.topic))


async def _session_ends(guest: Guest, group: ClassicGroup) -> None:
    silent, lasting = await _two(guest, group)
    heard_ms = guest.now_ms()
    await asyncio.gather(group.sync(silent), group.sync(lasting))
    if guest.random.chance(0.5):
        heard_ms = guest.now_ms()
        await group.expect_beat(silent, ErrorCode.NONE, "of a member")
    with contextlib.ExitStack() as stack:
        if guest.kills(RESTART_CHANCE):
            heard_ms = guest.now_ms()  # With the next coordinator all sessions begin anew.
            if guest.cluster.plan.replication_factor > guest.cluster.plan.min_insync_replicas:
                # It would soon be the coordinator again, and sessions would begin anew once more.
                stack.enter_context(guest.cluster.kept_down(guest.machine(silent.coordinator.broker)))
            await _replace_coordinator(guest, group, silent, lasting)
        else:
            await asyncio.sleep(0.8 * SHORT_SESSION_MS / 1000)
        await _is_put_out(guest, group, silent, lasting, heard_ms)


async def _session_ends_late(guest: Guest, group: ClassicGroup) -> None:
    """While a member waits for its assignment its session does not run: it begins when the member has that."""
    silent, lasting = await _two(guest, group)
    heard_ms = guest.now_ms()
    syncs = asyncio.ensure_future(group.sync(silent))
    if lasting.leader == lasting.member_id:
        await asyncio.sleep(LATE * SHORT_SESSION_MS / 1000)
        heard_ms = guest.now_ms()
    await asyncio.gather(syncs, group.sync(lasting))
    await _is_put_out(guest, group, silent, lasting, heard_ms)


async def _unused_ids_expire(guest: Guest, group: ClassicGroup) -> None:
    """An id that was given out and never used holds up no rebalance once the session would have ended."""
    loop = asyncio.get_running_loop()
    lasting, other = group.member(), group.member()
    lasting.rebalance_ms = other.rebalance_ms = LONG_REBALANCE_MS
    await group.join(lasting)
    await group.sync(lasting)
    unused = await group.ask_to_join(group.member(session_ms=SHORT_SESSION_MS))
    guest.expect(unused.error_code, ErrorCode.MEMBER_ID_REQUIRED, "the first JoinGroup of a member")
    for _ in range(round(LATE * SHORT_SESSION_MS / 1000 / BEAT_S)):
        await asyncio.sleep(BEAT_S)
        await group.expect_beat(lasting, ErrorCode.NONE, "of a member whose group has given out an id")
    joins = asyncio.ensure_future(group.join(other))
    code = await _until_news(group, lasting)
    guest.holds(code is ErrorCode.REBALANCE_IN_PROGRESS, f"a member joins, and another one is told {code.name}")
    began = loop.time()
    await asyncio.gather(joins, group.join(lasting))
    took_ms = (loop.time() - began) * 1000
    told = f"all members have joined, and the generation begins {took_ms:.0f} ms later"
    guest.holds(took_ms < LONG_REBALANCE_MS / 2, told)
    await asyncio.gather(group.sync(other), group.sync(lasting))
    await group.leave(other)
    await group.leave(lasting)


async def _waiting_members_hear(guest: Guest, group: ClassicGroup) -> None:
    """A member that waits for its assignment is told when another one joins, and does not wait on."""
    members = [group.member(), group.member()]
    for member in members:
        member.rebalance_ms = LONG_REBALANCE_MS
    await _join_together(group, *members)
    waiting = next(each for each in members if each.leader != each.member_id)
    sync = asyncio.ensure_future(group.ask_to_sync(waiting))
    newcomer = group.member()
    joins = asyncio.ensure_future(group.join(newcomer))
    await asyncio.wait([sync], timeout=LONG_REBALANCE_MS / 2000)
    guest.holds(sync.done(), "a member joins, and one that waits for its assignment waits on")
    code = sync.result().error_code
    guest.expect(code, ErrorCode.REBALANCE_IN_PROGRESS, "SyncGroup, while a member joins")
    await asyncio.gather(joins, *map(group.join, members))
    await asyncio.gather(*map(group.sync, (newcomer, *members)))
    for member in (newcomer, *members):
        await group.leave(member)


async def moves_are_told(guest: Guest) -> None:
    """When another broker becomes the coordinator, the former one answers the members that wait for an assignment."""
    store = guest.cluster.store
    if store is None or store.process is None or store.service is None or guest.cluster.plan.replication_factor < 2:
        return
    partition = await guest.topic()
    group = ClassicGroup(guest, f"{partition.topic}-group", partition.topic)
    members = [group.member(session_ms=PATIENT_MS) for _ in range(2)]
    for member in members:
        member.rebalance_ms = PATIENT_MS
    await _join_together(group, *members)
    waiting = next(each for each in members if each.leader != each.member_id)
    session = guest.cluster.session_of(guest.machine(waiting.coordinator.broker))
    if session is None:
        raise NotNow("the coordinator is not registered")
    sync = asyncio.ensure_future(group.ask_to_sync(waiting))
    await asyncio.sleep(BEAT_S)
    guest.cluster.explain(FaultKind.SESSION_EXPIRY)
    store.within(partial(store.service.end_session, session))
    await asyncio.wait([sync], timeout=MOVED_S_MAX)
    guest.holds(sync.done(), "another broker is the coordinator, and a member that waits for its part has no answer")
    with contextlib.suppress(OSError, TimeoutError):
        await sync


async def _join_together(group: ClassicGroup, *members: ClassicMember) -> None:
    """In one generation; NotNow where it becomes two."""
    await asyncio.gather(*map(group.join, members))
    if len({member.generation for member in members}) > 1:
        raise NotNow("one of them came too late for the first generation")


async def _two(guest: Guest, group: ClassicGroup) -> tuple[ClassicMember, ClassicMember]:
    """A member with a short session, and one that leads its generation, as a rule."""
    silent, lasting = group.member(session_ms=SHORT_SESSION_MS), group.member()
    lasting.rebalance_ms = LONG_REBALANCE_MS
    first = asyncio.ensure_future(group.join(lasting))
    await asyncio.sleep(FIRST_S)
    await asyncio.gather(first, group.join(silent))
    if silent.generation != lasting.generation:
        raise NotNow("one of them came too late for the first generation")
    return silent, lasting


async def _is_put_out(
    guest: Guest, group: ClassicGroup, silent: ClassicMember, lasting: ClassicMember, heard_ms: int
) -> None:
    """`heard_ms`: when the silent member may have been heard of last."""
    code = await group.beat(lasting)
    if code is not ErrorCode.NONE:
        told = f"no session has ended, and a heartbeat is answered {code.name}"
        guest.holds(guest.now_ms() >= heard_ms + SHORT_SESSION_MS, told)
        raise NotNow("a session has ended before the other member beat again")
    code = await _until_news(group, lasting)
    guest.holds(code is ErrorCode.REBALANCE_IN_PROGRESS, f"a session has ended, and another member is told {code.name}")
    await group.join(lasting)
    guest.holds(lasting.others == (lasting.member_id,), f"the next generation has {lasting.others}")
    await group.expect_beat(silent, ErrorCode.UNKNOWN_MEMBER_ID, "of a member whose session has ended")
    await group.leave(lasting)


async def _commits(guest: Guest, group: ClassicGroup, member: ClassicMember, partition: TopicPartition) -> None:
    async def commit(offset: int, metadata: str = "", **said: Any) -> ErrorCode:
        said = {"generation": member.generation, "member_id": member.member_id, **said}
        return await guest.commit(member.coordinator, group.name, partition, offset, metadata=metadata, **said)

    for wanted, code in (
        (ErrorCode.NONE, await commit(7, "seven")),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, await commit(8, "8" * (NOTE_LENGTH_MAX + 1))),
        (ErrorCode.ILLEGAL_GENERATION, await commit(9, generation=member.generation - 1)),
        (ErrorCode.UNKNOWN_MEMBER_ID, await commit(10, member_id="stranger")),
        (ErrorCode.UNKNOWN_MEMBER_ID, await commit(11, generation=-1, member_id="")),
    ):
        guest.holds(code is wanted, f"a commit is answered {code.name}, and not {wanted.name}")
    await _expect_committed(guest, group, member.coordinator, partition)
    guest.holds(await group.delete(member.coordinator) is ErrorCode.NON_EMPTY_GROUP, "a group with members is deleted")
    code = await _delete_offset(guest, group, member.coordinator, partition)
    guest.holds(
        code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, f"OffsetDelete of what members read is answered {code.name}"
    )


async def _delete_offset(
    guest: Guest, group: ClassicGroup, coordinator: Coordinator, partition: TopicPartition
) -> ErrorCode:
    kind = messages.OffsetDeleteRequest
    places = [kind.OffsetDeleteRequestPartition(partition_index=partition.partition)]
    request = kind(group_id=group.name, topics=[kind.OffsetDeleteRequestTopic(name=partition.topic, partitions=places)])
    response = await coordinator.ask(ApiKey.OFFSET_DELETE, request)
    guest.check(response.error_code)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def _expect_committed(
    guest: Guest, group: ClassicGroup, coordinator: Coordinator, partition: TopicPartition
) -> None:
    for asked in (partition, None):
        found = await guest.offset_of(coordinator, group.name, asked)
        told = {each: (value.committed_offset, value.metadata) for each, value in found.items()}
        guest.holds(told == {partition: (7, "seven")}, f"7 was committed, and OffsetFetch gives {told}")


async def _static_returns(guest: Guest, group: ClassicGroup, static: ClassicMember) -> None:
    """A static member's next process gets what it had, without a rebalance, and its former one is fenced."""
    former = group.member(INSTANCE)
    former.member_id, former.generation = static.member_id, static.generation
    static.member_id = ""
    await group.join(static)
    guest.holds(static.generation == former.generation, "a static member that came back has begun a generation")
    guest.holds(static.member_id != former.member_id, "a static member that came back has the same id as before")
    static.others = ()
    await group.sync(static)
    told = f"a static member had {former.member_id}'s, and is given {static.assignment!r}"
    guest.holds(static.assignment == former.member_id.encode(), told)
    await group.expect_beat(former, ErrorCode.FENCED_INSTANCE_ID, "of a static member that was replaced")
    await group.expect_beat(static, ErrorCode.NONE, "of the one that has replaced it")
    found = await group.described(static.coordinator)
    told = f"members are {[(each.member_id, bytes(each.member_assignment)) for each in found.members]}"
    guest.holds(found.group_state == "Stable" and len(found.members) == 2, f"the group is {found.group_state}: {told}")
    instances = {each.group_instance_id: each.member_id for each in found.members}
    guest.holds(instances.get(INSTANCE) == static.member_id, f"the static member is {static.member_id}: {told}")
    guest.holds(all(each.member_assignment and each.member_metadata for each in found.members), told)
    await group.expect_listed(static.coordinator, "Stable")


async def _coordinator_dies(
    guest: Guest, group: ClassicGroup, dynamic: ClassicMember, static: ClassicMember, partition: TopicPartition
) -> None:
    """The next coordinator knows all that the one before has told."""
    before = await group.described(dynamic.coordinator)
    after = await _replace_coordinator(guest, group, dynamic, static)
    guest.holds(_as_told(after) == _as_told(before), f"{_as_told(before)} is {_as_told(after)} to the next coordinator")
    for member in (dynamic, static):
        await group.expect_beat(member, ErrorCode.NONE, "of a member, to the next coordinator")
    await _expect_committed(guest, group, dynamic.coordinator, partition)


async def _replace_coordinator(guest: Guest, group: ClassicGroup, *members: ClassicMember) -> Any:
    """Kills the coordinator; how the next one describes the group."""
    guest.machine(members[0].coordinator.broker).kill()
    for member in members:
        member.coordinator.forget()
    after: Any = None

    async def is_told() -> bool:
        """To each of them."""
        nonlocal after
        for member in members:
            try:
                after = await group.described(member.coordinator)
            except (OSError, TimeoutError):
                member.coordinator.forget()
                await asyncio.sleep(0.2)
                return False
        return True

    await guest.comes(is_told, "a coordinator died, and none describes its group", 30.0)
    return after


def _as_told(found: Any) -> object:
    members = {
        (
            each.member_id,
            each.group_instance_id,
            each.client_id,
            bytes(each.member_metadata),
            bytes(each.member_assignment),
        )
        for each in found.members
    }
    return found.group_state, found.protocol_type, found.protocol_data, sorted(members, key=repr)


async def _until_news(group: ClassicGroup, member: ClassicMember) -> ErrorCode:
    """The first other answer to a member's heartbeats than that all is well.

    NotNow where it came so late that a rebalance may have begun and passed without the member.
    """
    code, beat_ms = ErrorCode.NONE, group.guest.now_ms()

    async def is_news() -> bool:
        nonlocal code, beat_ms
        await asyncio.sleep(BEAT_S)
        former_ms, beat_ms = beat_ms, group.guest.now_ms()
        code = await group.beat(member)
        if code is not ErrorCode.NONE and group.guest.now_ms() >= former_ms + REBALANCE_MS:
            raise NotNow("a heartbeat came too late")
        return code is not ErrorCode.NONE

    await group.guest.comes(is_news, "a member that beats hears of nothing")
    return code


async def _ends(guest: Guest, group: ClassicGroup, coordinator: Coordinator, partition: TopicPartition) -> None:
    found = await group.described(coordinator)
    guest.holds(found.group_state == "Empty" and not found.members, f"a group without members is {found.group_state}")
    await group.expect_listed(coordinator, "Empty")
    taken = {ErrorCode.NONE}
    if guest.random.chance(0.5):
        code = await _delete_offset(guest, group, coordinator, partition)
        guest.holds(code is ErrorCode.NONE, f"OffsetDelete of a group without members is answered {code.name}")
        taken.add(ErrorCode.GROUP_ID_NOT_FOUND)  # The next look for expired offsets takes it away.
        left = await guest.offset_of(coordinator, group.name, None)
        guest.holds(not left, f"the group's only offset was deleted, and it has committed {left}")
    code = await group.delete(coordinator)
    guest.holds(code in taken, f"an empty group is deleted, and that is answered {code.name}")
    found = await group.described(coordinator)
    guest.holds(found.group_state == "Dead", f"a group that was deleted is {found.group_state}")
    left = await guest.offset_of(coordinator, group.name, None)
    guest.holds(not left, f"a group that was deleted has committed {left}")
    told = (await guest.offset_of(coordinator, group.name, partition))[partition]
    guest.holds(told.committed_offset == -1, f"a group that was deleted has committed {told.committed_offset}")
