"""Heartbeats from their bytes: the quick way of plain ones beside the general one, which has all cases.

What is compiled of the quick way is not asked here: `tests/property/test_ordinary_heartbeat.py` holds it to this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.classic_members import SESSION_MS, join
from tests.unit.broker.harness import Broker, whole

from tidelog.broker.deferred import Deferred
from tidelog.broker.handlers import heartbeat
from tidelog.broker.requests.dispatch import Dispatcher
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

VERSIONS = range(5)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    """Two that have done the same: a group of one member, and heartbeats by both ways at the first, by one at the
    other."""
    both = Broker(str(tmp_path / "quick")), Broker(str(tmp_path / "general"))
    for broker in both:
        broker.lead("__consumer_offsets")
        broker.shell.run_turns()
        broker.node.handlers[ApiKey.HEARTBEAT].frames = None
        broker.dispatcher = Dispatcher(broker.node, broker.node.handlers)
    both[1].node.handlers[ApiKey.HEARTBEAT].handle_body = None
    yield both
    for broker in both:
        broker.close()


def beat(broker: Broker, version: int, damage: Callable[[bytes], bytes] = bytes, **fields: Any) -> Any:
    """The answer to a heartbeat, in bytes, or why there is none; and what the coordinator then waits for."""
    values = {"group_id": "g", "generation_id": 1, **fields}
    frame = broker.frame(ApiKey.HEARTBEAT, version, messages.HeartbeatRequest(**values))
    view = memoryview(bytearray(damage(frame)))
    try:
        answer = broker.dispatcher.request(broker.peer, view, 4, len(view), broker.clock.monotonic_ms())
    except Exception as error:
        return type(error), str(error)
    broker.shell.run_turns()
    if isinstance(answer, Deferred):
        answer = answer.result()
    shard = broker.node.groups.shards.loaded()[0]
    return whole(answer), shard.machine.next_due_ms, shard.timer_due_ms


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_say_the_same(brokers: tuple[Broker, Broker], version: int) -> None:
    """Of members that live, that are unknown, of another generation, of groups that there are not."""
    (member,) = {join(broker) for broker in brokers}
    cases: list[dict[str, Any]] = [
        {"member_id": member},
        {"member_id": member, "generation_id": 2},
        {"member_id": member, "generation_id": -1},
        {"member_id": "unknown"},
        {"member_id": ""},
        {"member_id": member, "group_id": "another"},
        {"member_id": member, "group_id": ""},
        {"member_id": member, "group_id": "g" * 200},
        {"member_id": "m" * 200},
    ]
    if version >= 3:
        cases += [{"member_id": member, "group_instance_id": instance} for instance in ("i", "")]
    for case in cases:
        for broker in brokers:
            broker.clock.now_ms += 7
        quick, general = (beat(broker, version, **case) for broker in brokers)
        assert quick == general, case


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_judge_damaged_requests_alike(brokers: tuple[Broker, Broker], version: int) -> None:
    """Each byte behind the header in turn, and requests that are too short."""
    (member,) = {join(broker) for broker in brokers}
    request = messages.HeartbeatRequest(group_id="g", member_id=member)
    (size,) = {len(broker.frame(ApiKey.HEARTBEAT, version, request)) for broker in brokers}

    def damaged(place: int, bits: int) -> Callable[[bytes], bytes]:
        return lambda frame: frame[:place] + bytes([frame[place] ^ bits]) + frame[place + 1 :]

    damages = [damaged(place, bits) for place in range(18, size) for bits in (1, 128)]
    damages += [lambda frame, cut=cut: frame[:-cut] for cut in range(1, 12)]  # type: ignore[misc]
    for damage in damages:
        quick, general = (beat(broker, version, damage, member_id=member) for broker in brokers)
        assert quick == general


def test_a_plain_heartbeat_comes_by_the_quick_way(brokers: tuple[Broker, Broker]) -> None:
    """Nothing is decoded for it, and the member lives on."""
    quick = brokers[0]
    member = join(quick)
    quick.node.handlers[ApiKey.HEARTBEAT].handle = lambda *_: pytest.fail("the general way")
    for version in VERSIONS:
        quick.shell.advance(SESSION_MS - 1)
        answer, due_ms, _ = beat(quick, version, member_id=member)
        assert quick.decode(ApiKey.HEARTBEAT, version, answer).error_code == 0
        assert due_ms is not None
    # Both are due for the session's end; a deadline is looked for where it was set first, and moved on from there.
    shard = quick.node.groups.shards.loaded()[0]
    quick.shell.advance(SESSION_MS - 1)
    assert shard.machine.groups["g"].members
    quick.shell.advance(2)
    assert not shard.machine.groups["g"].members


def test_a_rebalance_and_a_write_under_way_are_the_general_way(brokers: tuple[Broker, Broker]) -> None:
    """A member that is to join again hears so; behind a write that is not committed the answer waits."""
    for broker in brokers:
        member = join(broker)
        commit = messages.OffsetCommitRequest(group_id="other")
        commit.topics.append(
            messages.OffsetCommitRequest.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    messages.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
                ],
            )
        )
        broker.lead("t")
        broker.send(ApiKey.OFFSET_COMMIT, 8, commit)
        request = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
        assert isinstance(broker.send(ApiKey.HEARTBEAT, 2, request), Deferred)
        broker.shell.run_turns()
        joining = messages.JoinGroupRequest(group_id="g", session_timeout_ms=SESSION_MS, protocol_type="consumer")
        joining.protocols.append(messages.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m"))
        broker.send(ApiKey.JOIN_GROUP, 3, joining)
        assert broker.ask(ApiKey.HEARTBEAT, 2, request).error_code == 27


def test_what_may_not_be_read_is_the_general_way(broker: Broker) -> None:
    """A body that ends early, whatever its version, is no reason to raise here."""
    for version in VERSIONS:
        for body in (b"", b"\0", b"\xff", b"\0\1g\0\0\0\1\0\1", b"\2g\0\0\0\1\2m", b"\x7f" * 3):
            context: Any = type("Context", (), {"api_version": version, "correlation_id": 1, "access": None})()
            assert heartbeat.handle_body(broker.node, context, memoryview(body)) is NotImplemented
