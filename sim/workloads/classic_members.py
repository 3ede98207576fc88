"""Members of groups of the classic protocol: JoinGroup and SyncGroup; the group's leader assigns."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from sim.invariants import require
from sim.workloads.coordination import by_topic
from sim.workloads.members import BELATED_CHANCE, REBALANCE_S, SESSION_S, STALE, Member, MustJoinError
from tidelog.assignors.assignor import MemberId, Subscription, TopicLayout
from tidelog.assignors.range import RangeAssignor
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import codec, messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

JOIN_S_MAX: Final = 12.0
"""A join waits for all members; a client has patience."""
PROTOCOL: Final = "range"
_INT16: Final = Struct(">h")
_SUBSCRIPTION_VERSION: Final = 3


def encode_subscription(topics: Sequence[str]) -> bytes:
    """What a member of a consumer group joins with."""
    body = messages.ConsumerProtocolSubscription(topics=list(topics))
    return _INT16.pack(_SUBSCRIPTION_VERSION) + codec.encode(body, _SUBSCRIPTION_VERSION)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """What a leader gives a member."""
    kind = messages.ConsumerProtocolAssignment
    own = [kind.TopicPartition(topic=topic, partitions=indexes) for topic, indexes in by_topic(partitions).items()]
    return _INT16.pack(_SUBSCRIPTION_VERSION) + codec.encode(kind(assigned_partitions=own), _SUBSCRIPTION_VERSION)


class ClassicMember(Member):
    """See the module."""

    _is_stable = False
    """Whether it has its assignment, and its positions, in the generation that it knows."""

    @property
    def is_settled(self) -> bool:
        return self._epoch == self._history.newest and self._is_stable

    async def _join(self) -> None:
        self._is_stable = False
        joined = await self._join_group()
        assignments = self._assign(joined) if joined.leader == joined.member_id else []
        self._epoch = joined.generation_id
        response = await self._sync_group(self._epoch, assignments)
        self._check(ErrorCode(response.error_code))
        version = _INT16.unpack_from(response.assignment)[0]
        body = codec.decode_exactly(messages.ConsumerProtocolAssignment, version, response.assignment[2:])
        own = [TopicPartition(topic.topic, index) for topic in body.assigned_partitions for index in topic.partitions]
        self._trace.record("assigned", self.name, self._epoch, len(own))
        self._history.assigned(self._member_id, self._epoch, own)
        if self._belated.chance(BELATED_CHANCE):
            await self._commit_in_the_generation_before()
        if self._belated.chance(BELATED_CHANCE):
            await self._sync_in_the_generation_before()
        self._give_up()
        self._assigned_epoch = self._epoch
        self.positions = await self._fetch_positions(own)
        self._is_stable = True

    async def _sync_group(
        self, generation: int, assignments: list[messages.SyncGroupRequest.SyncGroupRequestAssignment]
    ) -> Any:
        request = messages.SyncGroupRequest(
            group_id=self._history.group,
            generation_id=generation,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        return await self._coordinator.ask(ApiKey.SYNC_GROUP, request, timeout_s=JOIN_S_MAX)

    async def _sync_in_the_generation_before(self) -> None:
        """As if held up on the way: the coordinator that knows the generation of now must refuse it."""
        told_by = self._coordinator.broker
        code = ErrorCode((await self._sync_group(self._epoch - 1, [])).error_code)
        self._trace.record("syncs_belatedly", self.name, self._epoch - 1, code.name)
        told = f"{self.name} is given an assignment in generation {self._epoch - 1}, of generation {self._epoch}"
        require(15, code is not ErrorCode.NONE or self._coordinator.broker != told_by, told)

    async def _commit_in_the_generation_before(self) -> None:
        """It is over, though this is a member in the next one: the commit must be refused."""
        if not self.positions or not 0 <= self._assigned_epoch < self._epoch:
            return
        partition = min(self.positions)
        newest = self._history.newest
        if await self._commit_belatedly(partition, self._assigned_epoch) is ErrorCode.NONE:
            self._history.committed({partition: self.positions[partition] + 1}, self._assigned_epoch, newest)

    async def _join_group(self) -> Any:
        encoded = encode_subscription(self._topics)
        while True:
            request = messages.JoinGroupRequest(
                group_id=self._history.group,
                session_timeout_ms=int(SESSION_S * 1000),
                rebalance_timeout_ms=int(REBALANCE_S * 1000),
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[messages.JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL, metadata=encoded)],
            )
            response = await self._coordinator.ask(ApiKey.JOIN_GROUP, request, timeout_s=JOIN_S_MAX)
            code = ErrorCode(response.error_code)
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = response.member_id
                continue
            self._check(code)
            self._member_id = response.member_id
            return response

    def _assign(self, joined: Any) -> list[messages.SyncGroupRequest.SyncGroupRequestAssignment]:
        members = {}
        for member in joined.members:
            version = _INT16.unpack_from(member.metadata)[0]
            told = codec.decode_exactly(messages.ConsumerProtocolSubscription, version, member.metadata[2:])
            members[MemberId(member.member_id)] = Subscription(frozenset(told.topics))
        layouts = {
            topic: TopicLayout(sum(partition.topic == topic for partition in self._partitions))
            for topic in self._topics
        }
        assignments = []
        for member, assignment in RangeAssignor().assign(members, layouts).items():
            data = encode_assignment(assignment.partitions)
            assignments.append(messages.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=data))
        return assignments

    async def _heartbeat(self) -> None:
        request = messages.HeartbeatRequest(
            group_id=self._history.group, generation_id=self._epoch, member_id=self._member_id
        )
        response = await self._coordinator.ask(ApiKey.HEARTBEAT, request)
        code = ErrorCode(response.error_code)
        if code is ErrorCode.REBALANCE_IN_PROGRESS and self._random.chance(0.5):
            # What was done until now may still be committed.
            await self._commit()
        self._check(code)

    async def _leave(self) -> None:
        identity = messages.LeaveGroupRequest.MemberIdentity(member_id=self._member_id)
        request = messages.LeaveGroupRequest(group_id=self._history.group, members=[identity])
        response = await self._coordinator.ask(ApiKey.LEAVE_GROUP, request)
        self._coordinator.check(ErrorCode(response.error_code))
        self._trace.record("leaves", self.name)
        self._is_stable = False
        self._forget_name()
        self._give_up()

    def _check(self, code: ErrorCode) -> None:
        self._coordinator.check(code)
        if code in STALE:
            self._fenced(code)
        if code is not ErrorCode.NONE:
            raise MustJoinError(code.name)

    def _generation(self) -> int | None:
        return self._assigned_epoch
