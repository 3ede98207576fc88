"""Requests of classic groups' members at a broker: what they wait for, and what they are told when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.harness import Broker

from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers._members import CLIENT_ID_SIZE_MAX, cut
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

GROUP = "g"
PROTOCOLS = [messages.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")]


@pytest.fixture
def min_insync() -> int:
    return 2


@pytest.fixture
def broker(tmp_path: Path, min_insync: int) -> Iterator[Broker]:
    """One that coordinates all groups, on one partition that two more brokers follow."""
    broker = Broker(str(tmp_path), {"min.insync.replicas": min_insync})
    broker.tell_brokers(live=(0, 1, 2))
    broker.lead("__consumer_offsets", isr=[0], replicas=[0, 1, 2])
    broker.shell.run_turns()
    yield broker
    broker.close()


def led(broker: Broker, isr: list[int], partition_epoch: int = 1) -> None:
    """The controller has other replicas in sync; the leader and its epoch stay."""
    broker.lead("__consumer_offsets", isr=isr, replicas=[0, 1, 2], leader_epoch=1, partition_epoch=partition_epoch)
    broker.shell.run_turns()


def join_request(member_id: str = "", **changes: Any) -> Any:
    fields = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer", **changes}
    return messages.JoinGroupRequest(group_id=GROUP, member_id=member_id, protocols=PROTOCOLS, **fields)


def join(broker: Broker, member_id: str = "", version: int = 3, client_id: str = "test", **changes: Any) -> Any:
    return broker.send(ApiKey.JOIN_GROUP, version, join_request(member_id, **changes), client_id)


def sync(broker: Broker, member_id: str, generation: int = 1) -> Any:
    given = messages.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"a")
    request = messages.SyncGroupRequest(
        group_id=GROUP, generation_id=generation, member_id=member_id, assignments=[given]
    )
    return broker.send(ApiKey.SYNC_GROUP, 3, request)


def beat(broker: Broker, member_id: str, generation: int = 1) -> int:
    request = messages.HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
    return int(broker.ask(ApiKey.HEARTBEAT, 3, request).error_code)


def result(broker: Broker, key: ApiKey, version: int, answer: Any) -> Any:
    """The answer, now that it must be there."""
    broker.shell.run_turns()
    return broker.decode(key, version, answer.result() if isinstance(answer, Deferred) else answer)


def joined(broker: Broker) -> Any:
    """The only member of a generation whose leader has not spoken."""
    answer = join(broker)
    broker.shell.advance(100)
    found = result(broker, ApiKey.JOIN_GROUP, 3, answer)
    assert found.error_code == ErrorCode.NONE, found
    return found


@pytest.mark.parametrize("min_insync", [1])
def test_an_assignment_waits_until_it_is_committed(broker: Broker) -> None:
    """Members must not own what a coordinator could forget."""
    led(broker, [0, 1])
    member = joined(broker)
    answer = sync(broker, member.member_id)
    broker.shell.run_turns()
    assert not answer.done
    # Who has not got it is not in sync any more: what is left has it.
    led(broker, [0], partition_epoch=2)
    assert result(broker, ApiKey.SYNC_GROUP, 3, answer).assignment == b"a"


def test_a_failed_append_has_the_members_ask_again(broker: Broker) -> None:
    """COORDINATOR_NOT_AVAILABLE; then what the log says holds: it may have the record, or not."""
    led(broker, [0, 1])
    member = joined(broker)
    answer = sync(broker, member.member_id)
    broker.shell.run_turns()
    broker.shell.advance(broker.config.offsets_commit_timeout_ms)
    found = result(broker, ApiKey.SYNC_GROUP, 3, answer)
    assert (found.error_code, found.assignment) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, b"")


def test_a_coordinator_that_is_deposed_sends_its_members_away(broker: Broker) -> None:
    """A join that waits is told to look for the new one."""
    led(broker, [0, 1])
    answer = join(broker)
    broker.lead("__consumer_offsets", leader=1, isr=[0, 1], replicas=[0, 1, 2], leader_epoch=2, partition_epoch=2)
    assert result(broker, ApiKey.JOIN_GROUP, 3, answer).error_code == ErrorCode.NOT_COORDINATOR
    assert beat(broker, "m") == ErrorCode.NOT_COORDINATOR


def test_heartbeats_are_served_where_nothing_can_be_written(broker: Broker) -> None:
    """Members live on while too few replicas are in sync; who would join is told to wait."""
    led(broker, [0, 1])
    member = joined(broker)
    led(broker, [0], partition_epoch=2)
    assert beat(broker, member.member_id) == ErrorCode.NONE
    assert result(broker, ApiKey.JOIN_GROUP, 3, join(broker)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_joins_that_are_refused(broker: Broker, changes: dict[str, Any], error: ErrorCode) -> None:
    """At once, whatever the group."""
    led(broker, [0, 1])
    assert result(broker, ApiKey.JOIN_GROUP, 3, join(broker, **changes)).error_code == error


def test_ids_are_drawn_for_new_members(broker: Broker) -> None:
    """Made of the client's id, or the instance's, and of chance that the broker is given."""
    led(broker, [0, 1])
    first, second = (result(broker, ApiKey.JOIN_GROUP, 5, join(broker, version=5)).member_id for _ in range(2))
    assert first != second
    assert first.startswith("test-")
    assert len(first) == len("test-") + 36
    answer = join(broker, version=5, group_instance_id="i")
    broker.shell.advance(150)
    assert result(broker, ApiKey.JOIN_GROUP, 5, answer).member_id.startswith("i-")


@pytest.mark.parametrize("min_insync", [1])
@pytest.mark.parametrize("name", ["c" * 32_700, "日" * 10_900])
def test_a_name_may_be_as_long_as_a_string(broker: Broker, name: str) -> None:
    """A member id has to fit beside it, in answers and in the record."""
    led(broker, [0])
    answers = [
        join(broker, client_id=name),
        join(broker, version=5, group_instance_id=name),
    ]
    broker.shell.advance(150)
    found = [
        result(broker, ApiKey.JOIN_GROUP, version, answer) for version, answer in zip((3, 5), answers, strict=True)
    ]
    assert [each.error_code for each in found] == [ErrorCode.NONE, ErrorCode.NONE]
    assert all(name.startswith(each.member_id[:20]) and len(each.member_id) < 300 for each in found)
    assert beat(broker, found[0].member_id) == ErrorCode.NONE
    leader = next(each for each in found if each.members)
    assert result(broker, ApiKey.SYNC_GROUP, 3, sync(broker, leader.member_id)).error_code == ErrorCode.NONE
    assert beat(broker, found[0].member_id) == ErrorCode.NONE


def test_a_client_id_that_is_no_utf_8_is_cut() -> None:
    """It grows when it is read, and a record's string has a limit."""
    assert cut("\ufffd" * 32_767, CLIENT_ID_SIZE_MAX) == "\ufffd" * 10_922


