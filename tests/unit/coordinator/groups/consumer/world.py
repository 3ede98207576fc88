"""A coordinator with its log in memory, topics that grow, and consumers of both protocols, in time that passes at will.

Each consumer does what clients do: it keeps what it consumes (`owned`) apart from what it was told, drops everything
when it is fenced, and joins anew. `World.check` holds what must be true after every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.assignors import CONSUMERS
from tidelog.assignors.assignor import MemberId, Subscription, TopicLayout
from tidelog.coordinator.groups.classic.events import (
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    SyncGroup,
)
from tidelog.coordinator.groups.classic.group import ClassicGroup
from tidelog.coordinator.groups.classic.members import Protocol
from tidelog.coordinator.groups.consumer.events import ConsumerHeartbeat, ConsumerHeartbeatReply
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.consumer.settings import ConsumerSettings
from tidelog.coordinator.groups.coordinator import GroupCoordinator
from tidelog.coordinator.groups.embedded_protocol import encode_assignment, parse_assignment, parse_subscription
from tidelog.coordinator.groups.settings import GroupSettings
from tidelog.coordinator.groups.topics_view import TopicRights, TopicsView, TopicView
from tidelog.coordinator.records import PreparedRecords
from tidelog.coordinator.result import Result
from tidelog.coordinator.state_machine import TimePassed
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import codec, messages
from tidelog.records.record import decode_records

SESSION_MS = 10_000
REBALANCE_MS = 20_000
INTERVAL_MS = 3_000
WALL_MS = 1_700_000_000_000
GROUP = "g"
Log = list[tuple[bytes, bytes | None]]


def topic_id(name: str, incarnation: int = 0) -> TopicId:
    return TopicId(name.encode().ljust(15, b"-") + bytes([incarnation]))


def view(version: int = 1, incarnations: Mapping[str, int] | None = None, **topics: int) -> TopicsView:
    ids = {name: topic_id(name, (incarnations or {}).get(name, 0)) for name in topics}
    return TopicsView([TopicView(name, ids[name], TopicLayout(count)) for name, count in topics.items()], version)


def compacted(log: Log) -> Log:
    """The last record of each key, tombstones gone: what a cleaner leaves in the end."""
    last = {key: index for index, (key, _) in enumerate(log)}
    return [(key, value) for index, (key, value) in enumerate(log) if last[key] == index and value is not None]


class World:
    """The coordinator and the time."""

    def __init__(self, *, topics: TopicsView | None = None, **consumer: Any) -> None:
        own = ConsumerSettings(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=INTERVAL_MS, **consumer)
        self.settings = GroupSettings(consumer=own)
        self.now_ms = 1000
        self.topics = topics or view(a=6)
        self.log: Log = []
        self.requests = 0
        self.ids = 0
        self.replies: dict[int, Any] = {}
        self.put_out: set[str] = set()
        """Ids of members that were removed; a classic one may be back by its id, and learns with its next assignment
        that what it owned is not its own any more."""
        self.machine: GroupCoordinator
        self.move()

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    @property
    def group(self) -> ConsumerGroup:
        found = self.machine.groups[GROUP]
        assert isinstance(found, ConsumerGroup)
        return found

    @property
    def kind(self) -> str | None:
        found = self.machine.groups.get(GROUP)
        return None if found is None else found.kind

    @property
    def member_ids(self) -> set[str]:
        found = self.machine.groups.get(GROUP)
        return set() if found is None else set(found.members)  # type: ignore[attr-defined]

    def _machine(self, log: Log) -> GroupCoordinator:
        machine = GroupCoordinator(self.settings)
        for key, value in log:
            machine.load(key, value, None)
        return machine

    def ask(self, make: Any) -> Any:
        """The reply, if there is one at once."""
        self.requests += 1
        request_id = self.requests
        self._handle(make(request_id))
        return self.replies.pop(request_id, request_id)

    def _handle(self, event: Any) -> None:
        self.machine.metadata = self.topics
        before = self.member_ids
        self._carry_out(self.machine.handle(self.now_ms, event))
        self.put_out |= before - self.member_ids

    def _carry_out(self, result: Result[Any, Any]) -> None:
        for record in result.writes:
            if isinstance(record, PreparedRecords):
                assert len(result.writes) == 1
                self.log.extend(
                    (each.key or b"", each.value) for each in decode_records(record.body, record.count, 0, 0)
                )
            else:
                self.log.append(record.encode())
            self.machine.replay(record)
        self.replies.update(result.replies)

    def tick(self) -> bool:
        """Carries out one thing that is due now; whether there was one."""
        due = self.machine.next_due_ms
        if due is None or due > self.now_ms:
            return False
        self._handle(TimePassed(self.wall_ms))
        return True

    def pass_time(self, ms: int) -> None:
        """Deadlines come in their order."""
        end = self.now_ms + ms
        while (due := self.machine.next_due_ms) is not None and due <= end:
            self.now_ms = max(self.now_ms, due)
            self._handle(TimePassed(self.wall_ms))
        self.now_ms = end

    def move(self, *, clean: bool = False) -> None:
        """The coordinator is another broker's now, which knows the log alone; who waited is told so."""
        if clean:
            self.log = compacted(self.log)
        self.machine = self._machine(self.log)
        self.machine.metadata = self.topics
        self.replies.clear()
        self._carry_out(self.machine.loaded(self.now_ms, self.wall_ms))

    def check(self) -> None:
        """What is in the log, compacted or not, makes the same groups; no partition has two owners among members."""
        for log in (self.log, compacted(self.log)):
            loaded = self._machine(log).groups
            live = self.machine.groups
            for name in {*loaded, *live}:
                there, here = loaded.get(name), live.get(name)
                if isinstance(here, ConsumerGroup) or isinstance(there, ConsumerGroup):
                    assert there == here
        group = self.machine.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            self._check_owners(group)

    def _check_owners(self, group: ConsumerGroup) -> None:
        owners: dict[tuple[TopicId, int], str] = {}
        for member in group.members.values():
            for held in (member.assigned, member.pending_revocation):
                for id, partitions in held.items():
                    for partition in partitions:
                        assert owners.setdefault((id, partition), member.member_id) == member.member_id
                        assert group.owner(id, partition) == member.member_id
        given = [(id, p) for target in group.target.values() for id, each in target.items() for p in each]
        assert len(given) == len(set(given))
        assert set(group.target) <= set(group.members)
        assert group.classic_members == sum(member.classic is not None for member in group.members.values())


