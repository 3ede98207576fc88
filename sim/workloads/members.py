"""Members of consumer groups while things break: they join, own partitions, commit, leave, vanish and come back.

`ClassicMember` speaks JoinGroup and SyncGroup, its leader assigns; `ConsumerMember` speaks KIP-848's heartbeat, the
broker assigns. One that vanishes says nothing for longer or shorter than its session lasts, and then goes on as if
nothing had been: what it commits as a stale member must be refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from sim.checks.group_history import NOTHING
from sim.invariants import require
from sim.workloads.coordination import Coordinator, KeyType
from tidelog.assignors.assignor import MemberId, Subscription, TopicLayout
from tidelog.assignors.range import RangeAssignor
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import codec, messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.checks.group_history import GroupHistory
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.model.identifiers import TopicId

PAUSE_S: Final = 0.1
HEARTBEAT_S: Final = 0.3
SESSION_S: Final = 3.0
STEADY_S: Final = 0.95 * SESSION_S
"""After a heartbeat that was answered, in which its member is in the group for sure."""
REBALANCE_S: Final = 4.0
JOIN_S_MAX: Final = 12.0
"""A join waits for all members; a client has patience."""
COMMIT_CHANCE: Final = 0.5
"""Of a commit at each heartbeat."""
ACT_CHANCE: Final = 0.03
"""Of leaving or vanishing, at each heartbeat."""
SLOPPY_CHANCE: Final = 0.3
"""Of a commit after a failure, before anything else."""
BELATED_CHANCE: Final = 0.3
"""Of a commit in the generation before, once a member has its assignment in the next: one held up on its way."""
PROTOCOL: Final = "range"
_INT16: Final = Struct(">h")
_SUBSCRIPTION_VERSION: Final = 3

MEMBERSHIP_LOST: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        # All members' sessions ended, and the group had no offsets: it has expired, with them.
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
STALE: Final = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH, *MEMBERSHIP_LOST})


class MustJoinError(ConnectionError):
    """What the member was is over: it joins, as the same member or, with a name lost, as a new one."""


class Member(ABC):
    """What both kinds do alike: positions and commits."""

    def __init__(
        self,
        name: str,
        topics: Sequence[TopicPartition],
        history: GroupHistory,
        router: Router,
        random: SeededRandom,
        trace: Trace,
    ) -> None:
        """`topics`: all partitions of what it subscribes to."""
        self.name = name
        self._partitions = list(topics)
        self._topics = sorted({partition.topic for partition in topics})
        self._history = history
        self._router = router
        self._random = random
        self._trace = trace
        self._coordinator = Coordinator(router, KeyType.GROUP, history.group)
        self._member_id = ""
        self._epoch = NOTHING
        """Generation, or member epoch."""
        self._assigned_epoch = NOTHING
        """The one that its positions belong to."""
        self.positions: dict[TopicPartition, int] = {}
        """Of what it owns."""
        self._commits = 0
        self.calm = False
        """Set it, and it neither leaves nor vanishes any more."""
        self.stopping = False
        """Set it, and `run` commits, leaves and returns."""

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self._join()
                await self._live()
            except (OSError, TimeoutError) as error:
                self._trace.record("member_retries", self.name, repr(error))
                await asyncio.sleep(self._random.between(0.0, 2 * PAUSE_S))
                if not self.calm and self._random.chance(SLOPPY_CHANCE):
                    # It may have joined without hearing of it: then its generation is over, and it does not know.
                    with contextlib.suppress(OSError, TimeoutError):
                        await self._commit()
        while self.positions:
            try:
                await self._commit(everything=True)
                await self._leave()
            except MustJoinError:
                self._give_up()
            except (OSError, TimeoutError):
                await asyncio.sleep(PAUSE_S)
        self._router.close()

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether it has an assignment, and nothing to wait for."""

    @abstractmethod
    async def _join(self) -> None:
        """Becomes a member with an assignment. OSError, TimeoutError: to be tried again."""

    @abstractmethod
    async def _heartbeat(self) -> None:
        """MustJoinError where the membership is over, or a rebalance calls."""

    @abstractmethod
    async def _leave(self) -> None:
        """Says goodbye, and owns nothing any more."""

    @abstractmethod
    def _generation(self) -> int | None:
        """The generation that its commits carry; None where that is a member epoch."""

    def _give_up(self) -> None:
        """Owns nothing any more."""
        self.positions.clear()

    async def _live(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._random.between(0.3 * HEARTBEAT_S, HEARTBEAT_S))
            await self._heartbeat()
            if self._random.chance(COMMIT_CHANCE):
                await self._commit()
            if not self.calm and self._random.chance(ACT_CHANCE):
                if self._random.chance(0.5):
                    await self._commit(everything=True)
                    await self._leave()
                    await asyncio.sleep(self._random.between(0.0, 2.0))
                    return
                await self._vanish()

    async def _vanish(self) -> None:
        """Says nothing for a while, then commits as if nothing had been."""
        self._trace.record("member_vanishes", self.name)
        self._router.close()
        await asyncio.sleep(self._random.between(0.1, 2.5 * SESSION_S))
        await self._commit(everything=True)

    # Offsets.

    async def _fetch_positions(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to go on, of partitions that it was given; 0 where nothing is committed."""
        if not partitions:
            return {}
        floors = self._history.floors()
        by_topic: dict[str, list[int]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(partition.partition)
        group = messages.OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=self._history.group,
            topics=[
                messages.OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic.items()
            ],
        )
        request = messages.OffsetFetchRequest(groups=[group], require_stable=True)
        response = await self._coordinator.ask(ApiKey.OFFSET_FETCH, request)
        (answer,) = response.groups
        self._coordinator.check(ErrorCode(answer.error_code))
        if answer.error_code:
            raise MustJoinError(ErrorCode(answer.error_code).name)
        found: dict[TopicPartition, int] = {}
        for topic in answer.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                code = ErrorCode(result.error_code)
                if code is not ErrorCode.NONE:
                    raise ConnectionError(f"{partition}: {code.name}")
                self._history.fetched(partition, result.committed_offset, result.metadata or "", floors)
                found[partition] = max(result.committed_offset, 0)
        require(15, set(found) == set(partitions), f"{self._history.group}: asked for {partitions}, told of {found}")
        return found

    async def _commit(self, *, everything: bool = False) -> None:
        """Commits what it has come to in some of its partitions, or all."""
        chosen = [each for each in self.positions if everything or self._random.chance(0.6)]
        if not chosen:
            return
        self._commits += 1
        note = f"{self.name}/{self._commits}"
        commits: dict[TopicPartition, int] = {}
        by_topic: dict[str, list[Any]] = {}
        for partition in chosen:
            self.positions[partition] += 1 + self._random.below(5)
            commits[partition] = self.positions[partition]
            self._history.committing(partition, commits[partition], note)
            by_topic.setdefault(partition.topic, []).append(
                messages.OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=partition.partition, committed_offset=commits[partition], committed_metadata=note
                )
            )
        request = messages.OffsetCommitRequest(
            group_id=self._history.group,
            generation_id_or_member_epoch=self._assigned_epoch,
            member_id=self._member_id,
            topics=[
                messages.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
        )
        generation, newest = self._generation(), self._history.newest
        response = await self._coordinator.ask(ApiKey.OFFSET_COMMIT, request)
        codes = {
            TopicPartition(topic.name, result.partition_index): ErrorCode(result.error_code)
            for topic in response.topics
            for result in topic.partitions
        }
        self._trace.record("commits", self.name, self._assigned_epoch, sorted({code.name for code in codes.values()}))
        taken = {partition: offset for partition, offset in commits.items() if codes[partition] is ErrorCode.NONE}
        self._history.committed(taken, generation, newest)
        for code in codes.values():
            self._coordinator.check(code)
            if code in STALE:
                self._history.refused += 1
                self._fenced(code)
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                raise MustJoinError(code.name)
            if code is not ErrorCode.NONE:
                raise ConnectionError(code.name)

    def _fenced(self, code: ErrorCode) -> None:
        self._give_up()
        if code in MEMBERSHIP_LOST:
            self._forget_name()
        raise MustJoinError(code.name)

    def _forget_name(self) -> None:
        self._member_id = ""


class ClassicMember(Member):
    """See the module. `belated` is what commits of a former generation are drawn from."""

    def __init__(self, *arguments: Any, belated: SeededRandom) -> None:
        super().__init__(*arguments)
        self._belated = belated

    @property
    def is_settled(self) -> bool:
        return self._epoch == self._history.newest and self._is_stable

    _is_stable = False

    async def _join(self) -> None:
        self._is_stable = False
        joined = await self._join_group()
        assignments = self._assign(joined) if joined.leader == joined.member_id else []
        self._epoch = joined.generation_id
        request = messages.SyncGroupRequest(
            group_id=self._history.group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        response = await self._coordinator.ask(ApiKey.SYNC_GROUP, request, timeout_s=JOIN_S_MAX)
        self._check(ErrorCode(response.error_code))
        version = _INT16.unpack_from(response.assignment)[0]
        body = codec.decode_exactly(messages.ConsumerProtocolAssignment, version, response.assignment[2:])
        own = [TopicPartition(topic.topic, index) for topic in body.assigned_partitions for index in topic.partitions]
        self._trace.record("assigned", self.name, self._epoch, len(own))
        self._history.assigned(self._member_id, self._epoch, own)
        if self._belated.chance(BELATED_CHANCE):
            await self._commit_belatedly()
        self._give_up()
        self._assigned_epoch = self._epoch
        self.positions = await self._fetch_positions(own)
        self._is_stable = True

    async def _commit_belatedly(self) -> None:
        """Commits in the generation before, which is over though it is a member in this one: must be refused."""
        if not self.positions or not 0 <= self._assigned_epoch < self._epoch:
            return
        self._commits += 1
        note = f"{self.name}/{self._commits}"
        partition = min(self.positions)
        offset = self.positions[partition] + 1
        self._history.committing(partition, offset, note)
        kind = messages.OffsetCommitRequest
        request = kind(
            group_id=self._history.group,
            generation_id_or_member_epoch=self._assigned_epoch,
            member_id=self._member_id,
            topics=[
                kind.OffsetCommitRequestTopic(
                    name=partition.topic,
                    partitions=[
                        kind.OffsetCommitRequestPartition(
                            partition_index=partition.partition, committed_offset=offset, committed_metadata=note
                        )
                    ],
                )
            ],
        )
        newest = self._history.newest
        response = await self._coordinator.ask(ApiKey.OFFSET_COMMIT, request)
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        self._trace.record("commits_belatedly", self.name, self._assigned_epoch, code.name)
        if code is ErrorCode.NONE:
            self._history.committed({partition: offset}, self._assigned_epoch, newest)
        elif code in STALE:
            self._history.refused += 1

    async def _join_group(self) -> Any:
        subscription = messages.ConsumerProtocolSubscription(topics=self._topics)
        encoded = _INT16.pack(_SUBSCRIPTION_VERSION) + codec.encode(subscription, _SUBSCRIPTION_VERSION)
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
            by_topic: dict[str, list[int]] = {}
            for partition in assignment.partitions:
                by_topic.setdefault(partition.topic, []).append(partition.partition)
            body = messages.ConsumerProtocolAssignment(
                assigned_partitions=[
                    messages.ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=indexes)
                    for topic, indexes in by_topic.items()
                ]
            )
            data = _INT16.pack(_SUBSCRIPTION_VERSION) + codec.encode(body, _SUBSCRIPTION_VERSION)
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


class ConsumerMember(Member):
    """See the module."""

    def __init__(self, *arguments: Any, topic_ids: dict[str, TopicId], belated: SeededRandom) -> None:
        """`topic_ids`: [name] -> id of what it subscribes to; filled in when the topics are there. `belated`: what
        commits with a former epoch are drawn from."""
        super().__init__(*arguments)
        self._topic_ids = topic_ids
        self._lives = 0
        self._heard_at = 0.0
        self._target: list[TopicPartition] | None = None
        self._says_all = True
        self._belated = belated
        self._steady_at: float | None = None
        """When the last heartbeat was sent, if the coordinator has answered it; None after one that it has not."""
        self._held: list[TopicPartition] = []
        """What it was given and has not given up; it has no positions in some of it before it has asked for them."""

    @property
    def is_settled(self) -> bool:
        return self._epoch > 0 and (self._target is None or set(self._target) == set(self.positions))

    async def _join(self) -> None:
        if not self._member_id:
            # Since version 1 of the heartbeat a member names itself.
            self._lives += 1
            self._member_id = f"{self.name}-{self._lives}"
            self._epoch = 0
        if self._epoch <= 0:
            self._target = None
            self._give_up()
            await self._heartbeat()

    async def _heartbeat(self) -> None:
        # What an answer said that did not arrive is told again to who says all of itself again.
        says_all, self._says_all = self._says_all or self._epoch == 0, True
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id=self._history.group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=int(10 * REBALANCE_S * 1000) if says_all else -1,
            subscribed_topic_names=self._topics if says_all else None,
            server_assignor="range" if self._epoch == 0 and self._random.chance(0.3) else None,
            topic_partitions=self._by_id(self._held),
        )
        sent_at = self._history.now()
        steady_at, self._steady_at = self._steady_at, None
        response = await self._coordinator.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
        code = ErrorCode(response.error_code)
        self._coordinator.check(code)
        is_coordinator = self._history.is_coordinator(self._coordinator.broker)
        if code in STALE:
            if code is ErrorCode.UNKNOWN_MEMBER_ID and steady_at is not None and is_coordinator:
                silent_s = self._history.now() - steady_at
                told = f"{self._history.group}: {self._member_id} is put out, and was last heard {silent_s:.2f} s ago"
                require(15, silent_s >= STEADY_S, told)
            self._fenced(code)
        if code is not ErrorCode.NONE:
            raise ConnectionError(f"{code.name}: {response.error_message}")
        self._says_all = False
        told = f"{self._history.group}: {self._member_id} says all of itself, and is not told its assignment"
        require(15, not says_all or response.assignment is not None, told)
        if is_coordinator:
            self._heard_at = self._steady_at = sent_at
        before, self._epoch = self._epoch, response.member_epoch
        self._assigned_epoch = self._epoch
        if response.assignment is not None:
            names = {id: name for name, id in self._topic_ids.items()}
            self._target = [
                TopicPartition(names[bytes(topic.topic_id)], index)  # type: ignore[index]
                for topic in response.assignment.topic_partitions
                for index in topic.partitions
            ]
        await self._reconcile(is_coordinator=is_coordinator, before=before)

    async def _reconcile(self, *, is_coordinator: bool, before: int) -> None:
        """Gives up what is not its own any more, said with the next heartbeat; begins with what is new. `before`: the
        epoch that it had until now.

        What a broker gave that is not the coordinator any more is no claim on a partition.
        """
        if self._target is None:
            return
        gone = [partition for partition in self._held if partition not in self._target]
        if gone:
            if self._random.chance(0.5):
                await self._commit(everything=True)
            for partition in gone:
                self._held.remove(partition)
                self.positions.pop(partition, None)
            self._history.released(self._member_id, gone)
        given = [partition for partition in self._target if partition not in self._held]
        for partition in given:
            if is_coordinator:
                self._history.taken(self._member_id, partition, self._valid_until(self._member_id))
            self._held.append(partition)
        new = [partition for partition in self._held if partition not in self.positions]
        self.positions |= await self._fetch_positions(new)
        if given and is_coordinator and before > 1 and self._belated.chance(BELATED_CHANCE):
            await self._commit_belatedly(min(given), before - 1)

    async def _commit_belatedly(self, partition: TopicPartition, epoch: int) -> None:
        """Commits, as if held up on the way, with an epoch in which it did not have the partition: must be refused."""
        self._commits += 1
        note = f"{self.name}/{self._commits}"
        offset = self.positions[partition] + 1
        self._history.committing(partition, offset, note)
        kind = messages.OffsetCommitRequest
        committed = kind.OffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=offset, committed_metadata=note
        )
        request = kind(
            group_id=self._history.group,
            generation_id_or_member_epoch=epoch,
            member_id=self._member_id,
            topics=[kind.OffsetCommitRequestTopic(name=partition.topic, partitions=[committed])],
        )
        response = await self._coordinator.ask(ApiKey.OFFSET_COMMIT, request)
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        self._trace.record("commits_belatedly", self.name, epoch, code.name)
        told = f"{self._history.group}: {self.name} commits {partition} with epoch {epoch}, of before it was given that"
        require(15, code is not ErrorCode.NONE, told)
        self._history.refused += code in STALE

    def _valid_until(self, member_id: str) -> Any:
        # A member under a new name has nothing to do with what the former one was promised.
        last = self._heard_at

        def until() -> float:
            return (self._heard_at if self._member_id == member_id else last) + SESSION_S * 0.99

        return until

    async def _leave(self) -> None:
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id=self._history.group, member_id=self._member_id, member_epoch=-1
        )
        # Others may have what was its own before the answer comes; and should none come, its session ends it.
        self._give_up()
        self._forget_name()
        response = await self._coordinator.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
        self._coordinator.check(ErrorCode(response.error_code))
        self._trace.record("leaves", self.name)

    def _give_up(self) -> None:
        self._history.released(self._member_id, self._held)
        self._held.clear()
        super()._give_up()

    def _forget_name(self) -> None:
        super()._forget_name()
        self._epoch = 0

    def _by_id(self, partitions: Sequence[TopicPartition]) -> list[Any]:
        by_topic: dict[str, list[int]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(partition.partition)
        return [
            messages.ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=self._topic_ids[topic], partitions=indexes)
            for topic, indexes in by_topic.items()
        ]

    def _generation(self) -> int | None:
        return None
