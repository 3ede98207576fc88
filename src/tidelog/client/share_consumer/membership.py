"""Membership in a share group (KIP-932): one heartbeat says and asks everything, the coordinator assigns.

    first heartbeat, epoch 0 ---> an epoch, maybe an assignment
    every heartbeat          ---> news of either

Partitions are shared: one that comes or goes need not be waited for, and nothing is given up first.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Collection
from typing import Any, Final

from tidelog.client.cluster import Cluster
from tidelog.client.coordination import CoordinatorConnection
from tidelog.client.errors import ClientError, ConnectionFailed, RequestTimedOut, refusal
from tidelog.client.operations import Deadline
from tidelog.client.share_consumer.settings import ShareConsumerSettings
from tidelog.model.errors import ErrorCode, KafkaError, error_code
from tidelog.model.identifiers import TopicId
from tidelog.protocol import messages
from tidelog.sharing.sessions import SharedPlace

logger: Final = logging.getLogger(__name__)

_JOINING: Final = 0
_LEAVING: Final = -1
_GIVEN_UP: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""What a member is told that the coordinator does not have, or not at this epoch."""


class ShareMembership:
    """A member of a share group; `wake` is called when the assignment changes, and when the group refuses us."""

    def __init__(
        self,
        cluster: Cluster,
        connection: CoordinatorConnection,
        group: str,
        settings: ShareConsumerSettings,
        wake: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._routing = cluster.routing
        self._connection = connection
        self._group = group
        self._settings = settings
        self._wake = wake
        self.member_id = str(uuid.uuid4())
        self.assignment: frozenset[SharedPlace] = frozenset()
        self._failure: Exception | None = None
        """Why the group does not take us."""
        self._complaint: Exception | None = None
        """What the coordinator has said last, and may say no more."""
        self._topics: list[str] = []
        self._told_topics: list[str] | None = None
        self._epoch = _JOINING
        self._is_joining = False
        """Whether the coordinator may have taken us in, and its answer is not here yet."""
        self._interval_s = 0.5
        self._idle_since: float | None = None
        """Since when the caller works on what it was given, in monotonic seconds; None: it waits for more."""
        self._left = False
        self._beat = asyncio.Event()
        """Set: the next heartbeat is due now."""
        self._heartbeats: asyncio.Task[None] | None = None

    def subscribe(self, topics: Collection[str]) -> None:
        """Wants records of these topics from now on."""
        self._topics = sorted(topics)
        self._beat.set()
        if self._heartbeats is None:
            self._heartbeats = asyncio.create_task(self._keep_alive())

    def raise_failure(self) -> None:
        """Raises why the group does not take us, or, once, what may pass."""
        complaint, self._complaint = self._complaint, None
        failure = self._failure or complaint
        if failure is not None:
            raise failure

    def polled(self, *, waiting: bool) -> None:
        """The caller waits for more, or does not any more, whatever it was given."""
        self._idle_since = None if waiting else time.monotonic()
        if waiting and self._left:
            self._left = False
            self._beat.set()

    async def _keep_alive(self) -> None:
        attempt = 0
        while True:
            self._beat.clear()
            try:
                again = not await self._heartbeat()
            except (KafkaError, ClientError) as error:
                if not _passes(error):
                    self._failure = error
                    self._wake()
                    return
                # The coordinator is away: it comes back, or another one, and says whether we are still members.
                logger.info("heartbeat failed: group=%s error=%s", self._group, error)
                self._told_topics = None
                again = True
            attempt = attempt + 1 if again else 0
            pause_s = self._routing.retry.pause_s(attempt, self._routing.draw) if again else self._interval_s
            try:
                async with asyncio.timeout(pause_s):
                    await self._beat.wait()
            except TimeoutError:
                pass
            await self._leave_if_idle()

    async def _heartbeat(self) -> bool:
        """One heartbeat; False where it is to be sent again soon. KafkaError where the group refuses us."""
        epoch, topics = self._epoch, self._topics
        tells = epoch == _JOINING or topics != self._told_topics
        request = messages.ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=epoch,
            rack_id=self._settings.rack if epoch == _JOINING else None,
            subscribed_topic_names=list(topics) if tells else None,
        )
        self._is_joining = epoch == _JOINING
        response = await self._connection.ask(
            request, lambda response: (response.error_code,), self._routing.deadline()
        )
        self._is_joining = False
        code = error_code(response.error_code)
        if code is ErrorCode.NONE:
            self._told_topics = topics
            self._take(response)
            return True
        if code in _GIVEN_UP and epoch != _JOINING:
            logger.info("joins anew: group=%s error=%s", self._group, code.name)
            self._start_over()
            return False
        if not code.retriable:
            text = response.error_message
            refused = refusal(code, f"group '{self._group}' does not take this member", text, group=self._group)
            if code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise refused
            # As Java's, the member stays what it is, and goes on when the right is given.
            self._complaint = refused
            self._wake()
        return False

    def _take(self, response: Any) -> None:
        self._epoch = response.member_epoch
        self._interval_s = max(0.001, response.heartbeat_interval_ms / 1000)
        if response.assignment is None:
            return
        assigned = frozenset(
            SharedPlace(TopicId(bytes(entry.topic_id)), partition)
            for entry in response.assignment.topic_partitions
            for partition in entry.partitions
        )
        if assigned != self.assignment:
            self.assignment = assigned
            self._wake()

    def _start_over(self) -> None:
        self._epoch = _JOINING
        self._told_topics = None
        self.assignment = frozenset()

    async def _leave_if_idle(self) -> None:
        idle_since = self._idle_since
        if idle_since is None or time.monotonic() - idle_since <= self._settings.max_poll_interval_s:
            return
        logger.warning("left the group: no_poll_within_s=%g group=%s", self._settings.max_poll_interval_s, self._group)
        await self._say_goodbye(self._routing.deadline(self._settings.close_timeout_s))
        self._start_over()
        self._left = True
        # The caller may have come back while the farewell was on its way.
        while self._left and self._idle_since is not None:
            await self._beat.wait()
            self._beat.clear()
        self._left = False

    async def leave(self, deadline: Deadline) -> None:
        """Ends the membership; where no coordinator answers until the deadline, its session timeout does."""
        if self._heartbeats is None:
            return
        heartbeats, self._heartbeats = self._heartbeats, None
        heartbeats.cancel()
        await asyncio.gather(heartbeats, return_exceptions=True)
        await self._say_goodbye(deadline)
        self._start_over()

    async def _say_goodbye(self, deadline: Deadline) -> None:
        if self._epoch <= _JOINING and not self._is_joining:
            return
        self._is_joining = False
        request = messages.ShareGroupHeartbeatRequest(
            group_id=self._group, member_id=self.member_id, member_epoch=_LEAVING
        )
        try:
            await self._connection.ask(request, lambda response: (response.error_code,), deadline)
        except (KafkaError, ClientError) as error:
            logger.info("leaving failed: group=%s error=%s", self._group, error)


def _passes(error: Exception) -> bool:
    """Whether the next heartbeat may go well."""
    if isinstance(error, KafkaError):
        return error.code.retriable
    return isinstance(error, (ConnectionFailed, RequestTimedOut))
