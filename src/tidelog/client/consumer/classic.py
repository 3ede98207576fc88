"""Membership by the classic protocol: join, let the leader assign, keep the session alive.

    settle   [eager: give everything up] -> JoinGroup ---- all members are in ----> SyncGroup -> take what is assigned
                      ^                                                                 |
                      +------- heartbeat says REBALANCE_IN_PROGRESS, or members left <--+

The leader, one of the members, is told all subscriptions with the answer to its JoinGroup and runs the assignor.
Cooperative members (KIP-429) keep what they have: an assignment lacks what another member must give up first, and a
member that gave something up joins again, so that the next one hands it over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from tidelog.assignors.assignor import Subscription, user_data_of
from tidelog.client.cluster import Cluster
from tidelog.client.consumer.leading import assign
from tidelog.client.consumer.ownership import Ownership
from tidelog.client.consumer.patterns import SubscriptionPattern
from tidelog.client.consumer.settings import ConsumerSettings
from tidelog.client.coordination import CoordinatorConnection
from tidelog.client.errors import ClientError, Fenced, InvalidResponse, refusal
from tidelog.client.exchange import ByVersion
from tidelog.client.member_data import (
    InvalidMemberData,
    decode_assignment,
    encode_subscription,
)
from tidelog.client.offsets import GroupMember
from tidelog.client.operations import Deadline
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.consumer_protocol import PROTOCOL_TYPE

logger: Final = logging.getLogger(__name__)

NO_GENERATION: Final = -1
JOIN_GRACE_S: Final = 5.0
"""A JoinGroup is answered when the rebalance timeout has passed at the latest; this is for the way."""

_GIVEN_UP: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_AGAIN: Final = _GIVEN_UP | {ErrorCode.REBALANCE_IN_PROGRESS}


class ClassicMembership:
    """A member of a classic group; `wake` ends the caller's wait when there is something to settle."""

    def __init__(
        self,
        cluster: Cluster,
        connection: CoordinatorConnection,
        group: str,
        settings: ConsumerSettings,
        ownership: Ownership,
        wake: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._routing = cluster.routing
        self._connection = connection
        self._group = group
        self._settings = settings
        self._assignors = {assignor.name: assignor for assignor in settings.chosen_assignors()}
        self._ownership = ownership
        self._wake = wake
        self._topics: frozenset[str] = frozenset()
        self._member_id = ""
        self._generation = NO_GENERATION
        self._assigned_last: tuple[tuple[TopicPartition, ...], int | None] = ((), None)
        """What was ours and since which generation: sticky assignors want it, also when it was given up to join."""
        self._rejoin = False
        self._lost = False
        """Whether what we own is perhaps others' already: it is dropped before anything is owned anew."""
        self._failure: Exception | None = None
        """What a heartbeat was refused with, until the caller is told; Fenced for good."""
        self._leads = False
        self._laid_out: Mapping[str, int] | None = None
        self._in_join = False
        self._idle_since: float | None = None
        self._heartbeats: asyncio.Task[None] | None = None

    @property
    def member(self) -> GroupMember:
        # While the caller works on what is lost we have perhaps joined anew: it must not commit that as the new member.
        generation = NO_GENERATION if self._lost else self._generation
        return GroupMember(self._group, generation, self._member_id, self._settings.instance_id)

    @property
    def unsettled(self) -> bool:
        return self._rejoin or self._failure is not None

    def subscribe(self, topics: Collection[str], pattern: SubscriptionPattern | None = None) -> None:
        assert pattern is None, "coordinators match patterns in groups of KIP-848 only"
        self._topics = frozenset(topics)
        self._ask_to_rejoin()

    @property
    def laid_out(self) -> Mapping[str, int] | None:
        return self._laid_out if self._leads else None

    def layout_changed(self) -> None:
        if self._leads:
            self._ask_to_rejoin()

    def polled(self, waiting: bool) -> None:
        self._idle_since = None if waiting else time.monotonic()

    def _ask_to_rejoin(self) -> None:
        self._rejoin = True
        self._wake()

    def _give_up(self, code: ErrorCode) -> None:
        """The coordinator does not count on us any more."""
        if self._generation != NO_GENERATION:
            self._lost = True
        self._generation = NO_GENERATION
        if code is not ErrorCode.ILLEGAL_GENERATION:
            self._member_id = ""
        self._ask_to_rejoin()

    # Joining

    async def settle(self) -> None:
        attempt = 0
        while self.unsettled:
            if self._failure is not None:
                failure = self._failure
                if not isinstance(failure, Fenced):
                    self._failure = None  # It may pass: the next heartbeat says whether it has.
                raise failure
            await self._prepare()
            self._rejoin = False
            try:
                assigned = await self._join_if_reached()
                if assigned is not None:
                    await self._adopt(assigned)
            except BaseException:
                self._rejoin = True
                raise
            if assigned is None:
                self._rejoin = True
                attempt += 1
                await asyncio.sleep(self._routing.retry.pause_s(attempt, self._routing.draw))
            else:
                attempt = 0

    async def _prepare(self) -> None:
        """Before a rebalance: what must be given up is, while the former generation still counts."""
        owned = set(self._ownership.positions)
        if self._lost:
            await self._lose()
        elif not self._settings.cooperative:
            await self._ownership.revoke(owned, self._is_member)
        elif stale := {tp for tp in owned if tp.topic not in self._topics}:
            await self._ownership.revoke(stale, self._is_member)
        if self._lost:
            await self._lose()  # A heartbeat has said so meanwhile.

    def _is_member(self) -> bool:
        return not self._lost

    async def _lose(self) -> None:
        await self._ownership.lose()
        self._lost = False

    async def _adopt(self, assigned: frozenset[TopicPartition]) -> None:
        if self._lost:
            await self._lose()  # A heartbeat of before has said so meanwhile.
        owned = set(self._ownership.positions)
        gone = owned - assigned
        if gone:
            await self._ownership.revoke(gone, self._is_member)
            # What this member gave up waits for its next owner, which gets it in the rebalance that begins now.
            self._ask_to_rejoin()
        await self._ownership.assign(assigned - owned, self._is_member)

    async def _join_if_reached(self) -> frozenset[TopicPartition] | None:
        """As `_join`; None also where no coordinator was reached in time, or the leader reaches no broker."""
        try:
            return await self._join()
        except (KafkaError, ClientError) as error:
            if self._routing.fail_fast or not error.retriable:
                raise
            logger.warning("join failed: group=%s error=%s", self._group, error)
            return None

    async def _join(self) -> frozenset[TopicPartition] | None:
        """JoinGroup and SyncGroup: what is ours now, None where it must be tried again."""
        self._in_join = True
        try:
            joined = await self._ask_with_patience(self._join_request())
            if not self._accepted(joined):
                return None
            synced = await self._ask_with_patience(self._sync_request(joined, await self._assignments(joined)))
            return self._take(synced)
        finally:
            self._in_join = False
            self._start_heartbeats()

    async def _ask_with_patience(self, request: Any) -> Any:
        """Asks what is answered when all members have come, or their time is over."""
        timeout_s = self._settings.max_poll_interval_s + JOIN_GRACE_S
        return await self._connection.ask(
            request,
            lambda response: (response.error_code,),
            self._routing.deadline(timeout_s + self._routing.operation_timeout_s),
            timeout_s=timeout_s,
            blocks=True,
        )

    def _join_request(self) -> Any:
        kind = messages.JoinGroupRequest
        owned = tuple(sorted(self._ownership.positions))
        generation = None if self._generation == NO_GENERATION else self._generation
        protocols = [
            kind.JoinGroupRequestProtocol(
                name=name,
                metadata=encode_subscription(
                    Subscription(
                        topics=self._topics,
                        owned=owned,
                        generation=generation,
                        rack=self._settings.rack,
                        user_data=user_data_of(assignor, *self._assigned_last),
                    )
                ),
            )
            for name, assignor in self._assignors.items()
        ]
        return kind(
            group_id=self._group,
            session_timeout_ms=int(self._settings.session_timeout_s * 1000),
            rebalance_timeout_ms=int(self._settings.max_poll_interval_s * 1000),
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
        )

    def _accepted(self, joined: Any) -> bool:
        """Whether the coordinator took us in; False: again. KafkaError where it never will."""
        code = error_code(joined.error_code)
        if code is ErrorCode.NONE:
            self._member_id = joined.member_id
            self._generation = joined.generation_id
            self._leads = joined.leader == joined.member_id
            return True
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            # The coordinator wants to know the member before it waits for it (KIP-394).
            self._member_id = joined.member_id
        elif code in _GIVEN_UP:
            self._give_up(code)
        elif code is not ErrorCode.REBALANCE_IN_PROGRESS:
            raise self._refused(code)
        return False

    async def _assignments(self, joined: Any) -> dict[str, bytes]:
        """The assignment of every member if we lead and are to say it, by member id."""
        if not self._leads or joined.skip_assignment:
            return {}
        assignor = self._assignors.get(joined.protocol_name)
        if assignor is None:
            raise InvalidResponse(f"the coordinator chose the assignor {joined.protocol_name!r}, which we never named")
        assigned = await assign(self._cluster, assignor, joined.members)
        self._laid_out = assigned.laid_out
        return assigned.assignments

    def _sync_request(self, joined: Any, assignments: dict[str, bytes]) -> Any:
        kind = messages.SyncGroupRequest
        return kind(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=[
                kind.SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in assignments.items()
            ],
        )

    def _take(self, synced: Any) -> frozenset[TopicPartition] | None:
        code = error_code(synced.error_code)
        if code in _AGAIN:
            if code in _GIVEN_UP:
                self._give_up(code)
            return None
        if code is not ErrorCode.NONE:
            raise self._refused(code)
        try:
            assignment = decode_assignment(bytes(synced.assignment))
        except InvalidMemberData as error:
            raise InvalidResponse(
                f"the leader of group '{self._group}' assigned what cannot be read: {error}"
            ) from error
        assigned = frozenset(assignment.partitions)
        if any(tp.topic not in self._topics for tp in assigned):
            return None  # The subscription changed while the others were joining.
        self._assigned_last = (tuple(sorted(assigned)), self._generation)
        return assigned

    def _refused(self, code: ErrorCode) -> KafkaError:
        match code:
            case ErrorCode.FENCED_INSTANCE_ID | ErrorCode.UNRELEASED_INSTANCE_ID:
                return Fenced(
                    code, f"another member of group '{self._group}' goes by the name '{self._settings.instance_id}' now"
                )
            case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                names = ", ".join(self._assignors)
                return KafkaError(
                    code,
                    f"the members of group '{self._group}' have no assignor in common with ours: {names}; or it is a"
                    " share group",
                )
            case ErrorCode.INVALID_SESSION_TIMEOUT:
                return KafkaError(
                    code,
                    f"the broker does not allow a session timeout of {self._settings.session_timeout_s:g} s"
                    " (group.min.session.timeout.ms, group.max.session.timeout.ms)",
                )
            case _:
                return refusal(code, f"group '{self._group}' does not take this member", group=self._group)

    # Staying

    def _start_heartbeats(self) -> None:
        if self._heartbeats is None or self._heartbeats.done():
            self._heartbeats = asyncio.create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        """Heartbeats until the membership ends; none while we wait for the others, which is a sign of life itself."""
        while True:
            await asyncio.sleep(self._settings.heartbeat_interval_s)
            if self._in_join or self._generation == NO_GENERATION:
                continue
            idle_since = self._idle_since
            if idle_since is not None and time.monotonic() - idle_since > self._settings.max_poll_interval_s:
                logger.warning(
                    "left the group: no_poll_within_s=%g group=%s", self._settings.max_poll_interval_s, self._group
                )
                left = (self._generation, self._member_id)
                await self._say_goodbye("no poll within max.poll.interval.ms")
                if (self._generation, self._member_id) == left:  # Else we have joined anew before it was answered.
                    self._give_up(ErrorCode.UNKNOWN_MEMBER_ID)
                continue
            try:
                await self._heartbeat()
            except (KafkaError, ClientError) as error:
                # The coordinator is away: it comes back, or another one, and says whether we are still members.
                logger.info("heartbeat failed: group=%s error=%s", self._group, error)

    async def _heartbeat(self) -> None:
        generation, member_id = self._generation, self._member_id
        response = await self._connection.ask(
            messages.HeartbeatRequest(
                group_id=self._group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=self._settings.instance_id,
            ),
            lambda response: (response.error_code,),
            self._routing.deadline(self._settings.session_timeout_s),
        )
        if (self._generation, self._member_id) != (generation, member_id):
            return  # It was about an earlier generation.
        code = error_code(response.error_code)
        if self._in_join and code in _AGAIN:
            # We have asked for the next generation already, and hear from the answer to that whether we are in it.
            self._lost = self._lost or code is ErrorCode.ILLEGAL_GENERATION
        elif code in _GIVEN_UP:
            self._give_up(code)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._ask_to_rejoin()
        elif code is not ErrorCode.NONE:
            self._failure = self._refused(code)
            self._wake()

    # Leaving

    async def leave(self, deadline: Deadline) -> None:
        try:
            if self._heartbeats is not None:
                self._heartbeats.cancel()
                await asyncio.gather(self._heartbeats, return_exceptions=True)
        finally:  # Also for a caller that is cancelled here: the others would wait for the end of the session.
            self._heartbeats = None
            await self._say_goodbye("the consumer closed", deadline)
            self._member_id, self._generation = "", NO_GENERATION

    async def _say_goodbye(self, reason: str, deadline: Deadline | None = None) -> None:
        """LeaveGroup, unless the member is static: a consumer that comes back by its name is to have its partitions."""
        if not self._member_id or self._settings.instance_id is not None:
            return
        kind = messages.LeaveGroupRequest
        member_id = self._member_id

        def build(version: int) -> Any:
            if version < 3:
                return kind(group_id=self._group, member_id=member_id)
            return kind(group_id=self._group, members=[kind.MemberIdentity(member_id=member_id, reason=reason)])

        try:
            await self._connection.ask(
                ByVersion(ApiKey.LEAVE_GROUP, build),
                lambda response: (response.error_code,),
                deadline or self._routing.deadline(min(self._routing.call_timeout_s, self._settings.session_timeout_s)),
            )
        except (KafkaError, ClientError) as error:
            # Its session ends without our word too.
            logger.info("leaving failed: group=%s error=%s", self._group, error)
