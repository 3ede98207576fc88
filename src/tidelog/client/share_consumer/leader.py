"""One broker, as a share consumer fetches from it and acknowledges to it: a connection and a session of its own.

A broker ends a share session with its connection and releases what is locked by it: a connection is one consumer's.
Requests go one after the other, since each names the session's epoch. Whatever goes wrong with one ends the session,
and closes the connection: what was locked then comes again, and what the caller still says of it is told as failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection
from tidelog.client.errors import ClientError, ConnectionFailed, UnsupportedByBroker, refusal
from tidelog.client.leader_hints import LeaderHint, hints
from tidelog.client.operations import Deadline
from tidelog.client.share_consumer.deliveries import AcknowledgeResult, Delivery, Taken, delivered
from tidelog.client.share_consumer.session import RENEWS_SINCE, LeaderSession
from tidelog.client.share_consumer.settings import ShareConsumerSettings
from tidelog.client.views import partition_error
from tidelog.model.errors import ErrorCode, KafkaError, TidelogError, error_code
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol.apis import ApiKey
from tidelog.sharing.sessions import SharedPlace

ANSWER_S_MAX: Final = 10.0
"""How long a broker may take beyond max_wait_ms: one that hangs, and does not lead any more, must be left soon."""
FORGOTTEN_S: Final = 60.0
"""How long after the end of its lock a record that nothing was said of is kept in mind."""
_LOCK_S: Final = 30.0
"""Of a lock whose duration the broker does not tell."""

Told = Callable[[list[AcknowledgeResult]], None]


class Fetched(NamedTuple):
    """What a fetch brought."""

    deliveries: list[Delivery]
    errors: dict[SharedPlace, KafkaError]
    """[partition] -> why it gave nothing."""
    refusals: dict[SharedPlace, KafkaError]
    """[partition] -> why acknowledgements were refused."""
    hints: dict[SharedPlace, LeaderHint]
    """[partition] -> the leader that the broker names instead of itself."""
    damage: list[KafkaError]
    """Of batches that could not be decoded."""


class Leader:
    """See the module; `told` is given the results of acknowledgements."""

    def __init__(
        self,
        cluster: Cluster,
        broker_id: int,
        group: str,
        member_id: str,
        settings: ShareConsumerSettings,
        told: Told,
    ) -> None:
        self._cluster = cluster
        self._broker_id = broker_id
        self._group = group
        self._told = told
        self._answer_s = settings.max_wait_ms / 1000 + ANSWER_S_MAX
        self._session = LeaderSession(group, member_id, settings)
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()
        self.deliveries: list[Delivery] = []
        """All of which something is locked, or is to be told."""
        self.failures = 0
        """In a row."""
        self.resting_until = 0.0
        """It is not asked before, in monotonic seconds."""
        self.lock_s: float | None = None
        """How long a lock lasts here, as told last."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""
        return self._turn.locked()

    @property
    def has_said(self) -> bool:
        """Whether there is something to be told to it."""
        return any(delivery.has_said for delivery in self.deliveries)

    @property
    def renews(self) -> bool:
        """Whether it renews locks; True where that is not known."""
        connection = self._connection
        served = connection.versions.get(ApiKey.SHARE_ACKNOWLEDGE) if connection is not None else None
        return served is None or served[1] >= RENEWS_SINCE

    def look(self) -> None:
        """Takes note of a connection that has ended meanwhile, and of what is not to be kept in mind any more."""
        if self._connection is not None and self._connection.closed:
            self._end(ConnectionFailed(f"the connection to {self._connection.address} ended, and the share session"))
        now = time.monotonic()
        for delivery in self.deliveries:
            if delivery.lock_ends_at + FORGOTTEN_S <= now and not delivery.has_said:
                delivery.forget()
        self.deliveries = [each for each in self.deliveries if not each.is_done]

    # Requests, one at a time

    async def fetch(self, wanted: Mapping[SharedPlace, TopicPartition]) -> Fetched:
        """Records of these partitions, with what is to be told; ClientError, or KafkaError for all of them."""
        async with self._turn:
            connection = await self._connected(self._cluster.routing.deadline(self._answer_s))
            self._tell_lost()
            apart = [each for each in self.deliveries if each.renews or each.place not in wanted]
            refusals = await self._acknowledge(apart) if any(each.has_said for each in apart) else {}
            taken = Taken(each for each in self.deliveries if each.place in wanted and not each.renews)
            request = self._session.fetch(wanted, taken.by_place())
            response = await self._ask(connection, request, taken, self._answer_s)
            fetched = self._take(response, wanted, taken)
            fetched.refusals.update(refusals)
            return fetched

    async def acknowledge(self, deadline: Deadline) -> None:
        """Tells all that is to be told, again where it may be taken later; results go to `told`."""
        attempt = 0
        while True:
            async with self._turn:
                self.look()
                self._tell_lost()
                if self.has_said:
                    try:
                        await self._acknowledge(self.deliveries)
                    except (ClientError, KafkaError):
                        self._tell_lost()  # The error is that of each result.
            attempt += 1
            if not self.has_said or not await self._cluster.run(self._cluster.routing.pause(attempt, deadline)):
                return

    async def close(self, deadline: Deadline) -> None:
        """Tells what is to be told, ends the session, so that what is locked is released, and the connection.

        What the broker could not take by the deadline is a failure, and told as such: those records come again.
        """
        try:
            async with asyncio.timeout(deadline.remaining_s):
                for delivery in self.deliveries:
                    delivery.renew_no_more()
                if self.has_said:
                    await self.acknowledge(deadline)
                async with self._turn:
                    self.look()
                    if self._connection is not None and self._session.is_open:
                        taken = Taken(self.deliveries)
                        response = await self._ask(
                            self._connection, self._session.close(taken.by_place()), taken, self._answer_s
                        )
                        self._told(self._acknowledged(response, taken))
        except (TimeoutError, ClientError, KafkaError):
            pass  # What was locked is released with the connection; what was said of it is told below.
        finally:
            self._end(ConnectionFailed("the share consumer closed before the broker took the acknowledgement"))
            self._tell_lost()

    async def _acknowledge(self, deliveries: list[Delivery]) -> dict[SharedPlace, KafkaError]:
        """A ShareAcknowledge of these; [partition] -> why it was refused there."""
        assert self._connection is not None
        taken = Taken(deliveries)
        request = self._session.acknowledge(taken.by_place(), renews=taken.renews)
        response = await self._ask(self._connection, request, taken, self._answer_s)
        self._told(self._acknowledged(response, taken))
        return self._refusals(response, taken, "error")

    async def _connected(self, deadline: Deadline) -> Connection:
        self.look()
        if self._connection is None:
            broker = self._cluster.routing.brokers.get(self._broker_id)
            if broker is None:
                raise ConnectionFailed(f"broker {self._broker_id} is not known any more")
            self._connection = await self._cluster.open(broker.address, timeout_s=deadline.remaining_s)
        return self._connection

    async def _ask(self, connection: Connection, request: Any, taken: Taken, timeout_s: float) -> Any:
        try:
            response = await connection.request(request, timeout_s=timeout_s)
        except ClientError as error:
            self._end(error)
            self._told(taken.failed(error))
            raise
        except asyncio.CancelledError:
            given_up = ConnectionFailed(f"a request to {connection.address} was given up")
            self._end(given_up)
            self._told(taken.failed(given_up))
            raise
        code = error_code(response.error_code)
        if code is ErrorCode.NONE:
            return response
        subject = f"the share session of group '{self._group}' with broker {self._broker_id}"
        refused = refusal(code, subject, response.error_message, group=self._group, broker=str(connection.address))
        self._end(refused)
        self._told(taken.failed(refused))
        raise refused

    # Answers

    def _take(self, response: Any, wanted: Mapping[SharedPlace, TopicPartition], taken: Taken) -> Fetched:
        now = time.monotonic()
        self.lock_s = response.acquisition_lock_timeout_ms / 1000 or _LOCK_S
        fetched = Fetched([], {}, self._refusals(response, taken, "acknowledge_error"), {}, [])
        hint_of = hints(response)
        for topic in response.responses:
            for data in topic.partitions:
                place = SharedPlace(TopicId(bytes(topic.topic_id)), data.partition_index)
                topic_partition = wanted.get(place)
                if topic_partition is None:
                    continue
                if data.error_code:
                    code = error_code(data.error_code)
                    fetched.errors[place] = partition_error(topic_partition, code, data.error_message)
                    hint = hint_of(data)
                    if hint is not None:
                        fetched.hints[place] = hint
                if data.acquired_records:
                    delivery, damage = delivered(place, topic_partition, data, now + self.lock_s)
                    fetched.deliveries.append(delivery)
                    if damage is not None:
                        fetched.damage.append(damage)
        self._told(self._answered(taken, fetched.refusals, self.lock_s))
        self.deliveries += fetched.deliveries
        self.look()
        return fetched

    def _acknowledged(self, response: Any, taken: Taken) -> list[AcknowledgeResult]:
        lock_ms = response.acquisition_lock_timeout_ms
        results = self._answered(
            taken, self._refusals(response, taken, "error"), lock_ms / 1000 if lock_ms else self.lock_s
        )
        self.look()
        return results

    def _answered(
        self, taken: Taken, refusals: Mapping[SharedPlace, KafkaError], lock_s: float | None
    ) -> list[AcknowledgeResult]:
        results = taken.answered(refusals, time.monotonic(), lock_s)
        # While it was on its way, a `look` has dropped what was taken as a whole. It may be to be told again.
        self.deliveries += [each for each in taken.deliveries if each not in self.deliveries]
        return results

    def _refusals(self, response: Any, taken: Taken, which: str) -> dict[SharedPlace, KafkaError]:
        """[partition] -> why acknowledgements were refused; `which` are the fields of it."""
        names = taken.names
        refusals: dict[SharedPlace, KafkaError] = {}
        for topic in response.responses:
            for data in topic.partitions:
                place = SharedPlace(TopicId(bytes(topic.topic_id)), data.partition_index)
                code = error_code(getattr(data, f"{which}_code"))
                if code is not ErrorCode.NONE and place in names:
                    refusals[place] = partition_error(names[place], code, getattr(data, f"{which}_message"))
        return refusals

    # The end of a session

    def _end(self, error: TidelogError) -> None:
        """The session is no more, for a reason: nothing is locked any more."""
        self._session.lost()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for delivery in self.deliveries:
            if delivery.lost is None:
                delivery.lost = error

    def _tell_lost(self) -> None:
        """What was said of records whose locks are no more cannot be told to the broker, but to the caller."""
        for delivery in self.deliveries:
            if delivery.lost is not None:
                self._told(Taken([delivery]).failed(delivery.lost))
        self.deliveries = [each for each in self.deliveries if not each.is_done]


def require_renewals(leader: Leader) -> None:
    """UnsupportedByBroker where the broker renews no locks."""
    if not leader.renews:
        raise UnsupportedByBroker(f"the broker renews no locks (ShareAcknowledge {RENEWS_SINCE})")
