"""The controller's way to one broker: its requests in order, one at a time, each repeated until it is answered."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, Final, Protocol

from tidelog.controller.events import (
    Event,
    LogEndsLearned,
    ReplicasFailed,
    ReplicasPostponed,
    ReplicasStopped,
    TopicIdsTold,
)
from tidelog.controller.result import Send
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import (
    NO_LEADER_EPOCH,
    ZERO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from tidelog.protocol.apis import ApiKey

logger = logging.getLogger(__name__)

RETRY_DELAY_MS_MIN: Final = 50
"""Before a broker that did not answer is tried again; doubled each time."""
RETRY_DELAY_MS_MAX: Final = 1_000
REFUSED_FOR_GOOD: Final = frozenset(
    {
        ErrorCode.STALE_CONTROLLER_EPOCH,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Errors that another try does not mend: another controller is in charge, or the broker has registered anew."""
NOT_REFUSED: Final = frozenset({ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR})
"""Of a partition, in an answer to LeaderAndIsr: carried out; overtaken by a later order; its log directory has failed.
With any other code (REPLICA_NOT_AVAILABLE: the broker tries again by itself) the broker does not lead or follow."""
NOT_YET: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT})
"""What a broker answers that lacks the store: it is told again, however long that takes."""
REFUSALS_MAX: Final = 10
"""How often a request is repeated to a broker that fails to carry it out."""


class SendRequest(Protocol):
    """The way to a broker, this one included."""

    def __call__(self, broker_id: BrokerId, key: int, version: int, message: Any) -> Awaitable[Any]:
        """Sends a message of protocol.messages, returns the response message. OSError when it cannot be delivered."""
        ...


