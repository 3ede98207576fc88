"""A classic group in every order of events that chance comes up with.

Clients join, sync, beat, commit nothing, leave, die and come back; time passes in any amount; the coordinator moves to
a broker that knows the log alone, or an append fails and takes what was in memory with it. Clients do what the answers
ask of them. Then no two of them own a partition in one generation, what the log says is what lives, and nobody waits
for ever.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.coordinator.groups.classic.cluster import REBALANCE_MS, SESSION_MS, Coordinator

from tidelog.coordinator.groups.classic.deadlines import JOIN, SESSION, SYNC, ClassicDeadline
from tidelog.coordinator.groups.classic.events import JoinReply
from tidelog.coordinator.groups.classic.group import ClassicGroup, ClassicGroupState
from tidelog.coordinator.groups.classic.join import NEW_MEMBER_TIMEOUT_MS
from tidelog.coordinator.groups.classic.members import Protocol, names
from tidelog.coordinator.groups.settings import GroupSettings
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.coordinator_records import CONSUMER_OFFSETS, decode_key, decode_value

CLIENTS = 6
PARTITIONS = range(7)
SIZE_MAX = 5
LIKES = [("range",), ("range", "sticky"), ("sticky", "range"), ("robin", "range")]
FATAL = {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
"""Upon which clients give up."""


@dataclass
class Client:
    """What a client knows, and the one request that it has under way."""

    index: int
    instance: str | None
    old: bool
    """Whether it speaks versions before KIP-394 and KIP-814."""
    member_id: str = ""
    protocols: tuple[Protocol, ...] = ()
    joined: JoinReply | None = None
    generation: int = -1
    """In which it has its assignment."""
    owned: bytes = b""
    request: int | None = None
    is_sync: bool = False


class Shell(Coordinator):
    """A coordinator of which one append may fail: then nobody is answered, and the state is loaded anew."""

    append_fails = False

    def _carry_out(self, result: Any) -> None:
        if result.writes and self.append_fails:
            self.append_fails = False
            raise AppendFailed
        super()._carry_out(result)


class AppendFailed(Exception):
    pass


@dataclass
class Told:
    """What members of one generation were told they own."""

    by_partition: dict[int, str] = field(default_factory=dict)


class Groups(RuleBasedStateMachine):
    """The world. Each rule is one event."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator: Shell = Shell(GroupSettings(group_max_size=SIZE_MAX))
        self.clients = [
            Client(index, instance=f"i{index}" if index % 3 == 2 else None, old=index % 3 == 1)
            for index in range(CLIENTS)
        ]
        self.told: dict[int, Told] = {}

    @initialize(delay=st.sampled_from([0, 3000]))
    def begin(self, delay: int) -> None:
        self.coordinator = Shell(GroupSettings(group_initial_rebalance_delay_ms=delay, group_max_size=SIZE_MAX))

    # Events.

    @rule(who=st.integers(0, CLIENTS - 1), like=st.sampled_from(LIKES), data=st.sampled_from([b"", b"\x00\x00x"]))
    def join(self, who: int, like: tuple[str, ...], data: bytes) -> None:
        """Perhaps while an earlier request of its waits: it gave that up."""
        client = self.clients[who]
        client.protocols = tuple(Protocol(name, data) for name in like)
        self._join(client)

    @rule(who=st.integers(0, CLIENTS - 1))
    def go_on(self, who: int) -> None:
        """Does what the last answer asks for."""
        self._go_on(self.clients[who])

    @rule(steps=st.integers(1, 8))
    def all_live(self, steps: int) -> None:
        """As clients do that nothing happens to: they go on at once, and beat every second."""
        for _ in range(steps):
            for _ in range(4):
                self._do(lambda: self.coordinator.pass_time(10))
                for client in self.clients:
                    self._go_on(client)
            self._do(lambda: self.coordinator.pass_time(1000))
            for who in range(CLIENTS):
                self.beat(who)

    @rule(like=st.sampled_from(LIKES))
    def all_join(self, like: tuple[str, ...]) -> None:
        """All that have no request under way."""
        for client in self.clients:
            if client.request is None and not client.owned:
                self.join(client.index, like, b"")
        self.all_live(3)

    @rule(who=st.integers(0, CLIENTS - 1))
    def beat(self, who: int) -> None:
        client = self.clients[who]
        if client.member_id and client.joined is not None:
            with_instance = {} if client.instance is None else {"instance": client.instance}
            error = self.coordinator.heartbeat(client.member_id, client.joined.generation, **with_instance)
            assert error in (
                ErrorCode.NONE,
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_INSTANCE_ID,
            )
            if error is not ErrorCode.NONE and client.request is None:
                self._told_to_join(client, error)

    @rule(who=st.integers(0, CLIENTS - 1))
    def leave(self, who: int) -> None:
        client = self.clients[who]
        if client.member_id:
            self._do(lambda: self.coordinator.leave((client.member_id, client.instance)))
            self._forget(client)

    @rule(who=st.integers(0, CLIENTS - 1))
    def die(self, who: int) -> None:
        """Without a word; what it waits for is nobody's."""
        self._forget(self.clients[who])

    @rule(who=st.sampled_from([2, 5]))
    def restart(self, who: int) -> None:
        """A static member comes back before anybody has missed it."""
        self._forget(self.clients[who])
        self._join(self.clients[who])
        self._do(lambda: self.coordinator.pass_time(10))
        self._go_on(self.clients[who])

    @rule(ms=st.sampled_from([1, 60, 3000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS, NEW_MEMBER_TIMEOUT_MS]))
    def pass_time(self, ms: int) -> None:
        self._do(lambda: self.coordinator.pass_time(ms))

    @rule()
    def move(self) -> None:
        self._move()

    @rule()
    def an_append_will_fail(self) -> None:
        self.coordinator.append_fails = True

    # What clients do.

    def _do(self, event: Any) -> int | None:
        try:
            result = event()
        except AppendFailed:
            self._move()
            return None
        return result if isinstance(result, int) else None

    def _join(self, client: Client) -> None:
        client.is_sync = False
        client.request = self._do(
            lambda: self.coordinator.join(
                client.member_id,
                client=f"c{client.index}",
                instance=client.instance,
                protocols=client.protocols or (Protocol("range", b""),),
                known=not client.old,
                skip=not client.old,
            )
        )

    def _sync(self, client: Client, joined: JoinReply) -> None:
        members = [member.member_id for member in joined.members]
        shares = {member_id: bytes(PARTITIONS[position :: len(members)]) for position, member_id in enumerate(members)}
        client.is_sync = True
        client.request = self._do(
            lambda: self.coordinator.sync(
                client.member_id,
                joined.generation,
                {} if joined.skip_assignment else shares,
                instance=client.instance,
                protocol=joined.protocol,
            )
        )

    def _go_on(self, client: Client) -> None:
        if client.request is None:
            return
        reply = self.coordinator.reply(client.request)
        if reply is None:
            return
        client.request = None
        if reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = reply.member_id
            self._join(client)
        elif reply.error is not ErrorCode.NONE:
            self._told_to_join(client, reply.error)
        elif client.is_sync:
            assert client.joined is not None
            self._assigned(client, client.joined.generation, reply.assignment)
        else:
            client.member_id, client.joined = reply.member_id, reply
            self._sync(client, reply)

    def _told_to_join(self, client: Client, error: ErrorCode) -> None:
        if error in (
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ):
            self._forget(client)
            return
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id = ""
        client.joined, client.owned = None, b""
        self._join(client)

    def _assigned(self, client: Client, generation: int, assignment: bytes) -> None:
        """What clients believe they own: never two the same in one generation."""
        client.generation, client.owned = generation, assignment
        owner = client.instance or client.member_id
        told = self.told.setdefault(generation, Told())
        for partition in assignment:
            assert told.by_partition.setdefault(partition, owner) == owner, f"two owners in generation {generation}"

    def _forget(self, client: Client) -> None:
        client.member_id, client.joined, client.request, client.owned = "", None, None, b""

    def _move(self) -> None:
        before = self.coordinator
        after = Shell(before.settings, before.log)
        after._requests, after._ids, after.now_ms = before._requests, before._ids, before.now_ms
        after.machine.loaded(after.now_ms, after.wall_ms)
        self.coordinator = after
        for client in self.clients:
            if client.request is not None and before.reply(client.request) is None:
                # NOT_COORDINATOR: it asks again, as the member that it takes itself for.
                client.request = None
                self._join(client)
            elif client.request is not None:
                after.replies[client.request] = before.reply(client.request)

    # What always holds.

    @invariant()
    def the_log_is_what_lives(self) -> None:
        coordinator = self.coordinator
        loaded = Coordinator(coordinator.settings, coordinator.log).machine.groups
        live = {name: group for name, group in coordinator.machine.groups.items() if group.recorded is not None}
        assert live.keys() == loaded.keys()
        for name, group in live.items():
            assert group == loaded[name]
            if group.state in (ClassicGroupState.STABLE, ClassicGroupState.EMPTY):
                assert group.as_record() == group.recorded

    @invariant()
    def generations_go_up(self) -> None:
        last: dict[str, int] = {}
        for key, value in self.coordinator.log:
            name = decode_key(CONSUMER_OFFSETS, key).group
            if value is None:
                last.pop(name, None)
                continue
            generation = decode_value(messages.GroupMetadataValue, value)[0].generation
            assert generation >= last.get(name, 0)
            last[name] = generation

    @invariant()
    def what_is_counted_is_there(self) -> None:
        deadlines = self.coordinator.machine.deadlines
        for name, group in self.coordinator.machine.groups.items():
            assert isinstance(group, ClassicGroup)
            members = group.members
            assert group.waiting_joins == sum(member.join_request is not None for member in members.values())
            supported = Counter(name for member in members.values() for name in names(member.protocols))
            assert group._supporters == supported
            assert all(member_id == member.member_id for member_id, member in members.items())
            assert set(group.static.values()) == {member.member_id for member in members.values() if member.is_static}
            assert (group.leader in members) if members else group.leader is None
            assert not group.pending.keys() & members.keys()
            assert group.pending_sync.keys() <= members.keys()
            assert len(members) <= SIZE_MAX or group.state is ClassicGroupState.PREPARING_REBALANCE
            assert (group.state is ClassicGroupState.EMPTY) <= (not members)
            for member_id, member in members.items():
                watched = ClassicDeadline(SESSION, name, member_id) in deadlines
                assert watched or member.needs_no_heartbeat
            assert all(ClassicDeadline(SESSION, name, member_id) in deadlines for member_id in group.pending)
            if group.state is ClassicGroupState.PREPARING_REBALANCE:
                assert ClassicDeadline(JOIN, name) in deadlines
            if group.state is ClassicGroupState.COMPLETING_REBALANCE:
                assert ClassicDeadline(SYNC, name) in deadlines
            if group.state in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
                assert all(member.vote({group.protocol or ""}) is not None for member in members.values())

    def teardown(self) -> None:
        """Nobody says a word any more: each request is answered, in the end nobody is a member."""
        self.coordinator.append_fails = False
        self.coordinator.pass_time(3 * (NEW_MEMBER_TIMEOUT_MS + REBALANCE_MS + SESSION_MS))
        for client in self.clients:
            assert client.request is None or self.coordinator.reply(client.request) is not None
        assert self.coordinator.state in (ClassicGroupState.EMPTY, ClassicGroupState.DEAD)
        assert self.coordinator.machine.next_due_ms is None


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
