"""Classic groups in every version of their APIs: a member joins, syncs, beats, is described and leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.support import topic_name
from tests.waiting import until
from tidelog.client.addresses import Address
from tidelog.client.blocking import BlockingConnection
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.testing import Cluster

pytestmark = pytest.mark.row("R15")

METADATA = b"\x00\x01subscription"
ASSIGNMENT = b"\x00\x01assignment"


@pytest.fixture(scope="module")
def connection(broker: Cluster) -> Iterator[BlockingConnection]:
    host, _, port = broker.bootstrap.rpartition(":")
    client = BlockingConnection(Address(host, int(port)))
    yield client
    client.close()


@pytest.fixture
def group(connection: BlockingConnection) -> str:
    """A group that has a coordinator."""
    name = topic_name("members")
    until(
        lambda: connection.request(messages.FindCoordinatorRequest(key=name), 3).error_code == ErrorCode.NONE,
        "the group has a coordinator",
    )
    return name


def join(connection: BlockingConnection, version: int, group: str, member_id: str = "", **changes: Any) -> Any:
    request = messages.JoinGroupRequest
    protocol = request.JoinGroupRequestProtocol(name="range", metadata=METADATA)
    fields = {"session_timeout_ms": 10_000, "protocol_type": "consumer", "protocols": [protocol], **changes}
    if version >= 1:
        fields.setdefault("rebalance_timeout_ms", 10_000)
    message = request(group_id=group, member_id=member_id, **fields)
    return until(lambda: _loaded(connection.request(message, version)), "the coordinator is loaded")


def _loaded(answer: Any) -> Any:
    return None if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else answer


def sync(connection: BlockingConnection, version: int, group: str, member_id: str, generation: int) -> Any:
    request = messages.SyncGroupRequest
    given = request.SyncGroupRequestAssignment(member_id=member_id, assignment=ASSIGNMENT)
    names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    message = request(group_id=group, generation_id=generation, member_id=member_id, assignments=[given], **names)
    return connection.request(message, version)


def stable(connection: BlockingConnection, group: str, **changes: Any) -> str:
    """The id of the only member of a stable group."""
    joined = join(connection, 5, group, join(connection, 5, group, **changes).member_id, **changes)
    assert joined.error_code == ErrorCode.NONE, joined
    assert sync(connection, 3, group, joined.member_id, joined.generation_id).error_code == ErrorCode.NONE
    return str(joined.member_id)


@pytest.mark.parametrize("version", range(10))
def test_join_group(connection: BlockingConnection, group: str, version: int) -> None:
    """v4 sends a new member back with its id; v7 tells the protocol's type; refusals tell no generation."""
    joined = join(connection, version, group)
    if version >= 4:
        assert (joined.error_code, joined.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        assert joined.protocol_name == (None if version >= 7 else "")
        joined = join(connection, version, group, joined.member_id)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert joined.leader == joined.member_id
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, METADATA)]
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert not joined.skip_assignment
    assert join(connection, version, "").error_code == ErrorCode.INVALID_GROUP_ID
    assert join(connection, version, group, session_timeout_ms=1).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert join(connection, version, group, "nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert join(connection, version, group, protocols=[]).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_leader_comes_back(connection: BlockingConnection, group: str, version: int) -> None:
    """In its generation; v9 says that there is nothing to assign, before it was told that it follows."""
    first = join(connection, version, group, group_instance_id="i")
    assert sync(connection, 3, group, first.member_id, 1).error_code == ErrorCode.NONE
    again = join(connection, version, group, group_instance_id="i")
    assert (again.error_code, again.generation_id) == (ErrorCode.NONE, 1)
    assert again.member_id != first.member_id
    assert again.skip_assignment == (version >= 9)
    assert again.leader == (again.member_id if version >= 9 else first.member_id)
    assert len(again.members) == (1 if version >= 9 else 0)
    answer = sync(connection, 3, group, again.member_id, 1)
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, ASSIGNMENT)


@pytest.mark.parametrize("version", range(6))
def test_sync_group(connection: BlockingConnection, group: str, version: int) -> None:
    """v5 tells the protocol, and wants to be told."""
    joined = join(connection, 3, group)
    answer = sync(connection, version, group, joined.member_id, 1)
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, ASSIGNMENT)
    assert answer.protocol_name == ("range" if version >= 5 else None)
    assert sync(connection, version, group, joined.member_id, 2).error_code == ErrorCode.ILLEGAL_GENERATION
    assert sync(connection, version, group, "nobody", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(connection, version, "", "nobody", 1).error_code == ErrorCode.INVALID_GROUP_ID
    if version >= 5:
        silent = messages.SyncGroupRequest(group_id=group, generation_id=1, member_id=joined.member_id)
        assert connection.request(silent, version).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
def test_heartbeat(connection: BlockingConnection, group: str, version: int) -> None:
    """v3 may name the instance."""
    changes = {"group_instance_id": "i"} if version >= 3 else {}
    request = messages.HeartbeatRequest
    member_id = stable(connection, group, **changes)

    def beat(**fields: Any) -> int:
        message = request(**{"group_id": group, "generation_id": 1, "member_id": member_id, **changes, **fields})
        return int(connection.request(message, version).error_code)

    assert beat() == ErrorCode.NONE
    assert beat(generation_id=7) == ErrorCode.ILLEGAL_GENERATION
    assert beat(group_id="") == ErrorCode.INVALID_GROUP_ID
    assert beat(member_id="nobody") == (ErrorCode.FENCED_INSTANCE_ID if changes else ErrorCode.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize("version", range(6))
def test_leave_group(connection: BlockingConnection, group: str, version: int) -> None:
    """v3 takes several, each with an answer of its own."""
    member_id = stable(connection, group)
    request = messages.LeaveGroupRequest
    if version < 3:
        ask = [request(group_id=group, member_id=each) for each in ("nobody", member_id)]
        errors = [connection.request(message, version).error_code for message in ask]
    else:
        members = [request.MemberIdentity(member_id=each) for each in ("nobody", member_id)]
        answer = connection.request(request(group_id=group, members=members), version)
        assert answer.error_code == ErrorCode.NONE
        errors = [member.error_code for member in answer.members]
    assert errors == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    described = connection.request(messages.DescribeGroupsRequest(groups=[group]), 5).groups[0]
    assert (described.group_state, described.members) == ("Empty", [])


@pytest.mark.parametrize("version", range(7))
def test_describe_groups_with_members(connection: BlockingConnection, group: str, version: int) -> None:
    """v4 tells instance ids."""
    member_id = stable(connection, group, group_instance_id="i")
    found = connection.request(messages.DescribeGroupsRequest(groups=[group]), version).groups[0]
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    (member,) = found.members
    assert (member.member_id, member.client_host) == (member_id, "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (METADATA, ASSIGNMENT)
    assert member.group_instance_id == ("i" if version >= 4 else None)
