"""Membership by the protocol of KIP-848: the coordinator assigns, and one heartbeat says and asks everything.

    first heartbeat, epoch 0 ---> an id, an epoch, maybe an assignment
    every heartbeat          ---> news of either; an assignment lacks what another member must give up first
    settle: give up what is not in it, take what is new; the next heartbeat, sent at once, says what we have

All heartbeats are sent by one task, one after the other, since each is answered for the epoch that it names. The first
of a membership tells all about us; later ones only what has changed.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Collection
from typing import Any, Final

from tidelog.client.cluster import Cluster
from tidelog.client.consumer.ownership import Ownership
from tidelog.client.consumer.patterns import SubscriptionPattern
from tidelog.client.consumer.settings import ConsumerSettings
from tidelog.client.coordination import CoordinatorConnection
from tidelog.client.errors import (
    ClientError,
    ConnectionFailed,
    Fenced,
    RequestTimedOut,
    UnsupportedByBroker,
    refusal,
)
from tidelog.client.exchange import ByVersion
from tidelog.client.offsets import GroupMember
from tidelog.client.operations import Deadline
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey

logger: Final = logging.getLogger(__name__)

_JOINING: Final = 0
_LEAVING: Final = -1
_LEAVING_FOR_A_WHILE: Final = -2
"""A static member's farewell: its partitions wait for it until its session ends."""
_BEFORE_THE_FIRST_ANSWER_S: Final = 0.5
_PATTERNS_SINCE: Final = 1
"""From this version of ConsumerGroupHeartbeat on coordinators match patterns."""
_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_GIVEN_UP: Final = _FENCED | {ErrorCode.GROUP_ID_NOT_FOUND}
"""What a member is told that the coordinator does not have, or not at this epoch: with its last member a group may go.
To one that joins the third says that the group is of another kind."""


