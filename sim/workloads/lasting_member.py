"""A member whose session outlasts the run: from its first assignment on its group has a member, whatever breaks.

So a coordinator may delete neither the group nor the offsets that it has committed for the topic that the member reads,
and may not forget the member, though the group moves between coordinators again and again (invariant 15).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sim.invariants import require
from sim.workloads.classic_members import JOIN_S_MAX, PROTOCOL, encode_assignment, encode_subscription
from sim.workloads.coordination import Coordinator, KeyType
from sim.workloads.members import REBALANCE_S
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from sim.checks.group_history import GroupHistory
    from sim.workloads.client import Router
    from sim.world.randomness import SeededRandom
    from sim.world.trace import Trace
    from tidelog.model.identifiers import TopicPartition

SESSION_MS: Final = 30 * 60 * 1000
"""group.max.session.timeout.ms, as it is by default."""
INSTANCE: Final = "lasting"
PAUSE_S: Final = (0.1, 1.5)
"""Between two requests."""
JOINS_AGAIN: Final = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""What a join of its own that came late may bring about."""
FORGOTTEN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})


class LastingMember:
    """Alone in its group, with one partition."""

    def __init__(
        self, partition: TopicPartition, history: GroupHistory, router: Router, random: SeededRandom, trace: Trace
    ) -> None:
        self._partition = partition
        self._history = history
        self._router = router
        self._random = random
        self._trace = trace
        self._coordinator = Coordinator(router, KeyType.GROUP, history.group)
        self._member_id = ""
        """Empty while it has no assignment."""
        self._generation = -1
        self._has_joined = False
        """Whether it has had an assignment."""
        self._offset = 0
        self.refused = 0
        """Deletions."""
        self.stopping = False

    async def run(self) -> None:
        kinds = (self._beat, self._commit, self._delete_group, self._delete_offset)
        while not self.stopping:
            try:
                await (kinds[self._random.below(len(kinds))]() if self._member_id else self._join())
            except (OSError, TimeoutError) as error:
                self._trace.record("lasting_member_retries", repr(error))
            await asyncio.sleep(self._random.between(*PAUSE_S))
        self._router.close()

    async def _ask(self, key: ApiKey, request: Any) -> tuple[Any, bool]:
        """The answer, and whether the broker that gave it coordinates the group by what the store says."""
        led = self._history.leader()
        response = await self._coordinator.ask(key, request, timeout_s=JOIN_S_MAX)
        binds = led in (None, self._coordinator.broker) and self._history.is_coordinator(self._coordinator.broker)
        return response, binds

    async def _join(self) -> None:
        group, kind = self._history.group, messages.JoinGroupRequest
        joined, binds = await self._ask(
            ApiKey.JOIN_GROUP,
            kind(
                group_id=group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=int(REBALANCE_S * 1000),
                group_instance_id=INSTANCE,
                protocol_type="consumer",
                protocols=[
                    kind.JoinGroupRequestProtocol(name=PROTOCOL, metadata=encode_subscription([self._partition.topic]))
                ],
            ),
        )
        self._check(ErrorCode(joined.error_code), binds)
        sync = messages.SyncGroupRequest
        given = sync.SyncGroupRequestAssignment(
            member_id=joined.member_id, assignment=encode_assignment([self._partition])
        )
        synced, binds = await self._ask(
            ApiKey.SYNC_GROUP,
            sync(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=INSTANCE,
                protocol_type="consumer",
                protocol_name=PROTOCOL,
                assignments=[given],
            ),
        )
        self._check(ErrorCode(synced.error_code), binds)
        self._member_id, self._generation, self._has_joined = joined.member_id, joined.generation_id, True
        self._trace.record("lasting_member_joins", self._generation)

    async def _beat(self) -> None:
        request = messages.HeartbeatRequest(
            group_id=self._history.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=INSTANCE,
        )
        response, binds = await self._ask(ApiKey.HEARTBEAT, request)
        self._check(ErrorCode(response.error_code), binds)

    async def _commit(self) -> None:
        self._offset += 1 + self._random.below(5)
        offset, note, kind = self._offset, f"lasting/{self._offset}", messages.OffsetCommitRequest
        self._history.committing(self._partition, offset, note)
        wanted = kind.OffsetCommitRequestPartition(
            partition_index=self._partition.partition, committed_offset=offset, committed_metadata=note
        )
        request = kind(
            group_id=self._history.group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=INSTANCE,
            topics=[kind.OffsetCommitRequestTopic(name=self._partition.topic, partitions=[wanted])],
        )
        response, binds = await self._ask(ApiKey.OFFSET_COMMIT, request)
        self._check(ErrorCode(response.topics[0].partitions[0].error_code), binds)
        self._history.committed({self._partition: offset}, None, 0)

    async def _delete_group(self) -> None:
        response, binds = await self._ask(
            ApiKey.DELETE_GROUPS, messages.DeleteGroupsRequest(groups_names=[self._history.group])
        )
        self._refused(ErrorCode(response.results[0].error_code), binds)

    async def _delete_offset(self) -> None:
        kind = messages.OffsetDeleteRequest
        wanted = kind.OffsetDeleteRequestPartition(partition_index=self._partition.partition)
        topic = kind.OffsetDeleteRequestTopic(name=self._partition.topic, partitions=[wanted])
        response, binds = await self._ask(ApiKey.OFFSET_DELETE, kind(group_id=self._history.group, topics=[topic]))
        answers = [each.error_code for topic in response.topics for each in topic.partitions]
        self._refused(ErrorCode(response.error_code or answers[0]), binds)

    def _refused(self, code: ErrorCode, binds: bool) -> None:
        """Nothing is deleted of a group that has a member."""
        self._trace.record("lasting_group_stays", code.name)
        require(15, code is not ErrorCode.NONE, f"{self._history.group}: deleted, though it has a member")
        self.refused += 1
        self._check_known(code, binds)
        self._coordinator.check(code)

    def _check_known(self, code: ErrorCode, binds: bool) -> None:
        forgotten = self._has_joined and binds and code in FORGOTTEN
        require(
            15, not forgotten, f"{self._history.group}: its member's session lasts, and it is not known: {code.name}"
        )

    def _check(self, code: ErrorCode, binds: bool) -> None:
        """Raises ConnectionError where it is to try again, as a new member where it has to join."""
        self._check_known(code, binds)
        self._coordinator.check(code)
        if code in JOINS_AGAIN or code in FORGOTTEN:
            self._member_id = ""
        if code is not ErrorCode.NONE:
            raise ConnectionError(code.name)