@pytest.mark.parametrize("min_insync", [1])
@pytest.mark.parametrize("is_classic", [True, False])
def test_a_client_id_that_is_no_utf_8_harms_nobody(broker: Broker, is_classic: bool) -> None:
    """Its member joins, by either protocol."""
    led(broker, [0])
    name = "c" * 20_000
    if is_classic:
        key, version, request = ApiKey.JOIN_GROUP, 3, join_request()
    else:
        kind: Any = messages.ConsumerGroupHeartbeatRequest
        key, version = ApiKey.CONSUMER_GROUP_HEARTBEAT, 1
        request = kind(
            group_id=GROUP, member_id="m", rebalance_timeout_ms=1_000, subscribed_topic_names=["t"], topic_partitions=[]
        )
    frame = broker.frame(key, version, request, name).replace(name.encode(), b"\xff" * len(name))
    view = memoryview(bytearray(frame))
    answer = broker.dispatcher.request(broker.peer, view, 4, len(view), broker.clock.monotonic_ms())
    broker.shell.advance(150)
    assert result(broker, key, version, answer).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("key", "version", "request_"),
    [
        (ApiKey.DESCRIBE_GROUPS, 6, messages.DescribeGroupsRequest(groups=["nobody"])),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, messages.ConsumerGroupDescribeRequest(group_ids=["nobody"])),
        (ApiKey.SHARE_GROUP_DESCRIBE, 1, messages.ShareGroupDescribeRequest(group_ids=["nobody"])),
    ],
)
def test_of_a_group_that_is_not_there_no_operations_are_told(
    broker: Broker, key: ApiKey, version: int, request_: Any
) -> None:
    """Although they were asked for: there is an error instead, as in Kafka."""
    request_.include_authorized_operations = True
    (found,) = result(broker, key, version, broker.send(key, version, request_)).groups
    assert (found.error_code, found.authorized_operations) == (ErrorCode.GROUP_ID_NOT_FOUND, -(2**31))
