"""Members removed from their groups by an administrator (KIP-345, KIP-848). No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

from tidelog.client.admin.answers import error_of
from tidelog.client.admin.groups import describe_groups
from tidelog.client.errors import UnsupportedByBroker, refusal
from tidelog.client.exchange import ByVersion
from tidelog.client.operations import Deadline, Operation
from tidelog.client.routing import Routing
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

SEVERAL_SINCE: Final = 3
"""Version of LeaveGroup that names several members, static ones by their instance ids."""
REASONS_SINCE: Final = 5
LEAVE_EPOCH: Final = -1
"""With which a member of a KIP-848 group leaves."""


class MemberIdentity(NamedTuple):
    """A member of a group: by its id, or a static one by `instance_id`, whatever its id is now."""

    member_id: str = ""
    instance_id: str | None = None

    def __str__(self) -> str:
        return self.member_id if self.instance_id is None else self.instance_id


def remove_members(
    routing: Routing,
    group: str,
    members: Collection[MemberIdentity] | None = None,
    *,
    reason: str = "removed by an administrator",
    timeout_s: float | None = None,
) -> Operation[dict[MemberIdentity, KafkaError | None]]:
    """Removes members, or (None) all that a group has now; each one's error or None.

    Their partitions go to other members at once. A member whose client still runs learns of it with its next heartbeat
    and joins again: stop the client first. KafkaError for the group's error, UnsupportedByBroker before Kafka 2.4.
    """
    deadline = routing.deadline(timeout_s)
    if members is None:
        described = (yield from describe_groups(routing, [group], timeout_s=deadline.remaining_s))[group]
        if isinstance(described, KafkaError):
            raise described
        members = [
            MemberIdentity(each.member_id if each.instance_id is None else "", each.instance_id)
            for each in described.members
        ]
    wanted = list(dict.fromkeys(members))
    if not wanted:
        return {}
    response = yield from routing.ask_coordinator(group, _request(group, wanted, reason), deadline, _codes)
    refused = error_of(response.error_code, None, f"group '{group}'", group=group)
    if refused is not None:
        raise refused
    codes = {
        MemberIdentity(each.member_id, each.group_instance_id): error_code(each.error_code) for each in response.members
    }
    results: dict[MemberIdentity, KafkaError | None] = {}
    for member in wanted:
        code = codes.get(member, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code is ErrorCode.UNKNOWN_MEMBER_ID and member.instance_id is None:
            code = yield from _leave_for(routing, group, member, deadline)
        results[member] = _refusal(code, group, member)
    return results


def _request(group: str, members: Collection[MemberIdentity], reason: str) -> ByVersion:
    kind = messages.LeaveGroupRequest

    def build(version: int) -> Any:
        if version < SEVERAL_SINCE:
            raise UnsupportedByBroker("the cluster is too old to remove members from groups (LeaveGroup version 3)")
        leaving = []
        for member in members:
            one = kind.MemberIdentity(member_id=member.member_id, group_instance_id=member.instance_id)
            if version >= REASONS_SINCE:
                one.reason = reason
            leaving.append(one)
        return kind(group_id=group, members=leaving)

    return ByVersion(ApiKey.LEAVE_GROUP, build)


def _codes(response: Any) -> Iterator[int]:
    yield response.error_code


def _leave_for(routing: Routing, group: str, member: MemberIdentity, deadline: Deadline) -> Operation[ErrorCode]:
    """A dynamic member of a KIP-848 group can only be removed by what it would say itself, a last heartbeat."""
    request = messages.ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member.member_id, member_epoch=LEAVE_EPOCH
    )
    try:
        response = yield from routing.ask_coordinator(group, request, deadline, _codes)
    except UnsupportedByBroker:
        return ErrorCode.UNKNOWN_MEMBER_ID
    code = error_code(response.error_code)
    # It is no consumer group: what LeaveGroup said of the member stands.
    return ErrorCode.UNKNOWN_MEMBER_ID if code is ErrorCode.GROUP_ID_NOT_FOUND else code


def _refusal(code: ErrorCode, group: str, member: MemberIdentity) -> KafkaError | None:
    match code:
        case ErrorCode.NONE:
            return None
        case ErrorCode.UNKNOWN_MEMBER_ID:
            return refusal(code, "", f"group '{group}' has no member '{member}'", group=group)
        case _:
            return refusal(code, f"member '{member}' of group '{group}'", group=group)
