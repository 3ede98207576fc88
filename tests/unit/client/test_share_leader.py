"""How a share consumer leaves a broker: what it said of records is taken, or told as failed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection
from tidelog.client.errors import ConnectionFailed
from tidelog.client.operations import Deadline
from tidelog.client.share_consumer.deliveries import AcknowledgeResult, AcknowledgeType, Delivery
from tidelog.client.share_consumer.leader import Leader
from tidelog.client.share_consumer.settings import ShareConsumerSettings
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicId, TopicPartition
from tidelog.protocol import messages
from tidelog.sharing.sessions import FINAL_EPOCH, SharedPlace

T0 = TopicPartition("t", 0)
P0 = SharedPlace(TopicId(bytes([1]) * 16), 0)


class Answering:
    """A connection to a broker that answers each acknowledgement with the next of these codes."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = list(codes)
        self.epochs: list[int] = []
        self.closed = False
        self.address = "there:1"
        self.versions: dict[Any, tuple[int, int]] = {}
        self.meanwhile: Callable[[], object] = lambda: None
        """Called while a request is on its way."""

    async def request(self, message: Any, *, timeout_s: float) -> Any:
        request = message.build(1)
        self.meanwhile()
        self.epochs.append(request.share_session_epoch)
        if not self.codes:
            await asyncio.sleep(timeout_s)
        kind = messages.ShareAcknowledgeResponse
        code = self.codes.pop(0) if request.topics else ErrorCode.NONE
        data = kind.PartitionData(partition_index=0, error_code=code)
        topics = [kind.ShareAcknowledgeTopicResponse(topic_id=P0.topic_id, partitions=[data])]
        return kind(responses=topics if request.topics else [])

    def close(self) -> None:
        self.closed = True


class Routing:
    """Pauses take no time, and end with the deadline."""

    async def pause(self, attempt: int, deadline: Deadline) -> bool:
        await asyncio.sleep(0)
        return deadline.remaining_s > 0


def leaving(
    connection: Answering, *, timeout_s: float = 60.0, count: int = 3, looks: bool = False
) -> list[AcknowledgeResult]:
    """What is told of two accepted records, of `count`, when the consumer closes; `looks`: and polls meanwhile."""
    told: list[AcknowledgeResult] = []

    async def run(flow: Any) -> Any:
        return await flow

    cluster = cast(Cluster, SimpleNamespace(run=run, routing=Routing()))
    leader = Leader(cluster, 1, "g", "m", ShareConsumerSettings(), told.extend)
    leader._connection = cast(Connection, connection)
    leader._session.fetch([P0], {})
    if looks:
        connection.meanwhile = leader.look
    delivery = Delivery(P0, T0, range(count), lock_ends_at=time.monotonic() + 1_000)
    delivery.say(0, AcknowledgeType.ACCEPT)
    delivery.say(1, AcknowledgeType.ACCEPT)
    leader.deliveries.append(delivery)
    now = time.monotonic
    asyncio.run(leader.close(Deadline(now, now() + timeout_s, timeout_s)))
    assert connection.closed
    return told


def test_a_refusal_for_now_is_asked_again_before_the_session_ends() -> None:
    connection = Answering(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE)
    assert leaving(connection) == [AcknowledgeResult(T0, 0, 1, AcknowledgeType.ACCEPT, None)]
    assert connection.epochs == [1, 2, 3, FINAL_EPOCH]


def test_what_is_on_its_way_is_not_forgotten_before_its_answer() -> None:
    """All that came together is spoken of in one request, and another poll looks what is done meanwhile."""
    connection = Answering(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE)
    told = leaving(connection, count=2, looks=True)
    assert told == [AcknowledgeResult(T0, 0, 1, AcknowledgeType.ACCEPT, None)]


def test_what_a_broker_cannot_take_is_told_as_failed() -> None:
    """The session ends all the same; the records come again."""
    connection = Answering(*[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2)
    ((place, first, last, kind, error),) = leaving(connection, timeout_s=0.0)
    assert (place, first, last, kind) == (T0, 0, 1, AcknowledgeType.ACCEPT)
    assert isinstance(error, (ConnectionFailed, KafkaError))


def test_what_a_broker_does_not_answer_is_told_as_failed() -> None:
    ((_, first, last, _, error),) = leaving(Answering(), timeout_s=0.05)
    assert (first, last, isinstance(error, ConnectionFailed)) == (0, 1, True)