@dataclass
class Consumer:
    """A client of the newer protocol."""

    world: World
    member_id: str
    topics: frozenset[str] | None = frozenset({"a"})
    pattern: str | None = None
    instance: str | None = None
    assignor: str | None = None
    epoch: int = 0
    told: dict[TopicId, frozenset[int]] = field(default_factory=dict)
    owned: dict[TopicId, frozenset[int]] = field(default_factory=dict)
    is_alive: bool = True
    last: ConsumerHeartbeatReply | None = None
    rights: TopicRights | None = None
    missed: bool = False
    """It had no answer to its last heartbeat. An assignment is told once; a member that says all there is to say is
    told it again, and so does a client of KIP-848 after any failure."""

    def heartbeat(self, *, tell: bool = True, lose: bool = False, full: bool = False) -> ErrorCode:
        """Says that it lives; `tell` what it owns, `full` all there is to say; the answer may be lost on the way."""
        joins = self.epoch == 0
        full = full or self.missed
        world = self.world
        if joins:
            self.owned = {}
            self.told = {}
            world.put_out.discard(self.member_id)
        reply = world.ask(
            lambda request_id: ConsumerHeartbeat(
                request_id,
                GROUP,
                self.member_id,
                self.epoch,
                world.wall_ms,
                instance_id=self.instance,
                rebalance_timeout_ms=REBALANCE_MS if joins or full else -1,
                client_id="c",
                client_host="/h",
                topics=self.topics if joins or full else None,
                pattern=self.pattern if joins or full else None,
                assignor=self.assignor if joins or full else None,
                owned=dict(self.owned) if joins or tell or full else None,
                rights=self.rights,
            )
        )
        assert isinstance(reply, ConsumerHeartbeatReply)
        self.missed = lose
        if not lose:
            self._take(reply)
        return reply.error

    def _take(self, reply: ConsumerHeartbeatReply) -> None:
        self.last = reply
        if reply.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.epoch, self.owned, self.told = 0, {}, {}
        elif reply.error is ErrorCode.NONE:
            self.epoch = reply.epoch
            if reply.assignment is not None:
                self.told = dict(reply.assignment)

    def revoke(self) -> None:
        """Gives up what it is not to have any more."""
        kept = {id: each & self.told.get(id, frozenset()) for id, each in self.owned.items()}
        self.owned = {id: each for id, each in kept.items() if each}

    def reconcile(self) -> None:
        """Has what it was told to have; what is new only while its last word was answered: a coordinator that heard
        that it does not own a partition may have given it to another member since."""
        if self.missed:
            self.revoke()
        else:
            self.owned = dict(self.told)

    def leave(self, epoch: int = -1) -> ErrorCode:
        world = self.world
        reply = world.ask(
            lambda request_id: ConsumerHeartbeat(
                request_id, GROUP, self.member_id, epoch, world.wall_ms, instance_id=self.instance
            )
        )
        self.is_alive, self.owned, self.epoch = False, {}, 0
        error: ErrorCode = reply.error
        return error

    def step(self) -> None:
        """What a sound client does in a heartbeat interval."""
        self.heartbeat()
        self.revoke()
        self.heartbeat()
        self.reconcile()

    @property
    def partitions(self) -> set[tuple[TopicId, int]]:
        return {(id, partition) for id, each in self.owned.items() for partition in each}