class NextGenerationMembership:
    """A member of a group of KIP-848; `wake` ends the caller's wait when there is something to settle."""

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
        self._ownership = ownership
        self._wake = wake
        self._topics: list[str] = []
        self._pattern: SubscriptionPattern | None = None
        self._member_id = str(uuid.uuid4())
        self._epoch = _JOINING
        self._is_joining = False
        """Whether the coordinator may have taken us in, and its answer is not here yet."""
        self._interval_s = _BEFORE_THE_FIRST_ANSWER_S
        self._tells_all = False
        """Whether the next heartbeat says all there is: the coordinator may have answered one, and raised our epoch.
        Then we name an epoch that is over, which it accepts only from a member that also says what it owns."""
        self._told_topics: list[str] | None = None
        self._told_pattern: SubscriptionPattern | None = None
        self._told_owned: dict[TopicId, list[int]] | None = None
        self._target: dict[TopicId, list[int]] | None = None
        """The assignment that came last and is not ours yet, [topic id] -> partitions."""
        self._last_assignment: dict[TopicId, list[int]] | None = None
        """The assignment that came last, ours or not. The coordinator tells it once, whatever epochs follow."""
        self._names: dict[TopicId, str] = {}
        """Of its topics, as far as any broker has shown them. One that lags may show none of them later."""
        self._assigned_ids: dict[TopicPartition, TopicId] = {}
        """[partition that we have] -> the topic's id in the assignment that gave it to us. Another topic may bear the
        name by now: its partitions are not ours before the coordinator says so."""
        self._unnamed = 0
        """How often in a row a topic of the assignment was not known."""
        self._lost = False
        self._failure: Exception | None = None
        """Why there will be no membership."""
        self._complaint: Exception | None = None
        """What the coordinator has said last, and may say no more: the next `settle` raises it."""
        self._idle_since: float | None = None
        self._left = False
        """Whether we are out of the group until the caller polls again."""
        self._beat = asyncio.Event()
        """Set: the next heartbeat is due now."""
        self._heartbeats: asyncio.Task[None] | None = None

    @property
    def member(self) -> GroupMember:
        # While the caller works on what is lost we have perhaps joined anew: it must not commit that as the new member.
        epoch = self._epoch if self._epoch > _JOINING and not self._lost else -1
        return GroupMember(self._group, epoch, self._member_id if epoch > 0 else "", self._settings.instance_id)

    @property
    def unsettled(self) -> bool:
        is_refused = self._failure is not None or self._complaint is not None
        return self._target is not None or self._lost or is_refused or self._heartbeats is None

    def subscribe(self, topics: Collection[str], pattern: SubscriptionPattern | None = None) -> None:
        self._topics = sorted(topics)
        self._pattern = pattern
        self._beat.set()

    @property
    def laid_out(self) -> None:
        """The coordinator assigns, and sees itself what becomes of topics."""
        return None

    def layout_changed(self) -> None:
        """Nothing to do, see `laid_out`."""

    def polled(self, waiting: bool) -> None:
        self._idle_since = None if waiting else time.monotonic()
        if waiting and self._left:
            self._left = False
            self._beat.set()

    # Taking what is assigned

    async def settle(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._complaint is not None:
            complaint, self._complaint = self._complaint, None
            raise complaint
        if self._heartbeats is None:
            self._heartbeats = asyncio.create_task(self._keep_alive())
        if self._lost:
            await self._ownership.lose()
            self._lost = False
            self._beat.set()
        target = self._target
        if target is None:
            return

        def still() -> bool:
            """Else there is a newer one, or we were fenced meanwhile."""
            return self._target is target

        assigned = await self._named(target)
        gone = {tp for tp in self._ownership.positions if assigned.get(tp) != self._assigned_ids[tp]}
        if still() and gone:
            await self._ownership.revoke(gone, still)
        if still() and (new := assigned.keys() - self._ownership.positions.keys()):
            self._assigned_ids = {tp: assigned[tp] for tp in {*self._ownership.positions, *new}}
            await self._ownership.assign(new, still)
        if still():
            self._target = None
            self._name_later(target)
        self._beat.set()

    def _name_later(self, target: dict[TopicId, list[int]]) -> None:
        """A topic of the assignment that no broker asked has heard of is asked for again, unless there is news."""
        if self._names.keys() >= target.keys():
            self._unnamed = 0
            return

        def again() -> None:
            if self._target is None and self._last_assignment is target:
                self._target = target
                self._wake()

        self._unnamed += 1
        pause_s = self._routing.retry.pause_s(self._unnamed, self._routing.draw)
        asyncio.get_running_loop().call_later(pause_s, again)

    async def _named(self, target: dict[TopicId, list[int]]) -> dict[TopicPartition, TopicId]:
        """The assignment by topic names, with the ids; partitions of topics without a known name are left out."""
        self._names = self._names_of(target)
        if self._names.keys() < target.keys():
            # Which topics a pattern has found, only the coordinator knows.
            topics = self._topics if self._pattern is None else None
            try:
                await self._cluster.run(self._routing.refresh(topics, self._routing.deadline()))
            except (ConnectionFailed, RequestTimedOut) as error:
                if self._routing.fail_fast:
                    raise
                logger.warning("topics not named: group=%s error=%s", self._group, error)
            self._names = self._names_of(target)
        return {
            TopicPartition(name, partition): topic_id
            for topic_id, name in self._names.items()
            for partition in target[topic_id]
        }

    def _names_of(self, topic_ids: Collection[TopicId]) -> dict[TopicId, str]:
        """[topic id] -> its name, where it is known now or was before."""
        names = ((topic_id, self._names.get(topic_id) or self._routing.topic_name(topic_id)) for topic_id in topic_ids)
        return {topic_id: name for topic_id, name in names if name is not None}

    # Heartbeats

    async def _keep_alive(self) -> None:
        attempt = 0
        while self._failure is None:
            self._beat.clear()
            try:
                again = not await self._heartbeat()
            except (KafkaError, ClientError) as error:
                if not _passes(error):
                    self._fail(error)
                    return
                # The coordinator is away: it comes back, or another one, and says whether we are still members.
                logger.info("heartbeat failed: group=%s error=%s", self._group, error)
                self._tells_all = again = True
            attempt = attempt + 1 if again else 0
            pause_s = self._routing.retry.pause_s(attempt, self._routing.draw) if again else self._interval_s
            try:
                async with asyncio.timeout(pause_s):
                    await self._beat.wait()
            except TimeoutError:
                pass
            await self._leave_if_idle()

    async def _leave_if_idle(self) -> None:
        idle_since = self._idle_since
        if idle_since is None or time.monotonic() - idle_since <= self._settings.max_poll_interval_s:
            return
        logger.warning("left the group: no_poll_within_s=%g group=%s", self._settings.max_poll_interval_s, self._group)
        await self._say_goodbye()
        self._start_over()
        self._left = True
        # The caller may have come back while the farewell was on its way.
        while self._left and self._idle_since is not None:
            await self._beat.wait()
            self._beat.clear()
        self._left = False

    async def _heartbeat(self) -> bool:
        """One heartbeat; False where it is to be sent again soon."""
        epoch, pattern = self._epoch, self._pattern
        owned = self._owned()
        request = self._request(owned)
        self._is_joining = epoch == _JOINING

        def tell_all() -> Any:
            nonlocal owned, pattern, request
            self._tells_all = True
            owned, pattern = self._owned(), self._pattern
            request = self._request(owned)
            return _by_version(request)

        response = await self._connection.ask(
            _by_version(request),
            lambda response: (response.error_code,),
            self._routing.deadline(self._settings.session_timeout_s),
            again=tell_all,
        )
        self._is_joining = self._tells_all = False
        code = error_code(response.error_code)
        if code is ErrorCode.NONE:
            if request.subscribed_topic_names is not None:
                self._told_topics = request.subscribed_topic_names
                self._told_pattern = pattern
            if request.topic_partitions is not None:
                self._told_owned = owned if request.topic_partitions else {}
            self._take(response)
            return True
        if code in (_FENCED if epoch == _JOINING else _GIVEN_UP):
            if epoch == _JOINING:
                self._member_id = str(uuid.uuid4())
            self._start_over()
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # As Java's, the member stays what it is, and goes on when the right is given.
            self._complaint = self._refused(code, response.error_message)
            self._wake()
        elif code is ErrorCode.UNRELEASED_INSTANCE_ID:
            # The member that had our name has left a moment ago, or never will.
            self._fail(self._refused(code, response.error_message))
        elif not code.retriable:
            self._fail(self._refused(code, response.error_message))
        return False

    def _request(self, owned: dict[TopicId, list[int]]) -> Any:
        kind = messages.ConsumerGroupHeartbeatRequest
        joins = self._epoch == _JOINING
        request = kind(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=self._settings.instance_id,
            rack_id=self._settings.rack,
        )
        if joins or self._tells_all:
            request.rebalance_timeout_ms = int(self._settings.max_poll_interval_s * 1000)
            request.server_assignor = self._settings.server_assignor
        if joins or self._tells_all or self._topics != self._told_topics or self._pattern != self._told_pattern:
            request.subscribed_topic_names = list(self._topics)
            if self._pattern is not None:
                request.subscribed_topic_regex = self._pattern.pattern
            elif self._told_pattern is not None:
                request.subscribed_topic_regex = ""  # Takes the former one back.
        if joins:
            request.topic_partitions = []
        elif self._tells_all or (owned != self._told_owned and self._target is None):
            request.topic_partitions = [
                kind.TopicPartitions(topic_id=topic_id, partitions=partitions) for topic_id, partitions in owned.items()
            ]
        return request

    def _owned(self) -> dict[TopicId, list[int]]:
        """What we have: [topic id] -> partitions. Nothing where it is lost, also before the caller comes back."""
        owned: dict[TopicId, list[int]] = {}
        if self._lost:
            return owned
        for topic_partition in sorted(self._ownership.positions):
            owned.setdefault(self._assigned_ids[topic_partition], []).append(topic_partition.partition)
        return owned

    def _take(self, response: Any) -> None:
        self._member_id = response.member_id or self._member_id
        self._epoch = response.member_epoch
        self._interval_s = max(0.001, response.heartbeat_interval_ms / 1000)
        if response.assignment is not None:
            self._target = self._last_assignment = {
                TopicId(bytes(entry.topic_id)): list(entry.partitions) for entry in response.assignment.topic_partitions
            }
            self._wake()

    def _start_over(self) -> None:
        """Joins anew, with nothing."""
        self._epoch = _JOINING
        self._told_topics = self._told_owned = self._target = self._told_pattern = self._last_assignment = None
        self._lost = bool(self._ownership.positions)
        self._wake()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._wake()

    def _refused(self, code: ErrorCode, text: str | None) -> KafkaError:
        if code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID):
            return Fenced(
                code, f"another member of group '{self._group}' goes by the name '{self._settings.instance_id}'"
            )
        return refusal(code, f"group '{self._group}' does not take this member", text, group=self._group)

    # Leaving

    async def leave(self, deadline: Deadline) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            try:
                await asyncio.gather(self._heartbeats, return_exceptions=True)
            finally:  # Also for a caller that is cancelled here: the others would wait for the end of the session.
                self._heartbeats = None
                await self._say_goodbye(deadline)
        self._epoch = _JOINING

    async def _say_goodbye(self, deadline: Deadline | None = None) -> None:
        if self._epoch <= _JOINING and not self._is_joining:
            return
        self._is_joining = False
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=_LEAVING if self._settings.instance_id is None else _LEAVING_FOR_A_WHILE,
            instance_id=self._settings.instance_id,
        )
        try:
            await self._connection.ask(
                request,
                lambda response: (response.error_code,),
                deadline or self._routing.deadline(min(self._routing.call_timeout_s, self._settings.session_timeout_s)),
            )
        except (KafkaError, ClientError) as error:
            logger.info("leaving failed: group=%s error=%s", self._group, error)


def _by_version(request: Any) -> Any:
    """A heartbeat for the version in use: patterns came with version 1."""

    def build(version: int) -> Any:
        if request.subscribed_topic_regex is not None and version < _PATTERNS_SINCE:
            raise UnsupportedByBroker(
                "the coordinator takes no SubscriptionPattern (ConsumerGroupHeartbeat 1): use re.compile(...)"
            )
        return request

    return ByVersion(ApiKey.CONSUMER_GROUP_HEARTBEAT, build)


def _passes(error: Exception) -> bool:
    """Whether the next heartbeat may go well."""
    if isinstance(error, KafkaError):
        return error.code.retriable
    return isinstance(error, (ConnectionFailed, RequestTimedOut))
