"""A coordinator of classic groups with its log in memory, and clients that speak to it, in time that passes at will."""

from __future__ import annotations

from typing import Any

from tidelog.coordinator.groups.classic.events import (
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    MemberAssignment,
    SyncGroup,
    SyncReply,
)
from tidelog.coordinator.groups.classic.group import ClassicGroup, ClassicGroupState
from tidelog.coordinator.groups.classic.members import Protocol
from tidelog.coordinator.groups.classic.rebalance import GATHER_MS
from tidelog.coordinator.groups.coordinator import GroupCoordinator
from tidelog.coordinator.groups.settings import GroupSettings
from tidelog.coordinator.records import CoordinatorRecord, decode_record
from tidelog.coordinator.result import Result
from tidelog.coordinator.state_machine import TimePassed
from tidelog.model.errors import ErrorCode
from tidelog.protocol.coordinator_records import CONSUMER_OFFSETS

RANGE = (Protocol("range", b"\x00\x00r"),)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
WALL_MS = 1_700_000_000_000


class Coordinator:
    """Appends and replays at once, through the bytes of the log; replies are kept by request id."""

    def __init__(self, settings: GroupSettings | None = None, log: list[tuple[bytes, bytes | None]] | None = None):
        self.now_ms = 1000
        self.settings = settings or GroupSettings()
        self.machine = GroupCoordinator(self.settings)
        self.log: list[tuple[bytes, bytes | None]] = list(log or ())
        self.replies: dict[int, Any] = {}
        self._requests = 0
        self._ids = 0
        for key, value in self.log:
            self.machine.load(key, value, None)
        self._carry_out(self.machine.loaded(self.now_ms, self.wall_ms))

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def moved(self, settings: GroupSettings | None = None) -> Coordinator:
        """The coordinator on another broker: it knows the log alone. Time goes on."""
        other = Coordinator(settings or self.settings, self.log)
        other._requests, other._ids = self._requests, self._ids
        return other

    def group(self, group_id: str = "g") -> ClassicGroup:
        found = self.machine.groups[group_id]
        assert isinstance(found, ClassicGroup)
        return found

    @property
    def state(self) -> ClassicGroupState:
        group = self.machine.groups.get("g")
        return ClassicGroupState.DEAD if group is None else ClassicGroupState(group.state)

    # Requests: each gives its id; `reply` is the answer, when there is one.

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        client: str = "client",
        instance: str | None = None,
        protocols: tuple[Protocol, ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        known: bool = True,
        skip: bool = True,
    ) -> int:
        self._ids += 1
        request_id = self._next_request()
        event = JoinGroup(
            request_id,
            group,
            member_id,
            f"{instance or client}-{self._ids}",
            client,
            "/127.0.0.1",
            session_ms,
            rebalance_ms,
            protocol_type,
            protocols,
            self.wall_ms,
            instance,
            known,
            skip,
        )
        self.handle(event)
        return request_id

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> int:
        request_id = self._next_request()
        event = SyncGroup(
            request_id,
            group,
            member_id,
            generation,
            self.wall_ms,
            instance,
            protocol_type,
            protocol,
            [MemberAssignment(*pair) for pair in (assignments or {}).items()],
        )
        self.handle(event)
        return request_id

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> ErrorCode:
        request_id = self._next_request()
        event = Heartbeat(request_id, group, member_id, generation, instance)
        self.handle(event)
        reply = self.replies[request_id]
        assert isinstance(reply, HeartbeatReply)
        return reply.error

    def leave(self, *members: str | tuple[str, str | None], group: str = "g") -> list[ErrorCode]:
        request_id = self._next_request()
        leaving = [LeavingMember(m) if isinstance(m, str) else LeavingMember(*m) for m in members]
        event = LeaveGroup(request_id, group, leaving, self.wall_ms)
        self.handle(event)
        reply = self.replies[request_id]
        assert isinstance(reply, LeaveReply)
        return list(reply.errors)

    def pass_time(self, ms: int) -> None:
        """Deadlines come up one after the other, in their order."""
        end = self.now_ms + ms
        while (due_ms := self.machine.next_due_ms) is not None and due_ms <= end:
            self.now_ms = max(self.now_ms, due_ms)
            self.tick()
        self.now_ms = end

    def tick(self) -> None:
        """What is due by now."""
        while (due_ms := self.machine.next_due_ms) is not None and due_ms <= self.now_ms:
            self.handle(TimePassed(self.wall_ms))

    def gather(self) -> None:
        """Until new groups wait no longer for further members."""
        self.tick()
        while any(group.is_initial for group in self.machine.groups.values() if isinstance(group, ClassicGroup)):
            self.pass_time(GATHER_MS)

    def reply(self, request_id: int) -> Any:
        return self.replies.get(request_id)

    def joined(self, request_id: int) -> JoinReply:
        """The answer to a join that succeeded."""
        reply = self.replies[request_id]
        assert isinstance(reply, JoinReply)
        assert reply.error is ErrorCode.NONE, reply
        return reply

    def join_error(self, request_id: int) -> ErrorCode | None:
        reply = self.replies.get(request_id)
        return None if reply is None else reply.error

    def synced(self, request_id: int) -> SyncReply:
        reply = self.replies[request_id]
        assert isinstance(reply, SyncReply)
        assert reply.error is ErrorCode.NONE, reply
        return reply

    # Common ways to begin.

    def new_id(self, **options: Any) -> str:
        """The id that a new dynamic member is told to join with."""
        reply = self.replies[self.join(**options)]
        assert reply.error is ErrorCode.MEMBER_ID_REQUIRED
        return str(reply.member_id)

    def stable(self, count: int = 2, **options: Any) -> list[str]:
        """A stable group of that many dynamic members; their ids, the leader's first."""
        ids = [self.new_id(client=f"c{index}", **options) for index in range(count)]
        requests = [self.join(member_id, client=f"c{index}", **options) for index, member_id in enumerate(ids)]
        self.gather()
        self.sync_all([self.joined(request) for request in requests])
        return ids

    def sync_all(self, joined: list[JoinReply]) -> None:
        """All members sync, the leader last; each is assigned its own name."""
        requests = []
        for reply in sorted(joined, key=lambda reply: reply.leader == reply.member_id):
            assignments = {member.member_id: member.member_id.encode() for member in reply.members}
            requests.append((reply, self.sync(reply.member_id, reply.generation, assignments)))
        for reply, request_id in requests:
            assert self.synced(request_id).assignment == reply.member_id.encode()
        assert self.state is ClassicGroupState.STABLE

    def _next_request(self) -> int:
        self._requests += 1
        return self._requests

    def handle(self, event: Any) -> None:
        self._carry_out(self.machine.handle(self.now_ms, event))

    def _carry_out(self, result: Result[Any, Any]) -> None:
        for write in result.writes:
            self.log.append(write.encode())
            self.machine.replay(write)
        for request_id, reply in result.replies:
            assert request_id not in self.replies, "answered twice"
            self.replies[request_id] = reply

    def last_record(self) -> CoordinatorRecord:
        return decode_record(CONSUMER_OFFSETS, *self.log[-1])
