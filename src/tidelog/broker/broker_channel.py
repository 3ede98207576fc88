"""The controller's way to one broker: its requests in order, one at a time, each repeated until it is answered."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from tidelog.controller.events import Event, ReplicasFailed, ReplicasStopped, Send
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import BrokerEpoch, BrokerId, TopicPartition
from tidelog.protocol.apis import ApiKey

log = logging.getLogger(__name__)

RETRY_DELAY_MS: Final = 100
"""Before a broker that did not answer is tried again."""


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
        is_registered: Callable[[], bool],
        post: Callable[[Event], None],
    ) -> None:
        """`is_registered` tells whether that registration still holds; `post` takes what the answers amount to."""
        self.broker_epoch = broker_epoch
        self._broker_id = broker_id
        self._send = send
        self._is_registered = is_registered
        self._post = post
        self._queue: deque[tuple[Send, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._closed = False

    def add(self, send: Send) -> asyncio.Future[None]:
        """Queues a request; done when it was answered, or when the broker is gone."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((send, answered))
        self._wake.set()
        return answered

    def close(self) -> None:
        """Drops what is queued: nobody is there to hear it, or nobody to say it."""
        self._closed = True
        self._wake.set()
        for _, answered in self._queue:
            if not answered.done():
                answered.set_result(None)
        self._queue.clear()

    async def run(self) -> None:
        """Delivers until closed."""
        while not self._closed:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
                continue
            send, answered = self._queue[0]
            try:
                response = await self._send(send.broker_id, send.key, send.version, send.message)
            except OSError as error:
                if not self._is_registered():
                    self.close()
                    return
                log.warning("broker %d did not answer request %d, once more: %s", self._broker_id, send.key, error)
                await asyncio.sleep(RETRY_DELAY_MS / 1000)
                continue
            # Nothing is left of the queue when the channel was closed meanwhile.
            if self._queue and self._queue[0][1] is answered:
                self._queue.popleft()
                answered.set_result(None)
                self._take(send, response)
            # While the channel waits for its next request it must not keep this one, which may name thousands.
            del send, answered, response

    def _take(self, send: Send, response: Any) -> None:
        """Turns what a broker answered into events."""
        if response.error_code != ErrorCode.NONE:
            log.warning("broker %d refused request %d: error %d", self._broker_id, send.key, response.error_code)
            return
        if send.key == ApiKey.STOP_REPLICA:
            errors = {
                TopicPartition(error.topic_name, error.partition_index): ErrorCode(error.error_code)
                for error in response.partition_errors
            }
            self._post(ReplicasStopped(self._broker_id, errors))
        elif send.key == ApiKey.LEADER_AND_ISR:
            failed = _failed_partitions(send.message, response)
            if failed:
                self._post(ReplicasFailed(self._broker_id, failed))


def _failed_partitions(request: Any, response: Any) -> list[TopicPartition]:
    """Partitions that a LeaderAndIsr response (version 5 on: by topic id) reports on a failed log directory."""
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    return [
        TopicPartition(names[topic.topic_id], error.partition_index)
        for topic in response.topics
        for error in topic.partition_errors
        if error.error_code == ErrorCode.KAFKA_STORAGE_ERROR and topic.topic_id in names
    ]