class Channel:
    """The requests of this term for one registration of one broker: one at a time, in order, until each is answered."""

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        *,
        send: SendRequest,
        post: Callable[[Event], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """`post` takes what the answers amount to; `spawn` runs the deliveries, until `close`."""
        self.broker_epoch = broker_epoch
        self._broker_id = broker_id
        self._send = send
        self._post = post
        self._queue: deque[tuple[Send, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._closed = False
        self._delivery = spawn(self._deliver())

    def add(self, send: Send) -> asyncio.Future[None]:
        """Queues a request; done when it was answered, or when the broker is gone."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed:
            answered.set_result(None)
        else:
            self._queue.append((send, answered))
            self._wake.set()
        return answered

    def close(self) -> None:
        """Drops what is queued or under way: the broker is gone, or the controller's term has ended."""
        self._closed = True
        self._delivery.cancel()
        for _, answered in self._queue:
            if not answered.done():
                answered.set_result(None)
        self._queue.clear()

    async def _deliver(self) -> None:
        while True:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
                continue
            send, answered = self._queue[0]
            response = await self._answer_to(send)
            # The term may have closed the channel in the same turn in which the answer came.
            if self._queue and self._queue[0][1] is answered:
                self._queue.popleft()
                answered.set_result(None)
                if response is not None:
                    self._take(send, response)
            # While the channel waits for its next request it must not keep this one, which may name thousands.
            del send, answered, response

    async def _answer_to(self, send: Send) -> Any:
        """Repeats a request until the broker has answered; None where it will never do what is asked."""
        delay_ms, refusals = RETRY_DELAY_MS_MIN, 0
        while True:
            try:
                response = await self._send(send.broker_id, send.key, send.version, send.message)
            except OSError as error:
                if delay_ms == RETRY_DELAY_MS_MIN:
                    logger.warning("request repeated: broker=%d api=%d reason=%s", self._broker_id, send.key, error)
            else:
                # ListOffsets has errors of partitions only.
                code = ErrorCode.NONE if send.key == ApiKey.LIST_OFFSETS else response.error_code
                if code == ErrorCode.NONE:
                    return response
                refusals += code not in NOT_YET
                if code in REFUSED_FOR_GOOD or refusals > REFUSALS_MAX:
                    logger.warning("request refused: broker=%d api=%d error=%d", self._broker_id, send.key, code)
                    if code not in REFUSED_FOR_GOOD:
                        self._gave_up(send)
                    return None
            await asyncio.sleep(delay_ms / 1000)
            delay_ms = min(2 * delay_ms, RETRY_DELAY_MS_MAX)

    def _gave_up(self, send: Send) -> None:
        """The broker fails to carry out a request. Partitions would keep a leader that does not lead, or a topic that
        is to go."""
        if send.key == ApiKey.LEADER_AND_ISR:
            self._post(ReplicasPostponed(self._broker_id, _partitions_of(send.message)))
        elif send.key == ApiKey.STOP_REPLICA:
            errors = dict.fromkeys(_doomed(send.message), ErrorCode.UNKNOWN_SERVER_ERROR)
            self._post(ReplicasStopped(self._broker_id, errors))

    def _take(self, send: Send, response: Any) -> None:
        """Turns what a broker answered into events."""
        if send.key == ApiKey.STOP_REPLICA:
            errors = _deletions(send.message, response)
            if errors:
                self._post(ReplicasStopped(self._broker_id, errors))
        elif send.key == ApiKey.LEADER_AND_ISR:
            answers = list(_by_name(send.message, response))
            failed = _partitions_where(lambda code: code == ErrorCode.KAFKA_STORAGE_ERROR, answers)
            if failed:
                self._post(ReplicasFailed(self._broker_id, failed))
            not_taken_up = _partitions_where(lambda code: code not in NOT_REFUSED, answers)
            if not_taken_up:
                self._post(ReplicasPostponed(self._broker_id, not_taken_up))
            told = _told_ids(send.message, answers)
            if told:
                self._post(TopicIdsTold(self._broker_id, told))
        elif send.key == ApiKey.LIST_OFFSETS:
            self._post(LogEndsLearned(self._broker_id, _log_ends(response)))


def _partitions_of(request: Any) -> list[TopicPartition]:
    """All partitions of a LeaderAndIsr request."""
    return [
        TopicPartition(topic.topic_name, state.partition_index)
        for topic in request.topic_states
        for state in topic.partition_states
    ]


def _doomed(request: Any) -> list[TopicPartition]:
    """The partitions of a StopReplica request whose replicas are to be deleted."""
    return [
        TopicPartition(topic.topic_name, state.partition_index)
        for topic in request.topic_states
        for state in topic.partition_states
        if state.delete_partition
    ]


def _deletions(request: Any, response: Any) -> dict[TopicPartition, ErrorCode]:
    """What a StopReplica response says of the replicas that were to be deleted, not of those that only stop."""
    doomed = set(_doomed(request))
    answers = (
        (TopicPartition(error.topic_name, error.partition_index), ErrorCode(error.error_code))
        for error in response.partition_errors
    )
    return {topic_partition: error for topic_partition, error in answers if topic_partition in doomed}


def _log_ends(response: Any) -> dict[TopicPartition, tuple[LeaderEpoch, Offset]]:
    """What a ListOffsets response says of each partition; (-1, -1) in the place of an error."""
    return {
        TopicPartition(topic.name, found.partition_index): (NO_LEADER_EPOCH, Offset(-1))
        if found.error_code
        else (LeaderEpoch(found.leader_epoch), Offset(found.offset))
        for topic in response.topics
        for found in topic.partitions
    }


def _by_name(request: Any, response: Any) -> Iterator[tuple[str, Any]]:
    """Each topic of a LeaderAndIsr response (version 5 on: by topic id), with its name.

    Of topics that the request named without an id the broker may tell one; they come in the request's order.
    """
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states if topic.topic_id != ZERO_TOPIC_ID}
    without_id = (topic.topic_name for topic in request.topic_states if topic.topic_id == ZERO_TOPIC_ID)
    for topic in response.topics:
        name = names.get(topic.topic_id) or next(without_id, None)
        if name is not None:
            yield name, topic


def _partitions_where(holds: Callable[[int], bool], answers: Iterable[tuple[str, Any]]) -> list[TopicPartition]:
    """Partitions whose answer is a code of which `holds` is true."""
    return [
        TopicPartition(name, error.partition_index)
        for name, topic in answers
        for error in topic.partition_errors
        if holds(error.error_code)
    ]


def _told_ids(request: Any, answers: Iterable[tuple[str, Any]]) -> dict[TopicPartition, TopicId]:
    """Of topics that were named without an id: the one that the broker's logs have, zeros where they have none."""
    without_id = {topic.topic_name for topic in request.topic_states if topic.topic_id == ZERO_TOPIC_ID}
    return {
        TopicPartition(name, error.partition_index): TopicId(topic.topic_id)
        for name, topic in answers
        if name in without_id
        for error in topic.partition_errors
        if error.error_code == ErrorCode.NONE
    }