@dataclass
class ClassicConsumer:
    """A client of the classic protocol, eager or cooperative."""

    world: World
    assignor: str = "range"
    topics: frozenset[str] = frozenset({"a"})
    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    owned: dict[TopicId, frozenset[int]] = field(default_factory=dict)
    is_alive: bool = True
    waits: tuple[str, int] | None = None
    """(what it has asked for, request id) while there is no answer."""
    joined: JoinReply | None = None

    def _metadata(self) -> bytes:
        kind = messages.ConsumerProtocolSubscription
        names = self.world.topics.names
        owned = [
            kind.TopicPartition(topic=names[id], partitions=sorted(each))
            for id, each in self.owned.items()
            if id in names
        ]
        body = kind(topics=sorted(self.topics), owned_partitions=owned, generation_id=self.generation)
        return b"\x00\x02" + codec.encode(body, 2)

    def join(self) -> None:
        if self.assignor == "range":
            self.owned = {}
        world = self.world
        world.ids += 1
        new_id = f"classic-{world.ids}"
        self._expect(
            "join",
            world.ask(
                lambda request_id: JoinGroup(
                    request_id,
                    GROUP,
                    self.member_id,
                    new_id,
                    "c",
                    "/h",
                    SESSION_MS,
                    REBALANCE_MS,
                    "consumer",
                    (Protocol(self.assignor, self._metadata()),),
                    world.wall_ms,
                    self.instance,
                )
            ),
        )

    def _expect(self, what: str, answer: Any) -> None:
        self.waits = None
        if isinstance(answer, int):
            self.waits = (what, answer)
        elif what == "join":
            self._joined(answer)
        else:
            self._synced(answer)

    def look(self) -> None:
        """Takes an answer that has come meanwhile."""
        if self.waits is not None and self.waits[1] in self.world.replies:
            self._expect(self.waits[0], self.world.replies.pop(self.waits[1]))

    def _joined(self, reply: JoinReply) -> None:
        if reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            self.join()
        elif reply.error is ErrorCode.NONE:
            self.member_id, self.generation, self.joined = reply.member_id, reply.generation, reply
            self.sync(reply)
        else:
            self._fail(reply.error)

    def _fail(self, error: ErrorCode) -> None:
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID):
            self.owned = {}
            self.generation = -1
        self.joined = None

    def sync(self, reply: JoinReply) -> None:
        world = self.world
        assignments: list[MemberAssignment] = []
        if reply.leader == reply.member_id:
            assignments = self._assign(reply)
        self._expect(
            "sync",
            world.ask(
                lambda request_id: SyncGroup(
                    request_id,
                    GROUP,
                    self.member_id,
                    reply.generation,
                    world.wall_ms,
                    self.instance,
                    reply.protocol_type,
                    reply.protocol,
                    assignments,
                )
            ),
        )

    def _assign(self, reply: JoinReply) -> list[MemberAssignment]:
        topics = self.world.topics
        members = {}
        for member in reply.members:
            told = parse_subscription(member.metadata)
            members[MemberId(member.member_id)] = Subscription(
                frozenset(told.topics),
                tuple(TopicPartition(each.topic, p) for each in told.owned_partitions for p in each.partitions),
                told.generation_id if told.generation_id >= 0 else None,
                member.instance_id,
            )
        assert reply.protocol is not None
        layouts = {name: topic.layout for name, topic in topics.topics.items()}
        given = CONSUMERS[reply.protocol].assign(members, layouts)
        answer = []
        for member_id, assignment in given.items():
            by_id: dict[TopicId, frozenset[int]] = {}
            for name, partition in assignment.partitions:
                id = topics.topics[name].topic_id
                by_id[id] = by_id.get(id, frozenset()) | {partition}
            answer.append(MemberAssignment(member_id, encode_assignment(by_id, topics, 2)))
        return answer

    def _synced(self, reply: Any) -> None:
        if reply.error is not ErrorCode.NONE:
            self._fail(reply.error)
            return
        topics = self.world.topics.topics
        self.world.put_out.discard(self.member_id)
        before = self.owned
        self.owned = {
            topics[name].topic_id: each for name, each in parse_assignment(reply.assignment).items() if name in topics
        }
        if self.assignor != "range" and any(each - self.owned.get(id, frozenset()) for id, each in before.items()):
            # A cooperative client that gave something up joins again, to say so.
            self.joined = None

    def step(self) -> None:
        """What a sound client does in a heartbeat interval."""
        self.look()
        if self.waits is not None:
            return
        if self.joined is None:
            self.join()
            return
        world = self.world
        reply = world.ask(
            lambda request_id: Heartbeat(request_id, GROUP, self.member_id, self.generation, self.instance)
        )
        if reply.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif reply.error is not ErrorCode.NONE:
            self._fail(reply.error)
            self.join()

    def lose_coordinator(self) -> None:
        """Whatever it waits for fails; it asks again."""
        if self.waits is not None:
            self.waits = None
            self.joined = None

    def leave(self) -> None:
        world = self.world
        self.is_alive, self.owned = False, {}
        if self.member_id:
            world.ask(
                lambda request_id: LeaveGroup(
                    request_id, GROUP, [LeavingMember(self.member_id, self.instance)], world.wall_ms
                )
            )

    @property
    def partitions(self) -> set[tuple[TopicId, int]]:
        return {(id, partition) for id, each in self.owned.items() for partition in each}


def check_clients(world: World, clients: list[Consumer | ClassicConsumer]) -> None:
    """No two members consume a partition: those that the coordinator put out may not know it yet."""
    group = world.machine.groups.get(GROUP)
    members = world.member_ids
    seen: dict[tuple[TopicId, int], str] = {}
    for client in clients:
        if not client.is_alive or client.member_id not in members or client.member_id in world.put_out:
            continue
        if isinstance(group, ClassicGroup) and getattr(client, "generation", None) != group.generation:
            # Of a generation that has passed a member hears with its next heartbeat.
            continue
        for place in client.partitions:
            if place[0] not in world.topics.names:
                # Nobody reads a topic that was deleted, and classic members cannot name it any more.
                continue
            assert place not in seen, f"{place} is consumed by {seen[place]} and {client.member_id}"
            seen[place] = client.member_id
