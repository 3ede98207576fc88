"""A group of the classic protocol, whose members an examination plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sim.workloads.classic_members import PROTOCOL, encode_subscription
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from sim.workloads.coordination import Coordinator
    from sim.workloads.examinations.guest import Guest

SESSION_MS: Final = 6_000
"""Longer than a coordinator is away."""
REBALANCE_MS: Final = 1_000
JOIN_S_MAX: Final = 15.0


@dataclass(slots=True)
class ClassicMember:
    """A member of the group, and where its requests go."""

    coordinator: Coordinator
    instance: str | None = None
    session_ms: int = SESSION_MS
    rebalance_ms: int = REBALANCE_MS
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    assignment: bytes = b""
    others: tuple[str, ...] = ()


class ClassicGroup:
    """What its members ask, and what is asked about it."""

    def __init__(self, guest: Guest, name: str, topic: str) -> None:
        self.guest = guest
        self.name = name
        self._subscription = encode_subscription([topic])

    def member(self, instance: str | None = None, session_ms: int = SESSION_MS) -> ClassicMember:
        return ClassicMember(self.guest.group(self.name, self.guest.another()), instance, session_ms)

    async def join(self, member: ClassicMember) -> None:
        response = await self.ask_to_join(member)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = response.member_id
            await self.join(member)
            return
        self.guest.expect(response.error_code, ErrorCode.NONE, "JoinGroup")
        member.member_id, member.generation = response.member_id, response.generation_id
        member.leader = response.leader
        member.others = tuple(each.member_id for each in response.members)

    async def ask_to_join(self, member: ClassicMember) -> Any:
        """One JoinGroup's answer; the first one of a member gives it an id and nothing else."""
        request = messages.JoinGroupRequest(
            group_id=self.name,
            session_timeout_ms=member.session_ms,
            rebalance_timeout_ms=member.rebalance_ms,
            member_id=member.member_id,
            group_instance_id=member.instance,
            protocol_type="consumer",
            protocols=[messages.JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL, metadata=self._subscription)],
        )
        return await member.coordinator.ask(ApiKey.JOIN_GROUP, request, timeout_s=JOIN_S_MAX)

    async def sync(self, member: ClassicMember) -> None:
        """Its assignment; the leader gives each member what says whose it is."""
        response = await self.ask_to_sync(member)
        self.guest.expect(response.error_code, ErrorCode.NONE, "SyncGroup")
        member.assignment = bytes(response.assignment)

    async def ask_to_sync(self, member: ClassicMember) -> Any:
        """One SyncGroup's answer."""
        kind = messages.SyncGroupRequest
        told = [kind.SyncGroupRequestAssignment(member_id=each, assignment=each.encode()) for each in member.others]
        request = kind(
            group_id=self.name,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=told,
        )
        return await member.coordinator.ask(ApiKey.SYNC_GROUP, request, timeout_s=JOIN_S_MAX)

    async def beat(self, member: ClassicMember, **changed: Any) -> ErrorCode:
        said = {
            "generation_id": member.generation,
            "member_id": member.member_id,
            "group_instance_id": member.instance,
            **changed,
        }
        response = await member.coordinator.ask(ApiKey.HEARTBEAT, messages.HeartbeatRequest(group_id=self.name, **said))
        self.guest.check(response.error_code)
        return ErrorCode(response.error_code)

    async def expect_beat(self, member: ClassicMember, wanted: ErrorCode, told: str, **changed: Any) -> None:
        code = await self.beat(member, **changed)
        self.guest.holds(code is wanted, f"a heartbeat {told} is answered {code.name}, and not {wanted.name}")

    async def leave(self, member: ClassicMember) -> None:
        identity = messages.LeaveGroupRequest.MemberIdentity(
            member_id=member.member_id, group_instance_id=member.instance
        )
        request = messages.LeaveGroupRequest(group_id=self.name, members=[identity])
        response = await member.coordinator.ask(ApiKey.LEAVE_GROUP, request)
        self.guest.expect(response.error_code, ErrorCode.NONE, "LeaveGroup")

    async def described(self, coordinator: Coordinator) -> Any:
        response = await coordinator.ask(ApiKey.DESCRIBE_GROUPS, messages.DescribeGroupsRequest(groups=[self.name]))
        (found,) = response.groups
        self.guest.expect(found.error_code, ErrorCode.NONE, "DescribeGroups")
        return found

    async def expect_listed(self, coordinator: Coordinator, state: str) -> None:
        """It is among the groups of its state, and of no other."""
        for wanted in ("Stable", "Empty"):
            request = messages.ListGroupsRequest(states_filter=[wanted])
            response = await coordinator.ask(ApiKey.LIST_GROUPS, request)
            self.guest.expect(response.error_code, ErrorCode.NONE, "ListGroups")
            found = {each.group_id: each.group_state for each in response.groups}
            is_right = (self.name in found) == (wanted == state) and set(found.values()) <= {wanted}
            if not is_right:
                await self.described(coordinator)  # NotNow where it is the coordinator no more.
            self.guest.holds(is_right, f"it is {state}, and ListGroups of {wanted} gives {found}")

    async def delete(self, coordinator: Coordinator) -> ErrorCode:
        response = await coordinator.ask(ApiKey.DELETE_GROUPS, messages.DeleteGroupsRequest(groups_names=[self.name]))
        self.guest.check(response.results[0].error_code)
        return ErrorCode(response.results[0].error_code)
